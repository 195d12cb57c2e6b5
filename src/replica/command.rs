//! Commands: what a shard can be asked to do.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::event::Position;
use super::ids::{ConnectionRef, Incarnation, NodeId, ShardId};
use super::stored_queue::IN_FLIGHT_MAX;
use crate::mqtt::packet::{PacketId, SubscriptionOptions};
use crate::mqtt::{GroupId, Message, QoS, SubscriptionFilter, SubscriptionIds, UserProperties};
use crate::signal::{ConnectionFacts, DropReason, Initiator};

/// `Command::ConnectWithin` can be read by members from this version on.
const CONNECT_WITHIN_SINCE: u16 = 3;
/// The same for `TakeOver::Lost`.
const LOST_SINCE: u16 = 3;

/// One Raft entry: everything that arrived while the one before was in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// Wall clock of the leader, milliseconds; the machine takes the maximum of this and the last one.
    pub at_ms: u64,
    pub batches: Vec<Batch>,
}

/// Commands of one node in the order it submitted them. The machine accepts command `n` of an incarnation only right after
/// `n - 1`: a resend after a lost leader is recognised (lower: applied already, ignored) and a gap is refused (ignored, the
/// origin sends again). So a command is applied exactly once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    pub node: NodeId,
    pub incarnation: Incarnation,
    /// Sequence number of the first command; the first of an incarnation is 1.
    pub first_seq: u64,
    pub commands: Arc<Vec<Command>>,
}

/// What a shard can be asked to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A client connects. Outcome: `Connected` or `Refused`.
    Connect(Arc<ConnectCommand>),
    /// A connection ended; ignored if `connection` is not the session's current one.
    Disconnect {
        client: ByteString,
        connection: ConnectionRef,
        initiator: Initiator,
        reason_code: Option<u8>,
        /// Whether the Will is to be published (after its delay).
        will: bool,
        /// Seconds; `None` keeps what CONNECT said.
        session_expiry_interval_s: Option<u32>,
        /// Highest `seq` of the queue handed to the client: entries up to it are resent with DUP.
        sent_seq: u64,
    },
    /// An incarnation of a node is dead: all its connections end (UNSPECIFIED, no reason code), in client id order.
    /// Later commands of it, and of older incarnations of the node, are ignored.
    NodeDown { node: NodeId, incarnation: Incarnation },
    /// Outcome: `Subscribed` with, for each, whether the subscription existed before.
    Subscribe { client: ByteString, connection: ConnectionRef, subscriptions: Vec<SubscriptionRecord> },
    /// Outcome: `Unsubscribed`.
    Unsubscribe { client: ByteString, connection: ConnectionRef, filters: Vec<SubscriptionFilter> },
    /// Queues one message for sessions and shared subscriptions of this shard. Outcome: `Done`.
    Enqueue { message: Arc<Message>, targets: Vec<Target> },
    /// QoS 2 PUBLISH of a session that outlives its connection: stores the identifier and, unless it is a resend, puts the message
    /// into the outbox, from where every shard takes its part. Outcome: `Received { duplicate }`.
    /// `dead` says that the publisher's node found no subscription.
    Receive { client: ByteString, connection: ConnectionRef, packet_id: PacketId, message: Arc<Message>, dead: bool },
    /// PUBREL: forgets the identifier. Outcome: `Done`.
    Release { client: ByteString, connection: ConnectionRef, packet_id: PacketId },
    /// Steps of deliveries from the session's queue; ignored if `connection` is not the current one. Outcome: `Done`.
    Acknowledge { client: ByteString, connection: ConnectionRef, steps: Vec<(u64, QueueStep)> },
    /// The same for a shared subscription's queue, proposed by its dispatcher. Outcome: `Done`.
    AcknowledgeShared { group: GroupId, steps: Vec<(u64, QueueStep)> },
    /// Entries of a shared subscription's queue go to members for good (QoS 2: begun with one member, it is completed with that one
    /// [MQTT-4.8.2-4]): by the outbox each reaches the queue of the member's session exactly once. Outcome: `Done`.
    AssignShared { group: GroupId, assignments: Vec<Assignment> },
    /// No session of the cluster subscribes to the group any more: its queue goes, unless something was queued since its proposer looked
    /// (`next_seq`), which only a new member can have caused. Outcome: `Done`.
    RemoveGroup { group: GroupId, next_seq: u64 },
    /// Stores a retained message (an empty payload removes it [MQTT-3.3.1-6]). Outcome: `Done`, or `Refused` with
    /// `QuotaExceeded` over a limit.
    Retain { message: Arc<Message> },
    /// The leader of this shard took part `from..=to` of another shard's outbox (or of its own): queues what matches here.
    /// Ignored unless `from` is the position stored for that source, so nothing is taken twice. Outcome: `Done`.
    Take(Box<TakeCommand>),
    /// All shards have taken the outbox up to here: it is cut. Outcome: `Done`.
    TrimOutbox { through: Position },
    /// Something is due by the proposal's time: expired messages and sessions, wills. At most `limit` of them. Outcome: `Done`.
    Expire { limit: u32 },
    /// Ends a session at once: a connected client is disconnected with `reason_code`. Outcome: `Done`.
    RemoveSession { client: ByteString, reason_code: u8, will: bool },
    /// Ends a connection, keeps the session. Outcome: `Done`.
    Kick { client: ByteString, reason_code: u8, will: bool },
    /// The next part of a payload that is too large for one entry; `Whole` follows behind the last. Outcome: `Done`.
    Part(PartCommand),
    /// A command whose messages numbered `cut` (see `body`) have the payload that the parts before it brought. Outcome: that of
    /// `command`.
    Whole { command: Box<Self>, cut: Vec<u32> },
    /// The shared subscriptions of this shard that a node declares now, in place of those it declared before. Outcome: `Done`.
    Declare(DeclareCommand),
    /// `AssignShared` whose events name the shared subscription, so that a member can give back what was not sent to it. Outcome: `Done`.
    AssignSharedFrom { group: GroupId, assignments: Vec<Assignment> },
    /// `Connect` of a client that takes fewer messages at a time than `IN_FLIGHT_MAX`. Outcome: that of `Connect`.
    ConnectWithin { connect: Arc<ConnectCommand>, window: u16 },
    /// The dispatcher of a shared subscription may hand out the entries of its queue up to `through`, those still to come included: from now on
    /// the shard neither expires nor discards these, and does so with all others. Ignored unless `from` is what it said before, so that what a
    /// former leader asked for changes nothing. Outcome: `Done`.
    LendShared { group: GroupId, from: u64, through: u64 },
}

