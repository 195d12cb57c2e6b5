//! Leaving the work to others for a while: a node that is told to stop or to drain leads nothing, and is led no clients to.
//!
//! It goes on replicating and voting. It hands over what it leads, does not stand for election (unless nobody else can lead for
//! `LEADERLESS`), and its peers, whom it tells, hand nothing to it. Nothing of that outlives the process.

use std::sync::Arc;
use std::time::Duration;

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::clock::monotonic_ms;
use super::control::{Control, FEATURES};
use super::group::Group;
use super::membership::propose_meta;
use super::node::Node;

/// Between looks at what is led; leadership that was not taken is handed over again.
const LOOK: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(20);
/// Peers are told again, and forget who does not tell them any more.
const TELL_MS: u64 = 1_000;
const FORGET_MS: u64 = 5_000;
/// Longest election timeouts without a leader after which a leaving node stands for election after all.
const LEADERLESS_ELECTIONS: u64 = 3;
/// Between looks at whether a goodbye was applied.
const GOODBYE_LOOK: Duration = Duration::from_millis(100);

/// Keeps a node that leaves its work to others from leading, until the node stops.
pub async fn run(node: Arc<Node>) {
    let mut told_ms = None;
    let mut asked = vec![None; node.groups.len()];
    loop {
        let leaves = node.leaves_work();
        let now_ms = monotonic_ms();
        for group in &node.groups {
            let leaderless = group.view().leaderless_ms(now_ms) > node.settings.election_max_ms * LEADERLESS_ELECTIONS;
            group.set_may_lead(!leaves || leaderless);
        }
        if leaves {
            hand_over_once(&node, &mut asked, now_ms).await;
        }
        if told_ms.is_some_and(|told| told + TELL_MS <= now_ms) || leaves != told_ms.is_some() {
            told_ms = leaves.then_some(now_ms);
            if let Some(transport) = &node.transport {
                transport.broadcast(|version| (version >= FEATURES).then_some(Control::Draining { draining: leaves }));
            }
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(LOOK) => {}
            () = node.drain_bell.notified() => {}
        }
    }
}

/// A peer says whether work may be handed to it.
pub fn heard(node: &Node, from: NodeId, draining: bool) {
    let mut peers = node.draining_peers.lock();
    if draining {
        peers.insert(from, monotonic_ms());
    } else {
        peers.remove(&from);
    }
}

/// Whether a member, this node or another, is to be left without work.
pub fn is_draining(node: &Node, member: NodeId) -> bool {
    if member == node.id {
        return node.leaves_work();
    }
    let told_ms = node.draining_peers.lock().get(&member).copied();
    told_ms.is_some_and(|told| monotonic_ms().saturating_sub(told) < FORGET_MS)
}

/// Waits until a node that leaves its work leads no group that another could lead, and whoever leads instead has committed something: before that
/// nothing else is committed either, and clients that are sent away would wait for it elsewhere, for the ends of their connections first.
pub async fn hand_over(node: &Node) {
    if node.transport.is_none() {
        return;
    }
    node.drain_bell.notify_one();
    let in_between = |group: &Group| {
        let view = group.view();
        !group.is_leader() && (view.reachable_leader().is_none() || !view.caught_up)
    };
    while node.groups.iter().any(|group| successor(node, group).is_some() || in_between(group)) {
        tokio::time::sleep(POLL).await;
    }
}

/// A successor that a group was asked to have, in the term that it was led in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    term: u64,
    to: NodeId,
    since_ms: u64,
}

impl Asked {
    /// Whom to ask now: for `patience_ms` the same, if it `is_able` to lead. Two that are asked at a time are candidates of one term, and may
    /// share the votes; then nobody leads for an election timeout.
    fn next(before: Option<Self>, now: Self, patience_ms: u64, is_able: impl Fn(NodeId) -> bool) -> Self {
        let goes_on =
            |before: &Self| before.term == now.term && now.since_ms - before.since_ms < patience_ms && is_able(before.to);
        before.filter(goes_on).unwrap_or(now)
    }
}

async fn hand_over_once(node: &Node, asked: &mut [Option<Asked>], now_ms: u64) {
    for (group, asked) in node.groups.iter().zip(asked) {
        let Some(best) = successor(node, group) else { continue };
        let now = Asked { term: group.metrics().current_term, to: best, since_ms: now_ms };
        // A successor waits for its log to be flushed for as long as the shortest election timeout.
        let next = Asked::next(*asked, now, node.settings.election_min_ms, |peer| is_able(node, peer));
        *asked = Some(next);
        if let Err(error) = group.raft.trigger().transfer_leader(next.to).await {
            tracing::debug!(group = group.name(), %error, "leadership was not handed over");
        }
    }
}

fn is_able(node: &Node, peer: NodeId) -> bool {
    node.transport.as_ref().is_some_and(|transport| transport.connected(peer)) && !is_draining(node, peer)
}

/// Nodes that all stop or drain would hand leadership round and round: each keeps what only another of them could take.
fn successor(node: &Node, group: &Group) -> Option<NodeId> {
    group.successor(|peer| is_able(node, peer))
}

/// Has this node's incarnation declared dead by its own wish, so that the others need not notice; returns when that is applied here.
pub async fn say_goodbye(node: &Node) {
    let mut meta_changed = node.meta.watch();
    loop {
        meta_changed.borrow_and_update();
        let incarnation = node.incarnation();
        if node.meta.is_dead(node.id, incarnation) {
            return;
        }
        propose_meta(node, vec![MetaCommand::NodeDown { node: node.id, incarnation }]).await;
        let _ = tokio::time::timeout(GOODBYE_LOOK, meta_changed.changed()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_successor_is_asked_again_for_as_long_as_it_may_take() {
        let asked = |term, to, since_ms| Asked { term, to, since_ms };
        let next = |before, now| Asked::next(Some(before), now, 600, |peer| peer != 9);
        assert_eq!(Asked::next(None, asked(1, 2, 5), 600, |_| true), asked(1, 2, 5));
        assert_eq!(next(asked(1, 2, 5), asked(1, 3, 604)), asked(1, 2, 5), "another has caught up meanwhile");
        assert_eq!(next(asked(1, 2, 5), asked(1, 3, 605)), asked(1, 3, 605), "it had its time");
        assert_eq!(next(asked(1, 2, 5), asked(2, 3, 6)), asked(2, 3, 6), "of another term");
        assert_eq!(next(asked(1, 9, 5), asked(1, 3, 6)), asked(1, 3, 6), "out of reach");
    }
}
