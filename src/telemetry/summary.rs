//! What HiveMQ calls a histogram or a timer: a summary to Prometheus, with HiveMQ's quantiles (spec/hivemq.md 5.3). The quantiles are of the last minutes, as
//! HiveMQ's are; the count is of all values since the start.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType, Quantile, Summary as Shown};

use super::naming;
use super::tally::Tally;

const QUANTILES: [f64; 6] = [0.5, 0.75, 0.95, 0.98, 0.99, 0.999];

/// What a summary shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Values {
    /// In the order of [`QUANTILES`]; none where there was no value.
    quantiles: Option<[f64; QUANTILES.len()]>,
    count: u64,
    sum: f64,
}

/// One summary of the registry; its values are set when somebody looks.
#[derive(Debug, Clone)]
pub(super) struct Summary(Arc<(Desc, Mutex<Values>)>);

impl Summary {
    /// `kind` is HiveMQ's: Histogram or Timer.
    pub(super) fn register(registry: &Registry, dotted: &str, kind: &str) -> Result<Self, prometheus::Error> {
        let help = format!("Generated from Dropwizard metric import (metric={dotted}, type=com.codahale.metrics.{kind})");
        let desc = Desc::new(naming::prometheus_name(dotted), help, Vec::new(), HashMap::new())?;
        let summary = Self(Arc::new((desc, Mutex::default())));
        registry.register(Box::new(summary.clone()))?;
        Ok(summary)
    }

    pub(super) fn set(&self, values: Values) {
        *self.0.1.lock() = values;
    }
}

impl Collector for Summary {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.0]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (desc, values) = self.0.as_ref();
        let values = values.lock();
        let mut shown = Shown::default();
        shown.set_sample_count(values.count);
        shown.set_sample_sum(values.sum);
        let quantile = |(place, value): (&f64, f64)| {
            let mut quantile = Quantile::default();
            quantile.set_quantile(*place);
            quantile.set_value(value);
            quantile
        };
        let of = values.quantiles.unwrap_or_default();
        shown.set_quantile(QUANTILES.iter().zip(of).map(quantile).collect());
        let mut metric = Metric::default();
        metric.set_summary(shown);
        let mut family = MetricFamily::default();
        family.set_name(desc.fq_name.clone());
        family.set_help(desc.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

impl Values {
    /// Of values and how often each came, in rising order.
    fn of(counted: &[(f64, u64)], count: u64, sum: f64) -> Self {
        let total: u64 = counted.iter().map(|(_, times)| times).sum();
        let at = |place: f64| {
            let mut seen = 0;
            let reached = counted.iter().find(|(_, times)| {
                seen += times;
                as_float(seen) >= place * as_float(total)
            });
            reached.map_or(0.0, |(value, _)| *value)
        };
        Self { quantiles: (total > 0).then(|| QUANTILES.map(at)), count, sum }
    }

    /// Of all values since the start, each taken for the bound that it does not pass.
    pub(super) fn of_tally(tally: &Tally) -> Self {
        let mut below = 0;
        let mut counted: Vec<(f64, u64)> = Vec::new();
        for (bound, up_to) in tally.cumulative() {
            counted.push((bound, up_to - below));
            below = up_to;
        }
        let largest = counted.last().map_or(0.0, |(bound, _)| *bound);
        counted.push((largest, tally.count() - below));
        Self::of(&counted, tally.count(), tally.sum())
    }
}

/// Below this each size has a place of its own; above, eight places between a power of two and the next.
const EXACT: usize = 16;
const PER_POWER: usize = 8;
/// Packets are smaller than 2^29 bytes.
const PLACES: usize = EXACT + (29 - 4) * PER_POWER;
/// Earlier counts that are kept, one a minute: quantiles are of the last five.
const KEPT: usize = 5;
const KEEP_MS: u64 = 60_000;

/// Sizes of packets. Counting one is two atomic additions.
#[derive(Debug)]
pub(super) struct Sizes {
    places: Vec<AtomicU64>,
    bytes: AtomicU64,
    earlier: Mutex<Earlier>,
}

#[derive(Debug, Default)]
struct Earlier {
    kept_ms: u64,
    counts: VecDeque<Vec<u64>>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), bytes: AtomicU64::new(0), earlier: Mutex::default() }
    }
}

