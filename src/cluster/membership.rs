//! Being a member, and letting others be: this node's place in all groups and in `meta`, and requests of peers for theirs.
//!
//! # A voter that lost its disk
//!
//! It comes back empty under its name and must not help to elect a leader that lacks what was acknowledged: it may have been one of the
//! majority that held it, and knows no more. Having caught up with a leader is not enough to know that again: what it acknowledged before the
//! loss may reach that leader, and be committed by it, after the leader last said how far it was. So the empty replica neither grants a
//! vote nor stands for election (that much is written down before it joins: `Storage::is_voteless`, and outlives a crash), and its role is
//! ended and begun anew:
//!
//! 1. It tells the leader of each group that it is empty (`Control::JoinEmpty`). The leader takes its vote away, by a change of membership that is
//!    committed by a majority of the other voters, since the empty one acknowledges it only when it holds all that is before it. So whatever
//!    was committed before with the help of the forgotten replica is on a majority without it from that entry on.
//!    That needs a leader that is none of the past: one that was stopped while a newer one committed with the help of the forgotten replica must
//!    not gather a majority with the empty one, which has forgotten the newer term too. So the empty replica acknowledges nothing, neither
//!    entries nor a snapshot, before a majority of the other voters has told it their terms, and then only of a leader with none of the lower ones
//!    (`emptied`; it asks by `Control::JoinEmpty`, they answer with `Control::Terms`). From the first append on its own term is on its disk again.
//! 2. Then the leader says so (`Control::Counted`, with the index of that membership). The replica may vote when it has applied that entry:
//!    it holds all that its forgotten self ever helped to commit. It counts when it is made a voter again, as any learner.
//!
//! Which groups have their vote again is written down as well (`Storage::votes_in`): a restart of all while one group still waits for a node takes
//! nothing back in the others.
//!
//! The same goes for a replica that promised itself to a founder before it heard of its cluster: the promise counts only in a cluster that the
//! founder says it founded itself (`Control::Founded`).
//!
//! Where there is no leader, or no such majority, since a majority lost its data or stays away, none of that happens by itself: only an operator can say that
//! what is left is all there is (`Cluster::accept_loss`). With `persistence/mode` in-memory a restart of a majority is such a loss, and one
//! that was chosen: there replicas vote after `VOTELESS_MS_MAX`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::replica::NodeId;
use crate::replica::meta::{Member, MetaCommand};

use super::blocking::blocking;
use super::clock::monotonic_ms;
use super::control::{Control, FEATURES};
use super::drain;
use super::emptied;
use super::founding::{self, Word, hear_of, promise};
use super::group::Group;
use super::node::{Node, members};
use super::node_id;
use super::placement::placement;
use super::raft::{Payload, PeerNode};
use super::removal::{self, remove_from_led};
use super::{about, transfer};

/// Between looks at whether this node is where it should be.
const LOOK: Duration = Duration::from_millis(500);
/// A change of a group's membership that does not go through is begun anew.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// A learner so many entries behind may become a voter.
const VOTER_LAG_ENTRIES: u64 = 1_000;
/// A member without a leader for so long asks whether it still is one.
const FORGOTTEN_MS: u64 = 2_000;
/// A replica that came without data votes after so long without a leader, where data are kept in memory only.
const VOTELESS_MS_MAX: u64 = 30_000;

