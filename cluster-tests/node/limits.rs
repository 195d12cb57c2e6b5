//! Every limit of `<mqtt>` and `<restrictions>`, reached in MQTT 3.1.1 and in MQTT 5: what is allowed passes, one more is answered as
//! spec/hivemq.md 9.1 and 9.8 say.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq::mqtt::packet::{
    Publish, PublishProperties, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest, Will, WillProperties,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V3_1_1, ProtocolVersion::V5];
const ID_MAX: usize = 10;
const TOPIC_MAX: usize = 20;
const PACKET_MAX: usize = 1000;

/// Everything restricted at once.
fn strict() -> Config {
    let off = |element: &str| format!("<{element}><enabled>false</enabled></{element}>");
    let mqtt = format!(
        "<quality-of-service><max-qos>1</max-qos></quality-of-service><packets><max-packet-size>{PACKET_MAX}</max-packet-size>\
         </packets><topic-alias><max-per-client>2</max-per-client></topic-alias>{}{}{}{}",
        off("retained-messages"),
        off("wildcard-subscriptions"),
        off("shared-subscriptions"),
        off("subscription-identifier"),
    );
    let more = format!(
        "<restrictions><max-client-id-length>{ID_MAX}</max-client-id-length><max-topic-length>{TOPIC_MAX}</max-topic-length>\
         </restrictions>"
    );
    Config { mqtt, more, ..Config::default() }
}

fn subscribe(filter: &str, subscription_identifier: Option<u32>) -> Packet {
    let options = SubscriptionOptions {
        qos: QoS::AtMostOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Send,
    };
    let filters = vec![SubscriptionRequest { filter: filter.into(), options }];
    let packet_id = std::num::NonZeroU16::MIN;
    Packet::Subscribe(Box::new(Subscribe { packet_id, subscription_identifier, user_properties: Vec::new(), filters }))
}

fn publication(topic: &str, qos: QoS, retain: bool, topic_alias: Option<u16>) -> Packet {
    let packet_id = (qos != QoS::AtMostOnce).then_some(std::num::NonZeroU16::MIN);
    let properties = PublishProperties { topic_alias, ..PublishProperties::default() };
    Packet::Publish(Box::new(Publish { packet_id, retain, properties, ..publish(topic, b"x", qos) }))
}

/// A QoS 0 PUBLISH of that many bytes in all.
fn packet_of(len: usize, version: ProtocolVersion) -> Packet {
    // Fixed header of 3 bytes, topic of 1, and the properties' length.
    let payload = len - 3 - 3 - usize::from(version == ProtocolVersion::V5);
    Packet::Publish(Box::new(publish("t", &vec![b'x'; payload], QoS::AtMostOnce)))
}

fn will(topic: &str, qos: QoS, retain: bool) -> Option<Will> {
    Some(Will { topic: topic.into(), payload: Bytes::new(), qos, retain, properties: WillProperties::default() })
}

#[tokio::test]
async fn what_a_client_asks_beyond_a_limit_ends_its_connection_with_the_reason() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(strict());
    let longest = "t".repeat(TOPIC_MAX);
    let longer = "t".repeat(TOPIC_MAX + 1);
    for version in VERSIONS {
        let v5 = version == ProtocolVersion::V5;
        let mut fine = Client::connect(node.mqtt(), &Options::of(version, &"f".repeat(ID_MAX))).await;
        for packet in [
            publication(&longest, QoS::AtLeastOnce, false, v5.then_some(2)),
            packet_of(PACKET_MAX, version),
            subscribe(&longest, None),
        ] {
            fine.send(&packet).await.expect("sent");
            fine.ping().await;
        }
        let cases = [
            ("QoS", publication("t", QoS::ExactlyOnce, false, None), ReasonCode::QoSNotSupported),
            ("retain", publication("t", QoS::AtMostOnce, true, None), ReasonCode::RetainNotSupported),
            ("topic", publication(&longer, QoS::AtMostOnce, false, None), ReasonCode::TopicNameInvalid),
            ("filter", subscribe(&longer, None), ReasonCode::TopicFilterInvalid),
            ("wildcard +", subscribe("+", None), ReasonCode::WildcardSubscriptionsNotSupported),
            ("wildcard #", subscribe("t/#", None), ReasonCode::WildcardSubscriptionsNotSupported),
            ("shared", subscribe("$share/g/t", None), ReasonCode::SharedSubscriptionsNotSupported),
            ("packet", packet_of(PACKET_MAX + 1, version), ReasonCode::PacketTooLarge),
        ];
        let of_v5 = [
            ("identifier", subscribe("t", Some(1)), ReasonCode::SubscriptionIdentifiersNotSupported),
            ("alias", publication("t", QoS::AtMostOnce, false, Some(3)), ReasonCode::TopicAliasInvalid),
        ];
        for (name, packet, code) in cases.into_iter().chain(of_v5.into_iter().filter(|_| v5)) {
            let mut client = Client::connect(node.mqtt(), &Options::of(version, "client")).await;
            client.send(&packet).await.expect("sent");
            assert_eq!(client.closed().await, v5.then_some(code), "{version:?} {name}");
            fine.ping().await;
        }
    }
}

