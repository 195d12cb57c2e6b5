use bytestring::ByteString;

use crate::mqtt::{ReasonCode, UserProperties};

/// DISCONNECT (MQTT 5 section 3.14). MQTT 3 has it from client to server only, without content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect {
    pub reason_code: ReasonCode,
    pub properties: DisconnectProperties,
}

/// Properties of DISCONNECT (MQTT 5 section 3.14.2.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DisconnectProperties {
    /// Seconds; client to server only.
    pub session_expiry_interval: Option<u32>,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
    /// Server to client only.
    pub server_reference: Option<ByteString>,
}