/// The content of `Command::Declare`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclareCommand {
    pub node: NodeId,
    pub groups: Vec<GroupId>,
    /// Of queues that are made.
    pub queue_limit: u32,
    pub discard_oldest: bool,
}

/// The content of `Command::Part`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartCommand {
    /// Length of the whole payload; 0 gives up what the submitter has under way.
    pub bytes_total: u64,
    /// How much of it came before: 0 begins a payload.
    pub offset: u64,
    /// As long as the first part, but for the last.
    pub bytes: Bytes,
}

impl Command {
    /// `LendShared` can be read by members from this version on.
    pub const LEND_SHARED_SINCE: u16 = 3;

    /// The version that brought it: proposed only once every member of the cluster knows it, for every member reads it (`cluster::versions`).
    pub fn since(&self) -> u16 {
        match self {
            Self::Whole { command, .. } => command.since(),
            Self::Enqueue { targets, .. } => newest(targets.iter()),
            Self::Take(take) => newest(take.enqueue.iter().flat_map(|(_, targets)| targets)),
            Self::Declare(_) | Self::AssignSharedFrom { .. } => 3,
            Self::ConnectWithin { connect, .. } => CONNECT_WITHIN_SINCE.max(connect.take_over.since()),
            Self::Connect(connect) => connect.take_over.since(),
            Self::LendShared { .. } => Self::LEND_SHARED_SINCE,
            Self::Disconnect { .. }
            | Self::NodeDown { .. }
            | Self::Subscribe { .. }
            | Self::Unsubscribe { .. }
            | Self::Receive { .. }
            | Self::Release { .. }
            | Self::Acknowledge { .. }
            | Self::AcknowledgeShared { .. }
            | Self::AssignShared { .. }
            | Self::RemoveGroup { .. }
            | Self::Retain { .. }
            | Self::TrimOutbox { .. }
            | Self::Expire { .. }
            | Self::RemoveSession { .. }
            | Self::Kick { .. }
            | Self::Part(_) => 2,
        }
    }

    /// What connects a client that takes `window` messages at a time, in a cluster of this level: a member of a release before version 3 cannot
    /// read the newer command, and counts on `IN_FLIGHT_MAX`; to it a connection that was lost is one taken over.
    pub fn connect(connect: impl Into<Arc<ConnectCommand>>, window: usize, level: u16) -> Self {
        let mut connect = connect.into();
        if let TakeOver::Lost(connection) = connect.take_over
            && level < LOST_SINCE
        {
            Arc::make_mut(&mut connect).take_over = TakeOver::Settled(Some(connection));
        }
        match u16::try_from(window) {
            Ok(window) if usize::from(window) < IN_FLIGHT_MAX && level >= CONNECT_WITHIN_SINCE => {
                Self::ConnectWithin { connect, window }
            }
            _ => Self::Connect(connect),
        }
    }

    /// The connection it makes, if it makes one.
    pub fn connecting(&self) -> Option<&ConnectCommand> {
        if let Self::Connect(connect) | Self::ConnectWithin { connect, .. } = self { Some(connect) } else { None }
    }