impl Sizes {
    pub(super) fn count(&self, bytes: usize) {
        if let Some(place) = self.places.get(place(bytes)) {
            place.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// To be called now and then, with the time that has passed.
    pub(super) fn tick(&self, mono_ms: u64) {
        let mut earlier = self.earlier.lock();
        if mono_ms.saturating_sub(earlier.kept_ms) < KEEP_MS {
            return;
        }
        earlier.kept_ms = mono_ms;
        earlier.counts.push_back(self.counts());
        if earlier.counts.len() > KEPT {
            earlier.counts.pop_front();
        }
    }

    fn counts(&self) -> Vec<u64> {
        self.places.iter().map(|place| place.load(Ordering::Relaxed)).collect()
    }

    /// Of these and, where there are others, those together.
    pub(super) fn values(&self, others: Option<&Self>) -> Values {
        let mut recent = vec![0; PLACES];
        let (mut count, mut bytes) = (0, 0);
        for sizes in std::iter::once(self).chain(others) {
            // Before the counts are read: `tick` must not keep later ones meanwhile.
            let earlier = sizes.earlier.lock();
            let now = sizes.counts();
            count += now.iter().sum::<u64>();
            bytes += sizes.bytes.load(Ordering::Relaxed);
            let before = earlier.counts.front();
            for (index, (recent, now)) in recent.iter_mut().zip(now).enumerate() {
                *recent += now - before.and_then(|before| before.get(index)).copied().unwrap_or(0);
            }
        }
        let counted: Vec<(f64, u64)> = recent.into_iter().enumerate().map(|(place, times)| (size(place), times)).collect();
        Values::of(&counted, count, as_float(bytes))
    }
}

fn place(bytes: usize) -> usize {
    if bytes < EXACT {
        return bytes;
    }
    let power = bytes.ilog2() as usize;
    let eighth = (bytes >> (power - 3)) - PER_POWER;
    (EXACT + (power - 4) * PER_POWER + eighth).min(PLACES - 1)
}

/// The middle of what a place stands for: off by a sixteenth at most.
#[expect(clippy::cast_precision_loss, reason = "sizes of packets")]
fn size(place: usize) -> f64 {
    if place < EXACT {
        return place as f64;
    }
    let (power, eighth) = (4 + (place - EXACT) / PER_POWER, (place - EXACT) % PER_POWER);
    let width = 1_u64 << (power - 3);
    (width * (PER_POWER + eighth) as u64) as f64 + (width - 1) as f64 / 2.0
}

/// Values that are looked at now and then.
const LOOKS: usize = 30;

/// The last values of something that is looked at.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: VecDeque<f64>,
    count: u64,
    sum: f64,
}

impl Looks {
    pub(super) fn see(&mut self, value: f64) {
        self.last.push_back(value);
        if self.last.len() > LOOKS {
            self.last.pop_front();
        }
        self.count += 1;
        self.sum += value;
    }

    pub(super) fn values(&self) -> Values {
        let mut sorted: Vec<f64> = self.last.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let counted: Vec<(f64, u64)> = sorted.into_iter().map(|value| (value, 1)).collect();
        Values::of(&counted, self.count, self.sum)
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics, far below 2^53")]
fn as_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::tally::SECONDS;

    #[test]
    fn a_size_is_told_to_a_sixteenth() {
        for bytes in (0..4096).chain([65_535, 1_000_000, 268_435_460]) {
            let told = size(place(bytes));
            let off = (told - as_float(bytes as u64)).abs();
            assert!(off <= as_float(bytes as u64) / 16.0, "{bytes}: {told}");
        }
        assert!(place(usize::MAX) < PLACES);
    }

    #[test]
    fn quantiles_of_sizes_are_of_the_last_minutes_and_the_count_of_all() {
        let (sizes, others) = (Sizes::default(), Sizes::default());
        assert_eq!(sizes.values(None), Values::default());
        (0..100).for_each(|_| sizes.count(3));
        sizes.count(12);
        let values = sizes.values(None);
        assert_eq!((values.count, values.quantiles), (101, Some([3.0, 3.0, 3.0, 3.0, 3.0, 12.0])));
        others.count(5);
        assert_eq!(sizes.values(Some(&others)).count, 102);
        for minute in 1..=6 {
            sizes.tick(minute * KEEP_MS);
        }
        sizes.count(9);
        let values = sizes.values(None);
        assert_eq!((values.count, values.quantiles), (102, Some([9.0; 6])));
        assert_eq!(values.sum.to_string(), "321");
    }

    #[test]
    fn looks_and_tallies_have_their_quantiles() {
        let mut looks = Looks::default();
        (0..130).for_each(|value| looks.see(f64::from(value)));
        let values = looks.values();
        assert_eq!((values.count, values.quantiles.map(|of| (of[0], of[5]))), (130, Some((114.0, 129.0))));
        let mut tally = Tally::new(SECONDS);
        [0.2, 0.2, 0.2, 99.0].into_iter().for_each(|seconds| tally.observe(seconds));
        let values = Values::of_tally(&tally);
        assert_eq!((values.count, values.quantiles), (4, Some([0.25, 0.25, 30.0, 30.0, 30.0, 30.0])));
    }
}
