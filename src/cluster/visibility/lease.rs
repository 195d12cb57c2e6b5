//! The right to serve clients, for a moment at a time.
//!
//! A node that is cut off must not acknowledge what the others, who declared it dead and go on, would have to know; nor publish by a table that
//! they have changed since. So a node reads from its clients only while it holds a lease. The leader of `meta` gives it, and declares nobody
//! dead whose lease may still run; its own is what a majority's answers to its appends are worth: until another can be elected.
//!
//! A lease counts from when the holder asked (`Progress::Renew`), so what the answer took makes it shorter, never longer, and a link on which
//! only one direction works gives none. The giver keeps to it a little longer than the holder uses it, for clocks that differ.
//!
//! A new leader does not know what the one before gave: it waits that long before it declares a silent node dead, unless the node is
//! that leader itself. A process that is known to be gone holds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::replica::{Incarnation, NodeId};

/// What a holder uses.
pub const LEASE_MS: u64 = 2_500;
/// What its giver keeps to. Below any silence that is taken for death.
pub const GRANT_MS: u64 = 2_900;
/// Between two requests.
pub const RENEW_MS: u64 = 200;

/// The leases this node gave as leader of `meta`.
#[derive(Debug, Default)]
pub struct Given {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    at_ms: BTreeMap<NodeId, u64>,
    /// Declared dead, applied or not: they get no lease any more.
    condemned: BTreeSet<(NodeId, Incarnation)>,
}

impl Given {
    /// Gives a lease from now on, unless the incarnation is declared dead.
    pub fn give(&self, to: NodeId, incarnation: Incarnation, now_ms: u64) -> bool {
        let mut inner = self.inner.lock();
        let gives = !inner.condemned.contains(&(to, incarnation));
        if gives {
            inner.at_ms.insert(to, now_ms);
        }
        gives
    }

    /// Gives none any more, where none may still run; `certain`: nobody is left to hold it. False: not yet.
    pub fn condemn(&self, node: NodeId, incarnation: Incarnation, certain: bool, now_ms: u64) -> bool {
        let mut inner = self.inner.lock();
        let runs = inner.at_ms.get(&node).is_some_and(|at_ms| now_ms.saturating_sub(*at_ms) <= GRANT_MS);
        let condemns = certain || !runs;
        if condemns {
            inner.condemned.insert((node, incarnation));
        }
        condemns
    }

    /// An incarnation that was declared dead is to be declared so until it is.
    pub fn is_condemned(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.inner.lock().condemned.contains(&(node, incarnation))
    }

    /// This node leads anew: what it declared before and is not applied is void, and others may have given leases meanwhile.
    pub fn lead_anew(&self) {
        self.inner.lock().condemned.clear();
    }

    /// Forgets those that are dead by now.
    pub fn retain(&self, is_alive: impl Fn(NodeId, Incarnation) -> bool) {
        self.inner.lock().condemned.retain(|(node, incarnation)| is_alive(*node, *incarnation));
    }
}

/// The lease this node holds.
#[derive(Debug, Default)]
pub struct Held {
    /// By the word of the leader, monotonic ms.
    until_ms: AtomicU64,
    /// By its own leadership.
    led_until_ms: AtomicU64,
    asked_ms: AtomicU64,
}

impl Held {
    /// A request that was sent then was granted.
    pub fn renew(&self, sent_ms: u64) {
        self.until_ms.fetch_max(sent_ms.saturating_add(LEASE_MS), Ordering::AcqRel);
    }

    /// Nobody else can lead `meta` until then; 0: this node does not lead. Who leads needs no lease of another, and keeps none: another
    /// leader could know of its own only.
    pub fn lead(&self, until_ms: u64) {
        if until_ms > 0 {
            self.until_ms.store(0, Ordering::Release);
            self.led_until_ms.store(until_ms, Ordering::Release);
        }
    }

    /// A new incarnation has nothing of the old one's.
    pub fn drop_all(&self) {
        self.until_ms.store(0, Ordering::Release);
        self.led_until_ms.store(0, Ordering::Release);
    }

    pub fn runs(&self, now_ms: u64) -> bool {
        now_ms <= self.until_ms.load(Ordering::Acquire).max(self.led_until_ms.load(Ordering::Acquire))
    }

    /// Whether it is time to ask again.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let due = now_ms.saturating_sub(self.asked_ms.load(Ordering::Relaxed)) >= RENEW_MS;
        if due {
            self.asked_ms.store(now_ms, Ordering::Relaxed);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_declared_dead_whose_lease_may_run() {
        let given = Given::default();
        assert!(given.give(2, 7, 1_000));
        assert!(!given.condemn(2, 7, false, 1_000 + GRANT_MS));
        assert!(given.give(2, 7, 2_000));
        assert!(!given.condemn(2, 7, false, 1_001 + GRANT_MS));
        assert!(given.condemn(2, 7, false, 2_001 + GRANT_MS));
        assert!(!given.give(2, 7, 9_000), "not after it was declared dead");
        assert!(given.give(2, 8, 9_000));
        assert!(given.condemn(2, 8, true, 9_000), "a process that is gone holds nothing");
        given.retain(|_, incarnation| incarnation != 7);
        assert!(!given.is_condemned(2, 7) && given.is_condemned(2, 8));
        given.lead_anew();
        assert!(!given.is_condemned(2, 8), "another leader may have given it a lease");
        assert!(given.give(2, 8, 9_100));
    }

    #[test]
    fn a_lease_counts_from_the_request() {
        let held = Held::default();
        assert!(!held.runs(1));
        held.renew(1_000);
        assert!(held.runs(1_000 + LEASE_MS) && !held.runs(1_001 + LEASE_MS));
        held.renew(500);
        assert!(held.runs(1_000 + LEASE_MS), "an older answer takes nothing back");
        held.lead(0);
        assert!(held.runs(1_000 + LEASE_MS));
        held.lead(1_600);
        assert!(held.runs(1_600) && !held.runs(1_601), "who leads has its own only");
        held.renew(1_700);
        held.drop_all();
        assert!(!held.runs(1));
    }

    #[test]
    fn nothing_that_is_silent_for_less_than_a_lease_is_taken_for_dead() {
        const { assert!(GRANT_MS < crate::cluster::settings::SILENCE_MS_MIN) };
    }

    #[test]
    fn a_giver_keeps_to_it_longer_than_the_holder_uses_it() {
        const { assert!(GRANT_MS > LEASE_MS && LEASE_MS > 4 * RENEW_MS) };
    }
}
