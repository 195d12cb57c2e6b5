//! The state as records: what changed, everything, and back again.
//!
//! A record's value is one byte of format version and the fields in bincode. A version, once released, does not change: a new one is
//! added and the old one stays readable.

use std::collections::HashSet;
use std::sync::Arc;

use ahash::RandomState;
use bytestring::ByteString;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::command::SubscriptionRecord;
use super::event::OutboxEvent;
use super::expiry::DueKey;
use super::record_key::{QueueOwner, RecordKey};
use super::session::{Group, Queue, QueueEntry, QueueHead, Session};
use super::state::{Head, State};
use super::stored_queue::IN_FLIGHT_MAX;
use crate::mqtt::Message;

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

/// No record is longer: a damaged length must not become an allocation.
const RECORD_BYTES_MAX: usize = 1 << 29;

/// Keys of records that differ from what was last written.
#[derive(Debug, Default)]
pub(super) struct DirtyRecords {
    keys: HashSet<RecordKey, RandomState>,
}

impl DirtyRecords {
    pub(super) fn mark(&mut self, key: RecordKey) {
        self.keys.insert(key);
    }

    /// Marks all records of a session that is gone.
    pub(super) fn mark_session(&mut self, session: &Session) {
        let client = &session.client;
        self.mark(RecordKey::Session(client.clone()));
        self.mark(RecordKey::QueueHead(client.clone()));
        for filter in session.subscriptions.keys() {
            self.mark(RecordKey::Subscription(client.clone(), filter.clone()));
        }
        for packet_id in &session.received {
            self.mark(RecordKey::Received(client.clone(), *packet_id));
        }
        for entry in &session.queue.entries {
            self.mark(RecordKey::Entry(QueueOwner::Session(client.clone()), entry.seq));
        }
    }
}

