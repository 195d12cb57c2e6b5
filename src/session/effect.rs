//! What a machine asks of the outside.

use bytestring::ByteString;

use super::authenticate::Evidence;
use crate::mqtt::packet::{PacketId, SubscriptionOptions};
use crate::mqtt::{Delivery, Message, Packet, ProtocolVersion, ReasonCode, Source, SubscriptionFilter, UserProperties};
use crate::signal::{DropReason, Initiator};

/// Names one question of a machine; the answer carries it back. Unique within a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// One thing to do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Encode and write.
    Send(Packet),
    /// Judge who the client is; answer with `Machine::handle_authenticated`. At most one such question is open.
    Authenticate(Box<Evidence>),
    /// Register the connection with the client's shard; answer with `Machine::handle_registered`.
    Register(Box<Registration>),
    /// Route a message; answer with `Machine::handle_published` when it is as safe as its QoS asks. For QoS 0 only the answer
    /// `NotAuthorized` matters, and none need come.
    /// `receive` is set for QoS 2 of a session that outlives its connection: the identifier is stored with the message in the
    /// publisher's shard, so that a resend after a failover is recognised.
    Publish { ticket: Ticket, message: Box<Message>, receive: Option<PacketId> },
    /// PUBREL arrived for an identifier stored by `receive`; answer with `Machine::handle_released`.
    Release { ticket: Ticket, packet_id: PacketId },
    /// Answer with `Machine::handle_subscribed`. Filters that the machine itself refused are not in the list.
    Subscribe { ticket: Ticket, subscriptions: Vec<Subscription> },
    /// Answer with `Machine::handle_unsubscribed`.
    Unsubscribe { ticket: Ticket, filters: Vec<SubscriptionFilter> },
    /// A delivery went on or ended (not said of QoS 0 from `Source::Local`, which ends with its `Send`). For `AckOutcome::Received` of a `Source::Queue` the machine holds back PUBREL until
    /// `Machine::handle_acknowledged` says that the step is stored.
    Acknowledge { source: Source, outcome: AckOutcome },
    /// A delivery could not be sent (too large for the client's Maximum Packet Size); it counts as completed [MQTT-3.1.2-25], so
    /// no `Acknowledge` follows.
    Dropped { delivery: Box<Delivery>, reason: DropReason },
    /// An acknowledgement that is larger than the client's Maximum Packet Size was not sent [MQTT-3.1.2-24].
    NotSent(TooLarge),
    /// A delivery expired before it was sent; no `Acknowledge` follows.
    Expired { delivery: Box<Delivery> },
    /// The connection is over: propose it to the shard, once. Nothing but `Send` of a last packet and `Close` accompanies it.
    End(End),
    /// Close the socket when what was sent is written. Always the last effect of a machine.
    Close,
}

/// A packet, by the name of its type, that is larger than the client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    pub packet: &'static str,
    pub size_bytes: usize,
    pub max_bytes: u32,
}

/// What CONNECT asks of the client's shard.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    pub client_id: ByteString,
    pub client_id_assigned: bool,
    pub protocol: ProtocolVersion,
    pub clean_start: bool,
    /// Seconds after capping; 0 ends the session with the connection; 4,294,967,295 never.
    pub session_expiry_interval_s: u32,
    pub will: Option<WillRegistration>,
    /// As it was proved, or else as CONNECT says.
    pub username: Option<ByteString>,
    pub user_properties: UserProperties,
    /// Messages of QoS above 0 that the client takes at a time.
    pub send_window: usize,
}

/// A Will with its delay.
#[derive(Debug, Clone, PartialEq)]
pub struct WillRegistration {
    /// `received_at_ms` is stamped again when the will is published.
    pub message: Box<Message>,
    pub delay_interval_s: u32,
}

/// The shard's answer to a registration.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registered {
    pub session_present: bool,
    /// Identifiers of QoS 2 messages received and not yet released, of a resumed session.
    pub received_packet_ids: Vec<PacketId>,
}

/// One accepted filter of a SUBSCRIBE.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    pub filter: SubscriptionFilter,
    /// QoS is what is granted.
    pub options: SubscriptionOptions,
    pub identifier: Option<u32>,
}

/// How a delivery went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckOutcome {
    /// Written, nothing more to come (QoS 0).
    Sent,
    /// PUBACK, PUBCOMP, or PUBREC with a failure: done with it.
    Completed(ReasonCode),
    /// PUBREC: the receiver owns the message, PUBREL is next.
    Received,
}

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    pub initiator: Initiator,
    /// Recorded also where no packet carried it (MQTT 3).
    pub reason_code: Option<ReasonCode>,
    /// Whether the Will is to be published (spec/hivemq.md 9.7).
    pub will: bool,
    /// Changed by DISCONNECT; `None` keeps what CONNECT said.
    pub session_expiry_interval_s: Option<u32>,
}
