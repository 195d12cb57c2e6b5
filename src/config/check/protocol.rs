//! `<mqtt>`, `<security>` and `<restrictions>` (spec/hivemq.md 1.5, 1.6).

use super::rules::MESSAGE_EXPIRY_UNLIMITED;
use super::view::View;
use super::{keep_alive, prevented, response, unstable};
use crate::config::settings::{AuthenticationSettings, MqttSettings, RestrictionSettings, SecuritySettings};

pub(super) fn mqtt(root: &View<'_>) -> MqttSettings {
    let mqtt = root.at("mqtt");
    MqttSettings {
        session_expiry_max_s: mqtt.u32_or_max("session-expiry/max-interval"),
        message_expiry_max_s: mqtt
            .number("message-expiry/max-interval")
            .filter(|s| *s < MESSAGE_EXPIRY_UNLIMITED)
            .and_then(|s| u32::try_from(s).ok()),
        max_packet_size_bytes: mqtt.u32_or_max("packets/max-packet-size"),
        server_receive_maximum: mqtt.u16_or_max("receive-maximum/server-receive-maximum"),
        keep_alive: keep_alive::read(&mqtt.at("keep-alive")),
        topic_alias_enabled: mqtt.flag("topic-alias/enabled"),
        topic_alias_max_per_client: mqtt.u16_or_max("topic-alias/max-per-client"),
        topic_alias_to_clients_enabled: mqtt.flag("topic-alias/to-clients/enabled"),
        topic_alias_to_clients_max: mqtt.u16_or_max("topic-alias/to-clients/max-per-client"),
        response_information: response::information(&mqtt.at("response-information")),
        server_reference: response::server_reference(&mqtt.at("server-reference")),
        subscription_identifiers: mqtt.flag("subscription-identifier/enabled"),
        wildcard_subscriptions: mqtt.flag("wildcard-subscriptions/enabled"),
        shared_subscriptions: mqtt.flag("shared-subscriptions/enabled"),
        max_qos: mqtt.number("quality-of-service/max-qos").and_then(|qos| u8::try_from(qos).ok()).unwrap_or(2),
        retained_messages: mqtt.flag("retained-messages/enabled"),
        retained_messages_max: mqtt.u64_or_max("retained-messages/max-messages"),
        retained_bytes_max: mqtt.u64_or_max("retained-messages/max-bytes"),
        max_queue_size: mqtt.u32_or_max("queued-messages/max-queue-size"),
        discard_oldest: mqtt.choice("queued-messages/strategy") == "discard-oldest",
    }
}

pub(super) fn security(root: &View<'_>, authentication: AuthenticationSettings) -> SecuritySettings {
    let security = root.at("security");
    SecuritySettings {
        allow_empty_client_id: security.flag("allow-empty-client-id/enabled"),
        payload_format_validation: security.flag("payload-format-validation/enabled"),
        utf8_validation: security.flag("utf8-validation/enabled"),
        allow_request_problem_information: security.flag("allow-request-problem-information/enabled"),
        allow_anonymous: security.flag("allow-anonymous/enabled"),
        authentication,
        unstable_clients: unstable::read(root),
    }
}

pub(super) fn restrictions(root: &View<'_>) -> RestrictionSettings {
    let restrictions = root.at("restrictions");
    RestrictionSettings {
        // -1 and 0 both mean unlimited.
        max_connections: restrictions.number("max-connections").and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0),
        max_client_id_length: restrictions.u16_or_max("max-client-id-length"),
        max_topic_length: restrictions.u16_or_max("max-topic-length"),
        no_connect_idle_timeout_ms: restrictions.u64_or_max("no-connect-idle-timeout"),
        incoming_bandwidth_throttling: restrictions.u64_or_max("incoming-bandwidth-throttling"),
        max_qos0_memory: restrictions.bytes("max-qos-0-memory"),
        max_incomplete_packet_memory: restrictions.bytes("max-incomplete-packet-memory"),
        prevented: prevented::read(&restrictions),
    }
}
