//! Gauges that are read when somebody looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::census::{Census, Counted};
use crate::actor::{Node, clock};
use crate::replica::{ShardId, State};
use crate::storage::Storage;
use crate::telemetry::{DiskSample, Metrics, RaftGroupSample, Sampled};

pub(super) struct Sampler {
    node: Arc<Node>,
    storage: Arc<Storage>,
    census: Mutex<Census>,
}

/// Sums over the shards this node leads: nodes added up give the cluster's number.
#[derive(Default)]
struct Sums {
    sessions: usize,
    queued: usize,
    queue_memory: usize,
    retained: usize,
    retained_bytes: usize,
    subscriptions: usize,
}

impl Sampler {
    pub(super) fn new(node: Arc<Node>, storage: Arc<Storage>) -> Self {
        Self { node, storage, census: Mutex::default() }
    }

    fn sums(&self) -> (Sums, Counted) {
        let (mut sums, mut counted) = (Sums::default(), Counted::default());
        let Some(cluster) = self.node.cluster() else { return (sums, counted) };
        let led: Vec<ShardId> = (0..cluster.shards()).map(ShardId).filter(|shard| cluster.leads(*shard)).collect();
        for shard in &led {
            cluster.read(*shard, |state| sums.add(state));
        }
        let now_ms = clock::now().mono_ms;
        let size = |shard| cluster.read(shard, State::session_count).unwrap_or(0);
        let count = |shard| cluster.read(shard, Counted::of).unwrap_or_default();
        counted.add_all(self.census.lock().look(&led, now_ms, size, count));
        (sums, counted)
    }

    fn raft(&self, metrics: &Metrics) {
        let Some(cluster) = self.node.cluster() else { return };
        let status = cluster.status();
        let alive = status.members.iter().filter(|member| member.3).count();
        metrics.hivemq.cluster_nodes.set(gauge(alive));
        metrics.own.ready.set(i64::from(status.ready && self.node.has_declared.load(Ordering::Acquire)));
        metrics.own.draining.set(i64::from(cluster.leaves_work()));
        let samples: Vec<RaftGroupSample> = status
            .groups
            .iter()
            .map(|group| RaftGroupSample {
                group: group.name.clone(),
                has_leader: group.leader.is_some(),
                is_leader: group.leader == Some(status.node),
                term: group.term,
                last_log_index: group.last_log_index,
                committed_index: Some(group.applied_index + group.lag),
                applied_index: group.applied_index,
                snapshot_index: group.snapshot_index,
                lag: group.lag,
                leader_changes: group.leader_changes,
            })
            .collect();
        metrics.own.set_raft_groups(&samples);
    }
}

impl Sums {
    fn add(&mut self, state: &State) {
        self.queued += state.queued_count();
        self.retained += state.retained_count();
        self.retained_bytes += state.retained_bytes();
        self.subscriptions += state.subscription_count();
        self.sessions += state.session_count();
        self.queue_memory += state.resident_bytes();
    }
}

impl Sampled for Sampler {
    fn sample(&self, metrics: &Metrics) {
        let (sums, counted) = self.sums();
        metrics.hivemq.sessions_current.set(gauge(sums.sessions));
        metrics.hivemq.sessions_persistent_active.set(gauge(counted.persistent));
        metrics.hivemq.queued_current.set(gauge(sums.queued));
        metrics.own.queues_nearly_full.set(gauge(counted.nearly_full));
        metrics.vitals.set_queues(counted.sessions, counted.groups);
        metrics.own.queue_memory_bytes.set(gauge(sums.queue_memory));
        metrics.hivemq.queued_memory_bytes.set(gauge(sums.queue_memory));
        metrics.see_retained(sums.retained, sums.retained_bytes);
        metrics.hivemq.subscriptions_current.set(gauge(sums.subscriptions));
        metrics.hivemq.wills_current.set(gauge(counted.wills));
        metrics.hivemq.qos0_memory_used_bytes.set(gauge(self.node.qos0_bytes.load(Ordering::Relaxed)));
        metrics.hivemq.qos0_memory_max_bytes.set(gauge(self.node.settings.qos0_total_bytes_max));
        let aliases = &self.node.settings.session.alias_memory;
        metrics.hivemq.topic_alias_count.set(gauge(aliases.count()));
        metrics.hivemq.topic_alias_memory_bytes.set(gauge(aliases.used_bytes()));
        metrics.hivemq.overload_level.set(i64::from(self.node.load.overload().level));
        metrics.own.bans.set(gauge(self.node.guard.bans_len()));
        metrics.own.incomplete_packet_bytes.set(gauge(self.node.incomplete.used()));
        metrics.own.set_addon_signals_lost(self.node.signals.overflowed());
        self.raft(metrics);
        let stats = self.storage.stats();
        metrics.own.set_flushes(stats.flushes, stats.flush_seconds_total);
        if let Some(cluster) = self.node.cluster() {
            metrics.own.set_peers_left_out(cluster.left_out_total());
            metrics.own.outbox_events_untaken.set(gauge(cluster.untaken_events()));
            metrics.vitals.set_links(&cluster.links());
            metrics.set_failovers(cluster.failover_seconds());
        }
        let (log_bytes, state_bytes) = self.storage.disk_bytes();
        metrics.vitals.set_disk(DiskSample { log_bytes, state_bytes, log_bytes_appended: stats.log_bytes_appended });
        metrics.vitals.set_flushes(self.storage.flush_seconds());
        metrics.own.storage_poisoned.set(i64::from(stats.poisoned));
    }
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
