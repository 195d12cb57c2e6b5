//! Spreads leadership: each node hands the shards it leads to the member that should lead them, once the cluster is calm.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::NodeId;

use super::drain;
use super::group::Group;
use super::node::Node;
use super::placement::preferred_leader;

/// Between two transfers of one node.
const INTERVAL: Duration = Duration::from_secs(2);
/// All members alive and connected, and every leader in place, for so long.
const CALM: Duration = Duration::from_secs(5);
/// The next leader may be so many entries behind.
const LAG_ENTRIES_MAX: u64 = 100;

pub async fn run(node: Arc<Node>) {
    let mut calm_since: Option<Instant> = None;
    loop {
        tokio::time::sleep(INTERVAL).await;
        if !is_calm(&node) {
            calm_since = None;
            continue;
        }
        if calm_since.get_or_insert_with(Instant::now).elapsed() < CALM {
            continue;
        }
        if let Some((group, to)) = node.groups.iter().find_map(|group| Some((group, should_lead(&node, group)?))) {
            tracing::info!(group = group.name(), to = node.name_of(to), "hands leadership over to spread it");
            if let Err(error) = group.raft.trigger().transfer_leader(to).await {
                tracing::debug!(%error, "leadership was not handed over");
            }
        }
    }
}

fn is_calm(node: &Node) -> bool {
    let Some(transport) = &node.transport else { return false };
    !node.leaves_work()
        && node.not_ready_because().is_none()
        && node.meta.members().iter().all(|(id, member)| *id == node.id || member.alive && transport.connected(*id))
}

/// Who should lead a group this node leads, if not this node.
fn should_lead(node: &Node, group: &Group) -> Option<NodeId> {
    if !group.view().leads || node.operator.keeps(group.index) {
        return None;
    }
    let metrics = group.metrics();
    let voters: BTreeSet<NodeId> =
        metrics.membership_config.voter_ids().filter(|voter| !drain::is_draining(node, *voter)).collect();
    let preferred = preferred_leader(group.index, &voters).filter(|preferred| *preferred != node.id)?;
    let matched = metrics.replication.as_ref()?.get(&preferred).copied().flatten()?.index();
    let lag = metrics.last_log_index.unwrap_or(0).saturating_sub(matched);
    (lag <= LAG_ENTRIES_MAX).then_some(preferred)
}
