//! A leader whose process is gone has a successor at once, and not only when its lease and an election timeout are over.
//!
//! A node that finds a peer's process gone (its connections ended, and nothing listens at its address any more) tells all others, with the
//! last entry it holds of each group that the peer leads (`Control::Gone`). One node's word proves nothing: a firewall between the two may refuse
//! the connection. A majority's is also what declares an incarnation dead at once (`failure_detector`). Once a majority of a group's voters say the same, the lease
//! protects nobody: without that majority the leader commits nothing, whatever it is. The voter with the longest log, among equals the one
//! that is preferred, stands for election as if the leader had handed over to it; the others drop the lease. All see the same words, so
//! they choose the same one and votes are not split. Should it not be elected, the next one tries. One that stops or drains stands only where nobody
//! else can be elected: it would hand over again at once.
//!
//! Silence is another matter: it says nothing of the process, and the lease is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::replica::NodeId;

use super::control::Control;
use super::drain;
use super::group::Group;
use super::node::Node;
use super::placement::preferred_leader;
use super::transport::Transport;

/// Between looks, and so between two times the same is said.
const LOOK: Duration = Duration::from_millis(100);
/// What was said longer ago does not count.
const TESTIMONY_MAX_AGE: Duration = Duration::from_secs(1);
/// Before the next voter stands for election.
const ATTEMPT: Duration = Duration::from_millis(200);

/// Last entries of groups, by the group's index; `None` = an empty log.
pub type Lasts = BTreeMap<u16, Option<LogEnd>>;

/// The last entry of a log; the greater has seen more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogEnd {
    pub term: u64,
    pub index: u64,
}

/// What nodes say of peers that are gone.
#[derive(Default)]
pub struct Succession {
    said: Mutex<BTreeMap<NodeId, Testimonies>>,
    pub bell: Notify,
}

/// By who said it, and when.
type Testimonies = BTreeMap<NodeId, (Instant, Lasts)>;

impl Succession {
    /// A member says that another's process is gone.
    pub fn heard(&self, from: NodeId, gone: NodeId, lasts: Lasts) {
        self.said.lock().entry(gone).or_default().insert(from, (Instant::now(), lasts));
        self.bell.notify_one();
    }

    fn of(&self, gone: NodeId) -> BTreeMap<NodeId, Lasts> {
        let mut said = self.said.lock();
        let Some(testimonies) = said.get_mut(&gone) else { return BTreeMap::new() };
        testimonies.retain(|_, (at, _)| at.elapsed() < TESTIMONY_MAX_AGE);
        testimonies.iter().map(|(from, (_, lasts))| (*from, lasts.clone())).collect()
    }

    fn forget_all_but(&self, gone: &[NodeId]) {
        self.said.lock().retain(|node, testimonies| {
            gone.contains(node) || testimonies.values().any(|(at, _)| at.elapsed() < TESTIMONY_MAX_AGE)
        });
    }
}

/// Elections that were begun for a group.
struct Attempts {
    of: NodeId,
    count: usize,
    last: Instant,
}

pub async fn run(node: Arc<Node>) {
    let Some(transport) = &node.transport else { return };
    let mut attempts: BTreeMap<u16, Attempts> = BTreeMap::new();
    let mut told: BTreeMap<NodeId, Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = node.succession.bell.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let peers = transport.peers().into_iter();
        let gone: Vec<NodeId> = peers.filter(|peer| peer.refused).map(|peer| peer.id).collect();
        node.succession.forget_all_but(&gone);
        told.retain(|peer, _| gone.contains(peer));
        attempts.retain(|_, attempts| gone.contains(&attempts.of));
        for gone in gone {
            let headless = headless(&node, gone, &mut attempts);
            let counts = node.meta.member(gone).is_some_and(|member| member.alive);
            if headless.is_empty() && !counts {
                continue;
            }
            if told.get(&gone).is_none_or(|at| at.elapsed() >= LOOK) {
                told.insert(gone, Instant::now());
                let lasts = lasts(&headless).await;
                node.succession.heard(node.id, gone, lasts.clone());
                transport.broadcast_control(&Control::Gone { node: gone, lasts });
            }
            if counts {
                node.link_bell.notify_one();
            }
            let said = node.succession.of(gone);
            for group in headless {
                succeed(&node, group, gone, &said, &mut attempts);
            }
        }
    }
}

