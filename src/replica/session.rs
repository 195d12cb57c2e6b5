//! A session as the shard stores it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::command::{SubscriptionRecord, WillRecord};
use super::ids::ConnectionRef;
use super::slot::Slot;
use super::stored_queue::IN_FLIGHT_MAX;
use crate::mqtt::{Message, QoS, SubscriptionFilter, SubscriptionIds};
use crate::session::Seldom;
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
    /// A record each: one more subscription does not write the others again.
    #[serde(skip)]
    pub subscriptions: BTreeMap<SubscriptionFilter, SubscriptionRecord>,
    /// QoS 2 Packet Identifiers received and not released; a record each.
    #[serde(skip)]
    pub received: Seldom<BTreeSet<u16>>,
    /// A record for each entry.
    #[serde(skip)]
    pub queue: Queue,
    /// A record of its own: it changes with each queued message, the session does not.
    #[serde(skip)]
    pub queue_head: QueueHead,
    /// What the client takes at a time, where that is fewer than `IN_FLIGHT_MAX`; else 0. A record of its own: this one's encoding was released.
    #[serde(skip)]
    pub window: u16,
}

impl Session {
    /// The first so many entries of the queue may be in flight.
    pub fn window(&self) -> usize {
        if self.window == 0 { IN_FLIGHT_MAX } else { usize::from(self.window).min(IN_FLIGHT_MAX) }
    }

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
    /// Highest `seq` known to have been sent: resent with DUP. Of a shared subscription: its members may have the entries up to this one, also
    /// those still to come (`Command::LendShared`).
    pub sent_seq: u64,
    /// Entries that are not of retained origin, those in flight included.
    pub limit: u32,
    pub discard_oldest: bool,
}

impl QueueHead {
    /// The head of a queue that never had an entry.
    pub fn new(limit: u32, discard_oldest: bool) -> Self {
        Self { next_seq: 1, sent_seq: 0, limit, discard_oldest }
    }
}

impl Default for QueueHead {
    fn default() -> Self {
        Self::new(0, false)
    }
}

/// A queue's entries in `seq` order, with gaps where the middle was acknowledged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queue {
    /// In memory, or only what the shard decides by (see `cold`).
    pub entries: VecDeque<Slot>,
    /// Entries of retained origin, which have their own limit.
    pub retained_count: u32,
    /// (expiry, `seq`) of the entries the shard may expire: those that have an expiry and are not shielded.
    pub(super) expiring: Seldom<BTreeSet<(u64, u64)>>,
    /// The first so many entries may be in flight: the shard neither expires nor discards them.
    pub(super) shielded: u32,
    /// The same of the entries up to this one: of a shared subscription's queue, what its dispatcher was lent.
    pub(super) lent_seq: u64,
    /// `QueueHead::sent_seq` as expiry is to see it: a QoS 2 message once sent is sent again, expired or not [MQTT-4.3.3-7].
    pub(super) begun_seq: u64,
    pub(super) id: QueueId,
}

/// Tells a queue from others that its owner had before, in this process: their entries have the same numbers. No part of the state.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueId(u64);

static QUEUES_MADE: AtomicU64 = AtomicU64::new(0);

impl QueueId {
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

impl Default for QueueId {
    fn default() -> Self {
        Self(QUEUES_MADE.fetch_add(1, Ordering::Relaxed))
    }
}

impl PartialEq for QueueId {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One queued message, whole, as it is stored.
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

impl QueueEntry {
    /// An entry of a shared subscription's queue: options and granted QoS are the receiving member's, and applied when there is one.
    pub(super) fn for_group(message: &Arc<Message>) -> Self {
        Self {
            seq: 0,
            qos: message.qos,
            retain: message.retain,
            retained_origin: false,
            subscription_ids: SubscriptionIds::new(),
            message: Some(message.clone()),
        }
    }
}

/// A shared subscription's queue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Group {
    #[serde(skip)]
    pub queue: Queue,
    pub queue_head: QueueHead,
}
