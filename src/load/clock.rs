//! The time of a run, as all its threads see it, and when measuring begins and ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::units::nanos;

pub(super) struct Clock {
    origin: Instant,
    begin_ns: AtomicU64,
    end_ns: AtomicU64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now(), begin_ns: AtomicU64::new(u64::MAX), end_ns: AtomicU64::new(u64::MAX) }
    }

    /// Since the run began.
    pub(super) fn now_ns(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    pub(super) fn begin(&self) -> u64 {
        let now = self.now_ns();
        self.begin_ns.store(now, Ordering::Release);
        now
    }

    /// Ends measuring, if it began; once.
    pub(super) fn end(&self) -> u64 {
        let now = self.now_ns();
        _ = self.end_ns.compare_exchange(u64::MAX, now, Ordering::AcqRel, Ordering::Relaxed);
        self.end_ns.load(Ordering::Acquire)
    }

    /// Whether what began at this time counts. It does also where it ends after the end of measuring: leaving the slowest out would be
    /// coordinated omission.
    pub(super) fn counts(&self, ns: u64) -> bool {
        ns >= self.begin_ns.load(Ordering::Acquire) && ns < self.end_ns.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_begins_while_measuring_counts() {
        let clock = Clock::new();
        assert!(!clock.counts(clock.now_ns()));
        let begin = clock.begin();
        assert!(
            clock.counts(begin)
                && clock.counts(begin + 1_000_000_000)
                && begin.checked_sub(1).is_none_or(|before| !clock.counts(before))
        );
        let end = clock.end();
        assert!(!clock.counts(end) && !clock.counts(end + 1));
        assert_eq!(clock.end(), end);
    }
}
