//! What of an expired, dropped or dead message is on its add-on topic, and for whom.

use troupemq::mqtt::packet::{Publish, RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::keeper;
use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const ROOM: usize = 5;
const SUBSCRIPTION: u32 = 77;

/// A message with every field, which is deleted where nothing retains it.
fn original(topic: &str) -> Publish {
    let mut packet = publish(topic, &[0, b'x', 0xFF], QoS::ExactlyOnce);
    packet.retain = true;
    packet.properties.payload_format_indicator = Some(false);
    packet.properties.content_type = Some("application/x".into());
    packet.properties.response_topic = Some("reply/here".into());
    packet.properties.correlation_data = Some(bytes::Bytes::from_static(b"corr\0"));
    packet.properties.user_properties =
        ["b", "a", "b"].iter().zip(["1", "2", "3"]).map(|(k, v)| ((*k).into(), v.into())).collect();
    packet.properties.message_expiry_interval = Some(if topic == "brief" { 1 } else { 1000 });
    packet
}

async fn subscribe(node: &Node, options: &Options, filters: &[&str], retain_as_published: bool) -> Client {
    let mut client = Client::connect(node.mqtt(), options).await;
    let how = SubscriptionOptions {
        qos: QoS::ExactlyOnce,
        no_local: false,
        retain_as_published,
        retain_handling: RetainHandling::Send,
    };
    for filter in filters {
        let identifier = (options.version() == ProtocolVersion::V5).then_some(SUBSCRIPTION);
        client.subscribe_as(filter, how, identifier).await;
    }
    client
}

/// User properties.
type Properties = &'static [(&'static str, &'static str)];

/// Each namespace with the topic of its original, the QoS of the copy it tells of, and the properties added, but for the time.
const ADDED: [(&str, &str, QoS, Properties); 3] = [
    ("$dead", "nobody", QoS::ExactlyOnce, &[("hmq-dead-origin", "client"), ("hmq-dead-client", "publisher")]),
    (
        "$dropped",
        "full",
        QoS::AtLeastOnce,
        &[("hmq-drop-origin", "client"), ("hmq-drop-client", "full"), ("hmq-drop-reason", "Client Message Queue Full")],
    ),
    ("$expired", "brief", QoS::AtLeastOnce, &[("hmq-exp-origin", "client"), ("hmq-exp-client", "brief")]),
];

#[tokio::test]
async fn what_the_original_carries_is_kept_for_subscribers_of_every_kind() {
    let _permit = acquire(Weight::Node);
    let mqtt = format!("<queued-messages><max-queue-size>{ROOM}</max-queue-size></queued-messages>");
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    keeper(&node, "full", "full").await;
    keeper(&node, "brief", "brief").await;
    for _ in 0..ROOM {
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
    }
    let filters = ["$dead/nobody", "$dropped/+", "$expired/#"];
    let mut as_published = subscribe(&node, &Options::v5("as published"), &filters, true).await;
    let mut plain = subscribe(&node, &Options::v5("plain"), &filters, false).await;
    let mut old = subscribe(&node, &Options::v3("old"), &filters, false).await;
    let mut oldest = subscribe(&node, &Options::of(ProtocolVersion::V3_1, "oldest"), &filters, false).await;
    let shared: Vec<String> = filters.iter().map(|filter| format!("$share/analysts/{filter}")).collect();
    let shared: Vec<&str> = shared.iter().map(String::as_str).collect();
    let mut one_of_many = subscribe(&node, &Options::v5("one of many"), &shared, false).await;

    for (namespace, topic, qos, added) in ADDED {
        publisher.try_publish(original(topic)).await.expect("acknowledged");
        let told = format!("{namespace}/{topic}");
        for client in [&mut old, &mut oldest] {
            let message = client.message().await;
            assert_eq!((&*message.topic, &*message.payload, message.qos), (&*told, &[0, b'x', 0xFF][..], qos));
            assert!(!message.retain);
        }
        for (client, retain) in [(&mut as_published, true), (&mut plain, false), (&mut one_of_many, false)] {
            let message = client.message().await;
            assert_eq!((&*message.topic, &*message.payload, message.qos), (&*told, &[0, b'x', 0xFF][..], qos));
            assert_eq!((message.retain, message.dup), (retain, false), "{told}");
            let kept = original(topic).properties;
            let properties = &message.properties;
            assert_eq!(properties.payload_format_indicator, kept.payload_format_indicator, "{told}");
            assert_eq!(properties.content_type, kept.content_type, "{told}");
            assert_eq!(properties.response_topic, kept.response_topic, "{told}");
            assert_eq!(properties.correlation_data, kept.correlation_data, "{told}");
            // Of the subscription, not of the original.
            assert_eq!(properties.subscription_identifiers.to_vec(), [SUBSCRIPTION], "{told}");
            // The time of the original is over; the broker has no maximum.
            assert_eq!(properties.message_expiry_interval, None, "{told}");
            let all: Vec<(&str, &str)> = properties.user_properties.iter().map(|(name, value)| (&**name, &**value)).collect();
            let (first, more) = all.split_at(3);
            assert_eq!(first, [("b", "1"), ("a", "2"), ("b", "3")], "{told}");
            let (time, more) = more.split_first().expect("properties that were added");
            assert!(
                time.0.ends_with("-timestamp") && time.1.parse().is_ok_and(|ms: u64| ms > 1_700_000_000_000),
                "{told}: {time:?}"
            );
            assert_eq!(more, added, "{told}");
        }
    }
    // None of them is stored as retained, though their originals were to be.
    let mut late = subscribe(&node, &Options::v5("late"), &filters, true).await;
    late.nothing().await;
}

/// QoS 0 waits in the queue of the member that was chosen, and is the shared subscription's all the same.
#[tokio::test]
async fn what_a_member_loses_of_qos_0_is_told_of_the_shared_subscription() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscribe(&node, &Options::v5("watcher"), &["$dropped/#"], false).await;
    let mut member = Client::connect(node.mqtt(), &Options::v5("member").maximum_packet_size(100)).await;
    member.subscribe("$share/g/t", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("t", &[0; 200], QoS::AtMostOnce).await;
    let message = watcher.message().await;
    let property = |name| user_property(&message, name);
    assert_eq!(property("hmq-drop-reason"), Some("Maximum Packet Size Exceeded"));
    assert_eq!((property("hmq-drop-origin"), property("hmq-drop-client")), (Some("shared subscription"), None));
    assert_eq!(property("hmq-drop-shared-subscription"), Some("$share/g/t"));
    assert_eq!(node.metric("com_hivemq_messages_dropped_topic_message_created_shared_count"), 1.0);
}

/// The whole shared subscription is named, not the member; QoS 1 messages of it are dropped and expire in its own queue.
#[tokio::test]
async fn of_a_shared_subscription_its_full_name_is_told() {
    let _permit = acquire(Weight::Node);
    let mqtt = "<queued-messages><max-queue-size>1</max-queue-size></queued-messages>".to_owned();
    let node = Node::ready(Config { mqtt, ..Config::default() });
    keeper(&node, "member", "$share/group 1/t/+").await;
    let mut watcher = subscribe(&node, &Options::v5("watcher"), &["$dropped/#", "$expired/#"], false).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for topic in ["t/1", "t/2"] {
        let mut packet = publish(topic, b"", QoS::AtLeastOnce);
        packet.properties.message_expiry_interval = Some(2);
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    for (topic, origin, full, client) in [
        ("$dropped/t/2", "hmq-drop-origin", "hmq-drop-shared-subscription", "hmq-drop-client"),
        ("$expired/t/1", "hmq-exp-origin", "hmq-exp-shared-subscription", "hmq-exp-client"),
    ] {
        let message = watcher.message().await;
        assert_eq!(&*message.topic, topic);
        assert_eq!(user_property(&message, origin), Some("shared subscription"));
        assert_eq!(user_property(&message, full), Some("$share/group 1/t/+"));
        assert_eq!(user_property(&message, client), None);
    }
    watcher.nothing().await;
}
