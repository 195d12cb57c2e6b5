//! The state of one shard and what may be read of it. How it changes is in `apply` and the files it calls, one for each role.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::body::Bodies;
use super::cold::{Ahead, Cold, ReadError};
use super::event::{OutboxEvent, Position};
use super::expiry::DueTimes;
use super::ids::{Incarnation, NodeId, ShardId};
use super::record::DirtyRecords;
use super::record_key::QueueOwner;
use super::retained::RetainedTree;
use super::session::{Group, Session};
use super::sessions::Sessions;
use crate::mqtt::{GroupId, Message};

pub use super::record::{Record, RecordError};

/// One shard's replicated state.
#[derive(Debug)]
pub struct State {
    pub(super) shard: ShardId,
    pub(super) head: Head,
    pub(super) sessions: Sessions,
    pub(super) groups: BTreeMap<GroupId, Group>,
    /// Shared subscriptions that have a queue without members too, and the nodes that say so.
    pub(super) declared: BTreeMap<GroupId, BTreeSet<NodeId>>,
    /// Entries of sessions' queues that came from shared subscriptions and were not received yet, by client and `seq`.
    pub(super) assigned: BTreeMap<ByteString, BTreeMap<u64, GroupId>>,
    pub(super) retained: RetainedTree,
    pub(super) outbox: VecDeque<(Position, Arc<OutboxEvent>)>,
    /// Large payloads of the messages in the above.
    pub(super) bodies: Bodies,

    // Derived from the above; rebuilt by `finish_load`.
    pub(super) connected: BTreeMap<(NodeId, Incarnation), usize>,
    /// Messages in `outbox` that their topics' shards will retain.
    pub(super) to_retain: VecDeque<(Position, Arc<Message>)>,
    pub(super) due: DueTimes,
    pub(super) queued_count: usize,
    pub(super) subscription_count: usize,

    /// What `take_changes` has to write.
    pub(super) dirty: DirtyRecords,

    /// The disk; `None`: everything is in memory.
    pub(super) cold: Option<Cold>,
    /// Entries of queues in the changes that `take_changes` gave last.
    pub(super) fresh: Vec<(QueueOwner, u64)>,
    /// Sessions whose connections ended since the last `written`.
    pub(super) left: Vec<ByteString>,
    pub(super) ahead: Ahead,
    /// The queue that last became nearly full.
    pub(super) filling: Option<QueueOwner>,
    pub(super) failure: OnceLock<ReadError>,
}

/// The part of the state that belongs to no client, topic or group: small, written with each entry.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Head {
    /// Wall clock of the last entry, ms: time never runs back.
    pub last_at_ms: u64,
    pub nodes: BTreeMap<NodeId, NodeProgress>,
    /// How far this shard took each outbox.
    pub taken: BTreeMap<ShardId, Position>,
    /// The last event put into the outbox, and the last trimmed.
    pub outbox_last: Position,
    pub outbox_trimmed: Position,
}

/// What is known of a node that submits commands.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct NodeProgress {
    /// The newest incarnation that submitted something, and its last applied `seq`.
    pub incarnation: Incarnation,
    pub last_seq: u64,
    /// This incarnation and all older ones are dead.
    pub dead_through: Option<Incarnation>,
}

impl NodeProgress {
    pub(super) fn is_dead(&self, incarnation: Incarnation) -> bool {
        self.dead_through.is_some_and(|dead| incarnation <= dead)
    }
}

