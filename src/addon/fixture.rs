//! What the tests of this room share.

use bytes::Bytes;

use super::settings::AddonSettings;
use crate::config::settings::LifecycleSettings;
use crate::mqtt::{Message, Origin, ProtocolVersion, QoS};
use crate::signal::{ConnectionFacts, TlsNames};

pub(super) const NOW_MS: u64 = 1_756_377_600_123;

/// Everything on, no maximum expiry.
pub(super) fn all_on() -> AddonSettings {
    AddonSettings {
        expired: true,
        dropped: true,
        dead: true,
        lifecycle: LifecycleSettings {
            enabled: true,
            identifier_username: false,
            connected: true,
            client: true,
            server: true,
            session_taken_over: true,
            unspecified: true,
        },
        message_expiry_max_s: None,
    }
}

pub(super) fn all_off() -> AddonSettings {
    let mut settings = AddonSettings { expired: false, dropped: false, dead: false, ..all_on() };
    settings.lifecycle.enabled = false;
    settings
}

/// A message of client `pub-1` with every field set.
pub(super) fn message(topic: &str) -> Message {
    Message {
        topic: topic.into(),
        payload: Bytes::from_static(b"\x00payload\xff"),
        qos: QoS::ExactlyOnce,
        retain: true,
        payload_format_indicator: Some(false),
        content_type: Some("application/x".into()),
        response_topic: Some("reply/here".into()),
        correlation_data: Some(Bytes::from_static(b"corr")),
        user_properties: vec![("b".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), "3".into())],
        message_expiry_interval: Some(5),
        received_at_ms: NOW_MS - 60_000,
        origin: Origin::Client("pub-1".into()),
    }
}

/// The connection of the seed's examples.
pub(super) fn facts() -> ConnectionFacts {
    ConnectionFacts {
        client_id: "sensor-42".into(),
        client_id_assigned: false,
        client_ip: Some("192.168.0.1".into()),
        node_ip: Some("10.0.0.7".into()),
        listener_port: Some(1883),
        secure: false,
        protocol: ProtocolVersion::V5,
        username: Some("my-user".into()),
        tls: TlsNames::default(),
        connected_at_ms: 1_756_377_600_000,
    }
}

/// User properties as pairs of text.
pub(super) fn properties(message: &Message) -> Vec<(&str, &str)> {
    message.user_properties.iter().map(|(name, value)| (name.as_ref(), value.as_ref())).collect()
}
