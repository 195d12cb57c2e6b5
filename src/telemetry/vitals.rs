//! The project's own metrics of what keeps a node going: its threads, its disk, its links to other nodes, and how long nobody led.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::distribution::Distribution;
use super::own::{added, counter};
use super::tally::{MESSAGES, SECONDS, Tally};

/// One dialed connection to another node, as it is when it is sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerLinkSample {
    /// The other node's name.
    pub peer: String,
    /// `consensus` or `messages`.
    pub class: &'static str,
    pub up: bool,
    /// Up, and by TLS.
    pub encrypted: bool,
    /// Since the start of this process.
    pub connects: u64,
    pub sent_bytes: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
}

/// Sizes of what is on the disk, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSample {
    pub log_bytes: u64,
    pub state_bytes: u64,
    pub log_bytes_appended: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub struct VitalMetrics {
    /// By arbiter: how late a timer fires.
    pub loop_lag: HistogramVec,
    flushes: Distribution,
    log_bytes: IntGauge,
    state_bytes: IntGauge,
    log_bytes_appended_total: IntCounter,
    queues: Distribution,
    failovers: Distribution,
    link_up: IntGaugeVec,
    link_encrypted: IntGaugeVec,
    link_queue_bytes: IntGaugeVec,
    link_connects_total: IntCounterVec,
    link_sent_bytes_total: IntCounterVec,
    /// Labels that have series.
    links: Mutex<BTreeSet<(String, &'static str)>>,
}

/// The two kinds of queues that are replicated.
const QUEUES: [&str; 2] = ["session", "shared"];

impl VitalMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let lag = "How late timers fire on each of the node's threads: what waits for a thread waits at least so long.";
        let lag = HistogramOpts::new("troupemq_event_loop_lag_seconds", lag).buckets(SECONDS.to_vec());
        let links = &["peer", "class"];
        let link = |name: &str, help: &str| Opts::new(format!("troupemq_peer_link_{name}"), help);
        Ok(Self {
            loop_lag: added(registry, HistogramVec::new(lag, &["arbiter"])?)?,
            flushes: Distribution::register(
                registry,
                ("storage_flush_duration_seconds", "How long flushes of the Raft log take."),
                SECONDS,
                None,
            )?,
            log_bytes: added(
                registry,
                IntGauge::new(
                    "troupemq_storage_log_bytes",
                    "Size of the Raft logs on the disk, with what was not given back yet.",
                )?,
            )?,
            state_bytes: added(
                registry,
                IntGauge::new(
                    "troupemq_storage_state_bytes",
                    "Size of the state on the disk, with what was not given back yet.",
                )?,
            )?,
            log_bytes_appended_total: counter(registry, "storage_log_appended_bytes_total", "Bytes written to the Raft logs.")?,
            queues: Distribution::register(
                registry,
                (
                    "queue_messages",
                    "Queues of persistent sessions and of shared subscriptions by the messages in them, in the shards that this node \
                     leads, as they are now: not a sum over time.",
                ),
                MESSAGES,
                Some(("queue", &QUEUES)),
            )?,
            failovers: Distribution::register(
                registry,
                (
                    "raft_failover_seconds",
                    "How long Raft groups had no leader that this node could follow, from when the last one was heard; planned hand-overs \
                     too.",
                ),
                SECONDS,
                None,
            )?,
            link_up: added(
                registry,
                IntGaugeVec::new(link("up", "Whether this node's connection to another node is up."), links)?,
            )?,
            link_encrypted: added(
                registry,
                IntGaugeVec::new(
                    link("encrypted", "Whether this node's connection to another node is up and encrypted."),
                    links,
                )?,
            )?,
            link_queue_bytes: added(
                registry,
                IntGaugeVec::new(link("queue_bytes", "Bytes that wait to be written to another node."), links)?,
            )?,
            link_connects_total: added(
                registry,
                IntCounterVec::new(link("connects_total", "Times this node connected to another node."), links)?,
            )?,
            link_sent_bytes_total: added(
                registry,
                IntCounterVec::new(link("sent_bytes_total", "Bytes that this node wrote to another node."), links)?,
            )?,
            links: Mutex::default(),
        })
    }

    pub fn set_flushes(&self, durations: Tally) {
        self.flushes.set(durations);
    }

    pub fn set_failovers(&self, durations: Tally) {
        self.failovers.set(durations);
    }

    /// Lengths of the queues of sessions and of shared subscriptions.
    pub fn set_queues(&self, sessions: Tally, shared: Tally) {
        for (kind, tally) in QUEUES.into_iter().zip([sessions, shared]) {
            self.queues.set_for(kind, tally);
        }
    }

    pub fn set_disk(&self, sample: DiskSample) {
        self.log_bytes.set(clamp(sample.log_bytes));
        self.state_bytes.set(clamp(sample.state_bytes));
        self.log_bytes_appended_total.inc_by(sample.log_bytes_appended.saturating_sub(self.log_bytes_appended_total.get()));
    }

    /// Replaces what is known of the links; those to nodes that are gone leave no series behind.
    pub fn set_links(&self, samples: &[PeerLinkSample]) {
        // One by one, as with the Raft groups: somebody else may be looking.
        let mut known = self.links.lock();
        let now: BTreeSet<_> = samples.iter().map(|sample| (sample.peer.clone(), sample.class)).collect();
        for (peer, class) in known.difference(&now) {
            let labels = [peer.as_str(), class];
            // They fail only where there is no such series.
            let _absent = self.link_up.remove_label_values(&labels);
            let _absent = self.link_encrypted.remove_label_values(&labels);
            let _absent = self.link_queue_bytes.remove_label_values(&labels);
            let _absent = self.link_connects_total.remove_label_values(&labels);
            let _absent = self.link_sent_bytes_total.remove_label_values(&labels);
        }
        *known = now;
        for sample in samples {
            let labels = [sample.peer.as_str(), sample.class];
            self.link_up.with_label_values(&labels).set(i64::from(sample.up));
            self.link_encrypted.with_label_values(&labels).set(i64::from(sample.encrypted));
            self.link_queue_bytes.with_label_values(&labels).set(clamp(sample.queue_bytes));
            let up_to = |counter: IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
            up_to(self.link_connects_total.with_label_values(&labels), sample.connects);
            up_to(self.link_sent_bytes_total.with_label_values(&labels), sample.sent_bytes);
        }
    }
}

