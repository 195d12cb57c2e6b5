//! How a cluster comes to be: exactly once.
//!
//! Nodes without a cluster wait until a majority of the expected number see each other. The one with the smallest name then asks for
//! promises; each node promises itself in writing to one founder, ever. With the promises of a majority the founder initialises all
//! groups with the nodes in sight and draws the cluster id. Two founders would need a node that promised itself to both. A node that
//! has state, or hears of a cluster, founds none; nor does one that nobody told how many are expected. One that is to found alone looks around
//! first where it knows of others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::NodeId;

use super::blocking::blocking;
use super::chance;
use super::control::Control;
use super::handle::ClusterError;
use super::membership::join;
use super::node::{Node, members};
use super::placement::placement;
use super::raft::PeerNode;

/// Between looks around.
const LOOK: Duration = Duration::from_millis(100);
/// How long a majority waits for the others before it founds without them.
const COMPLETE_WAIT: Duration = Duration::from_secs(2);
/// How long a node that may found alone looks whether the others it knows of have a cluster already.
const ALONE_WAIT: Duration = Duration::from_secs(5);
/// Between calls for a cluster that may be there.
const HAIL: Duration = Duration::from_millis(500);

/// Runs until the node belongs to a cluster.
pub async fn run(node: Arc<Node>) {
    if let Err(error) = found_or_find(&node).await {
        tracing::error!(%error, "founding the cluster failed");
    }
}

async fn found_or_find(node: &Node) -> Result<(), ClusterError> {
    if node.cluster_id().is_some() {
        return stand_alone(node).await;
    }
    if founding_was_interrupted(node) {
        return finish(node, node.raft_members()).await;
    }
    let Some(transport) = &node.transport else { return finish_alone(node).await };
    let begun = Instant::now();
    let mut majority_since: Option<Instant> = None;
    let mut hailed: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if node.cluster_id().is_some() {
            return Ok(());
        }
        let peers: Vec<_> = transport.peers().into_iter().filter(|peer| peer.connected).collect();
        if let Some(id) = peers.iter().find_map(|peer| peer.cluster_id.as_deref()) {
            return node.set_cluster_id(id).await;
        }
        if node.expected_nodes() == Some(1) && (!node.looks_for_others() || begun.elapsed() >= ALONE_WAIT) {
            return finish_alone(node).await;
        }
        if hailed.is_none_or(|at| at.elapsed() >= HAIL) {
            hailed = Some(Instant::now());
            transport.broadcast(|version| Some(join(node, version)));
        }
        let mut visible: BTreeMap<NodeId, PeerNode> =
            peers.into_iter().map(|peer| (peer.id, PeerNode { name: peer.name, address: peer.address })).collect();
        visible.insert(node.id, node.peer_node());
        let Some((expected, majority)) = node.expected_nodes().map(|expected| (expected, expected / 2 + 1)) else { continue };
        if expected == 1 || visible.len() < majority {
            majority_since = None;
            continue;
        }
        let since = *majority_since.get_or_insert_with(Instant::now);
        if visible.len() < expected && since.elapsed() < COMPLETE_WAIT {
            continue;
        }
        if collect_promises(node, &visible, majority).await? {
            return finish(node, visible).await;
        }
    }
}

/// Asks for promises if it is this node's turn to found; true with those of a majority.
async fn collect_promises(node: &Node, visible: &BTreeMap<NodeId, PeerNode>, majority: usize) -> Result<bool, ClusterError> {
    let own = &node.settings.node_name;
    let founder = match node.storage.identity().promised_to {
        Some(promised) => promised,
        None => visible.values().map(|peer| peer.name.clone()).min().unwrap_or_else(|| own.clone()),
    };
    if founder != *own || promise(node, own).await? != *own {
        return Ok(false);
    }
    if let Some(transport) = &node.transport {
        for &peer in visible.keys() {
            transport.send_control(peer, Control::PromiseRequest { founder: own.clone() });
        }
    }
    let promises = node.promises.lock();
    let granted = visible.keys().filter(|peer| promises.get(peer).is_some_and(|to| to == own)).count();
    Ok(granted + 1 >= majority)
}

/// Promises this node to a founder, in writing, unless it promised itself before; returns to whom it is promised.
pub async fn promise(node: &Node, founder: &str) -> Result<String, ClusterError> {
    if let Some(promised) = node.storage.identity().promised_to {
        return Ok(promised);
    }
    let storage = Arc::clone(&node.storage);
    let to = founder.to_owned();
    blocking(move || storage.set_promise(Some(&to))).await.map_err(|error| ClusterError::Raft(error.to_string()))??;
    tracing::info!(founder, "promised to be founded by");
    node.groups.iter().for_each(|group| group.set_may_vote(true));
    Ok(founder.to_owned())
}

/// This node founds, and stopped after it had initialised some groups.
fn founding_was_interrupted(node: &Node) -> bool {
    node.storage.identity().promised_to.as_deref() == Some(node.settings.node_name.as_str()) && !node.raft_members().is_empty()
}

async fn finish_alone(node: &Node) -> Result<(), ClusterError> {
    promise(node, &node.settings.node_name).await?;
    finish(node, [(node.id, node.peer_node())].into()).await
}

/// Initialises the groups, then writes the cluster id: interrupted between, it is done again with the same members.
async fn finish(node: &Node, founders: BTreeMap<NodeId, PeerNode>) -> Result<(), ClusterError> {
    for group in &node.groups {
        if members(&group.metrics()).is_empty() {
            // Of many founders some have a vote; the others join. The founder has one, so that it can begin.
            let voters = placement(group.index, &founders.keys().copied().collect(), &[node.id].into());
            let voters = founders.iter().filter(|(id, _)| voters.contains(id)).map(|(id, peer)| (*id, peer.clone()));
            let initialised = group.raft.initialize(voters.collect::<BTreeMap<_, _>>()).await;
            initialised.map_err(|error| ClusterError::Raft(error.to_string()))?;
        }
    }
    let id = format!("{:032x}", chance::random::<u128>());
    node.set_cluster_id(&id).await?;
    node.founded.store(true, Ordering::Release);
    let names: Vec<_> = founders.values().map(|founder| founder.name.as_str()).collect();
    tracing::info!(cluster_id = id, ?names, "founded the cluster");
    if let Some(transport) = &node.transport {
        let members = founders.into_values().map(|founder| (founder.name, founder.address)).collect();
        transport.broadcast_control(&Control::Cluster { id, members });
    }
    Ok(())
}

/// A cluster of one need not wait out an election timeout at a restart.
async fn stand_alone(node: &Node) -> Result<(), ClusterError> {
    for group in &node.groups {
        let voters: Vec<NodeId> = group.metrics().membership_config.voter_ids().collect();
        if voters == [node.id] {
            group.raft.trigger().elect(false).await.map_err(|error| ClusterError::Raft(error.to_string()))?;
        }
    }
    Ok(())
}
