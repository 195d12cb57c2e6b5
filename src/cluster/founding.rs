//! How a cluster comes to be: exactly once.
//!
//! Nodes without a cluster wait until a majority of the expected number see each other. The one with the smallest name then asks for
//! promises; each node promises itself in writing to one founder, ever. With the promises of a majority the founder initialises all
//! groups with the nodes in sight, draws the cluster id and tells those that promised (`Control::Founded`): only then, and only there, have they
//! votes. A node that hears of any other cluster joins that without a vote, and its promise is void. Two founders would need a node that promised itself to both. A node that
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
use super::control::{Control, FEATURES};
use super::handle::ClusterError;
use super::membership::join;
use super::node::{Node, members};
use super::node_id;
use super::placement::placement;
use super::raft::PeerNode;

/// Between two times it is told that not all are there.
const TELL: Duration = Duration::from_secs(5);
/// Between looks around.
const LOOK: Duration = Duration::from_millis(100);
/// How long a majority waits for the others before it founds without them. One that does not answer yet may hold what these have lost: once they
/// have founded a cluster of their own it cannot join them with it.
const COMPLETE_WAIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });
/// How long a node that may found alone looks whether the others it knows of, or that a name may have, have a cluster already.
const ALONE_WAIT: Duration = Duration::from_secs(5);
/// The same where it is the only one that is named: pods that start at the same moment get their names one by one.
const NAMED_ALONE_WAIT: Duration = Duration::from_millis(200);
/// How long a node that promised itself, and hears of a cluster from others, waits for its founder to say whether it founded it.
const FOUNDER_WAIT: Duration = Duration::from_secs(2);
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
    let mut alone_since: Option<Instant> = None;
    let mut hailed: Option<Instant> = None;
    let mut told: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if node.cluster_id().is_some() {
            return Ok(());
        }
        let peers: Vec<_> = transport.peers().into_iter().filter(|peer| peer.connected).collect();
        let known = peers.iter().find_map(|peer| Some((peer.id, peer.cluster_id.as_deref()?)));
        if let Some((from, id)) = known {
            hear_of(node, from, id, Word::Hello).await?;
        }
        // A peer that was met may be about to say that it has a cluster.
        alone_since = (node.is_named_alone() && peers.is_empty()).then(|| alone_since.unwrap_or_else(Instant::now));
        let is_alone = !node.looks_for_others()
            || alone_since.is_some_and(|since| since.elapsed() >= NAMED_ALONE_WAIT)
            || begun.elapsed() >= ALONE_WAIT;
        if known.is_none() && node.expected_nodes() == Some(1) && is_alone {
            return finish_alone(node).await;
        }
        if hailed.is_none_or(|at| at.elapsed() >= HAIL) {
            hailed = Some(Instant::now());
            transport.broadcast(|version| Some(join(node, version)));
        }
        if known.is_some() {
            continue;
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
            if told.is_none_or(|at| at.elapsed() >= TELL) {
                told = Some(Instant::now());
                let names: Vec<_> = visible.values().map(|peer| peer.name.as_str()).collect();
                let seconds = COMPLETE_WAIT.saturating_sub(since.elapsed()).as_secs();
                tracing::warn!(
                    ?names,
                    expected,
                    seconds,
                    "no cluster yet, and not all of the expected nodes are here: these found one without the others in so many seconds; if one of \
                     those has data, start it before: it cannot join afterwards"
                );
            }
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
    Ok(founder.to_owned())
}

/// How a node knows of a cluster that a peer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// By the peer's hello, which does not say how it came into it.
    Hello,
    /// The peer says that it is in it.
    Joined,
    /// The peer says that it founded it.
    Founded,
}

/// What to do about a cluster that was heard of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is the one that this node promised itself to.
    Keep,
    /// It may be: the founder is asked (each `HAIL`).
    Ask,
    /// It is another, or nobody can say any more.
    Join,
}

