//! The state of one shard: skeleton of its interface.

use bytestring::ByteString;

use super::command::Proposal;
use super::event::{Applied, OutboxEvent, Position};
use super::ids::ShardId;
use super::session::{Group, QueueEntry, Session};
use crate::mqtt::{GroupId, Message};
use std::sync::Arc;

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

/// One shard's replicated state.
#[derive(Debug)]
pub struct State {
    shard: ShardId,
}

impl State {
    pub fn new(shard: ShardId) -> Self {
        Self { shard }
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// Applies one Raft entry.
    pub fn apply(&mut self, _index: u64, _proposal: &Proposal) -> Applied {
        Applied::default()
    }

    /// The session of a client.
    pub fn session(&self, _client: &str) -> Option<&Session> {
        None
    }

    pub fn sessions(&self) -> Box<dyn Iterator<Item = &Session> + '_> {
        Box::new(std::iter::empty())
    }

    pub fn group(&self, _group: &GroupId) -> Option<&Group> {
        None
    }

    pub fn groups(&self) -> Box<dyn Iterator<Item = (&GroupId, &Group)> + '_> {
        Box::new(std::iter::empty())
    }

    /// Up to `max` queue entries of a session with `seq > after`, in order.
    pub fn queue_after(&self, _client: &str, _after: u64, _max: usize) -> Vec<QueueEntry> {
        Vec::new()
    }

    /// The same of a shared subscription.
    pub fn group_queue_after(&self, _group: &GroupId, _after: u64, _max: usize) -> Vec<QueueEntry> {
        Vec::new()
    }

    /// Retained messages of this shard whose topic matches `filter`, none expired at `now_ms`.
    pub fn retained_matching(&self, _filter: &str, _now_ms: u64) -> Vec<Arc<Message>> {
        Vec::new()
    }

    pub fn retained_count(&self) -> usize {
        0
    }

    /// Queued messages of all sessions and groups.
    pub fn queued_count(&self) -> usize {
        0
    }

    pub fn subscription_count(&self) -> usize {
        0
    }

    /// Up to `max` outbox events after `after`, in order.
    pub fn outbox_after(&self, _after: Position, _max: usize) -> Vec<(Position, Arc<OutboxEvent>)> {
        Vec::new()
    }

    /// How far this shard has taken another's outbox (or its own).
    pub fn taken(&self, _source: ShardId) -> Position {
        Position::default()
    }

    /// The position of the last outbox event, and of the last trimmed one.
    pub fn outbox_bounds(&self) -> (Position, Position) {
        (Position::default(), Position::default())
    }

    /// When `Command::Expire` has something to do next, wall clock ms.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        None
    }

    /// Highest applied `seq` of a node's incarnation; 0 where none is known.
    pub fn applied_seq(&self, _node: u64, _incarnation: u64) -> u64 {
        0
    }

    /// Connections by node incarnation, to find those of dead ones.
    pub fn incarnations(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// Records changed since the last call: `None` = deleted. Written in one atomic batch with the applied index.
    pub fn take_changes(&mut self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        Vec::new()
    }

    /// All records, for a snapshot.
    pub fn records(&self) -> Box<dyn Iterator<Item = Record> + '_> {
        Box::new(std::iter::empty())
    }

    /// Takes one stored record back; call `finish_load` after the last.
    pub fn load(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), RecordError> {
        Ok(())
    }

    /// Rebuilds what is derived (due times, counts, trees).
    pub fn finish_load(&mut self) {}

    /// A digest of everything replicated: equal on all nodes at the same applied index.
    pub fn digest(&self) -> u64 {
        0
    }
}

#[expect(dead_code, reason = "names the owner of a queue in record keys")]
enum QueueOwner {
    Session(ByteString),
    Group(GroupId),
}
