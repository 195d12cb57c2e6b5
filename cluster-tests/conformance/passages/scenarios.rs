//! The scenarios. Each names the statements of MQTT 5.0 that it proves; the manifest says which of 3.1.1.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use troupemq::mqtt::packet::{Publish, PublishProperties, RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::Passage;
use super::scenario::{Scenario, Stage, packet, seconds_since, send_ack, subscription};
use crate::harness::client::{Client, Gone, Options, Session, publish};
use crate::harness::{QUIET, SOON};

macro_rules! scenario {
    ($name:ident, $only_v5:expr, $absent:expr) => {
        Scenario { name: stringify!($name), only_v5: $only_v5, absent: $absent, run: |stage| Box::pin($name(stage)) }
    };
}

/// Name, whether of MQTT 5 only, whether the client is away during the passage.
pub const ALL: &[Scenario] = &[
    scenario!(a_subscription_lasts, false, false),
    scenario!(an_unsubscribed_filter_stays_unsubscribed, false, false),
    scenario!(subscription_options_last, true, false),
    scenario!(retain_handling_knows_an_existing_subscription, true, false),
    scenario!(messages_wait_for_an_absent_client_in_their_order, false, true),
    scenario!(what_was_not_acknowledged_comes_again, false, false),
    scenario!(a_release_comes_again_and_its_message_does_not, false, false),
    scenario!(a_message_published_again_is_delivered_once, false, false),
    scenario!(identifiers_in_flight_are_not_given_again, false, false),
    scenario!(a_refused_message_does_not_come_again, true, false),
    scenario!(a_receive_maximum_holds_on_the_next_connection, true, true),
    scenario!(a_maximum_packet_size_holds_on_the_next_connection, true, true),
    scenario!(aliases_do_not_last, true, false),
    scenario!(an_expired_message_does_not_come, true, true),
    scenario!(an_expiry_counts_on, true, true),
    scenario!(a_retained_message_lasts, false, false),
    scenario!(a_removed_retained_message_stays_removed, false, false),
    scenario!(clean_start_leaves_nothing, false, true),
    scenario!(a_session_ends_with_its_expiry, true, true),
    scenario!(a_delayed_will_is_published, true, true),
    scenario!(a_delayed_will_is_cancelled_by_resuming, true, true),
    scenario!(a_shared_message_is_completed_with_its_member, true, false),
    scenario!(a_shared_message_ends_with_its_members_session, true, true),
];

/// [MQTT-3.1.2-5], [MQTT-3.1.2-23], [MQTT-3.2.2-3], [MQTT-4.1.0-1]
async fn a_subscription_lasts(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    assert!(!client.session_present());
    client.subscribe(&stage.topic("one"), QoS::AtLeastOnce).await;
    client.subscribe(&stage.topic("two/#"), QoS::ExactlyOnce).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    for (name, qos) in [("one", QoS::AtLeastOnce), ("two/x", QoS::ExactlyOnce)] {
        publisher.publish(&stage.topic(name), name.as_bytes(), QoS::ExactlyOnce).await;
        let message = client.message().await;
        assert_eq!((&*message.topic, message.qos, message.dup), (stage.topic(name).as_str(), qos, false));
    }
    client.nothing().await;
}

/// [MQTT-3.10.4-1]
async fn an_unsubscribed_filter_stays_unsubscribed(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("a"), QoS::AtLeastOnce).await;
    client.subscribe(&stage.topic("+"), QoS::AtLeastOnce).await;
    client.unsubscribe(&stage.topic("+")).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("b"), b"b", QoS::AtLeastOnce).await;
    publisher.publish(&stage.topic("a"), b"a", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "a");
    client.nothing().await;
}

/// [MQTT-3.3.1-12], [MQTT-3.3.1-13], [MQTT-3.3.4-3], [MQTT-3.8.3-3]
async fn subscription_options_last(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    let published = SubscriptionOptions { retain_as_published: true, ..subscription(QoS::AtLeastOnce) };
    let no_local = SubscriptionOptions { no_local: true, ..published };
    client.subscribe_with(&stage.topic("published"), published, Some(1)).await;
    client.subscribe_with(&stage.topic("plain"), subscription(QoS::AtLeastOnce), Some(268_435_455)).await;
    client.subscribe_with(&stage.topic("no-local"), no_local, None).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    for (name, retain, identifiers) in
        [("published", true, vec![1]), ("plain", false, vec![268_435_455]), ("no-local", true, Vec::new())]
    {
        publisher.publish_retained(&stage.topic(name), b"x", QoS::AtLeastOnce).await;
        let message = client.message().await;
        assert_eq!((message.retain, message.properties.subscription_identifiers.to_vec()), (retain, identifiers), "{name}");
    }
    client.publish(&stage.topic("no-local"), b"own", QoS::AtLeastOnce).await;
    client.nothing().await;
}

