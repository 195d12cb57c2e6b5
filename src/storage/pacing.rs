//! How far flushes of the log are apart when the processor is short.
//!
//! A flush costs two system calls, a write to the disk, and the wake-ups of all that waited for it. While the processor has time to spare, each is begun
//! as soon as there is something to flush. Where threads wait for the processor, fewer and larger flushes leave it the time to do the rest, and
//! everybody is served earlier (`benches/cluster`, rate given). The sign of it is how late this thread comes to run.

use std::time::Duration;

/// Flushes are begun at most so far apart. What waits for one waits for half of it more, and where a fleet has a bounded number of handshakes under
/// way, it comes in no faster than they are answered: with 4 ms a node alone left a quarter of its processor idle in a connect storm.
const INTERVAL_MAX: Duration = Duration::from_millis(1);
/// So late comes a thread that is woken where the processor is free, and a timer that is due.
const FREE: Duration = Duration::from_micros(100);
/// The distance is so many times what a wake-up comes late beyond that.
const FACTOR: u32 = 20;
/// A single observation counts at most as much: one stall is not a shortage.
const LATE_MAX: Duration = Duration::from_millis(2);
/// Of how many observations, about, the mean is kept.
const MEMORY: u32 = 32;

/// Learns from wake-ups.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    late: Duration,
}

impl Pacing {
    /// The thread ran so long after it was woken, or after its timer was due.
    pub(super) fn woken_late(&mut self, by: Duration) {
        self.late = (self.late * (MEMORY - 1) + by.min(LATE_MAX)) / MEMORY;
    }

    /// The least time from the beginning of a flush to that of the next.
    pub(super) fn interval(&self) -> Duration {
        (self.late.saturating_sub(FREE) * FACTOR).min(INTERVAL_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(times: usize, late: Duration) -> Pacing {
        let mut pacing = Pacing::default();
        for _ in 0..times {
            pacing.woken_late(late);
        }
        pacing
    }

    #[test]
    fn with_a_free_processor_nothing_waits() {
        assert_eq!(paced(10_000, FREE).interval(), Duration::ZERO);
    }

    #[test]
    fn flushes_move_apart_where_threads_wait_for_the_processor_and_together_again() {
        let mut pacing = paced(200, Duration::from_millis(2));
        assert_eq!(pacing.interval(), INTERVAL_MAX);
        let mut count = 0;
        while !pacing.interval().is_zero() {
            pacing.woken_late(FREE / 2);
            count += 1;
        }
        assert!(count < 200, "{count}");
    }

    #[test]
    fn a_little_shortage_moves_them_apart_a_little() {
        let interval = paced(1000, FREE + FREE / 4).interval();
        assert!(interval > INTERVAL_MAX / 3 && interval < INTERVAL_MAX, "{interval:?}");
    }

    #[test]
    fn one_stall_is_no_shortage() {
        assert_eq!(paced(1, Duration::from_secs(3)).interval(), Duration::ZERO);
    }
}
