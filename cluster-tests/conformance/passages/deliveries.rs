//! Messages under way, both ways.

use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::Passage;
use super::scenario::{Stage, full_properties, packet, send_ack, settle};
use crate::harness::QUIET;
use crate::harness::client::{Gone, Session, publish};

/// [MQTT-4.5.0-1], [MQTT-4.6.0-6], and the properties of [MQTT-3.3.2-4] and [MQTT-3.3.2-15] to [MQTT-3.3.2-20]
pub async fn messages_wait_for_an_absent_client_in_their_order(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    let properties = full_properties();
    for number in 0..30 {
        let qos = if number % 3 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let properties = if number % 2 == 0 { properties.clone() } else { PublishProperties::default() };
        let packet = Publish { properties, ..publish(&stage.topic("t"), number.to_string().as_bytes(), qos) };
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    stage.turn().await;
    let mut client = stage.connect(&options, Session::default()).await;
    assert!(client.session_present());
    for number in 0..30 {
        let message = client.message().await;
        let qos = if number % 3 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        assert_eq!((String::from_utf8_lossy(&message.payload).as_ref(), message.qos), (number.to_string().as_str(), qos));
        assert!(!message.dup && !message.retain, "{number} is sent for the first time");
        if stage.version == ProtocolVersion::V5 {
            let wanted = if number % 2 == 0 { properties.clone() } else { PublishProperties::default() };
            let got = PublishProperties { message_expiry_interval: None, ..message.properties };
            assert_eq!(got, wanted, "{number}");
        }
    }
    client.nothing().await;
}

/// [MQTT-3.3.1-1], [MQTT-4.3.2-3], [MQTT-4.3.3-3], [MQTT-4.4.0-1]; in the order in which they were sent
pub async fn what_was_not_acknowledged_comes_again(mut stage: Stage) {
    let options = stage.kept("subscriber").manual_ack();
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    let mut publisher = stage.helper("publisher").await;
    let mut sent = Vec::new();
    for number in 0..8_u8 {
        let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        publisher.publish(&stage.topic("t"), &[number], qos).await;
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        assert!(!message.dup);
        sent.push(*message);
    }
    let mut client = stage.pass(client, &options).await;
    if stage.passage != Passage::SameConnection {
        for before in &sent {
            let Packet::Publish(again) = packet(&mut client).await else { panic!("no PUBLISH") };
            let wanted = Publish { dup: true, ..before.clone() };
            assert_eq!(without_expiry(*again), without_expiry(wanted), "the same but for DUP, and in the same order");
        }
    }
    assert_eq!(client.next_packet(QUIET).await, Err(Gone::Timeout), "each once");
    for message in &sent {
        let id = message.packet_id.expect("above QoS 0").get();
        if message.qos == QoS::AtLeastOnce {
            send_ack(&mut client, Packet::Puback, id, ReasonCode::Success).await;
            continue;
        }
        send_ack(&mut client, Packet::Pubrec, id, ReasonCode::Success).await;
        assert!(matches!(packet(&mut client).await, Packet::Pubrel(ack) if ack.packet_id.get() == id));
        send_ack(&mut client, Packet::Pubcomp, id, ReasonCode::Success).await;
    }
    client.ping().await;
}

fn without_expiry(mut message: Publish) -> Publish {
    message.properties.message_expiry_interval = None;
    message
}

/// [MQTT-4.3.3-5], [MQTT-4.3.3-6], [MQTT-4.4.0-1]
pub async fn a_release_comes_again_and_its_message_does_not(mut stage: Stage) {
    let options = stage.kept("subscriber").manual_ack();
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    let mut publisher = stage.helper("publisher").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        publisher.publish(&stage.topic("t"), b"x", QoS::ExactlyOnce).await;
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        let id = message.packet_id.expect("above QoS 0").get();
        send_ack(&mut client, Packet::Pubrec, id, ReasonCode::Success).await;
        assert!(matches!(packet(&mut client).await, Packet::Pubrel(ack) if ack.packet_id.get() == id));
        ids.push(id);
    }
    let mut client = stage.pass(client, &options).await;
    if stage.passage != Passage::SameConnection {
        for id in &ids {
            let again = packet(&mut client).await;
            assert!(matches!(&again, Packet::Pubrel(ack) if ack.packet_id.get() == *id), "PUBREL {id}, not {again:?}");
        }
    }
    assert_eq!(client.next_packet(QUIET).await, Err(Gone::Timeout), "each once");
    for id in ids {
        send_ack(&mut client, Packet::Pubcomp, id, ReasonCode::Success).await;
    }
    client.ping().await;
}

/// [MQTT-4.3.3-10], [MQTT-4.3.3-11], [MQTT-4.3.3-12]
pub async fn a_message_published_again_is_delivered_once(mut stage: Stage) {
    let watching = stage.kept("subscriber");
    let mut subscriber = stage.connect(&watching, Session::default()).await;
    subscriber.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    subscriber.disconnect().await;
    let options = stage.kept("publisher");
    let mut publisher = stage.connect(&options, Session::default()).await;
    let wanted = |text: &str, dup| {
        let packet_id = Some(7.try_into().expect("not 0"));
        Packet::Publish(Box::new(Publish { packet_id, dup, ..publish(&stage.topic("t"), text.as_bytes(), QoS::ExactlyOnce) }))
    };
    let (once, again, anew) = (wanted("once", false), wanted("once", true), wanted("anew", false));
    publisher.send(&once).await.expect("sent");
    assert!(matches!(packet(&mut publisher).await, Packet::Pubrec(ack) if ack.packet_id.get() == 7));
    let mut publisher = stage.pass(publisher, &options).await;
    for _ in 0..3 {
        publisher.send(&again).await.expect("sent");
        assert!(matches!(packet(&mut publisher).await, Packet::Pubrec(ack) if ack.packet_id.get() == 7));
    }
    for _ in 0..2 {
        // The second finds nothing, and is answered.
        send_ack(&mut publisher, Packet::Pubrel, 7, ReasonCode::Success).await;
        assert!(matches!(packet(&mut publisher).await, Packet::Pubcomp(ack) if ack.packet_id.get() == 7));
    }
    publisher.send(&anew).await.expect("sent");
    assert!(matches!(packet(&mut publisher).await, Packet::Pubrec(ack) if ack.packet_id.get() == 7));
    let mut subscriber = stage.connect(&watching, Session::default()).await;
    assert!(subscriber.session_present());
    assert_eq!((subscriber.text().await, subscriber.text().await), ("once".to_owned(), "anew".to_owned()));
    subscriber.nothing().await;
}

/// [MQTT-4.4.0-2]
pub async fn a_refused_message_does_not_come_again(mut stage: Stage) {
    let options = stage.kept("subscriber").manual_ack();
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    let mut publisher = stage.helper("publisher").await;
    for (qos, refuse) in [(QoS::AtLeastOnce, Packet::Puback as fn(_) -> _), (QoS::ExactlyOnce, Packet::Pubrec as fn(_) -> _)] {
        publisher.publish(&stage.topic("t"), b"unwanted", qos).await;
        let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
        send_ack(&mut client, refuse, message.packet_id.expect("above QoS 0").get(), ReasonCode::QuotaExceeded).await;
    }
    client.ping().await;
    settle().await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"next", QoS::AtLeastOnce).await;
    let Packet::Publish(message) = packet(&mut client).await else { panic!("no PUBLISH") };
    assert_eq!(&*message.payload, b"next");
}