impl State {
    /// A state that is in memory as a whole; `over` makes one over a disk.
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            head: Head::default(),
            sessions: Sessions::default(),
            groups: BTreeMap::new(),
            declared: BTreeMap::new(),
            assigned: BTreeMap::new(),
            retained: RetainedTree::default(),
            outbox: VecDeque::new(),
            bodies: Bodies::default(),
            connected: BTreeMap::new(),
            to_retain: VecDeque::new(),
            due: DueTimes::default(),
            queued_count: 0,
            subscription_count: 0,
            dirty: DirtyRecords::default(),
            cold: None,
            fresh: Vec::new(),
            left: Vec::new(),
            ahead: Ahead::default(),
            filling: None,
            failure: OnceLock::new(),
        }
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The session of a client.
    pub fn session(&self, client: &str) -> Option<&Session> {
        self.sessions.get(client)
    }

    /// All sessions in client id order; sorts them first, so not for each message.
    pub fn sessions(&self) -> Box<dyn Iterator<Item = &Session> + '_> {
        Box::new(self.sessions.in_order().into_iter())
    }

    /// All sessions in no order, which nothing may depend on: for counting.
    pub fn sessions_to_count(&self) -> impl Iterator<Item = &Session> {
        self.sessions.in_no_order()
    }

    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions that have a connection.
    pub fn connected_count(&self) -> usize {
        self.connected.values().sum()
    }

    pub fn group(&self, group: &GroupId) -> Option<&Group> {
        self.groups.get(group)
    }

    pub fn groups(&self) -> Box<dyn Iterator<Item = (&GroupId, &Group)> + '_> {
        Box::new(self.groups.iter())
    }

    /// Shared subscriptions that are declared, with the nodes that declare them.
    pub fn declared(&self) -> impl Iterator<Item = (&GroupId, &BTreeSet<NodeId>)> {
        self.declared.iter()
    }

    pub fn is_declared(&self, group: &GroupId) -> bool {
        self.declared.contains_key(group)
    }

    /// How many more messages a session's queue takes; `None` where there is none, or the oldest makes room.
    pub fn room(&self, client: &str) -> Option<usize> {
        self.sessions.get(client).and_then(|session| session.queue.room(&session.queue_head))
    }

    /// The same of a shared subscription's.
    pub fn group_room(&self, group: &GroupId) -> Option<usize> {
        self.groups.get(group).and_then(|kept| kept.queue.room(&kept.queue_head))
    }

    /// Entries of a session's queue up to `seq`: those a connection that was handed everything up to it has not acknowledged.
    pub fn handed_out(&self, client: &str, seq: u64) -> usize {
        self.sessions.get(client).map_or(0, |session| session.queue.entries.partition_point(|entry| entry.seq() <= seq))
    }

    /// Retained messages of this shard whose topic matches `filter`, none expired at `now_ms`.
    pub fn retained_matching(&self, filter: &str, now_ms: u64) -> Vec<Arc<Message>> {
        self.retained.matching(filter).filter(|message| !message.is_expired(now_ms)).cloned().collect()
    }

    /// Bytes of the message retained for a topic, as `Message::size_bytes` counts them.
    pub fn retained_size(&self, topic: &str) -> Option<usize> {
        self.retained.get(topic).map(|message| message.size_bytes())
    }

    pub fn retained_count(&self) -> usize {
        self.retained.len()
    }

    /// Bytes of all retained messages, as `Message::size_bytes` counts them.
    pub fn retained_bytes(&self) -> usize {
        self.retained.bytes()
    }

    /// Queued messages of all sessions and groups.
    pub fn queued_count(&self) -> usize {
        self.queued_count
    }

    /// The owner of a queue that became nearly full since the last call: a client id, or `$share/<name>/<filter>`. The last, if several did.
    pub fn take_filling(&mut self) -> Option<ByteString> {
        self.filling.take().map(|owner| match owner {
            QueueOwner::Session(client) => client,
            QueueOwner::Group(group) => group.full(),
        })
    }

    pub fn subscription_count(&self) -> usize {
        self.subscription_count
    }

    /// Up to `max` outbox events after `after`, in order.
    pub fn outbox_after(&self, after: Position, max: usize) -> Vec<(Position, Arc<OutboxEvent>)> {
        let start = self.outbox.partition_point(|(position, _)| *position <= after);
        self.outbox.range(start..).take(max).cloned().collect()
    }

    /// How many events there are in the outbox after `after`.
    pub fn outbox_len_after(&self, after: Position) -> usize {
        self.outbox.len() - self.outbox.partition_point(|(position, _)| *position <= after)
    }

    /// Messages with RETAIN in the outbox after `after`, in order: those their topics' shards will retain.
    pub fn to_retain_after(&self, after: Position) -> Vec<(Position, Arc<Message>)> {
        let start = self.to_retain.partition_point(|(position, _)| *position <= after);
        self.to_retain.range(start..).cloned().collect()
    }

    /// How many there are in the whole outbox.
    pub fn to_retain_count(&self) -> usize {
        self.to_retain.len()
    }

    /// How far this shard has taken another's outbox (or its own).
    pub fn taken(&self, source: ShardId) -> Position {
        self.head.taken.get(&source).copied().unwrap_or_default()
    }

    /// The position of the last outbox event, and of the last trimmed one.
    pub fn outbox_bounds(&self) -> (Position, Position) {
        (self.head.outbox_last, self.head.outbox_trimmed)
    }

    /// When `Command::Expire` has something to do next, wall clock ms.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.due.next_ms()
    }

    /// The shard's time at the last entry, wall clock ms; 0 before the first.
    pub fn last_at_ms(&self) -> u64 {
        self.head.last_at_ms
    }

    /// Highest applied `seq` of a node's incarnation; 0 where none is known.
    pub fn applied_seq(&self, node: NodeId, incarnation: Incarnation) -> u64 {
        match self.head.nodes.get(&node) {
            Some(progress) if progress.incarnation == incarnation => progress.last_seq,
            Some(_) | None => 0,
        }
    }

    /// The newest incarnation of a node that is known here, alive or over; 0 where none is.
    pub fn newest_incarnation(&self, node: NodeId) -> Incarnation {
        let progress = self.head.nodes.get(&node);
        progress.map_or(0, |progress| progress.incarnation.max(progress.dead_through.unwrap_or(0)))
    }

    /// Connections here, of each node that has some.
    pub fn connections_by_node(&self) -> Vec<(NodeId, u64)> {
        self.connected.iter().map(|((node, _), count)| (*node, *count as u64)).collect()
    }

    /// Node incarnations that have connections here, to find those of dead ones.
    pub fn incarnations(&self) -> Vec<(NodeId, Incarnation)> {
        self.connected.keys().copied().collect()
    }
}
