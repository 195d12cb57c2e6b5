//! What nodes of different releases may say to each other, and when a new kind of command may be used.
//!
//! * Two nodes speak the newest protocol version both know (`transport::hello`). A kind of message that came later is sent only where that
//!   version has it (`since` of `Control` and `PeerMessage`).
//! * A command in the log is read by every member, also by one that is away and by one that restarts from its log. So the cluster has a *level*, kept
//!   in `meta`: the version that all members are known to speak. It is raised by the leader of `meta`, once it is connected to every member, each with a
//!   higher version and that has been so for a while, in which a node can still go back to the release before (at once by the
//!   founder of a new cluster). Every node counts that while, so that it does not begin anew with each leader. The level never sinks. A command of a higher version is not proposed (`since` of `Command` and `MetaCommand`), and a node that cannot speak the
//!   level is refused by the hello.
//! * What was released does not change: a new kind gets a new variant at the end, and its version in `since`. Fields are not added.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::membership::propose_meta;
use super::node::{Node, members};
use super::transport::hello::{VERSION_MAX, VERSION_MIN};

const LOOK: Duration = Duration::from_millis(500);
/// The same in a new cluster, whose founder is not ready before.
const LOOK_FOUNDED: Duration = Duration::from_millis(20);
/// How long all members must have been of the new release before the cluster uses what only that has.
const RAISE_AFTER_MS: u64 = 60_000;

/// Versions this node speaks. Others than the default are for tests of mixed releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// The newest.
    pub max: u16,
    pub raise_after_ms: u64,
}

impl Default for Protocol {
    fn default() -> Self {
        Self { max: VERSION_MAX, raise_after_ms: RAISE_AFTER_MS }
    }
}

/// Keeps the level, and this node to it.
pub async fn run(node: Arc<Node>) {
    let mut higher = Higher::default();
    loop {
        let level = node.level();
        if let Some(transport) = &node.transport {
            transport.set_versions(level, node.settings.protocol.max);
        }
        let wait = if node.founded.load(Ordering::Acquire) { 0 } else { node.settings.protocol.raise_after_ms };
        let due = higher.due(spoken_by_all(&node).filter(|all| *all > level), Instant::now(), Duration::from_millis(wait));
        if let Some(all) = due.filter(|_| node.meta_group().view().leads) {
            tracing::info!(from = level, to = all, "all members speak a newer version: the cluster uses it from now on");
            propose_meta(&node, vec![MetaCommand::Raise { level: all }]).await;
        }
        let is_new = node.cluster_id().is_none() || is_raising(&node);
        tokio::time::sleep(if is_new { LOOK_FOUNDED } else { LOOK }).await;
    }
}

/// Whether this node founded the cluster and is about to raise its level. Another leader of `meta` waits its time, which nobody is to wait for.
pub fn is_raising(node: &Node) -> bool {
    node.founded.load(Ordering::Acquire)
        && node.meta_group().view().leads
        && spoken_by_all(node).is_some_and(|all| all > node.level())
}

/// Since when all members speak a version above the level.
#[derive(Debug, Default)]
struct Higher(Option<(u16, Instant)>);

impl Higher {
    /// The version, once it has been the same for `wait`.
    fn due(&mut self, spoken: Option<u16>, now: Instant, wait: Duration) -> Option<u16> {
        self.0 = spoken.map(|all| match self.0 {
            Some((known, since)) if known == all => (known, since),
            _ => (all, now),
        });
        self.0.filter(|(_, since)| now.duration_since(*since) >= wait).map(|(all, _)| all)
    }
}

/// The newest version that every member speaks, if this node has met them all.
fn spoken_by_all(node: &Node) -> Option<u16> {
    node.cluster_id()?;
    let in_groups = node.groups.iter().flat_map(|group| members(&group.metrics()).into_keys());
    let all: BTreeSet<NodeId> = node.meta.members().into_iter().map(|(id, _)| id).chain(in_groups).collect();
    let version = |id: NodeId| match &node.transport {
        // One that is away may be on its way back to the release before.
        Some(transport) if id != node.id && !transport.connected(id) => 0,
        Some(transport) if id != node.id => transport.version(id),
        _ => node.settings.protocol.max,
    };
    all.into_iter().map(version).min().filter(|version| *version >= VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_due_when_all_have_spoken_it_for_the_whole_time() {
        let wait = Duration::from_secs(60);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut higher = Higher::default();
        for (seconds, spoken, due) in [
            (0, Some(3), None),
            (59, Some(3), None),
            // A node is back at the release before.
            (60, None, None),
            (61, Some(3), None),
            (120, Some(3), None),
            (121, Some(3), Some(3)),
            (122, Some(4), None),
            (181, Some(4), None),
            (182, Some(4), Some(4)),
        ] {
            assert_eq!(higher.due(spoken, at(seconds), wait), due, "at {seconds} s");
        }
    }
}
