//! Distributions counted where they arise, without a registry and without Prometheus' types: plain numbers that are shown as a histogram
//! when somebody looks (`distribution`).

/// Upper bounds of durations, seconds: from what a flush takes on a good disk to a fail-over that went wrong.
pub const SECONDS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Upper bounds of lengths of queues, messages.
pub const MESSAGES: &[f64] = &[0.0, 1.0, 10.0, 50.0, 100.0, 250.0, 500.0, 800.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0];

/// How often a value was within each bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Tally {
    bounds: &'static [f64],
    /// One for each bound, and one for what is above all of them; each value is in one.
    counts: Vec<u64>,
    sum: f64,
}

impl Tally {
    /// `bounds` rise, and each is part of what it bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn observe(&mut self, value: f64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
            self.sum += value;
        }
    }

    /// Adds another one with the same bounds.
    pub fn add(&mut self, other: &Self) {
        debug_assert_eq!(self.bounds, other.bounds, "they count different things");
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum += other.sum;
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Each bound with the number of values up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let mut sum = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            sum += count;
            (*bound, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_in_the_first_bound_that_it_does_not_pass() {
        let mut tally = Tally::new(&[0.0, 1.0, 10.0]);
        for value in [0.0, 0.5, 1.0, 1.5, 10.0, 11.0] {
            tally.observe(value);
        }
        assert_eq!(tally.cumulative().collect::<Vec<_>>(), [(0.0, 1), (1.0, 3), (10.0, 5)]);
        assert_eq!((tally.count(), tally.sum().to_string().as_str()), (6, "24"));
        let mut other = Tally::new(&[0.0, 1.0, 10.0]);
        other.observe(100.0);
        other.add(&tally);
        assert_eq!((other.count(), other.sum().to_string().as_str()), (7, "124"));
    }

    #[test]
    fn bounds_rise() {
        for bounds in [SECONDS, MESSAGES] {
            assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
        }
    }
}
