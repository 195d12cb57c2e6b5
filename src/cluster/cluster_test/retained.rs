//! Retained messages are the same on all nodes, whoever published at the same moment.

use futures_util::future::join_all;

use crate::replica::ShardId;
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, log, retain_bytes, wait_same_state};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_retain_to_the_same_topics_at_once_come_to_the_same() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let all = nodes.iter().enumerate().map(|(number, node)| async move {
        for round in 0..40 {
            let submitted = (0..10).map(|topic| {
                let topic = format!("t/{topic}");
                node.cluster.submit(ShardId::of(&topic, SHARDS), retain_bytes(&topic, 1 + number + 3 * round))
            });
            for outcome in join_all(submitted).await {
                outcome.unwrap();
            }
        }
    });
    join_all(all).await;
    let nodes: Vec<_> = nodes.iter().collect();
    wait_same_state(&nodes).await;
    let of_node = |node: &&super::kit::TestNode| {
        let read = |shard| node.cluster.read(ShardId(shard), |state| (state.retained_count(), state.retained_bytes()));
        (0..SHARDS).filter_map(read).collect::<Vec<_>>()
    };
    let found: Vec<_> = nodes.iter().map(of_node).collect();
    assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
    assert_eq!(found[0].iter().map(|(count, _)| count).sum::<usize>(), 10);
}
