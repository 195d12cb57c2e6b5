//! Takeover of a client id, and the state of a resumed one.

use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::kit::{BOTH, persistent, publisher, send_ack};
use crate::harness::SOON;
use crate::harness::client::Client;
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 32: the two sides disagree on identifiers after a crash; that costs an answer, never the connection.
#[tokio::test]
async fn unknown_packet_identifiers_after_a_crash_do_not_close_the_connection() {
    let _permit = acquire(Weight::Node);
    for version in BOTH {
        let mut node = Node::ready(Config::default());
        let options = persistent("resumes", version).manual_ack();
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("t", QoS::ExactlyOnce).await;
        let mut publisher = publisher(node.mqtt()).await;
        for text in ["released", "received"] {
            publisher.publish("t", text.as_bytes(), QoS::ExactlyOnce).await;
        }
        let mut ids = Vec::new();
        for _ in 0..2 {
            ids.push(client.message().await.packet_id.expect("QoS 2").get());
        }
        send_ack(&mut client, Packet::Pubrec, ids[0]).await;
        assert!(matches!(client.next_packet(SOON).await, Ok(Packet::Pubrel(ack)) if ack.packet_id.get() == ids[0]));

        node.kill();
        node.start();
        let mut client = Client::connect(node.mqtt(), &options).await;
        assert!(client.session_present());
        // The first exchange goes on with PUBREL, the second with the message.
        match client.next_packet(SOON).await.expect("a packet") {
            Packet::Pubrel(ack) => assert_eq!(ack.packet_id.get(), ids[0]),
            other => panic!("{version:?}: {other:?}"),
        }
        match client.next_packet(SOON).await.expect("a packet") {
            Packet::Publish(message) => assert_eq!((message.packet_id.map(|id| id.get()), message.dup), (Some(ids[1]), true)),
            other => panic!("{version:?}: {other:?}"),
        }
        for unknown in [777, 65_535] {
            let known = if version == ProtocolVersion::V5 { ReasonCode::PacketIdentifierNotFound } else { ReasonCode::Success };
            send_ack(&mut client, Packet::Pubrel, unknown).await;
            match client.next_packet(SOON).await.expect("an answer") {
                Packet::Pubcomp(ack) => assert_eq!((ack.packet_id.get(), ack.reason_code), (unknown, known), "{version:?}"),
                other => panic!("{version:?}: {other:?}"),
            }
            send_ack(&mut client, Packet::Pubrec, unknown).await;
            match client.next_packet(SOON).await.expect("an answer") {
                Packet::Pubrel(ack) => assert_eq!((ack.packet_id.get(), ack.reason_code), (unknown, known), "{version:?}"),
                other => panic!("{version:?}: {other:?}"),
            }
            // No answer is due to these.
            send_ack(&mut client, Packet::Pubcomp, unknown).await;
            send_ack(&mut client, Packet::Puback, unknown).await;
        }
        client.ping().await;
        // And the exchanges come to their ends.
        send_ack(&mut client, Packet::Pubcomp, ids[0]).await;
        send_ack(&mut client, Packet::Pubrec, ids[1]).await;
        assert!(matches!(client.next_packet(SOON).await, Ok(Packet::Pubrel(ack)) if ack.packet_id.get() == ids[1]));
        send_ack(&mut client, Packet::Pubcomp, ids[1]).await;
        client.ping().await;
        client.disconnect().await;
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.nothing().await;
    }
}
