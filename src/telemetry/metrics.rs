//! The metric registry of one node.

use prometheus::{IntGauge, Registry, TextEncoder};

use super::addon_counter::AddonCounter;
use super::hivemq::HiveMqMetrics;
use super::naming::{self, Kind};
use super::own::OwnMetrics;
use super::packet_type::{IncomingPacket, OutgoingPacket, PacketCounts};
use super::process::ProcessMetrics;
use super::recent::RecentMetrics;
use super::system::SystemMetrics;
use super::tally::Tally;
use super::vitals::VitalMetrics;
use crate::mqtt::{Packet, ReasonCode};
use crate::signal::{DropReason, Initiator};

/// All metrics of one node. Made once, shared as `Arc`; moving a counter is one atomic addition without a lock.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Numbers with HiveMQ's names.
    pub hivemq: HiveMqMetrics,
    /// The project's own.
    pub own: OwnMetrics,
    /// Of them, those of threads, disk and links.
    pub vitals: VitalMetrics,
    packets: PacketCounts,
    addon: Vec<IntGauge>,
    process: ProcessMetrics,
    system: SystemMetrics,
    recent: RecentMetrics,
}

/// The metrics could not be set up: two have one name, or a name is not valid. Ours to mend.
#[derive(Debug, thiserror::Error)]
#[error("cannot register a metric: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// Something that knows values which are only read when somebody looks.
pub trait Sampled {
    /// Sets the gauges it knows. Called at each scrape; must be quick and must not wait.
    fn sample(&self, metrics: &Metrics);
}

impl Metrics {
    /// Registers every metric in a registry of its own, so that a test may run several nodes in one process.
    pub fn new() -> Result<Self, MetricsError> {
        let registry = Registry::new();
        let addon = AddonCounter::ALL
            .iter()
            .map(|counter| naming::register(&registry, Kind::Counter, counter.name()))
            .collect::<Result<_, _>>()?;
        let metrics = Self {
            hivemq: HiveMqMetrics::register(&registry)?,
            own: OwnMetrics::register(&registry)?,
            vitals: VitalMetrics::register(&registry)?,
            packets: PacketCounts::register(&registry)?,
            addon,
            process: ProcessMetrics::register(&registry)?,
            system: SystemMetrics::register(&registry)?,
            recent: RecentMetrics::register(&registry)?,
            registry,
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        metrics.hivemq.cpu_cores_used.set(clamp(cores));
        Ok(metrics)
    }

    /// Counts a packet that was read from a client.
    pub fn received(&self, packet: &Packet) {
        if let Some(kind) = IncomingPacket::of(packet) {
            self.received_many(kind, 1);
        }
    }

    /// Counts `count` packets read from clients.
    pub fn received_many(&self, kind: IncomingPacket, count: usize) {
        self.packets.received(kind, clamp(count));
    }

    /// Counts a packet that was written to a client.
    pub fn sent(&self, packet: &Packet) {
        if let Some(kind) = OutgoingPacket::of(packet) {
            self.sent_many(kind, 1);
        }
    }

    /// Counts `count` packets written to clients; for fan-out that shares encoded bytes.
    pub fn sent_many(&self, kind: OutgoingPacket, count: usize) {
        self.packets.sent(kind, clamp(count));
    }

    pub fn received_count(&self, kind: IncomingPacket) -> i64 {
        self.packets.received_count(kind)
    }

    pub fn sent_count(&self, kind: OutgoingPacket) -> i64 {
        self.packets.sent_count(kind)
    }

    /// The size of a packet that was read from a client.
    pub fn received_bytes(&self, is_publish: bool, bytes: usize) {
        self.recent.received(is_publish, bytes);
    }

    /// The size of a packet that is written to a client.
    pub fn sent_bytes(&self, is_publish: bool, bytes: usize) {
        self.recent.sent(is_publish, bytes);
    }

    /// To be called several times a second, for what is told of the last seconds and minutes.
    pub fn tick(&self, mono_ms: u64) {
        let HiveMqMetrics { bytes_read_total, bytes_written_total, connections_current, .. } = &self.hivemq;
        self.recent.tick(mono_ms, bytes_read_total.get(), bytes_written_total.get(), connections_current.get());
    }

    /// Retained messages of the shards that this node leads, at a look.
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory, far below 2^53")]
    pub fn see_retained(&self, count: usize, bytes: usize) {
        self.hivemq.retained_current.set(clamp(count));
        self.hivemq.retained_memory_bytes.set(clamp(bytes));
        self.own.retained_bytes.set(clamp(bytes));
        if count > 0 {
            self.recent.see_retained(bytes as f64 / count as f64);
        }
    }

    /// How long groups had no leader, seconds.
    pub fn set_failovers(&self, durations: Tally) {
        self.recent.set_failovers(&durations);
        self.vitals.set_failovers(durations);
    }

    /// Adds bytes read from and written to clients.
    pub fn transferred(&self, read_bytes: usize, written_bytes: usize) {
        if read_bytes > 0 {
            self.hivemq.bytes_read_total.add(clamp(read_bytes));
        }
        if written_bytes > 0 {
            self.hivemq.bytes_written_total.add(clamp(written_bytes));
        }
    }

    /// A CONNECT was accepted. Sockets that never came so far are not counted.
    pub fn connection_opened(&self) {
        self.hivemq.connections_current.inc();
    }

    /// A connection counted by [`Self::connection_opened`] ended. Graceful = the client sent DISCONNECT.
    pub fn connection_closed(&self, initiator: Initiator, reason_code: Option<ReasonCode>) {
        self.hivemq.connections_current.dec();
        self.hivemq.connections_closed_total.inc();
        match initiator {
            Initiator::Client => self.hivemq.connections_closed_graceful.inc(),
            Initiator::Server | Initiator::SessionTakenOver | Initiator::Unspecified => {
                self.hivemq.connections_closed_ungraceful.inc();
            }
        }
        if initiator == Initiator::Server && reason_code == Some(ReasonCode::KeepAliveTimeout) {
            self.hivemq.keep_alive_disconnects.inc();
        }
    }

    /// Moves the counter of a drop reason, and only that: `addon::record` moves it together with `dropped.count`.
    pub fn dropped_because(&self, reason: DropReason) {
        if let Some(counter) = self.hivemq.drop_reason(reason) {
            counter.inc();
        }
    }

    /// Moves a counter of the add-ons.
    pub fn addon(&self, counter: AddonCounter, count: usize) {
        if let Some(gauge) = self.addon.get(counter as usize) {
            gauge.add(clamp(count));
        }
    }

    /// The value of a counter of the add-ons.
    pub fn addon_count(&self, counter: AddonCounter) -> i64 {
        self.addon.get(counter as usize).map_or(0, IntGauge::get)
    }

    /// Samples and encodes: what `/metrics` answers.
    pub fn scrape(&self, sampled: &dyn Sampled) -> String {
        sampled.sample(self);
        self.encode()
    }

    /// The text exposition format 0.0.4 of everything as it stands.
    pub fn encode(&self) -> String {
        self.packets.sum_up();
        self.process.sample();
        self.system.sample();
        self.recent.show();
        let mut text = String::with_capacity(ENCODED_BYTES_TYPICAL);
        if let Err(error) = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics are incomplete");
        }
        naming::untype_reserved(&text)
    }
}

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const ENCODED_BYTES_TYPICAL: usize = 24 * 1024;

fn clamp(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[path = "metrics_test.rs"]
mod tests;
