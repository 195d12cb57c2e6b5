//! Session state.

use std::time::Duration;

use troupemq::mqtt::QoS;

use super::kit::{self, BOTH, BrokerClock, before_marker, node_with, persistent, publisher, subscriber, wait_metric};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 28.
#[tokio::test]
async fn a_session_is_gone_when_its_expiry_interval_has_passed() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let short = Options::v5("short").persistent().expiry(1);
    for restart in [false, true] {
        drop(subscriber(node.mqtt(), &short, "t").await);
        let mut publisher = publisher(node.mqtt()).await;
        publisher.publish("t", b"waits in vain", QoS::AtLeastOnce).await;
        if restart {
            node.kill();
            // The time passes while the node is down: nobody removes the session before its client comes.
            tokio::time::sleep(Duration::from_secs(1)).await;
            node.start();
        } else {
            wait_metric(&node, kit::CONNECTIONS, |connections| connections == 1.0);
            let mut clock = BrokerClock::new(node.mqtt()).await;
            clock.pass(1).await;
        }
        // [MQTT-3.1.2-23]
        let mut client = Client::connect(node.mqtt(), &short).await;
        assert!(!client.session_present(), "restart: {restart}");
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        // Neither the message nor the subscription is left.
        publisher.publish("t", b"nobody subscribes", QoS::AtLeastOnce).await;
        client.subscribe("marker", QoS::ExactlyOnce).await;
        let before = before_marker(&mut publisher, &mut client, "marker").await;
        assert_eq!(before, [""; 0], "restart: {restart}");
        client.disconnect().await;
    }
}

/// Row 28 for 3.1.1, whose sessions have the longest expiry that is allowed.
#[tokio::test]
async fn a_session_of_3_1_1_is_gone_when_the_longest_expiry_interval_has_passed() {
    let _permit = acquire(Weight::Node);
    let node = node_with("<session-expiry><max-interval>1</max-interval></session-expiry>");
    let options = persistent("old", BOTH[1]);
    drop(subscriber(node.mqtt(), &options, "t").await);
    let mut publisher = publisher(node.mqtt()).await;
    publisher.publish("t", b"waits in vain", QoS::AtLeastOnce).await;
    wait_metric(&node, kit::SESSIONS, |sessions| sessions == 1.0);
    wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
    let mut client = Client::connect(node.mqtt(), &options).await;
    assert!(!client.session_present());
    publisher.publish("t", b"nobody subscribes", QoS::AtLeastOnce).await;
    client.subscribe("marker", QoS::ExactlyOnce).await;
    assert_eq!(before_marker(&mut publisher, &mut client, "marker").await, [""; 0]);
}

/// Row 29.
#[tokio::test]
async fn a_session_that_is_present_has_the_message_that_was_acknowledged_meanwhile() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in BOTH {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let options = persistent("away", version);
            let mut client = Client::connect(node.mqtt(), &options).await;
            client.subscribe("t", qos).await;
            client.disconnect().await;
            publisher(node.mqtt()).await.publish("t", b"meanwhile", qos).await;
            let mut client = Client::connect(node.mqtt(), &options).await;
            assert!(client.session_present());
            let message = client.message().await;
            assert_eq!((&*message.payload, message.qos, message.dup), (&b"meanwhile"[..], qos, false), "{version:?}");
            client.ping().await;
            client.disconnect().await;
        }
    }
}
