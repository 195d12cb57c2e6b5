//! Who has applied how much of one shard, and what waits for it.

use std::collections::BTreeMap;

use crate::replica::NodeId;

/// One shard's ledger; `W` is what is handed out when an index is applied on all nodes that count.
pub struct Ledger<W> {
    applied: BTreeMap<NodeId, u64>,
    /// By the index waited for, with the time it began.
    waiting: BTreeMap<u64, Vec<(u64, W)>>,
}

impl<W> Default for Ledger<W> {
    fn default() -> Self {
        Self { applied: BTreeMap::new(), waiting: BTreeMap::new() }
    }
}

impl<W> Ledger<W> {
    /// Takes a waiter in; false where all peers that count have applied the index already.
    pub fn wait(&mut self, index: u64, peers: &[NodeId], now_ms: u64, waiter: impl FnOnce() -> W) -> bool {
        let waits = self.floor(peers) < index;
        if waits {
            self.waiting.entry(index).or_default().push((now_ms, waiter()));
        }
        waits
    }

    /// A peer said how far it is; an older word may come later by another way.
    pub fn applied(&mut self, peer: NodeId, index: u64) {
        let known = self.applied.entry(peer).or_default();
        *known = index.max(*known);
    }

    /// The peer begins anew: what it said before is void. (Where an operator gave up what only lost disks held, indexes go back.)
    pub fn forget(&mut self, peer: NodeId) {
        self.applied.remove(&peer);
    }

    /// What waits no more.
    pub fn release(&mut self, peers: &[NodeId]) -> Vec<W> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let later = match self.floor(peers).checked_add(1) {
            Some(next) => self.waiting.split_off(&next),
            None => BTreeMap::new(),
        };
        let released = std::mem::replace(&mut self.waiting, later);
        released.into_values().flatten().map(|(_, waiter)| waiter).collect()
    }

    /// Peers that the oldest waiter waits for, if it has waited since `since_ms` or longer.
    pub fn late(&self, peers: &[NodeId], since_ms: u64) -> Vec<NodeId> {
        let Some((index, _)) = self.waiting.iter().find(|(_, waiters)| waiters.iter().any(|(at_ms, _)| *at_ms <= since_ms))
        else {
            return Vec::new();
        };
        peers.iter().copied().filter(|peer| self.of(*peer) < *index).collect()
    }

    fn of(&self, peer: NodeId) -> u64 {
        self.applied.get(&peer).copied().unwrap_or(0)
    }

    fn floor(&self, peers: &[NodeId]) -> u64 {
        peers.iter().map(|peer| self.of(*peer)).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [NodeId; 2] = [2, 3];

    fn waiting(indexes: &[u64]) -> Ledger<u64> {
        let mut ledger = Ledger::default();
        for index in indexes {
            assert!(ledger.wait(*index, &PEERS, *index, || *index));
        }
        ledger
    }

    #[test]
    fn a_waiter_is_released_when_the_last_peer_has_applied_its_index() {
        let mut ledger = waiting(&[5, 7, 9]);
        ledger.applied(2, 8);
        assert!(ledger.release(&PEERS).is_empty());
        ledger.applied(3, 7);
        assert_eq!(ledger.release(&PEERS), [5, 7]);
        ledger.applied(3, 20);
        assert!(ledger.release(&PEERS).is_empty());
        ledger.applied(2, 9);
        assert_eq!(ledger.release(&PEERS), [9]);
    }

    #[test]
    fn what_is_applied_everywhere_or_has_nobody_to_wait_for_does_not_wait() {
        let mut ledger = waiting(&[]);
        ledger.applied(2, 5);
        ledger.applied(3, 6);
        assert!(!ledger.wait(5, &PEERS, 0, || 5));
        assert!(ledger.wait(6, &PEERS, 0, || 6));
        assert!(!ledger.wait(7, &[], 0, || 7));
        assert!(!ledger.wait(6, &[3], 0, || 6));
    }

    #[test]
    fn a_peer_that_counts_no_more_releases_what_waited_for_it_alone() {
        let mut ledger = waiting(&[5, 6]);
        ledger.applied(2, 5);
        assert!(ledger.release(&PEERS).is_empty());
        assert_eq!(ledger.release(&[2]), [5]);
        assert_eq!(ledger.release(&[]), [6]);
    }

    #[test]
    fn an_older_word_of_a_peer_does_not_take_back_a_newer_one() {
        let mut ledger = waiting(&[5]);
        ledger.applied(2, 5);
        ledger.applied(2, 3);
        ledger.applied(3, 5);
        assert_eq!(ledger.release(&PEERS), [5]);
    }

    #[test]
    fn what_a_peer_said_before_it_began_anew_counts_no_more() {
        let mut ledger = waiting(&[]);
        ledger.applied(2, 9);
        ledger.applied(3, 9);
        ledger.forget(2);
        assert!(ledger.wait(5, &PEERS, 0, || 5), "its indexes may have gone back");
        ledger.applied(2, 5);
        assert_eq!(ledger.release(&PEERS), [5]);
    }

    #[test]
    fn late_are_the_peers_that_the_oldest_waiter_lacks() {
        let mut ledger = waiting(&[5, 7]);
        assert!(ledger.late(&PEERS, 4).is_empty());
        assert_eq!(ledger.late(&PEERS, 5), [2, 3]);
        ledger.applied(2, 6);
        assert_eq!(ledger.late(&PEERS, 5), [3]);
        assert_eq!(ledger.late(&PEERS, 7), [3]);
        ledger.applied(3, 6);
        assert_eq!(ledger.release(&PEERS), [5]);
        assert_eq!(ledger.late(&PEERS, 7), [2, 3]);
    }
}
