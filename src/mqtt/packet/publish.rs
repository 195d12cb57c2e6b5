use bytes::Bytes;
use bytestring::ByteString;
use smallvec::SmallVec;

use super::{PacketId, QoS};
use crate::mqtt::UserProperties;

/// PUBLISH (MQTT 5 section 3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    pub dup: bool,
    pub qos: QoS,
    pub retain: bool,
    /// Empty only where a Topic Alias stands for it.
    pub topic: ByteString,
    /// Present exactly where `qos` is above 0 [MQTT-2.2.1-2].
    pub packet_id: Option<PacketId>,
    pub properties: PublishProperties,
    pub payload: Bytes,
}

/// Properties of PUBLISH (MQTT 5 section 3.3.2.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishProperties {
    pub payload_format_indicator: Option<bool>,
    /// Seconds.
    pub message_expiry_interval: Option<u32>,
    pub topic_alias: Option<u16>,
    pub response_topic: Option<ByteString>,
    pub correlation_data: Option<Bytes>,
    pub user_properties: UserProperties,
    /// Only from server to client.
    pub subscription_identifiers: SmallVec<[u32; 2]>,
    pub content_type: Option<ByteString>,
}