/// Whether a peer's process is gone: this node finds it so, and so does a majority of those that vote in `meta`.
pub fn is_gone(node: &Node, peer: NodeId) -> bool {
    let refused = |transport: &Arc<Transport>| transport.peers().iter().any(|known| known.id == peer && known.refused);
    if !node.transport.as_ref().is_some_and(refused) {
        return false;
    }
    let voters = node.meta_group().metrics().membership_config.voter_ids().collect();
    is_majority(&voters, peer, |voter| node.succession.of(peer).contains_key(&voter))
}

/// Whether a majority of the voters say that one is gone; its own word counts for nothing.
fn is_majority(voters: &BTreeSet<NodeId>, gone: NodeId, says: impl Fn(NodeId) -> bool) -> bool {
    voters.iter().filter(|voter| **voter != gone && says(**voter)).count() * 2 > voters.len()
}

/// The groups that the peer led last, as far as this node knows, and in which it votes.
fn headless<'a>(node: &'a Node, gone: NodeId, attempts: &mut BTreeMap<u16, Attempts>) -> Vec<&'a Arc<Group>> {
    let mut headless = Vec::new();
    for group in node.groups.iter().filter(|group| group.may_vote()) {
        let metrics = group.metrics();
        let led = match metrics.current_leader {
            Some(leader) => leader == gone,
            None => attempts.contains_key(&group.index),
        };
        if !led {
            attempts.remove(&group.index);
        } else if metrics.membership_config.voter_ids().any(|voter| voter == node.id) {
            headless.push(group);
        }
    }
    headless
}

async fn lasts(groups: &[&Arc<Group>]) -> Lasts {
    let mut lasts = Lasts::new();
    for group in groups {
        if let Ok(last) = group.last_entry().await {
            lasts.insert(group.index, last.map(|(term, index)| LogEnd { term, index }));
        }
    }
    lasts
}

/// Has the successor stand for election, if it is known who that is.
fn succeed(
    node: &Node,
    group: &Arc<Group>,
    gone: NodeId,
    said: &BTreeMap<NodeId, Lasts>,
    attempts: &mut BTreeMap<u16, Attempts>,
) {
    let metrics = group.metrics();
    let voters: BTreeSet<NodeId> = metrics.membership_config.voter_ids().collect();
    let ends = said.iter().filter_map(|(from, lasts)| Some((*from, *lasts.get(&group.index)?)));
    let candidates = candidates(group.index, &voters, gone, &ends.collect(), |voter| drain::is_draining(node, voter));
    if candidates.is_empty() {
        return;
    }
    let tried = attempts.get(&group.index).filter(|tried| tried.of == gone);
    let count = match tried {
        Some(tried) if tried.last.elapsed() < ATTEMPT => return,
        Some(tried) => tried.count,
        None => 0,
    };
    attempts.insert(group.index, Attempts { of: gone, count: count + 1, last: Instant::now() });
    let chosen = candidates[count % candidates.len()];
    if chosen == node.id {
        tracing::info!(
            group = group.name(),
            gone = node.name_of(gone),
            "the leader's process is gone: this node stands for election"
        );
    }
    let group = Arc::clone(group);
    // The successor first waits for its own log to be flushed.
    tokio::spawn(async move { group.succeed(gone, chosen).await });
}