/// Groups in which a joining node has no vote, since it came without data.
struct Empty {
    process: u64,
    groups: Vec<u16>,
}

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
        if node.operator.is_leaving() {
            tokio::time::sleep(LOOK).await;
            continue;
        }
        ask_to_join(&node);
        allow_votes(&node).await;
        note_others(&node).await;
        finish_changes(&node);
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
///
/// What some member's release cannot read is not proposed.
pub async fn propose_meta(node: &Node, mut commands: Vec<MetaCommand>) {
    commands.retain(|command| command.since() <= node.level());
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
            Control::Join { name, address } => admit(&node, from, PeerNode { name, address }, None),
            Control::JoinEmpty { name, address, process, groups } => {
                tell_terms(&node, from, process, &groups);
                admit(&node, from, PeerNode { name, address }, Some(Empty { process, groups }));
            }
            Control::Counted { group, index, process } => counted(&node, from, group, index, process),
            Control::Terms { process, groups } => heard_terms(&node, from, process, groups),
            Control::About(text) => about::heard(&node, from, &text),
            Control::Forget { node: removed } => removal::asked(&node, from, removed),
            Control::Forgotten { node: removed, error } => {
                if removed == node.id {
                    *node.operator.forgotten.lock() = Some(error.map_or(Ok(()), Err));
                }
            }
            Control::Transfer { group, to } => transfer::asked(&node, group, to),
            Control::KeepLeading { group } => node.operator.keep(group),
            Control::Remove { node: removed } => remove_from_led(&node, removed),
            Control::Cluster { id, members } => find(&node, from, &id, members, Word::Joined).await,
            Control::Founded { id, members } => find(&node, from, &id, members, Word::Founded).await,
            Control::PromiseRequest { founder } => answer_promise(&node, from, &founder).await,
            Control::Draining { draining } => drain::heard(&node, from, draining),
            Control::Rebalance => node.hooks.rebalance(),
            Control::PromiseReply { promised_to } => {
                node.promises.lock().insert(from, promised_to);
            }
            Control::Gone { node: gone, lasts } => {
                if node.meta.member(from).is_some() && node.meta.member(gone).is_some() {
                    node.succession.heard(from, gone, lasts);
                }
            }
        }
    }
}

