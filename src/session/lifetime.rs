//! How long a client may stay: until what it has proved expires.
//!
//! The expiry is a moment of the wall clock, which may be set meanwhile, or go on while the machine sleeps; a timer counts by the other one. So the
//! wall clock decides, and is looked at again at least every ten minutes.

use super::machine::Now;
use crate::auth::Principal;

const LOOK_AGAIN_MS: u64 = 600_000;

/// The end of what a principal may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// Wall clock, ms.
    ends_at_ms: u64,
    /// Monotonic ms.
    look_at_ms: u64,
}

impl Lifetime {
    /// `None`: it does not end.
    pub(super) fn of(principal: &Principal, now: Now) -> Option<Self> {
        principal.expires_at_ms().map(|ends_at_ms| Self { ends_at_ms, look_at_ms: 0 }.looked_at(now))
    }

    /// When to look at it, monotonic ms.
    pub(super) fn deadline_ms(self) -> u64 {
        self.look_at_ms
    }

    pub(super) fn is_over(self, now: Now) -> bool {
        self.ends_at_ms <= now.wall_ms
    }

    /// To be looked at again.
    pub(super) fn looked_at(self, now: Now) -> Self {
        let left_ms = self.ends_at_ms.saturating_sub(now.wall_ms).min(LOOK_AGAIN_MS);
        Self { look_at_ms: now.mono_ms.saturating_add(left_ms), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono_ms, wall_ms }
    }

    fn until(ends_at_ms: u64, now: Now) -> Lifetime {
        Lifetime::of(&Principal::anonymous().until(Some(ends_at_ms)), now).unwrap()
    }

    #[test]
    fn the_wall_clock_decides_and_is_looked_at_when_it_may_be_over() {
        assert_eq!(Lifetime::of(&Principal::anonymous(), at(0, 0)), None);
        let lifetime = until(50_000, at(7, 20_000));
        assert_eq!(lifetime.deadline_ms(), 30_007);
        assert!(!lifetime.is_over(at(30_007, 49_999)) && lifetime.is_over(at(30_007, 50_000)));
        // The clock was set back by an hour: there is an hour more to wait, of which ten minutes at first.
        let back = until(5_000_000, at(0, 4_000_000)).looked_at(at(600_000, 1_000_000));
        assert_eq!(back.deadline_ms(), 1_200_000);
        // Set forward: over at the next look.
        assert!(back.is_over(at(1_200_000, 9_000_000)));
    }

    #[test]
    fn the_ends_of_time_overflow_nothing() {
        assert_eq!(until(u64::MAX, at(5, 1)).deadline_ms(), 600_005);
        assert_eq!(until(u64::MAX, at(u64::MAX, 1)).deadline_ms(), u64::MAX);
        assert_eq!(until(0, at(5, 1)).deadline_ms(), 5);
    }
}
