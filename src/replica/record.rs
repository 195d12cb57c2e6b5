//! The state as records: what changed, everything, and back again.
//!
//! A record's value is one byte of format version and the fields in bincode. A version, once released, does not change: a new one is
//! added and the old one stays readable. A large payload has records of its own (see `body`), each with the length of the whole
//! (u64, big-endian) and the bytes behind the format version.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use ahash::RandomState;
use bytes::Bytes;
use bytestring::ByteString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::body::{BodyId, message_of_event, message_of_event_mut, with_payload};
use super::command::SubscriptionRecord;
use super::event::OutboxEvent;
use super::expiry::DueKey;
use super::record_key::{QueueOwner, RecordKey};
use super::session::{Group, Queue, QueueEntry, QueueHead, Session};
use super::slot::{SEQ_MAX, Slot};
use super::state::{Head, State};
use crate::mqtt::{GroupId, Message};

/// A record of the state as it is stored and sent in snapshots: key and value, both versioned encodings.
pub type Record = (Vec<u8>, Vec<u8>);

/// Why stored bytes are no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("record {key} has format version {found}, this program reads up to {known}")]
    NewerFormat { key: String, found: u8, known: u8 },
    #[error("record {key} is damaged: {what}")]
    Damaged { key: String, what: String },
}

/// The format version that is written; the first is 1.
const FORMAT: u8 = 1;
/// The same for a record whose message has its payload in a body: the body's id stands before the fields.
const FORMAT_WITH_BODY: u8 = 2;

/// Most records are not longer.
const RECORD_BYTES_USUAL: usize = 128;

/// No record is longer: a damaged length must not become an allocation.
const RECORD_BYTES_MAX: usize = 1 << 29;

/// Keys of records that differ from what was last written. What comes and goes in between is never written, nor deleted.
#[derive(Debug, Default)]
pub(super) struct DirtyRecords {
    keys: HashMap<RecordKey, Written, RandomState>,
    /// Entries of queues that went.
    entries_gone: usize,
}

/// How much the state differs from what was last written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Records that are new, changed or gone.
    pub records: usize,
    /// Queued messages that went meanwhile, written before or not: where there are many, what is queued now will hardly stay.
    pub passed: usize,
}

/// Whether a record may have been there when records were last written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Maybe,
    Never,
}

impl DirtyRecords {
    pub(super) fn keys(&self) -> impl Iterator<Item = &RecordKey> {
        self.keys.keys()
    }

    /// The record may have changed.
    pub(super) fn mark(&mut self, key: RecordKey) {
        self.keys.entry(key).or_insert(Written::Maybe);
    }

    /// The record is there now, and was not before.
    pub(super) fn created(&mut self, key: RecordKey) {
        self.keys.entry(key).or_insert(Written::Never);
    }

    /// The record is not there any more.
    pub(super) fn gone(&mut self, key: RecordKey) {
        self.entries_gone += usize::from(matches!(key, RecordKey::Entry(..)));
        match self.keys.entry(key) {
            Entry::Occupied(known) if *known.get() == Written::Never => {
                known.remove();
            }
            Entry::Occupied(_) => {}
            Entry::Vacant(unknown) => {
                unknown.insert(Written::Maybe);
            }
        }
    }

    /// All records of a session are gone.
    pub(super) fn session_gone(&mut self, session: &Session) {
        let client = &session.client;
        self.gone(RecordKey::Session(client.clone()));
        self.gone(RecordKey::QueueHead(client.clone()));
        if session.window != 0 {
            self.gone(RecordKey::Window(client.clone()));
        }
        for filter in session.subscriptions.keys() {
            self.gone(RecordKey::Subscription(client.clone(), filter.clone()));
        }
        for packet_id in session.received.iter() {
            self.gone(RecordKey::Received(client.clone(), *packet_id));
        }
        for entry in &session.queue.entries {
            self.gone(RecordKey::Entry(QueueOwner::Session(client.clone()), entry.seq()));
        }
    }
}

