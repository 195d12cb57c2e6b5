//! What is acknowledged is there on every node.

use std::time::{Duration, Instant};

use crate::replica::{Outcome, ShardId, State};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, TestNode, log, retain, wait_for, wait_same_state};
use super::partition::Wired;
use super::wire::Wire;

/// Retains with the acknowledgement that means "everywhere".
pub async fn retain_everywhere(node: &TestNode, topic: &str) {
    let outcome = node.cluster.submit_everywhere(ShardId::of(topic, SHARDS), retain(topic)).await;
    assert_eq!(outcome, Ok(Outcome::Done), "{topic}");
}

pub fn has(node: &TestNode, topic: &str) -> bool {
    let read = |state: &State| !state.retained_matching(topic, 0).is_empty();
    node.cluster.read(ShardId::of(topic, SHARDS), read).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_as_effective_is_applied_on_every_node() {
    log();
    let plan = Plan::new(3, Mode::File);
    let nodes = plan.start_all().await;
    let mut missed = 0;
    for i in 0..300 {
        let topic = format!("t/{i}");
        retain_everywhere(&nodes[i % 3], &topic).await;
        missed += nodes.iter().filter(|node| !has(node, &topic)).count();
    }
    assert_eq!(missed, 0);
    assert!(nodes.iter().all(|node| node.cluster.left_out_total() == 0), "nobody was left out");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_are_acknowledged_and_there() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let waiting: Vec<_> = (0..5_000)
        .map(|i| (i, nodes[i % 3].cluster.submit_everywhere(ShardId::of(&format!("t/{i}"), SHARDS), retain(&format!("t/{i}")))))
        .collect();
    for (i, outcome) in waiting {
        assert_eq!(outcome.await, Ok(Outcome::Done));
        assert!(nodes.iter().all(|node| has(node, &format!("t/{i}"))), "{i}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_alone_waits_for_nobody() {
    log();
    let plan = Plan::new(1, Mode::InMemory);
    let nodes = plan.start_all().await;
    assert!(!nodes[0].cluster.is_stale());
    retain_everywhere(&nodes[0], "t").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_delays_acknowledgements_for_a_bounded_time_and_learns_all_before_it_serves_again() {
    log();
    let wired = Wired::start().await;
    let nodes = &wired.nodes;
    let silent = nodes[0].cluster.node();
    wired.each_wire_of(0, Wire::cut);
    let begun = Instant::now();
    retain_everywhere(&nodes[1], "first").await;
    let first = begun.elapsed();
    assert!(nodes[0].cluster.is_stale(), "what is acknowledged without a node it does not contradict: it reads from no client");
    // A new leader, and the time until the silent one is dead.
    assert!(first < Duration::from_secs(8), "{first:?}");
    assert!(has(&nodes[2], "first"));
    let begun = Instant::now();
    for i in 0..20 {
        retain_everywhere(&nodes[1 + i % 2], &format!("later/{i}")).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "only the first wait is long: {:?}", begun.elapsed());
    let dead = || nodes[1..].iter().all(|node| !node.cluster.peers().contains(&silent));
    wait_for("death", dead, String::new).await;

    wired.each_wire_of(0, Wire::mend);
    let counted = || nodes[1..].iter().all(|node| node.cluster.peers().contains(&silent));
    wait_for("return", counted, String::new).await;
    wait_for("readiness", || nodes[0].cluster.is_ready(), String::new).await;
    assert!(has(&nodes[0], "first") && has(&nodes[0], "later/19"));
    retain_everywhere(&nodes[2], "again").await;
    assert!(has(&nodes[0], "again"));
    wait_same_state(&[&nodes[0], &nodes[1], &nodes[2]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_has_everything_acknowledged_when_it_is_ready() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    for round in 0..3 {
        let node = nodes.remove(0);
        drop(node);
        let others = [nodes[0].cluster.clone(), nodes[1].cluster.clone()];
        let acknowledge = tokio::spawn(async move {
            let mut topics = Vec::new();
            for i in 0..100 {
                let topic = format!("{round}/{i}");
                let shard = ShardId::of(&topic, SHARDS);
                others[i % 2].submit_everywhere(shard, retain(&topic)).await.unwrap();
                topics.push(topic);
            }
            topics
        });
        let back = plan.start(round).await;
        let topics = acknowledge.await.unwrap();
        wait_for("readiness", || back.cluster.is_ready(), || format!("{:?}", back.cluster.status())).await;
        let missing: Vec<_> = topics.iter().filter(|topic| !has(&back, topic)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        nodes.push(back);
    }
}
