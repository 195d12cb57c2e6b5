//! Flow control and back-pressure.

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{Packet, QoS};

use super::kit::{self, node_with, publisher, queue_of, subscriber, wait_metric};
use crate::harness::client::{Client, Gone, Options, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{QUIET, SOON};

fn receive_maximum(options: Options, maximum: u16) -> Options {
    options.with(|connect| connect.properties.receive_maximum = Some(maximum))
}

/// Row 41: [MQTT-4.9.0-1], the quota begins anew with each connection.
#[tokio::test]
async fn the_send_quota_is_that_of_this_connection() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let options = Options::v5("narrow").persistent().manual_ack();
        let mut client = Client::connect(node.mqtt(), &receive_maximum(options.clone(), 1)).await;
        client.subscribe("t", qos).await;
        let mut publisher = publisher(node.mqtt()).await;
        publisher.publish("t", b"0", qos).await;
        let first = client.message().await;
        drop(client);
        for number in 1..=4 {
            publisher.publish("t", number.to_string().as_bytes(), qos).await;
        }
        let mut client = Client::connect(node.mqtt(), &receive_maximum(options.clone(), 4)).await;
        let again = client.message().await;
        assert_eq!((again.dup, again.packet_id, &*again.payload), (true, first.packet_id, &b"0"[..]), "{qos:?}");
        let mut open = vec![again];
        for number in 1..4 {
            let message = client.message().await;
            assert_eq!((message.dup, message.payload.clone()), (false, number.to_string().into()), "{qos:?}");
            open.push(message);
        }
        // [MQTT-3.3.4-9]
        assert_eq!(client.try_message(QUIET).await, Err(Gone::Timeout), "{qos:?}");
        acknowledge(&mut client, &open.remove(0)).await;
        assert_eq!(client.text().await, "4", "{qos:?}");
        client.disconnect().await;
        Client::connect(node.mqtt(), &Options::v5("narrow")).await.disconnect().await;
    }
}

/// PUBACK, or PUBREC and what follows.
async fn acknowledge(client: &mut Client, message: &Publish) {
    if message.qos == QoS::AtLeastOnce {
        return client.puback(message).await;
    }
    kit::send_ack(client, Packet::Pubrec, message.packet_id.expect("QoS 2").get()).await;
    // The harness answers PUBREL.
    client.step(SOON).await.expect("PUBREL");
}

/// Row 42, with a smaller backlog.
#[tokio::test]
async fn a_slow_backlog_keeps_its_window_and_does_not_hold_up_others() {
    const BACKLOG: usize = 1000;
    const LIVE: usize = 300;
    const WINDOW: usize = 10;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(BACKLOG + LIVE));
    let slow_options = receive_maximum(Options::v5("slow").persistent().manual_ack(), WINDOW as u16);
    subscriber(node.mqtt(), &slow_options, "t").await.disconnect().await;
    let mut fast = subscriber(node.mqtt(), &Options::v5("fast"), "t").await;
    let mut publisher = publisher(node.mqtt()).await;
    for number in 0..BACKLOG {
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(fast.text().await, number.to_string());
    }

    // Each live message reaches the fast one before the slow one has acknowledged anything more.
    let mut slow = Client::connect(node.mqtt(), &slow_options).await;
    let mut open = Vec::new();
    let mut next = 0;
    for number in BACKLOG..BACKLOG + LIVE {
        while open.len() < WINDOW {
            let message = slow.message().await;
            assert_eq!(message.payload, next.to_string());
            next += 1;
            open.push(message);
        }
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(fast.text().await, number.to_string());
        slow.ping().await;
        assert!(slow.session.inbox.is_empty(), "more than {WINDOW} unacknowledged messages");
        // Every tenth message it gets round to one acknowledgement.
        if number % 10 == 0 {
            slow.puback(&open.remove(0)).await;
        }
    }
    for message in &open {
        slow.puback(message).await;
    }
    slow.auto_ack = true;
    for number in next..BACKLOG + LIVE {
        assert_eq!(slow.text().await, number.to_string());
    }
}

/// Row 43, with fewer messages: replicated queues and those in memory.
#[tokio::test]
async fn a_client_that_never_acknowledges_has_a_bounded_queue_and_its_drops_are_told() {
    const QUEUE: usize = 100;
    const MESSAGES: usize = 250;
    const WINDOW: usize = 20;
    /// MQTT 3 has no Receive Maximum: the broker's own window (spec/hivemq.md 2.5).
    const OWN_WINDOW: usize = 50;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(QUEUE));
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "$dropped/#").await;
    let narrow = |options| receive_maximum(options, WINDOW as u16);
    let clients = [
        (narrow(Options::v5("volatile")), WINDOW),
        (narrow(Options::v5("kept").persistent()), WINDOW),
        (Options::v3("volatile-3"), OWN_WINDOW),
        (Options::v3("kept-3").persistent(), OWN_WINDOW),
    ];
    for (round, (options, window)) in clients.into_iter().enumerate() {
        let id = options.client_id().to_owned();
        let options = options.manual_ack();
        let mut client = subscriber(node.mqtt(), &options, "t").await;
        let mut publisher = publisher(node.mqtt()).await;
        let before = node.metric("com_hivemq_messages_dropped_queue_full_count");
        for number in 0..MESSAGES {
            publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
            if number % 100 == 0 {
                client.ping().await;
            }
            if number >= QUEUE {
                let message = watcher.message().await;
                assert_eq!(message.payload, number.to_string(), "{id}");
                assert_eq!(user_property(&message, "hmq-drop-client"), Some(id.as_str()));
                assert_eq!(user_property(&message, "hmq-drop-reason"), Some("Client Message Queue Full"));
            }
        }
        for number in 0..window {
            let message = client.message().await;
            assert_eq!((message.dup, message.payload), (false, number.to_string().into()), "{id}");
        }
        client.ping().await;
        assert!(client.session.inbox.is_empty(), "{id}: nothing above the window, nothing again");
        wait_metric(&node, "com_hivemq_messages_dropped_queue_full_count", |drops| drops - before == (MESSAGES - QUEUE) as f64);
        wait_metric(&node, kit::QUEUED, |queued| queued <= QUEUE as f64);
        assert_eq!(node.metric(kit::DROPPED), ((round + 1) * (MESSAGES - QUEUE)) as f64, "{id}");
        client.disconnect().await;
        Client::connect(node.mqtt(), &Options::v5(&id)).await.disconnect().await;
    }
    watcher.nothing().await;
}
