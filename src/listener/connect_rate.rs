//! The token bucket of `connect-overload-protection`: one for a listener, shared by the accept loops of all arbiters. Pure.
//!
//! Its whole state is one number, the time at which it will be full again, so that taking a token is one atomic exchange. Tokens are taken
//! ahead of time: whoever may wait long enough learns when its own will be there, and nobody has to be told or to look again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::settings::ConnectOverload;

/// The bucket; full at first.
#[derive(Debug)]
pub(super) struct ConnectRate {
    /// Between two tokens.
    interval_ns: u64,
    /// Until an empty bucket is full.
    capacity_ns: u64,
    full_at_ns: AtomicU64,
}

impl ConnectRate {
    pub(super) fn new(limit: ConnectOverload) -> Self {
        let interval_ns = nanos(1.0 / limit.rate);
        // Rounding must not make a token that is never there.
        let capacity_ns = nanos(limit.burst / limit.rate).max(interval_ns);
        Self { interval_ns, capacity_ns, full_at_ns: AtomicU64::new(0) }
    }

    /// Takes the next token if it is there within `patience`; tells how long that is. `now` counts from any fixed moment.
    pub(super) fn take(&self, now: Duration, patience: Duration) -> Option<Duration> {
        let (now, patience) = (whole_nanos(now), whole_nanos(patience));
        let mut wait = None;
        _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now).saturating_add(self.interval_ns);
            let wait_ns = full_at.saturating_sub(self.capacity_ns).saturating_sub(now);
            wait = (wait_ns <= patience).then(|| Duration::from_nanos(wait_ns));
            wait.map(|_| full_at)
        });
        wait
    }
}

/// Too long a time counts as the longest there is.
fn nanos(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds).map_or(u64::MAX / 2, whole_nanos)
}

fn whole_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn rate(rate: f64, burst: f64) -> ConnectRate {
        ConnectRate::new(ConnectOverload { rate, burst })
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        for (per_second, burst, at) in
            [(500.0, 1000.0, 0), (500.0, 1000.0, 1_000_000), (0.5, 1.0, 7), (3.0, 10.0, 5), (1e6, 2e6, 9)]
        {
            let bucket = rate(per_second, burst);
            let mut passed = 0.0;
            while bucket.take(ms(at), NONE).is_some() {
                passed += 1.0;
            }
            assert_eq!(passed, burst, "{per_second}");
            let mut later = 0.0;
            for now in at..at + 20_000 {
                while bucket.take(ms(now), NONE).is_some() {
                    later += 1.0;
                }
            }
            let expected: f64 = per_second * 20.0;
            assert!((later - expected).abs() <= (expected / 1000.0).max(1.0), "{per_second}: {later}");
        }
    }

    #[test]
    fn an_idle_bucket_holds_no_more_than_its_burst() {
        let bucket = rate(10.0, 5.0);
        assert!(bucket.take(ms(0), NONE).is_some());
        let passed = (0..100).filter(|_| bucket.take(ms(3_600_000), NONE).is_some()).count();
        assert_eq!(passed, 5);
    }

    #[test]
    fn those_who_wait_are_let_in_one_after_the_other_and_the_others_told_at_once() {
        let bucket = rate(100.0, 2.0);
        let waits: Vec<_> = (0..8).map(|_| bucket.take(ms(50), ms(45))).collect();
        let expected = [Some(0), Some(0), Some(10), Some(20), Some(30), Some(40), None, None];
        assert_eq!(waits, expected.map(|wait| wait.map(ms)));
        // Who was refused took nothing.
        assert_eq!(bucket.take(ms(60), ms(45)), Some(ms(40)));
    }

    #[test]
    fn extreme_settings_neither_overflow_nor_lock_out() {
        for (per_second, burst) in [(f64::MIN_POSITIVE, 1.0), (f64::MAX, f64::MAX), (1e-300, 1e300), (1e12, 1.0), (0.001, 9e18)] {
            let bucket = rate(per_second, burst);
            for now in [0, 1, u64::MAX / 1_000_000 / 4] {
                bucket.take(ms(now), ms(5_000));
            }
            assert!(rate(per_second, burst).take(ms(1), NONE).is_some(), "{per_second} {burst}");
        }
    }
}
