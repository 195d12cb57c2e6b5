//! What belongs to a connection, and what to its session.

use std::collections::HashSet;

use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use super::Passage;
use super::scenario::{Stage, finish, packet};
use crate::harness::QUIET;
use crate::harness::client::{Gone, Session, publish};

/// [MQTT-3.3.4-9], [MQTT-4.9.0-2]
pub async fn a_receive_maximum_holds_on_the_next_connection(mut stage: Stage) {
    let options = stage.kept("subscriber").manual_ack();
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    for number in 0..5_u8 {
        let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        publisher.publish(&stage.topic("t"), &[number], qos).await;
    }
    stage.turn().await;
    let mut client = stage.connect(&options.receive_maximum(2), Session::default()).await;
    let mut unfinished = Vec::new();
    for number in 0..5_u8 {
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        assert_eq!(&*message.payload, &[number]);
        unfinished.push(*message);
        if unfinished.len() < 2 {
            continue;
        }
        assert_eq!(client.next_packet(QUIET).await, Err(Gone::Timeout), "the quota is used up");
        finish(&mut client, &unfinished.remove(0)).await;
    }
}

/// [MQTT-3.1.2-24], [MQTT-3.1.2-25]
pub async fn a_maximum_packet_size_holds_on_the_next_connection(mut stage: Stage) {
    const LIMIT: usize = 300;
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    let large = "x".repeat(LIMIT);
    for (text, qos) in [
        ("first", QoS::AtLeastOnce),
        (&large, QoS::AtLeastOnce),
        (&large, QoS::ExactlyOnce),
        ("second", QoS::ExactlyOnce),
        (&large, QoS::AtLeastOnce),
        ("third", QoS::AtLeastOnce),
    ] {
        publisher.publish(&stage.topic("t"), text.as_bytes(), qos).await;
    }
    stage.turn().await;
    let mut client =
        stage.connect(&options.clone().maximum_packet_size(LIMIT as u32).receive_maximum(1), Session::default()).await;
    for text in ["first", "second", "third"] {
        assert_eq!(client.text().await, text);
    }
    client.nothing().await;
    client.disconnect().await;
    let mut client = stage.connect(&options, Session::default()).await;
    client.nothing().await;
}

/// [MQTT-3.3.2-7]
pub async fn aliases_do_not_last(mut stage: Stage) {
    let watching = stage.kept("subscriber");
    let mut subscriber = stage.connect(&watching, Session::default()).await;
    subscriber.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    let options = stage.kept("publisher");
    let mut publisher = stage.connect(&options, Session::default()).await;
    let aliased = |topic: &str| {
        let properties = PublishProperties { topic_alias: Some(1), ..PublishProperties::default() };
        Publish { properties, ..publish(topic, b"x", QoS::AtLeastOnce) }
    };
    publisher.try_publish(aliased(&stage.topic("t"))).await.expect("acknowledged");
    assert_eq!(subscriber.text().await, "x");
    let mut publisher = stage.pass(publisher, &options).await;
    if stage.passage == Passage::SameConnection {
        publisher.try_publish(aliased("")).await.expect("acknowledged");
        assert_eq!(subscriber.text().await, "x");
        return;
    }
    publisher.start_publish(aliased("")).await.expect("sent");
    let code = publisher.closed().await;
    assert!(matches!(code, Some(ReasonCode::ProtocolError | ReasonCode::TopicAliasInvalid)), "{code:?}");
}

/// [MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]
pub async fn identifiers_in_flight_are_not_given_again(mut stage: Stage) {
    let options = stage.kept("subscriber").manual_ack();
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    let mut publisher = stage.helper("publisher").await;
    let levels = [QoS::AtLeastOnce, QoS::ExactlyOnce];
    let mut held = HashSet::new();
    for qos in levels {
        publisher.publish(&stage.topic("t"), b"held", qos).await;
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        held.insert(message.packet_id.expect("above QoS 0"));
    }
    assert_eq!(held.len(), levels.len());
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    let mut fresh = HashSet::new();
    for qos in levels {
        publisher.publish(&stage.topic("t"), b"fresh", qos).await;
    }
    while fresh.len() < levels.len() {
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        let id = message.packet_id.expect("above QoS 0");
        if &*message.payload == b"held" {
            assert!(held.contains(&id) && message.dup);
        } else {
            assert!(!held.contains(&id), "{id} is in use");
            assert!(fresh.insert(id), "{id} is in use");
        }
    }
}
