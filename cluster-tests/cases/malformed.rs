//! Malformed and forbidden packets.

use bytes::{BufMut, BytesMut};
use troupemq::mqtt::packet::PublishProperties;
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::kit::{BOTH, publisher, subscriber};
use crate::harness::SOON;
use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const WILL: u8 = 0x04;

/// Single-use properties of CONNECT.
const CONNECT_PROPERTIES: &[&[u8]] = &[
    &[0x11, 0, 0, 0, 1],
    &[0x21, 0, 9],
    &[0x27, 0, 0, 9, 9],
    &[0x22, 0, 9],
    &[0x19, 1],
    &[0x17, 1],
    &[0x15, 0, 1, b'm'],
    &[0x16, 0, 1, b'd'],
];
/// Single-use properties of a Will.
const WILL_PROPERTIES: &[&[u8]] =
    &[&[0x18, 0, 0, 0, 1], &[0x01, 1], &[0x02, 0, 0, 0, 9], &[0x03, 0, 1, b'c'], &[0x08, 0, 1, b'r'], &[0x09, 0, 1, b'd']];
const USER_PROPERTY: &[u8] = &[0x26, 0, 1, b'k', 0, 1, b'v'];

fn connect(version: ProtocolVersion, flags: u8, properties: &[u8], will_properties: &[u8]) -> Vec<u8> {
    let is_v5 = version == ProtocolVersion::V5;
    let mut body = BytesMut::new();
    body.put_slice(b"\0\x04MQTT");
    body.put_slice(&[if is_v5 { 5 } else { 4 }, flags, 0, 0]);
    if is_v5 {
        body.put_u8(properties.len() as u8);
        body.put_slice(properties);
    }
    body.put_slice(b"\0\x03raw");
    if flags & WILL != 0 {
        if is_v5 {
            body.put_u8(will_properties.len() as u8);
            body.put_slice(will_properties);
        }
        body.put_slice(b"\0\x01w\0\x04gone");
    }
    let mut packet = vec![0x10, body.len() as u8];
    packet.extend_from_slice(&body);
    packet
}

/// What the broker makes of a CONNECT: the Reason Code of its CONNACK, or nothing but the end.
async fn answer(node: &Node, version: ProtocolVersion, bytes: &[u8]) -> Option<ReasonCode> {
    let mut client = Client::raw(node.mqtt(), version).await.expect("connected");
    client.send_bytes(bytes).await.expect("sent");
    match client.next_packet(SOON).await {
        Ok(Packet::Connack(connack)) => {
            if connack.reason_code.is_error() {
                assert!(matches!(client.next_packet(SOON).await, Err(Gone::Closed(_))), "a refusal is followed by the end");
            }
            Some(connack.reason_code)
        }
        Err(Gone::Closed(_)) => None,
        other => panic!("{other:?}"),
    }
}

/// Row 88: [MQTT-3.1.2-11] to [MQTT-3.1.2-13], section 2.2.2.2.
#[tokio::test]
async fn contradictory_will_flags_and_repeated_properties_are_refused() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let refusals = [Some(ReasonCode::MalformedPacket), Some(ReasonCode::ProtocolError), None];
    for version in BOTH {
        for (name, flags) in [("retain", 0x22), ("QoS 1", 0x0A), ("QoS 2", 0x12), ("QoS 3", 0x1A), ("QoS 3 of a will", 0x1E)] {
            let outcome = answer(&node, version, &connect(version, flags, &[], &[])).await;
            assert!(refusals.contains(&outcome), "{version:?}, will {name}: {outcome:?}");
        }
        let outcome = answer(&node, version, &connect(version, 0x02 | WILL, &[], &[])).await;
        assert_eq!(outcome, Some(ReasonCode::Success), "{version:?}: a will in order");
    }
    let v5 = ProtocolVersion::V5;
    // Authentication Data goes with a method only, and methods are refused on their own account.
    for property in CONNECT_PROPERTIES {
        let method: &[u8] = if property[0] == 0x16 { CONNECT_PROPERTIES[6] } else { &[] };
        let outcome = answer(&node, v5, &connect(v5, 0x02, &[method, property, property].concat(), &[])).await;
        assert!(refusals.contains(&outcome), "{property:02X?} twice: {outcome:?}");
        if !matches!(property[0], 0x15 | 0x16) {
            let outcome = answer(&node, v5, &connect(v5, 0x02, property, &[])).await;
            assert_eq!(outcome, Some(ReasonCode::Success), "{property:02X?} once");
        }
    }
    for property in WILL_PROPERTIES {
        let outcome = answer(&node, v5, &connect(v5, 0x02 | WILL, &[], &[*property, property].concat())).await;
        assert!(refusals.contains(&outcome), "{property:02X?} of a will twice: {outcome:?}");
        let outcome = answer(&node, v5, &connect(v5, 0x02 | WILL, &[], property)).await;
        assert_eq!(outcome, Some(ReasonCode::Success), "{property:02X?} of a will once");
    }
    let twice = [USER_PROPERTY, USER_PROPERTY].concat();
    let outcome = answer(&node, v5, &connect(v5, 0x02 | WILL, &twice, &twice)).await;
    assert_eq!(outcome, Some(ReasonCode::Success), "a User Property twice");
}