impl State {
    /// Records changed since the last call, in key order: `None` = deleted. Written in one atomic batch with the applied index.
    /// To be called now and then also where nothing is stored: the marks of what changed pile up until then. Over a disk `written` is to be
    /// called once that is done.
    pub fn take_changes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        self.settle_bodies();
        let DirtyRecords { keys, .. } = std::mem::take(&mut self.dirty);
        if self.cold.is_some() {
            let entry = |key: &RecordKey| if let RecordKey::Entry(owner, seq) = key { Some((owner.clone(), *seq)) } else { None };
            self.fresh.extend(keys.keys().filter_map(entry));
        }
        let mut changes: Vec<_> = keys.keys().map(|key| (key.encode(), self.value(key))).collect();
        changes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        changes
    }

    /// How much differs from what was last written.
    pub fn unwritten(&self) -> Unwritten {
        Unwritten { records: self.dirty.keys.len(), passed: self.dirty.entries_gone }
    }

    /// All records, for a snapshot; an owner comes before what belongs to it.
    pub fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        let sorted = self.sessions.in_order();
        let sessions = || sorted.clone().into_iter();
        let head = std::iter::once_with(|| (RecordKey::Head.encode(), encode(&self.head)));
        let live = self.live_bodies();
        let bodies = self.bodies.parts(&live).into_iter().filter_map(|(id, ordinal)| {
            let key = RecordKey::BodyPart(id, ordinal);
            Some((key.encode(), self.value(&key)?))
        });
        let of_sessions = sessions().map(|s| (RecordKey::Session(s.client.clone()).encode(), encode(s)));
        let queue_heads = sessions().map(|s| (RecordKey::QueueHead(s.client.clone()).encode(), encode(&s.queue_head)));
        let subscriptions = sessions().flat_map(|s| {
            s.subscriptions
                .iter()
                .map(|(filter, kept)| (RecordKey::Subscription(s.client.clone(), filter.clone()).encode(), encode(kept)))
        });
        let received = sessions().flat_map(|s| {
            s.received.iter().map(|packet_id| (RecordKey::Received(s.client.clone(), *packet_id).encode(), encode(&())))
        });
        let entries = sessions().flat_map(|s| self.entry_records(&s.queue, QueueOwner::Session(s.client.clone())));
        let groups = self.groups.iter().map(|(id, group)| (RecordKey::Group(id.clone()).encode(), encode(group)));
        let group_entries =
            self.groups.iter().flat_map(|(id, group)| self.entry_records(&group.queue, QueueOwner::Group(id.clone())));
        let assigned = self.assigned.iter().flat_map(|(client, groups)| {
            groups.iter().map(|(seq, group)| (RecordKey::Assigned(client.clone(), *seq).encode(), encode(group)))
        });
        let windows =
            sessions().filter(|s| s.window != 0).map(|s| (RecordKey::Window(s.client.clone()).encode(), encode(&s.window)));
        let declared = self.declared.iter().map(|(id, nodes)| (RecordKey::Declared(id.clone()).encode(), encode(nodes)));
        let retained = self.retained.iter().map(|message| {
            let key = RecordKey::Retained(message.topic.clone());
            (key.encode(), self.retained_value(message))
        });
        let outbox = self.outbox.iter().map(|(position, event)| (RecordKey::Outbox(*position).encode(), self.event_value(event)));
        Box::new(
            head.chain(bodies)
                .chain(of_sessions)
                .chain(queue_heads)
                .chain(subscriptions)
                .chain(received)
                .chain(entries)
                .chain(assigned)
                .chain(windows)
                .chain(groups)
                .chain(group_entries)
                .chain(declared)
                .chain(retained)
                .chain(outbox),
        )
    }

    /// Takes one stored record back, in key order or in that of `records`; call `finish_load` after the last.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
        let parsed = RecordKey::decode(key).map_err(|what| damaged(key, what))?;
        match parsed {
            RecordKey::Head => self.head = decode::<Head>(key, value)?,
            RecordKey::BodyPart(id, ordinal) => {
                let (bytes_total, part) = decode_part(key, value)?;
                self.bodies.load((id, ordinal), bytes_total, part, self.cold.is_some()).map_err(|what| damaged(key, what))?;
            }
            RecordKey::Session(client) => {
                let session: Session = decode(key, value)?;
                if session.client != client {
                    return Err(damaged(key, "it names another client"));
                }
                // `finish_load` lets expire what may.
                let queue = Queue { shielded: u32::MAX, ..Queue::default() };
                self.sessions.insert(Session { queue, ..session });
            }
            RecordKey::QueueHead(client) => {
                let head = decode::<QueueHead>(key, value)?;
                check_head(key, &head)?;
                self.owner(key, &client)?.queue_head = head;
            }
            RecordKey::Subscription(client, filter) => {
                let kept: SubscriptionRecord = decode(key, value)?;
                if kept.filter != filter {
                    return Err(damaged(key, "it names another filter"));
                }
                self.owner(key, &client)?.subscriptions.insert(filter, kept);
            }
            RecordKey::Received(client, packet_id) => {
                decode::<()>(key, value)?;
                self.owner(key, &client)?.received.insert(packet_id);
            }
            RecordKey::Entry(QueueOwner::Session(client), seq) => {
                let slot = self.load_slot(key, value, seq)?;
                load_entry(&mut self.owner(key, &client)?.queue, key, slot)?;
            }
            RecordKey::Assigned(client, seq) => {
                self.owner(key, &client)?;
                let group: GroupId = decode(key, value)?;
                self.assigned.entry(client).or_default().insert(seq, group);
            }
            RecordKey::Window(client) => self.owner(key, &client)?.window = decode(key, value)?,
            RecordKey::Declared(id) => {
                self.declared.insert(id, decode(key, value)?);
            }
            RecordKey::Group(id) => {
                let group = decode::<Group>(key, value)?;
                check_head(key, &group.queue_head)?;
                let queue = Queue { lent_seq: group.queue_head.sent_seq, ..Queue::default() };
                self.groups.insert(id, Group { queue, ..group });
            }
            RecordKey::Entry(QueueOwner::Group(id), seq) => {
                let slot = self.load_slot(key, value, seq)?;
                let group = self.groups.get_mut(&id).ok_or_else(|| damaged(key, "its group is missing"))?;
                load_entry(&mut group.queue, key, slot)?;
            }
            RecordKey::Retained(topic) => {
                let message: Arc<Message> = self.decode_with_body(key, value, |message: &mut Arc<Message>| Some(message))?;
                if message.topic != topic {
                    return Err(damaged(key, "it names another topic"));
                }
                self.retained.insert(message);
            }
            RecordKey::Outbox(position) => {
                if self.outbox.back().is_some_and(|(last, _)| *last >= position) {
                    return Err(damaged(key, "it is out of order"));
                }
                let event = self.decode_with_body(key, value, message_of_event_mut)?;
                self.push_outbox(position, Arc::new(event));
            }
        }
        Ok(())
    }

    /// Rebuilds what is derived (due times, counts, connections by node).
    pub fn finish_load(&mut self) {
        if let Err(error) = self.bodies.finish_load(self.cold.as_ref()) {
            self.fail(error);
        }
        self.connected.clear();
        self.due = super::expiry::DueTimes::default();
        self.queued_count = 0;
        self.subscription_count = 0;
        self.sessions.for_each_mut(|session| {
            let client = &session.client;
            if let Some(connection) = session.connection {
                *self.connected.entry((connection.node, connection.incarnation)).or_default() += 1;
            }
            session.queue.shield(usize::MAX);
            session.queue.set_begun(session.queue_head.sent_seq);
            session.queue.shield(if session.connection.is_some() { session.window() } else { 0 });
            self.due.change(None, session.will_due_ms, || DueKey::Will(client.clone()));
            self.due.change(None, session.expires_at_ms, || DueKey::Session(client.clone()));
            let queue_due_ms = session.queue.next_expiry_ms();
            self.due.change(None, queue_due_ms, || DueKey::Queue(QueueOwner::Session(client.clone())));
            self.queued_count += session.queue.entries.len();
            self.subscription_count += session.subscriptions.len();
        });
        for (id, group) in &self.groups {
            self.due.change(None, group.queue.next_expiry_ms(), || DueKey::Queue(QueueOwner::Group(id.clone())));
            self.queued_count += group.queue.entries.len();
        }
        for message in self.retained.iter() {
            self.due.change(None, message.expires_at_ms(), || DueKey::Retained(message.topic.clone()));
        }
    }

    fn owner(&mut self, key: &[u8], client: &ByteString) -> Result<&mut Session, RecordError> {
        self.sessions.get_mut(client).ok_or_else(|| damaged(key, "its session is missing"))
    }

    /// The value of a record; `None` where the state has no such record.
    fn value(&self, key: &RecordKey) -> Option<Vec<u8>> {
        match key {
            RecordKey::Head => Some(encode(&self.head)),
            RecordKey::BodyPart(id, ordinal) => {
                let Some((bytes_total, part)) = self.bodies.part(*id, *ordinal) else {
                    return if self.bodies.is_stored(*id, *ordinal) { self.stored_value(key) } else { None };
                };
                Some([&[FORMAT][..], &bytes_total.to_be_bytes(), part].concat())
            }
            RecordKey::Session(client) => self.sessions.get(client).map(encode),
            RecordKey::QueueHead(client) => self.sessions.get(client).map(|session| encode(&session.queue_head)),
            RecordKey::Subscription(client, filter) => self.sessions.get(client)?.subscriptions.get(filter).map(encode),
            RecordKey::Received(client, packet_id) => {
                self.sessions.get(client)?.received.contains(packet_id).then(|| encode(&()))
            }
            RecordKey::Assigned(client, seq) => self.assigned.get(client)?.get(seq).map(encode),
            RecordKey::Window(client) => {
                let window = self.sessions.get(client)?.window;
                (window != 0).then(|| encode(&window))
            }
            RecordKey::Declared(id) => self.declared.get(id).map(encode),
            RecordKey::Group(id) => self.groups.get(id).map(encode),
            RecordKey::Entry(owner, seq) => {
                let queue = self.queue_of(owner)?;
                self.slot_value(key, queue.entries.get(queue.find(*seq)?)?)
            }
            RecordKey::Retained(topic) => self.retained.get(topic).map(|message| self.retained_value(message)),
            RecordKey::Outbox(position) => {
                let index = self.outbox.binary_search_by_key(position, |(position, _)| *position).ok()?;
                self.outbox.get(index).map(|(_, event)| self.event_value(event))
            }
        }
    }

    fn entry_records<'a>(&'a self, queue: &'a Queue, owner: QueueOwner) -> impl Iterator<Item = Record> + 'a {
        queue.entries.iter().filter_map(move |slot| {
            let key = RecordKey::Entry(owner.clone(), slot.seq());
            Some((key.encode(), self.slot_value(&key, slot)?))
        })
    }

    fn slot_value(&self, key: &RecordKey, slot: &Slot) -> Option<Vec<u8>> {
        match slot.entry() {
            Some(entry) => Some(self.queued_value(&entry)),
            None => self.stored_value(key),
        }
    }

    fn queued_value(&self, entry: &QueueEntry) -> Vec<u8> {
        let Some((id, message)) = entry.message.as_ref().and_then(|message| self.without_body(message)) else {
            return encode(entry);
        };
        encode_with_body(id, &QueueEntry { message: Some(message), ..entry.clone() })
    }

    fn retained_value(&self, message: &Arc<Message>) -> Vec<u8> {
        match self.without_body(message) {
            Some((id, message)) => encode_with_body(id, &message),
            None => encode(message),
        }
    }

    fn event_value(&self, event: &OutboxEvent) -> Vec<u8> {
        let Some((id, message)) = message_of_event(event).and_then(|message| self.without_body(message)) else {
            return encode(event);
        };
        let mut event = event.clone();
        if let Some(kept) = message_of_event_mut(&mut event) {
            *kept = message;
        }
        encode_with_body(id, &event)
    }

    /// The body of a message that has one, and the message without it.
    fn without_body(&self, message: &Arc<Message>) -> Option<(BodyId, Arc<Message>)> {
        let id = self.bodies.of(message)?;
        Some((id, with_payload(message, Bytes::new())))
    }

    /// An entry of a queue that is on disk.
    fn load_slot(&mut self, key: &[u8], value: &[u8], seq: u64) -> Result<Slot, RecordError> {
        let slot = if self.cold.is_some() {
            let (entry, body) = decode_entry(key, value)?;
            if let Some(id) = body {
                if !self.bodies.is_complete(id) {
                    return Err(damaged(key, BODY_MISSING));
                }
                self.bodies.load_reference(RecordKey::decode(key).map_err(|what| damaged(key, what))?, id);
            }
            Slot::stub_of(&entry)
        } else {
            Slot::new(self.decode_with_body(key, value, |entry: &mut QueueEntry| entry.message.as_mut())?)
        };
        if slot.seq() == seq { Ok(slot) } else { Err(damaged(key, "it has another sequence number")) }
    }

    /// Decodes a record whose message may have its payload in a body.
    fn decode_with_body<T: DeserializeOwned>(
        &mut self,
        key: &[u8],
        value: &[u8],
        message: impl FnOnce(&mut T) -> Option<&mut Arc<Message>>,
    ) -> Result<T, RecordError> {
        let (mut decoded, id) = decode_apart::<T>(key, value)?;
        let Some(id) = id else { return Ok(decoded) };
        let payload = self.bodies.payload(id, self.cold.as_ref()).map_err(|error| damaged(key, error))?;
        let payload = payload.ok_or_else(|| damaged(key, BODY_MISSING))?;
        let message = message(&mut decoded).ok_or_else(|| damaged(key, NO_MESSAGE))?;
        *message = with_payload(message, payload);
        let parsed = RecordKey::decode(key).map_err(|what| damaged(key, what))?;
        self.bodies.load_reference(parsed, id);
        Ok(decoded)
    }
}

