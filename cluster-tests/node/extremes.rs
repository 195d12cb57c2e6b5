//! Legal input at the edges: long names, large packets, peers that do not read.

use std::time::Duration;

use troupemq::mqtt::packet::{Publish, PublishProperties, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options, publish};
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

/// Topic Names of legal bytes that are easily taken for something else.
const ODD_NAMES: [&str; 12] = [
    "/",
    "//",
    "a//b",
    "/a/",
    " ",
    "a b/ c ",
    "a/$b/c$",
    "a$",
    "\u{e4}/\u{6f22}\u{5b57}",
    "\u{1f980}/\u{1d11e}/\u{10fffd}",
    "\u{feff}x",
    "a/\u{301}",
];

#[tokio::test]
async fn names_of_any_legal_bytes_work_everywhere_and_survive_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut live = Client::connect(node.mqtt(), &Options::v5("live")).await;
    live.subscribe("#", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher").persistent()).await;
    for name in ODD_NAMES {
        let mut sleeper = Client::connect(node.mqtt(), &Options::v5(name).persistent()).await;
        sleeper.subscribe(name, QoS::ExactlyOnce).await;
        sleeper.subscribe(&format!("$share/g{}/{name}", name.replace('/', "")), QoS::AtLeastOnce).await;
        sleeper.disconnect().await;
        publisher.publish(name, b"once", QoS::AtLeastOnce).await;
        publisher.publish(name, b"exactly", QoS::ExactlyOnce).await;
        publisher.publish_retained(name, b"kept", QoS::AtLeastOnce).await;
        let willing = Client::connect(node.mqtt(), &Options::v5("willing").will(name, "will", 0)).await;
        drop(willing);
        let mut texts = Vec::new();
        for _ in 0..4 {
            let message = live.message().await;
            assert_eq!(&*message.topic, name);
            texts.push(String::from_utf8_lossy(&message.payload).into_owned());
        }
        texts.sort();
        assert_eq!(texts, ["exactly", "kept", "once", "will"], "{name:?}");
    }
    node.kill();
    node.start();
    for name in ODD_NAMES {
        let mut sleeper = Client::connect(node.mqtt(), &Options::v5(name).persistent()).await;
        assert!(sleeper.session_present(), "{name:?}");
        let mut texts = Vec::new();
        // By its own subscription and by the shared one, of which it is the only member.
        for _ in 0..8 {
            let message = sleeper.message().await;
            assert_eq!(&*message.topic, name);
            texts.push(String::from_utf8_lossy(&message.payload).into_owned());
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts, ["exactly", "kept", "once", "will"], "{name:?}");
        sleeper.disconnect().await;
        let mut fresh = Client::connect(node.mqtt(), &Options::v5("fresh")).await;
        fresh.subscribe(name, QoS::AtLeastOnce).await;
        let kept = fresh.message().await;
        assert_eq!((&*kept.topic, &*kept.payload), (name, &b"kept"[..]));
        // Removed, so that the next filter finds its own only.
        fresh.publish_retained(name, b"", QoS::AtLeastOnce).await;
    }
}

/// Topics of 65,535 bytes, in one level and in 65,536 of them, by wildcards, as Will, shared and dead.
#[tokio::test]
async fn the_longest_topics_match_wildcards_and_are_wills_and_shared() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let (plain, slashes) = (format!("{}/x", "t".repeat(LONGEST - 2)), "/".repeat(LONGEST));
    let cases = [(&plain, "+/x"), (&slashes, "/+/#"), (&slashes, "#")];
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher").persistent()).await;
    for (number, (topic, filter)) in cases.into_iter().enumerate() {
        let mut live = Client::connect(node.mqtt(), &Options::v5("live")).await;
        let mut kept = Client::connect(node.mqtt(), &Options::v5(&format!("kept-{number}")).persistent()).await;
        let mut member = Client::connect(node.mqtt(), &Options::v5("member")).await;
        let mut others = [&mut live, &mut kept];
        for client in &mut others {
            client.subscribe(filter, QoS::ExactlyOnce).await;
        }
        member.subscribe(&format!("$share/g/{filter}"), QoS::AtLeastOnce).await;
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            publisher.publish(topic, b"text", qos).await;
            for client in others.iter_mut().map(|client| &mut **client).chain([&mut member]) {
                let message = client.message().await;
                assert!(message.topic == *topic, "another topic of {} bytes", message.topic.len());
            }
        }
        drop(Client::connect(node.mqtt(), &Options::v5("willing").will(topic, "will", 0)).await);
        for client in others.iter_mut().map(|client| &mut **client).chain([&mut member]) {
            assert_eq!(client.text().await, "will");
        }
        kept.unsubscribe(filter).await;
    }
    // `$dead/` does not fit in front of it: no dead message, and no harm.
    publisher.publish(&plain, b"nobody", QoS::AtLeastOnce).await;
    publisher.ping().await;
}

/// Case 89: what one client left there must not break others.
#[tokio::test]
async fn strange_retained_messages_reach_who_can_take_them_and_close_nobody() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("fuzzer")).await;
    let retained = |topic: &str, payload: &[u8], properties: PublishProperties| Publish {
        retain: true,
        properties,
        ..publish(topic, payload, QoS::AtLeastOnce)
    };
    let longest = "t".repeat(LONGEST);
    let many = (0..1000).map(|n| (format!("{n:030}").into(), format!("{n:030}").into())).collect();
    let packets = [
        retained(&longest, b"long topic", PublishProperties::default()),
        retained("empty", b"", PublishProperties { content_type: Some("c".into()), ..PublishProperties::default() }),
        retained("many", b"properties", PublishProperties { user_properties: many, ..PublishProperties::default() }),
        retained(
            "format",
            b"\xff\xfe",
            PublishProperties { payload_format_indicator: Some(true), ..PublishProperties::default() },
        ),
        retained(
            "response",
            b"r",
            PublishProperties { response_topic: Some("r".repeat(LONGEST).into()), ..PublishProperties::default() },
        ),
        retained("small", b"small", PublishProperties::default()),
    ];
    for packet in packets {
        let reason_code = publisher.try_publish(packet).await.expect("an acknowledgement");
        assert!(!reason_code.is_error(), "{reason_code:?}");
    }
    let all = ["format", "many", "response", "small", &*longest];
    let cases = [
        (Options::v3("v3"), &all[..]),
        (Options::v5("v5"), &all[..]),
        (Options::v5("limited").maximum_packet_size(100), &["format", "small"]),
        (Options::v5("limited-kept").persistent().maximum_packet_size(100), &["format", "small"]),
    ];
    for (options, expected) in cases {
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("#", QoS::AtLeastOnce).await;
        let mut topics = Vec::new();
        while topics.len() < expected.len() {
            topics.push(client.message().await.topic.to_string());
        }
        topics.sort();
        assert_eq!(topics, expected, "{}", options.client_id());
        client.publish("after", options.client_id().as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, options.client_id());
        client.disconnect().await;
    }
}