async fn find(node: &Node, from: NodeId, id: &str, members: Vec<(String, String)>, word: Word) {
    if let Some(transport) = &node.transport {
        for (name, address) in members {
            transport.ensure_peer(&name, &address);
        }
    }
    if let Err(error) = hear_of(node, from, id, word).await {
        tracing::error!(%error, "the cluster id cannot be stored");
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
        let founded = founding::founded_itself(node) && transport.version(to) >= FEATURES;
        transport.send_control(to, if founded { Control::Founded { id, members } } else { Control::Cluster { id, members } });
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
    if node.is_established() {
        let groups = node.groups.iter().flat_map(|group| members(&group.metrics()).into_keys());
        let known: BTreeSet<NodeId> = node.meta.members().into_iter().map(|(id, _)| id).chain(groups).collect();
        transport.forget_strangers(&known);
    }
}

/// Asks the peers while some group does not have this node as a member, as far as it knows.
fn ask_to_join(node: &Node) {
    let Some(transport) = &node.transport else { return };
    for group in node.groups.iter().filter(|group| !group.may_vote()) {
        let older = transport.peers().into_iter().filter(|peer| (1..FEATURES).contains(&transport.version(peer.id)));
        older.for_each(|peer| group.words().tells_nothing(peer.id));
    }
    if node.groups.iter().any(|group| !group.may_vote() || misses(node, group)) {
        transport.broadcast(|version| Some(join(node, version)));
    }
}

/// This node's call for a cluster, and its wish to be a member.
pub fn join(node: &Node, version: u16) -> Control {
    let (name, address) = (node.settings.node_name.clone(), node.settings.advertised.clone());
    match &node.transport {
        Some(transport) if version >= FEATURES => {
            let groups = node.groups.iter().filter(|group| !group.may_vote()).map(|group| group.index).collect();
            Control::JoinEmpty { name, address, process: transport.process(), groups }
        }
        _ => Control::Join { name, address },
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

/// Gives replicas that came empty their votes back, each when it may have it (see above), and writes down when all have.
async fn allow_votes(node: &Node) {
    for group in node.groups.iter().filter(|group| !group.may_vote()) {
        let view = group.view();
        let applied = group.applied_index();
        let caught_up = view.reachable && view.caught_up;
        if caught_up && group.counts_from().map_or_else(|| leader_is_older(node, group), |index| applied >= index) {
            group.set_may_vote(true);
        } else if !view.reachable && node.operator.loss_accepted.lock().contains(&group.index) {
            tracing::warn!(group = group.name(), "this replica votes although it came without data, as an operator wants");
            group.set_may_vote(true);
        } else if !node.storage.is_on_disk() && view.leaderless_ms(monotonic_ms()) > VOTELESS_MS_MAX {
            tracing::warn!(group = group.name(), "no leader for long: this replica votes although it came without data");
            group.set_may_vote(true);
        }
    }
    if !node.storage.is_voteless() {
        return;
    }
    let voting: Vec<u16> = node.groups.iter().filter(|group| group.may_vote()).map(|group| group.index).collect();
    let all = voting.len() == node.groups.len();
    if !all && voting.iter().all(|group| node.storage.votes_in(*group)) {
        return;
    }
    let storage = Arc::clone(&node.storage);
    match blocking(move || if all { storage.set_voteless(false) } else { storage.set_voting(voting) }).await {
        Ok(Ok(())) if !all => {}
        Ok(Ok(())) if node.operator.loss_accepted.lock().is_empty() => {
            tracing::info!("this node has its votes: it holds what it had lost, or never had");
        }
        Ok(Ok(())) => {
            tracing::warn!("this node votes in all groups: what only lost disks held is given up, as an operator wants")
        }
        Ok(Err(error)) => tracing::error!(%error, "it cannot be stored that this node votes"),
        Err(error) => tracing::error!(%error, "it cannot be stored that this node votes"),
    }
}

/// Writes down who the other members are, for whoever is to say what becomes of this node's data while it is stopped.
async fn note_others(node: &Node) {
    let mut members = node.raft_members();
    if members.remove(&node.id).is_none() {
        // It knows of none yet, or is to be one.
        return;
    }
    let mut others: Vec<String> = members.into_values().map(|member| member.name).collect();
    others.sort_unstable();
    if node.storage.others().as_ref() == Some(&others) {
        return;
    }
    let storage = Arc::clone(&node.storage);
    match blocking(move || storage.set_others(others)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(%error, "the members cannot be stored"),
        Err(error) => tracing::error!(%error, "the members cannot be stored"),
    }
}

/// A leader of a release that does not say from where on an empty replica counts: then it counts when it has caught up.
fn leader_is_older(node: &Node, group: &Group) -> bool {
    let Some((transport, leader)) = node.transport.as_ref().zip(group.view().reachable_leader()) else { return false };
    let version = transport.version(leader);
    version > 0 && version < FEATURES && group.lag() == 0
}

/// The leader's word that this process is known to have come empty.
fn counted(node: &Node, from: NodeId, group: u16, index: u64, process: u64) {
    let meant = node.transport.as_ref().is_some_and(|transport| transport.process() == process);
    let group = node.groups.get(usize::from(group));
    if let Some(group) = group.filter(|group| meant && group.view().leader == Some(from)) {
        group.set_counts_from(index);
    }
}

/// Tells a peer that came without data what this node knows of these groups.
fn tell_terms(node: &Node, to: NodeId, process: u64, groups: &[u16]) {
    let word = |index: &u16| {
        let word = node.groups.get(usize::from(*index))?.word()?;
        Some((*index, word.term, word.voters))
    };
    let groups: Vec<_> = groups.iter().filter_map(word).collect();
    if let Some(transport) = node.transport.as_ref().filter(|_| !groups.is_empty()) {
        transport.send_control(to, Control::Terms { process, groups });
    }
}

fn heard_terms(node: &Node, from: NodeId, process: u64, groups: Vec<(u16, u64, Vec<Vec<NodeId>>)>) {
    if node.transport.as_ref().is_none_or(|transport| transport.process() != process) {
        return;
    }
    for (index, term, voters) in groups {
        if let Some(group) = node.groups.get(usize::from(index)) {
            group.words().told(from, emptied::Word { term, voters });
        }
    }
}

fn wants_vote(node: &Node, group: &Group, voters: &BTreeSet<NodeId>) -> bool {
    let all = eligible(node, group, node.id);
    placement(group.index, &all, voters).contains(&node.id)
}

/// The members that may have a vote: those that have one, and of the others those alive. Of `asks` it is known.
fn eligible(node: &Node, group: &Group, asks: NodeId) -> BTreeSet<NodeId> {
    let metrics = group.metrics();
    let voters: BTreeSet<NodeId> = metrics.membership_config.voter_ids().collect();
    let alive = |id: &NodeId| *id == asks || node.meta.member(*id).is_some_and(|member| member.alive);
    members(&metrics).into_keys().filter(|id| voters.contains(id) || alive(id)).collect()
}

/// Makes a peer a member of the groups this node leads.
fn admit(node: &Arc<Node>, from: NodeId, peer: PeerNode, empty: Option<Empty>) {
    if node_id(&peer.name) != from {
        return;
    }
    let Some(id) = node.cluster_id() else { return };
    tell_cluster(node, from, id);
    for group in node.groups.iter().filter(|group| group.view().leads) {
        let is_empty = empty.as_ref().is_some_and(|empty| empty.groups.contains(&group.index));
        if let Some(empty) = empty.as_ref().filter(|_| is_empty) {
            tell_counted(node, group, from, empty.process);
        }
        let Some(change) = group.begin_change() else { continue };
        let placed = eligible(node, group, from);
        let group = Arc::clone(group);
        let peer = peer.clone();
        tokio::spawn(async move {
            let changed = timeout(CHANGE_TIMEOUT, admit_to(&group, from, peer, is_empty, &placed)).await;
            if let Ok(Err(error)) = changed {
                tracing::debug!(group = group.name(), error, "a member was not added");
            }
            drop(change);
        });
    }
}

/// Does the second step of changes of membership in the groups this node leads, where whoever did the first is gone or gave up. Until then
/// nothing is agreed on without a majority both of the voters before the change and of those after it.
fn finish_changes(node: &Node) {
    for group in node.groups.iter().filter(|group| group.view().leads && group.is_half_changed()) {
        let Some(change) = group.begin_change() else { continue };
        let group = Arc::clone(group);
        tokio::spawn(async move {
            tracing::info!(group = group.name(), "finishes a change of members that was left half done");
            let finish = ChangeMembers::AddVoterIds(BTreeSet::new());
            let changed = timeout(CHANGE_TIMEOUT, group.raft.change_membership(finish, true)).await;
            if let Ok(Err(error)) = changed {
                tracing::debug!(group = group.name(), %error, "a change of members was not finished");
            }
            drop(change);
        });
    }
}

/// Tells an empty peer that has no vote in this group, by what is committed, from where on it counts.
fn tell_counted(node: &Node, group: &Group, peer: NodeId, process: u64) {
    let metrics = group.metrics();
    let is_learner = members(&metrics).contains_key(&peer) && !metrics.membership_config.voter_ids().any(|voter| voter == peer);
    if let (true, Some(index), Some(transport)) = (is_learner, group.settled_membership(), &node.transport) {
        transport.send_control(peer, Control::Counted { group: group.index, index, process });
    }
}

/// One step for one group: a stranger becomes a learner, a voter that came back empty too, and a learner that caught up becomes a voter where
/// placement says so.
async fn admit_to(group: &Group, id: NodeId, peer: PeerNode, empty: bool, eligible: &BTreeSet<NodeId>) -> Result<(), String> {
    let metrics = group.metrics();
    let known = members(&metrics);
    match known.get(&id) {
        None => {
            tracing::info!(group = group.name(), peer = peer.name, "a node joins");
            group.raft.add_learner(id, peer, false).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        Some(member) if member.address != peer.address => {
            tracing::info!(group = group.name(), peer = peer.name, from = member.address, to = peer.address, "a node has moved");
            let moved = ChangeMembers::SetNodes([(id, peer)].into());
            group.raft.change_membership(moved, true).await.map_err(|error| error.to_string())?;
            return Ok(());
        }
        Some(_) => {}
    }
    let voters: BTreeSet<NodeId> = metrics.membership_config.voter_ids().collect();
    if empty {
        if voters.contains(&id) {
            tracing::warn!(
                group = group.name(),
                peer = peer.name,
                "a voter came back without data: no vote until it has them again"
            );
            let learner = ChangeMembers::RemoveVoters([id].into());
            group.raft.change_membership(learner, true).await.map_err(|error| error.to_string())?;
        }
        return Ok(());
    }
    let placed = placement(group.index, eligible, &voters);
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&id).copied().flatten()).map_or(0, |log_id| log_id.index());
    let behind = metrics.last_log_index.unwrap_or(0).saturating_sub(matched);
    if voters.contains(&id) || !placed.contains(&id) || behind > VOTER_LAG_ENTRIES {
        return Ok(());
    }
    tracing::info!(group = group.name(), peer = peer.name, "a node votes from now on");
    let change = ChangeMembers::AddVoterIds([id].into());
    group.raft.change_membership(change, true).await.map_err(|error| error.to_string())?;
    Ok(())
}
