//! Being a member, and letting others be: this node's place in all groups and in `meta`, and requests of peers for theirs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::replica::NodeId;
use crate::replica::meta::{Member, MetaCommand};

use super::clock::monotonic_ms;
use super::control::Control;
use super::founding::{join, promise};
use super::group::Group;
use super::node::{Node, members};
use super::node_id;
use super::placement::placement;
use super::raft::{Payload, PeerNode};
use super::removal::remove_from_led;

/// Between looks at whether this node is where it should be.
const LOOK: Duration = Duration::from_millis(500);
/// A change of a group's membership that does not go through is begun anew.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// A learner so many entries behind may become a voter.
const VOTER_LAG_ENTRIES: u64 = 1_000;
/// A member without a leader for so long asks whether it still is one.
const FORGOTTEN_MS: u64 = 2_000;
/// A replica that came without data votes after so long without a leader.
const VOTELESS_MS_MAX: u64 = 30_000;

/// Keeps this node a member of all groups and its incarnation known to `meta`.
pub async fn keep_member(node: Arc<Node>) {
    let mut cluster_id = node.watch_cluster_id();
    if cluster_id.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let mut meta_changed = node.meta.watch();
    let mut leader = node.meta_group().watch();
    loop {
        meta_changed.borrow_and_update();
        leader.borrow_and_update();
        know_members(&node);
        ask_to_join(&node);
        allow_votes(&node);
        if !node.is_established() && node.meta_group().view().reachable {
            let member = Member {
                name: node.settings.node_name.clone(),
                address: node.settings.advertised.clone(),
                incarnation: node.incarnation(),
                alive: true,
            };
            let own = node.meta.member(node.id);
            // One that was declared dead comes up again only as a new incarnation.
            if own.is_none_or(|own| own.incarnation < member.incarnation) {
                propose_meta(&node, vec![MetaCommand::NodeUp { node: node.id, member }]).await;
            }
        }
        tokio::select! {
            biased;
            _ = timeout(LOOK, leader.changed()) => {}
            changed = meta_changed.changed() => if changed.is_err() { return },
        }
    }
}

/// Hands meta commands to the leader. Whether they are applied is seen in the state; they are proposed again until then.
pub async fn propose_meta(node: &Node, commands: Vec<MetaCommand>) {
    let group = node.meta_group();
    match group.view().leader {
        Some(leader) if leader == node.id => {
            let written = timeout(LOOK, group.raft.client_write(Payload::Meta(commands))).await;
            if let Ok(Err(error)) = written {
                tracing::debug!(%error, "meta commands were not taken");
            }
        }
        Some(leader) => {
            if let Some(transport) = &node.transport {
                transport.send_control(leader, Control::Meta(commands));
            }
        }
        None => {}
    }
}

/// Handles what peers ask.
pub async fn handle_controls(node: Arc<Node>, mut controls: mpsc::Receiver<(NodeId, Control)>) {
    while let Some((from, control)) = controls.recv().await {
        match control {
            Control::Meta(commands) => {
                let node = Arc::clone(&node);
                tokio::spawn(async move {
                    if node.meta_group().view().leader == Some(node.id) {
                        propose_meta(&node, commands).await;
                    }
                });
            }
            Control::Join { name, address } => admit(&node, from, PeerNode { name, address }),
            Control::Remove { node: removed } => remove_from_led(&node, removed),
            Control::Cluster { id, members } => find(&node, &id, members).await,
            Control::PromiseRequest { founder } => answer_promise(&node, from, &founder).await,
            Control::PromiseReply { promised_to } => {
                node.promises.lock().insert(from, promised_to);
            }
        }
    }
}

async fn find(node: &Node, id: &str, members: Vec<(String, String)>) {
    if let Some(transport) = &node.transport {
        for (name, address) in members {
            transport.ensure_peer(&name, &address);
        }
    }
    if node.cluster_id().is_none() {
        match node.set_cluster_id(id).await {
            Ok(()) => tracing::info!(cluster_id = id, "found the cluster"),
            Err(error) => tracing::error!(%error, "the cluster id cannot be stored"),
        }
    }
}

async fn answer_promise(node: &Node, from: NodeId, founder: &str) {
    if node_id(founder) != from {
        return;
    }
    if let Some(id) = node.cluster_id() {
        tell_cluster(node, from, id);
        return;
    }
    match promise(node, founder).await {
        Ok(promised_to) => {
            if promised_to != founder {
                tracing::warn!(founder, promised_to, "refused a promise: given to another before");
            }
            if let Some(transport) = &node.transport {
                transport.send_control(from, Control::PromiseReply { promised_to });
            }
        }
        Err(error) => tracing::error!(%error, "a promise cannot be stored"),
    }
}

