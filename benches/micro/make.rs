//! Packets, messages and sessions to measure with.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use troupemq::mqtt::packet::{Connect, ConnectProperties, PacketId, Publish, PublishProperties};
use troupemq::mqtt::{Message, Origin, ProtocolVersion, QoS};

pub const NOW_MS: u64 = 1_700_000_000_000;

pub fn connect(client: &str) -> Connect {
    Connect {
        protocol: ProtocolVersion::V5,
        clean_start: true,
        keep_alive: 60,
        client_id: client.into(),
        will: None,
        username: Some("gateway".into()),
        password: None,
        properties: ConnectProperties::default(),
    }
}

/// 64 bytes to a topic of four levels.
pub fn publish(qos: QoS) -> Publish {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: ByteString::from_static("site/7/sensor/temperature"),
        packet_id: (qos != QoS::AtMostOnce).then_some(PacketId::MIN),
        properties: PublishProperties::default(),
        payload: Bytes::from_static(&[b'x'; 64]),
    }
}

pub fn message(qos: QoS) -> Arc<Message> {
    let Publish { topic, payload, .. } = publish(qos);
    Arc::new(Message {
        topic,
        payload,
        qos,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval: None,
        received_at_ms: NOW_MS,
        origin: Origin::Client("publisher".into()),
    })
}
