use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use super::{PacketId, QoS};
use crate::mqtt::{ReasonCode, UserProperties};

/// SUBSCRIBE (MQTT 5 section 3.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    pub packet_id: PacketId,
    /// 1 to 268,435,455 [MQTT 5 section 3.8.2.1.2].
    pub subscription_identifier: Option<u32>,
    pub user_properties: UserProperties,
    /// Never empty [MQTT-3.8.3-2].
    pub filters: Vec<SubscriptionRequest>,
}

/// One Topic Filter of a SUBSCRIBE with its options, as the client wrote it (the filter is checked by the session).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRequest {
    pub filter: ByteString,
    pub options: SubscriptionOptions,
}

/// Subscription Options (MQTT 5 section 3.8.3.1). MQTT 3 has the QoS only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionOptions {
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    pub retain_handling: RetainHandling,
}

/// When retained messages are sent at subscribe time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum RetainHandling {
    #[default]
    Send = 0,
    SendIfNew = 1,
    DoNotSend = 2,
}

/// SUBACK (MQTT 5 section 3.9). The MQTT 3 encoder writes every failure as 0x80.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suback {
    pub packet_id: PacketId,
    /// One for each filter, in order [MQTT-3.9.3-1].
    pub reason_codes: Vec<ReasonCode>,
    pub reason_string: Option<ByteString>,
    pub user_properties: UserProperties,
}
