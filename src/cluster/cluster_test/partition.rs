use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::{ClusterSettings, SubmitError};
use crate::replica::{Outcome, ShardId};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, TestNode, log, retain, wait_for, wait_same_state};
use super::wire::Wire;

/// Three nodes; each pair of directions has its own wire, so one node can be cut off.
pub struct Wired {
    pub nodes: Vec<TestNode>,
    /// `wires[a][b]` carries what `a` dials to `b`.
    wires: Vec<Vec<Wire>>,
    _plan: Plan,
}

impl Wired {
    pub async fn start() -> Self {
        let plan = Plan::new(3, Mode::File);
        let mut wires = Vec::new();
        for _ in 0..3 {
            let mut row = Vec::new();
            for address in &plan.addresses {
                row.push(Wire::to(*address).await);
            }
            wires.push(row);
        }
        let mut nodes = Vec::new();
        for (node, row) in wires.iter().enumerate() {
            let seeds = row.iter().map(|wire| wire.address.to_string()).collect();
            // What it says of itself leads nowhere: others know it by their own wires only.
            let advertised = format!("127.0.0.1:1{node}");
            nodes.push(plan.start_with(node, ClusterSettings { seeds, advertised, ..plan.settings(node) }).await);
        }
        for node in &nodes {
            node.ready().await;
        }
        Self { nodes, wires, _plan: plan }
    }

    pub fn each_wire_of(&self, node: usize, act: impl Fn(&Wire)) {
        for other in (0..3).filter(|other| *other != node) {
            act(&self.wires[node][other]);
            act(&self.wires[other][node]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_cut_off_is_replaced_gives_up_and_comes_back() {
    log();
    let wired = Wired::start().await;
    let nodes = &wired.nodes;
    for i in 0..6 {
        nodes[i % 3].retain(&format!("before/{i}")).await;
    }
    let shard = ShardId(0);
    wait_for("leader", || nodes.iter().any(|node| node.cluster.leads(shard)), String::new).await;
    let cut = nodes.iter().position(|node| node.cluster.leads(shard)).unwrap();
    let (other, another) = (&nodes[(cut + 1) % 3], &nodes[(cut + 2) % 3]);
    let incarnation = nodes[cut].cluster.incarnation();

    wired.each_wire_of(cut, Wire::cut);
    let begun = Instant::now();
    let lonely = nodes[cut].cluster.submit(shard, retain("lonely"));
    let lonely = tokio::spawn(lonely);
    for i in 0..SHARDS * 4 {
        other.retain(&format!("during/{i}")).await;
    }
    let took = begun.elapsed();
    tracing::info!(?took, "the majority serves again");
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_for("end of leadership", || !nodes[cut].cluster.leads(shard), String::new).await;
    wait_for("loss of readiness", || !nodes[cut].cluster.is_ready(), String::new).await;
    let dead = |node: &TestNode| {
        let cut = nodes[cut].cluster.node();
        !node.cluster.peers().contains(&cut)
    };
    wait_for("death", || dead(other) && dead(another), String::new).await;
    tracing::info!(took = ?begun.elapsed(), "declared dead");
    wait_for("loss of the incarnation", || nodes[cut].hooks.lost.load(Ordering::Relaxed) == 1, String::new).await;
    assert!(nodes[cut].cluster.incarnation() > incarnation);
    assert_eq!(lonely.await.unwrap(), Err(SubmitError::Unknown));

    wired.each_wire_of(cut, Wire::mend);
    nodes[cut].ready().await;
    nodes[cut].retain("after").await;
    other.retain("after too").await;
    wait_same_state(&[another, &nodes[cut], other]).await;
    assert_eq!(nodes[cut].hooks.lost.load(Ordering::Relaxed), 1);
    assert!(nodes.iter().all(|node| (16..=17).contains(&node.retained())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut_loses_nothing_and_ends_no_incarnation() {
    log();
    let wired = Wired::start().await;
    let nodes = &wired.nodes;
    wired.each_wire_of(0, Wire::cut);
    let waiting: Vec<_> = (0..30)
        .map(|i| (i, nodes[0].cluster.submit(ShardId::of(&format!("t/{i}"), SHARDS), retain(&format!("t/{i}")))))
        .map(|(_, submitted)| tokio::spawn(submitted))
        .collect();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    wired.each_wire_of(0, Wire::mend);
    for outcome in waiting {
        assert_eq!(outcome.await.unwrap(), Ok(Outcome::Done));
    }
    wait_same_state(&[&nodes[1], &nodes[2], &nodes[0]]).await;
    assert_eq!(nodes[1].retained(), 30);
    assert!(nodes.iter().all(|node| node.hooks.lost.load(Ordering::Relaxed) == 0));
}
