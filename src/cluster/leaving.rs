//! This node leaves its cluster for good while it runs: it hands leadership over, ends its incarnation, and has a peer remove it. What a node
//! that was removed cannot see (its replicas get nothing any more) the peer tells it.
//!
//! A node that ends on its way out is a member again when it starts: only what is written at the very end keeps it out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio::time::timeout;

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::blocking::blocking;
use super::control::{Control, FEATURES};
use super::drain;
use super::group::{Group, group_name};
use super::membership::propose_meta;
use super::node::{Node, members};
use super::removal::in_reach;

const AGAIN: Duration = Duration::from_millis(500);
const HAND_OVER: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(60);
const LEADER_WAIT: Duration = Duration::from_secs(10);

/// Why a node does not leave, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaveError {
    #[error("this node belongs to no cluster yet: stop it")]
    NoCluster,
    #[error(
        "this node is the only member of its cluster: all data are here; stop it, and remove its data directory if they are not needed"
    )]
    Alone,
    #[error("group {group} has no leader in reach: {reach}")]
    Leaderless { group: String, reach: String },
    #[error(
        "the voters that would stay in group {group} are {voters}, and of these only {alive} would be in reach: no majority, so the cluster \
         would stop; start the others, or have them forgotten first (troupemq cluster forget NODE)"
    )]
    Majority { group: String, voters: String, alive: String },
    #[error(
        "this node alone has a vote in group {group}; wait until others have caught up and have one (troupemq cluster status shows it)"
    )]
    OnlyVoter { group: String },
    #[error("the others run a release that cannot remove a node that runs; stop this node and have it forgotten there")]
    Release,
    #[error(
        "this node is not out yet: {0}; it stays a member, without clients, until it is asked to leave again or started anew"
    )]
    Unfinished(String),
    #[error(
        "this node is out of the cluster, but its data directory could not be marked: {0}; do not start it with that directory again"
    )]
    Mark(String),
}

/// Whether the others can go on without this node. Nothing is changed.
fn check(node: &Node) -> Result<(), LeaveError> {
    if node.cluster_id().is_none() {
        return Err(LeaveError::NoCluster);
    }
    if node.transport.is_none() || node.raft_members().keys().eq([&node.id]) {
        return Err(LeaveError::Alone);
    }
    node.groups.iter().try_for_each(|group| check_group(node, group))
}

/// The same; between two leaders there is none for a moment.
pub async fn wait_check(node: &Node) -> Result<(), LeaveError> {
    let until = Instant::now() + LEADER_WAIT;
    loop {
        match check(node) {
            Err(LeaveError::Leaderless { .. }) if Instant::now() < until => tokio::time::sleep(AGAIN / 5).await,
            checked => return checked,
        }
    }
}

fn check_group(node: &Node, group: &Group) -> Result<(), LeaveError> {
    let name = || group_name(group.index);
    let metrics = group.metrics();
    let known = members(&metrics);
    if group.view().reachable_leader().is_none() {
        return Err(LeaveError::Leaderless { group: name(), reach: in_reach(node) });
    }
    let voters: Vec<NodeId> = metrics.membership_config.voter_ids().filter(|voter| *voter != node.id).collect();
    if voters.is_empty() {
        // Also where it is the only member of a group that it was the first to join.
        return Err(if known.len() == 1 { LeaveError::Alone } else { LeaveError::OnlyVoter { group: name() } });
    }
    let is_here = |voter: &NodeId| node.hears(*voter) && node.meta.member(*voter).is_some_and(|member| member.alive);
    let alive: Vec<NodeId> = voters.iter().copied().filter(is_here).collect();
    if alive.len() * 2 > voters.len() {
        return Ok(());
    }
    let names = |ids: &[NodeId]| match ids {
        [] => "none".to_owned(),
        ids => ids.iter().map(|id| node.name_of(*id)).collect::<Vec<_>>().join(", "),
    };
    Err(LeaveError::Majority { group: name(), voters: names(&voters), alive: names(&alive) })
}

/// Leaves. The node has no clients any more. Resolves when it is no member, and its data directory says so.
pub async fn leave(node: &Arc<Node>, told: impl Fn(String)) -> Result<(), LeaveError> {
    wait_check(node).await?;
    let removed = depart(node, &told).await;
    if let Err(error) = removed {
        node.operator.set_leaving(false);
        return Err(error);
    }
    let storage = Arc::clone(&node.storage);
    match blocking(move || storage.set_left()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(LeaveError::Mark(error.to_string())),
        Err(error) => Err(LeaveError::Mark(error.to_string())),
    }
}

async fn depart(node: &Arc<Node>, told: &impl Fn(String)) -> Result<(), LeaveError> {
    let until = Instant::now() + TIMEOUT;
    node.operator.set_leaving(true);
    *node.operator.forgotten.lock() = None;
    told("hands leadership over".to_owned());
    let _ = timeout(HAND_OVER, drain::hand_over(node)).await;
    // From now on nobody waits for this node, and what is left of its connections ends.
    while node.meta.member(node.id).is_some_and(|own| own.alive) {
        if Instant::now() >= until {
            return Err(LeaveError::Unfinished(format!("the end of its incarnation was not agreed on: {}", in_reach(node))));
        }
        let down = MetaCommand::NodeDown { node: node.id, incarnation: node.incarnation() };
        propose_meta(node, vec![down]).await;
        tokio::time::sleep(AGAIN / 5).await;
    }
    let mut last = "no peer is in reach".to_owned();
    while Instant::now() < until {
        match helper(node)? {
            Some((peer, name)) => {
                told(format!("is being removed from all groups by {name}"));
                last = format!("{name} has not finished");
                if let Some(transport) = &node.transport {
                    transport.send_control(peer, Control::Forget { node: node.id });
                }
            }
            None => told(format!("waits for a peer: {}", in_reach(node))),
        }
        tokio::time::sleep(AGAIN).await;
        match node.operator.forgotten.lock().take() {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => last = error,
            None => {}
        }
    }
    Err(LeaveError::Unfinished(last))
}

/// The peer that removes this node: the leader of `meta` if it is another, else any that is alive.
fn helper(node: &Node) -> Result<Option<(NodeId, String)>, LeaveError> {
    let Some(transport) = &node.transport else { return Ok(None) };
    let leader = node.meta_group().view().reachable_leader().filter(|leader| *leader != node.id);
    let members = node.meta.members().into_iter();
    let alive: Vec<NodeId> =
        members.filter(|(id, member)| *id != node.id && member.alive && transport.connected(*id)).map(|(id, _)| id).collect();
    let able: Vec<NodeId> = alive.iter().copied().filter(|peer| transport.version(*peer) >= FEATURES).collect();
    if able.is_empty() && !alive.is_empty() {
        return Err(LeaveError::Release);
    }
    let chosen = leader.filter(|leader| able.contains(leader)).or(able.first().copied());
    Ok(chosen.map(|peer| (peer, node.name_of(peer))))
}
