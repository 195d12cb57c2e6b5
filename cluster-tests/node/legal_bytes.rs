//! Client ids, topics and payloads of any legal bytes: they work live, in a queue, retained, and after `kill -9`.

use troupemq::mqtt::packet::RetainHandling;
use troupemq::mqtt::packet::SubscriptionOptions;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::carried::{LEVELS, name};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// For client ids and, where it is one, as a topic.
const TEXTS: [&str; 20] = [
    " ",
    "a b",
    "/",
    "//",
    "a//b",
    "/leading",
    "trailing/",
    "ünï/日本語/🦀",
    "e\u{301}",
    "\u{feff}bom",
    "a/$b/$c",
    "a$",
    "$",
    "+",
    "#",
    "a+b",
    "%2F%00",
    "\"quoted\" <xml> & 'more'",
    "\\back\\slash",
    "\u{a0}\u{2028}\u{10fffd}",
];

fn is_topic(text: &str) -> bool {
    !text.starts_with('$') && !text.contains(['+', '#'])
}

/// The literal filter, and one with a wildcard in place of each level.
fn filters(topic: &str) -> [String; 2] {
    [topic.to_owned(), topic.split('/').map(|_| "+").collect::<Vec<_>>().join("/")]
}

fn payloads() -> [Vec<u8>; 3] {
    [Vec::new(), (0..=255).collect(), b"\xff\xfe\x00".to_vec()]
}

#[tokio::test]
async fn odd_client_ids_and_topics_work_live_queued_and_after_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let topics: Vec<&str> = TEXTS.into_iter().filter(|text| is_topic(text)).collect();
    let who = |version, text| {
        let options = Options::of(version, text).clean_start(false);
        if version.is_v5() { options.persistent() } else { options }
    };
    let all = || {
        // Each client id belongs to one client, so the versions share them out.
        let versions = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5].into_iter().cycle();
        TEXTS.into_iter().zip(versions)
    };
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for (text, version) in all() {
        let mut client = Client::connect(node.mqtt(), &who(version, text)).await;
        for topic in &topics {
            for filter in filters(topic) {
                client.subscribe(&filter, QoS::ExactlyOnce).await;
            }
            for (qos, payload) in LEVELS.into_iter().zip(payloads()) {
                publisher.publish(topic, &payload, qos).await;
                let message = client.message().await;
                let what = format!("{text:?} {} {topic:?}", name(version));
                assert_eq!((&*message.topic, &*message.payload, message.qos), (*topic, &payload[..], qos), "{what}");
            }
        }
        client.disconnect().await;
    }
    for topic in &topics {
        publisher.publish(topic, topic.as_bytes(), QoS::ExactlyOnce).await;
        publisher.publish_retained(topic, b"\x00kept\xff", QoS::AtLeastOnce).await;
    }
    node.kill();
    node.start();
    for (text, version) in all() {
        let mut client = Client::connect(node.mqtt(), &who(version, text)).await;
        assert!(client.session_present() || version == ProtocolVersion::V3_1, "{text:?}");
        // What was published to all of them while this one was there is queued for those who came before it.
        let mut queued = Vec::new();
        while let Ok(message) = client.try_message(crate::harness::QUIET).await {
            queued.push((message.topic.to_string(), message.payload));
        }
        for topic in &topics {
            let last: Vec<_> = queued.iter().filter(|(t, _)| t == topic).map(|(_, payload)| &**payload).rev().take(2).collect();
            assert_eq!(last, [&b"\x00kept\xff"[..], topic.as_bytes()], "{text:?} {topic:?}");
        }
        client.disconnect().await;
    }
    let mut fresh = Client::connect(node.mqtt(), &Options::v5("fresh")).await;
    for topic in &topics {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        };
        fresh.subscribe_as(topic, options, Some(1)).await;
        let message = fresh.message().await;
        assert_eq!((&*message.topic, &*message.payload, message.retain), (*topic, &b"\x00kept\xff"[..], true));
    }
}

/// The largest packet that MQTT can express, which the default limit allows.
#[tokio::test]
async fn a_packet_of_the_largest_size_passes() {
    const REMAINING_LENGTH_MAX: usize = 268_435_455;
    let _permit = acquire(Weight::Whole);
    let node = Node::ready(Config::default());
    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber")).await;
    subscriber.subscribe("t", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for (qos, header_len) in [(QoS::AtMostOnce, 4), (QoS::AtLeastOnce, 6)] {
        let payload = vec![b'x'; REMAINING_LENGTH_MAX - header_len];
        let packet = publish("t", &payload, qos);
        drop(payload);
        let length = packet.payload.len();
        publisher.try_publish(packet).await.expect("taken");
        let message = subscriber.message().await;
        assert_eq!((message.payload.len(), message.qos), (length, qos));
        assert!(message.payload.iter().all(|byte| *byte == b'x'));
    }
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.ping().await;
}
