//! What operators asked of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::replica::NodeId;

use super::about::About;

/// Leadership stays where an operator put it for so long; then it is spread again.
const KEEP: Duration = Duration::from_secs(600);

#[derive(Default)]
pub struct Operator {
    /// This node is on its way out of the cluster: it takes no part in anything that would keep it in.
    leaving: AtomicBool,
    /// What the peer that was asked to remove this node came to.
    pub forgotten: Mutex<Option<Result<(), String>>>,
    /// Removals under way here that peers asked for, by the member to be removed.
    pub removals: Mutex<BTreeMap<NodeId, ()>>,
    /// Groups that this node is to lead, and since when.
    kept: Mutex<BTreeMap<u16, Instant>>,
    /// What the peers said of themselves.
    pub abouts: Mutex<BTreeMap<NodeId, About>>,
    /// Groups in which data that only lost disks held is given up.
    pub loss_accepted: Mutex<BTreeSet<u16>>,
}

impl Operator {
    pub fn set_leaving(&self, leaving: bool) {
        self.leaving.store(leaving, Ordering::Relaxed);
    }

    pub fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub fn keep(&self, group: u16) {
        self.kept.lock().insert(group, Instant::now());
    }

    /// Whether the leadership of a group stays here because an operator wants it.
    pub fn keeps(&self, group: u16) -> bool {
        let mut kept = self.kept.lock();
        kept.retain(|_, since| since.elapsed() < KEEP);
        kept.contains_key(&group)
    }
}
