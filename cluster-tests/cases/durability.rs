//! Durability: restart, crash, disk.

use std::path::Path;

use troupemq::mqtt::QoS;

use super::kit::{self, BOTH, persistent, publisher, subscriber, texts};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 3: the session came back from disk and took nothing until its client did.
#[tokio::test]
async fn an_offline_session_takes_messages_after_a_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    for version in BOTH {
        subscriber(node.mqtt(), &persistent("offline", version), "t").await.disconnect().await;
    }
    let mut expected = Vec::new();
    for (round, kill) in [(0, false), (1, true)] {
        if kill {
            node.kill();
        } else {
            node.stop();
        }
        node.start();
        let mut publisher = publisher(node.mqtt()).await;
        for number in 0..10 {
            let text = format!("{round}.{number}");
            publisher.publish("t", text.as_bytes(), QoS::ExactlyOnce).await;
            expected.push(text);
        }
    }
    for version in BOTH {
        let mut client = Client::connect(node.mqtt(), &persistent("offline", version)).await;
        assert!(client.session_present(), "{version:?}");
        assert_eq!(texts(&mut client, expected.len()).await, expected, "{version:?}");
    }
}

/// Row 6, with the time left out: what was consumed, overwritten and expired leaves the disk again.
#[tokio::test]
async fn the_disk_does_not_grow_with_what_was_consumed() {
    const ROUNDS: usize = 6;
    const MESSAGES: usize = 120;
    /// About 800 MiB go through the log and the state. The log of a shard is cut at twice 32 MiB, and here are two shards with load;
    /// the engine's journals are cut at 128 MiB for each of its two databases, and compaction needs some room.
    const LIMIT_MIB: u64 = 550;
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut consumer = subscriber(node.mqtt(), &Options::v5("consumer").persistent(), "log/#").await;
    let mut publisher = publisher(node.mqtt()).await;
    let payload = vec![0xA5; 512 * 1024];
    for round in 0..ROUNDS {
        for number in 0..MESSAGES {
            publisher.publish("log/a", &payload, QoS::AtLeastOnce).await;
            assert_eq!(consumer.message().await.payload.len(), payload.len());
            if number % 8 == 0 {
                publisher.publish_retained("retained", &payload, QoS::AtLeastOnce).await;
                let passing = Options::v5(&format!("passing-{round}-{number}")).expiry(1);
                subscriber(node.mqtt(), &passing, "other").await.disconnect().await;
            }
        }
        let size = disk_mib(&node.data());
        assert!(size < LIMIT_MIB, "{size} MiB on disk after {} messages of {} KiB", (round + 1) * MESSAGES, payload.len() / 1024);
    }
    // What is left is found again: one session with an empty queue, one retained message.
    consumer.disconnect().await;
    publisher.disconnect().await;
    assert!(node.stop().success());
    node.start();
    kit::wait_metric(&node, kit::SESSIONS, |sessions| sessions == 1.0);
    kit::wait_metric(&node, kit::RETAINED, |count| count == 1.0);
    kit::wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
}

fn disk_mib(directory: &Path) -> u64 {
    fn bytes(path: &Path) -> u64 {
        let Ok(entries) = std::fs::read_dir(path) else {
            return std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        };
        entries.filter_map(Result::ok).map(|entry| bytes(&entry.path())).sum()
    }
    bytes(directory) / (1024 * 1024)
}
