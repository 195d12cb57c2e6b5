//! Acknowledged means effective on every node: from its SUBACK on a subscription gets what is published anywhere, from its PUBACK on a retained
//! message is found anywhere, and what a client said last on one connection counts before its next one.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use troupemq::mqtt::packet::{Publish, PublishAck};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use super::node_loss::connect_soon;
use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::permit::Weight;
use crate::harness::trio::{Trio, alive};
use crate::harness::{QUIET, SOON, wait};

/// An acknowledgement waits at most this long for a node that says nothing: two seconds, and as long again for new leaders.
const BOUNDED: Duration = Duration::from_secs(8);

/// Rounds of the tests that go for a race; `TROUPEMQ_VISIBLE_ROUNDS` asks for more.
fn rounds(usual: usize) -> usize {
    std::env::var("TROUPEMQ_VISIBLE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn quiet_trio(weight: Weight) -> Trio {
    Trio::ready_with(weight, |config| config.addons = false)
}

async fn one_on_each(trio: &Trio, name: &str) -> Vec<Client> {
    let mut clients = Vec::new();
    for (number, address) in trio.all_mqtt().into_iter().enumerate() {
        clients.push(Client::connect(address, &Options::v5(&format!("{name}-{number}"))).await);
    }
    clients
}

/// SUBACK, then PUBLISH elsewhere: it matches. UNSUBACK, then PUBLISH elsewhere: it does not. `../shared/cases.md`, row 75.
#[tokio::test]
async fn what_is_published_anywhere_after_a_suback_matches_and_after_an_unsuback_does_not() {
    let trio = quiet_trio(Weight::Whole);
    let mut subscribers = one_on_each(&trio, "subscriber").await;
    let mut publishers = one_on_each(&trio, "publisher").await;
    let (mut missed, mut late, rounds) = (Vec::new(), Vec::new(), rounds(300));
    let mut waited = Vec::new();
    for round in 0..rounds {
        let subscriber = &mut subscribers[round % 3];
        let publisher = &mut publishers[(round / 3) % 3];
        let topic = format!("visible/{round}/x");
        let filter = match round % 4 {
            0 | 1 => topic.clone(),
            2 => format!("visible/{round}/+"),
            _ => format!("$share/group/{topic}"),
        };
        let begun = Instant::now();
        subscriber.subscribe(&filter, QoS::AtLeastOnce).await;
        waited.push(begun.elapsed());
        let text = round.to_string();
        if publisher.publish(&topic, text.as_bytes(), QoS::AtLeastOnce).await == ReasonCode::Success {
            assert_eq!(subscriber.text().await, text, "nothing of an earlier round comes");
        } else {
            missed.push(filter.clone());
        }
        subscriber.unsubscribe(&filter).await;
        if publisher.publish(&topic, b"after the UNSUBACK", QoS::AtLeastOnce).await != ReasonCode::NoMatchingSubscribers {
            late.push(filter);
        }
    }
    for subscriber in &mut subscribers {
        subscriber.nothing().await;
    }
    waited.sort_unstable();
    println!("SUBACK after: median {:?}, p99 {:?}", waited[rounds / 2], waited[rounds * 99 / 100]);
    let shown = |filters: &[String]| format!("{} of {rounds}: {:?}", filters.len(), &filters[..filters.len().min(5)]);
    assert!(missed.is_empty(), "not effective after SUBACK: {}", shown(&missed));
    assert!(late.is_empty(), "effective after UNSUBACK: {}", shown(&late));
}

/// Subscribes and tells the retained message that comes with it.
async fn retained(subscriber: &mut Client, topic: &str) -> Option<String> {
    subscriber.subscribe(topic, QoS::AtLeastOnce).await;
    let message = subscriber.try_message(QUIET).await.ok()?;
    assert!(message.retain);
    Some(String::from_utf8_lossy(&message.payload).into_owned())
}

/// `../shared/cases.md`, row 53.
#[tokio::test]
async fn a_retained_message_is_found_on_every_node_from_its_puback_on() {
    let trio = quiet_trio(Weight::Whole);
    let mut publishers = one_on_each(&trio, "publisher").await;
    for round in 0..rounds(30) {
        let mut subscribers = one_on_each(&trio, "subscriber").await;
        let topic = format!("state/{round}");
        let publisher = &mut publishers[round % 3];
        let qos = if round % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        for number in 1..=20 {
            publisher.publish_retained(&topic, number.to_string().as_bytes(), qos).await;
        }
        let [a, b, c] = &mut subscribers[..] else { panic!("three nodes") };
        let filter = if round % 3 == 0 { "state/#".replace('#', &round.to_string()) } else { topic.replace("state", "+") };
        let found = tokio::join!(retained(a, &filter), retained(b, &filter), retained(c, &filter));
        let newest = || Some("20".to_owned());
        assert_eq!(found, (newest(), newest(), newest()), "round {round}");
        publisher.publish_retained(&topic, b"", qos).await;
        for subscriber in &mut subscribers {
            subscriber.session.inbox.clear();
        }
        if round == 0 {
            let mut after = one_on_each(&trio, "after").await;
            let [a, b, c] = &mut after[..] else { panic!("three nodes") };
            assert_eq!(tokio::join!(retained(a, &topic), retained(b, &topic), retained(c, &topic)), (None, None, None));
        }
    }
}

/// `../shared/cases.md`, row 53.
#[tokio::test]
async fn a_node_that_just_came_back_knows_the_newest_retained_message() {
    let mut trio = quiet_trio(Weight::Cluster);
    for round in 0..3 {
        trio.nodes[2].kill();
        let mut publisher = connect_soon(&trio, round % 2, &Options::v5("publisher")).await;
        let topic = format!("back/{round}");
        for number in 1..=50 {
            publisher.publish_retained(&topic, number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        }
        trio.nodes[2].launch();
        for number in 51..=100 {
            publisher.publish_retained(&topic, number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        }
        // As soon as it takes a client at all.
        let mut subscriber = connect_soon(&trio, 2, &Options::v5("subscriber")).await;
        assert_eq!(retained(&mut subscriber, &topic).await.as_deref(), Some("100"), "round {round}");
        trio.wait_ready();
    }
}

/// What reaches subscribers as it is published is found by those who subscribe then, on the same node at the same moment.
#[tokio::test]
async fn a_retained_will_is_found_as_soon_as_it_was_delivered() {
    let trio = quiet_trio(Weight::Cluster);
    let mut live = Client::connect(trio.mqtt(0), &Options::v5("live")).await;
    live.subscribe("wills/+", QoS::AtLeastOnce).await;
    for round in 0..rounds(60) {
        let topic = format!("wills/{round}");
        let options = Options::v5(&format!("dies-{round}")).will(&topic, "gone", 0).retained_will();
        let mut late = Client::connect(trio.mqtt(0), &Options::v5("late")).await;
        let dies = Client::connect(trio.mqtt(round % 3), &options).await;
        drop(dies);
        assert_eq!(live.text().await, "gone");
        assert_eq!(retained(&mut late, &topic).await.as_deref(), Some("gone"), "round {round}");
    }
}

/// The message of a persistent QoS 2 publisher goes by its session's outbox: from PUBREC on it is found everywhere.
#[tokio::test]
async fn a_retained_qos_2_message_of_a_persistent_session_is_found_on_every_node_from_its_pubrec_on() {
    let trio = quiet_trio(Weight::Cluster);
    for round in 0..rounds(30) {
        let mut late = one_on_each(&trio, "late").await;
        let mut publisher = Client::connect(trio.mqtt(round % 3), &Options::v5(&format!("p-{round}")).persistent()).await;
        let topic = format!("exact/{round}");
        for payload in ["first", "second"] {
            let packet = Publish { retain: true, ..publish(&topic, payload.as_bytes(), QoS::ExactlyOnce) };
            publisher.start_publish(packet).await.expect("sent");
            let answer = publisher.next_packet(SOON).await;
            assert!(matches!(answer, Ok(Packet::Pubrec(_))), "{answer:?}");
        }
        let [a, b, c] = &mut late[..] else { panic!("three nodes") };
        let filter = if round % 2 == 0 { topic.clone() } else { format!("+/{round}") };
        let found = tokio::join!(retained(a, &filter), retained(b, &filter), retained(c, &filter));
        let second = || Some("second".to_owned());
        assert_eq!(found, (second(), second(), second()), "round {round}");
    }
}

#[tokio::test]
async fn a_suback_comes_while_a_node_is_killed_or_stopped() {
    let mut trio = quiet_trio(Weight::Cluster);
    let mut subscriber = Client::connect(trio.mqtt(0), &Options::v5("subscriber")).await;
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    let mut check = async |what: &str| {
        for number in 0..30 {
            let topic = format!("{what}/{number}");
            let begun = Instant::now();
            // Answered with "busy" where its shard had no leader for too long: then there is no SUBACK to wait for.
            subscriber.subscribe(&topic, QoS::AtLeastOnce).await;
            let took = begun.elapsed();
            assert!(took < BOUNDED, "{topic}: {took:?}");
            publisher.publish(&topic, topic.as_bytes(), QoS::AtLeastOnce).await;
            assert_eq!(subscriber.text().await, topic);
        }
    };
    check("before").await;
    trio.nodes[2].signal(Signal::STOP);
    check("stopped").await;
    trio.nodes[2].signal(Signal::CONT);
    trio.wait_ready();
    check("continued").await;
    trio.nodes[2].kill();
    check("killed").await;
    trio.nodes[2].launch();
    trio.wait_ready();
    check("returned").await;
}

/// A stopped node may be left out of an acknowledgement. When it goes on, it must not acknowledge what its clients published meanwhile as if the
/// subscription did not exist: it learns of it first, or its clients have to go.
#[tokio::test]
async fn a_node_that_was_stopped_knows_what_was_subscribed_before_it_reads_its_clients() {
    let mut trio = quiet_trio(Weight::Cluster);
    let mut subscriber = Client::connect(trio.mqtt(0), &Options::v5("subscriber")).await;
    for round in 0..4 {
        let other = &trio.nodes[0];
        wait::until("three nodes", SOON, || (alive(other) == 3).then_some(()));
        let mut publisher = connect_soon(&trio, 2, &Options::v5("publisher")).await;
        trio.nodes[2].signal(Signal::STOP);
        let topic = format!("meanwhile/{round}");
        subscriber.subscribe(&topic, QoS::AtLeastOnce).await;
        publisher.start_publish(publish(&topic, b"waits in the socket", QoS::AtLeastOnce)).await.expect("the socket takes it");
        trio.nodes[2].signal(Signal::CONT);
        match publisher.next_packet(SOON).await {
            Ok(Packet::Puback(ack)) => {
                assert_eq!(ack.reason_code, ReasonCode::Success, "round {round}");
                assert_eq!(subscriber.text().await, "waits in the socket", "round {round}");
            }
            Ok(Packet::Disconnect(_)) | Err(Gone::Closed(_)) => println!("round {round}: the publisher has to go"),
            other => panic!("round {round}: {other:?}"),
        }
        trio.wait_ready();
    }
}

/// PUBACK, the end of the socket, and a new connection at once: the message is not sent again.
#[tokio::test]
async fn what_a_client_acknowledged_before_it_connected_anew_is_not_sent_again() {
    let trio = quiet_trio(Weight::Cluster);
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    let options = Options::v5("roams").persistent().manual_ack();
    let mut client = Client::connect(trio.mqtt(0), &options).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    let mut again = 0;
    let rounds = rounds(100);
    for round in 0..rounds {
        let text = round.to_string();
        publisher.publish("t", text.as_bytes(), QoS::AtLeastOnce).await;
        let mut message = client.message().await;
        while message.dup {
            again += 1;
            client.puback(&message).await;
            message = client.message().await;
        }
        assert_eq!(&*message.payload, text.as_bytes());
        let id = message.packet_id.expect("a Packet Identifier");
        client.send(&Packet::Puback(PublishAck::new(id, ReasonCode::Success))).await.expect("the connection is open");
        drop(client);
        client = Client::connect(trio.mqtt(round % 3), &options).await;
        assert!(client.session_present());
    }
    println!("{again} of {rounds} messages came again though they were acknowledged");
    // On a machine that is busy for a second a connection is taken over without waiting longer; without waiting at all it is half of them.
    assert!(again <= rounds / 20, "{again} of {rounds}");
}

/// DISCONNECT on one node and CONNECT on another right behind it: no takeover, no Will.
#[tokio::test]
async fn a_disconnect_counts_before_the_connect_that_follows_it_elsewhere() {
    let trio = quiet_trio(Weight::Cluster);
    let mut watcher = Client::connect(trio.mqtt(1), &Options::v5("watcher")).await;
    watcher.subscribe("will", QoS::AtLeastOnce).await;
    let options = Options::v5("roams").will("will", "must not be published", 0);
    for round in 0..rounds(100) {
        let mut client = Client::connect(trio.mqtt(round % 3), &options).await;
        client.send_bytes(&[0xE0, 0x00]).await.expect("the connection is open");
        let next = Client::connect(trio.mqtt((round + round / 3) % 3), &options).await;
        drop(client);
        next.disconnect().await;
    }
    watcher.nothing().await;
}

/// Clean Start ends the subscriptions of the session before it on every node.
#[tokio::test]
async fn what_is_published_anywhere_after_a_clean_start_does_not_match_the_session_before() {
    let trio = quiet_trio(Weight::Cluster);
    let mut publishers = one_on_each(&trio, "publisher").await;
    let rounds = rounds(150);
    let mut matched = 0;
    for round in 0..rounds {
        let options = Options::v5("starts-anew").persistent();
        let mut client = Client::connect(trio.mqtt(round % 3), &options).await;
        client.subscribe("t", QoS::AtLeastOnce).await;
        client.disconnect().await;
        let client = Client::connect(trio.mqtt((round + 1) % 3), &options.clean_start(true)).await;
        let code = publishers[(round / 3) % 3].publish("t", b"later", QoS::AtLeastOnce).await;
        matched += usize::from(code != ReasonCode::NoMatchingSubscribers);
        drop(client);
    }
    assert_eq!(matched, 0, "of {rounds}");
}

/// [MQTT-4.6.0-5]: the retained message of before is not the last word, wherever both are.
#[tokio::test]
async fn what_is_published_anywhere_after_a_suback_comes_behind_the_retained_message_of_before() {
    let trio = quiet_trio(Weight::Cluster);
    let mut publishers = one_on_each(&trio, "publisher").await;
    for round in 0..rounds(90) {
        let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][round % 2];
        let topic = format!("state/{round}");
        let publisher = &mut publishers[(round / 3) % 3];
        publisher.publish_retained(&topic, b"before", qos).await;
        let options = Options::v5(&format!("subscriber-{}", round % 5)).persistent();
        let mut subscriber = Client::connect(trio.mqtt(round % 3), &options).await;
        subscriber.subscribe(&topic, qos).await;
        publisher.publish_retained(&topic, b"after", qos).await;
        assert_eq!([subscriber.text().await, subscriber.text().await], ["before", "after"], "round {round}");
        subscriber.unsubscribe(&topic).await;
        subscriber.disconnect().await;
    }
}
