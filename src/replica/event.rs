//! What applying a proposal tells: outcomes to the submitter, events to the node, outbox events to the cluster.

use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::command::SubscriptionRecord;
use super::ids::{ConnectionRef, Incarnation, NodeId};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{GroupId, Message, ReasonCode, SubscriptionFilter, SubscriptionIds};
use crate::signal::{ConnectionFacts, Dropped, Expired, Lifecycle};

/// A place in a shard's outbox: (log index, ordinal within the entry). The start is (0, 0); the first event of an entry is ordinal 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
pub struct Position {
    pub index: u64,
    pub ordinal: u32,
}

/// The result of one command, at the node that submitted it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Done,
    Connected(Box<ConnectOutcome>),
    /// Not done: the session has a connection that the submitter does not know of.
    Occupied(ConnectionRef),
    /// Not done, with the code for the client.
    Refused(ReasonCode),
    /// For each subscription whether it existed before.
    Subscribed(Vec<bool>),
    /// For each filter whether it existed.
    Unsubscribed(Vec<bool>),
    Received {
        duplicate: bool,
    },
}

/// What the connecting node learns.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectOutcome {
    pub session_present: bool,
    pub received_packet_ids: Vec<PacketId>,
}

/// One command's outcome, addressed to its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub seq: u64,
    /// Of the entry the command was applied with.
    pub index: u64,
    pub outcome: Outcome,
}

/// What `apply` returns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Applied {
    pub answers: Vec<Answer>,
    pub events: Vec<Event>,
}

/// What every node learns from its own replica, in log order.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A session has a connection (new or resumed). `persistent` = outlives the connection. Each such connection is followed by
    /// exactly one `Disconnected` or `SessionRemoved`, also where a newer connection takes over.
    Connected {
        client: ByteString,
        connection: ConnectionRef,
        persistent: bool,
        /// Whether the session had a connection, which this one ends; one that was lost with its node does not count.
        took_over: bool,
        facts: Arc<ConnectionFacts>,
        /// By the shard's clock, ms since the epoch.
        at_ms: u64,
    },
    /// The session's connection ended but the session stays.
    Disconnected {
        client: ByteString,
        connection: ConnectionRef,
    },
    /// The named connection is over by the shard's decision: its node closes it with the code and does not report it back.
    Close {
        client: ByteString,
        connection: ConnectionRef,
        reason_code: ReasonCode,
    },
    /// The session is gone with its subscriptions and queue.
    SessionRemoved {
        client: ByteString,
        /// When its Session Expiry Interval ended, ms since the epoch, where that is why.
        expired_at_ms: Option<u64>,
    },
    Subscribed {
        client: ByteString,
        subscription: SubscriptionRecord,
    },
    Unsubscribed {
        client: ByteString,
        filter: SubscriptionFilter,
    },
    /// The session's queue has new entries.
    Queued {
        client: ByteString,
    },
    /// The shared subscription's queue has new entries.
    GroupQueued {
        group: GroupId,
    },
    GroupRemoved {
        group: GroupId,
    },
    /// The first node declared a shared subscription, or the last one does no more.
    GroupDeclared {
        group: GroupId,
        declared: bool,
    },
    /// An entry was added to the outbox.
    Outbox {
        position: Position,
        event: Arc<OutboxEvent>,
    },
}

/// What the cluster must learn exactly once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum OutboxEvent {
    Lifecycle(Lifecycle),
    Dropped(Dropped),
    Expired(Expired),
    /// A QoS 2 message of a shared subscription for the member that was chosen.
    Assigned {
        client: ByteString,
        message: Arc<Message>,
        retain: bool,
        subscription_ids: SubscriptionIds,
    },
    /// A message published by the shard: a Will that is due, a QoS 2 message received, what an add-on re-publishes.
    /// `dead_known` = whether it has receivers was decided (and signalled) already.
    Publish {
        message: Arc<Message>,
        dead_known: bool,
    },
    /// What was assigned to a member and not sent to it, for the queue of its shared subscription.
    Returned {
        group: GroupId,
        message: Arc<Message>,
    },
    /// `Assigned` with the shared subscription it comes from; since version 3.
    AssignedFrom {
        client: ByteString,
        group: GroupId,
        message: Arc<Message>,
        retain: bool,
        subscription_ids: SubscriptionIds,
    },
}

impl OutboxEvent {
    /// Whether it is a Will that is published: of what a shard publishes only that comes from a client and was not looked at for receivers.
    pub fn is_will(&self) -> bool {
        matches!(self, Self::Publish { message, dead_known: false } if message.publisher().is_some())
    }

    /// Bytes of its message; 0 where there is none.
    pub fn size_bytes(&self) -> usize {
        super::body::message_of_event(self).map_or(0, |message| message.size_bytes())
    }
}
