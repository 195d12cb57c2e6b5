//! Leaving for good: an explicit command for a node that is stopped, or that says so of itself. (A node that merely stops stays a member.)

use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::{Instant, timeout};

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::control::Control;
use super::group::{Group, group_name};
use super::membership::propose_meta;
use super::node::{Node, members};

/// Between two attempts; leaders may change meanwhile.
const AGAIN: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);
/// A node that fell silent is declared dead within this.
const DECLARED: Duration = Duration::from_secs(10);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a node is not removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    #[error("no such member")]
    NotAMember,
    #[error("the node is alive: stop it first, or have it leave by itself")]
    Alive,
    /// What is missing; the removal goes on when it is asked for again.
    #[error("{0}; ask again when that is mended, and the removal goes on")]
    Timeout(String),
}

/// Removes a stopped node from all groups, then from `meta`. Asked for again it goes on where it stopped. No majority is lost by it: the others
/// have one, or nothing is removed.
pub async fn remove(node: &Arc<Node>, id: NodeId, told: impl Fn(String)) -> Result<(), RemoveError> {
    wait_declared(node, id).await;
    match node.meta.member(id) {
        None if !is_anywhere(node, id) => return Err(RemoveError::NotAMember),
        // It is about to join, or somebody's leftover.
        None if node.hears(id) => return Err(RemoveError::Alive),
        Some(member) if member.alive && node.hears(id) => return Err(RemoveError::Alive),
        // Silent, and nobody is there to declare it dead.
        Some(member) if member.alive => return Err(RemoveError::Timeout(missing(node, id))),
        _ => {}
    }
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        let holding: Vec<&Arc<Group>> = node.groups.iter().filter(|group| holds(group, id)).collect();
        if !holding.is_empty() {
            told(format!("removes it from {}", names(&holding)));
            if let Some(transport) = &node.transport {
                transport.broadcast_control(&Control::Remove { node: id });
            }
            remove_from_led(node, id);
        } else if node.meta.member(id).is_some() {
            told("removes it from the list of members".to_owned());
            propose_meta(node, vec![MetaCommand::NodeRemoved { node: id }]).await;
        } else {
            return Ok(());
        }
        tokio::time::sleep(AGAIN).await;
        if node.meta.member(id).is_some_and(|member| member.alive) {
            return Err(RemoveError::Alive);
        }
    }
    Err(RemoveError::Timeout(missing(node, id)))
}

/// A node that ended a moment ago is not declared dead yet. Without a majority it never is.
async fn wait_declared(node: &Node, id: NodeId) {
    let until = Instant::now() + DECLARED;
    let may_be_declared = || node.meta.member(id).is_some_and(|member| member.alive) && !node.hears(id) && !node.is_minority();
    while may_be_declared() && Instant::now() < until {
        tokio::time::sleep(AGAIN / 5).await;
    }
}

/// Whether some group has it as a member.
fn is_anywhere(node: &Node, id: NodeId) -> bool {
    node.groups.iter().any(|group| holds(group, id))
}

/// Whether it is a member as far as this replica knows; a change that is not committed may yet be undone.
fn holds(group: &Group, id: NodeId) -> bool {
    members(&group.metrics()).contains_key(&id) || group.settled_membership().is_none()
}

/// What keeps a removal from going on, in words.
fn missing(node: &Node, id: NodeId) -> String {
    if let Some(leaderless) = leaderless(node) {
        return leaderless;
    }
    let holding: Vec<&Arc<Group>> = node.groups.iter().filter(|group| holds(group, id)).collect();
    format!(
        "{} not changed in time: {}",
        if holding.is_empty() { "the list of members is".to_owned() } else { format!("{} are", names(&holding)) },
        in_reach(node)
    )
}

/// The groups of which no leader is in reach, in words; `None` where there are none.
pub fn leaderless(node: &Node) -> Option<String> {
    let leaderless: Vec<&Arc<Group>> = node.groups.iter().filter(|group| group.view().reachable_leader().is_none()).collect();
    (!leaderless.is_empty()).then(|| format!("there is no leader in reach of {}: {}", names(&leaderless), in_reach(node)))
}

/// Which voters of `meta` this node can talk to.
pub fn in_reach(node: &Node) -> String {
    let voters: Vec<NodeId> = node.meta_group().metrics().membership_config.voter_ids().collect();
    let (here, gone): (Vec<NodeId>, Vec<NodeId>) = voters.iter().partition(|voter| node.hears(**voter));
    let names = |ids: &[NodeId]| ids.iter().map(|id| node.name_of(*id)).collect::<Vec<_>>().join(", ");
    let all = format!("{} of {} voters are in reach", here.len(), voters.len());
    if gone.is_empty() { all } else { format!("{all}, {} not; start what is missing", names(&gone)) }
}

/// `groups meta, 0 and 3`, or `group 1`.
pub fn names(groups: &[&Arc<Group>]) -> String {
    let names: Vec<String> = groups.iter().map(|group| group_name(group.index)).collect();
    match names.split_last() {
        None => "no group".to_owned(),
        Some((only, [])) => format!("group {only}"),
        Some((last, others)) => format!("groups {} and {last}", others.join(", ")),
    }
}

/// Removes a node from the groups this node leads, unless it is alive.
pub fn remove_from_led(node: &Arc<Node>, id: NodeId) {
    match node.meta.member(id) {
        Some(member) if member.alive => return,
        None if node.hears(id) => return,
        _ => {}
    }
    for group in node.groups.iter().filter(|group| group.view().leads) {
        let Some(change) = group.begin_change() else { continue };
        let (group, name) = (Arc::clone(group), node.name_of(id));
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(CHANGE_TIMEOUT, remove_from(&group, id, &name)).await {
                tracing::debug!(group = group.name(), error, "a member was not removed");
            }
            drop(change);
        });
    }
}

async fn remove_from(group: &Group, id: NodeId, name: &str) -> Result<(), String> {
    let metrics = group.metrics();
    if !members(&metrics).contains_key(&id) {
        return Ok(());
    }
    let votes = metrics.membership_config.voter_ids().any(|voter| voter == id);
    let change = if votes { ChangeMembers::RemoveVoters([id].into()) } else { ChangeMembers::RemoveNodes([id].into()) };
    tracing::info!(group = group.name(), node = name, "a node leaves");
    group.raft.change_membership(change, false).await.map_err(|error| error.to_string())?;
    Ok(())
}

/// A peer asks for a removal and is told what it came to.
pub fn asked(node: &Arc<Node>, from: NodeId, id: NodeId) {
    if node.operator.removals.lock().insert(id, ()).is_some() {
        return;
    }
    let node = Arc::clone(node);
    tokio::spawn(async move {
        let removed = remove(&node, id, |_| {}).await;
        node.operator.removals.lock().remove(&id);
        let error = match removed {
            Ok(()) | Err(RemoveError::NotAMember) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(transport) = &node.transport {
            transport.send_control(from, Control::Forgotten { node: id, error });
        }
    });
}
