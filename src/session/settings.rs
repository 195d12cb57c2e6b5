//! Limits a session obeys, all from `config.xml` (spec/hivemq.md 1.5, 1.6).

use crate::mqtt::QoS;

/// The settings of a connection; the same for all connections of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// Seconds, 0 to 4,294,967,295.
    pub session_expiry_max_s: u32,
    /// Seconds; `None` = no limit (4,294,967,296 in the file).
    pub message_expiry_max_s: Option<u32>,
    /// Bytes of a whole packet, 15 to 268,435,460.
    pub max_packet_size_bytes: u32,
    pub server_receive_maximum: u16,
    /// Seconds, 1 to 65,535.
    pub keep_alive_max_s: u16,
    pub keep_alive_allow_unlimited: bool,
    /// 0 where topic aliases are off.
    pub topic_alias_max: u16,
    pub subscription_identifiers: bool,
    pub wildcard_subscriptions: bool,
    pub shared_subscriptions: bool,
    pub max_qos: QoS,
    pub retained_messages: bool,
    pub allow_empty_client_id: bool,
    pub payload_format_validation: bool,
    pub allow_request_problem_information: bool,
    pub max_client_id_length: u16,
    pub max_topic_length: u16,
    /// Milliseconds from accept to CONNECT.
    pub no_connect_idle_timeout_ms: u64,
    /// Upper bound of messages in flight to one client (spec/hivemq.md 2.5): 50.
    pub max_inflight: u16,
}
