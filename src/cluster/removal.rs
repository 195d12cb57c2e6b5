//! Leaving for good: an explicit command for a node that is stopped. (A node that merely stops stays a member.)

use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::time::{Instant, timeout};

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::control::Control;
use super::group::Group;
use super::membership::propose_meta;
use super::node::{Node, members};

/// Between two attempts; leaders may change meanwhile.
const AGAIN: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(30);
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a node is not removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RemoveError {
    #[error("no such member")]
    NotAMember,
    #[error("the node is alive: stop it first")]
    Alive,
    #[error("not every group has a leader in reach; the removal goes on when it is asked for again")]
    Timeout,
}

/// Removes a stopped node from all groups, then from `meta`. Asked for again it goes on where it stopped.
pub async fn remove(node: &Arc<Node>, id: NodeId) -> Result<(), RemoveError> {
    match node.meta.member(id) {
        None => return Err(RemoveError::NotAMember),
        Some(member) if member.alive => return Err(RemoveError::Alive),
        Some(_) => {}
    }
    let until = Instant::now() + TIMEOUT;
    while Instant::now() < until {
        let in_groups = node.groups.iter().any(|group| members(&group.metrics()).contains_key(&id));
        if in_groups {
            if let Some(transport) = &node.transport {
                transport.broadcast_control(&Control::Remove { node: id });
            }
            remove_from_led(node, id);
        } else if node.meta.member(id).is_some() {
            propose_meta(node, vec![MetaCommand::NodeRemoved { node: id }]).await;
        } else {
            return Ok(());
        }
        tokio::time::sleep(AGAIN).await;
    }
    Err(RemoveError::Timeout)
}

/// Removes a node from the groups this node leads, unless it came back to life.
pub fn remove_from_led(node: &Arc<Node>, id: NodeId) {
    if node.meta.member(id).is_none_or(|member| member.alive) {
        return;
    }
    for group in node.groups.iter().filter(|group| group.view().leads) {
        let Some(change) = group.begin_change() else { continue };
        let group = Arc::clone(group);
        tokio::spawn(async move {
            if let Ok(Err(error)) = timeout(CHANGE_TIMEOUT, remove_from(&group, id)).await {
                tracing::debug!(group = group.index, error, "a member was not removed");
            }
            drop(change);
        });
    }
}

async fn remove_from(group: &Group, id: NodeId) -> Result<(), String> {
    let metrics = group.metrics();
    if !members(&metrics).contains_key(&id) {
        return Ok(());
    }
    let votes = metrics.membership_config.voter_ids().any(|voter| voter == id);
    let change = if votes { ChangeMembers::RemoveVoters([id].into()) } else { ChangeMembers::RemoveNodes([id].into()) };
    tracing::info!(group = group.index, node = id, "a node leaves");
    group.raft.change_membership(change, false).await.map_err(|error| error.to_string())?;
    Ok(())
}
