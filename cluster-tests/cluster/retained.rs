//! Retained messages on three nodes: the same on all, kept over restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use troupemq::mqtt::packet::{Publish, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, QoS};

use super::node_loss::connect_soon;

use crate::harness::client::{Client, Options, publish};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const RETAINED: &str = "com_hivemq_messages_retained_current";

fn retained_count(trio: &Trio) -> f64 {
    trio.nodes.iter().map(|node| node.metric(RETAINED)).sum()
}

/// What a new subscriber of everything gets, until all topics are there.
async fn everything(trio: &Trio, node: usize, topics: usize) -> BTreeMap<String, String> {
    let mut client = Client::connect(trio.mqtt(node), &Options::v5("everything")).await;
    client.subscribe("#", QoS::AtLeastOnce).await;
    let mut found = BTreeMap::new();
    while found.len() < topics {
        let message = client.try_message(SOON).await.unwrap_or_else(|gone| panic!("{} of {topics}: {gone:?}", found.len()));
        assert!(message.retain);
        let former = found.insert(message.topic.to_string(), String::from_utf8_lossy(&message.payload).into_owned());
        assert_eq!(former, None, "{} twice", message.topic);
    }
    client.nothing().await;
    client.disconnect().await;
    found
}

/// Row 53: acknowledged is visible on every node.
#[tokio::test]
async fn the_last_acknowledged_retained_message_is_served_by_every_node_at_once() {
    let mut trio = Trio::ready(Weight::Cluster);
    for round in 0..2 {
        let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
        let mut subscribers = Vec::new();
        for node in 1..3 {
            subscribers.push(Client::connect(trio.mqtt(node), &Options::v5(&format!("subscriber-{node}"))).await);
        }
        for number in 1..=100 {
            publisher.publish_retained("t", format!("{round}/{number}").as_bytes(), QoS::AtLeastOnce).await;
        }
        for subscriber in &mut subscribers {
            subscriber.subscribe("t", QoS::AtLeastOnce).await;
            assert_eq!(subscriber.text().await, format!("{round}/100"));
        }
        // The same with a node that came back a moment ago.
        if round == 0 {
            trio.nodes[2].kill();
            trio.nodes[2].launch();
            trio.wait_ready();
        }
    }
}

/// Row 55.
#[tokio::test]
async fn retained_messages_stay_when_all_nodes_restart_in_turn() {
    const TOPICS: usize = 300;
    let mut trio = Trio::ready(Weight::Cluster);
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for version in ["old", "last"] {
        for number in 0..TOPICS {
            publisher.publish_retained(&format!("r/{number}"), format!("{version} {number}").as_bytes(), QoS::AtLeastOnce).await;
        }
    }
    for node in 0..3 {
        assert!(trio.nodes[node].stop().success());
        trio.nodes[node].launch();
        trio.wait_ready();
    }
    let expected: BTreeMap<_, _> = (0..TOPICS).map(|number| (format!("r/{number}"), format!("last {number}"))).collect();
    for node in 0..3 {
        assert_eq!(everything(&trio, node, TOPICS).await, expected);
    }
}

