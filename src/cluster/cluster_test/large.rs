//! Payloads that travel in parts, over real Raft groups and links.

use std::time::Duration;

use super::kit::{Plan, SHARDS, TestNode, log, retain_bytes, wait_for, wait_same_state};
use crate::cluster::PeerMessage;
use crate::mqtt::{Message, Origin};
use crate::replica::event::Outcome;
use crate::replica::{Command, ShardId};
use crate::storage::Mode;

const LARGE: usize = 8 * 1024 * 1024;

/// Length of the retained message of a topic; `None` where there is none.
fn retained_bytes(node: &TestNode, topic: &str) -> Option<usize> {
    let found = node.cluster.read(ShardId::of(topic, SHARDS), |state| state.retained_matching(topic, 0))?;
    let message = found.first()?;
    assert!(message.payload.iter().step_by(4096).all(|byte| *byte == b'x'));
    Some(message.payload.len())
}

async fn retain_large(node: &TestNode, topic: &str) {
    let submitted = node.cluster.submit(ShardId::of(topic, SHARDS), retain_bytes(topic, LARGE));
    assert_eq!(tokio::time::timeout(Duration::from_secs(60), submitted).await.unwrap(), Ok(Outcome::Done));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_message_reaches_all_nodes_in_small_entries_and_outlives_a_restart() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    // From each node, so from the leader and from others.
    for (number, node) in nodes.iter().enumerate() {
        let large = retain_large(node, "large");
        let small = async {
            let topic = format!("small/{number}");
            node.retain(&topic).await;
        };
        tokio::join!(large, small);
        assert_eq!(retained_bytes(node, "large"), Some(LARGE));
    }
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    assert!(nodes.iter().all(|node| retained_bytes(node, "large") == Some(LARGE)));
    drop(nodes.remove(0));
    retain_large(&nodes[0], "later").await;
    nodes.push(plan.start(0).await);
    nodes[2].ready().await;
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    assert_eq!(retained_bytes(&nodes[2], "large"), Some(LARGE));
    assert_eq!(retained_bytes(&nodes[2], "later"), Some(LARGE));
    drop(nodes);
    let nodes = plan.start_all().await;
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    assert!(nodes.iter().all(|node| retained_bytes(node, "later") == Some(LARGE)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_too_far_behind_gets_large_payloads_with_the_snapshot() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    drop(nodes.pop());
    for number in 0..12 {
        retain_large(&nodes[number % 2], &format!("large/{}", number % 3)).await;
    }
    // An empty node, and a log of which the beginning is purged.
    nodes.push(plan.start(2).await);
    nodes[2].ready().await;
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    for number in 0..3 {
        assert_eq!(retained_bytes(&nodes[2], &format!("large/{number}")), Some(LARGE));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_lost_between_parts_costs_nothing() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    let shard = ShardId::of("large", SHARDS);
    wait_for("a leader", || nodes.iter().any(|node| node.cluster.leads(shard)), String::new).await;
    let leader = nodes.iter().position(|node| node.cluster.leads(shard)).unwrap();
    let leader = nodes.remove(leader);
    let submitted = tokio::spawn(nodes[0].cluster.submit(shard, retain_bytes("large", LARGE * 8)));
    let begun = || nodes[0].cluster.pending(shard) > 0;
    wait_for("parts on their way", begun, String::new).await;
    drop(leader);
    assert_eq!(submitted.await.unwrap(), Ok(Outcome::Done));
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    assert!(nodes.iter().all(|node| retained_bytes(node, "large") == Some(LARGE * 8)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_reach_the_peer_whole_and_small_ones_pass_them() {
    log();
    let plan = Plan::new(2, Mode::InMemory);
    let nodes = plan.start_all().await;
    let to = nodes[1].cluster.node();
    let publish = |publisher: &str, bytes: usize| {
        let Command::Retain { message } = retain_bytes("t", bytes) else { panic!("a retain") };
        let message = Message { origin: Origin::Client(publisher.into()), ..Message::clone(&message) };
        nodes[0].cluster.send(to, PeerMessage::Publish { message: message.into() })
    };
    assert!(publish("p", 64 * 1024 * 1024));
    assert!(publish("p", 1));
    assert!(publish("q", 2));
    let received = || nodes[1].hooks.messages.lock().len() == 3;
    wait_for("all messages", received, String::new).await;
    let messages = nodes[1].hooks.messages.lock();
    let lengths = messages.iter().map(|(_, message)| match message {
        PeerMessage::Publish { message } => message.payload.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [2, 64 * 1024 * 1024, 1]);
}