fn tell_cluster(node: &Node, to: NodeId, id: String) {
    let members = node.raft_members().into_values().map(|member| (member.name, member.address)).collect();
    if let Some(transport) = &node.transport {
        transport.send_control(to, Control::Cluster { id, members });
    }
}

/// Dials everybody the groups and `meta` know.
fn know_members(node: &Node) {
    let Some(transport) = &node.transport else { return };
    for (_, member) in node.meta.members() {
        transport.ensure_peer(&member.name, &member.address);
    }
    for member in node.raft_members().into_values() {
        transport.ensure_peer(&member.name, &member.address);
    }
}

/// Asks the peers while some group does not have this node as a member, as far as it knows.
fn ask_to_join(node: &Node) {
    let Some(transport) = &node.transport else { return };
    if node.groups.iter().any(|group| misses(node, group)) {
        transport.broadcast_control(&join(node));
    }
}

fn misses(node: &Node, group: &Group) -> bool {
    let metrics = group.metrics();
    let Some(known) = members(&metrics).remove(&node.id) else { return true };
    let voters: BTreeSet<NodeId> = metrics.membership_config.voter_ids().collect();
    let moved = known.address != node.settings.advertised;
    // A learner asks on, for the leader to see whether it has caught up by now.
    let is_to_vote = !voters.contains(&node.id) && wants_vote(node, group, &voters);
    // Nobody speaks to it: it may have been removed while it was away.
    let forgotten = group.view().leaderless_ms(monotonic_ms()) > FORGOTTEN_MS;
    moved || is_to_vote || forgotten
}

/// A replica that came empty votes once it holds what the leader had committed. Should there be no leader for long, a majority has lost
/// its data: what is left is all there is, and better than nothing.
fn allow_votes(node: &Node) {
    for group in node.groups.iter().filter(|group| !group.may_vote()) {
        let view = group.view();
        let caught_up = view.reachable && view.caught_up && group.lag() == 0;
        if caught_up {
            group.set_may_vote(true);
        } else if view.leaderless_ms(monotonic_ms()) > VOTELESS_MS_MAX {
            tracing::warn!(group = group.index, "no leader for long: this replica votes although it came without data");
            group.set_may_vote(true);
        }
    }
}

fn wants_vote(node: &Node, group: &Group, voters: &BTreeSet<NodeId>) -> bool {
    let all: BTreeSet<NodeId> = members(&group.metrics()).into_keys().collect();
    placement(group.index, &all, voters).contains(&node.id)
}

/// Makes a peer a member of the groups this node leads.
fn admit(node: &Arc<Node>, from: NodeId, peer: PeerNode) {
    if node_id(&peer.name) != from {
        return;
    }
    let Some(id) = node.cluster_id() else { return };
    tell_cluster(node, from, id);
    for group in node.groups.iter().filter(|group| group.view().leads) {
        let Some(change) = group.begin_change() else { continue };
        let group = Arc::clone(group);
        let peer = peer.clone();
        tokio::spawn(async move {
            let changed = timeout(CHANGE_TIMEOUT, admit_to(&group, from, peer)).await;
            if let Ok(Err(error)) = changed {
                tracing::debug!(group = group.index, error, "a member was not added");
            }
            drop(change);
        });
    }
}

/// One step for one group: a stranger becomes a learner, a learner that caught up becomes a voter where placement says so.
async fn admit_to(group: &Group, id: NodeId, peer: PeerNode) -> Result<(), String> {
    let metrics = group.metrics();
    let known = members(&metrics);
    match known.get(&id) {
        None => {
            tracing::info!(group = group.index, peer = peer.name, "a node joins");
            group.raft.add_learner(id, peer, false).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        Some(member) if member.address != peer.address => {
            let moved = ChangeMembers::SetNodes([(id, peer)].into());
            group.raft.change_membership(moved, true).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        Some(_) => {}
    }
    let voters: BTreeSet<NodeId> = metrics.membership_config.voter_ids().collect();
    let placed = placement(group.index, &known.into_keys().collect(), &voters);
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map_or(0, |log_id| log_id.index());
    let behind = metrics.last_log_index.unwrap_or(0).saturating_sub(matched);
    if voters.contains(&id) || !placed.contains(&id) || behind > VOTER_LAG_ENTRIES {
        return Ok(());
    }
    tracing::info!(group = group.index, peer = peer.name, "a node votes from now on");
    let change = ChangeMembers::AddVoterIds([id].into());
    group.raft.change_membership(change, true).await.map_err(|error| error.to_string())?;
    Ok(())
}