/// Row 57: QoS 0 is not acknowledged, and yet kept like the others once the log has it.
#[tokio::test]
async fn retained_qos_0_messages_stay_over_a_stop_and_over_a_kill_after_a_moment() {
    const TOPICS: usize = 200;
    let mut trio = Trio::ready(Weight::Cluster);
    for kill in [false, true] {
        let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
        let payload = format!("kill: {kill}");
        for number in 0..TOPICS {
            let packet = Publish { retain: true, ..publish(&format!("r/{number}"), payload.as_bytes(), QoS::AtMostOnce) };
            publisher.start_publish(packet).await.expect("sent");
        }
        publisher.ping().await;
        if kill {
            // The row waits 5 s; what is on all nodes is in the logs of a majority.
            wait::until("all are retained", SOON, || (retained_count(&trio) >= TOPICS as f64).then_some(()));
            tokio::time::sleep(Duration::from_secs(5)).await;
            trio.nodes.iter_mut().for_each(Node::kill);
        } else {
            publisher.disconnect().await;
            wait::until("all are retained", SOON, || (retained_count(&trio) >= TOPICS as f64).then_some(()));
            trio.nodes.iter_mut().for_each(Node::terminate);
            trio.nodes.iter_mut().for_each(|node| assert!(node.wait_ended().success()));
        }
        trio.start_all();
        let found = everything(&trio, 1, TOPICS).await;
        assert!(found.values().all(|text| *text == payload), "{payload}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_agree_on_what_publishers_on_all_of_them_retained_last() {
    const TOPICS: usize = 20;
    const ROUNDS: usize = 30;
    let trio = Trio::ready(Weight::Cluster);
    let publishing: Vec<_> = (0..3)
        .map(|node| {
            let address = trio.mqtt(node);
            tokio::spawn(async move {
                let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][node];
                let mut publisher = Client::connect(address, &Options::v5(&format!("publisher-{node}")).persistent()).await;
                for round in 0..ROUNDS {
                    for topic in 0..TOPICS {
                        let payload = format!("{node}/{round}");
                        let packet = Publish { retain: true, ..publish(&format!("r/{topic}"), payload.as_bytes(), qos) };
                        while publisher.session.unacknowledged() > 8 {
                            publisher.step(SOON).await.expect("an acknowledgement");
                        }
                        publisher.start_publish(packet).await.expect("sent");
                    }
                }
                while publisher.session.unacknowledged() > 0 {
                    publisher.step(SOON).await.expect("an acknowledgement");
                }
                publisher.ping().await;
                publisher.publish_retained(&format!("end/{node}"), b"end", QoS::AtLeastOnce).await;
            })
        })
        .collect();
    for publisher in publishing {
        publisher.await.expect("a publisher");
    }
    let mut last = BTreeMap::new();
    wait::until_async("the nodes agree", SOON, async || {
        let mut of_nodes = Vec::new();
        for node in 0..3 {
            of_nodes.push(everything(&trio, node, TOPICS + 3).await);
        }
        last = of_nodes[0].clone();
        of_nodes.windows(2).all(|pair| pair[0] == pair[1]).then_some(())
    })
    .await;
    let of_last_round = |text: &String| text == "end" || text.ends_with(&format!("/{}", ROUNDS - 1));
    assert!(last.values().all(of_last_round), "each publisher's own order holds: {last:?}");
}

/// A SUBACK promises the retained messages to a persistent session: where they cannot be queued there is none.
#[tokio::test]
async fn a_suback_is_withheld_where_retained_messages_cannot_be_queued() {
    const TOPICS: usize = 50;
    let mut trio = Trio::ready(Weight::Whole);
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for number in 0..TOPICS {
        publisher.publish_retained(&format!("r/{number}"), b"x", QoS::AtLeastOnce).await;
    }
    let (mut given, mut withheld) = (0, 0);
    // The last one waits for its SUBACK.
    for pause_ms in [Some(0), Some(2), None] {
        let options = Options::v5(&format!("subscriber-{pause_ms:?}")).persistent().manual_ack();
        let mut subscriber = connect_soon(&trio, 0, &options).await;
        subscriber.ping().await;
        let packet_id = subscriber.session.next_id();
        let options_of = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        };
        let filters = vec![SubscriptionRequest { filter: "r/#".into(), options: options_of }];
        let packet = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
        subscriber.send(&Packet::Subscribe(Box::new(packet))).await.expect("sent");
        let at_once = match pause_ms {
            Some(pause_ms) => {
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                false
            }
            None => subscriber.answer(packet_id).await.is_ok(),
        };
        // Nothing can be agreed on from here.
        trio.nodes[1].signal(Signal::STOP);
        trio.nodes[2].signal(Signal::STOP);
        let answered = at_once || subscriber.answer(packet_id).await.is_ok();
        subscriber.reset();
        trio.nodes[1].signal(Signal::CONT);
        trio.nodes[2].signal(Signal::CONT);
        trio.wait_ready();
        if answered {
            given += 1;
            let mut back = connect_soon(&trio, 1, &options.clone().receive_maximum(100)).await;
            assert!(back.session_present());
            let mut found = BTreeSet::new();
            while found.len() < TOPICS {
                let message = back.try_message(SOON).await;
                let message = message.unwrap_or_else(|gone| panic!("{pause_ms:?} ms: {} came: {gone:?}", found.len()));
                back.puback(&message).await;
                found.insert(message.topic.to_string());
            }
            back.disconnect().await;
        } else {
            withheld += 1;
        }
    }
    println!("SUBACKs given: {given}, withheld: {withheld}");
    assert!(given > 0, "where nothing is in the way there is one");
}

/// What a publisher sends behind a QoS 2 message is retained behind it, though that takes another way.
#[tokio::test]
async fn the_last_of_messages_with_different_qos_sent_without_waiting_is_retained() {
    const ROUNDS: usize = 60;
    let trio = Trio::ready(Weight::Cluster);
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher").persistent()).await;
    let mut reader = Client::connect(trio.mqtt(1), &Options::v5("reader")).await;
    let mut wrong = Vec::new();
    for round in 0..ROUNDS {
        let topic = format!("r/{round}");
        let last = if round % 2 == 0 { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        for (payload, qos) in [("first", QoS::ExactlyOnce), ("second", QoS::ExactlyOnce), ("last", last)] {
            let packet = Publish { retain: true, ..publish(&topic, payload.as_bytes(), qos) };
            publisher.start_publish(packet).await.expect("sent");
        }
        while publisher.session.unacknowledged() > 0 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
        publisher.session.acknowledged.clear();
        // All three are retained now, or were.
        publisher.publish_retained(&format!("{topic}/end"), b"end", QoS::AtLeastOnce).await;
        if last == QoS::AtMostOnce {
            wait::until_async("the QoS 0 message is retained", SOON, async || {
                reader.subscribe(&topic, QoS::AtLeastOnce).await;
                (reader.text().await == "last").then_some(())
            })
            .await;
        } else {
            reader.subscribe(&topic, QoS::AtLeastOnce).await;
            let found = reader.text().await;
            if found != "last" {
                wrong.push((round, found));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // And stays the last.
    for (topic, text) in everything(&trio, 2, 2 * ROUNDS).await {
        assert!(text == "last" || text == "end", "{topic}: {text}");
    }
}
