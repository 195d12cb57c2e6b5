//! Bad input gets the right answer and touches nobody else.

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const CONNECT_5: &[u8] = &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 2, b'm', b'5'];

/// Name, bytes after a CONNECT of MQTT 5, and what the DISCONNECT says.
const AFTER_CONNECT: &[(&str, &[u8], Option<ReasonCode>)] = &[
    ("reserved packet type", &[0x00, 0x00], Some(ReasonCode::MalformedPacket)),
    ("wrong flags of SUBSCRIBE", &[0x80, 0x07, 0, 1, 0, 0, 1, b'a', 0], Some(ReasonCode::MalformedPacket)),
    ("SUBSCRIBE without filter", &[0x82, 0x03, 0, 1, 0], Some(ReasonCode::ProtocolError)),
    ("SUBSCRIBE with packet id 0", &[0x82, 0x07, 0, 0, 0, 0, 1, b'a', 0], Some(ReasonCode::ProtocolError)),
    ("PUBLISH with QoS 3", &[0x36, 0x06, 0, 1, b'a', 0, 1, 0], Some(ReasonCode::MalformedPacket)),
    ("PUBLISH with an unknown property", &[0x30, 0x06, 0, 1, b'a', 2, 0x7F, 0], Some(ReasonCode::MalformedPacket)),
    ("PUBLISH with a wildcard", &[0x30, 0x04, 0, 1, b'#', 0], Some(ReasonCode::TopicNameInvalid)),
    ("PUBLISH to $", &[0x30, 0x05, 0, 2, b'$', b'a', 0], Some(ReasonCode::ProtocolError)),
    ("string longer than its packet", &[0x30, 0x04, 0, 9, b'a', 0], Some(ReasonCode::MalformedPacket)),
    ("topic that is not UTF-8", &[0x30, 0x04, 0, 1, 0xFF, 0], Some(ReasonCode::MalformedPacket)),
    ("unmapped topic alias", &[0x30, 0x06, 0, 0, 3, 0x23, 0, 1], None),
    ("fifth length byte", &[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], None),
];

#[tokio::test]
async fn a_bad_packet_ends_its_connection_with_the_reason_and_no_other() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut bystander = Client::connect(node.mqtt(), &Options::v5("bystander")).await;
    bystander.subscribe("by", QoS::AtLeastOnce).await;
    for (name, bytes, expected) in AFTER_CONNECT {
        let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("connected");
        client.send_bytes(CONNECT_5).await.expect("sent");
        client.next_packet(crate::harness::SOON).await.expect("CONNACK");
        client.send_bytes(bytes).await.expect("sent");
        let code = client.closed().await;
        if expected.is_some() {
            assert_eq!(code, *expected, "{name}");
        }
        bystander.publish("by", name.as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(bystander.text().await, *name);
    }
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
}

#[tokio::test]
async fn a_bad_beginning_is_closed() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let beginnings: &[(&str, &[u8])] = &[
        ("PINGREQ first", &[0xC0, 0x00]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("unknown protocol name", &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'X', 5, 2, 0, 0, 0, 0, 2, b'm', b'5']),
        ("reserved flag of CONNECT", &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 3, 0, 0, 0, 0, 2, b'm', b'5']),
        ("longer than any packet", &[0x10, 0xFF, 0xFF, 0xFF, 0xFF]),
    ];
    for (name, bytes) in beginnings {
        let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("connected");
        client.send_bytes(bytes).await.expect("sent");
        loop {
            match client.next_packet(crate::harness::SOON).await {
                Ok(_) => {}
                Err(crate::harness::client::Gone::Closed(_)) => break,
                Err(gone) => panic!("{name}: {gone:?}"),
            }
        }
    }
    let mut client = Client::connect(node.mqtt(), &Options::v5("after")).await;
    client.ping().await;
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
}
