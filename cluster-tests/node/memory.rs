//! What peers can make a node hold is bounded: messages for those who do not read, packets of which the rest does not come.

use bytes::BytesMut;
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, codec};

use crate::harness::client::{Client, ConnectError, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const MIB: usize = 1024 * 1024;
/// `QoS 0 memory` of one client (spec/hivemq.md 2.3).
const QOS0_CLIENT_BYTES_MAX: usize = 5 * MIB;
const QOS0_EXCEEDED: &str = "com_hivemq_messages_dropped_qos_0_memory_exceeded_count";
const NOT_WRITABLE: &str = "com_hivemq_messages_dropped_not_writable_count";
const QOS0_USED: &str = "com_hivemq_qos_0_memory_used";
const INCOMPLETE: &str = "troupemq_incomplete_packet_bytes";

/// PUBLISH packets in a row, a mebibyte in all.
fn flood(topic: &str, payload_len: usize) -> Vec<u8> {
    let packet = Packet::Publish(Box::new(publish(topic, &vec![b'x'; payload_len], QoS::AtMostOnce)));
    let mut bytes = BytesMut::new();
    while bytes.len() < MIB {
        codec::encode(&packet, ProtocolVersion::V5, &mut bytes);
    }
    bytes.to_vec()
}

/// A client that subscribes and then never reads.
async fn deaf(node: &Node, id: &str, filter: &str, qos: QoS) -> Client {
    let mut client = Client::connect(node.mqtt(), &Options::v5(id)).await;
    client.subscribe(filter, qos).await;
    client
}

/// A message goes to a client that reads, and comes.
async fn serves(client: &mut Client, qos: QoS) {
    client.publish("served", b"yes", qos).await;
    assert_eq!(client.text().await, "yes");
}

/// case 108
#[tokio::test]
async fn qos_0_messages_for_one_slow_reader_are_bounded_and_the_others_get_theirs() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtMostOnce).await;
    let mut other = deaf(&node, "other", "served", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let deaf = deaf(&node, "deaf", "flood", QoS::AtMostOnce).await;
    let before = node.resident_bytes();
    let bytes = flood("flood", 10_000);
    let mut sent = 0;
    while node.metric(QOS0_EXCEEDED) == 0.0 {
        assert!(sent < 200, "{sent} MiB are sent and none dropped");
        publisher.send_bytes(&bytes).await.expect("sent");
        publisher.ping().await;
        sent += 1;
        serves(&mut other, QoS::AtMostOnce).await;
    }
    let message = watcher.message().await;
    assert_eq!(&*message.topic, "$dropped/flood");
    assert_eq!(user_property(&message, "hmq-drop-reason"), Some("QoS 0 Memory Exceeded"));
    assert_eq!(user_property(&message, "hmq-drop-client"), Some("deaf"));
    // Or it would be a slow reader, too.
    drop(watcher);
    wait::until("the watcher is gone", SOON, || (node.metric("com_hivemq_networking_connections_current") == 3.0).then_some(()));
    for _ in 0..30 {
        publisher.send_bytes(&bytes).await.expect("sent");
        publisher.ping().await;
        serves(&mut other, QoS::AtMostOnce).await;
        assert!(node.metric(QOS0_USED) <= (QOS0_CLIENT_BYTES_MAX + 20_000) as f64, "{}", node.metric(QOS0_USED));
    }
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes for a client that may have 5 MiB");
    assert_eq!(node.metric("com_hivemq_mqtt_connection_not_writable_current"), 1.0);
    drop(deaf);
    wait::until("what waited is gone", SOON, || {
        (node.metric(QOS0_USED) == 0.0 && node.metric("com_hivemq_mqtt_connection_not_writable_current") == 0.0).then_some(())
    });
}

#[tokio::test]
async fn qos_0_messages_for_all_slow_readers_together_are_bounded_and_the_others_get_theirs() {
    const TOTAL: usize = MIB;
    let _permit = acquire(Weight::Node);
    let more = format!("<restrictions><max-qos-0-memory>{TOTAL}</max-qos-0-memory></restrictions>");
    let node = Node::ready(Config { more, addons: false, ..Config::default() });
    assert_eq!(node.metric("com_hivemq_qos_0_memory_max"), TOTAL as f64);
    let mut other = deaf(&node, "other", "served", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut all = Vec::new();
    for n in 0..3 {
        all.push(deaf(&node, &format!("deaf{n}"), "flood", QoS::AtMostOnce).await);
    }
    let bytes = flood("flood", 10_000);
    let mut sent = 0;
    while node.metric(QOS0_USED) < TOTAL as f64 * 0.9 || node.metric(QOS0_EXCEEDED) < 100.0 {
        assert!(sent < 200, "{sent} MiB are sent and few wait or are dropped");
        publisher.send_bytes(&bytes).await.expect("sent");
        publisher.ping().await;
        sent += 1;
        let used = node.metric(QOS0_USED);
        assert!(used <= (TOTAL + 3 * 300_000) as f64, "{used}");
        serves(&mut other, QoS::AtMostOnce).await;
    }
    // Used up, and those who read are served as before.
    for _ in 0..20 {
        serves(&mut other, QoS::AtMostOnce).await;
    }
}

/// What was handed to a connection already when its socket took no more (spec/hivemq.md 2.4). A member of a shared subscription that wants
/// QoS 0 where others want more gets its messages straight from the dispatcher.
#[tokio::test]
async fn no_more_than_1000_messages_are_put_onto_sockets_that_are_not_writable() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtMostOnce).await;
    let mut other = deaf(&node, "other", "served", QoS::AtLeastOnce).await;
    let deaf = deaf(&node, "deaf", "$share/g/flood", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.subscribe("$share/g/flood", QoS::AtLeastOnce).await;
    let before = node.resident_bytes();
    let mut sent = 0;
    while node.metric(NOT_WRITABLE) == 0.0 {
        assert!(sent < 20_000, "{sent} messages are sent and none dropped");
        for _ in 0..20 {
            // As many as the broker's Receive Maximum allows.
            for _ in 0..10 {
                publisher.start_publish(publish("flood", &[b'x'; 3_000], QoS::AtLeastOnce)).await.expect("sent");
            }
            while publisher.session.unacknowledged() > 0 {
                publisher.step(SOON).await.expect("PUBACK");
            }
            publisher.session.inbox.clear();
            sent += 10;
        }
        serves(&mut other, QoS::AtLeastOnce).await;
    }
    let message = watcher.message().await;
    assert_eq!(&*message.topic, "$dropped/flood");
    assert_eq!(user_property(&message, "hmq-drop-reason"), Some("QoS 0 Channel Not Writable"));
    assert_eq!(user_property(&message, "hmq-drop-client"), Some("deaf"));
    assert_eq!(user_property(&message, "hmq-drop-shared-subscription"), Some("$share/g/flood"));
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 96 * MIB, "{grown} bytes");
    drop(deaf);
    wait::until("it is gone", SOON, || (node.metric("com_hivemq_mqtt_connection_not_writable_current") == 0.0).then_some(()));
    // The places are free again.
    serves(&mut other, QoS::AtLeastOnce).await;
}

