//! `restrictions/incoming-bandwidth-throttling`: how many bytes the node reads from its clients in a second. Pure.
//!
//! A token bucket in one atomic, shared by all arbiters: the time at which it will be full again. It holds a tenth of a second, so that an
//! idle node answers at once and a busy one is never far above its rate.

use std::sync::atomic::{AtomicU64, Ordering};

const SECOND_NS: u64 = 1_000_000_000;
const CAPACITY_NS: u64 = SECOND_NS / 10;
/// Reads that a full bucket is cut into, so that several connections share it.
const SHARES: u64 = 8;

/// The node's bucket of bytes.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_s: u64,
    capacity_ns: u64,
    /// Bytes read at a time at most.
    share: usize,
    /// Monotonic.
    full_at_ns: AtomicU64,
}

impl Throttle {
    /// `None` for 0: off.
    pub fn new(bytes_per_s: u64) -> Option<Self> {
        if bytes_per_s == 0 {
            return None;
        }
        let mut throttle = Self { bytes_per_s, capacity_ns: CAPACITY_NS, share: 1, full_at_ns: AtomicU64::new(0) };
        // At the lowest rates a byte takes longer than the bucket is meant to hold.
        throttle.capacity_ns = CAPACITY_NS.max(throttle.cost_ns(1));
        throttle.share = throttle.bytes_in(CAPACITY_NS / SHARES).max(1);
        Some(throttle)
    }

    /// Takes up to `wanted` bytes' worth out of the bucket; 0 where it is empty.
    pub fn take(&self, wanted: usize, now_ms: u64) -> usize {
        let now_ns = now_ms.saturating_mul(1_000_000);
        let mut taken = 0;
        _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now_ns);
            taken = self.bytes_in(self.capacity_ns.saturating_sub(full_at - now_ns)).min(wanted).min(self.share);
            (taken > 0).then(|| full_at.saturating_add(self.cost_ns(taken)))
        });
        taken
    }

    /// Puts back what was taken and not used.
    pub fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            let cost = self.cost_ns(bytes);
            _ = self.full_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| Some(full_at.saturating_sub(cost)));
        }
    }

    /// How many connections can read something now.
    pub fn turns(&self, now_ms: u64) -> usize {
        let behind_ns = self.full_at_ns.load(Ordering::Relaxed).saturating_sub(now_ms.saturating_mul(1_000_000));
        self.bytes_in(self.capacity_ns.saturating_sub(behind_ns)).div_ceil(self.share)
    }

    /// Rounded up: many small reads are not cheaper than a large one.
    fn cost_ns(&self, bytes: usize) -> u64 {
        let cost = (bytes as u128 * u128::from(SECOND_NS)).div_ceil(u128::from(self.bytes_per_s));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }

    fn bytes_in(&self, ns: u64) -> usize {
        usize::try_from(u128::from(ns) * u128::from(self.bytes_per_s) / u128::from(SECOND_NS)).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_rate_and_a_tenth_of_a_second_is_taken() {
        for rate in [1, 9, 100, 1_000, 65_537, 10_000_000, u64::MAX] {
            let throttle = Throttle::new(rate).unwrap();
            let mut taken = 0_u128;
            for now_ms in 0..10_000 {
                // More than anybody can take at the highest rate.
                for _ in 0..20 {
                    taken += throttle.take(64 * 1024, now_ms) as u128;
                }
            }
            let allowed = u128::from(rate) * 10 + (u128::from(rate) / 10).max(1);
            assert!(taken <= allowed, "{rate}: {taken}");
            let possible = allowed.min(10_000 * 20 * 64 * 1024);
            assert!(taken * 100 >= possible * 80, "{rate}: {taken} of {possible}");
        }
        assert!(Throttle::new(0).is_none());
    }

    #[test]
    fn what_is_not_used_can_be_taken_again() {
        let throttle = Throttle::new(1_000).unwrap();
        let mut taken = 0;
        while throttle.turns(0) > 0 {
            let some = throttle.take(1000, 0);
            assert!((1..=13).contains(&some), "shares of a hundred bytes: {some}");
            taken += some;
        }
        assert_eq!((taken, throttle.take(1000, 0)), (100, 0));
        throttle.give_back(7);
        assert_eq!((throttle.turns(0), throttle.take(1000, 0), throttle.turns(0)), (1, 7, 0));
        assert_eq!(throttle.take(1000, 5), 5, "a thousand a second are one a millisecond");
    }
}
