//! Nodes of two releases in one cluster: the older one speaks the protocol version before and knows no newer kinds of messages and commands.
//!
//! The same program plays both, so this shows that a newer node keeps to what an older one knows, not that an older program takes it: for that
//! the black-box tests start from the older program's data, and roll its processes where they are given its binary.

use super::kit::{Plan, TestNode, wait_for, wait_same_state};
use crate::cluster::transport::hello::{VERSION_MAX, VERSION_MIN};
use crate::cluster::{ClusterSettings, Protocol};
use crate::storage::Mode;

fn release(plan: &Plan, node: usize, max: u16) -> ClusterSettings {
    ClusterSettings { protocol: Protocol { max, raise_after_ms: 300 }, ..plan.settings(node) }
}

fn levels(nodes: &[&TestNode]) -> Vec<u16> {
    nodes.iter().map(|node| node.cluster.level()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_rolled_to_the_next_release_and_uses_it_only_then() {
    super::kit::log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = Vec::new();
    for node in 0..3 {
        nodes.push(plan.start_with(node, release(&plan, node, VERSION_MIN)).await);
    }
    for node in &nodes {
        node.ready().await;
    }
    for rolled in 0..3 {
        nodes[rolled].retain(&format!("before/{rolled}")).await;
        assert_eq!(levels(&nodes.iter().collect::<Vec<_>>()), [VERSION_MIN; 3]);
        let old = nodes.remove(rolled);
        old.cluster.shutdown().await;
        drop(old);
        nodes.insert(rolled, plan.start_with(rolled, release(&plan, rolled, VERSION_MAX)).await);
        for node in &nodes {
            node.ready().await;
        }
        // Both releases lead and follow, whichever way leadership went.
        for (number, node) in nodes.iter().enumerate() {
            node.retain(&format!("mixed/{rolled}/{number}")).await;
        }
    }
    let all: Vec<&TestNode> = nodes.iter().collect();
    wait_for("higher level", || levels(&all) == [VERSION_MAX; 3], || format!("{:?}", levels(&all))).await;
    nodes[0].retain("after").await;
    wait_same_state(&[&nodes[1], &nodes[2], &nodes[0]]).await;
    assert_eq!(nodes[0].retained(), 3 + 9 + 1);

    // The level is stored, and holds for who comes back.
    let gone = nodes.remove(2);
    gone.cluster.shutdown().await;
    drop(gone);
    let back = plan.start_with(2, release(&plan, 2, VERSION_MIN)).await;
    assert_eq!(back.cluster.level(), VERSION_MAX);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(!back.cluster.status().ready, "what the cluster may use by now it does not know");
    back.cluster.shutdown().await;
    drop(back);
    let back = plan.start_with(2, release(&plan, 2, VERSION_MAX)).await;
    back.ready().await;
    wait_same_state(&[&nodes[0], &nodes[1], &back]).await;
}
