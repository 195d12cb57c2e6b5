//! Metrics that HiveMQ has no name for: `troupemq_*`, by Prometheus' own conventions.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{Counter, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use crate::mqtt::ReasonCode;

/// Why a command to a shard had no outcome, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitFailure {
    Unavailable,
    Overloaded,
    Unknown,
}

impl SubmitFailure {
    const ALL: [Self; 3] = [Self::Unavailable, Self::Overloaded, Self::Unknown];

    fn label(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Unknown => "unknown",
        }
    }
}

/// Why a client did not come in, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginFailure {
    NotAuthorized,
    BadUserNameOrPassword,
    BadAuthenticationMethod,
    ClientIdentifierNotValid,
    TooManyFailures,
    Busy,
    Timeout,
    Banned,
    Will,
    AnotherUser,
}

impl LoginFailure {
    const ALL: [Self; 10] = [
        Self::NotAuthorized,
        Self::BadUserNameOrPassword,
        Self::BadAuthenticationMethod,
        Self::ClientIdentifierNotValid,
        Self::TooManyFailures,
        Self::Busy,
        Self::Timeout,
        Self::Banned,
        Self::Will,
        Self::AnotherUser,
    ];

    /// By the code that CONNACK says.
    pub fn of(code: ReasonCode) -> Self {
        match code {
            ReasonCode::BadUserNameOrPassword => Self::BadUserNameOrPassword,
            ReasonCode::BadAuthenticationMethod => Self::BadAuthenticationMethod,
            ReasonCode::ClientIdentifierNotValid => Self::ClientIdentifierNotValid,
            ReasonCode::ConnectionRateExceeded => Self::TooManyFailures,
            ReasonCode::ServerBusy => Self::Busy,
            ReasonCode::Banned => Self::Banned,
            _ => Self::NotAuthorized,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::NotAuthorized => "not-authorized",
            Self::BadUserNameOrPassword => "bad-user-name-or-password",
            Self::BadAuthenticationMethod => "bad-authentication-method",
            Self::ClientIdentifierNotValid => "client-identifier-not-valid",
            Self::TooManyFailures => "too-many-failures",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::Banned => "banned",
            Self::Will => "will",
            Self::AnotherUser => "another-user",
        }
    }
}

/// Why a client does not come to rest, as a label.
const UNSTABLE: [&str; 2] = ["flapping", "fight"];

/// What one Raft group looks like from this node when it is sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RaftGroupSample {
    /// `meta` or the shard's number.
    pub group: String,
    /// Whether this node knows a leader.
    pub has_leader: bool,
    /// Whether this node is the leader.
    pub is_leader: bool,
    pub term: u64,
    pub last_log_index: u64,
    /// `None` where the node does not know it.
    pub committed_index: Option<u64>,
    pub applied_index: u64,
    pub snapshot_index: u64,
    /// Committed entries, as far as this node knows, that its replica has not applied.
    pub lag: u64,
    /// How often this node met another leader than before.
    pub leader_changes: u64,
}

/// The node's own metrics.
#[derive(Debug)]
pub struct OwnMetrics {
    storage_flushes_total: IntCounter,
    storage_flush_seconds_total: Counter,
    /// 1 when the data directory cannot be written any more.
    pub storage_poisoned: IntGauge,
    pub outbox_events_untaken: IntGauge,
    /// 1 while readiness is UP.
    pub ready: IntGauge,
    /// 1 while the node parts with its clients and takes none.
    pub draining: IntGauge,
    /// Messages for another node that its link did not take.
    pub peer_messages_lost_total: IntCounter,
    /// Re-published messages given up because their topic would exceed 65,535 bytes.
    pub addon_topics_too_long_total: IntCounter,
    /// Re-published messages that no shard stored in time: their persistent receivers miss them.
    pub addon_messages_not_stored_total: IntCounter,
    addon_signals_lost_total: IntCounter,
    peers_left_out_total: IntCounter,
    /// Connections that waited unread for their turn, since their listener let in its rate.
    pub connects_held_total: IntCounter,
    /// Connections closed before they were connected, since their listener let in its rate and more were waiting than can be let in in time.
    pub connects_refused_total: IntCounter,
    /// TLS handshakes of clients that came to nothing, but those whose connection broke or whose time ran out.
    pub tls_handshakes_failed_total: IntCounter,
    /// Bytes held for packets of which not all has come.
    pub incomplete_packet_bytes: IntGauge,
    /// Subscriptions removed from sessions because their clients may not have them any more.
    pub subscriptions_withdrawn_total: IntCounter,
    /// Client ids and addresses that this node keeps out.
    pub bans: IntGauge,
    /// Lines of the event log that were not written.
    pub event_log_lines_lost_total: IntCounter,
    /// Queues of sessions and shared subscriptions at 80 % of their limit or above.
    pub queues_nearly_full: IntGauge,
    /// Bytes of queued messages kept in memory although they are on disk.
    pub queue_memory_bytes: IntGauge,
    /// Of the shards this node leads.
    pub retained_bytes: IntGauge,
    submit_failures_total: IntCounterVec,
    login_failures_total: IntCounterVec,
    unstable_clients_total: IntCounterVec,
    raft_has_leader: IntGaugeVec,
    raft_is_leader: IntGaugeVec,
    raft_term: IntGaugeVec,
    raft_last_log_index: IntGaugeVec,
    raft_committed_index: IntGaugeVec,
    raft_applied_index: IntGaugeVec,
    raft_snapshot_index: IntGaugeVec,
    raft_lag: IntGaugeVec,
    raft_leader_changes_total: IntCounterVec,
    /// Labels that have series.
    raft_groups: Mutex<BTreeSet<String>>,
}

