//! `mqtt/retained-messages/max-messages` and `max-bytes`, TroupeMQ's own.

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const RETAINED: &str = "com_hivemq_messages_retained_current";
const BYTES: &str = "troupemq_retained_bytes";
/// Bytes that a message is counted with besides its payload and topic.
const OVERHEAD: usize = 160;

fn limited(limits: &str) -> Node {
    Node::ready(Config { mqtt: format!("<retained-messages>{limits}</retained-messages>"), ..Config::default() })
}

async fn retained(node: &Node, filter: &str) -> Vec<String> {
    let mut client = Client::connect(node.mqtt(), &Options::v5("reader")).await;
    client.subscribe(filter, QoS::AtLeastOnce).await;
    client.ping().await;
    let mut found: Vec<String> = Vec::new();
    while let Ok(message) = client.try_message(crate::harness::QUIET).await {
        found.push(format!("{}={}", message.topic, String::from_utf8_lossy(&message.payload)));
    }
    client.disconnect().await;
    found.sort_unstable();
    found
}

fn wait_gauge(node: &Node, name: &str, expected: usize) {
    wait::until(&format!("{name} is {expected}"), SOON, || (node.metric(name) == expected as f64).then_some(()));
}

#[tokio::test]
async fn a_topic_beyond_the_limit_is_refused_and_those_that_are_there_can_change() {
    let _permit = acquire(Weight::Node);
    let node = limited("<max-messages>3</max-messages>");
    let mut live = Client::connect(node.mqtt(), &Options::v5("live")).await;
    live.subscribe("r/+", QoS::ExactlyOnce).await;
    let mut dropped = Client::connect(node.mqtt(), &Options::v5("dropped")).await;
    dropped.subscribe("$dropped/#", QoS::ExactlyOnce).await;
    for kept in [false, true] {
        let options = Options::v5("publisher");
        let options = if kept { options.persistent() } else { options };
        let mut publisher = Client::connect(node.mqtt(), &options).await;
        for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().enumerate() {
            assert_eq!(publisher.publish_retained(&format!("r/{number}"), b"1", qos).await, ReasonCode::Success);
            assert_eq!(live.text().await, "1");
        }
        wait_gauge(&node, RETAINED, 3);
        // Told, and nothing is done with the message.
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            assert_eq!(publisher.publish_retained("r/more", b"refused", qos).await, ReasonCode::QuotaExceeded, "{qos:?}");
            assert_eq!(publisher.publish_retained("r/more", b"refused", qos).await, ReasonCode::QuotaExceeded, "{qos:?}");
        }
        // Another message on the topic, without RETAIN, is none of the limit's business.
        assert_eq!(publisher.publish("r/more", b"live", QoS::ExactlyOnce).await, ReasonCode::Success);
        assert_eq!(live.text().await, "live", "and none that was refused");
        // What is there is replaced.
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            assert_eq!(publisher.publish_retained("r/1", b"longer", qos).await, ReasonCode::Success);
            assert_eq!(live.text().await, "longer");
        }
        // Deleted, there is room for another.
        assert_eq!(publisher.publish_retained("r/2", b"", QoS::AtLeastOnce).await, ReasonCode::Success);
        assert_eq!(live.text().await, "");
        assert_eq!(publisher.publish_retained("r/more", b"taken", QoS::ExactlyOnce).await, ReasonCode::Success);
        assert_eq!(live.text().await, "taken");
        wait_gauge(&node, RETAINED, 3);
        assert_eq!(retained(&node, "r/+").await, ["r/0=1", "r/1=longer", "r/more=taken"]);
        for topic in ["r/0", "r/1", "r/more"] {
            publisher.publish_retained(topic, b"", QoS::AtLeastOnce).await;
            live.message().await;
        }
        wait_gauge(&node, RETAINED, 0);
        publisher.disconnect().await;
    }
    dropped.nothing().await;
}

#[tokio::test]
async fn who_cannot_be_told_is_acknowledged_and_the_drop_is_signalled() {
    let _permit = acquire(Weight::Node);
    let node = limited("<max-messages>1</max-messages>");
    let mut live = Client::connect(node.mqtt(), &Options::v5("live")).await;
    live.subscribe("r/+", QoS::ExactlyOnce).await;
    let mut dropped = Client::connect(node.mqtt(), &Options::v5("dropped")).await;
    dropped.subscribe("$dropped/#", QoS::ExactlyOnce).await;
    let mut first = Client::connect(node.mqtt(), &Options::v5("first")).await;
    first.publish_retained("r/0", b"kept", QoS::AtLeastOnce).await;
    live.message().await;
    let mut number = 0;
    for options in
        [Options::v3("old"), Options::v3("old kept").persistent(), Options::v5("new"), Options::v5("new kept").persistent()]
    {
        let mut publisher = Client::connect(node.mqtt(), &options).await;
        let old = options.version() != troupemq::mqtt::ProtocolVersion::V5;
        let all = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        for qos in all.into_iter().take(if old { 3 } else { 1 }) {
            number += 1;
            let payload = format!("{} {qos:?} {number}", options.client_id());
            assert_eq!(publisher.publish_retained("r/1", payload.as_bytes(), qos).await, ReasonCode::Success);
            // It reaches who subscribes now.
            let message = live.message().await;
            assert_eq!((&message.payload[..], message.retain), (payload.as_bytes(), false));
            let drop = dropped.message().await;
            assert_eq!((&*drop.topic, &drop.payload[..]), ("$dropped/r/1", payload.as_bytes()));
            for (name, value) in [
                ("hmq-drop-reason", "Retained Message Limit Reached"),
                ("hmq-drop-origin", "consumer"),
                ("hmq-drop-consumer", "retained-messages"),
            ] {
                assert_eq!(user_property(&drop, name), Some(value), "{name}");
            }
        }
        publisher.ping().await;
        publisher.disconnect().await;
    }
    // A Will is nobody's to be told of either.
    let will = Options::v5("gone").will("r/2", "will", 0).retained_will();
    Client::connect(node.mqtt(), &will).await.reset();
    assert_eq!(live.text().await, "will");
    assert_eq!(&*dropped.message().await.topic, "$dropped/r/2");
    assert_eq!(retained(&node, "r/+").await, ["r/0=kept"]);
    dropped.nothing().await;
}

