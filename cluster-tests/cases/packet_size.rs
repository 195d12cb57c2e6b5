//! Packet size limits.

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use super::kit::{self, before_marker, node_with, publisher, subscriber, wait_metric};
use crate::harness::SOON;
use crate::harness::client::{Client, Gone, Options, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 83: [MQTT-3.1.2-24], [MQTT-3.1.2-25].
#[tokio::test]
async fn a_queued_message_too_large_for_its_client_blocks_none_behind_it() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "$dropped/#").await;
    let mut publisher = publisher(node.mqtt()).await;
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let options = Options::v5("small").persistent().maximum_packet_size(200);
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("t", qos).await;
        client.disconnect().await;
        for payload in [&b"A"[..], &[b'B'; 1024], b"C"] {
            publisher.publish("t", payload, qos).await;
        }
        let mut client = Client::connect(node.mqtt(), &options).await;
        assert_eq!(kit::texts(&mut client, 2).await, ["A", "C"], "{qos:?}");
        let dropped = watcher.message().await;
        assert_eq!(dropped.payload.len(), 1024);
        assert_eq!(user_property(&dropped, "hmq-drop-reason"), Some("Maximum Packet Size Exceeded"));
        client.ping().await;
        client.disconnect().await;
        // It is completed: it does not wait for a connection with more room.
        let mut client = Client::connect(node.mqtt(), &options.maximum_packet_size(10_000)).await;
        assert_eq!(before_marker(&mut publisher, &mut client, "t").await, [""; 0], "{qos:?}");
        client.disconnect().await;
        Client::connect(node.mqtt(), &Options::v5("small")).await.disconnect().await;
    }
    watcher.nothing().await;
}

/// Row 84.
#[tokio::test]
async fn the_fixed_header_counts_for_the_maximum_packet_size() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    // Payload whose PUBLISH to `a` is exactly as large as allowed: behind a fixed header of 2 or 3 bytes stand the topic, a Packet
    // Identifier and an empty property list.
    for (limit, fits) in [(99, 91), (200, 191)] {
        for options in [Options::v5("volatile"), Options::v5("kept").persistent()] {
            let options = options.maximum_packet_size(limit);
            let mut client = subscriber(node.mqtt(), &options, "a").await;
            let mut publisher = publisher(node.mqtt()).await;
            for size in fits - 1..=fits + 3 {
                publisher.publish("a", &vec![b'x'; size], QoS::ExactlyOnce).await;
            }
            let arrived: Vec<usize> = before_marker(&mut publisher, &mut client, "a").await.iter().map(String::len).collect();
            assert_eq!(arrived, [fits - 1, fits], "limit {limit}, {}", options.client_id());
            client.ping().await;
            client.disconnect().await;
        }
        Client::connect(node.mqtt(), &Options::v5("kept")).await.disconnect().await;
    }
}

/// Row 86: a length alone costs nothing, and one over the limit is refused before the body comes.
#[tokio::test]
async fn a_packet_over_the_limit_is_refused_from_its_length_and_one_that_is_claimed_takes_no_memory() {
    const CONNECTIONS: usize = 50;
    /// Fixed header of a PUBLISH of 200 MB and the beginning of its body.
    const CLAIM: &[u8] = &[0x30, 0x80, 0x84, 0xAF, 0x5F, 0, 1, b't'];
    let _permit = acquire(Weight::Node);
    let node = node_with("<packets><max-packet-size>100000</max-packet-size></packets>");
    for version in [ProtocolVersion::V5, ProtocolVersion::V3_1_1] {
        let mut client = Client::connect(node.mqtt(), &Options::of(version, "greedy")).await;
        client.send_bytes(&CLAIM[..5]).await.expect("sent");
        let code = client.closed().await;
        assert_eq!(code, (version == ProtocolVersion::V5).then_some(ReasonCode::PacketTooLarge), "{version:?}");
    }
    // The same before CONNECT.
    let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("connected");
    client.send_bytes(&[0x10, 0x80, 0x84, 0xAF, 0x5F]).await.expect("sent");
    while client.next_packet(SOON).await != Err(Gone::Closed("end of stream".to_owned())) {}
    drop(node);

    let node = Node::ready(Config::default());
    let resident_mib = || node.resident_bytes() / (1024 * 1024);
    let before = resident_mib();
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let mut client = Client::connect(node.mqtt(), &Options::v5(&format!("greedy-{number}"))).await;
        client.send_bytes(CLAIM).await.expect("sent");
        clients.push(client);
    }
    // What trickles in takes its own size and not much more.
    for _ in 0..20 {
        for client in &mut clients {
            client.send_bytes(&[b'x'; 1024]).await.expect("sent");
        }
        let after = resident_mib();
        assert!(after < before + 64, "{CONNECTIONS} claims of 200 MB: {before} MiB before, {after} MiB after");
    }
    // The broker has read them all: what was sent is in no socket.
    wait_metric(&node, kit::BYTES_READ, |bytes| bytes >= (CONNECTIONS * 20 * 1024) as f64);
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.ping().await;
    let after = resident_mib();
    assert!(after < before + 64, "{CONNECTIONS} claims of 200 MB: {before} MiB before, {after} MiB after");
}
