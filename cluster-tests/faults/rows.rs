//! Inputs that showed faults on other clusters (`../shared/cases.md`), where no other test of three nodes has them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use troupemq::mqtt::QoS;

use super::kit::{resume, texts_within};
use crate::harness::SOON;
use crate::harness::client::{Client, Gone, Options, Session, publish};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;

/// Row 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_had_from_the_others_while_the_node_that_served_it_is_down() {
    let mut trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("subscriber").persistent().manual_ack();
    let mut subscriber = Client::connect(trio.mqtt(1), &options).await;
    subscriber.subscribe("t", QoS::ExactlyOnce).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher").persistent()).await;
    publisher.patience = 2 * SOON;
    let qos = |number: usize| if number.is_multiple_of(2) { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
    for number in 0..20 {
        publisher.publish("t", number.to_string().as_bytes(), qos(number)).await;
    }
    trio.nodes[1].kill();
    for number in 20..120 {
        publisher.publish("t", number.to_string().as_bytes(), qos(number)).await;
    }
    let mut subscriber = resume(&trio, &[0], &Options::v5("subscriber").persistent(), Session::default()).await;
    assert!(subscriber.session_present());
    let mut received: Vec<usize> = Vec::new();
    while received.len() < 120 {
        received.push(subscriber.text().await.parse().expect("a number"));
    }
    for parity in 0..2 {
        let of_qos: Vec<usize> = received.iter().copied().filter(|number| number % 2 == parity).collect();
        assert_eq!(of_qos, (0..120).filter(|number| number % 2 == parity).collect::<Vec<_>>());
    }
    subscriber.nothing().await;
}

/// Row 9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_or_three_nodes_that_restart_together_come_back_with_what_they_had() {
    let mut trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("kept").persistent();
    let mut client = Client::connect(trio.mqtt(0), &options).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    client.disconnect().await;
    for (round, kill) in [(0, true), (1, false), (2, true), (3, false)] {
        let count = if round < 2 { 2 } else { 3 };
        tokio::task::block_in_place(|| {
            if kill {
                trio.nodes[..count].iter_mut().for_each(Node::kill);
            } else {
                trio.nodes[..count].iter_mut().for_each(Node::terminate);
                trio.nodes[..count].iter_mut().for_each(|node| assert!(node.wait_ended().success(), "{} ends well", node.name));
            }
            trio.nodes[..count].iter_mut().for_each(Node::launch);
            trio.wait_ready();
        });
        keeps(&trio, &options, round).await;
    }
    // All stopped; one alone waits, for as long as it takes, and neither serves nor ends.
    tokio::task::block_in_place(|| {
        trio.nodes.iter_mut().for_each(Node::terminate);
        trio.nodes.iter_mut().for_each(|node| assert!(node.wait_ended().success()));
        trio.nodes[1].launch();
    });
    sleep(Duration::from_secs(6)).await;
    assert!(!trio.nodes[1].is_up() && !trio.nodes[1].stdout().contains("\nTry: "), "one of three");
    tokio::task::block_in_place(|| {
        trio.nodes[0].launch();
        trio.nodes[2].launch();
        trio.wait_ready();
    });
    keeps(&trio, &options, 4).await;
}

async fn keeps(trio: &Trio, options: &Options, round: usize) {
    let text = round.to_string();
    let mut publisher = resume(trio, &[round % 3], &Options::v5("publisher"), Session::default()).await;
    publisher.patience = 2 * SOON;
    if round > 0 {
        publisher.subscribe("retained", QoS::AtLeastOnce).await;
        assert_eq!(publisher.text().await, (round - 1).to_string(), "the retained message of the round before");
    }
    publisher.publish("t", text.as_bytes(), QoS::AtLeastOnce).await;
    publisher.publish_retained("retained", text.as_bytes(), QoS::AtLeastOnce).await;
    publisher.disconnect().await;
    let mut client = resume(trio, &[(round + 1) % 3], options, Session::default()).await;
    assert!(client.session_present(), "round {round}");
    assert_eq!(texts_within(&mut client, Duration::from_millis(500)).await, [text], "round {round}");
    client.disconnect().await;
}

