//! Subscription Identifiers.

use troupemq::mqtt::QoS;

use super::kit::{before_marker, publisher, subscribe_as};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 76: [MQTT-3.8.4-3].
#[tokio::test]
async fn a_subscription_made_again_has_the_identifier_of_the_last_subscribe() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = publisher(node.mqtt()).await;
    for options in [Options::v5("volatile"), Options::v5("kept").persistent()] {
        for filter in ["t", "+", "$share/g/t"] {
            let mut client = Client::connect(node.mqtt(), &options).await;
            for (identifiers, seen) in [(&[Some(1), Some(2)][..], &[2][..]), (&[None], &[]), (&[Some(3)], &[3])] {
                for identifier in identifiers {
                    assert!(!subscribe_as(&mut client, filter, QoS::AtLeastOnce, *identifier).await.is_error());
                }
                publisher.publish("t", b"x", QoS::AtLeastOnce).await;
                let message = client.message().await;
                let case = format!("{} {filter} {identifiers:?}", options.client_id());
                assert_eq!(message.properties.subscription_identifiers[..], *seen, "{case}");
                assert_eq!(before_marker(&mut publisher, &mut client, "t").await, [""; 0], "{case}: one copy");
            }
            client.unsubscribe(filter).await;
            client.disconnect().await;
        }
    }
}

/// Row 77: live, queued, resumed and retained copies.
#[tokio::test]
async fn each_copy_has_the_identifier_of_its_subscription_and_none_where_there_is_none() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let options = Options::v5("kept").persistent().manual_ack();
    let mut client = Client::connect(node.mqtt(), &options).await;
    subscribe_as(&mut client, "$share/g/t", QoS::AtLeastOnce, Some(7)).await;
    subscribe_as(&mut client, "u", QoS::AtLeastOnce, None).await;
    subscribe_as(&mut client, "v/+", QoS::AtLeastOnce, Some(268_435_455)).await;
    let topics = [("t", &[7][..]), ("u", &[]), ("v/w", &[268_435_455])];
    let mut publisher = publisher(node.mqtt()).await;
    for (topic, identifiers) in topics {
        publisher.publish(topic, b"live", QoS::AtLeastOnce).await;
        let message = client.message().await;
        assert_eq!(message.properties.subscription_identifiers[..], *identifiers, "live {topic}");
    }
    // Not acknowledged: they come again, and what is published meanwhile behind them, also over a restart.
    drop(client);
    for (topic, _) in topics {
        publisher.publish(topic, b"queued", QoS::AtLeastOnce).await;
    }
    for restart in [false, true] {
        if restart {
            node.kill();
            node.start();
        }
        let mut client = Client::connect(node.mqtt(), &options).await;
        for _ in 0..2 * topics.len() {
            let message = client.message().await;
            let (_, identifiers) = topics.iter().find(|(topic, _)| **topic == *message.topic).expect("a topic of these");
            let case = format!("{} {} again, restarted: {restart}", message.topic, String::from_utf8_lossy(&message.payload));
            assert_eq!(message.properties.subscription_identifiers[..], **identifiers, "{case}");
        }
    }
    // Retained ones at subscribe time.
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish_retained("r", b"retained", QoS::AtLeastOnce).await;
    for options in [Options::v5("new"), Options::v5("new-kept").persistent()] {
        let mut client = Client::connect(node.mqtt(), &options).await;
        for identifier in [Some(9), None] {
            subscribe_as(&mut client, "r", QoS::AtLeastOnce, identifier).await;
            let message = client.message().await;
            let seen: Vec<u32> = message.properties.subscription_identifiers.to_vec();
            assert_eq!(seen, identifier.into_iter().collect::<Vec<u32>>(), "retained");
        }
    }
}
