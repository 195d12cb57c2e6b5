//! Topic Aliases towards clients, and that those of publishers stay with them.

use std::time::Duration;

use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{Packet, QoS};

use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const TOPIC: &str = "plant/7/line/3/temperature";

fn aliasing(id: &str, max: u16) -> Options {
    Options::v5(id).with(|connect| connect.properties.topic_alias_maximum = Some(max))
}

/// The topic as it stands in the packet, and the alias.
fn wire(message: &Publish) -> (&str, Option<u16>) {
    (&message.topic, message.properties.topic_alias)
}

#[tokio::test]
async fn a_client_that_takes_aliases_gets_them_and_no_other_does() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut with = Client::connect(node.mqtt(), &aliasing("with", 1)).await;
    let mut without = Client::connect(node.mqtt(), &Options::v5("without")).await;
    let mut old = Client::connect(node.mqtt(), &Options::v3("old")).await;
    for client in [&mut with, &mut without, &mut old] {
        client.subscribe("plant/#", QoS::ExactlyOnce).await;
    }
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let expected = [(TOPIC, None), (TOPIC, Some(1)), ("", Some(1)), ("", Some(1))];
    for (qos, expected) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::AtMostOnce].into_iter().zip(expected) {
        publisher.publish(TOPIC, b"21", qos).await;
        let message = with.message().await;
        assert_eq!((wire(&message), message.qos, &*message.payload), (expected, qos, &b"21"[..]));
        assert_eq!(wire(&without.message().await), (TOPIC, None));
        assert_eq!(wire(&old.message().await), (TOPIC, None));
    }
    // One alias was announced, and it is in use.
    for _ in 0..3 {
        publisher.publish("plant/other", b"", QoS::AtMostOnce).await;
        assert_eq!(wire(&with.message().await), ("plant/other", None));
    }
    wait::until("the alias is counted", SOON, || (node.metric("com_hivemq_topic_alias_count_total") == 1.0).then_some(()));
    with.disconnect().await;
    wait::until("its memory is free", SOON, || (node.metric("com_hivemq_topic_alias_memory_usage") == 0.0).then_some(()));
}

/// MQTT 5 section 3.3.2.3.4: a resend on a new connection names its topic, whatever stood for it on the old one.
#[tokio::test]
async fn what_is_sent_again_on_a_new_connection_carries_its_topic() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for (id, qos) in [("one", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce)] {
        let options = aliasing(id, 5).persistent().manual_ack();
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe(TOPIC, qos).await;
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        for payload in [b"1", b"2", b"3"] {
            publisher.publish(TOPIC, payload, qos).await;
        }
        let expected = [(TOPIC, None), (TOPIC, Some(1)), ("", Some(1))];
        for expected in expected {
            assert_eq!(wire(&client.message().await), expected);
        }
        drop(client);
        let mut client = Client::connect(node.mqtt(), &options).await;
        assert!(client.session_present());
        for (payload, expected) in [b"1", b"2", b"3"].into_iter().zip(expected) {
            let message = client.message().await;
            assert_eq!((wire(&message), message.dup, &*message.payload), (expected, true, &payload[..]));
        }
    }
}

/// A message too large for the client is dropped; had its alias been taken for set, the next one would arrive without a topic.
#[tokio::test]
async fn a_dropped_message_sets_no_alias() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut client = Client::connect(node.mqtt(), &aliasing("small", 5).maximum_packet_size(100)).await;
    client.subscribe(TOPIC, QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let large = [b'x'; 200];
    for (payload, expected) in [
        (&b"1"[..], Some((TOPIC, None))),
        (&large[..], None),
        (b"2", Some((TOPIC, Some(1)))),
        (&large, None),
        (b"3", Some(("", Some(1)))),
    ] {
        publisher.publish(TOPIC, payload, QoS::AtLeastOnce).await;
        if let Some(expected) = expected {
            let message = client.message().await;
            assert_eq!((wire(&message), &*message.payload), (expected, payload));
        }
    }
}

#[tokio::test]
async fn aliases_towards_clients_can_be_switched_off() {
    let _permit = acquire(Weight::Node);
    let mqtt = "<topic-alias><to-clients><enabled>false</enabled></to-clients></topic-alias>".to_owned();
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let mut client = Client::connect(node.mqtt(), &aliasing("client", 5)).await;
    assert_eq!(client.connack.as_ref().unwrap().properties.topic_alias_maximum, Some(5), "those from clients stay");
    client.subscribe(TOPIC, QoS::AtMostOnce).await;
    for _ in 0..4 {
        client.publish(TOPIC, b"", QoS::AtMostOnce).await;
        assert_eq!(wire(&client.message().await), (TOPIC, None));
    }
}

/// cases.md 81.
#[tokio::test]
async fn the_alias_of_a_publisher_never_reaches_a_subscriber() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut live = Client::connect(node.mqtt(), &Options::v5("live")).await;
    let mut member = Client::connect(node.mqtt(), &Options::v5("member")).await;
    let sleeper = Options::v5("sleeper").persistent();
    let mut asleep = Client::connect(node.mqtt(), &sleeper).await;
    live.subscribe(TOPIC, QoS::AtLeastOnce).await;
    asleep.subscribe(TOPIC, QoS::AtLeastOnce).await;
    member.subscribe(&format!("$share/g/{TOPIC}"), QoS::AtLeastOnce).await;
    asleep.disconnect().await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for topic in [TOPIC, ""] {
        let properties = PublishProperties { topic_alias: Some(5), ..PublishProperties::default() };
        let packet = Publish { properties, retain: true, ..publish(topic, b"x", QoS::AtLeastOnce) };
        publisher.try_publish(packet).await.expect("PUBACK");
    }
    let mut asleep = Client::connect(node.mqtt(), &sleeper).await;
    for client in [&mut live, &mut member, &mut asleep] {
        for _ in 0..2 {
            assert_eq!(wire(&client.message().await), (TOPIC, None));
        }
    }
    let mut late = Client::connect(node.mqtt(), &Options::v5("late")).await;
    late.subscribe("plant/#", QoS::AtLeastOnce).await;
    let retained = late.message().await;
    assert_eq!((wire(&retained), retained.retain), ((TOPIC, None), true));
    // A connection begins without aliases, also that of a client that had some.
    let mut again = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let properties = PublishProperties { topic_alias: Some(5), ..PublishProperties::default() };
    let packet = Publish { properties, ..publish("", b"x", QoS::AtMostOnce) };
    again.send(&Packet::Publish(Box::new(packet))).await.expect("an open connection");
    assert_eq!(again.closed().await.map(|code| code.byte()), Some(0x94));
    assert!(late.try_message(Duration::from_millis(300)).await.is_err());
}