/// `founder`: this node's promise was given to a node that is in reach, which said this (`None`: another node says it) and speaks that version.
fn step(founder: Option<(Option<Word>, u16)>, asked: Duration) -> Step {
    match founder {
        Some((Some(Word::Founded), _)) => Step::Keep,
        // Releases before do not say whether they founded it.
        Some((Some(_), version)) if (1..FEATURES).contains(&version) => Step::Keep,
        Some((Some(Word::Joined), _)) | None => Step::Join,
        Some((Some(Word::Hello) | None, _)) if asked < FOUNDER_WAIT => Step::Ask,
        Some(_) => Step::Join,
    }
}

/// Makes a node without a cluster a member of the one that a peer belongs to.
pub async fn hear_of(node: &Node, from: NodeId, id: &str, word: Word) -> Result<(), ClusterError> {
    // Without a cluster only a node that is founding one has votes.
    if node.cluster_id().is_some() || node.groups.iter().any(|group| group.may_vote()) {
        return Ok(());
    }
    let promised_to = node.storage.identity().promised_to.map(|name| node_id(&name)).filter(|founder| *founder != node.id);
    let founder = promised_to.filter(|founder| *founder == from || node.hears(*founder)).map(|founder| {
        let version = node.transport.as_ref().map_or(0, |transport| transport.version(founder));
        ((founder == from).then_some(word), version)
    });
    let asked = node.heard_of_cluster.lock().get_or_insert_with(Instant::now).elapsed();
    let step = step(founder, asked);
    if step == Step::Ask {
        return Ok(());
    }
    node.set_cluster_id(id, step == Step::Keep).await?;
    let votes = !node.storage.is_voteless();
    node.groups.iter().for_each(|group| group.set_may_vote(votes));
    tracing::info!(cluster_id = id, votes, "found the cluster");
    Ok(())
}

/// Whether this node founded its cluster: a promise to itself outlives only that.
pub fn founded_itself(node: &Node) -> bool {
    let identity = node.storage.identity();
    identity.cluster_id.is_some() && identity.promised_to.as_deref() == Some(node.settings.node_name.as_str())
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
    let set_votes = |votes| node.groups.iter().for_each(|group| group.set_may_vote(votes));
    set_votes(true);
    let finished = initialise(node, founders).await;
    if finished.is_err() {
        // It was told of another cluster meanwhile.
        set_votes(false);
    }
    finished
}

async fn initialise(node: &Node, founders: BTreeMap<NodeId, PeerNode>) -> Result<(), ClusterError> {
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
    node.set_cluster_id(&id, true).await?;
    node.founded.store(true, Ordering::Release);
    let names: Vec<_> = founders.values().map(|founder| founder.name.as_str()).collect();
    tracing::info!(cluster_id = id, ?names, "founded the cluster");
    if let Some(transport) = &node.transport {
        let members: Vec<_> = founders.into_values().map(|founder| (founder.name, founder.address)).collect();
        transport.broadcast(|version| {
            let (id, members) = (id.clone(), members.clone());
            Some(if version >= FEATURES { Control::Founded { id, members } } else { Control::Cluster { id, members } })
        });
        elect(node).await?;
    }
    Ok(())
}

/// The others refused their votes until they heard of the cluster: they are asked again, and not only after an election timeout.
async fn elect(node: &Node) -> Result<(), ClusterError> {
    for pause in [2, 5, 10, 10] {
        tokio::time::sleep(LOOK * pause).await;
        for group in node.groups.iter().filter(|group| group.view().leader.is_none()) {
            group.raft.trigger().elect(false).await.map_err(|error| ClusterError::Raft(error.to_string()))?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_kept_only_on_the_founders_own_word() {
        let soon = Duration::ZERO;
        let late = FOUNDER_WAIT;
        let cases = [
            (None, soon, Step::Join),
            (Some((Some(Word::Founded), FEATURES)), late, Step::Keep),
            (Some((Some(Word::Joined), FEATURES)), soon, Step::Join),
            (Some((Some(Word::Hello), FEATURES)), soon, Step::Ask),
            (Some((Some(Word::Hello), FEATURES)), late, Step::Join),
            (Some((None, FEATURES)), soon, Step::Ask),
            (Some((None, FEATURES)), late, Step::Join),
            (Some((Some(Word::Joined), FEATURES - 1)), soon, Step::Keep),
        ];
        for (founder, asked, expected) in cases {
            assert_eq!(step(founder, asked), expected, "{founder:?} {asked:?}");
        }
    }
}
