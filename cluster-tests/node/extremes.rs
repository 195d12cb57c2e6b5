//! Legal input at the edges: long names, large packets, peers that do not read.

use std::time::Duration;

use troupemq::mqtt::packet::{RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

/// The longest MQTT string.
const LONGEST: usize = 65_535;

/// Names of this length made record keys that the storage engine refused, and a node that stopped at the same log entry at each start.
#[tokio::test]
async fn the_longest_names_work_and_survive_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let (client_id, topic) = ("c".repeat(LONGEST), "t".repeat(LONGEST));
    let shared = format!("$share/g/{}", "s".repeat(LONGEST - "$share/g/".len()));
    let options = Options::v5(&client_id).persistent();
    let mut sleeper = Client::connect(node.mqtt(), &options).await;
    sleeper.subscribe(&topic, QoS::ExactlyOnce).await;
    sleeper.subscribe(&shared, QoS::AtLeastOnce).await;
    sleeper.disconnect().await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish(&topic, b"one", QoS::AtLeastOnce).await;
    publisher.publish(&topic, b"two", QoS::ExactlyOnce).await;
    publisher.publish(&shared["$share/g/".len()..], b"three", QoS::AtLeastOnce).await;
    publisher.publish_retained(&topic, b"four", QoS::AtLeastOnce).await;

    node.kill();
    node.start();
    let mut sleeper = Client::connect(node.mqtt(), &options).await;
    assert!(sleeper.session_present());
    let mut texts = Vec::new();
    for _ in 0..4 {
        texts.push(sleeper.text().await);
    }
    texts.sort();
    assert_eq!(texts, ["four", "one", "three", "two"]);
    let mut fresh = Client::connect(node.mqtt(), &Options::v5("fresh")).await;
    fresh.subscribe(&topic, QoS::AtLeastOnce).await;
    assert_eq!(fresh.text().await, "four");
}

/// [MQTT-3.1.2-5]: an expiry of 0 ends the session with *this* connection; what it has until then is delivered.
#[tokio::test]
async fn a_session_resumed_with_expiry_0_gets_what_waits_for_it() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut sleeper = Client::connect(node.mqtt(), &Options::v5("sleeper").persistent()).await;
    sleeper.subscribe("t", QoS::ExactlyOnce).await;
    sleeper.disconnect().await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for text in ["1", "2", "3"] {
        publisher.publish("t", text.as_bytes(), QoS::ExactlyOnce).await;
    }
    let mut sleeper = Client::connect(node.mqtt(), &Options::v5("sleeper").persistent().expiry(0)).await;
    assert!(sleeper.session_present());
    for text in ["1", "2", "3"] {
        assert_eq!(sleeper.text().await, text);
    }
    publisher.publish("t", b"live", QoS::AtLeastOnce).await;
    assert_eq!(sleeper.text().await, "live");
    sleeper.disconnect().await;
    let sleeper = Client::connect(node.mqtt(), &Options::v5("sleeper").persistent()).await;
    assert!(!sleeper.session_present());
}

/// A SUBSCRIBE of 71 MB passed for a small command and could not be sent between nodes; it took its node out of the cluster.
#[tokio::test]
async fn a_subscribe_too_large_to_replicate_is_refused_alone() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut greedy = Client::connect(node.mqtt(), &Options::v5("greedy")).await;
    let options = SubscriptionOptions {
        qos: QoS::AtMostOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Send,
    };
    let filters = (0..600).map(|n| SubscriptionRequest { filter: format!("{n:065000}").into(), options }).collect();
    let packet_id = std::num::NonZeroU16::MIN;
    let subscribe = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
    greedy.send(&Packet::Subscribe(Box::new(subscribe))).await.expect("a broker that reads");
    match greedy.next_packet(SOON).await.expect("an answer") {
        Packet::Suback(suback) => assert!(suback.reason_codes.iter().all(|code| *code == ReasonCode::QuotaExceeded)),
        other => panic!("{other:?}"),
    }
    greedy.ping().await;
    let mut other = Client::connect(node.mqtt(), &Options::v5("other").persistent()).await;
    other.subscribe("t", QoS::AtLeastOnce).await;
    other.publish("t", b"served", QoS::AtLeastOnce).await;
    assert_eq!(other.text().await, "served");
}

/// More retained bytes than a node lets wait for one shard; what did not fit was dropped without a word.
#[tokio::test]
async fn a_persistent_subscriber_gets_all_retained_messages_however_large() {
    const MESSAGES: usize = 90;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let payload = vec![b'x'; 1024 * 1024];
    for number in 0..MESSAGES {
        publisher.publish_retained(&format!("large/{number}"), &payload, QoS::AtLeastOnce).await;
    }
    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber").persistent()).await;
    subscriber.subscribe("large/+", QoS::AtLeastOnce).await;
    let mut topics = std::collections::BTreeSet::new();
    while topics.len() < MESSAGES {
        let message = subscriber.message().await;
        assert_eq!(message.payload.len(), payload.len());
        topics.insert(message.topic.to_string());
    }
}

/// Answers that nobody takes must not pile up: the broker stops reading instead.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_read() {
    const FLOOD_BYTES: usize = 64 * 1024 * 1024;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut deaf = Client::connect(node.mqtt(), &Options::v5("deaf")).await;
    let pings = [0xC0, 0x00].repeat(32 * 1024);
    let flood = async {
        for _ in 0..FLOOD_BYTES / pings.len() {
            if deaf.send_bytes(&pings).await.is_err() {
                return;
            }
        }
        panic!("{FLOOD_BYTES} bytes of requests were read, and their answers kept");
    };
    let _ = tokio::time::timeout(Duration::from_secs(3), flood).await;
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.ping().await;
}

/// spec/hivemq.md 9.1.
#[tokio::test]
async fn above_max_connections_a_client_is_told_quota_exceeded() {
    let _permit = acquire(Weight::Node);
    let more = "<restrictions><max-connections>2</max-connections></restrictions>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    let first = Client::connect(node.mqtt(), &Options::v5("1")).await;
    let _second = Client::connect(node.mqtt(), &Options::v5("2")).await;
    match Client::try_connect(node.mqtt(), &Options::v5("3")).await {
        Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, ReasonCode::QuotaExceeded),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("a third client was let in"),
    }
    first.disconnect().await;
    wait::until("a place is free", SOON, || (node.metric("com_hivemq_networking_connections_current") < 2.0).then_some(()));
    let mut tries = 0;
    while let Err(error) = Client::try_connect(node.mqtt(), &Options::v5("3")).await {
        tries += 1;
        assert!(tries < 100, "{error:?}");
    }
}
