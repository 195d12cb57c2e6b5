use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{ProtocolVersion, QoS};
use crate::mqtt::UserProperties;

/// CONNECT: a client asks for a connection (MQTT 5 section 3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    pub protocol: ProtocolVersion,
    /// Clean Start (MQTT 5) or Clean Session (MQTT 3).
    pub clean_start: bool,
    /// Seconds; 0 switches the mechanism off.
    pub keep_alive: u16,
    /// Empty where the client asks the server to assign one.
    pub client_id: ByteString,
    pub will: Option<Will>,
    pub username: Option<ByteString>,
    pub password: Option<Bytes>,
    pub properties: ConnectProperties,
}

/// Properties of CONNECT (MQTT 5 section 3.1.2.11).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectProperties {
    pub session_expiry_interval: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub maximum_packet_size: Option<u32>,
    pub topic_alias_maximum: Option<u16>,
    pub request_response_information: Option<bool>,
    pub request_problem_information: Option<bool>,
    pub user_properties: UserProperties,
    pub authentication_method: Option<ByteString>,
    pub authentication_data: Option<Bytes>,
}

/// The Will of a CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will {
    pub topic: ByteString,
    pub payload: Bytes,
    pub qos: QoS,
    pub retain: bool,
    pub properties: WillProperties,
}

/// Will Properties (MQTT 5 section 3.1.3.2).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WillProperties {
    /// Seconds.
    pub will_delay_interval: Option<u32>,
    pub payload_format_indicator: Option<bool>,
    /// Seconds.
    pub message_expiry_interval: Option<u32>,
    pub content_type: Option<ByteString>,
    pub response_topic: Option<ByteString>,
    pub correlation_data: Option<Bytes>,
    pub user_properties: UserProperties,
}
