//! The time of one shard: what its leader stamps into proposals.
//!
//! It never runs back, and never stands still: after a leader whose wall clock was ahead, the next one goes on from the last stamp at the speed of
//! its monotonic clock until its own wall clock has come so far. Every replica follows what it applies, so whoever leads next knows.

use parking_lot::Mutex;

use super::clock::{monotonic_ms, wall_ms};

/// The clock of a shard on this node.
#[derive(Debug, Default)]
pub struct ShardClock {
    last: Mutex<Option<Last>>,
}

/// The latest time known, and the monotonic clock then.
#[derive(Debug, Clone, Copy)]
struct Last {
    at_ms: u64,
    monotonic_ms: u64,
}

impl ShardClock {
    /// The shard's time now, ms since 1970.
    pub fn now_ms(&self) -> u64 {
        self.at(wall_ms(), monotonic_ms())
    }

    /// A time that was stamped, here or elsewhere: this clock is not behind it from now on.
    pub fn follow(&self, at_ms: u64) {
        self.at(at_ms, monotonic_ms());
    }

    /// The time at this moment of the monotonic clock, and no less than `told_ms`.
    fn at(&self, told_ms: u64, monotonic_ms: u64) -> u64 {
        let mut last = self.last.lock();
        let gone_on = last.map_or(0, |last| last.at_ms.saturating_add(monotonic_ms.saturating_sub(last.monotonic_ms)));
        if told_ms > gone_on {
            *last = Some(Last { at_ms: told_ms, monotonic_ms });
        }
        told_ms.max(gone_on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_last_stamp_where_the_wall_clock_is_behind() {
        let clock = ShardClock::default();
        assert_eq!(clock.at(1_000_000, 5), 1_000_000);
        // The wall clock is set back by 600 s.
        assert_eq!(clock.at(400_100, 105), 1_000_100);
        assert_eq!(clock.at(401_000, 1_005), 1_001_000);
        // It comes ahead.
        assert_eq!(clock.at(2_000_000, 1_006), 2_000_000);
        assert_eq!(clock.at(2_000_001, 1_007), 2_000_001);
    }

    #[test]
    fn what_another_leader_stamped_is_followed() {
        let clock = ShardClock::default();
        let ahead_ms = clock.now_ms() + 3_600_000;
        clock.follow(ahead_ms);
        clock.follow(5);
        let first = clock.now_ms();
        assert!((ahead_ms..ahead_ms + 60_000).contains(&first));
        let began = std::time::Instant::now();
        while clock.now_ms() < first + 20 {
            assert!(began.elapsed().as_secs() < 60, "it stands still");
        }
    }
}
