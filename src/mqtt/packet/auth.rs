use bytes::Bytes;
use bytestring::ByteString;

use crate::mqtt::{ReasonCode, UserProperties};

/// AUTH (MQTT 5 section 3.15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    pub reason_code: ReasonCode,
    pub properties: AuthProperties,
}

/// Properties of AUTH (MQTT 5 section 3.15.2.2).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthProperties {
    pub authentication_method: Option<ByteString>,
    pub authentication_data: Option<Bytes>,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
}