#[tokio::test]
async fn bytes_are_limited_too_and_come_back() {
    let _permit = acquire(Weight::Node);
    let size = |payload: usize| OVERHEAD + "r/0".len() + payload;
    let node = limited(&format!("<max-bytes>{}</max-bytes>", 2 * size(100)));
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut put =
        async |topic: &str, length: usize| publisher.publish_retained(topic, &vec![b'x'; length], QoS::AtLeastOnce).await;
    let no_subscriber = ReasonCode::NoMatchingSubscribers;
    assert_eq!(put("r/0", 100).await, no_subscriber);
    assert_eq!(put("r/1", 101).await, ReasonCode::QuotaExceeded);
    assert_eq!(put("r/1", 100).await, no_subscriber);
    wait_gauge(&node, BYTES, 2 * size(100));
    assert_eq!(put("r/2", 1).await, ReasonCode::QuotaExceeded);
    assert_eq!(put("r/1", 101).await, ReasonCode::QuotaExceeded, "a larger one instead");
    assert_eq!(put("r/1", 100).await, no_subscriber);
    assert_eq!(put("r/1", 90).await, no_subscriber, "a smaller one instead");
    assert_eq!(put("r/0", 110).await, no_subscriber, "and the room is another's");
    assert_eq!(put("r/0", 0).await, no_subscriber);
    wait_gauge(&node, BYTES, size(90));
    assert_eq!(put("r/3", 110).await, no_subscriber);
}

#[tokio::test]
async fn the_room_of_an_expired_message_is_given_back_with_nobody_asking() {
    let _permit = acquire(Weight::Node);
    let mut node = limited("<max-messages>2</max-messages>");
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for topic in ["r/0", "r/1"] {
        let mut packet = Publish { retain: true, ..publish(topic, b"short", QoS::AtLeastOnce) };
        packet.properties.message_expiry_interval = Some(1);
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    assert_eq!(publisher.publish_retained("r/2", b"x", QoS::AtLeastOnce).await, ReasonCode::QuotaExceeded);
    wait_gauge(&node, RETAINED, 0);
    wait_gauge(&node, BYTES, 0);
    assert_eq!(publisher.publish_retained("r/2", b"x", QoS::AtLeastOnce).await, ReasonCode::NoMatchingSubscribers);
    assert_eq!(retained(&node, "#").await, ["r/2=x"]);
    // The limit counts what was there before a start.
    publisher.publish_retained("r/3", b"x", QoS::AtLeastOnce).await;
    node.kill();
    node.start();
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    assert_eq!(publisher.publish_retained("r/4", b"x", QoS::AtLeastOnce).await, ReasonCode::QuotaExceeded);
}

/// Row 57, for one node that is stopped at once: what it has read it keeps, though it acknowledges nothing.
#[tokio::test]
async fn a_stop_loses_no_retained_qos_0_message_that_was_read() {
    const TOPICS: usize = 500;
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 0..TOPICS {
        let packet = Publish { retain: true, ..publish(&format!("r/{number}"), b"x", QoS::AtMostOnce) };
        publisher.start_publish(packet).await.expect("sent");
    }
    publisher.ping().await;
    assert!(node.stop().success());
    node.start();
    wait_gauge(&node, RETAINED, TOPICS);
}

/// One connection's burst is on its way all at once.
#[tokio::test]
async fn a_burst_does_not_exceed_the_limit() {
    const LIMIT: usize = 50;
    let _permit = acquire(Weight::Node);
    let node = limited(&format!("<max-messages>{LIMIT}</max-messages>"));
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 0..1000 {
        let packet = Publish { retain: true, ..publish(&format!("r/{number}"), b"x", QoS::AtMostOnce) };
        publisher.start_publish(packet).await.expect("sent");
    }
    publisher.publish_retained("r/0", b"x", QoS::AtLeastOnce).await;
    wait::until("something is retained", SOON, || (node.metric(RETAINED) >= 1.0).then_some(()));
    assert!(node.metric(RETAINED) <= LIMIT as f64);
    // What is left can be used to the last.
    let mut refused = None;
    for number in 1000..1000 + LIMIT + 1 {
        if publisher.publish_retained(&format!("r/{number}"), b"x", QoS::AtLeastOnce).await == ReasonCode::QuotaExceeded {
            refused = Some(number);
            break;
        }
    }
    assert!(refused.is_some());
    wait_gauge(&node, RETAINED, LIMIT);
}
