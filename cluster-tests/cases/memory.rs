//! Memory. The limits are those of small numbers: that of a process is the matter of a machine with a container.

use std::time::Duration;

use troupemq::mqtt::QoS;

use super::kit::{self, memory_mib, node_with, publisher, queue_of, subscriber, wait_metric};
use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const QOS0_DROPPED: &str = "com_hivemq_messages_dropped_qos_0_memory_exceeded_count";
const NOT_WRITABLE_DROPPED: &str = "com_hivemq_messages_dropped_not_writable_count";

/// Row 106, the cost of a retained topic.
#[tokio::test]
async fn a_retained_topic_costs_little_more_than_its_bytes() {
    const TOPICS: usize = 6_000;
    /// Payload of 100 bytes, topic, and what a record, its place in the tree and its log entry take.
    const BYTES_EACH: u64 = 5 * 1024;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = publisher(node.mqtt()).await;
    publisher.publish_retained("warm/up", &[b'x'; 100], QoS::AtLeastOnce).await;
    let before = memory_mib(&node);
    for number in 0..TOPICS {
        while publisher.session.unacknowledged() > 8 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
        let mut packet = publish(&format!("many/{number}"), &[b'x'; 100], QoS::AtLeastOnce);
        packet.retain = true;
        publisher.start_publish(packet).await.expect("sent");
    }
    wait_metric(&node, kit::RETAINED, |count| count == (TOPICS + 1) as f64);
    let grown = memory_mib(&node).saturating_sub(before);
    let allowed = TOPICS as u64 * BYTES_EACH / (1024 * 1024);
    assert!(grown < allowed, "{TOPICS} retained topics took {grown} MiB, {allowed} are allowed");
}

/// Row 107: what subscribers of everything wait for is shared, not copied for each.
#[tokio::test]
async fn slow_subscribers_of_all_retained_messages_do_not_copy_them() {
    const TOPICS: usize = 1500;
    const PAYLOAD: usize = 16 * 1024;
    const ALL_MIB: u64 = (TOPICS * PAYLOAD / (1024 * 1024)) as u64;
    const SUBSCRIBERS: usize = 10;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = publisher(node.mqtt()).await;
    for number in 0..TOPICS {
        publisher.publish_retained(&format!("many/{number}"), &[b'x'; PAYLOAD], QoS::AtLeastOnce).await;
    }
    wait_metric(&node, kit::RETAINED, |count| count == TOPICS as f64);
    // Queues in memory point to the retained messages. Those that are replicated are copies on disk, and may fill the caches of the
    // storage engine.
    let volatile = Options::v5("volatile").manual_ack();
    for (options, limit_mib) in
        [(volatile.clone(), 2 * ALL_MIB), (volatile.named("kept").persistent(), SUBSCRIBERS as u64 * ALL_MIB)]
    {
        let before = memory_mib(&node);
        let named = |number: usize| options.clone().named(&format!("{}-{number}", options.client_id()));
        let mut slow = Vec::new();
        for number in 0..SUBSCRIBERS {
            let mut client = subscriber(node.mqtt(), &named(number), "#").await;
            client.message().await;
            slow.push(client);
        }
        for _ in 0..8 {
            let grown = memory_mib(&node).saturating_sub(before);
            let name = options.client_id();
            assert!(grown < limit_mib, "{SUBSCRIBERS} {name} subscribers took {grown} MiB for {ALL_MIB} MiB of payload");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for client in slow {
            client.disconnect().await;
        }
        for number in 0..SUBSCRIBERS {
            Client::connect(node.mqtt(), &named(number).expiry(0).clean_start(true)).await.disconnect().await;
        }
        wait_metric(&node, kit::SESSIONS, |count| count == 1.0);
        wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
    }
}

/// Row 108: a QoS 0 subscriber that does not keep up costs its own memory limit (5 MiB) and no more, and its losses are told.
#[tokio::test]
async fn a_slow_qos_0_subscriber_is_bounded_and_its_drops_are_told() {
    const MESSAGES: usize = 6000;
    const PAYLOAD: usize = 10 * 1024;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "$dropped/#").await;
    let mut slow = Client::connect(node.mqtt(), &Options::v5("slow")).await;
    slow.subscribe("test/#", QoS::AtMostOnce).await;
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.subscribe("test/mark", QoS::AtLeastOnce).await;
    let mut publisher = publisher(node.mqtt()).await;
    let before = memory_mib(&node);
    let mut dropped = 0.0;
    for number in 0..MESSAGES {
        publisher.start_publish(publish("test/n", &[b'x'; PAYLOAD], QoS::AtMostOnce)).await.expect("sent");
        if number % 500 == 0 {
            publisher.publish("test/mark", b"", QoS::AtLeastOnce).await;
            other.message().await;
            dropped = node.metric(QOS0_DROPPED) + node.metric(NOT_WRITABLE_DROPPED);
            if dropped > 1000.0 {
                break;
            }
        }
    }
    assert!(dropped > 0.0, "nothing was dropped for a subscriber that reads nothing");
    let told = watcher.message().await;
    assert_eq!(user_property(&told, "hmq-drop-client"), Some("slow"));
    let reason = user_property(&told, "hmq-drop-reason").expect("a reason");
    assert!(["QoS 0 Memory Exceeded", "QoS 0 Channel Not Writable"].contains(&reason), "{reason}");
    let used = node.metric("com_hivemq_qos_0_memory_used") / 1024.0 / 1024.0;
    // The watcher reads nothing meanwhile: it has what it is told of waiting, within the same limit.
    assert!(used < 2.0 * 5.0 + 1.0, "{used} MiB wait for two clients");
    let grown = memory_mib(&node).saturating_sub(before);
    assert!(grown < 64, "{grown} MiB");
    slow.message().await;
}

/// Row 109, with a queue of thousands: the limit holds, and the backlog survives a crash and drains.
#[tokio::test]
async fn the_queue_of_a_long_outage_keeps_its_limit_and_drains_after_a_crash() {
    const LIMIT: usize = 1500;
    const MESSAGES: usize = 2000;
    let _permit = acquire(Weight::Node);
    let mut node = node_with(&queue_of(LIMIT));
    let options = Options::v5("away").persistent();
    subscriber(node.mqtt(), &options, "t").await.disconnect().await;
    let mut publisher = publisher(node.mqtt()).await;
    for number in 0..MESSAGES {
        while publisher.session.unacknowledged() > 8 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
        let payload = format!("{number:01024}");
        publisher.start_publish(publish("t", payload.as_bytes(), QoS::ExactlyOnce)).await.expect("sent");
    }
    while publisher.session.unacknowledged() > 0 {
        publisher.step(SOON).await.expect("an acknowledgement");
    }
    wait_metric(&node, kit::QUEUED, |queued| queued == LIMIT as f64);
    wait_metric(&node, kit::DROPPED, |drops| drops == (MESSAGES - LIMIT) as f64);
    let before = memory_mib(&node);
    node.kill();
    node.start();
    let after = memory_mib(&node);
    assert!(after < before + 64, "{before} MiB before the crash, {after} MiB after");
    let mut client = Client::connect(node.mqtt(), &options).await;
    for number in 0..LIMIT {
        assert_eq!(client.text().await, format!("{number:01024}"));
    }
    // The last exchanges are completed meanwhile.
    client.nothing().await;
    wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
}