/// [MQTT-3.3.1-10]
async fn retain_handling_knows_an_existing_subscription(mut stage: Stage) {
    let mut publisher = stage.helper("publisher").await;
    publisher.publish_retained(&stage.topic("t"), b"kept", QoS::AtLeastOnce).await;
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    let if_new = SubscriptionOptions { retain_handling: RetainHandling::SendIfNew, ..subscription(QoS::AtLeastOnce) };
    client.subscribe_with(&stage.topic("+"), if_new, None).await;
    assert_eq!(client.text().await, "kept");
    // Its PUBACK is taken in.
    client.ping().await;
    settle().await;
    let mut client = stage.pass(client, &options).await;
    client.subscribe_with(&stage.topic("+"), if_new, None).await;
    client.nothing().await;
    client.unsubscribe(&stage.topic("+")).await;
    client.subscribe_with(&stage.topic("+"), if_new, None).await;
    assert_eq!(client.text().await, "kept");
}

/// [MQTT-4.5.0-1], [MQTT-4.6.0-6], and the properties of [MQTT-3.3.2-4] and [MQTT-3.3.2-15] to [MQTT-3.3.2-20]
async fn messages_wait_for_an_absent_client_in_their_order(mut stage: Stage) {
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

/// Everything that a publisher can say about a message and that is passed on as it is.
fn full_properties() -> PublishProperties {
    PublishProperties {
        payload_format_indicator: Some(true),
        response_topic: Some("answers/here".into()),
        correlation_data: Some(b"\x00\xFF\x01".as_slice().into()),
        user_properties: vec![
            ("b".into(), "2".into()),
            ("a".into(), "1".into()),
            ("b".into(), "2".into()),
            ("".into(), "".into()),
        ],
        content_type: Some("text/plain".into()),
        ..PublishProperties::default()
    }
}

/// [MQTT-3.3.1-1], [MQTT-4.3.2-3], [MQTT-4.3.3-3], [MQTT-4.4.0-1]; in the order in which they were sent
async fn what_was_not_acknowledged_comes_again(mut stage: Stage) {
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
async fn a_release_comes_again_and_its_message_does_not(mut stage: Stage) {
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
async fn a_message_published_again_is_delivered_once(mut stage: Stage) {
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

/// [MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.3-1]
async fn identifiers_in_flight_are_not_given_again(mut stage: Stage) {
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

/// [MQTT-4.4.0-2]
async fn a_refused_message_does_not_come_again(mut stage: Stage) {
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

/// [MQTT-3.3.4-9], [MQTT-4.9.0-2]
async fn a_receive_maximum_holds_on_the_next_connection(mut stage: Stage) {
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

/// Acknowledges a message to the end.
async fn finish(client: &mut Client, message: &Publish) {
    let id = message.packet_id.expect("above QoS 0").get();
    if message.qos == QoS::AtLeastOnce {
        send_ack(client, Packet::Puback, id, ReasonCode::Success).await;
        return;
    }
    send_ack(client, Packet::Pubrec, id, ReasonCode::Success).await;
    assert!(matches!(packet(client).await, Packet::Pubrel(ack) if ack.packet_id.get() == id), "PUBREC frees no quota");
    send_ack(client, Packet::Pubcomp, id, ReasonCode::Success).await;
}

/// [MQTT-3.1.2-24], [MQTT-3.1.2-25]
async fn a_maximum_packet_size_holds_on_the_next_connection(mut stage: Stage) {
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
async fn aliases_do_not_last(mut stage: Stage) {
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

/// [MQTT-3.3.2-5]
async fn an_expired_message_does_not_come(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    for (text, expiry, qos) in [
        ("short 1", Some(2), QoS::AtLeastOnce),
        ("for ever", None, QoS::AtLeastOnce),
        ("short 2", Some(2), QoS::ExactlyOnce),
        ("long", Some(3600), QoS::ExactlyOnce),
    ] {
        let properties = PublishProperties { message_expiry_interval: expiry, ..PublishProperties::default() };
        let packet = Publish { properties, ..publish(&stage.topic("t"), text.as_bytes(), qos) };
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    let over = Instant::now() + Duration::from_millis(3_100);
    stage.turn().await;
    sleep_until(over).await;
    let mut client = stage.connect(&options, Session::default()).await;
    for text in ["for ever", "long"] {
        assert_eq!(client.text().await, text);
    }
    client.nothing().await;
}

/// [MQTT-3.3.2-6], for a queued and for a retained message
async fn an_expiry_counts_on(mut stage: Stage) {
    const INTERVAL: u32 = 1000;
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("queued"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    let before = Instant::now();
    for name in ["queued", "retained"] {
        let properties = PublishProperties { message_expiry_interval: Some(INTERVAL), ..PublishProperties::default() };
        let retain = name == "retained";
        let packet = Publish { properties, retain, ..publish(&stage.topic(name), name.as_bytes(), QoS::AtLeastOnce) };
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    let stored = Instant::now();
    stage.turn().await;
    sleep_until(stored + Duration::from_millis(2_500)).await;
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("retained"), QoS::AtLeastOnce).await;
    for name in ["queued", "retained"] {
        let waited_at_least = seconds_since(stored);
        let message = client.message().await;
        assert_eq!(&*message.payload, name.as_bytes());
        let left = message.properties.message_expiry_interval.expect("still told");
        let waited_at_most = seconds_since(before) + 1;
        // Rounding may go either way, not further.
        let allowed = INTERVAL - waited_at_most - 1..=INTERVAL - waited_at_least + 1;
        assert!(allowed.contains(&left) && left < INTERVAL, "{name}: {left} is not in {allowed:?}");
    }
}

/// [MQTT-3.3.1-5]
async fn a_retained_message_lasts(mut stage: Stage) {
    // The session that published it is gone by then (3.1.1: [MQTT-3.1.2-7]).
    let mut publisher = stage.helper("publisher").await;
    let properties = full_properties();
    for (name, qos) in [("0", QoS::AtMostOnce), ("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce)] {
        for text in ["replaced", "kept"] {
            let packet =
                Publish { properties: properties.clone(), retain: true, ..publish(&stage.topic(name), text.as_bytes(), qos) };
            publisher.try_publish(packet).await.expect("acknowledged");
        }
    }
    publisher.ping().await;
    publisher.disconnect().await;
    settle().await;
    stage.turn().await;
    let mut client = stage.helper("subscriber").await;
    client.subscribe(&stage.topic("+"), QoS::ExactlyOnce).await;
    let mut levels = Vec::new();
    for _ in 0..3 {
        let message = client.message().await;
        assert_eq!((message.retain, &*message.payload), (true, b"kept".as_slice()));
        if stage.version == ProtocolVersion::V5 {
            assert_eq!(PublishProperties { message_expiry_interval: None, ..message.properties }, properties);
        }
        levels.push(message.qos);
    }
    levels.sort();
    assert_eq!(levels, [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]);
    client.nothing().await;
}

/// [MQTT-3.3.1-6]
async fn a_removed_retained_message_stays_removed(mut stage: Stage) {
    let mut publisher = stage.helper("publisher").await;
    for text in ["there", ""] {
        publisher.publish_retained(&stage.topic("t"), text.as_bytes(), QoS::AtLeastOnce).await;
    }
    stage.turn().await;
    let mut client = stage.helper("subscriber").await;
    client.subscribe(&stage.topic("#"), QoS::AtLeastOnce).await;
    client.nothing().await;
}

/// [MQTT-3.1.2-4]
async fn clean_start_leaves_nothing(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"waiting", QoS::AtLeastOnce).await;
    stage.turn().await;
    let mut client = stage.connect(&options.clone().clean_start(true), Session::default()).await;
    assert!(!client.session_present());
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"later", QoS::AtLeastOnce).await;
    client.nothing().await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    publisher.publish(&stage.topic("t"), b"new", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "new");
}

/// [MQTT-4.1.0-2]
async fn a_session_ends_with_its_expiry(mut stage: Stage) {
    let options = stage.kept("subscriber").expiry(2);
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let over = Instant::now() + Duration::from_millis(3_100);
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"gone", QoS::AtLeastOnce).await;
    stage.turn().await;
    sleep_until(over).await;
    let mut client = stage.connect(&options, Session::default()).await;
    assert!(!client.session_present());
    client.nothing().await;
}

/// [MQTT-3.1.2-7], [MQTT-3.1.2-8]
async fn a_delayed_will_is_published(mut stage: Stage) {
    let watching = stage.kept("watcher");
    let mut watcher = stage.connect(&watching, Session::default()).await;
    watcher.subscribe(&stage.topic("will"), QoS::AtLeastOnce).await;
    watcher.disconnect().await;
    let client = stage.connect(&stage.kept("client").will(&stage.topic("will"), "gone", 2), Session::default()).await;
    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    let left = Instant::now();
    stage.turn().await;
    let mut watcher = stage.connect(&watching, Session::default()).await;
    assert_eq!(watcher.text().await, "gone");
    if !stage.is_killed() {
        assert!(left.elapsed() > Duration::from_millis(1_500), "not before its delay");
    }
    watcher.nothing().await;
}

/// [MQTT-3.1.3-9]
async fn a_delayed_will_is_cancelled_by_resuming(mut stage: Stage) {
    let delay_s = if stage.is_killed() { 12 } else { 6 };
    let watching = stage.kept("watcher");
    let mut watcher = stage.connect(&watching, Session::default()).await;
    watcher.subscribe(&stage.topic("will"), QoS::AtLeastOnce).await;
    watcher.disconnect().await;
    // Its next connection has the same will, as that of most clients.
    let options = stage.kept("client").will(&stage.topic("will"), "gone", delay_s);
    let client = stage.connect(&options, Session::default()).await;
    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    let due = Instant::now() + Duration::from_secs(delay_s.into());
    stage.turn().await;
    let resumed = stage.connect(&options, Session::default()).await;
    let in_time = Instant::now() + Duration::from_secs(1) < due;
    assert!(resumed.session_present());
    sleep_until(due + Duration::from_millis(1_200)).await;
    let mut watcher = stage.connect(&watching, Session::default()).await;
    // A machine too busy to come back in time shows nothing.
    if in_time {
        watcher.nothing().await;
    }
}

/// [MQTT-4.8.2-4]
async fn a_shared_message_is_completed_with_its_member(mut stage: Stage) {
    let (options, mut members, holder, begun) = begun_with_a_member(&stage).await;
    let member = members.swap_remove(holder);
    let mut holding = stage.pass(member, &options[holder]).await;
    if stage.passage != Passage::SameConnection {
        let Packet::Publish(again) = packet(&mut holding).await else { panic!("no PUBLISH") };
        assert_eq!((again.packet_id, again.dup, &*again.payload), (begun.packet_id, true, b"begun".as_slice()));
    }
    finish(&mut holding, &begun).await;
    let mut other = match stage.passage {
        Passage::SameConnection | Passage::Reconnect => members.remove(0),
        _ => stage.connect(&options[1 - holder], Session::default()).await,
    };
    assert_eq!(other.next_packet(QUIET).await, Err(Gone::Timeout), "the message is not the other member's");
}

/// [MQTT-4.8.2-5]
async fn a_shared_message_ends_with_its_members_session(mut stage: Stage) {
    let (options, mut members, holder, _) = begun_with_a_member(&stage).await;
    drop(members.swap_remove(holder));
    let other = members.remove(0);
    stage.turn().await;
    let fresh = stage.connect(&options[holder].clone().clean_start(true), Session::default()).await;
    assert!(!fresh.session_present());
    let mut other = match stage.passage {
        Passage::Reconnect => other,
        _ => stage.connect(&options[1 - holder], Session::default()).await,
    };
    assert_eq!(other.next_packet(2 * QUIET).await, Err(Gone::Timeout), "the message is gone with the session");
}

/// Two members of a shared subscription with a session each, and the index of the one to which a QoS 2 message was sent.
async fn begun_with_a_member(stage: &Stage) -> ([Options; 2], Vec<Client>, usize, Publish) {
    let filter = format!("$share/g/{}", stage.topic("t"));
    let options = [stage.kept("member 0").manual_ack(), stage.kept("member 1").manual_ack()];
    let mut members = Vec::new();
    for options in &options {
        let mut member = stage.connect(options, Session::default()).await;
        member.subscribe(&filter, QoS::ExactlyOnce).await;
        members.push(member);
    }
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"begun", QoS::ExactlyOnce).await;
    let (holder, begun) = tokio::select! {
        begun = first_message(&mut members) => begun,
        () = sleep(SOON) => panic!("no member has the message"),
    };
    (options, members, holder, begun)
}

/// The PUBLISH that one of the clients gets, and which of them.
async fn first_message(members: &mut [Client]) -> (usize, Publish) {
    loop {
        for (index, member) in members.iter_mut().enumerate() {
            match member.next_packet(Duration::from_millis(20)).await {
                Ok(Packet::Publish(message)) => return (index, *message),
                Ok(other) => panic!("unexpected {other:?}"),
                Err(Gone::Timeout) => {}
                Err(gone) => panic!("{gone:?}"),
            }
        }
    }
}

/// Acknowledgements and messages of QoS 0 are confirmed by nobody: what the client sent last has this long to be stored.
async fn settle() {
    sleep(Duration::from_millis(300)).await;
}