/// Row 89.
#[tokio::test]
async fn strange_retained_messages_break_no_subscriber() {
    let _permit = acquire(Weight::Node);
    let more = "<security><payload-format-validation><enabled>true</enabled></payload-format-validation></security>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    let mut publisher = publisher(node.mqtt()).await;
    let longest = "t".repeat(65_535);
    let user_properties: Vec<_> = (0..60).map(|n| (format!("{n}").into(), "v".repeat(1024).into())).collect();
    let strange = [
        (longest.as_str(), &b"long"[..], PublishProperties::default()),
        ("properties", b"with 60 KB of properties", PublishProperties { user_properties, ..PublishProperties::default() }),
        ("a//b/ /\u{1F600}/$", b"levels", PublishProperties::default()),
        ("\u{FEFF}", b"mark", PublishProperties::default()),
        (
            "correlation",
            b"data",
            PublishProperties { correlation_data: Some(vec![0; 65_535].into()), ..PublishProperties::default() },
        ),
        ("plain", b"plain", PublishProperties::default()),
    ];
    for (topic, payload, properties) in &strange {
        let mut packet = publish(topic, payload, QoS::AtLeastOnce);
        (packet.retain, packet.properties) = (true, properties.clone());
        let code = publisher.try_publish(packet).await.expect("acknowledged");
        assert!(!code.is_error(), "{}: {code:?}", topic.chars().take(20).collect::<String>());
    }
    // An empty payload deletes, whatever properties come with it.
    let mut packet = publish("properties-only", b"", QoS::AtLeastOnce);
    packet.retain = true;
    packet.properties.content_type = Some("text/plain".into());
    assert!(!publisher.try_publish(packet).await.expect("acknowledged").is_error());
    // Text that is no text.
    let mut packet = publish("text", b"\xFF\xFE", QoS::AtLeastOnce);
    packet.retain = true;
    packet.properties.payload_format_indicator = Some(true);
    let mut liar = Client::connect(node.mqtt(), &Options::v5("liar")).await;
    match liar.try_publish(packet).await {
        Ok(code) => assert_eq!(code, ReasonCode::PayloadFormatInvalid),
        Err(Gone::Closed(_)) => {
            assert_eq!(liar.disconnect.as_ref().map(|disconnect| disconnect.reason_code), Some(ReasonCode::PayloadFormatInvalid));
        }
        Err(Gone::Timeout) => panic!("no answer"),
    }
    let expected = |limit: usize| {
        // Without what is certainly too large; no other packet is near the limits.
        let size = |(topic, _, properties): &(&str, &[u8], PublishProperties)| {
            topic.len()
                + 1024 * properties.user_properties.len()
                + properties.correlation_data.as_ref().map_or(0, |data| data.len())
        };
        let mut topics: Vec<String> =
            strange.iter().filter(|one| size(one) < limit).map(|(topic, ..)| (*topic).to_owned()).collect();
        topics.sort();
        topics
    };
    for (name, options, limit) in [
        ("5", Options::v5("s5"), usize::MAX),
        ("5, 1000 bytes", Options::v5("small").maximum_packet_size(1000), 1000),
        ("5, kept, 1000 bytes", Options::v5("small-kept").persistent().maximum_packet_size(1000), 1000),
        ("3.1.1", Options::v3("s3"), usize::MAX),
        ("3.1.1, kept", Options::v3("s3-kept").persistent(), usize::MAX),
        ("3.1", Options::of(ProtocolVersion::V3_1, "s31"), usize::MAX),
    ] {
        let mut client = subscriber(node.mqtt(), &options, "#").await;
        let mut topics = Vec::new();
        for _ in 0..expected(limit).len() {
            topics.push(client.message().await.topic.to_string());
        }
        topics.sort();
        assert!(topics == expected(limit), "{name}: {} messages", topics.len());
        client.ping().await;
        assert!(client.session.inbox.is_empty(), "{name}");
        publisher.publish("live", b"live", QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, "live", "{name}");
        client.disconnect().await;
    }
}
