//! What HiveMQ tells of the last seconds and minutes: bytes of the last 5 s, sizes of packets, numbers of connections, and how long changes of
//! leadership took.

use std::collections::VecDeque;

use parking_lot::Mutex;
use prometheus::{IntGauge, Registry};

use super::naming::{self, Kind};
use super::summary::{Looks, Sizes, Summary, Values};
use super::tally::Tally;

/// Bytes are told of so long.
const CURRENT_MS: u64 = 5_000;
const SECOND_MS: u64 = 1_000;
/// Between two looks at the number of connections; the last 30 make five minutes.
const LOOK_MS: u64 = 10_000;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct RecentMetrics {
    incoming: Direction,
    outgoing: Direction,
    read_current: IntGauge,
    written_current: IntGauge,
    connections_mean: Summary,
    retained_mean: Summary,
    topology_change: Summary,
    seen: Mutex<Seen>,
}

/// Packets of one direction: PUBLISH, and all others.
#[derive(Debug)]
struct Direction {
    publishes: Sizes,
    others: Sizes,
    publish_bytes: Summary,
    total_bytes: Summary,
}

#[derive(Debug, Default)]
struct Seen {
    /// Of each second of the last five, and the one before: when, bytes read and bytes written since the start.
    transferred: VecDeque<(u64, i64, i64)>,
    looked_ms: Option<u64>,
    connections: Looks,
    retained: Looks,
}

impl Direction {
    fn register(registry: &Registry, name: &str) -> Result<Self, prometheus::Error> {
        let summary = |kind: &str| Summary::register(registry, &format!("com.hivemq.messages.{name}.{kind}.bytes"), "Histogram");
        Ok(Self {
            publishes: Sizes::default(),
            others: Sizes::default(),
            publish_bytes: summary("publish")?,
            total_bytes: summary("total")?,
        })
    }

    fn count(&self, is_publish: bool, bytes: usize) {
        if is_publish { &self.publishes } else { &self.others }.count(bytes);
    }

    fn tick(&self, mono_ms: u64) {
        self.publishes.tick(mono_ms);
        self.others.tick(mono_ms);
    }

    fn show(&self) {
        self.publish_bytes.set(self.publishes.values(None));
        self.total_bytes.set(self.publishes.values(Some(&self.others)));
    }
}

impl RecentMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str| naming::register(registry, Kind::Gauge, name);
        Ok(Self {
            incoming: Direction::register(registry, "incoming")?,
            outgoing: Direction::register(registry, "outgoing")?,
            read_current: gauge("com.hivemq.networking.bytes.read.current")?,
            written_current: gauge("com.hivemq.networking.bytes.write.current")?,
            connections_mean: Summary::register(registry, "com.hivemq.networking.connections.mean", "Histogram")?,
            retained_mean: Summary::register(registry, "com.hivemq.messages.retained.mean", "Histogram")?,
            topology_change: Summary::register(registry, "com.hivemq.cluster.topology-change.time", "Timer")?,
            seen: Mutex::default(),
        })
    }

    pub(super) fn received(&self, is_publish: bool, bytes: usize) {
        self.incoming.count(is_publish, bytes);
    }

    pub(super) fn sent(&self, is_publish: bool, bytes: usize) {
        self.outgoing.count(is_publish, bytes);
    }

    /// To be called several times a second: bytes read and written since the start, and connections as they are now.
    #[expect(clippy::cast_precision_loss, reason = "connections of a node")]
    pub(super) fn tick(&self, mono_ms: u64, read: i64, written: i64, connections: i64) {
        let mut seen = self.seen.lock();
        if seen.transferred.back().is_none_or(|(at_ms, ..)| mono_ms.saturating_sub(*at_ms) >= SECOND_MS) {
            seen.transferred.push_back((mono_ms, read, written));
            // One that is as old as what is told, and none before.
            while seen.transferred.get(1).is_some_and(|(at_ms, ..)| mono_ms.saturating_sub(*at_ms) >= CURRENT_MS) {
                seen.transferred.pop_front();
            }
            if let Some((_, read_before, written_before)) = seen.transferred.front() {
                self.read_current.set(read - read_before);
                self.written_current.set(written - written_before);
            }
        }
        if seen.looked_ms.is_none_or(|at_ms| mono_ms.saturating_sub(at_ms) >= LOOK_MS) {
            seen.looked_ms = Some(mono_ms);
            seen.connections.see(connections as f64);
        }
        drop(seen);
        self.incoming.tick(mono_ms);
        self.outgoing.tick(mono_ms);
    }

    /// Bytes of a retained message in the mean, at a look.
    pub(super) fn see_retained(&self, bytes: f64) {
        self.seen.lock().retained.see(bytes);
    }

    pub(super) fn set_failovers(&self, seconds: &Tally) {
        self.topology_change.set(Values::of_tally(seconds));
    }

    /// Brings what is shown up to date.
    pub(super) fn show(&self) {
        self.incoming.show();
        self.outgoing.show();
        let seen = self.seen.lock();
        self.connections_mean.set(seen.connections.values());
        self.retained_mean.set(seen.retained.values());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_last_five_seconds() {
        let recent = RecentMetrics::register(&Registry::new()).unwrap();
        for second in 0..20_u32 {
            recent.tick(u64::from(second) * SECOND_MS, i64::from(second) * 10, i64::from(second.min(18)) * 7, 1);
        }
        assert_eq!((recent.read_current.get(), recent.written_current.get()), (50, 28));
    }
}
