//! `$dropped`.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

fn with_queue(size: u32, strategy: &str) -> Config {
    let mqtt =
        format!("<queued-messages><max-queue-size>{size}</max-queue-size><strategy>{strategy}</strategy></queued-messages>");
    Config { mqtt, ..Config::default() }
}

#[tokio::test]
async fn a_full_queue_drops_the_new_message() {
    let kept = dropped_of("discard", &["4", "5"]).await;
    assert_eq!(kept, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_full_queue_drops_the_oldest_message_where_so_configured() {
    let kept = dropped_of("discard-oldest", &["1", "2"]).await;
    assert_eq!(kept, ["3", "4", "5"]);
}

/// What a connected client was not sent yet may go, however few messages it takes at a time.
#[tokio::test]
async fn a_full_queue_of_a_slow_client_drops_the_oldest_message_that_is_not_in_flight() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(with_queue(4, "discard-oldest"));
    let options = Options::v5("slow").persistent().manual_ack().with(|connect| connect.properties.receive_maximum = Some(1));
    let mut slow = Client::connect(node.mqtt(), &options).await;
    slow.subscribe("full", QoS::AtLeastOnce).await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 1..=7 {
        publisher.publish("full", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    for expected in ["2", "3", "4"] {
        assert_eq!(watcher.text().await, expected);
    }
    for expected in ["1", "5", "6", "7"] {
        let message = slow.message().await;
        assert_eq!(&*message.payload, expected.as_bytes());
        slow.puback(&message).await;
    }
    slow.nothing().await;
}

/// What a member of a shared subscription has in flight stays the member's; the next oldest goes.
#[tokio::test]
async fn a_full_queue_of_a_shared_subscription_drops_the_oldest_message_that_no_member_has() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(with_queue(4, "discard-oldest"));
    let options = Options::v5("slow").persistent().manual_ack().with(|connect| connect.properties.receive_maximum = Some(1));
    let mut slow = Client::connect(node.mqtt(), &options).await;
    slow.subscribe("$share/g/full", QoS::AtLeastOnce).await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("full", b"1", QoS::AtLeastOnce).await;
    let mut held = slow.message().await;
    assert_eq!(held.payload, "1");
    for number in 2..=7 {
        publisher.publish("full", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    for expected in ["2", "3", "4"] {
        let message = watcher.message().await;
        assert_eq!(message.payload, expected);
        assert_eq!(user_property(&message, "hmq-drop-shared-subscription"), Some("$share/g/full"));
    }
    for expected in ["5", "6", "7"] {
        slow.puback(&held).await;
        held = slow.message().await;
        assert_eq!(held.payload, expected);
    }
    // Nobody there: the oldest is the oldest.
    slow.reset();
    for number in 8..=11 {
        publisher.publish("full", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    assert_eq!(watcher.text().await, "7");
    watcher.nothing().await;
}

/// Publishes five messages to an offline session with room for three; tells what the session receives then.
async fn dropped_of(strategy: &str, dropped: &[&str]) -> Vec<String> {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(with_queue(3, strategy));
    let sleeper = Options::v5("sleeper").persistent();
    let mut client = Client::connect(node.mqtt(), &sleeper).await;
    client.subscribe("full", QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::ExactlyOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 1..=5 {
        publisher.publish("full", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    for expected in dropped {
        let message = watcher.message().await;
        assert_eq!((&*message.topic, &*message.payload), ("$dropped/full", expected.as_bytes()));
        for (name, value) in
            [("hmq-drop-reason", "Client Message Queue Full"), ("hmq-drop-origin", "client"), ("hmq-drop-client", "sleeper")]
        {
            assert_eq!(user_property(&message, name), Some(value), "{name}");
        }
        assert!(user_property(&message, "hmq-drop-timestamp").is_some());
    }
    watcher.nothing().await;
    let count = "com_hivemq_messages_dropped_queue_full_count";
    wait::until("drops are counted", SOON, || (node.metric(count) >= 2.0).then_some(()));
    let mut client = Client::connect(node.mqtt(), &sleeper).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(client.text().await);
    }
    client.nothing().await;
    kept
}

#[tokio::test]
async fn a_dropped_message_that_nobody_subscribed_is_dead() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(with_queue(1, "discard"));
    let mut sleeper = Client::connect(node.mqtt(), &Options::v5("sleeper").persistent()).await;
    sleeper.subscribe("full", QoS::AtLeastOnce).await;
    sleeper.disconnect().await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    // A lifecycle event in flight would fill the watcher's own queue of 1; QoS 0 does not count.
    watcher.subscribe("$dead/#", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("full", b"1", QoS::AtLeastOnce).await;
    publisher.publish("full", b"2", QoS::AtLeastOnce).await;
    loop {
        let message = watcher.message().await;
        if !message.topic.starts_with("$dead/$client-events/") {
            assert_eq!(&*message.topic, "$dead/$dropped/full");
            assert_eq!(user_property(&message, "hmq-drop-client"), Some("sleeper"));
            break;
        }
    }
}

#[tokio::test]
async fn a_message_above_a_clients_maximum_packet_size_is_dropped_for_it() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut small = Client::connect(node.mqtt(), &Options::v5("small").maximum_packet_size(100)).await;
    small.subscribe("big", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("big", &[b'x'; 200], QoS::AtLeastOnce).await;
    let message = watcher.message().await;
    assert_eq!((&*message.topic, message.payload.len()), ("$dropped/big", 200));
    assert_eq!(user_property(&message, "hmq-drop-reason"), Some("Maximum Packet Size Exceeded"));
    assert_eq!(user_property(&message, "hmq-drop-client"), Some("small"));
    publisher.publish("big", b"fits", QoS::AtLeastOnce).await;
    assert_eq!(small.text().await, "fits");
}

/// Also a QoS 2 message, which moved into the own queue of the member that was chosen for it.
#[tokio::test]
async fn what_is_too_large_for_the_only_member_of_a_shared_subscription_is_dropped_for_the_shared_subscription() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut small = Client::connect(node.mqtt(), &Options::v5("small").persistent().maximum_packet_size(100)).await;
    small.subscribe("$share/g/big", QoS::ExactlyOnce).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        publisher.publish("big", &[b'x'; 200], qos).await;
        let message = watcher.message().await;
        assert_eq!((&*message.topic, message.payload.len()), ("$dropped/big", 200));
        for (name, value) in [
            ("hmq-drop-reason", Some("Maximum Packet Size Exceeded")),
            ("hmq-drop-origin", Some("shared subscription")),
            ("hmq-drop-shared-subscription", Some("$share/g/big")),
            ("hmq-drop-client", None),
        ] {
            assert_eq!(user_property(&message, name), value, "{qos:?} {name}");
        }
        publisher.publish("big", b"fits", qos).await;
        assert_eq!(small.text().await, "fits");
    }
    watcher.nothing().await;
}
