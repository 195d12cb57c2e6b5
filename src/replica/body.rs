//! Large payloads. One entry of the log must stay small, so that heartbeats and other clients get their turn between two: a payload above
//! [`INLINE_BYTES_MAX`] travels in parts (`Command::Part`), ahead of the command that uses it (`Command::Whole`).
//!
//! A node has one body under way in a shard at a time, since it numbers its commands for the shard; other commands may stand between the
//! parts. What is under way ends with the incarnation that sends it. A body that was used is kept apart from the records that refer to it,
//! in parts too, and shared by them: it is written once, however many queues hold the message, and goes with the last of them. Who refers to
//! it is found where records are written (`State::take_changes`): each change of a record passes there, whatever made it.
//!
//! Over a disk (see `cold`) the bytes of a body that was used belong to the messages in memory that have it, and go with the last of them. They
//! are read again for an entry of a queue that is read, and shared with whoever has them at that moment (`Living`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use ahash::RandomState;
use bytes::Bytes;
use parking_lot::Mutex;

use super::apply::Scope;
use super::cold::{Cold, ReadError};
use super::command::{Command, PartCommand, Target};
use super::event::{OutboxEvent, Outcome};
use super::ids::{Incarnation, NodeId};
use super::record::DirtyRecords;
use super::record_key::RecordKey;
use super::session::Queue;
use super::slot::Slot;
use super::state::State;
use crate::mqtt::{Message, ReasonCode, topic_filter};

/// Payloads up to this length travel, and are stored, inside the message.
pub const INLINE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a part, but for the last of a body.
pub const PART_BYTES: usize = 512 * 1024;
/// No MQTT packet is longer, so no payload is.
pub const BODY_BYTES_MAX: usize = 268_435_460;

/// A body, by its first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BodyId {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub seq: u64,
}

impl BodyId {
    pub(super) const BYTES: usize = 24;

    /// Big-endian, in the order of the fields.
    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = [self.node, self.incarnation, self.seq].map(u64::to_be_bytes);
        bytes.iter_mut().zip(fields.as_flattened()).for_each(|(byte, field)| *byte = *field);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (node, rest) = bytes.split_first_chunk()?;
        let (incarnation, seq) = rest.split_first_chunk()?;
        let seq = u64::from_be_bytes(seq.try_into().ok()?);
        Some(Self { node: u64::from_be_bytes(*node), incarnation: u64::from_be_bytes(*incarnation), seq })
    }
}

#[derive(Debug)]
struct Body {
    bytes_total: usize,
    /// Length of all parts but the last.
    part_bytes: usize,
    content: Content,
    /// Where its bytes were when the state had them last.
    place: Option<(usize, usize)>,
    /// Its command was applied: it goes when nothing refers to it.
    used: bool,
    /// Records that refer to it, as of the last `take_changes`.
    references: usize,
}

#[derive(Debug)]
enum Content {
    Filling(Vec<u8>),
    Whole(Arc<Vec<u8>>),
    /// So many bytes are on disk; in memory they are at most as `Living`.
    Stored(usize),
}

impl Content {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Filling(bytes) => Some(bytes),
            Self::Whole(bytes) => Some(bytes),
            Self::Stored(_) => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Stored(length) => *length,
            Self::Filling(_) | Self::Whole(_) => self.bytes().map_or(0, <[u8]>::len),
        }
    }
}

/// Bodies on disk whose bytes are in memory for as long as a message has them.
#[derive(Debug, Clone, Default)]
pub(super) struct Living(Arc<Mutex<Held>>);

type Held = HashMap<BodyId, Weak<Vec<u8>>, RandomState>;

impl Living {
    pub(super) fn get(&self, id: BodyId) -> Option<Bytes> {
        self.0.lock().get(&id)?.upgrade().map(shared)
    }

    /// Shares bytes that were read, or those that somebody else read meanwhile.
    pub(super) fn share(&self, id: BodyId, bytes: Vec<u8>) -> Bytes {
        let mut living = self.0.lock();
        if let Some(bytes) = living.get(&id).and_then(Weak::upgrade) {
            return shared(bytes);
        }
        let bytes = Arc::new(bytes);
        // What is read of a body that is gone meanwhile leaves its name.
        living.retain(|_, bytes| bytes.strong_count() > 0);
        living.insert(id, Arc::downgrade(&bytes));
        shared(bytes)
    }

