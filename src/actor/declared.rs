//! What a node declares (spec/hivemq.md 1.9) becomes replicated state: the cluster has the shared subscriptions that any of its nodes
//! declares, so nodes with different files lose nothing. A node that restarts without a declaration takes it back; one that is forgotten
//! has its declarations taken back by the leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::mqtt::GroupId;
use crate::replica::command::DeclareCommand;
use crate::replica::{Command, NodeId, ShardId, State};

use super::node::Node;

/// Until what is to be declared is.
const SOON: Duration = Duration::from_millis(20);
/// How long a new node waits for the cluster to know what a declaration is.
const OLD_RELEASE_WAIT: Duration = Duration::from_secs(3);
/// The version that brought declarations.
const DECLARE_SINCE: u16 = 3;
/// Between two looks at what is declared.
const INTERVAL: Duration = Duration::from_secs(5);
/// Looks in a row without a node among the members after which it has left.
const LOOKS_WITHOUT: u32 = 3;

/// Declares what the node's settings say, and looks after what is declared as long as the node runs.
pub async fn run(node: Arc<Node>) {
    let mut absent: BTreeMap<NodeId, u32> = BTreeMap::new();
    let mut told = BTreeSet::new();
    let mut since = None;
    loop {
        let Some(cluster) = node.cluster().filter(|cluster| cluster.is_ready()) else {
            tokio::time::sleep(SOON).await;
            continue;
        };
        if !declare(&node, cluster).await {
            let waits = since.get_or_insert_with(Instant::now).elapsed();
            // Some node is of the release before, and may be for long: this one serves meanwhile.
            if waits > OLD_RELEASE_WAIT && cluster.level() < DECLARE_SINCE && !node.has_declared.swap(true, Ordering::AcqRel) {
                tracing::warn!("shared subscriptions are declared only once all nodes run this release");
            }
            tokio::time::sleep(SOON).await;
            continue;
        }
        node.has_declared.store(true, Ordering::Release);
        withdraw_of_others(&node, cluster, &mut absent).await;
        tell_differences(&node, cluster, &mut told);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Whether all shards have what this node declares, and nothing else of it.
async fn declare(node: &Node, cluster: &Cluster) -> bool {
    let mut by_shard: BTreeMap<ShardId, Vec<GroupId>> = (0..cluster.shards()).map(|shard| (ShardId(shard), Vec::new())).collect();
    for group in &node.settings.declared {
        by_shard.entry(node.shard_of(&group.full())).or_default().push(group.clone());
    }
    let mut done = true;
    for (shard, mut groups) in by_shard {
        groups.sort_unstable();
        if cluster.read(shard, |state| of(state, cluster.node())).as_ref() != Some(&groups) {
            done &= submit(node, cluster, shard, cluster.node(), groups).await;
        }
    }
    done
}

async fn submit(node: &Node, cluster: &Cluster, shard: ShardId, of: NodeId, groups: Vec<GroupId>) -> bool {
    let limits = &node.settings.queue;
    let declare = DeclareCommand { node: of, groups, queue_limit: limits.max_queue_size, discard_oldest: limits.discard_oldest };
    let outcome = cluster.submit_everywhere(shard, Command::Declare(declare)).await;
    if let Err(error) = &outcome {
        tracing::debug!(shard = shard.0, %error, "shared subscriptions are not declared yet");
    }
    outcome.is_ok()
}

/// What a node declares in a shard, sorted.
fn of(state: &State, node: NodeId) -> Vec<GroupId> {
    state.declared().filter(|(_, nodes)| nodes.contains(&node)).map(|(group, _)| group.clone()).collect()
}

/// Takes back, in the shards this node leads, what nodes declared that are members no more.
async fn withdraw_of_others(node: &Node, cluster: &Cluster, absent: &mut BTreeMap<NodeId, u32>) {
    let shards = || (0..cluster.shards()).map(ShardId);
    let declaring: BTreeSet<NodeId> = shards()
        .filter_map(|shard| {
            cluster.read(shard, |state| state.declared().flat_map(|(_, nodes)| nodes.clone()).collect::<Vec<_>>())
        })
        .flatten()
        .collect();
    if declaring.is_empty() {
        absent.clear();
        return;
    }
    let members: BTreeSet<NodeId> = cluster.status().members.into_iter().map(|member| member.0).collect();
    // A node that does not find itself knows nothing yet.
    if !members.contains(&cluster.node()) {
        return;
    }
    absent.retain(|id, _| declaring.contains(id) && !members.contains(id));
    for id in declaring.difference(&members) {
        let looks = absent.entry(*id).or_default();
        *looks += 1;
        if *looks < LOOKS_WITHOUT {
            continue;
        }
        for shard in shards().filter(|shard| cluster.leads(*shard)) {
            if cluster.read(shard, |state| !of(state, *id).is_empty()) == Some(true) {
                tracing::warn!(
                    node = format!("{id:016x}"),
                    shard = shard.0,
                    "a node that left declares shared subscriptions no more"
                );
                let _ = submit(node, cluster, shard, *id, Vec::new()).await;
            }
        }
    }
}

/// Says once, of all together, that other nodes declare shared subscriptions that this one does not: their files differ.
fn tell_differences(node: &Node, cluster: &Cluster, told: &mut BTreeSet<GroupId>) {
    let mut elsewhere = BTreeMap::new();
    for shard in (0..cluster.shards()).map(ShardId) {
        let others = |state: &State| {
            let others = state.declared().filter(|(_, nodes)| !nodes.contains(&cluster.node()));
            others.map(|(group, nodes)| (group.clone(), nodes.clone())).collect::<Vec<_>>()
        };
        elsewhere.extend(cluster.read(shard, others).unwrap_or_default());
    }
    told.retain(|group| elsewhere.contains_key(group));
    if elsewhere.is_empty() {
        return;
    }
    let names: BTreeMap<NodeId, String> = cluster.status().members.into_iter().map(|member| (member.0, member.1)).collect();
    let new: Vec<_> = elsewhere.into_iter().filter(|(group, _)| told.insert(group.clone())).collect();
    let Some((first, _)) = new.first() else { return };
    let declaring: BTreeSet<&str> =
        new.iter().flat_map(|(_, nodes)| nodes).map(|id| names.get(id).map_or("a node that left", String::as_str)).collect();
    tracing::warn!(
        subscriptions = new.len(),
        first = %first.full(),
        declared_by = declaring.into_iter().collect::<Vec<_>>().join(", "),
        node = node.id(),
        "shared subscriptions are declared by other nodes and not in the declared-shared-subscriptions.xml of this one; they hold for \
         the whole cluster"
    );
}