impl OwnMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let build = IntGaugeVec::new(Opts::new("troupemq_build_info", "Always 1; the version is the label."), &["version"])?;
        added(registry, build)?.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let failures = Opts::new("troupemq_submit_failures_total", "Commands to a shard that had no outcome, by cause.");
        let logins = Opts::new("troupemq_login_failures_total", "Clients that authentication refused, by cause.");
        let unstable =
            Opts::new("troupemq_unstable_clients_total", "Times a client connected too often, or took over too often, by cause.");
        let metrics = Self {
            unstable_clients_total: added(registry, IntCounterVec::new(unstable, &["cause"])?)?,
            login_failures_total: added(registry, IntCounterVec::new(logins, &["cause"])?)?,
            storage_flushes_total: counter(registry, "storage_flushes_total", "Flushes of the Raft log to disk.")?,
            storage_flush_seconds_total: added(
                registry,
                Counter::new("troupemq_storage_flush_seconds_total", "Time spent in flushes of the Raft log.")?,
            )?,
            storage_poisoned: added(
                registry,
                IntGauge::new("troupemq_storage_poisoned", "Whether writing to the data directory failed for good.")?,
            )?,
            queues_nearly_full: added(
                registry,
                IntGauge::new("troupemq_queues_nearly_full", "Queues that hold 80 % of what they may hold, or more.")?,
            )?,
            queue_memory_bytes: added(
                registry,
                IntGauge::new("troupemq_queue_memory_bytes", "Queued messages kept in memory although they are on disk.")?,
            )?,
            outbox_events_untaken: added(
                registry,
                IntGauge::new(
                    "troupemq_outbox_events_untaken",
                    "Lifecycle events, dropped and expired messages not handed on to all shards.",
                )?,
            )?,
            ready: added(registry, IntGauge::new("troupemq_ready", "Whether the node is ready for clients.")?)?,
            draining: added(
                registry,
                IntGauge::new("troupemq_draining", "Whether the node parts with its clients and leads nothing.")?,
            )?,
            peer_messages_lost_total: counter(
                registry,
                "peer_messages_lost_total",
                "Messages a link to another node did not take.",
            )?,
            addon_topics_too_long_total: counter(
                registry,
                "addon_topics_too_long_total",
                "Messages not re-published because the topic would be too long.",
            )?,
            addon_messages_not_stored_total: counter(
                registry,
                "addon_messages_not_stored_total",
                "Messages of add-on topics that were not stored for their persistent receivers.",
            )?,
            addon_signals_lost_total: counter(
                registry,
                "addon_signals_lost_total",
                "Dropped, expired and dead messages that add-on topics miss because too many waited.",
            )?,
            peers_left_out_total: counter(
                registry,
                "peers_left_out_total",
                "Times a node that did not say what it has applied was not waited for before acknowledgements.",
            )?,
            connects_held_total: counter(
                registry,
                "connects_held_total",
                "Connections that waited unread for connect-overload-protection.",
            )?,
            connects_refused_total: counter(
                registry,
                "connects_refused_total",
                "Connections that connect-overload-protection closed.",
            )?,
            tls_handshakes_failed_total: counter(
                registry,
                "tls_handshakes_failed_total",
                "TLS handshakes that a client or the node refused: certificates, versions, what is no TLS.",
            )?,
            subscriptions_withdrawn_total: counter(
                registry,
                "subscriptions_withdrawn_total",
                "Subscriptions removed from sessions because their clients may not have them any more.",
            )?,
            bans: added(registry, IntGauge::new("troupemq_bans", "Client ids and addresses that this node keeps out.")?)?,
            event_log_lines_lost_total: counter(
                registry,
                "event_log_lines_lost_total",
                "Events that are missing in the event log.",
            )?,
            retained_bytes: added(
                registry,
                IntGauge::new("troupemq_retained_bytes", "Bytes of retained messages in the shards that this node leads.")?,
            )?,
            incomplete_packet_bytes: added(
                registry,
                IntGauge::new("troupemq_incomplete_packet_bytes", "Memory held for packets of which not all has come.")?,
            )?,
            submit_failures_total: added(registry, IntCounterVec::new(failures, &["cause"])?)?,
            raft_has_leader: by_group(registry, "has_leader", "Whether the node knows a leader of the Raft group.")?,
            raft_is_leader: by_group(registry, "is_leader", "Whether the node leads the Raft group.")?,
            raft_term: by_group(registry, "term", "Current term of the Raft group.")?,
            raft_last_log_index: by_group(registry, "last_log_index", "Index of the last entry in the node's log.")?,
            raft_committed_index: by_group(registry, "committed_index", "Index of the last entry known as committed.")?,
            raft_applied_index: by_group(registry, "applied_index", "Index of the last entry applied on the node.")?,
            raft_snapshot_index: by_group(registry, "snapshot_index", "Index the node's last snapshot reaches to.")?,
            raft_lag: by_group(registry, "lag_entries", "Committed entries that the node has not applied.")?,
            raft_leader_changes_total: added(
                registry,
                IntCounterVec::new(
                    Opts::new("troupemq_raft_leader_changes_total", "Times the Raft group's leader was another one than before."),
                    &["group"],
                )?,
            )?,
            raft_groups: Mutex::default(),
        };
        for failure in SubmitFailure::ALL {
            metrics.submit_failures_total.with_label_values(&[failure.label()]);
        }
        for failure in LoginFailure::ALL {
            metrics.login_failures_total.with_label_values(&[failure.label()]);
        }
        for cause in UNSTABLE {
            metrics.unstable_clients_total.with_label_values(&[cause]);
        }
        Ok(metrics)
    }

    /// Counts a client that does not come to rest; `fights`: several have one client id.
    pub fn unstable_client(&self, fights: bool) {
        let [flapping, fight] = UNSTABLE;
        self.unstable_clients_total.with_label_values(&[if fights { fight } else { flapping }]).inc();
    }

    /// Counts a client that authentication refused.
    pub fn login_failed(&self, failure: LoginFailure) {
        self.login_failures_total.with_label_values(&[failure.label()]).inc();
    }

    /// Brings the counters of flushes up to what the storage counted.
    pub fn set_flushes(&self, flushes: u64, seconds: f64) {
        self.storage_flushes_total.inc_by(flushes.saturating_sub(self.storage_flushes_total.get()));
        self.storage_flush_seconds_total.inc_by((seconds - self.storage_flush_seconds_total.get()).max(0.0));
    }

    /// Brings the counter of nodes left out up to what the cluster counted.
    pub fn set_peers_left_out(&self, total: u64) {
        self.peers_left_out_total.inc_by(total.saturating_sub(self.peers_left_out_total.get()));
    }

    pub fn set_addon_signals_lost(&self, total: u64) {
        self.addon_signals_lost_total.inc_by(total.saturating_sub(self.addon_signals_lost_total.get()));
    }

    /// Counts a command that had no outcome.
    pub fn submit_failed(&self, failure: SubmitFailure) {
        self.submit_failures_total.with_label_values(&[failure.label()]).inc();
    }

    /// Replaces what is known of the Raft groups; groups that are gone leave no series behind.
    pub fn set_raft_groups(&self, groups: &[RaftGroupSample]) {
        // Series are removed one by one, not reset: a scrape by somebody else at this moment must not find them missing.
        let mut known = self.raft_groups.lock();
        for gone in known.iter().filter(|known| groups.iter().all(|sample| sample.group != **known)) {
            for gauge in self.raft_gauges() {
                // Fails only where the group never had this series.
                let _absent = gauge.remove_label_values(&[gone.as_str()]);
            }
            let _absent = self.raft_leader_changes_total.remove_label_values(&[gone.as_str()]);
        }
        *known = groups.iter().map(|sample| sample.group.clone()).collect();
        for sample in groups {
            self.set_raft_group(sample);
        }
    }

    fn set_raft_group(&self, sample: &RaftGroupSample) {
        let label = [sample.group.as_str()];
        let set = |gauge: &IntGaugeVec, value: u64| {
            gauge.with_label_values(&label).set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.raft_has_leader, sample.has_leader.into());
        set(&self.raft_is_leader, sample.is_leader.into());
        set(&self.raft_term, sample.term);
        set(&self.raft_last_log_index, sample.last_log_index);
        set(&self.raft_applied_index, sample.applied_index);
        set(&self.raft_snapshot_index, sample.snapshot_index);
        set(&self.raft_lag, sample.lag);
        let changes = self.raft_leader_changes_total.with_label_values(&label);
        changes.inc_by(sample.leader_changes.saturating_sub(changes.get()));
        match sample.committed_index {
            Some(committed) => set(&self.raft_committed_index, committed),
            None => {
                let _absent = self.raft_committed_index.remove_label_values(&label);
            }
        }
    }

    fn raft_gauges(&self) -> [&IntGaugeVec; 8] {
        [
            &self.raft_has_leader,
            &self.raft_is_leader,
            &self.raft_term,
            &self.raft_last_log_index,
            &self.raft_committed_index,
            &self.raft_applied_index,
            &self.raft_snapshot_index,
            &self.raft_lag,
        ]
    }
}

pub(super) fn added<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    added(registry, IntCounter::new(format!("troupemq_{name}"), help)?)
}

fn by_group(registry: &Registry, name: &str, help: &str) -> Result<IntGaugeVec, prometheus::Error> {
    added(registry, IntGaugeVec::new(Opts::new(format!("troupemq_raft_{name}"), help), &["group"])?)
}
