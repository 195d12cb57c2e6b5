//! Signals: what happened to a message or a connection that somebody may want to know. Plain data, one list for all.

pub mod namespace;

use std::sync::{Arc, OnceLock};

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::mqtt::{Message, ProtocolVersion, QoS, UserProperties};

/// Every signal the broker raises.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    Lifecycle(Box<Lifecycle>),
    Dropped(Dropped),
    Expired(Expired),
    Dead(Dead),
}

impl Signal {
    /// Bytes that the signal keeps in memory, about.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Lifecycle(_) => 0,
            Self::Dropped(Dropped { message, .. })
            | Self::Expired(Expired { message, .. })
            | Self::Dead(Dead { message, .. }) => message.size_bytes(),
        }
    }
}

/// The receiver that missed a message (spec/hivemq.md 4.2, 4.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Receiver {
    Client(ByteString),
    /// The full shared subscription, `$share/<name>/<filter>`.
    SharedSubscription(ByteString),
    /// A QoS 0 message of a shared subscription for which a member was already chosen: both are named.
    SharedSubscriptionMember {
        shared_subscription: ByteString,
        client: ByteString,
    },
    /// An edge that consumes, by its id; or, as [`Receiver::RETAINED`], those who subscribe later.
    Consumer(ByteString),
}

impl Receiver {
    /// The id of the consumer that missed a message which is not retained. Our own.
    pub const RETAINED: &str = "retained-messages";

    /// A member of a shared subscription that was chosen for a message.
    pub fn member(shared_subscription: ByteString, client: ByteString) -> Self {
        Self::SharedSubscriptionMember { shared_subscription, client }
    }
}

/// A message that a receiver did not get because a limit bit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    pub message: Arc<Message>,
    /// QoS of the receiver's copy.
    pub qos: QoS,
    pub receiver: Receiver,
    pub reason: DropReason,
    pub at_ms: u64,
    /// As in [`Lifecycle`].
    #[serde(skip)]
    pub rendered: RenderedOnce,
}

/// Why a message was dropped (spec/hivemq.md 2.1); spelling of `text` is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DropReason {
    ClientMessageQueueFull,
    Qos0MemoryExceeded,
    Qos0ChannelNotWritable,
    MaximumPacketSizeExceeded,
    ExtensionPreventedInbound,
    ExtensionPreventedOutbound,
    InternalError,
    /// Our own: the limit of retained messages, or of their bytes.
    RetainedMessageLimitReached,
}

impl DropReason {
    /// The value of `hmq-drop-reason`.
    pub fn text(self) -> &'static str {
        match self {
            Self::ClientMessageQueueFull => "Client Message Queue Full",
            Self::Qos0MemoryExceeded => "QoS 0 Memory Exceeded",
            Self::Qos0ChannelNotWritable => "QoS 0 Channel Not Writable",
            Self::MaximumPacketSizeExceeded => "Maximum Packet Size Exceeded",
            Self::ExtensionPreventedInbound => "Extension Prevented (inbound)",
            Self::ExtensionPreventedOutbound => "Extension Prevented (outbound)",
            Self::InternalError => "Internal Error",
            Self::RetainedMessageLimitReached => "Retained Message Limit Reached",
        }
    }
}

/// A queued or in-flight message whose Message Expiry Interval passed before a receiver had it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    pub message: Arc<Message>,
    pub qos: QoS,
    pub receiver: Receiver,
    pub at_ms: u64,
    /// As in [`Lifecycle`].
    #[serde(skip)]
    pub rendered: RenderedOnce,
}

/// A message that no subscription matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dead {
    pub message: Arc<Message>,
    pub at_ms: u64,
}

/// A client connected or disconnected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    pub event: LifecycleEvent,
    pub at_ms: u64,
    pub facts: Arc<ConnectionFacts>,
    /// The event's message once somebody on this node made it; not part of the event.
    #[serde(skip)]
    pub rendered: RenderedOnce,
}

/// A place for a message that several parts of a node need of the same event: made by the first, read by the others.
#[derive(Debug, Default)]
pub struct RenderedOnce {
    message: OnceLock<Option<Arc<Message>>>,
    /// There would be a message, and nobody to hear it.
    passed_over: OnceLock<()>,
    /// Which shards had receivers of it when the first asked, a bit each.
    shards: OnceLock<u64>,
}

impl RenderedOnce {
    pub fn get_or_make(&self, make: impl FnOnce() -> Option<Arc<Message>>) -> Option<Arc<Message>> {
        self.message.get_or_init(make).clone()
    }

    /// Nobody would hear the message, so it need not be made.
    pub fn pass_over(&self) {
        self.passed_over.get_or_init(|| ());
    }

    /// Whether there is a message, made by somebody already, or one that was passed over.
    pub fn is_made(&self) -> bool {
        self.message.get().is_some_and(Option::is_some) || self.passed_over.get().is_some()
    }

