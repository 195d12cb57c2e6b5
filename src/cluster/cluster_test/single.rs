use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::SubmitError;
use crate::replica::{Outcome, ShardId};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, log, retain};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_alone_founds_at_once_and_serves() {
    log();
    let plan = Plan::new(1, Mode::InMemory);
    let node = plan.start(0).await;
    node.ready().await;
    node.retain("a").await;
    assert_eq!(node.retained(), 1);
    let status = node.cluster.status();
    assert!(status.cluster_id.is_some());
    assert_eq!(status.members.len(), 1);
    assert_eq!(status.groups.len(), usize::from(SHARDS) + 1);
    assert!((0..SHARDS).all(|shard| node.cluster.leads(ShardId(shard))));
    assert_eq!(node.hooks.loaded.load(Ordering::Relaxed), u32::from(SHARDS));
    assert_eq!(node.hooks.leads.lock().len(), usize::from(SHARDS));
    assert!(node.cluster.peers().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_has_what_was_acknowledged() {
    log();
    let plan = Plan::new(1, Mode::File);
    let node = plan.start(0).await;
    node.ready().await;
    let id = node.cluster.status().cluster_id;
    let incarnation = node.cluster.incarnation();
    for i in 0..20 {
        node.retain(&format!("t/{i}")).await;
    }
    let digests = node.digests();
    // As in a crash.
    drop(node);
    let node = plan.start(0).await;
    node.ready().await;
    assert_eq!(node.cluster.status().cluster_id, id);
    assert!(node.cluster.incarnation() > incarnation);
    assert_eq!(node.retained(), 20);
    node.retain("more").await;
    node.cluster.shutdown().await;
    drop(node);
    let node = plan.start(0).await;
    node.ready().await;
    assert_eq!(node.retained(), 21);
    assert_ne!(node.digests(), digests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_at_once_all_have_their_outcome() {
    log();
    let plan = Plan::new(1, Mode::File);
    let node = plan.start(0).await;
    node.ready().await;
    let cluster = Arc::new(node.cluster.clone());
    let waiting: Vec<_> =
        (0..5_000).map(|i| cluster.submit(ShardId(i % SHARDS), retain(&format!("t/{i}")))).map(tokio::spawn).collect();
    for outcome in waiting {
        assert_eq!(outcome.await.unwrap(), Ok(Outcome::Done));
    }
    assert_eq!(node.retained(), 5_000);
    let entries: u64 = cluster.status().groups.iter().map(|group| group.applied_index).sum();
    assert!(entries < 2_500, "{entries} entries for 5,000 commands");
    assert!((0..SHARDS).all(|shard| cluster.pending(ShardId(shard)) == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_does_not_exist_is_refused() {
    let plan = Plan::new(1, Mode::InMemory);
    let node = plan.start(0).await;
    assert_eq!(node.cluster.submit(ShardId(SHARDS), retain("a")).await, Err(SubmitError::Unavailable));
    assert_eq!(node.cluster.read(ShardId(SHARDS), |_| ()), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_stays_ready_and_a_stopped_one_refuses() {
    log();
    let plan = Plan::new(1, Mode::InMemory);
    let node = plan.start(0).await;
    node.ready().await;
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(node.cluster.is_ready());
    node.retain("a").await;
    node.cluster.shutdown().await;
    assert_eq!(node.cluster.submit(ShardId(0), retain("b")).await, Err(SubmitError::Unavailable));
    assert_eq!(node.hooks.lost.load(Ordering::Relaxed), 0);
}