const BODY_MISSING: &str = "its payload is missing or incomplete";
const NO_MESSAGE: &str = "it has a payload and no message";

/// An entry of a queue, and the body that its payload is in: the message has none then.
pub(super) fn decode_entry(key: &[u8], value: &[u8]) -> Result<(QueueEntry, Option<BodyId>), RecordError> {
    let (entry, body) = decode_apart::<QueueEntry>(key, value)?;
    if body.is_some() && entry.message.is_none() { Err(damaged(key, NO_MESSAGE)) } else { Ok((entry, body)) }
}

/// The fields of a record, and the body that it refers to.
fn decode_apart<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<(T, Option<BodyId>), RecordError> {
    let rest = match value.split_first() {
        Some((&FORMAT_WITH_BODY, rest)) => rest,
        Some((&found, _)) if found > FORMAT_WITH_BODY => {
            return Err(RecordError::NewerFormat { key: shown(key), found, known: FORMAT_WITH_BODY });
        }
        _ => return Ok((decode(key, value)?, None)),
    };
    let (id, fields) = rest.split_at_checked(BodyId::BYTES).ok_or_else(|| damaged(key, "it is too short"))?;
    let id = BodyId::decode(id).ok_or_else(|| damaged(key, "it is too short"))?;
    Ok((decode_fields(key, fields)?, Some(id)))
}

