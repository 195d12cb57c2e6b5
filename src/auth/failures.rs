//! Failed logins, counted for each address and for each user at an address, forgotten at one a second. A client that tries again and again
//! hears its refusals late, and its passwords are not hashed any more, so that others are served meanwhile (cases.md 99).

use std::collections::HashMap;

/// Addresses, and users at them, that are remembered.
pub const ENTRIES_MAX: usize = 20_000;
/// Failures are forgotten at one in this time.
const FORGET_MS: u64 = 1_000;
/// Failures of one user at one address after which it is not looked at what it says.
const USER_MAX: u64 = 5;
/// Failures of an address that are answered at once, and those from which on the wait is longest.
const ADDRESS_PATIENCE: u64 = 10;
const ADDRESS_EXHAUSTED: u64 = 100;
/// Failures of an address that are remembered: that many seconds after the last one all are forgotten.
const ADDRESS_MAX: u64 = 200;
const WAIT_MS: u64 = 1_000;
const WAIT_MAX_MS: u64 = 3_000;

/// A bounded table of failures. Keys are hashes: of an address, or of an address and a user.
#[derive(Debug, Default)]
pub struct Failures {
    /// When all failures of a key will be forgotten, monotonic ms: the number of failures lies in it.
    entries: HashMap<u64, u64>,
}

impl Failures {
    fn count(&self, key: u64, now_ms: u64) -> u64 {
        let until = self.entries.get(&key).copied().unwrap_or(0);
        until.saturating_sub(now_ms).div_ceil(FORGET_MS)
    }

    /// Whether what this user at this address says is not to be looked at.
    pub fn is_blocked(&self, user: u64, now_ms: u64) -> bool {
        self.count(user, now_ms) >= USER_MAX
    }

    /// Notes a failure and tells how long its answer is to wait, milliseconds. `user` is `None` where no user was named, or where what it
    /// said was not looked at.
    pub fn failed(&mut self, address: u64, user: Option<u64>, now_ms: u64) -> u64 {
        self.add(address, ADDRESS_MAX, now_ms);
        if let Some(user) = user {
            self.add(user, USER_MAX, now_ms);
        }
        match self.count(address, now_ms) {
            0..=ADDRESS_PATIENCE => 0,
            count if count < ADDRESS_EXHAUSTED => WAIT_MS,
            _ => WAIT_MAX_MS,
        }
    }

    /// The user has logged in from the address.
    pub fn succeeded(&mut self, user: u64) {
        self.entries.remove(&user);
    }

    /// One failure more, up to `max`.
    fn add(&mut self, key: u64, max: u64, now_ms: u64) {
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(&key) {
            self.entries.retain(|_, until| *until > now_ms);
            // Nobody can be forgotten: the newcomer goes uncounted.
            if self.entries.len() >= ENTRIES_MAX {
                return;
            }
        }
        let until = self.entries.entry(key).or_insert(0);
        *until = ((*until).max(now_ms) + FORGET_MS).min(now_ms + max * FORGET_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_fails_again_and_again_is_not_looked_at_until_a_second_has_passed() {
        let mut failures = Failures::default();
        for n in 0..5 {
            assert!(!failures.is_blocked(1, 0), "{n}");
            failures.failed(9, Some(1), 0);
        }
        assert!(failures.is_blocked(1, 0) && failures.is_blocked(1, 999));
        assert!(!failures.is_blocked(2, 0), "another user at the address is");
        assert!(!failures.is_blocked(1, 1_000));
        // However often it tried meanwhile.
        for _ in 0..1000 {
            failures.failed(9, Some(1), 1_000);
        }
        assert!(failures.is_blocked(1, 1_000) && !failures.is_blocked(1, 2_000));
        failures.failed(9, Some(1), 2_000);
        assert!(failures.is_blocked(1, 2_000));
        failures.succeeded(1);
        assert!(!failures.is_blocked(1, 2_000));
    }

    #[test]
    fn an_address_hears_its_refusals_late_once_there_are_many() {
        let mut failures = Failures::default();
        let waits: Vec<u64> = (0..120).map(|_| failures.failed(9, None, 50)).collect();
        assert!(waits[..10].iter().all(|wait| *wait == 0));
        assert!(waits[10..99].iter().all(|wait| *wait == WAIT_MS));
        assert!(waits[99..].iter().all(|wait| *wait == WAIT_MAX_MS));
        // 20 seconds later there are still 100, with the new one 101; then 100.
        assert_eq!(failures.failed(9, None, 20_050), WAIT_MAX_MS);
        assert_eq!(failures.failed(9, None, 22_050), WAIT_MAX_MS);
        assert_eq!(failures.failed(9, None, 24_050), WAIT_MS);
        assert_eq!(failures.failed(8, None, 50), 0, "another address");
        let mut many = Failures::default();
        (0..100_000).for_each(|_| _ = many.failed(9, None, 50));
        assert_eq!(many.failed(9, None, 100_050), WAIT_MAX_MS, "100 of the 200 that are kept");
        assert_eq!(many.failed(9, None, 102_050), WAIT_MAX_MS);
        assert_eq!(many.failed(9, None, 104_050), WAIT_MS);
        assert_eq!(many.failed(9, None, 400_000), 0, "all is forgotten some day");
    }

    #[test]
    fn the_table_does_not_grow_without_end() {
        let mut failures = Failures::default();
        for key in 0..ENTRIES_MAX as u64 * 2 {
            failures.failed(key, None, 0);
        }
        assert_eq!(failures.entries.len(), ENTRIES_MAX);
        failures.failed(u64::MAX, None, 10_000);
        assert_eq!(failures.entries.len(), 1, "those forgotten make room");
    }
}