fn clamp(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn links_are_labelled_count_up_and_leave_with_their_node() {
        let metrics = Metrics::new().unwrap();
        let link = |peer: &str, connects, sent_bytes| PeerLinkSample {
            peer: peer.to_owned(),
            class: "messages",
            up: true,
            encrypted: peer == "b",
            connects,
            sent_bytes,
            queue_bytes: 7,
        };
        metrics.vitals.set_links(&[link("b", 1, 10), link("c", 1, 20)]);
        metrics.vitals.set_links(&[link("b", 2, 15)]);
        let text = metrics.encode();
        for line in [
            "troupemq_peer_link_up{class=\"messages\",peer=\"b\"} 1",
            "troupemq_peer_link_encrypted{class=\"messages\",peer=\"b\"} 1",
            "troupemq_peer_link_connects_total{class=\"messages\",peer=\"b\"} 2",
            "troupemq_peer_link_sent_bytes_total{class=\"messages\",peer=\"b\"} 15",
            "troupemq_peer_link_queue_bytes{class=\"messages\",peer=\"b\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert!(!text.contains("peer=\"c\""));
    }

    #[test]
    fn sizes_and_durations_are_shown() {
        let metrics = Metrics::new().unwrap();
        let mut tally = Tally::new(SECONDS);
        tally.observe(0.75);
        metrics.vitals.set_failovers(tally.clone());
        metrics.vitals.set_flushes(tally);
        metrics.vitals.set_disk(DiskSample { log_bytes: 1, state_bytes: 2, log_bytes_appended: 3 });
        metrics.vitals.set_disk(DiskSample { log_bytes: 4, state_bytes: 5, log_bytes_appended: 6 });
        let text = metrics.encode();
        for line in [
            "troupemq_raft_failover_seconds_bucket{le=\"0.5\"} 0",
            "troupemq_raft_failover_seconds_bucket{le=\"1\"} 1",
            "troupemq_storage_flush_duration_seconds_count 1",
            "troupemq_storage_log_bytes 4",
            "troupemq_storage_state_bytes 5",
            "troupemq_storage_log_appended_bytes_total 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
    }
}
