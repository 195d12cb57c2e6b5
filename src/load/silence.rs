//! How long a client was not served.

use super::clock::Clock;

/// The longest time between two signs of progress, of those that began while measuring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Silence {
    last_ns: u64,
    longest_ns: u64,
}

impl Silence {
    pub(super) fn progress(&mut self, clock: &Clock, now_ns: u64) {
        if clock.counts(self.last_ns) {
            self.longest_ns = self.longest_ns.max(now_ns.saturating_sub(self.last_ns));
        }
        self.last_ns = now_ns;
    }

    /// With the time since the last sign up to the end of measuring.
    pub(super) fn longest_ns(&self, begin_ns: u64, end_ns: u64) -> u64 {
        self.longest_ns.max(end_ns.saturating_sub(self.last_ns.max(begin_ns)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_counts_also_where_it_does_not_end() {
        let clock = Clock::new();
        let begin = clock.begin();
        let mut silence = Silence::default();
        silence.progress(&clock, begin + 10);
        silence.progress(&clock, begin + 40);
        silence.progress(&clock, begin + 50);
        assert_eq!(silence.longest_ns(begin, begin + 60), 30);
        assert_eq!(silence.longest_ns(begin, begin + 500), 450);
        assert_eq!(Silence::default().longest_ns(begin, begin + 70), 70);
    }
}
