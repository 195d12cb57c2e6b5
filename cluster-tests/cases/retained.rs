//! Retained messages.

use troupemq::mqtt::packet::PublishProperties;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::kit::{BOTH, before_marker, persistent, publisher, subscriber};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 52.
#[tokio::test]
async fn neither_takeover_nor_resume_sends_retained_messages_again() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = publisher(node.mqtt()).await;
    publisher.publish_retained("t", b"retained", QoS::AtLeastOnce).await;
    for version in BOTH {
        let options = persistent("again", version);
        let mut first = subscriber(node.mqtt(), &options, "t").await;
        assert_eq!(first.text().await, "retained");
        first.ping().await;
        let mut second = Client::connect(node.mqtt(), &options).await;
        assert!(second.session_present());
        first.closed().await;
        assert_eq!(before_marker(&mut publisher, &mut second, "t").await, [""; 0], "takeover, {version:?}");
        second.ping().await;
        second.disconnect().await;
        publisher.publish("t", b"queued", QoS::AtLeastOnce).await;
        let mut third = Client::connect(node.mqtt(), &options).await;
        assert_eq!(before_marker(&mut publisher, &mut third, "t").await, ["queued"], "resume, {version:?}");
        third.disconnect().await;
    }
}

/// Row 56.
#[tokio::test]
async fn retained_messages_of_any_version_reach_subscribers_of_any_version() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let properties = PublishProperties {
        payload_format_indicator: Some(true),
        message_expiry_interval: Some(1000),
        topic_alias: None,
        response_topic: Some("answers".into()),
        correlation_data: Some("4711".into()),
        user_properties: vec![("b".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), "3".into())],
        content_type: Some("text/plain".into()),
        ..PublishProperties::default()
    };
    let mut new = publisher(node.mqtt()).await;
    let mut packet = publish("t/a", b"of 5", QoS::ExactlyOnce);
    (packet.retain, packet.properties) = (true, properties.clone());
    new.try_publish(packet).await.expect("acknowledged");
    let mut old = Client::connect(node.mqtt(), &Options::v3("old publisher")).await;
    old.publish_retained("t/b", b"of 3", QoS::AtMostOnce).await;
    old.ping().await;
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        for kept in [false, true] {
            let options = Options::of(version, "sub");
            let options = if kept { options.persistent() } else { options };
            let mut client = subscriber(node.mqtt(), &options, "t/+").await;
            let mut messages = [client.message().await, client.message().await];
            messages.sort_by(|a, b| a.topic.cmp(&b.topic));
            let [a, b] = messages;
            let case = format!("{version:?}, kept: {kept}");
            assert_eq!((&*a.topic, &*a.payload, a.qos, a.retain), ("t/a", &b"of 5"[..], QoS::ExactlyOnce, true), "{case}");
            assert_eq!((&*b.topic, &*b.payload, b.qos, b.retain), ("t/b", &b"of 3"[..], QoS::AtMostOnce, true), "{case}");
            assert_eq!(b.properties, PublishProperties::default(), "{case}");
            if version == ProtocolVersion::V5 {
                let left = a.properties.message_expiry_interval;
                assert!(left.is_some_and(|left| (900..=1000).contains(&left)), "{case}: {left:?}");
                assert_eq!(PublishProperties { message_expiry_interval: Some(1000), ..a.properties }, properties, "{case}");
            } else {
                assert_eq!(a.properties, PublishProperties::default(), "{case}");
            }
            client.ping().await;
            client.disconnect().await;
            Client::connect(node.mqtt(), &Options::v5("sub")).await.disconnect().await;
        }
    }
}