fn check_head(key: &[u8], head: &QueueHead) -> Result<(), RecordError> {
    if head.next_seq > SEQ_MAX { Err(damaged(key, "its sequence number is too large")) } else { Ok(()) }
}

fn load_entry(queue: &mut Queue, key: &[u8], entry: Slot) -> Result<(), RecordError> {
    if queue.entries.back().is_some_and(|last| last.seq() >= entry.seq()) {
        return Err(damaged(key, "it is out of order"));
    }
    queue.append(entry);
    Ok(())
}

#[expect(
    clippy::expect_used,
    reason = "writing to memory cannot fail, and bincode can express all fields of records: tests write each kind"
)]
fn encode_behind<T: Serialize>(mut bytes: Vec<u8>, value: &T) -> Vec<u8> {
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard()).expect("record in bincode");
    bytes
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES_USUAL);
    bytes.push(FORMAT);
    encode_behind(bytes, value)
}

fn encode_with_body<T: Serialize>(id: BodyId, value: &T) -> Vec<u8> {
    encode_behind([&[FORMAT_WITH_BODY][..], &id.encode()].concat(), value)
}

/// The length of the whole, and the bytes.
pub(super) fn decode_part<'a>(key: &[u8], value: &'a [u8]) -> Result<(u64, &'a [u8]), RecordError> {
    match value.split_first() {
        Some((&FORMAT, rest)) => {
            let (bytes_total, part) = rest.split_first_chunk().ok_or_else(|| damaged(key, "it is too short"))?;
            Ok((u64::from_be_bytes(*bytes_total), part))
        }
        Some((&found, _)) => Err(RecordError::NewerFormat { key: shown(key), found, known: FORMAT }),
        None => Err(damaged(key, "it is empty")),
    }
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, RecordError> {
    match value.split_first() {
        None => Err(damaged(key, "it is empty")),
        Some((0, _)) => Err(damaged(key, "format version 0 does not exist")),
        Some((&FORMAT, fields)) => decode_fields(key, fields),
        Some((&found, _)) => Err(RecordError::NewerFormat { key: shown(key), found, known: FORMAT }),
    }
}

fn decode_fields<T: DeserializeOwned>(key: &[u8], fields: &[u8]) -> Result<T, RecordError> {
    let config = bincode::config::standard().with_limit::<RECORD_BYTES_MAX>();
    match bincode::serde::decode_from_slice(fields, config) {
        Ok((decoded, length)) if length == fields.len() => Ok(decoded),
        Ok(_) => Err(damaged(key, "bytes are left over")),
        Err(error) => Err(damaged(key, error)),
    }
}

fn damaged(key: &[u8], what: impl ToString) -> RecordError {
    RecordError::Damaged { key: shown(key), what: what.to_string() }
}

/// A key as text: what is not printable as an escape.
fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