/// case 86: the room for packets of which the rest does not come.
#[tokio::test]
async fn incomplete_packets_of_all_connections_share_a_room_and_what_exceeds_it_is_closed() {
    const ROOM: usize = 2 * MIB;
    const CONNECTIONS: usize = 50;
    let _permit = acquire(Weight::Node);
    let more = format!("<restrictions><max-incomplete-packet-memory>{ROOM}</max-incomplete-packet-memory></restrictions>");
    let node = Node::ready(Config { more, ..Config::default() });
    let mut other = deaf(&node, "other", "served", QoS::AtLeastOnce).await;
    let mut clients = Vec::new();
    for n in 0..CONNECTIONS {
        let id = format!("c{n}");
        clients.push(Client::connect(node.mqtt(), &if n % 2 == 0 { Options::v5(&id) } else { Options::v3(&id) }).await);
    }
    let before = node.resident_bytes();
    // QoS 0, 200 MB to come.
    let mut beginning = vec![0x30, 0x80, 0x84, 0xAF, 0x5F, 0, 1, b't'];
    beginning.resize(200_000, b'x');
    let (mut closed, mut open) = (0, Vec::new());
    for mut client in clients {
        let v5 = client.version == ProtocolVersion::V5;
        _ = client.send_bytes(&beginning).await;
        let used = node.metric(INCOMPLETE);
        assert!(used <= ROOM as f64, "{used}");
        match client.next_packet(std::time::Duration::from_millis(100)).await {
            Ok(Packet::Disconnect(disconnect)) => {
                assert_eq!((v5, disconnect.reason_code), (true, ReasonCode::QuotaExceeded));
                closed += 1;
            }
            Err(crate::harness::client::Gone::Timeout) => open.push(client),
            Err(crate::harness::client::Gone::Closed(_)) => closed += 1,
            Ok(other) => panic!("{other:?}"),
        }
        serves(&mut other, QoS::AtLeastOnce).await;
    }
    assert!(closed >= CONNECTIONS - ROOM / 200_000, "{closed} of {CONNECTIONS} closed");
    assert!(open.len() >= 3, "{} open", open.len());
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown < 32 * MIB, "{grown} bytes");
    drop(open);
    wait::until("the room is free", SOON, || (node.metric(INCOMPLETE) == 0.0).then_some(()));
    // A large packet has its room now.
    other.publish("served", &vec![b'y'; MIB], QoS::AtLeastOnce).await;
    assert_eq!(other.message().await.payload.len(), MIB);
}

/// case 86: refused from the length alone.
#[tokio::test]
async fn a_packet_above_the_maximum_is_refused_before_its_body_comes() {
    let _permit = acquire(Weight::Node);
    let mqtt = "<packets><max-packet-size>1000000</max-packet-size></packets>".to_owned();
    let node = Node::ready(Config { mqtt, ..Config::default() });
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        for _ in 0..50 {
            let mut client = Client::connect(node.mqtt(), &Options::of(version, "")).await;
            client.send_bytes(&[0x30, 0x80, 0x84, 0xAF, 0x5F]).await.expect("sent");
            let expected = (version == ProtocolVersion::V5).then_some(ReasonCode::PacketTooLarge);
            assert_eq!(client.closed().await, expected);
        }
    }
}

/// Before it is known who speaks, a packet may have a mebibyte: all fields of a CONNECT at their longest fit.
#[tokio::test]
async fn a_connect_may_have_its_longest_fields_and_no_more_than_a_mebibyte() {
    const LONGEST: usize = 65_535;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let options =
            Options::of(version, &"c".repeat(LONGEST)).will(&"w".repeat(LONGEST), &"p".repeat(LONGEST), 0).with(|connect| {
                connect.username = Some("u".repeat(LONGEST).into());
                connect.password = Some(vec![0; LONGEST].into());
            });
        Client::connect(node.mqtt(), &options).await.ping().await;
    }
    let with_properties = |bytes: usize| {
        let properties = vec![("n".into(), "v".repeat(10_000).into()); bytes / 10_000];
        Options::v5("c").with(|connect| connect.properties.user_properties = properties)
    };
    Client::connect(node.mqtt(), &with_properties(1_000_000)).await.ping().await;
    match Client::try_connect(node.mqtt(), &with_properties(1_100_000)).await {
        Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, ReasonCode::PacketTooLarge),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was let in"),
    }
}
