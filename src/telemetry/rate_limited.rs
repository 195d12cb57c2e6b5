//! Warnings from hot paths: one line an interval, with the number of those left out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lets one event an interval through and counts the others. Cheap and never blocks; may be a `static`.
#[derive(Debug)]
pub struct RateLimited {
    interval: Duration,
    suppressed: AtomicU64,
    last: Mutex<Option<Instant>>,
}

impl RateLimited {
    pub const fn new(interval: Duration) -> Self {
        Self { interval, suppressed: AtomicU64::new(0), last: Mutex::new(None) }
    }

    /// `Some(n)` where the event may be logged, `n` being the number suppressed since the last one that was.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        // Whoever finds the lock taken meets another event of the same instant: it counts as suppressed.
        let admitted = self.last.try_lock().is_some_and(|mut last| {
            let due = last.is_none_or(|last| now.saturating_duration_since(last) >= self.interval);
            if due {
                *last = Some(now);
            }
            due
        });
        if admitted {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

/// `warn_limited!(limit, field = value, .., "text")`: a `tracing::warn!` through a [`RateLimited`], with a field `suppressed`.
#[macro_export]
macro_rules! warn_limited {
    ($limit:expr, $($event:tt)+) => {
        if let Some(suppressed) = $limit.admit(std::time::Instant::now()) {
            tracing::warn!(suppressed, $($event)+);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_an_interval_passes_and_tells_how_many_did_not() {
        let limit = RateLimited::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(limit.admit(at(0)), Some(0));
        assert_eq!(limit.admit(at(1)), None);
        assert_eq!(limit.admit(at(9)), None);
        assert_eq!(limit.admit(at(10)), Some(2));
        assert_eq!(limit.admit(at(11)), None);
        assert_eq!(limit.admit(at(40)), Some(1));
    }

    #[test]
    fn a_clock_that_stands_still_suppresses() {
        let limit = RateLimited::new(Duration::from_secs(1));
        let now = Instant::now();
        assert_eq!(limit.admit(now), Some(0));
        assert_eq!(limit.admit(now), None);
    }

    #[test]
    fn the_macro_can_be_used_with_fields() {
        static LIMIT: RateLimited = RateLimited::new(Duration::from_secs(1));
        warn_limited!(LIMIT, listener = "tcp-listener-1883", "queue is full");
    }
}