/// Row 45, with a fifth of the messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_keeps_its_order_for_a_client_that_goes_from_node_to_node() {
    const MESSAGES: usize = 400;
    let trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("roams").persistent().receive_maximum(5);
    let mut client = Client::connect(trio.mqtt(0), &options).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    let mut session = client.disconnect().await;
    let address = trio.mqtt(1);
    let mut publisher = Client::connect(address, &Options::v5("publisher")).await;
    for number in 0..MESSAGES / 2 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let publishing = tokio::spawn(async move {
        for number in MESSAGES / 2..MESSAGES {
            publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        }
    });
    let (mut seen, mut order) = (HashSet::new(), Vec::new());
    let mut again_without_dup = Vec::new();
    for (visit, upto) in [100, 180, 260, MESSAGES].into_iter().enumerate() {
        let mut client = resume(&trio, &[visit % 3], &options, session).await;
        assert!(client.session_present());
        while order.len() < upto {
            let message = client.message().await;
            let number: usize = String::from_utf8_lossy(&message.payload).parse().expect("a number");
            if seen.insert(number) {
                order.push(number);
            } else if !message.dup {
                again_without_dup.push(number);
            }
        }
        // Without a word: what is on its way comes again elsewhere.
        session = client.into_session();
    }
    publishing.await.expect("all acknowledged");
    assert_eq!(order, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(again_without_dup, Vec::<usize>::new());
}

/// Row 100, small: each client has a session and three subscriptions, gives up after 5 s and tries again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_clients_that_give_up_and_retry_converges() {
    const CLIENTS: usize = 1_200;
    const AT_ONCE: usize = 300;
    let trio = Trio::ready(Weight::Whole);
    let addresses = trio.all_mqtt();
    let next = Arc::new(AtomicUsize::new(0));
    let gave_up = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut storming = Vec::new();
    for _ in 0..AT_ONCE {
        let (addresses, next, gave_up) = (addresses.clone(), Arc::clone(&next), Arc::clone(&gave_up));
        storming.push(tokio::spawn(async move {
            let mut connected = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= CLIENTS {
                    return connected;
                }
                let options = Options::v5(&format!("storm-{number}")).persistent().connack_within(Duration::from_secs(5));
                let mut client = loop {
                    match Client::try_connect(addresses[number % 3], &options).await {
                        Ok(client) => break client,
                        Err(_) => _ = gave_up.fetch_add(1, Ordering::Relaxed),
                    }
                };
                for filter in ["a", "b", "c"] {
                    client.subscribe(&format!("{filter}/{number}"), QoS::AtLeastOnce).await;
                }
                connected.push((number, client));
            }
        }));
    }
    let mut connected = Vec::new();
    for client in storming {
        connected.extend(client.await.expect("the client ends well"));
    }
    println!("{CLIENTS} clients connected in {:?}, {} attempts given up", began.elapsed(), gave_up.load(Ordering::Relaxed));
    // All of them are served, by the subscriptions they were granted.
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publisher.patience = 2 * SOON;
    for (number, client) in connected.iter_mut().step_by(20) {
        let message = publish(&format!("b/{number}"), b"x", QoS::AtLeastOnce);
        publisher.try_publish(message).await.expect("acknowledged");
        assert_eq!(client.text().await, "x", "storm-{number}");
        assert_eq!(client.try_message(Duration::ZERO).await.err(), Some(Gone::Timeout));
    }
    for node in &trio.nodes {
        let here = node.metric("com_hivemq_networking_connections_current");
        assert!((here - (CLIENTS / 3) as f64).abs() <= 2.0, "{}: {here} connections", node.name);
    }
}
