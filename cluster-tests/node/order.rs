//! The order of messages and of acknowledgements (MQTT 5 section 4.6).

use troupemq::mqtt::packet::PublishAck;
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const MESSAGES: usize = 40;

/// [MQTT-4.6.0-4]
#[tokio::test]
async fn pubrels_come_in_the_order_of_pubrecs() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for options in [Options::v5("five").persistent(), Options::v3("three").clean_start(false)] {
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("t", QoS::ExactlyOnce).await;
        client.disconnect().await;
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        for number in 0..MESSAGES {
            publisher.publish("t", number.to_string().as_bytes(), QoS::ExactlyOnce).await;
        }
        let mut client = Client::connect(node.mqtt(), &options).await;
        let (mut received, mut released) = (Vec::new(), Vec::new());
        while released.len() < MESSAGES {
            match client.next_packet(SOON).await.expect("a packet") {
                Packet::Publish(message) => {
                    let id = message.packet_id.expect("a Packet Identifier");
                    received.push(id);
                    client.send(&Packet::Pubrec(PublishAck::new(id, ReasonCode::Success))).await.expect("sent");
                }
                Packet::Pubrel(ack) => {
                    released.push(ack.packet_id);
                    client.send(&Packet::Pubcomp(PublishAck::new(ack.packet_id, ReasonCode::Success))).await.expect("sent");
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(released, received, "{}", options.client_id());
    }
}

/// [MQTT-4.6.0-6]
#[tokio::test]
async fn messages_of_a_publisher_arrive_in_their_order() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut subscribers = Vec::new();
    for (name, options) in [("clean", Options::v5("clean")), ("kept", Options::v5("kept").persistent())] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let id = format!("{name}-{qos:?}");
            let mut subscriber = Client::connect(node.mqtt(), &options.clone().named(&id)).await;
            subscriber.subscribe("t/+", qos).await;
            subscribers.push((id, subscriber));
        }
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        for number in 0..MESSAGES {
            // Up to nine under way at once: below the broker's Receive Maximum.
            while publisher.session.unacknowledged() > 8 {
                publisher.step(SOON).await.expect("an acknowledgement");
            }
            publisher.start_publish(publish("t/x", number.to_string().as_bytes(), qos)).await.expect("sent");
        }
        for (id, subscriber) in &mut subscribers {
            for number in 0..MESSAGES {
                assert_eq!(subscriber.text().await, number.to_string(), "{id}, published with {qos:?}");
            }
        }
        while publisher.session.unacknowledged() > 0 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
    }
}

/// [MQTT-4.6.0-5]: what was queued while the session was kept comes before what is published once it is kept no more.
#[tokio::test]
async fn a_backlog_comes_before_what_is_published_after_a_resume_that_keeps_no_session() {
    const WINDOW: usize = 50;
    const QUEUED: usize = 130;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let topic = format!("backlog/{qos:?}");
        let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber").persistent()).await;
        subscriber.subscribe(&topic, qos).await;
        subscriber.disconnect().await;
        for number in 0..QUEUED {
            publisher.publish(&topic, number.to_string().as_bytes(), qos).await;
        }
        let ends = Options::v5("subscriber").clean_start(false).manual_ack();
        let mut subscriber = Client::connect(node.mqtt(), &ends).await;
        assert!(subscriber.session_present());
        let mut window = Vec::new();
        for number in 0..WINDOW {
            window.push(subscriber.message().await);
            assert_eq!(&*window[number].payload, number.to_string().as_bytes());
        }
        for number in QUEUED..QUEUED + 10 {
            publisher.publish(&topic, number.to_string().as_bytes(), qos).await;
        }
        subscriber.auto_ack = true;
        for message in &window {
            let id = message.packet_id.expect("an identifier");
            let ack = PublishAck::new(id, ReasonCode::Success);
            let packet = if qos == QoS::ExactlyOnce { Packet::Pubrec(ack) } else { Packet::Puback(ack) };
            subscriber.send(&packet).await.expect("sent");
        }
        for number in WINDOW..QUEUED + 10 {
            assert_eq!(subscriber.text().await, number.to_string(), "{qos:?}");
        }
        subscriber.disconnect().await;
    }
}

/// [MQTT-4.6.0-5]: the retained message of before is not the last word.
#[tokio::test]
async fn what_is_published_after_a_suback_comes_behind_the_retained_message_of_before() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for round in 0..60 {
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][round % 2];
        let topic = format!("state/{round}");
        publisher.publish_retained(&topic, b"before", qos).await;
        let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber").persistent()).await;
        subscriber.subscribe(&topic, qos).await;
        publisher.publish_retained(&topic, b"after", qos).await;
        assert_eq!([subscriber.text().await, subscriber.text().await], ["before", "after"], "round {round}");
        subscriber.unsubscribe(&topic).await;
        subscriber.disconnect().await;
    }
}
