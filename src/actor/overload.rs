//! How much the node has to do, as HiveMQ tells it: a level from 0 to 9 (spec/hivemq.md 9.10).
//!
//! Each resource that can be short has a limit. The level is the number of whole ninths of its limit that the most used one uses, so 9 means that
//! something is at its limit: clients are not read, commands are refused, or messages are dropped. It rises at once, and falls to what it was at
//! most meanwhile when it has been lower for [`FALL_MS`].
//!
//! | Resource | Limit |
//! | --- | --- |
//! | items waiting for one arbiter | 20,000; then clients are not read |
//! | commands waiting for one shard, or their bytes | those of `cluster::submit`; then they are refused |
//! | events that outboxes hold | 200,000; then clients are not read |
//! | signals waiting for the add-ons | 100,000, or 64 MiB; then clients are not read |
//! | memory for QoS 0 messages | `restrictions/max-qos-0-memory`; then they are dropped |
//! | memory for incomplete packets | `restrictions/max-incomplete-packet-memory`; then connections are closed |
//! | lag of an arbiter's event loop | 1 s in the mean of the last second |

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use super::clock;
use super::loop_lag::LoopLags;
use super::node::{Node, PRESSED_ITEMS, UNTAKEN_EVENTS_MAX};

/// The highest level.
pub const LEVEL_MAX: u8 = 9;
/// Between two looks, as HiveMQ has it.
const LOOK: Duration = Duration::from_millis(100);
/// For so long it must have been lower before it falls.
const FALL_MS: u64 = 2_000;
/// The mean lag of an event loop at which the level is 9.
const LAG_MAX: Duration = Duration::from_secs(1);

/// What can be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    Arbiter,
    Commands,
    Events,
    Signals,
    Qos0Memory,
    IncompletePackets,
    EventLoop,
}

impl Resource {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arbiter => "items waiting for an arbiter",
            Self::Commands => "commands waiting for a shard",
            Self::Events => "events waiting in outboxes",
            Self::Signals => "signals waiting for the add-ons",
            Self::Qos0Memory => "memory for QoS 0 messages",
            Self::IncompletePackets => "memory for incomplete packets",
            Self::EventLoop => "lag of an event loop",
        }
    }
}

/// What a node's load comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overload {
    /// 0 to [`LEVEL_MAX`].
    pub level: u8,
    /// What it comes from; `None` at 0.
    pub cause: Option<Resource>,
    /// Since when it is this level, wall clock, ms; 0 = since the start.
    pub since_ms: u64,
}