/// Who is to stand for election in which order; empty while no majority of the voters says that the leader is gone.
fn candidates(
    group: u16,
    voters: &BTreeSet<NodeId>,
    gone: NodeId,
    ends: &BTreeMap<NodeId, Option<LogEnd>>,
    drains: impl Fn(NodeId) -> bool,
) -> Vec<NodeId> {
    let mut candidates: Vec<NodeId> = voters.iter().copied().filter(|voter| *voter != gone && ends.contains_key(voter)).collect();
    if candidates.len() * 2 <= voters.len() {
        return Vec::new();
    }
    let alive: BTreeSet<NodeId> = candidates.iter().copied().collect();
    let preferred = preferred_leader(group, &alive);
    let end = |voter: NodeId| ends.get(&voter).copied().flatten();
    // A majority holds no more than it: those would vote for it.
    let can_win = |voter: NodeId| alive.iter().filter(|other| end(**other) <= end(voter)).count() * 2 > voters.len();
    candidates
        .sort_by_key(|&voter| (!can_win(voter), drains(voter), std::cmp::Reverse(end(voter)), Some(voter) != preferred, voter));
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(of: &[(NodeId, u64, u64)]) -> BTreeMap<NodeId, Option<LogEnd>> {
        of.iter().map(|&(node, term, index)| (node, Some(LogEnd { term, index }))).collect()
    }

    #[test]
    fn a_majority_of_the_voters_must_say_that_the_leader_is_gone() {
        let three: BTreeSet<NodeId> = [1, 2, 3].into();
        let five: BTreeSet<NodeId> = [1, 2, 3, 4, 5].into();
        let cases: [(&BTreeSet<NodeId>, &[NodeId], usize); 7] = [
            (&three, &[2], 0),
            (&three, &[2, 3], 2),
            // The leader's own word, and that of nodes that do not vote, count for nothing.
            (&three, &[1, 2], 0),
            (&three, &[2, 7, 8], 0),
            (&five, &[2, 3], 0),
            (&five, &[2, 3, 4], 3),
            (&five, &[2, 3, 4, 5], 4),
        ];
        for (voters, said_by, expected) in cases {
            let ends = said_by.iter().map(|node| (*node, None)).collect();
            assert_eq!(candidates(1, voters, 1, &ends, |_| false).len(), expected, "{voters:?} {said_by:?}");
            assert_eq!(is_majority(voters, 1, |voter| said_by.contains(&voter)), expected > 0, "{voters:?} {said_by:?}");
        }
    }

    #[test]
    fn the_longest_log_stands_first_then_who_is_preferred() {
        let voters: BTreeSet<NodeId> = [1, 2, 3].into();
        assert_eq!(candidates(4, &voters, 1, &ends(&[(2, 5, 9), (3, 5, 10)]), |_| false), [3, 2]);
        assert_eq!(candidates(4, &voters, 1, &ends(&[(2, 6, 1), (3, 5, 10)]), |_| false), [2, 3]);
        // Groups 4 and 5 differ in whom they prefer of the two that are left.
        assert_eq!(candidates(4, &voters, 1, &ends(&[(2, 5, 9), (3, 5, 9)]), |_| false), [2, 3]);
        assert_eq!(candidates(5, &voters, 1, &ends(&[(2, 5, 9), (3, 5, 9)]), |_| false), [3, 2]);
    }

    #[test]
    fn one_that_drains_stands_only_where_nobody_else_can_be_elected() {
        let three: BTreeSet<NodeId> = [1, 2, 3].into();
        let drains = |voter| voter == 2;
        assert_eq!(candidates(4, &three, 1, &ends(&[(2, 5, 9), (3, 5, 9)]), drains), [3, 2]);
        // Without the vote of 2, which holds more, 3 has no majority.
        assert_eq!(candidates(4, &three, 1, &ends(&[(2, 5, 10), (3, 5, 9)]), drains), [2, 3]);
        let five: BTreeSet<NodeId> = [1, 2, 3, 4, 5].into();
        let ends = ends(&[(2, 5, 10), (3, 5, 9), (4, 5, 9), (5, 5, 8)]);
        assert_eq!(candidates(4, &five, 1, &ends, drains).first().copied().map(drains), Some(false));
    }

    #[test]
    fn what_was_said_long_ago_does_not_count() {
        let succession = Succession::default();
        succession.heard(2, 1, Lasts::new());
        assert_eq!(succession.of(1).len(), 1);
        assert_eq!(succession.of(3).len(), 0);
        let long_ago = Instant::now().checked_sub(TESTIMONY_MAX_AGE * 2).unwrap();
        succession.said.lock().get_mut(&1).unwrap().get_mut(&2).unwrap().0 = long_ago;
        assert_eq!(succession.of(1).len(), 0);
        succession.forget_all_but(&[]);
        assert!(succession.said.lock().is_empty());
    }
}
