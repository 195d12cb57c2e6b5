//! Gauges that are read when somebody looks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::actor::Node;
use crate::replica::{ShardId, State};
use crate::storage::Storage;
use crate::telemetry::{Metrics, RaftGroupSample, Sampled};

pub(super) struct Sampler {
    node: Arc<Node>,
    storage: Arc<Storage>,
}

/// Sums over the shards this node leads: nodes added up give the cluster's number.
#[derive(Default)]
struct Sums {
    sessions: usize,
    persistent: usize,
    queued: usize,
    queues_nearly_full: usize,
    queue_memory: usize,
    retained: usize,
    retained_bytes: usize,
    subscriptions: usize,
    wills: usize,
}

impl Sampler {
    pub(super) fn new(node: Arc<Node>, storage: Arc<Storage>) -> Self {
        Self { node, storage }
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        let Some(cluster) = self.node.cluster() else { return sums };
        for shard in (0..cluster.shards()).map(ShardId).filter(|shard| cluster.leads(*shard)) {
            cluster.read(shard, |state| sums.add(state));
        }
        sums
    }

    fn raft(&self, metrics: &Metrics) {
        let Some(cluster) = self.node.cluster() else { return };
        let status = cluster.status();
        let alive = status.members.iter().filter(|member| member.3).count();
        metrics.hivemq.cluster_nodes.set(gauge(alive));
        metrics.own.ready.set(i64::from(status.ready));
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
                committed_index: None,
                applied_index: group.applied_index,
                snapshot_index: group.snapshot_index,
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
        for session in state.sessions() {
            self.sessions += 1;
            self.persistent += usize::from(session.is_persistent());
            self.wills += usize::from(session.will.is_some());
            self.queues_nearly_full += usize::from(session.queue.is_nearly_full(&session.queue_head));
        }
        let groups = state.groups().filter(|(_, group)| group.queue.is_nearly_full(&group.queue_head));
        self.queues_nearly_full += groups.count();
        self.queue_memory += state.resident_bytes();
    }
}

impl Sampled for Sampler {
    fn sample(&self, metrics: &Metrics) {
        let sums = self.sums();
        metrics.hivemq.sessions_current.set(gauge(sums.sessions));
        metrics.hivemq.sessions_persistent_active.set(gauge(sums.persistent));
        metrics.hivemq.queued_current.set(gauge(sums.queued));
        metrics.own.queues_nearly_full.set(gauge(sums.queues_nearly_full));
        metrics.own.queue_memory_bytes.set(gauge(sums.queue_memory));
        metrics.hivemq.retained_current.set(gauge(sums.retained));
        metrics.hivemq.retained_memory_bytes.set(gauge(sums.retained_bytes));
        metrics.own.retained_bytes.set(gauge(sums.retained_bytes));
        metrics.hivemq.subscriptions_current.set(gauge(sums.subscriptions));
        metrics.hivemq.wills_current.set(gauge(sums.wills));
        metrics.hivemq.qos0_memory_used_bytes.set(gauge(self.node.qos0_bytes.load(Ordering::Relaxed)));
        metrics.hivemq.qos0_memory_max_bytes.set(gauge(self.node.settings.qos0_total_bytes_max));
        let aliases = &self.node.settings.session.alias_memory;
        metrics.hivemq.topic_alias_count.set(gauge(aliases.count()));
        metrics.hivemq.topic_alias_memory_bytes.set(gauge(aliases.used_bytes()));
        metrics.hivemq.overload_level.set(i64::from(self.node.is_pressed()));
        metrics.own.bans.set(gauge(self.node.guard.bans_len()));
        metrics.own.incomplete_packet_bytes.set(gauge(self.node.incomplete.used()));
        metrics.own.set_addon_signals_lost(self.node.signals.overflowed());
        self.raft(metrics);
        let stats = self.storage.stats();
        metrics.own.set_flushes(stats.flushes, stats.flush_seconds_total);
        if let Some(cluster) = self.node.cluster() {
            metrics.own.set_peers_left_out(cluster.left_out_total());
            metrics.own.outbox_events_untaken.set(gauge(cluster.untaken_events()));
        }
        metrics.own.storage_poisoned.set(i64::from(stats.poisoned));
    }
}

fn gauge(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