/// The level of these shares of limits (1 = all of it), and what it comes from.
fn measure(shares: &[(Resource, f64)]) -> (u8, Option<Resource>) {
    let most = shares.iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
    let Some((resource, share)) = most else { return (0, None) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 9")]
    let level = (share * f64::from(LEVEL_MAX)).clamp(0.0, f64::from(LEVEL_MAX)) as u8;
    (level, (level > 0).then_some(*resource))
}

/// Keeps the level.
#[derive(Debug, Default)]
struct Meter {
    shown: Overload,
    /// Since when less is measured, monotonic, and the most of it.
    lower: Option<(u64, (u8, Option<Resource>))>,
}

impl Meter {
    /// Takes a measurement; tells whether the level changed.
    fn step(&mut self, measured: (u8, Option<Resource>), mono_ms: u64, wall_ms: u64) -> bool {
        let level = self.shown.level;
        if measured.0 >= level {
            self.lower = None;
            if measured.0 == level {
                return false;
            }
            self.show(measured, wall_ms);
            return true;
        }
        let (since_ms, most) = self.lower.get_or_insert((mono_ms, measured));
        if measured.0 > most.0 {
            *most = measured;
        }
        if mono_ms.saturating_sub(*since_ms) < FALL_MS {
            return false;
        }
        let most = *most;
        self.lower = None;
        self.show(most, wall_ms);
        true
    }

    fn show(&mut self, (level, cause): (u8, Option<Resource>), since_ms: u64) {
        self.shown = Overload { level, cause, since_ms };
    }
}

/// The part of a node that knows its load.
#[derive(Debug, Default)]
pub struct Load {
    pub lags: LoopLags,
    meter: Mutex<Meter>,
}

impl Load {
    pub fn overload(&self) -> Overload {
        self.meter.lock().shown
    }
}

/// Measures until it is aborted.
pub async fn run(node: Arc<Node>) {
    loop {
        actix_rt::time::sleep(LOOK).await;
        let now = clock::now();
        node.metrics.tick(now.mono_ms);
        let measured = measure(&shares(&node, now.mono_ms));
        let before = node.load.overload().level;
        if node.load.meter.lock().step(measured, now.mono_ms, now.wall_ms) {
            let Overload { level, cause, .. } = node.load.overload();
            let cause = cause.map_or("", Resource::name);
            if level > before {
                tracing::warn!(level, before, cause, "the overload level rises");
            } else {
                tracing::info!(level, before, cause, "the overload level falls");
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shares of limits far below 2^53")]
fn shares(node: &Node, mono_ms: u64) -> [(Resource, f64); 7] {
    let share = |used: usize, max: usize| used as f64 / max.max(1) as f64;
    let arbiter = node.hubs().iter().map(|hub| hub.len()).max().unwrap_or(0);
    let cluster = node.cluster();
    let qos0 = node.qos0_bytes.load(Ordering::Relaxed);
    [
        (Resource::Arbiter, share(arbiter, PRESSED_ITEMS)),
        (Resource::Commands, cluster.map_or(0.0, crate::cluster::Cluster::backlog)),
        (Resource::Events, share(cluster.map_or(0, crate::cluster::Cluster::untaken_events), UNTAKEN_EVENTS_MAX)),
        (Resource::Signals, node.signals.fullness()),
        (Resource::Qos0Memory, share(qos0, node.settings.qos0_total_bytes_max)),
        (Resource::IncompletePackets, share(node.incomplete.used(), node.settings.incomplete_bytes_max)),
        (Resource::EventLoop, node.load.lags.worst(mono_ms).as_secs_f64() / LAG_MAX.as_secs_f64()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_ninths_that_the_most_used_resource_uses() {
        let (arbiter, lag) = (Resource::Arbiter, Resource::EventLoop);
        assert_eq!(measure(&[]), (0, None));
        assert_eq!(measure(&[(arbiter, 0.0), (lag, 0.1)]), (0, None));
        assert_eq!(measure(&[(arbiter, 0.0), (lag, 0.112)]), (1, Some(lag)));
        assert_eq!(measure(&[(arbiter, 0.5), (lag, 0.2)]), (4, Some(arbiter)));
        assert_eq!(measure(&[(arbiter, 0.99), (lag, 0.2)]), (8, Some(arbiter)));
        assert_eq!(measure(&[(arbiter, 1.0), (lag, 0.2)]), (9, Some(arbiter)));
        assert_eq!(measure(&[(arbiter, 0.2), (lag, 40.0)]), (9, Some(lag)));
    }

    #[test]
    fn the_level_rises_at_once_and_falls_when_it_was_lower_for_a_while() {
        let mut meter = Meter::default();
        let lag = Some(Resource::EventLoop);
        // (moment, measured, shown afterwards, whether that is a change)
        let steps = [
            (0, 0, 0, false),
            (100, 5, 5, true),
            (200, 7, 7, true),
            (300, 1, 7, false),
            (1_300, 3, 7, false),
            (2_200, 2, 7, false),
            // The most that was measured in those two seconds.
            (2_300, 0, 3, true),
            (2_400, 2, 3, false),
            // Back before it fell: the time begins anew.
            (4_300, 3, 3, false),
            (4_400, 0, 3, false),
            (6_300, 0, 3, false),
            (6_400, 0, 0, true),
            (6_500, 0, 0, false),
        ];
        for (at_ms, measured, shown, changed) in steps {
            let cause = lag.filter(|_| measured > 0);
            assert_eq!(meter.step((measured, cause), at_ms, 1_000_000 + at_ms), changed, "at {at_ms}");
            assert_eq!(meter.shown.level, shown, "at {at_ms}");
            if changed {
                assert_eq!(meter.shown.since_ms, 1_000_000 + at_ms);
            }
            assert_eq!(meter.shown.cause.is_some(), shown > 0, "at {at_ms}");
        }
    }
}
