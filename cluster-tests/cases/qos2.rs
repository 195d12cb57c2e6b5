//! QoS 2 exchanges.

use std::collections::VecDeque;
use std::num::NonZeroU16;

use troupemq::mqtt::packet::PublishAck;
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use super::kit::{BOTH, BrokerClock, before_marker, expiring, persistent, publisher, send_ack, subscriber};
use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 33: [MQTT-4.3.3-7] holds for replicated queues and for those in memory.
#[tokio::test]
async fn expiry_does_not_touch_an_exchange_that_has_begun() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut clock = BrokerClock::new(node.mqtt()).await;
    let mut clients = Vec::new();
    for options in [Options::v5("volatile"), Options::v5("kept").persistent()] {
        let client = subscriber(node.mqtt(), &options.manual_ack(), "t").await;
        clients.push(client);
    }
    let mut publisher = publisher(node.mqtt()).await;
    publisher.try_publish(expiring("t", b"begun", QoS::ExactlyOnce, 1)).await.expect("acknowledged");
    let mut ids = Vec::new();
    for client in &mut clients {
        ids.push(client.message().await.packet_id.expect("QoS 2"));
    }
    clock.pass(1).await;
    for (client, id) in clients.iter_mut().zip(ids) {
        send_ack(client, Packet::Pubrec, id.get()).await;
        assert_eq!(client.next_packet(SOON).await, Ok(Packet::Pubrel(PublishAck::new(id, ReasonCode::Success))));
        send_ack(client, Packet::Pubcomp, id.get()).await;
    }
    for client in &mut clients {
        assert_eq!(before_marker(&mut publisher, client, "t").await, [""; 0]);
    }
}

/// Row 38.
#[tokio::test]
async fn above_the_receive_maximum_a_publisher_is_disconnected_and_within_it_served() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for options in [Options::v5("volatile"), Options::v5("kept").persistent()] {
        let mut client = Client::connect(node.mqtt(), &options).await;
        let maximum = client.connack.as_ref().and_then(|connack| connack.properties.receive_maximum).expect("a limit");
        let packet = |number: u16| {
            let mut packet = publish("t", b"", QoS::ExactlyOnce);
            packet.packet_id = NonZeroU16::new(number);
            Packet::Publish(Box::new(packet))
        };
        for number in 1..=maximum {
            client.send(&packet(number)).await.expect("sent");
        }
        for number in 1..=maximum {
            match client.next_packet(SOON).await.expect("PUBREC") {
                Packet::Pubrec(ack) => {
                    assert_eq!(ack.packet_id.get(), number);
                    assert!(!ack.reason_code.is_error(), "{ack:?}");
                }
                other => panic!("{other:?}"),
            }
        }
        client.send(&packet(maximum + 1)).await.expect("sent");
        assert_eq!(client.closed().await, Some(ReasonCode::ReceiveMaximumExceeded));
    }
}

/// Row 39, shortened; the identifiers pass 65,535.
#[tokio::test]
async fn an_identifier_is_free_as_soon_as_its_exchange_is_complete() {
    const OVERLAPPING: usize = 4;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for (options, exchanges) in
        [(Options::v5("volatile"), 3000), (Options::v5("kept").persistent(), 1500), (persistent("kept", BOTH[1]), 500)]
    {
        let name = options.client_id().to_owned();
        let mut client = Client::connect(node.mqtt(), &options).await;
        let mut next = u16::MAX - 200;
        let (mut open, mut started, mut completed) = (VecDeque::new(), 0, 0);
        while completed < exchanges {
            while open.len() < OVERLAPPING && started < exchanges {
                let mut packet = publish("t", b"", QoS::ExactlyOnce);
                // A small set of identifiers is used again and again, every other round.
                packet.packet_id = NonZeroU16::new(next);
                client.send(&Packet::Publish(Box::new(packet))).await.expect("sent");
                open.push_back(next);
                started += 1;
                next = if started % 400 == 0 { u16::MAX - 200 } else { next.checked_add(1).unwrap_or(1) };
            }
            match client.next_packet(SOON).await.expect("an answer") {
                Packet::Pubrec(ack) => {
                    assert!(!ack.reason_code.is_error(), "{name}: {ack:?} after {completed}");
                    send_ack(&mut client, Packet::Pubrel, ack.packet_id.get()).await;
                }
                Packet::Pubcomp(ack) => {
                    assert_eq!(ack.reason_code, ReasonCode::Success, "{name}: {ack:?} after {completed}");
                    open.retain(|id| *id != ack.packet_id.get());
                    completed += 1;
                }
                other => panic!("{name}: {other:?}"),
            }
        }
    }
}

/// Row 40.
#[tokio::test]
async fn no_message_of_overlapping_exchanges_is_lost_and_each_topic_keeps_its_order() {
    const ROUNDS: usize = 150;
    const TOPICS: [&str; 3] = ["t/1", "t/2", "t/3"];
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut subscribers = Vec::new();
    for (name, options, qos) in [
        ("QoS 0", Options::v5("s0"), QoS::AtMostOnce),
        ("QoS 2", Options::v5("s2"), QoS::ExactlyOnce),
        ("QoS 2, kept", Options::v5("s2k").persistent(), QoS::ExactlyOnce),
        ("QoS 2, 3.1.1", Options::v3("s2-3"), QoS::ExactlyOnce),
    ] {
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("#", qos).await;
        subscribers.push((name, client));
    }
    for options in [Options::v5("p"), Options::v5("pk").persistent(), Options::v3("p3")] {
        let mut publisher = Client::connect(node.mqtt(), &options).await;
        for round in 0..ROUNDS {
            for (index, topic) in TOPICS.iter().enumerate() {
                let mut packet = publish(topic, round.to_string().as_bytes(), QoS::ExactlyOnce);
                packet.packet_id = NonZeroU16::new(index as u16 + 1);
                publisher.send(&Packet::Publish(Box::new(packet))).await.expect("sent");
            }
            let mut completed = 0;
            while completed < TOPICS.len() {
                match publisher.next_packet(SOON).await.expect("an answer") {
                    Packet::Pubrec(ack) => send_ack(&mut publisher, Packet::Pubrel, ack.packet_id.get()).await,
                    Packet::Pubcomp(_) => completed += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        for (name, subscriber) in &mut subscribers {
            let mut next = [0; TOPICS.len()];
            for _ in 0..ROUNDS * TOPICS.len() {
                let message = subscriber.message().await;
                let index = TOPICS.iter().position(|topic| **topic == *message.topic).expect("a topic of these");
                let case = format!("{name} from {}, {}", options.client_id(), message.topic);
                assert_eq!(String::from_utf8_lossy(&message.payload), next[index].to_string(), "{case}");
                next[index] += 1;
            }
            assert_eq!(next, [ROUNDS; TOPICS.len()], "{name}");
        }
    }
}
