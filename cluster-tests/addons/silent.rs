//! What add-on topics do not tell.

use troupemq::mqtt::packet::{RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{QoS, ReasonCode};

use super::ear;
use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Subscribes as a client that goes away.
async fn leaves(node: &Node, options: &Options, filter: &str) {
    let mut client = Client::connect(node.mqtt(), options).await;
    client.subscribe(filter, QoS::ExactlyOnce).await;
    client.disconnect().await;
}

#[tokio::test]
async fn messages_of_a_session_that_ends_are_not_told_though_they_would_expire_then() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$expired/#", "$dropped/#", "$dead/t"]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    // One ends by its interval, one by a clean start; the last one stays, and says when it is time.
    leaves(&node, &Options::v5("ends").expiry(1), "t").await;
    leaves(&node, &Options::v5("begins anew").persistent(), "t").await;
    leaves(&node, &Options::v5("stays").persistent(), "t").await;
    for (payload, seconds) in [("1", 2), ("2", 3)] {
        let mut packet = publish("t", payload.as_bytes(), QoS::AtLeastOnce);
        packet.properties.message_expiry_interval = Some(seconds);
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    Client::connect(node.mqtt(), &Options::v5("begins anew")).await.disconnect().await;
    for payload in ["1", "2"] {
        let message = told.message().await;
        assert_eq!((&*message.topic, &*message.payload), ("$expired/t", payload.as_bytes()));
        assert_eq!(user_property(&message, "hmq-exp-client"), Some("stays"));
    }
    told.nothing().await;
}

/// A message that somebody subscribes to is not dead, though nobody gets it, nor is it dropped.
#[tokio::test]
async fn what_no_receiver_is_to_have_is_neither_dead_nor_dropped() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$dropped/#", "$dead/away", "$dead/own", "$dead/end"]).await;
    leaves(&node, &Options::v5("away").persistent(), "away").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    // QoS 0 is not kept for those who are away.
    publisher.publish("away", b"", QoS::AtMostOnce).await;
    // No Local.
    let options = SubscriptionOptions {
        qos: QoS::AtLeastOnce,
        no_local: true,
        retain_as_published: false,
        retain_handling: RetainHandling::Send,
    };
    publisher.subscribe_as("own", options, None).await;
    publisher.publish("own", b"", QoS::AtLeastOnce).await;
    // That $dead has a subscriber does not give the message one.
    assert_eq!(publisher.publish("end", b"", QoS::AtLeastOnce).await, ReasonCode::NoMatchingSubscribers);
    assert_eq!(&*told.message().await.topic, "$dead/end");
    told.nothing().await;
}

/// Wills are messages of their clients.
#[tokio::test]
async fn a_will_is_dead_or_expires_as_any_message_of_its_client() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$dead/will/#", "$expired/will/#"]).await;
    leaves(&node, &Options::v5("sleeper").persistent(), "will/kept").await;
    let options = |id: &str, topic: &str, delay_s: u32| {
        let options = Options::v5(id).expiry(60).will(topic, id, delay_s);
        options.with(|connect| {
            if let Some(will) = &mut connect.will {
                will.properties.message_expiry_interval = Some(1);
            }
        })
    };
    for (id, topic, delay_s) in [("at once", "will/nobody", 0), ("later", "will/nobody", 1), ("expires", "will/kept", 0)] {
        Client::connect(node.mqtt(), &options(id, topic, delay_s)).await.reset();
        let message = told.message().await;
        assert_eq!(message.payload, id);
        if topic == "will/kept" {
            assert_eq!(&*message.topic, "$expired/will/kept");
            assert_eq!(user_property(&message, "hmq-exp-client"), Some("sleeper"));
        } else {
            assert_eq!(&*message.topic, "$dead/will/nobody");
            assert_eq!(user_property(&message, "hmq-dead-origin"), Some("client"));
            assert_eq!(user_property(&message, "hmq-dead-client"), Some(id));
        }
    }
    told.nothing().await;
}
