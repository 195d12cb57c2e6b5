use bytes::Bytes;
use bytestring::ByteString;

use super::QoS;
use crate::mqtt::{ReasonCode, UserProperties};

/// CONNACK: the answer to CONNECT (MQTT 5 section 3.2). The MQTT 3 encoder maps `reason_code` to a return code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connack {
    pub session_present: bool,
    pub reason_code: ReasonCode,
    pub properties: ConnackProperties,
}

/// Properties of CONNACK (MQTT 5 section 3.2.2.3); `None` is not sent and means the specification's default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnackProperties {
    pub session_expiry_interval: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub maximum_qos: Option<QoS>,
    pub retain_available: Option<bool>,
    pub maximum_packet_size: Option<u32>,
    pub assigned_client_identifier: Option<ByteString>,
    pub topic_alias_maximum: Option<u16>,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
    pub wildcard_subscription_available: Option<bool>,
    pub subscription_identifiers_available: Option<bool>,
    pub shared_subscription_available: Option<bool>,
    pub server_keep_alive: Option<u16>,
    pub response_information: Option<ByteString>,
    pub server_reference: Option<ByteString>,
    pub authentication_method: Option<ByteString>,
    pub authentication_data: Option<Bytes>,
}
