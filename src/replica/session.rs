//! A session as the shard stores it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::command::{SubscriptionRecord, WillRecord};
use super::ids::ConnectionRef;
use crate::mqtt::{Message, QoS, SubscriptionFilter, SubscriptionIds};
use crate::signal::ConnectionFacts;

/// A client's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub client: ByteString,
    /// The connection, while there is one.
    pub connection: Option<ConnectionRef>,
    /// Facts of the current or last connection.
    pub facts: Arc<ConnectionFacts>,
    /// Whether this connection's lifecycle events are wanted.
    pub lifecycle: bool,
    pub session_expiry_interval_s: u32,
    pub will: Option<WillRecord>,
    /// Wall clock ms; set while a will waits out its delay.
    pub will_due_ms: Option<u64>,
    /// Wall clock ms; set while disconnected with a finite expiry.
    pub expires_at_ms: Option<u64>,
    pub subscriptions: BTreeMap<SubscriptionFilter, SubscriptionRecord>,
    /// QoS 2 Packet Identifiers received and not released.
    pub received: BTreeSet<u16>,
    /// Kept apart on disk, entry by entry.
    #[serde(skip)]
    pub queue: Queue,
    pub queue_head: QueueHead,
}

impl Session {
    /// Whether the session outlives its connection.
    pub fn is_persistent(&self) -> bool {
        self.session_expiry_interval_s > 0
    }
}

/// The part of a queue that is stored with its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueHead {
    /// `seq` of the next entry; the first is 1.
    pub next_seq: u64,
    /// Highest `seq` known to have been sent: resent with DUP.
    pub sent_seq: u64,
    pub limit: u32,
    pub discard_oldest: bool,
}

/// A queue's entries in `seq` order, with gaps where the middle was acknowledged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    pub entries: VecDeque<QueueEntry>,
    /// Entries of retained origin, which have their own limit.
    pub retained_count: u32,
}

/// One queued message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueEntry {
    pub seq: u64,
    pub qos: QoS,
    pub retain: bool,
    pub retained_origin: bool,
    pub subscription_ids: SubscriptionIds,
    /// `None` after PUBREC: only PUBREL is still to be exchanged.
    pub message: Option<Arc<Message>>,
}

/// A shared subscription's queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    #[serde(skip)]
    pub queue: Queue,
    pub queue_head: QueueHead,
}