impl State {
    /// Records changed since the last call, in key order: `None` = deleted. Written in one atomic batch with the applied index.
    /// To be called now and then also where nothing is stored: the marks of what changed pile up until then.
    pub fn take_changes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let keys = std::mem::take(&mut self.dirty.keys);
        let mut changes: Vec<_> = keys.iter().map(|key| (key.encode(), self.value(key))).collect();
        changes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        changes
    }

    /// All records, for a snapshot; an owner comes before what belongs to it.
    pub fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        let sorted = self.sessions.in_order();
        let sessions = || sorted.clone().into_iter();
        let head = std::iter::once_with(|| (RecordKey::Head.encode(), encode(&self.head)));
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
        let entries = sessions().flat_map(|s| entry_records(&s.queue, QueueOwner::Session(s.client.clone())));
        let groups = self.groups.iter().map(|(id, group)| (RecordKey::Group(id.clone()).encode(), encode(group)));
        let group_entries = self.groups.iter().flat_map(|(id, group)| entry_records(&group.queue, QueueOwner::Group(id.clone())));
        let retained = self.retained_topics.iter().filter_map(|topic| {
            let message = self.retained.get(topic)?;
            Some((RecordKey::Retained(topic.clone()).encode(), encode(&message)))
        });
        let outbox = self.outbox.iter().map(|(position, event)| (RecordKey::Outbox(*position).encode(), encode(event)));
        Box::new(
            head.chain(of_sessions)
                .chain(queue_heads)
                .chain(subscriptions)
                .chain(received)
                .chain(entries)
                .chain(groups)
                .chain(group_entries)
                .chain(retained)
                .chain(outbox),
        )
    }

    /// Takes one stored record back, in key order or in that of `records`; call `finish_load` after the last.
    pub fn load(&mut self, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
        let parsed = RecordKey::decode(key).map_err(|what| damaged(key, what))?;
        match parsed {
            RecordKey::Head => self.head = decode::<Head>(key, value)?,
            RecordKey::Session(client) => {
                let session: Session = decode(key, value)?;
                if session.client != client {
                    return Err(damaged(key, "it names another client"));
                }
                self.sessions.insert(session);
            }
            RecordKey::QueueHead(client) => self.owner(key, &client)?.queue_head = decode::<QueueHead>(key, value)?,
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
                let session = self.owner(key, &client)?;
                load_entry(&mut session.queue, seq, key, value)?;
            }
            RecordKey::Group(id) => {
                self.groups.insert(id, decode::<Group>(key, value)?);
            }
            RecordKey::Entry(QueueOwner::Group(id), seq) => {
                let group = self.groups.get_mut(&id).ok_or_else(|| damaged(key, "its group is missing"))?;
                load_entry(&mut group.queue, seq, key, value)?;
            }
            RecordKey::Retained(topic) => {
                let message: Arc<Message> = decode(key, value)?;
                if message.topic != topic {
                    return Err(damaged(key, "it names another topic"));
                }
                self.retained.insert(message);
                self.retained_topics.insert(topic);
            }
            RecordKey::Outbox(position) => {
                if self.outbox.back().is_some_and(|(last, _)| *last >= position) {
                    return Err(damaged(key, "it is out of order"));
                }
                self.push_outbox(position, decode::<Arc<OutboxEvent>>(key, value)?);
            }
        }
        Ok(())
    }

    /// Rebuilds what is derived (due times, counts, connections by node).
    pub fn finish_load(&mut self) {
        self.connected.clear();
        self.due = super::expiry::DueTimes::default();
        self.queued_count = 0;
        self.subscription_count = 0;
        self.sessions.for_each_mut(|session| {
            let client = &session.client;
            if let Some(connection) = session.connection {
                let of_node = self.connected.entry((connection.node, connection.incarnation)).or_default();
                of_node.insert(client.clone());
            }
            session.queue.shield(usize::MAX);
            session.queue.set_begun(session.queue_head.sent_seq);
            session.queue.shield(if session.connection.is_some() { IN_FLIGHT_MAX } else { 0 });
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
        for topic in &self.retained_topics {
            let due_ms = self.retained.get(topic).and_then(|message| message.expires_at_ms());
            self.due.change(None, due_ms, || DueKey::Retained(topic.clone()));
        }
    }

    fn owner(&mut self, key: &[u8], client: &ByteString) -> Result<&mut Session, RecordError> {
        self.sessions.get_mut(client).ok_or_else(|| damaged(key, "its session is missing"))
    }

    /// The value of a record; `None` where the state has no such record.
    fn value(&self, key: &RecordKey) -> Option<Vec<u8>> {
        match key {
            RecordKey::Head => Some(encode(&self.head)),
            RecordKey::Session(client) => self.sessions.get(client).map(encode),
            RecordKey::QueueHead(client) => self.sessions.get(client).map(|session| encode(&session.queue_head)),
            RecordKey::Subscription(client, filter) => self.sessions.get(client)?.subscriptions.get(filter).map(encode),
            RecordKey::Received(client, packet_id) => self.sessions.get(client)?.received.get(packet_id).map(|_| encode(&())),
            RecordKey::Group(id) => self.groups.get(id).map(encode),
            RecordKey::Entry(QueueOwner::Session(client), seq) => entry_value(&self.sessions.get(client)?.queue, *seq),
            RecordKey::Entry(QueueOwner::Group(id), seq) => entry_value(&self.groups.get(id)?.queue, *seq),
            RecordKey::Retained(topic) => self.retained.get(topic).map(|message| encode(&message)),
            RecordKey::Outbox(position) => {
                let index = self.outbox.binary_search_by_key(position, |(position, _)| *position).ok()?;
                self.outbox.get(index).map(|(_, event)| encode(event))
            }
        }
    }
}

fn entry_records(queue: &Queue, owner: QueueOwner) -> impl Iterator<Item = Record> + '_ {
    queue.entries.iter().map(move |entry| (RecordKey::Entry(owner.clone(), entry.seq).encode(), encode(entry)))
}

fn entry_value(queue: &Queue, seq: u64) -> Option<Vec<u8>> {
    queue.find(seq).and_then(|index| queue.entries.get(index)).map(encode)
}

fn load_entry(queue: &mut Queue, seq: u64, key: &[u8], value: &[u8]) -> Result<(), RecordError> {
    let entry: QueueEntry = decode(key, value)?;
    if entry.seq != seq {
        return Err(damaged(key, "it has another sequence number"));
    }
    if queue.entries.back().is_some_and(|last| last.seq >= seq) {
        return Err(damaged(key, "it is out of order"));
    }
    queue.append(entry);
    Ok(())
}

#[expect(
    clippy::expect_used,
    reason = "writing to memory cannot fail, and bincode can express all fields of records: tests write each kind"
)]
fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard()).expect("record in bincode");
    bytes
}

fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, RecordError> {
    let config = bincode::config::standard().with_limit::<RECORD_BYTES_MAX>();
    match value.split_first() {
        None => Err(damaged(key, "it is empty")),
        Some((0, _)) => Err(damaged(key, "format version 0 does not exist")),
        Some((&FORMAT, body)) => match bincode::serde::decode_from_slice(body, config) {
            Ok((decoded, length)) if length == body.len() => Ok(decoded),
            Ok(_) => Err(damaged(key, "bytes are left over")),
            Err(error) => Err(damaged(key, error)),
        },
        Some((&found, _)) => Err(RecordError::NewerFormat { key: shown(key), found, known: FORMAT }),
    }
}

fn damaged(key: &[u8], what: impl ToString) -> RecordError {
    RecordError::Damaged { key: shown(key), what: what.to_string() }
}

/// A key as text: what is not printable as an escape.
fn shown(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}
