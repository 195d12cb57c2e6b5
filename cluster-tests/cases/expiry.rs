//! Message expiry.

use troupemq::mqtt::QoS;

use super::kit::{self, BrokerClock, before_marker, expiring, publisher, subscriber, wait_metric};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 47: [MQTT-3.3.2-6] for retained messages, and for those that waited in a queue, also over a restart.
#[tokio::test]
async fn the_expiry_interval_counts_down_while_a_message_is_stored() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let sleeper = Options::v5("sleeper").persistent();
    subscriber(node.mqtt(), &sleeper, "t").await.disconnect().await;
    let mut clock = BrokerClock::new(node.mqtt()).await;
    let mut packet = expiring("t", b"stored", QoS::AtLeastOnce, 120);
    packet.retain = true;
    publisher(node.mqtt()).await.try_publish(packet).await.expect("acknowledged");
    clock.pass(2).await;
    for restarted in [false, true] {
        let mut client = subscriber(node.mqtt(), &Options::v5("new"), "t").await;
        let left = client.message().await.properties.message_expiry_interval.expect("an expiry");
        assert!((1..=118).contains(&left), "retained: {left} s left of 120, restarted: {restarted}");
        client.disconnect().await;
        if !restarted {
            node.kill();
            node.start();
        }
    }
    let mut client = Client::connect(node.mqtt(), &sleeper).await;
    let left = client.message().await.properties.message_expiry_interval.expect("an expiry");
    assert!((1..=118).contains(&left), "queued: {left} s left of 120");
}

/// Row 48.
#[tokio::test]
async fn a_retained_message_that_has_expired_is_gone() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut clock = BrokerClock::new(node.mqtt()).await;
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "$expired/#").await;
    let mut publisher = publisher(node.mqtt()).await;
    let mut packet = expiring("kept/t", b"short", QoS::AtLeastOnce, 1);
    packet.retain = true;
    publisher.try_publish(packet).await.expect("acknowledged");
    wait_metric(&node, kit::RETAINED, |count| count == 1.0);
    clock.pass(1).await;
    for options in [Options::v5("new"), Options::v5("new-kept").persistent(), Options::v3("new-3")] {
        let mut client = subscriber(node.mqtt(), &options, "kept/#").await;
        assert_eq!(before_marker(&mut publisher, &mut client, "kept/marker").await, [""; 0]);
    }
    wait_metric(&node, kit::RETAINED, |count| count == 0.0);
    // A stored retained message that expires is no delivery that failed: only the clock's own message is told.
    assert_eq!(&*watcher.message().await.topic, "$expired/clock");
    clock.pass(1).await;
    assert_eq!(&*watcher.message().await.topic, "$expired/clock");
}

/// Row 50: in replicated queues and in those in memory.
#[tokio::test]
async fn a_message_that_expires_behind_a_full_window_is_never_delivered() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut clock = BrokerClock::new(node.mqtt()).await;
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "$expired/t").await;
    let mut publisher = publisher(node.mqtt()).await;
    for options in [Options::v5("volatile"), Options::v5("kept").persistent()] {
        let id = options.client_id().to_owned();
        let options = options.manual_ack().with(|connect| connect.properties.receive_maximum = Some(1));
        let mut client = subscriber(node.mqtt(), &options, "t").await;
        publisher.publish("t", b"first", QoS::AtLeastOnce).await;
        let first = client.message().await;
        publisher.try_publish(expiring("t", b"expires", QoS::AtLeastOnce, 1)).await.expect("acknowledged");
        publisher.publish("t", b"third", QoS::AtLeastOnce).await;
        clock.pass(1).await;
        client.puback(&first).await;
        let third = client.message().await;
        assert_eq!(third.payload, "third", "{id}");
        client.puback(&third).await;
        let told = watcher.message().await;
        assert_eq!(told.payload, "expires", "{id}");
        client.disconnect().await;
        Client::connect(node.mqtt(), &Options::v5(&id)).await.disconnect().await;
    }
    watcher.nothing().await;
}
