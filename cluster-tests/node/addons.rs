//! `$expired` and `$dead`, and the rule of nesting.

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

#[track_caller]
fn assert_recent_ms(message: &Publish, name: &str) {
    let stamp: u64 = user_property(message, name).and_then(|text| text.parse().ok()).unwrap_or_default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis() as u64;
    assert!(now.abs_diff(stamp) < 60_000, "{name} = {stamp}, now {now}");
}

#[tokio::test]
async fn a_message_without_subscriber_is_dead() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dead/nobody/#", QoS::ExactlyOnce).await;
    let mut all = Client::connect(node.mqtt(), &Options::v5("all")).await;
    all.subscribe("other/#", QoS::ExactlyOnce).await;

    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut packet = publish("nobody/here", b"payload", QoS::AtLeastOnce);
    packet.properties.user_properties = vec![("b".into(), "1".into()), ("a".into(), "2".into())];
    packet.properties.content_type = Some("text/plain".into());
    assert_eq!(publisher.try_publish(packet).await, Ok(ReasonCode::NoMatchingSubscribers));
    let message = watcher.message().await;
    assert_eq!((&*message.topic, &*message.payload, message.qos), ("$dead/nobody/here", &b"payload"[..], QoS::AtLeastOnce));
    let names: Vec<_> = message.properties.user_properties.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names[..2], ["b", "a"], "the original's come first");
    assert_eq!(message.properties.content_type.as_deref(), Some("text/plain"));
    assert_eq!(user_property(&message, "hmq-dead-origin"), Some("client"));
    assert_eq!(user_property(&message, "hmq-dead-client"), Some("publisher"));
    assert_recent_ms(&message, "hmq-dead-timestamp");

    let code = publisher.publish("nobody/here", b"", QoS::ExactlyOnce).await;
    assert_eq!(code, ReasonCode::NoMatchingSubscribers);
    assert_eq!(watcher.message().await.qos, QoS::ExactlyOnce);
    publisher.publish("nobody/here", b"zero", QoS::AtMostOnce).await;
    assert_eq!(watcher.text().await, "zero");
    assert_eq!(publisher.publish("other/x", b"", QoS::AtLeastOnce).await, ReasonCode::Success);
    all.message().await;
    watcher.nothing().await;
    all.nothing().await;
}

#[tokio::test]
async fn lifecycle_events_that_nobody_subscribed_are_dead_by_the_broker() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dead/$client-events/#", QoS::AtLeastOnce).await;
    let client = Client::connect(node.mqtt(), &Options::v5("unseen").user_property("k", "v")).await;
    let message = watcher.message().await;
    assert_eq!(&*message.topic, "$dead/$client-events/all/client-id/unseen");
    assert_eq!(user_property(&message, "k"), Some("v"));
    assert_eq!(user_property(&message, "hmq-dead-origin"), Some("broker"));
    assert_eq!(user_property(&message, "hmq-dead-client"), None);
    client.disconnect().await;
    assert_eq!(&*watcher.message().await.topic, "$dead/$client-events/all/client-id/unseen");

    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber")).await;
    watcher.message().await;
    subscriber.subscribe("$client-events/#", QoS::AtLeastOnce).await;
    let _seen = Client::connect(node.mqtt(), &Options::v5("seen")).await;
    subscriber.message().await;
    watcher.nothing().await;
}

/// An offline session with a queue, two watchers, and a message that expires in the queue.
#[tokio::test]
async fn a_message_that_expires_in_a_queue_is_told() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let sleeper = Options::v5("sleeper").persistent();
    let mut client = Client::connect(node.mqtt(), &sleeper).await;
    client.subscribe("short/#", QoS::AtLeastOnce).await;
    client.subscribe("$dead/#", QoS::AtLeastOnce).await;
    client.unsubscribe("$dead/#").await;
    client.disconnect().await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$expired/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut packet = publish("short/lived", b"tick", QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(1);
    packet.properties.user_properties = vec![("a".into(), "2".into())];
    assert_eq!(publisher.try_publish(packet.clone()).await, Ok(ReasonCode::Success));

    let message = watcher.message().await;
    assert_eq!((&*message.topic, &*message.payload, message.qos), ("$expired/short/lived", &b"tick"[..], QoS::AtLeastOnce));
    assert_eq!(&*message.properties.user_properties[0].0, "a");
    assert_eq!(user_property(&message, "hmq-exp-origin"), Some("client"));
    assert_eq!(user_property(&message, "hmq-exp-client"), Some("sleeper"));
    assert_recent_ms(&message, "hmq-exp-timestamp");
    assert_eq!(message.properties.message_expiry_interval, None);

    // Nobody subscribes to $expired any more: its messages are dead, once nested.
    watcher.unsubscribe("$expired/#").await;
    watcher.subscribe("$dead/$expired/#", QoS::AtLeastOnce).await;
    publisher.try_publish(packet).await.expect("acknowledged");
    let message = watcher.message().await;
    assert_eq!(&*message.topic, "$dead/$expired/short/lived");
    assert_eq!(user_property(&message, "hmq-dead-origin"), Some("extension"));
    assert_eq!(user_property(&message, "hmq-exp-client"), Some("sleeper"));

    // Nor to $dead: no $dead/$dead.
    watcher.unsubscribe("$dead/$expired/#").await;
    watcher.subscribe("$dead/$dead/#", QoS::AtLeastOnce).await;
    let count = "com_hivemq_messages_dead_topic_dead_count";
    let before = node.metric(count);
    publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
    wait::until("the dead $dead message is counted", SOON, || (node.metric(count) > before).then_some(()));
    watcher.nothing().await;

    let mut client = Client::connect(node.mqtt(), &sleeper).await;
    assert!(client.session_present());
    client.nothing().await;
}

#[tokio::test]
async fn clients_cannot_publish_into_the_namespaces_and_wildcards_do_not_reach_them() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut everything = Client::connect(node.mqtt(), &Options::v5("everything")).await;
    everything.subscribe("#", QoS::AtLeastOnce).await;
    everything.subscribe("+/all/#", QoS::AtLeastOnce).await;
    for topic in ["$client-events/all/client-id/x", "$dead/x", "$dropped/x", "$expired/x"] {
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        publisher.start_publish(publish(topic, b"forged", QoS::AtMostOnce)).await.expect("sent");
        assert_eq!(publisher.closed().await, Some(ReasonCode::ProtocolError), "{topic}");
    }
    everything.nothing().await;
}

#[tokio::test]
async fn an_add_on_that_is_off_says_nothing() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { addons: false, ..Config::default() });
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    for filter in ["$client-events/#", "$dead/#", "$dropped/#", "$expired/#"] {
        watcher.subscribe(filter, QoS::AtLeastOnce).await;
    }
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
    publisher.disconnect().await;
    watcher.nothing().await;
    assert!(node.metric("com_hivemq_messages_dead_count") >= 1.0, "base counters move all the same");
}
