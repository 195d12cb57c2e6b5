use bytestring::ByteString;

use super::PacketId;
use crate::mqtt::{ReasonCode, UserProperties};

/// UNSUBSCRIBE (MQTT 5 section 3.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe {
    pub packet_id: PacketId,
    pub user_properties: UserProperties,
    /// Never empty [MQTT-3.10.3-2].
    pub filters: Vec<ByteString>,
}

/// UNSUBACK (MQTT 5 section 3.11). MQTT 3 has no Reason Codes here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsuback {
    pub packet_id: PacketId,
    pub reason_codes: Vec<ReasonCode>,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
}
