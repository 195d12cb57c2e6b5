//! Keep Alive: what each policy makes of the client's wish, and when a silent client is closed.

use std::time::{Duration, Instant};

use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V3_1_1, ProtocolVersion::V5];

fn node(keep_alive: &str) -> Node {
    Node::ready(Config { mqtt: format!("<keep-alive>{keep_alive}</keep-alive>"), ..Config::default() })
}

/// What CONNECT is answered with.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    /// Accepted; the client's own wish stands.
    Own,
    /// Accepted with this Server Keep Alive.
    Told(u16),
    /// Return code 0x02.
    Refused,
}

async fn probe(node: &Node, version: ProtocolVersion, asked_s: u16) -> Answer {
    let options = Options::of(version, &format!("probe-{asked_s}")).keep_alive(asked_s);
    match Client::try_connect(node.mqtt(), &options).await {
        Ok(client) => {
            let answer = client.connack.as_ref().unwrap().properties.server_keep_alive.map_or(Answer::Own, Answer::Told);
            client.disconnect().await;
            answer
        }
        Err(ConnectError::Refused(connack)) if connack.reason_code == ReasonCode::ClientIdentifierNotValid => Answer::Refused,
        Err(other) => panic!("{other:?}"),
    }
}

/// The probes of the seed (Mqttable, "MQTT Keep Alive", 6 October 2026), and the same without a policy.
#[tokio::test]
async fn each_policy_answers_connect_as_its_broker_was_seen_to() {
    use Answer::{Own, Refused, Told};
    let _permit = acquire(Weight::Node);
    // elements, then MQTT 3.1.1 and MQTT 5 asked for 0, 10 and 30
    let table = [
        ("", [Own; 3], [Own; 3]),
        ("<max-keep-alive>10</max-keep-alive>", [Own; 3], [Own, Own, Told(10)]),
        ("<max-keep-alive>10</max-keep-alive><allow-unlimited>false</allow-unlimited>", [Own; 3], [Told(10), Own, Told(10)]),
        ("<policy>emqx</policy>", [Own; 3], [Own; 3]),
        ("<policy>emqx</policy><server-keep-alive>10</server-keep-alive>", [Own; 3], [Told(10); 3]),
        ("<policy>mosquitto</policy>", [Own; 3], [Own; 3]),
        ("<policy>mosquitto</policy><max-keep-alive>10</max-keep-alive>", [Refused, Own, Refused], [Told(10), Own, Told(10)]),
    ];
    for (elements, mqtt_3, mqtt_5) in table {
        let node = node(elements);
        for (version, expected) in VERSIONS.into_iter().zip([mqtt_3, mqtt_5]) {
            for (asked_s, expected) in [0, 10, 30].into_iter().zip(expected) {
                assert_eq!(probe(&node, version, asked_s).await, expected, "{elements} {version:?} {asked_s}");
            }
        }
    }
}

/// Waits for the close; not before `patience` after `since`, which was taken before the client's last bytes were sent.
async fn closed_after(client: &mut Client, since: Instant, patience: Duration) {
    let code = client.closed().await;
    let elapsed = since.elapsed();
    assert!(elapsed >= patience, "closed after {elapsed:?}, before {patience:?}");
    let expected = client.version.is_v5().then_some(ReasonCode::KeepAliveTimeout);
    assert_eq!(code, expected);
    if let Some(disconnect) = &client.disconnect {
        let reason = disconnect.properties.reason_string.as_deref();
        assert_eq!(reason, Some("The client was idle for too long without sending an MQTT control packet."));
    }
}

/// cases.md 90: socket, will and event; every last sign of life counts, whole packet or part of one, and nothing that the broker sends.
#[tokio::test]
async fn a_silent_client_is_closed_after_one_and_a_half_keep_alives_and_never_before() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("will/#", QoS::AtLeastOnce).await;
    let mut events = Client::connect(node.mqtt(), &Options::v5("events")).await;
    events.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    // The last sign of life: none after CONNECT; PINGREQ, whose PINGRESP is none; the first two bytes of a PUBLISH.
    let last_words: [&[u8]; 3] = [b"", b"\xC0\x00", b"\x30\x7F"];
    for version in VERSIONS {
        for keep_alive_s in [1, 2] {
            for last_word in last_words {
                let id = format!("silent-{version:?}-{keep_alive_s}-{}", last_word.len());
                let topic = format!("will/{id}");
                let options = Options::of(version, &id).keep_alive(keep_alive_s).will(&topic, "gone", 0);
                let mut since = Instant::now();
                let mut client = Client::connect(node.mqtt(), &options).await;
                if !last_word.is_empty() {
                    tokio::time::sleep(Duration::from_millis(700)).await;
                    since = Instant::now();
                    client.send_bytes(last_word).await.expect("an open connection");
                }
                closed_after(&mut client, since, Duration::from_millis(1500) * u32::from(keep_alive_s)).await;
                let will = watcher.message().await;
                assert_eq!((&*will.topic, &*will.payload), (topic.as_str(), &b"gone"[..]));
                let event = loop {
                    let event = Event::of(&events.message().await);
                    if event.client_id == id && !event.connected {
                        break event;
                    }
                };
                assert_eq!((event.initiator.as_deref(), event.reason_code), (Some("SERVER"), Some(0x8D)), "{id}");
            }
        }
    }
    assert!(node.metric("com_hivemq_keep_alive_disconnect_count") >= 12.0);
}