    fn insert(&self, id: BodyId, bytes: &Arc<Vec<u8>>) {
        self.0.lock().insert(id, Arc::downgrade(bytes));
    }

    fn remove(&self, id: BodyId) {
        self.0.lock().remove(&id);
    }
}

fn shared(bytes: Arc<Vec<u8>>) -> Bytes {
    struct Shared(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Shared {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Shared(bytes))
}

impl Body {
    /// A part as stored, by its number.
    fn part(&self, ordinal: u32) -> Option<&[u8]> {
        let bytes = self.content.bytes()?;
        let start = usize::try_from(ordinal).ok()?.checked_mul(self.part_bytes)?;
        let end = start.saturating_add(self.part_bytes).min(bytes.len());
        bytes.get(start..end).filter(|part| !part.is_empty())
    }

    fn parts(&self) -> u32 {
        u32::try_from(self.content.len().div_ceil(self.part_bytes.max(1))).unwrap_or(u32::MAX)
    }

    /// Appends the next part; false where it is not the next.
    fn append(&mut self, offset: usize, part: &[u8]) -> bool {
        let end = offset.saturating_add(part.len());
        let is_last = end == self.bytes_total;
        let fits = self.content.len() == offset
            && offset.is_multiple_of(self.part_bytes)
            && !part.is_empty()
            && end <= self.bytes_total
            && (is_last || part.len() == self.part_bytes)
            && part.len() <= self.part_bytes;
        match &mut self.content {
            Content::Filling(bytes) if fits => bytes.extend_from_slice(part),
            Content::Stored(length) if fits => *length = end,
            Content::Filling(_) | Content::Whole(_) | Content::Stored(_) => return false,
        }
        true
    }
}

/// All bodies of a shard.
#[derive(Debug, Default)]
pub(super) struct Bodies {
    by_id: BTreeMap<BodyId, Body>,
    /// The complete ones by where their bytes are: a message of the state whose payload lies there has that body. A body's bytes stay
    /// where they are for as long as it is here, so nothing else can lie there.
    by_place: BTreeMap<(usize, usize), BodyId>,
    /// Those under way, or complete and not used yet: one for each node.
    under_way: BTreeMap<NodeId, BodyId>,
    /// What each record referred to when it was last written.
    referring: HashMap<RecordKey, BodyId, RandomState>,
    /// Bodies that were used, or lost a reference, since the last `take_changes`.
    touched: BTreeSet<BodyId>,
    /// Bodies whose bytes are held here.
    whole: BTreeSet<BodyId>,
    living: Living,
}

impl Bodies {
    /// Bytes of bodies under way.
    #[cfg(test)]
    pub(super) fn under_way_bytes(&self) -> usize {
        let of = |id| self.by_id.get(id).map_or(0, |body: &Body| body.content.len());
        self.under_way.values().map(of).sum()
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// The body that is a message's payload.
    pub(super) fn of(&self, message: &Message) -> Option<BodyId> {
        if message.payload.len() <= INLINE_BYTES_MAX {
            return None;
        }
        let place = place(&message.payload);
        let id = *self.by_place.get(&place)?;
        let now = match &self.by_id.get(&id)?.content {
            Content::Filling(_) => return None,
            Content::Whole(bytes) => (bytes.as_ptr().addr(), bytes.len()),
            // Where the bytes of a body were that nobody has now, others may be.
            Content::Stored(_) => self::place(&self.living.get(id)?),
        };
        (now == place).then_some(id)
    }

    pub(super) fn living(&self) -> Living {
        self.living.clone()
    }

    /// The bytes of a complete body.
    pub(super) fn payload(&mut self, id: BodyId, cold: Option<&Cold>) -> Result<Option<Bytes>, ReadError> {
        if !self.is_complete(id) {
            return Ok(None);
        }
        match (self.by_id.get(&id).map(|body| &body.content), cold) {
            (Some(Content::Whole(bytes)), _) => Ok(Some(shared(Arc::clone(bytes)))),
            (Some(Content::Stored(_)), Some(cold)) => {
                let bytes = cold.payload(id)?;
                self.adopt(id, &bytes);
                Ok(Some(bytes))
            }
            (Some(Content::Stored(_) | Content::Filling(_)) | None, _) => Ok(None),
        }
    }

    /// All parts of a body are there.
    pub(super) fn is_complete(&self, id: BodyId) -> bool {
        let complete = |body: &Body| body.content.len() == body.bytes_total && !matches!(body.content, Content::Filling(_));
        self.by_id.get(&id).is_some_and(complete)
    }

    /// A part is on disk and not held here.
    pub(super) fn is_stored(&self, id: BodyId, ordinal: u32) -> bool {
        self.by_id.get(&id).is_some_and(|body| matches!(body.content, Content::Stored(_)) && ordinal < body.parts())
    }

    /// The state has a message with these bytes of a stored body.
    pub(super) fn adopt(&mut self, id: BodyId, bytes: &Bytes) {
        if self.by_id.get(&id).is_some_and(|body| matches!(body.content, Content::Stored(_))) {
            self.set_place(id, place(bytes));
        }
    }

    fn set_place(&mut self, id: BodyId, place: (usize, usize)) {
        let Some(body) = self.by_id.get_mut(&id) else { return };
        let before = body.place.replace(place);
        if let Some(before) = before.filter(|before| *before != place && self.by_place.get(before) == Some(&id)) {
            self.by_place.remove(&before);
        }
        self.by_place.insert(place, id);
    }

    /// What was used is on disk with all its parts: from now on its bytes belong to the messages that have it.
    pub(super) fn cool(&mut self) {
        if self.whole.is_empty() {
            return;
        }
        let by_id = &mut self.by_id;
        let living = &self.living;
        self.whole.retain(|id| {
            let Some(body) = by_id.get_mut(id) else { return false };
            if !body.used {
                return true;
            }
            if let Content::Whole(bytes) = &body.content {
                living.insert(*id, bytes);
                body.content = Content::Stored(bytes.len());
            }
            false
        });
    }

    /// A part as it is stored: the length of the whole body, and the bytes.
    pub(super) fn part(&self, id: BodyId, ordinal: u32) -> Option<(u64, &[u8])> {
        let body = self.by_id.get(&id)?;
        Some((body.bytes_total as u64, body.part(ordinal)?))
    }

    /// All parts of the bodies that are under way or among `live`.
    pub(super) fn parts(&self, live: &BTreeSet<BodyId>) -> Vec<(BodyId, u32)> {
        let kept = self.by_id.iter().filter(|(id, _)| live.contains(id) || self.under_way.get(&id.node) == Some(id));
        kept.flat_map(|(id, body)| (0..body.parts()).map(|ordinal| (*id, ordinal))).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty() && self.referring.is_empty()
    }

    fn begin(&mut self, id: BodyId, bytes_total: usize, part_bytes: usize) {
        self.begin_with(id, bytes_total, part_bytes, Content::Filling(Vec::with_capacity(bytes_total)));
    }

    fn begin_with(&mut self, id: BodyId, bytes_total: usize, part_bytes: usize, content: Content) {
        self.by_id.insert(id, Body { bytes_total, part_bytes, content, place: None, used: false, references: 0 });
    }

    /// Appends a part; a body that has all of them is whole. `None` where the part is not the next.
    fn append(&mut self, id: BodyId, offset: usize, part: &[u8]) -> Option<()> {
        let body = self.by_id.get_mut(&id)?;
        if !body.append(offset, part) {
            return None;
        }
        if let Content::Filling(bytes) = &mut body.content
            && bytes.len() == body.bytes_total
        {
            let whole = Arc::new(std::mem::take(bytes));
            let place = (whole.as_ptr().addr(), whole.len());
            body.content = Content::Whole(whole);
            self.whole.insert(id);
            self.set_place(id, place);
        }
        Some(())
    }

    /// Takes a stored part back; over a disk only its length.
    pub(super) fn load(
        &mut self,
        (id, ordinal): (BodyId, u32),
        bytes_total: u64,
        part: &[u8],
        over_disk: bool,
    ) -> Result<(), &'static str> {
        let bytes_total = usize::try_from(bytes_total).ok().filter(|total| *total <= BODY_BYTES_MAX).ok_or("it is too long")?;
        if ordinal == 0 && over_disk {
            self.begin_with(id, bytes_total, part.len(), Content::Stored(0));
        } else if ordinal == 0 {
            self.begin(id, bytes_total, part.len());
        }
        let body = self.by_id.get(&id).ok_or("the parts before it are missing")?;
        if body.bytes_total != bytes_total {
            return Err("it belongs to a body of another length");
        }
        let offset = usize::try_from(ordinal).unwrap_or(usize::MAX).saturating_mul(body.part_bytes);
        self.append(id, offset, part).ok_or("it is not the next part")
    }

    /// A stored record refers to a body.
    pub(super) fn load_reference(&mut self, key: RecordKey, id: BodyId) {
        if let Some(body) = self.by_id.get_mut(&id) {
            body.used = true;
            body.references += 1;
            self.referring.insert(key, id);
        }
    }

    /// What nothing refers to is under way: its bytes are needed.
    pub(super) fn finish_load(&mut self, cold: Option<&Cold>) -> Result<(), ReadError> {
        let unused = self.by_id.iter().filter(|(_, body)| !body.used);
        self.under_way = unused.map(|(id, _)| (id.node, *id)).collect();
        let Some(cold) = cold else { return Ok(()) };
        for id in self.under_way.clone().into_values() {
            let Some(body) = self.by_id.get(&id) else { continue };
            let (bytes_total, part_bytes, length) = (body.bytes_total, body.part_bytes, body.content.len());
            let (bytes, _) = cold.parts(id)?;
            if bytes.len() != length {
                return Err(ReadError(format!("parts of a payload under way changed: {length} bytes were {}", bytes.len())));
            }
            self.begin(id, bytes_total, part_bytes);
            for (at, part) in bytes.chunks(part_bytes.max(1)).enumerate() {
                self.append(id, at * part_bytes, part);
            }
        }
        Ok(())
    }

    /// A record is written that refers to `now`, or to none.
    fn refer(&mut self, key: &RecordKey, now: Option<BodyId>) {
        let before = match now {
            Some(id) => self.referring.insert(key.clone(), id),
            None => self.referring.remove(key),
        };
        if before == now {
            return;
        }
        if let Some(body) = now.and_then(|id| self.by_id.get_mut(&id)) {
            body.references += 1;
        }
        if let Some(before) = before {
            if let Some(body) = self.by_id.get_mut(&before) {
                body.references = body.references.saturating_sub(1);
            }
            self.touched.insert(before);
        }
    }

    /// Forgets a body; its records are to be deleted.
    fn remove(&mut self, id: BodyId, dirty: &mut DirtyRecords) {
        let Some(body) = self.by_id.remove(&id) else { return };
        self.whole.remove(&id);
        self.living.remove(id);
        if let Some(place) = body.place.filter(|place| self.by_place.get(place) == Some(&id)) {
            self.by_place.remove(&place);
        }
        (0..body.parts()).for_each(|ordinal| dirty.gone(RecordKey::BodyPart(id, ordinal)));
    }
}

impl State {
    /// Takes the next part of the submitter's body. A first part, also an empty one, ends what was under way before.
    pub(super) fn take_part(&mut self, scope: &Scope, part: &PartCommand) {
        let (node, incarnation, seq) = scope.origin;
        let sizes = (usize::try_from(part.bytes_total).ok(), usize::try_from(part.offset).ok());
        let (Some(bytes_total), Some(offset)) = sizes else { return };
        if offset == 0 {
            self.discard_under_way(node, Incarnation::MAX);
            if part.bytes.is_empty() || part.bytes.len() > bytes_total || bytes_total > BODY_BYTES_MAX {
                return;
            }
            let id = BodyId { node, incarnation, seq };
            self.bodies.begin(id, bytes_total, part.bytes.len());
            self.bodies.under_way.insert(node, id);
        }
        let Some(&id) = self.bodies.under_way.get(&node) else { return };
        let ordinal = self.bodies.by_id.get(&id).map_or(0, Body::parts);
        if id.incarnation == incarnation && self.bodies.append(id, offset, &part.bytes).is_some() {
            self.dirty.created(RecordKey::BodyPart(id, ordinal));
        }
    }

    /// Applies a command with the body that the parts before it brought. One whose body is not there is refused: its submitter sent
    /// something else than it announced.
    pub(super) fn apply_whole(&mut self, scope: &mut Scope, command: &Command, cut: &[u32]) -> Outcome {
        let (node, incarnation, _) = scope.origin;
        let ready = self.bodies.under_way.get(&node).copied().filter(|id| id.incarnation == incarnation);
        // What is under way is in memory.
        let payload = ready.and_then(|id| self.bodies.payload(id, None).ok().flatten().map(|payload| (id, payload)));
        let Some((id, payload)) = payload else {
            return Outcome::Refused(ReasonCode::UnspecifiedError);
        };
        self.bodies.under_way.remove(&node);
        if let Some(body) = self.bodies.by_id.get_mut(&id) {
            body.used = true;
        }
        self.bodies.touched.insert(id);
        let mut command = command.clone();
        for (at, message) in messages_mut(&mut command).into_iter().enumerate() {
            if cut.iter().any(|cut| usize::try_from(*cut) == Ok(at)) {
                *message = with_payload(message, payload.clone());
            }
        }
        if let Command::Enqueue { message, targets } = &mut command {
            // A while passed since the message was matched.
            targets.retain(|target| self.still_wants(target, message));
        }
        if matches!(command, Command::Part(_) | Command::Whole { .. }) {
            return Outcome::Refused(ReasonCode::UnspecifiedError);
        }
        self.apply_command(scope, &command)
    }

    /// Whether a session has a subscription that matches, of whatever options.
    fn still_wants(&self, target: &Target, message: &Message) -> bool {
        let Target::Session { client, .. } = target else { return true };
        let Some(session) = self.sessions.get(client) else { return false };
        session.subscriptions.keys().any(|filter| topic_filter::matches(&filter.filter, &message.topic))
    }

    /// Ends what a node has under way, if it is of that incarnation or an older one.
    pub(super) fn discard_under_way(&mut self, node: NodeId, through: Incarnation) {
        let Some(id) = self.bodies.under_way.get(&node).copied().filter(|id| id.incarnation <= through) else { return };
        self.bodies.under_way.remove(&node);
        self.bodies.remove(id, &mut self.dirty);
    }

    /// Counts who refers to bodies by the records that are to be written, and removes the bodies that nobody refers to any more.
    pub(super) fn settle_bodies(&mut self) {
        if self.bodies.is_empty() {
            return;
        }
        let mut bodies = std::mem::take(&mut self.bodies);
        for key in self.dirty.keys() {
            if self.is_stub(key) {
                // As it was written.
                continue;
            }
            let message = self.message_of(key);
            bodies.refer(key, message.and_then(|message| bodies.of(message)));
        }
        for id in std::mem::take(&mut bodies.touched) {
            if bodies.by_id.get(&id).is_some_and(|body| body.used && body.references == 0) {
                bodies.remove(id, &mut self.dirty);
            }
        }
        self.bodies = bodies;
    }

    /// The bodies that records would refer to if all were written now.
    pub(super) fn live_bodies(&self) -> BTreeSet<BodyId> {
        if self.bodies.by_id.is_empty() {
            return BTreeSet::new();
        }
        let of_queue = |queue: &Queue| {
            let messages = queue.entries.iter().filter_map(Slot::message);
            messages.filter_map(|message| self.bodies.of(message)).collect::<Vec<_>>()
        };
        let sessions = self.sessions.in_order().into_iter().flat_map(|session| of_queue(&session.queue));
        let groups = self.groups.values().flat_map(|group| of_queue(&group.queue));
        let retained = self.retained.iter().filter_map(|message| self.bodies.of(message));
        let events = self.outbox.iter().filter_map(|(_, event)| self.bodies.of(message_of_event(event)?));
        let stubs = self.bodies.referring.iter().filter(|(key, _)| self.is_stub(key)).map(|(_, id)| *id);
        sessions.chain(groups).chain(retained).chain(events).chain(stubs).collect()
    }

    /// Whether a record is an entry whose message is on disk only.
    fn is_stub(&self, key: &RecordKey) -> bool {
        let RecordKey::Entry(owner, seq) = key else { return false };
        let slot = self.queue_of(owner).and_then(|queue| queue.entries.get(queue.find(*seq)?));
        slot.is_some_and(Slot::is_stub)
    }

    /// The message that a record holds.
    fn message_of(&self, key: &RecordKey) -> Option<&Message> {
        let queue = match key {
            RecordKey::Entry(owner, _) => self.queue_of(owner)?,
            RecordKey::Retained(topic) => return self.retained.get(topic).map(|message| &**message),
            RecordKey::Outbox(position) => {
                let index = self.outbox.binary_search_by_key(position, |(position, _)| *position).ok()?;
                return message_of_event(&self.outbox.get(index)?.1).map(|message| &**message);
            }
            RecordKey::Head
            | RecordKey::BodyPart(..)
            | RecordKey::Session(_)
            | RecordKey::QueueHead(_)
            | RecordKey::Subscription(..)
            | RecordKey::Received(..)
            | RecordKey::Assigned(..)
            | RecordKey::Window(_)
            | RecordKey::Declared(_)
            | RecordKey::Group(_) => return None,
        };
        let RecordKey::Entry(_, seq) = key else { return None };
        queue.entries.get(queue.find(*seq)?)?.message().map(|message| &**message)
    }
}

/// A command made ready to be submitted.
#[derive(Debug, PartialEq)]
pub enum Cut {
    /// As it was.
    Small(Command),
    /// `command` is to be submitted behind the parts of `body`.
    Large { command: Command, body: Bytes },
}

/// Cuts the payload off a command whose message, one or several with the same payload, is large.
pub fn cut(mut command: Command) -> Cut {
    let mut body: Option<Bytes> = None;
    let mut cut = Vec::new();
    for (at, message) in (0_u32..).zip(messages_mut(&mut command)) {
        if message.payload.len() <= INLINE_BYTES_MAX || body.as_ref().is_some_and(|body| place(body) != place(&message.payload)) {
            continue;
        }
        body = Some(message.payload.clone());
        *message = with_payload(message, Bytes::new());
        cut.push(at);
    }
    match body {
        Some(body) => Cut::Large { command: Command::Whole { command: Box::new(command), cut }, body },
        None => Cut::Small(command),
    }
}

/// All messages of a command that may be large, in an order that is part of the format.
fn messages_mut(command: &mut Command) -> Vec<&mut Arc<Message>> {
    match command {
        Command::Enqueue { message, .. } | Command::Receive { message, .. } | Command::Retain { message } => vec![message],
        Command::Take(take) => {
            let enqueued = take.enqueue.iter_mut().map(|(message, _)| message);
            enqueued.chain(&mut take.retain).chain(&mut take.republish).collect()
        }
        Command::Connect(_)
        | Command::Disconnect { .. }
        | Command::NodeDown { .. }
        | Command::Subscribe { .. }
        | Command::Unsubscribe { .. }
        | Command::Release { .. }
        | Command::Acknowledge { .. }
        | Command::AcknowledgeShared { .. }
        | Command::AssignShared { .. }
        | Command::AssignSharedFrom { .. }
        | Command::LendShared { .. }
        | Command::ConnectWithin { .. }
        | Command::RemoveGroup { .. }
        | Command::TrimOutbox { .. }
        | Command::Expire { .. }
        | Command::RemoveSession { .. }
        | Command::Kick { .. }
        | Command::Part(_)
        | Command::Declare(_)
        | Command::Whole { .. } => Vec::new(),
    }
}

/// The same message with another payload.
pub fn with_payload(message: &Message, payload: Bytes) -> Arc<Message> {
    Arc::new(Message {
        topic: message.topic.clone(),
        payload,
        qos: message.qos,
        retain: message.retain,
        payload_format_indicator: message.payload_format_indicator,
        content_type: message.content_type.clone(),
        response_topic: message.response_topic.clone(),
        correlation_data: message.correlation_data.clone(),
        user_properties: message.user_properties.clone(),
        message_expiry_interval: message.message_expiry_interval,
        received_at_ms: message.received_at_ms,
        origin: message.origin.clone(),
    })
}

/// The message of an event that may have a body.
pub(super) fn message_of_event(event: &OutboxEvent) -> Option<&Arc<Message>> {
    match event {
        OutboxEvent::Lifecycle(_) => None,
        OutboxEvent::Dropped(dropped) => Some(&dropped.message),
        OutboxEvent::Expired(expired) => Some(&expired.message),
        OutboxEvent::Assigned { message, .. }
        | OutboxEvent::AssignedFrom { message, .. }
        | OutboxEvent::Publish { message, .. }
        | OutboxEvent::Returned { message, .. } => Some(message),
    }
}

/// The message of an event, to be changed.
pub(super) fn message_of_event_mut(event: &mut OutboxEvent) -> Option<&mut Arc<Message>> {
    match event {
        OutboxEvent::Lifecycle(_) => None,
        OutboxEvent::Dropped(dropped) => Some(&mut dropped.message),
        OutboxEvent::Expired(expired) => Some(&mut expired.message),
        OutboxEvent::Assigned { message, .. }
        | OutboxEvent::AssignedFrom { message, .. }
        | OutboxEvent::Publish { message, .. }
        | OutboxEvent::Returned { message, .. } => Some(message),
    }
}

fn place(bytes: &Bytes) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}