#[tokio::test]
async fn a_connect_beyond_a_limit_is_refused_with_the_reason() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(strict());
    for version in VERSIONS {
        let options = || Options::of(version, "client");
        let longest = "t".repeat(TOPIC_MAX);
        let accepted = [
            options().named(&"c".repeat(ID_MAX)),
            options().with(|connect| connect.will = will(&longest, QoS::AtLeastOnce, false)),
            options().with(|connect| (connect.username, connect.password) = (Some("u".into()), Some(vec![0; 900].into()))),
        ];
        for options in accepted {
            Client::connect(node.mqtt(), &options).await.disconnect().await;
        }
        // MQTT 3 says "not authorized" for nearly everything.
        let refused = [
            (
                options().named(&"c".repeat(ID_MAX + 1)),
                ReasonCode::ClientIdentifierNotValid,
                ReasonCode::ClientIdentifierNotValid,
            ),
            (
                options().with(|connect| connect.will = will(&"t".repeat(TOPIC_MAX + 1), QoS::AtMostOnce, false)),
                ReasonCode::TopicNameInvalid,
                ReasonCode::NotAuthorized,
            ),
            (
                options().with(|connect| connect.will = will("t", QoS::ExactlyOnce, false)),
                ReasonCode::QoSNotSupported,
                ReasonCode::NotAuthorized,
            ),
            (
                options().with(|connect| connect.will = will("t", QoS::AtMostOnce, true)),
                ReasonCode::RetainNotSupported,
                ReasonCode::NotAuthorized,
            ),
            (
                options().with(|connect| (connect.username, connect.password) = (Some("u".into()), Some(vec![0; 1000].into()))),
                ReasonCode::PacketTooLarge,
                ReasonCode::NotAuthorized,
            ),
        ];
        for (options, in_v5, in_v3) in refused {
            let expected = if version == ProtocolVersion::V5 { in_v5 } else { in_v3 };
            match Client::try_connect(node.mqtt(), &options).await {
                Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, expected, "{options:?}"),
                Err(other) => panic!("{options:?}: {other:?}"),
                Ok(_) => panic!("{options:?} was let in"),
            }
        }
    }
}

#[tokio::test]
async fn limits_are_announced_to_mqtt_5_clients() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(strict());
    let client = Client::connect(node.mqtt(), &Options::v5("client")).await;
    let properties = client.connack.expect("CONNACK").properties;
    assert_eq!(properties.maximum_qos, Some(QoS::AtLeastOnce));
    assert_eq!(properties.maximum_packet_size, Some(PACKET_MAX as u32));
    assert_eq!((properties.receive_maximum, properties.topic_alias_maximum), (Some(10), Some(2)));
    for available in [
        properties.retain_available,
        properties.wildcard_subscription_available,
        properties.shared_subscription_available,
        properties.subscription_identifiers_available,
    ] {
        assert_eq!(available, Some(false));
    }
}

/// [MQTT-3.3.4-9]; MQTT 3 knows no such limit (spec/hivemq.md 2.5).
#[tokio::test]
async fn more_unacknowledged_messages_than_the_broker_announced_are_an_offence_in_mqtt_5() {
    const RECEIVE_MAXIMUM: u16 = 3;
    let _permit = acquire(Weight::Node);
    let mqtt = format!("<receive-maximum><server-receive-maximum>{RECEIVE_MAXIMUM}</server-receive-maximum></receive-maximum>");
    let node = Node::ready(Config { mqtt, ..Config::default() });
    for version in VERSIONS {
        let mut client = Client::connect(node.mqtt(), &Options::of(version, "client").manual_ack()).await;
        let mut send = async |id: u16| {
            let packet_id = std::num::NonZeroU16::new(id);
            let packet = Publish { packet_id, ..publish("t", b"x", QoS::ExactlyOnce) };
            client.send(&Packet::Publish(Box::new(packet))).await.expect("sent");
            match client.next_packet(SOON).await {
                // PUBREL is never sent: the exchange stays open.
                Ok(Packet::Pubrec(_)) => None,
                Ok(Packet::Disconnect(disconnect)) => Some(disconnect.reason_code),
                other => panic!("{version:?}: {other:?}"),
            }
        };
        for id in 1..=RECEIVE_MAXIMUM {
            assert_eq!(send(id).await, None, "{version:?}");
        }
        // A message that is known already is not another one.
        assert_eq!(send(1).await, None, "{version:?}");
        let expected = (version == ProtocolVersion::V5).then_some(ReasonCode::ReceiveMaximumExceeded);
        assert_eq!(send(RECEIVE_MAXIMUM + 1).await, expected, "{version:?}");
    }
}

