//! Control Packets as plain data, one file a packet.
//!
//! One set of types serves all protocol versions: what a version does not have is empty (MQTT 3 has no properties) and
//! the codec of that version neither reads nor writes it.

mod auth;
mod connack;
mod connect;
mod disconnect;
mod publish;
mod publish_ack;
mod subscribe;
mod unsubscribe;

use serde::{Deserialize, Serialize};

pub use auth::{Auth, AuthProperties};
pub use connack::{Connack, ConnackProperties};
pub use connect::{Connect, ConnectProperties, Will, WillProperties};
pub use disconnect::{Disconnect, DisconnectProperties};
pub use publish::{Publish, PublishProperties};
pub use publish_ack::PublishAck;
pub use subscribe::{RetainHandling, Suback, Subscribe, SubscriptionOptions, SubscriptionRequest};
pub use unsubscribe::{Unsuback, Unsubscribe};

/// The protocol version of a connection, named as the lifecycle events name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ProtocolVersion {
    /// MQTT 3.1 (`MQIsdp`, level 3).
    V3_1,
    /// MQTT 3.1.1 (`MQTT`, level 4).
    V3_1_1,
    /// MQTT 5.0 (`MQTT`, level 5).
    V5,
}

impl ProtocolVersion {
    /// Whether packets of this version carry properties and Reason Codes.
    pub fn is_v5(self) -> bool {
        self == Self::V5
    }

    /// The name used in lifecycle events and in the REST API (spec/hivemq.md 4.9).
    pub fn name(self) -> &'static str {
        match self {
            Self::V3_1 => "MQTTv3_1",
            Self::V3_1_1 => "MQTTv3_1_1",
            Self::V5 => "MQTTv5",
        }
    }
}

/// Quality of Service level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[repr(u8)]
pub enum QoS {
    /// QoS 0.
    #[default]
    AtMostOnce = 0,
    /// QoS 1.
    AtLeastOnce = 1,
    /// QoS 2.
    ExactlyOnce = 2,
}

impl QoS {
    /// Reads the two bits of a level; 3 is no level.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// A Packet Identifier, never 0 [MQTT-2.2.1-3].
pub type PacketId = std::num::NonZeroU16;

/// One Control Packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    Connect(Box<Connect>),
    Connack(Box<Connack>),
    Publish(Box<Publish>),
    Puback(PublishAck),
    Pubrec(PublishAck),
    Pubrel(PublishAck),
    Pubcomp(PublishAck),
    Subscribe(Box<Subscribe>),
    Suback(Box<Suback>),
    Unsubscribe(Box<Unsubscribe>),
    Unsuback(Box<Unsuback>),
    Pingreq,
    Pingresp,
    Disconnect(Box<Disconnect>),
    Auth(Box<Auth>),
}
