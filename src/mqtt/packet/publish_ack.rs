use bytestring::ByteString;

use super::PacketId;
use crate::mqtt::{ReasonCode, UserProperties};

/// PUBACK, PUBREC, PUBREL and PUBCOMP, which share one shape (MQTT 5 sections 3.4 to 3.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishAck {
    pub packet_id: PacketId,
    pub reason_code: ReasonCode,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
}

impl PublishAck {
    /// An acknowledgement without reason string and user properties.
    pub fn new(packet_id: PacketId, reason_code: ReasonCode) -> Self {
        Self { packet_id, reason_code, reason_string: None, user_properties: UserProperties::new() }
    }
}