/// The smaller of the client's Receive Maximum and 50 (spec/hivemq.md 2.5), for sessions that persist and those that do not.
#[tokio::test]
async fn no_more_messages_are_in_flight_to_a_client_than_it_and_the_broker_allow() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let cases = [
        (ProtocolVersion::V5, Some(1), 1),
        (ProtocolVersion::V5, Some(7), 7),
        (ProtocolVersion::V5, Some(51), 50),
        (ProtocolVersion::V5, None, 50),
        (ProtocolVersion::V3_1_1, None, 50),
    ];
    for (version, receive_maximum, window) in cases {
        for persistent in [false, true] {
            let case = format!("{version:?}, {receive_maximum:?}, persistent {persistent}");
            let mut options = Options::of(version, "subscriber").manual_ack();
            options = options.with(|connect| {
                connect.properties.receive_maximum = receive_maximum;
                connect.clean_start = !persistent;
                connect.properties.session_expiry_interval = persistent.then_some(60);
            });
            let mut subscriber = Client::connect(node.mqtt(), &options).await;
            subscriber.subscribe("window", QoS::AtLeastOnce).await;
            for number in 0..window + 5 {
                publisher.publish("window", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
            }
            let mut received = Vec::new();
            for _ in 0..window {
                received.push(subscriber.message().await);
            }
            subscriber.nothing().await;
            for number in 0..5 {
                subscriber.puback(&received[number]).await;
                received.push(subscriber.message().await);
                assert_eq!(&*received[window + number].payload, (window + number).to_string().as_bytes(), "{case}");
            }
            subscriber.nothing().await;
            subscriber.disconnect().await;
            // What is left of it.
            Client::connect(node.mqtt(), &Options::v5("subscriber")).await.disconnect().await;
        }
    }
}

/// spec/hivemq.md 9.1; MQTT 5 is in `extremes`.
#[tokio::test]
async fn max_connections_warns_from_90_percent_on_and_refuses_mqtt_3_with_return_code_5() {
    const MAX: usize = 10;
    let _permit = acquire(Weight::Node);
    let more = format!("<restrictions><max-connections>{MAX}</max-connections></restrictions>");
    let node = Node::ready(Config { more, ..Config::default() });
    let warned = |node: &Node| node.stderr().contains("near or above restrictions/max-connections");
    let mut clients = Vec::new();
    for number in 0..MAX {
        assert!(number >= MAX * 9 / 10 || !warned(&node), "a warning at {number} of {MAX}");
        clients.push(Client::connect(node.mqtt(), &Options::v3(&number.to_string())).await);
    }
    wait::until("a warning", SOON, || warned(&node).then_some(()));
    match Client::try_connect(node.mqtt(), &Options::v3("more")).await {
        Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, ReasonCode::NotAuthorized),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("one more was let in"),
    }
    for client in &mut clients {
        client.ping().await;
    }
}

#[tokio::test]
async fn a_connection_without_a_whole_connect_is_closed_in_time_and_not_before() {
    const PATIENCE: Duration = Duration::from_millis(1500);
    let _permit = acquire(Weight::Node);
    let more =
        format!("<restrictions><no-connect-idle-timeout>{}</no-connect-idle-timeout></restrictions>", PATIENCE.as_millis());
    let node = Node::ready(Config { more, ..Config::default() });
    let (tcp, web) = (node.mqtt(), node.addresses().websocket);
    let beginnings: [(&str, std::net::SocketAddr, &[u8]); 6] = [
        ("nothing", tcp, b""),
        ("a fixed header", tcp, &[0x10, 0x0F]),
        ("half a CONNECT", tcp, &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0]),
        ("a CONNECT that claims 1 MB", tcp, &[0x10, 0xC0, 0x84, 0x3D, 0, 4, b'M', b'Q', b'T', b'T', 4, 2]),
        ("nothing to WebSocket", web, b""),
        ("half a request to WebSocket", web, b"GET /mqtt HTTP/1.1\r\nHost: x\r\n"),
    ];
    let mut closings = Vec::new();
    for (name, address, bytes) in beginnings {
        closings.push(tokio::spawn(async move {
            let began = Instant::now();
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(bytes).await.expect("sent");
            let mut rest = Vec::new();
            let closed = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
            assert!(closed.is_ok(), "{name}: still open");
            assert_eq!(rest, b"", "{name}");
            assert!(began.elapsed() >= PATIENCE - Duration::from_millis(10), "{name}: closed after {:?}", began.elapsed());
        }));
    }
    for closing in closings {
        closing.await.expect("as it should be");
    }
}
