//! This node's own life as the cluster sees it: one that was declared dead, or cut off for too long, begins anew.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::blocking::blocking;
use super::clock::{monotonic_ms, wall_ms};
use super::node::Node;
use crate::replica::Incarnation;

const LOOK: Duration = Duration::from_millis(250);

pub async fn run(node: Arc<Node>) {
    let mut meta_changed = node.meta.watch();
    loop {
        meta_changed.borrow_and_update();
        let incarnation = node.incarnation();
        let newest = newest_known(&node);
        if node.stopping.load(Ordering::Relaxed) || node.operator.is_leaving() {
            // It says so itself, and its clients are told by itself.
        } else if node.meta.is_dead(node.id, incarnation) {
            renew(&node, newest, "it was declared dead").await;
        } else if newest > incarnation {
            renew(&node, newest, "it is older than one before: the wall clock is behind").await;
        } else if node.is_established() && cut_off_ms(&node) > node.settings.majority_lost_ms() {
            renew(&node, newest, "it had no majority in reach for too long").await;
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(LOOK) => {}
            changed = meta_changed.changed() => if changed.is_err() { return },
        }
    }
}

fn cut_off_ms(node: &Node) -> u64 {
    node.meta_group().view().leaderless_ms(monotonic_ms())
}

/// The newest incarnation of this node that its replicas know; 0 where none is. One that lost its disk, and whose wall clock is behind what it was,
/// begins with an older one, which `meta` and the shards refuse.
fn newest_known(node: &Node) -> Incarnation {
    let in_shards = node.shards.iter().map(|shard| shard.state.read().newest_incarnation(node.id));
    in_shards.chain(node.meta.member(node.id).map(|member| member.incarnation)).max().unwrap_or(0)
}

/// The old incarnation's connections are over; a new one, newer than all known, is in force before they are told.
async fn renew(node: &Node, newest: Incarnation, reason: &str) {
    let storage = Arc::clone(&node.storage);
    match blocking(move || storage.renew_incarnation(wall_ms().max(newest.saturating_add(1)))).await {
        Ok(Ok(incarnation)) => {
            tracing::warn!(old = node.incarnation(), new = incarnation, reason, "the node's incarnation ended");
            node.set_incarnation(incarnation);
            node.hooks.incarnation_lost();
        }
        Ok(Err(error)) => tracing::error!(%error, "the incarnation cannot be renewed"),
        Err(error) => tracing::error!(%error, "the incarnation cannot be renewed"),
    }
}
