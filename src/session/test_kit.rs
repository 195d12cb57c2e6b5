//! Helpers of the session tests.

use super::settings::SessionSettings;
use crate::mqtt::QoS;

/// The defaults of `config.xml`.
pub(super) fn settings() -> SessionSettings {
    SessionSettings {
        session_expiry_max_s: u32::MAX,
        message_expiry_max_s: None,
        max_packet_size_bytes: 268_435_460,
        server_receive_maximum: 10,
        keep_alive_max_s: 65_535,
        keep_alive_allow_unlimited: true,
        topic_alias_max: 5,
        subscription_identifiers: true,
        wildcard_subscriptions: true,
        shared_subscriptions: true,
        max_qos: QoS::ExactlyOnce,
        retained_messages: true,
        allow_empty_client_id: true,
        payload_format_validation: false,
        allow_request_problem_information: true,
        max_client_id_length: 65_535,
        max_topic_length: 65_535,
        no_connect_idle_timeout_ms: 10_000,
        max_inflight: 50,
    }
}
