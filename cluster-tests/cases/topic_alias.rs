//! Topic Aliases.

use troupemq::mqtt::QoS;

use super::kit::{persistent, publisher, subscriber};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 81: [MQTT-3.1.2-27].
#[tokio::test]
async fn a_publishers_topic_alias_stays_with_its_connection() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut live = Vec::new();
    for (name, options) in
        [("5", Options::v5("live")), ("3.1.1", Options::v3("live-3")), ("kept", Options::v5("live-k").persistent())]
    {
        live.push((name, subscriber(node.mqtt(), &options, "topic").await));
    }
    live.push(("shared", subscriber(node.mqtt(), &Options::v5("member"), "$share/g/topic").await));
    let sleeper = persistent("sleeper", super::kit::BOTH[0]);
    subscriber(node.mqtt(), &sleeper, "topic").await.disconnect().await;

    let mut publisher = publisher(node.mqtt()).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for topic in ["topic", ""] {
            let mut packet = publish(topic, b"aliased", qos);
            packet.properties.topic_alias = Some(5);
            packet.retain = qos == QoS::AtLeastOnce;
            publisher.try_publish(packet).await.expect("acknowledged");
            for (name, client) in &mut live {
                let message = client.message().await;
                let seen = (&*message.topic, &*message.payload, message.properties.topic_alias);
                assert_eq!(seen, ("topic", &b"aliased"[..], None), "{name}, {qos:?}, published as {topic:?}");
            }
        }
    }
    let mut sleeper = Client::connect(node.mqtt(), &sleeper).await;
    for _ in 0..4 {
        let message = sleeper.message().await;
        assert_eq!((&*message.topic, message.properties.topic_alias), ("topic", None), "queued");
    }
    let mut new = subscriber(node.mqtt(), &Options::v5("new"), "topic").await;
    let message = new.message().await;
    assert_eq!((&*message.topic, message.properties.topic_alias, message.retain), ("topic", None, true), "retained");

    // A Will has a topic of its own, and the alias of the next connection is free.
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "w").await;
    let mut mortal = Client::connect(node.mqtt(), &Options::v5("mortal").will("w", "gone", 0)).await;
    let mut packet = publish("topic", b"", QoS::AtMostOnce);
    packet.properties.topic_alias = Some(5);
    mortal.try_publish(packet).await.expect("sent");
    mortal.reset();
    let will = watcher.message().await;
    assert_eq!((&*will.topic, will.properties.topic_alias), ("w", None), "will");
    let mut again = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut packet = publish("", b"", QoS::AtMostOnce);
    packet.properties.topic_alias = Some(5);
    again.start_publish(packet).await.expect("sent");
    assert_eq!(again.closed().await, Some(troupemq::mqtt::ReasonCode::TopicAliasInvalid));
}