    /// Whether its effect must be there on every node that serves clients before the client hears of it: what is published, or subscribed to,
    /// on any node from then on finds it.
    pub fn is_acknowledged_as_effective(&self) -> bool {
        match self {
            Self::Subscribe { .. } | Self::Unsubscribe { .. } | Self::Declare(_) => true,
            // Clean Start is the end of all subscriptions of the session before.
            Self::Connect(connect) | Self::ConnectWithin { connect, .. } => connect.clean_start,
            Self::Retain { message } => message.qos != QoS::AtMostOnce,
            Self::Receive { message, .. } => message.retain,
            Self::Whole { command, .. } => command.is_acknowledged_as_effective(),
            Self::Part(_)
            | Self::Disconnect { .. }
            | Self::NodeDown { .. }
            | Self::Enqueue { .. }
            | Self::Release { .. }
            | Self::Acknowledge { .. }
            | Self::AcknowledgeShared { .. }
            | Self::AssignShared { .. }
            | Self::AssignSharedFrom { .. }
            | Self::LendShared { .. }
            | Self::RemoveGroup { .. }
            | Self::Take(_)
            | Self::TrimOutbox { .. }
            | Self::Expire { .. }
            | Self::RemoveSession { .. }
            | Self::Kick { .. } => false,
        }
    }
}

/// The content of `Command::Connect`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectCommand {
    pub connection: ConnectionRef,
    pub clean_start: bool,
    pub session_expiry_interval_s: u32,
    pub will: Option<WillRecord>,
    pub facts: Arc<ConnectionFacts>,
    pub user_properties: UserProperties,
    /// Limit of queued QoS 1/2 messages (spec/hivemq.md 2.2), stored with the session.
    pub queue_limit: u32,
    pub discard_oldest: bool,
    /// Whether lifecycle events are wanted (the add-on is on).
    pub lifecycle: bool,
    pub take_over: TakeOver,
}

/// Which connection of the session a new one may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeOver {
    /// This one, whose last packets were handled (or none): with another the outcome is `Occupied` and nothing is done.
    Settled(Option<ConnectionRef>),
    Any,
    /// This one, whose node did not answer: it is told as lost (UNSPECIFIED, no reason code), for nobody can have sent its client a
    /// DISCONNECT. With another the outcome is `Occupied` and nothing is done.
    Lost(ConnectionRef),
}

impl TakeOver {
    /// As `Command::since`.
    fn since(self) -> u16 {
        match self {
            Self::Settled(_) | Self::Any => 2,
            Self::Lost(_) => LOST_SINCE,
        }
    }

    /// Whether it may take over this connection.
    pub(super) fn allows(self, present: ConnectionRef) -> bool {
        match self {
            Self::Settled(settled) => settled == Some(present),
            Self::Any => true,
            Self::Lost(lost) => lost == present,
        }
    }
}

/// A Will as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WillRecord {
    pub message: Arc<Message>,
    pub delay_interval_s: u32,
}

/// A subscription as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionRecord {
    pub filter: SubscriptionFilter,
    pub options: SubscriptionOptions,
    pub identifier: Option<u32>,
}

/// A receiver of a queued message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// A session's queue; nothing happens where the session is gone.
    Session {
        client: ByteString,
        qos: QoS,
        /// RETAIN as it will be sent.
        retain: bool,
        subscription_ids: SubscriptionIds,
        /// Came from a retained message at subscribe time: counted apart (spec/hivemq.md 2.2).
        retained_origin: bool,
    },
    /// A shared subscription's queue, made where it does not exist. Options are the receiving member's.
    Group { group: GroupId, queue_limit: u32, discard_oldest: bool },
    /// The queue of a member's session: an entry of a shared subscription's queue was assigned to it. Goes back to the group where the
    /// member is not there to take it.
    Member { client: ByteString, group: GroupId, retain: bool, subscription_ids: SubscriptionIds },
    /// A shared subscription's queue takes back what was assigned to a member and not sent, whatever its limit.
    Returned { group: GroupId },
}

impl Target {
    /// As `Command::since`.
    pub fn since(&self) -> u16 {
        match self {
            Self::Session { .. } | Self::Group { .. } => 2,
            Self::Member { .. } | Self::Returned { .. } => 3,
        }
    }
}

fn newest<'a>(targets: impl Iterator<Item = &'a Target>) -> u16 {
    targets.map(Target::since).max().unwrap_or(2)
}

/// An entry of a shared subscription's queue for one member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub seq: u64,
    pub client: ByteString,
    /// RETAIN as it will be sent.
    pub retain: bool,
    pub subscription_ids: SubscriptionIds,
}

/// A step of a queued delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueStep {
    /// PUBACK, PUBCOMP or a failing PUBREC, or sent at QoS 0: the entry goes.
    Completed,
    /// PUBREC: the body goes, the entry waits for PUBCOMP.
    Received,
    /// Found expired before it was sent: the entry goes, `Expired` is raised.
    Expired,
    /// Could not be sent: the entry goes, `Dropped` is raised.
    Dropped(DropReason),
}

/// The content of `Command::Take`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakeCommand {
    pub source: ShardId,
    /// The position this shard had taken before.
    pub from: Position,
    pub to: Position,
    /// What matches here, in outbox order.
    pub enqueue: Vec<(Arc<Message>, Vec<Target>)>,
    /// Messages with RETAIN whose topic this shard owns.
    pub retain: Vec<Arc<Message>>,
    /// Messages to put into this shard's own outbox: what the add-ons re-publish of events nobody subscribes to. Only the source
    /// shard itself says it (`source` is this shard), so it is said once.
    pub republish: Vec<Arc<Message>>,
}