#[tokio::test]
async fn messages_to_a_client_are_no_sign_of_life_of_it() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for version in VERSIONS {
        let mut client = Client::connect(node.mqtt(), &Options::of(version, "listener").keep_alive(1)).await;
        let since = Instant::now();
        client.subscribe("flow", QoS::AtMostOnce).await;
        let (mut received, mut code) = (0, None);
        while code.is_none() {
            assert!(since.elapsed() < SOON, "not closed while {received} messages came");
            publisher.publish("flow", b"on", QoS::AtMostOnce).await;
            match client.next_packet(Duration::from_millis(100)).await {
                Ok(Packet::Publish(_)) => received += 1,
                Ok(Packet::Disconnect(disconnect)) => code = Some(Some(disconnect.reason_code)),
                Err(Gone::Closed(_)) => code = Some(None),
                Err(Gone::Timeout) => {}
                Ok(other) => panic!("{other:?}"),
            }
        }
        assert!(since.elapsed() >= Duration::from_millis(1500));
        assert_eq!(code, Some(version.is_v5().then_some(ReasonCode::KeepAliveTimeout)));
        assert!(received > 2, "{received}");
    }
}

/// Over four times its patience, a client sends one packet and nothing else.
#[tokio::test]
async fn a_client_that_sends_one_large_packet_slowly_is_not_cut() {
    const PIECES: usize = 60;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber")).await;
    subscriber.subscribe("slow", QoS::AtMostOnce).await;
    for version in VERSIONS {
        let mut client = Client::connect(node.mqtt(), &Options::of(version, "slow").keep_alive(1)).await;
        let mut bytes = bytes::BytesMut::new();
        let packet = publish("slow", &vec![b'x'; 600_000], QoS::AtMostOnce);
        troupemq::mqtt::codec::encode(&Packet::Publish(Box::new(packet)), version, &mut bytes);
        let since = Instant::now();
        for piece in bytes.chunks(bytes.len() / PIECES + 1) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            client.send_bytes(piece).await.expect("a connection that lives on");
        }
        assert!(since.elapsed() > Duration::from_millis(4 * 1500));
        assert_eq!(subscriber.message().await.payload.len(), 600_000);
        let since = Instant::now();
        client.ping().await;
        closed_after(&mut client, since, Duration::from_millis(1500)).await;
    }
}

/// While much waits for a client, the broker does not read it; a client that takes its bytes is not silent then.
#[tokio::test]
async fn a_client_that_takes_a_large_message_slowly_is_not_cut() {
    const SIZE: usize = 30 * 1024 * 1024;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut reader = Client::connect(node.mqtt(), &Options::v5("reader").keep_alive(1)).await;
    reader.subscribe("large", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("large", &vec![b'x'; SIZE], QoS::AtMostOnce).await;
    let since = Instant::now();
    let mut taken = 0;
    while taken < SIZE {
        reader.send_bytes(&[0xC0, 0x00]).await.expect("a connection that lives on");
        let read = reader.read_some(SIZE / 40, SOON).await.unwrap_or_else(|gone| panic!("{gone:?} after {taken} bytes"));
        taken += read.len();
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(since.elapsed() > Duration::from_millis(2 * 1500));
}

#[tokio::test]
async fn the_server_keep_alive_and_the_multiplier_are_what_is_enforced() {
    let _permit = acquire(Weight::Node);
    let elements = "<policy>emqx</policy><server-keep-alive>1</server-keep-alive><multiplier>2.5</multiplier>";
    let node = node(elements);
    let since = Instant::now();
    let mut asked_for_more = Client::connect(node.mqtt(), &Options::v5("more").keep_alive(600)).await;
    let mut asked_for_none = Client::connect(node.mqtt(), &Options::v5("none").keep_alive(0)).await;
    let mut untouched = Client::connect(node.mqtt(), &Options::v3("untouched").keep_alive(600)).await;
    closed_after(&mut asked_for_more, since, Duration::from_millis(2500)).await;
    closed_after(&mut asked_for_none, since, Duration::from_millis(2500)).await;
    untouched.ping().await;
    wait::until("both are counted", SOON, || (node.metric("com_hivemq_keep_alive_disconnect_count") >= 2.0).then_some(()));
}
