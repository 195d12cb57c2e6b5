//! The Application Message as it travels inside the broker.

use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{QoS, UserProperties};

/// An Application Message: parsed once, shared by reference (`Arc<Message>`) by every receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub topic: ByteString,
    pub payload: Bytes,
    /// The publisher's QoS; a receiver gets the minimum of this and its granted QoS.
    pub qos: QoS,
    /// The publisher's RETAIN flag, kept beside what a subscription makes of it.
    pub retain: bool,
    pub payload_format_indicator: Option<bool>,
    pub content_type: Option<ByteString>,
    pub response_topic: Option<ByteString>,
    pub correlation_data: Option<Bytes>,
    pub user_properties: UserProperties,
    /// Seconds from `received_at_ms`; already the minimum of the publisher's and the configured maximum; `None` never expires.
    pub message_expiry_interval: Option<u32>,
    /// Wall clock, milliseconds since the epoch, stamped once where the message entered the cluster.
    pub received_at_ms: u64,
    /// Who made the message; decides No Local and the `hmq-dead-origin`.
    pub origin: Origin,
}

/// Where a message came from (spec/hivemq.md 4.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// Published (or left as Will) by the client of that id.
    Client(ByteString),
    /// Made by an edge or by an add-on that re-publishes.
    Extension,
    /// Made by the broker itself: a lifecycle event.
    Broker,
}

impl Message {
    /// When the message expires, wall clock in ms; `None` never.
    pub fn expires_at_ms(&self) -> Option<u64> {
        self.message_expiry_interval.map(|s| self.received_at_ms.saturating_add(u64::from(s) * 1000))
    }

    /// Whether nothing of the Message Expiry Interval is left at `now_ms` (spec/hivemq.md 3: remaining == 0).
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.remaining_expiry_s(now_ms) == Some(0)
    }

    /// Seconds left of the Message Expiry Interval, as it is sent to a receiver [MQTT-3.3.2-6]; `None` where none was set.
    pub fn remaining_expiry_s(&self, now_ms: u64) -> Option<u32> {
        let interval = self.message_expiry_interval?;
        let waited_s = now_ms.saturating_sub(self.received_at_ms) / 1000;
        Some(interval.saturating_sub(u32::try_from(waited_s).unwrap_or(u32::MAX)))
    }

    /// The client that published the message.
    pub fn publisher(&self) -> Option<&ByteString> {
        match &self.origin {
            Origin::Client(id) => Some(id),
            Origin::Extension | Origin::Broker => None,
        }
    }

    /// Bytes this message takes in a queue: payload, topic, properties and a fixed allowance for the objects around them.
    pub fn size_bytes(&self) -> usize {
        let properties: usize = self.user_properties.iter().map(|(k, v)| k.len() + v.len()).sum();
        let optional = self.content_type.as_ref().map_or(0, |s| s.len())
            + self.response_topic.as_ref().map_or(0, |s| s.len())
            + self.correlation_data.as_ref().map_or(0, Bytes::len);
        self.payload.len() + self.topic.len() + properties + optional + Self::OVERHEAD_BYTES
    }

    const OVERHEAD_BYTES: usize = 160;
}
