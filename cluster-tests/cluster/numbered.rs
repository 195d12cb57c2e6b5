//! Numbered messages while nodes are killed: none acknowledged is lost, none with QoS 2 comes twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use troupemq::mqtt::QoS;

use crate::harness::client::{Gone, Options, publish};
use crate::harness::permit::Weight;
use crate::harness::roamer::Roamer;
use crate::harness::trio::{Trio, alive};
use crate::harness::{SOON, wait};

/// Publishes at least; they go on while nodes are killed.
const MESSAGES_MIN: usize = 500;
/// Unacknowledged at a time; the broker's Receive Maximum is 10.
const WINDOW: usize = 8;

/// `../shared/cases.md`, row 11: machines that restart in turn, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qos_1_publishes_acknowledged_while_nodes_are_killed_all_arrive() {
    let (published, mut received) = numbers_through_kills(QoS::AtLeastOnce).await;
    received.sort_unstable();
    received.dedup();
    let missing: Vec<_> = (0..published).filter(|number| received.binary_search(number).is_err()).collect();
    assert_eq!(missing, Vec::<usize>::new(), "acknowledged and lost, of {published}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qos_2_publishes_while_nodes_are_killed_arrive_exactly_once() {
    let (published, received) = numbers_through_kills(QoS::ExactlyOnce).await;
    let mut sorted = received.clone();
    sorted.sort_unstable();
    let twice: Vec<_> = sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert_eq!(twice, Vec::<usize>::new(), "came twice, of {published}");
    let missing: Vec<_> = (0..published).filter(|number| sorted.binary_search(number).is_err()).collect();
    assert_eq!(missing, Vec::<usize>::new(), "lost, of {published}");
    // [MQTT-4.6.0-6]
    assert!(received.is_sorted(), "in the order of publishing: {received:?}");
}

/// Publishes numbers from one persistent session to another, both connected to nodes that are killed; tells how many were
/// acknowledged (all that were published) and what was received, in order.
async fn numbers_through_kills(qos: QoS) -> (usize, Vec<usize>) {
    let mut trio = Trio::ready_with(Weight::Whole, |config| {
        config.mqtt = "<queued-messages><max-queue-size>100000</max-queue-size></queued-messages>".to_owned();
    });
    let mut subscriber = Roamer::connect(trio.all_mqtt(), 0, Options::v5("subscriber").persistent()).await;
    subscriber.client().await.subscribe("numbers", qos).await;
    let publisher = Roamer::connect(trio.all_mqtt(), 1, Options::v5("publisher").persistent()).await;

    let stop = Arc::new(AtomicBool::new(false));
    let publishing = tokio::spawn(publish_numbers(publisher, qos, Arc::clone(&stop)));
    let receiving = tokio::spawn(receive_numbers(subscriber));
    for node in 0..3 {
        trio.nodes[node].kill();
        let other = (node + 1) % 3;
        wait::until("a survivor has noticed", SOON, || {
            (alive(&trio.nodes[other]) == 2 && trio.nodes[other].is_up()).then_some(())
        });
        trio.nodes[node].launch();
        trio.wait_ready();
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.expect("the publisher ends well");
    // The last message ends the subscriber's wait.
    let mut closer = Roamer::connect(trio.all_mqtt(), 0, Options::v5("closer").persistent()).await;
    closer.client().await.publish("numbers", b"end", QoS::ExactlyOnce).await;
    let received = receiving.await.expect("the subscriber ends well");
    println!("{published} messages with {qos:?}, {} received", received.len());
    (published, received)
}

async fn publish_numbers(mut roamer: Roamer, qos: QoS, stop: Arc<AtomicBool>) -> usize {
    let mut next = 0;
    loop {
        let enough = next >= MESSAGES_MIN && stop.load(Ordering::Relaxed);
        let client = roamer.client().await;
        client.session.acknowledged.clear();
        let outcome = match client.session.unacknowledged() {
            0 if enough => break,
            waiting if waiting < WINDOW && !enough => {
                let packet = publish("numbers", next.to_string().as_bytes(), qos);
                next += 1;
                // Sent or not, it is in the session, and is sent again on the next connection.
                client.start_publish(packet).await.map(|_| ())
            }
            _ => client.step(SOON).await,
        };
        match outcome {
            Ok(()) if client.disconnect.is_none() => {}
            Ok(()) | Err(Gone::Closed(_)) => roamer.lost(),
            Err(Gone::Timeout) => panic!("{} publishes are not acknowledged within {SOON:?}", client.session.unacknowledged()),
        }
    }
    println!("publisher connected {} times", roamer.connects);
    next
}

async fn receive_numbers(mut roamer: Roamer) -> Vec<usize> {
    const SILENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    let mut received = Vec::new();
    loop {
        let message = roamer.message(SILENCE).await;
        let Some(message) = message else {
            panic!("nothing for {SILENCE:?}, {} received in {:?}", received.len(), began.elapsed());
        };
        let text = String::from_utf8_lossy(&message.payload).into_owned();
        if text == "end" {
            break;
        }
        received.push(text.parse().expect("a number"));
    }
    // What comes after the end is more than was published.
    while let Some(message) = roamer.message(Duration::from_secs(1)).await {
        received.push(String::from_utf8_lossy(&message.payload).parse().expect("a number"));
    }
    println!("subscriber connected {} times, {} redelivered", roamer.connects, roamer.redelivered);
    assert_eq!(roamer.wrongly_redelivered, Vec::<String>::new());
    received
}
