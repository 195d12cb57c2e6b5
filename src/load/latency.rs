//! Histograms of times.

use hdrhistogram::Histogram;

use super::units::millis;

/// What is below or above counts as this.
const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 600_000_000_000;
/// Decimal digits kept of each time.
const DIGITS: u8 = 3;

/// Times in nanoseconds, from 1 microsecond to 10 minutes, in three digits.
#[derive(Default)]
pub(super) struct Latency {
    histogram: Option<Histogram<u64>>,
}

/// What a table shows of a histogram; milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Times {
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    /// Takes memory with the first time recorded.
    pub(super) const fn new() -> Self {
        Self { histogram: None }
    }

    pub(super) fn record(&mut self, ns: u64) {
        if self.histogram.is_none() {
            self.histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).ok();
        }
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record(ns.max(LOWEST_NS));
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        match (&mut self.histogram, other.histogram) {
            (Some(ours), Some(theirs)) => _ = ours.add(&theirs),
            (None, theirs) => self.histogram = theirs,
            (Some(_), None) => {}
        }
    }

    pub(super) fn times(&self) -> Times {
        let Some(histogram) = self.histogram.as_ref().filter(|histogram| !histogram.is_empty()) else { return Times::default() };
        let at = |quantile| millis(histogram.value_at_quantile(quantile));
        Times {
            count: histogram.len(),
            min: millis(histogram.min()),
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: millis(histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times_recorded() {
        let mut one = Latency::new();
        let mut other = Latency::new();
        (1..=1000).for_each(|ms| if ms % 2 == 0 { &mut one } else { &mut other }.record(ms * 1_000_000));
        one.add(other);
        let times = one.times();
        assert_eq!(times.count, 1000);
        let near = |value: f64, expected: f64| (value - expected).abs() <= expected / 500.0;
        for (value, expected) in [
            (times.min, 1.0),
            (times.p50, 500.0),
            (times.p90, 900.0),
            (times.p99, 990.0),
            (times.p999, 999.0),
            (times.max, 1000.0),
        ] {
            assert!(near(value, expected), "{value} {expected}");
        }
        assert!(near(times.mean, 500.5));
    }

    #[test]
    fn what_is_out_of_range_is_kept_at_the_border_and_nothing_gives_zeros() {
        let mut latency = Latency::new();
        assert_eq!(latency.times(), Times::default());
        latency.record(0);
        latency.record(u64::MAX);
        let times = latency.times();
        assert_eq!(times.count, 2);
        assert!(times.min <= 0.0015 && times.max >= 600_000.0, "{times:?}");
    }
}
