//! Leadership goes where an operator wants it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::NodeId;

use super::control::{Control, FEATURES};
use super::drain;
use super::group::{Group, group_name};
use super::node::Node;
use super::node_id::node_id;
use super::removal::{in_reach, leaderless, names};

const AGAIN: Duration = Duration::from_millis(300);
const TIMEOUT: Duration = Duration::from_secs(20);

/// Has another node lead: `to`, or the voter that is the least behind; the group of that name, or all that this node leads. Tells what it came
/// to, or what is missing.
pub async fn transfer(node: &Arc<Node>, to: Option<&str>, group: Option<&str>, told: impl Fn(String)) -> Result<String, String> {
    let groups = groups(node, group)?;
    if groups.is_empty()
        && let Some(leaderless) = leaderless(node)
    {
        return Err(leaderless);
    }
    let to = to.map(|name| member(node, name)).transpose()?;
    if let Some(to) = to {
        groups.iter().try_for_each(|group| check_voter(node, group, to))?;
    }
    let mut left: Vec<(&Arc<Group>, Option<NodeId>)> =
        groups.iter().map(|group| (group, group.view().reachable_leader())).collect();
    let until = Instant::now() + TIMEOUT;
    loop {
        left.retain(|(group, before)| {
            let leader = group.view().reachable_leader();
            match to {
                Some(to) => leader != Some(to),
                None => leader.is_none() || leader == *before,
            }
        });
        let names = names(&left.iter().map(|(group, _)| *group).collect::<Vec<_>>());
        if left.is_empty() {
            return Ok(led(node, &groups));
        }
        if Instant::now() >= until {
            return Err(format!("{names} did not change hands in time: {}; ask again", in_reach(node)));
        }
        told(format!("hands over {names}"));
        for (group, _) in &left {
            match group.view().reachable_leader() {
                Some(leader) if leader == node.id => hand_over(node, group, to).await?,
                Some(leader) => ask(node, leader, group, to)?,
                None => told(format!("waits for a leader of group {}: {}", group_name(group.index), in_reach(node))),
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn groups(node: &Node, group: Option<&str>) -> Result<Vec<Arc<Group>>, String> {
    let all = || node.groups.iter();
    match group {
        None => Ok(all().filter(|group| group.view().leads).cloned().collect()),
        Some(name) => match all().find(|group| group_name(group.index) == name) {
            Some(group) => Ok(vec![Arc::clone(group)]),
            None => Err(format!("there is no group {name}; allowed: meta, and 0 to {}", node.settings.shards.saturating_sub(1))),
        },
    }
}

fn member(node: &Node, name: &str) -> Result<NodeId, String> {
    let id = node_id(name);
    match node.meta.member(id) {
        Some(_) if drain::is_draining(node, id) => {
            Err(format!("{name} drains or stops, so it leads nothing; end that there first (troupemq cluster undrain)"))
        }
        Some(member) if member.alive && node.hears(id) => Ok(id),
        Some(_) => Err(format!("{name} is not in reach, so it cannot lead; start it first")),
        None => {
            let known: Vec<String> = node.meta.members().into_iter().map(|(_, member)| member.name).collect();
            Err(format!("there is no member {name}; there are: {}", known.join(", ")))
        }
    }
}

fn check_voter(node: &Node, group: &Group, to: NodeId) -> Result<(), String> {
    if group.metrics().membership_config.voter_ids().any(|voter| voter == to) {
        return Ok(());
    }
    Err(format!("{} has no vote in group {}, so it cannot lead it", node.name_of(to), group_name(group.index)))
}

/// By the group's leader.
async fn hand_over(node: &Node, group: &Group, to: Option<NodeId>) -> Result<(), String> {
    let Some(transport) = &node.transport else { return Err("this node is alone: there is no other to lead".to_owned()) };
    let successor = to.or_else(|| group.successor(|peer| transport.connected(peer) && !drain::is_draining(node, peer)));
    let Some(successor) = successor else {
        return Err(format!(
            "no other voter of group {} is in reach that does not drain: {}",
            group_name(group.index),
            in_reach(node)
        ));
    };
    if transport.version(successor) >= FEATURES {
        transport.send_control(successor, Control::KeepLeading { group: group.index });
    }
    group.raft.trigger().transfer_leader(successor).await.map_err(|error| error.to_string())
}

fn ask(node: &Node, leader: NodeId, group: &Group, to: Option<NodeId>) -> Result<(), String> {
    let Some(transport) = &node.transport else { return Ok(()) };
    if transport.version(leader) < FEATURES {
        return Err(format!(
            "{} leads group {} and runs an older release; ask that node",
            node.name_of(leader),
            group_name(group.index)
        ));
    }
    transport.send_control(leader, Control::Transfer { group: group.index, to });
    Ok(())
}

/// A peer's operator asks.
pub fn asked(node: &Arc<Node>, group: u16, to: Option<NodeId>) {
    let Some(group) = node.groups.get(usize::from(group)).filter(|group| group.view().leads && to != Some(node.id)).cloned()
    else {
        return;
    };
    let node = Arc::clone(node);
    tokio::spawn(async move {
        if let Err(error) = hand_over(&node, &group, to).await {
            tracing::warn!(group = group.name(), error, "leadership was not handed over as a peer asked");
        }
    });
}

fn led(node: &Node, groups: &[Arc<Group>]) -> String {
    if groups.is_empty() {
        return format!("{} leads no group", node.settings.node_name);
    }
    let leader = |group: &Arc<Group>| group.view().reachable_leader().map_or_else(|| "none".to_owned(), |id| node.name_of(id));
    let lines: Vec<String> = groups.iter().map(|group| format!("group {}: {}", group_name(group.index), leader(group))).collect();
    format!("leaders now: {}", lines.join(", "))
}