    /// Whether a shard may have receivers: one that had none when the first looked has none, for a subscription that came later came behind the
    /// event.
    pub fn may_concern(&self, shard: u16) -> bool {
        self.shards.get().is_none_or(|shards| u32::from(shard) >= u64::BITS || shards & (1 << shard) != 0)
    }

    /// Notes which shards have receivers, where nobody did before.
    pub fn concerns(&self, shards: impl Iterator<Item = u16>) {
        self.shards.get_or_init(|| shards.filter(|shard| u32::from(*shard) < u64::BITS).fold(0, |bits, shard| bits | 1 << shard));
    }
}

impl Clone for RenderedOnce {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for RenderedOnce {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RenderedOnce {}

/// What happened to the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LifecycleEvent {
    Connected { user_properties: UserProperties },
    Disconnected { initiator: Initiator, reason_code: Option<u8> },
}

/// Who ended a connection (seed, Table 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Initiator {
    Client,
    Server,
    SessionTakenOver,
    Unspecified,
}

impl Initiator {
    /// The value of `Disconnect initiator`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Client => "CLIENT",
            Self::Server => "SERVER",
            Self::SessionTakenOver => "SESSION_TAKEN_OVER",
            Self::Unspecified => "UNSPECIFIED",
        }
    }
}

/// What is known of a connection; unknown is `None` and stays out of the event (seed, Table 10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionFacts {
    pub client_id: ByteString,
    pub client_id_assigned: bool,
    pub client_ip: Option<Arc<str>>,
    pub node_ip: Option<Arc<str>>,
    pub listener_port: Option<u16>,
    pub secure: bool,
    pub protocol: ProtocolVersion,
    pub username: Option<Arc<str>>,
    pub tls: TlsNames,
    pub connected_at_ms: u64,
}

/// Whom the client's certificate names. A pointer where it showed none, since there are very many connections; encoded as its two fields are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Names", into = "Names")]
pub struct TlsNames(Option<Box<Names>>);

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Names {
    common_name: Option<ByteString>,
    subject_alternative_names: Option<Vec<ByteString>>,
}

impl TlsNames {
    pub fn new(common_name: Option<ByteString>, subject_alternative_names: Option<Vec<ByteString>>) -> Self {
        Names { common_name, subject_alternative_names }.into()
    }

    pub fn common_name(&self) -> Option<&str> {
        self.0.as_ref()?.common_name.as_deref()
    }

    pub fn subject_alternative_names(&self) -> Option<&[ByteString]> {
        self.0.as_ref()?.subject_alternative_names.as_deref()
    }
}

impl From<Names> for TlsNames {
    fn from(names: Names) -> Self {
        Self((names != Names::default()).then(|| Box::new(names)))
    }
}

impl From<TlsNames> for Names {
    fn from(names: TlsNames) -> Self {
        names.0.map(|names| *names).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of the facts as they were first stored and sent.
    #[derive(Serialize)]
    struct First {
        client_id: ByteString,
        client_id_assigned: bool,
        client_ip: Option<ByteString>,
        node_ip: Option<ByteString>,
        listener_port: Option<u16>,
        secure: bool,
        protocol: ProtocolVersion,
        username: Option<ByteString>,
        tls_common_name: Option<ByteString>,
        tls_subject_alternative_names: Option<Vec<ByteString>>,
        connected_at_ms: u64,
    }

    #[test]
    fn facts_are_encoded_as_they_always_were() {
        let names =
            [(None, None), (Some("cn".into()), None), (None, Some(vec!["a".into(), "b".into()])), (None, Some(Vec::new()))];
        for (tls_common_name, tls_subject_alternative_names) in names {
            let facts = ConnectionFacts {
                client_id: "c".into(),
                client_id_assigned: true,
                client_ip: Some("192.0.2.1".into()),
                node_ip: None,
                listener_port: Some(1883),
                secure: true,
                protocol: ProtocolVersion::V5,
                username: Some("u".into()),
                tls: TlsNames::new(tls_common_name.clone(), tls_subject_alternative_names.clone()),
                connected_at_ms: 7,
            };
            let first = First {
                client_id: "c".into(),
                client_id_assigned: true,
                client_ip: Some("192.0.2.1".into()),
                node_ip: None,
                listener_port: Some(1883),
                secure: true,
                protocol: ProtocolVersion::V5,
                username: Some("u".into()),
                tls_common_name,
                tls_subject_alternative_names,
                connected_at_ms: 7,
            };
            let config = bincode::config::standard();
            let bytes = bincode::serde::encode_to_vec(&facts, config).unwrap();
            assert_eq!(bytes, bincode::serde::encode_to_vec(&first, config).unwrap());
            assert_eq!(bincode::serde::decode_from_slice::<ConnectionFacts, _>(&bytes, config).unwrap(), (facts, bytes.len()));
        }
    }
}
