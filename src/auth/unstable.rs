//! Clients that do not come to rest: one that connects again and again, and several that have one client id and take its connection over
//! from each other. Both are seen in the connects of a client id, with the times at which their shard applied them, so that all nodes see the
//! same.

use core::net::Ipv4Addr;
use std::collections::HashMap;
use std::hash::Hash;

use bytestring::ByteString;

/// Client ids that are remembered; of more, those that connected last.
pub const ENTRIES_MAX: usize = 100_000;
/// Addresses of a client id that are told.
const ADDRESSES_MAX: usize = 4;

/// What is too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Counted from a client id's first connect, ms.
    pub window_ms: u64,
    /// So many connects within the window are a detection.
    pub connects: u32,
    /// So many takeovers within the window are one.
    pub takeovers: u32,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It connects again and again.
    Flapping,
    /// Several take one client id's connection over from each other.
    Fight,
}

/// A client that does not come to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detection {
    pub cause: Cause,
    pub count: u32,
    /// Where it came from lately, without repetition.
    pub addresses: Vec<ByteString>,
}

/// The connects of client ids, counted.
#[derive(Debug)]
pub struct Unstable {
    limits: Limits,
    counts: Recent<u64, Count>,
}

#[derive(Debug, Default)]
struct Count {
    since_ms: u64,
    connects: u32,
    takeovers: u32,
    addresses: Addresses,
}

/// Where a client came from lately, without repetition. There are as many as client ids, and nearly every client comes from one.
#[derive(Debug, Default)]
#[expect(clippy::box_collection, reason = "a thin pointer keeps the count of a client that comes from one address small")]
enum Addresses {
    #[default]
    Unknown,
    One(Ipv4Addr),
    Others(Box<Vec<ByteString>>),
}

impl Addresses {
    fn add(&mut self, address: &str) {
        let addresses = match self {
            Self::Unknown => {
                *self = match address.parse() {
                    Ok(one) => Self::One(one),
                    Err(_) => Self::Others(Box::new(vec![address.into()])),
                };
                return;
            }
            Self::One(one) if address.parse() == Ok(*one) => return,
            Self::One(one) => {
                *self = Self::Others(Box::new(vec![one.to_string().into(), address.into()]));
                return;
            }
            Self::Others(addresses) => addresses,
        };
        if addresses.iter().any(|known| known == address) {
            return;
        }
        if addresses.len() >= ADDRESSES_MAX {
            addresses.remove(0);
        }
        addresses.push(address.into());
    }

    fn into_vec(self) -> Vec<ByteString> {
        match self {
            Self::Unknown => Vec::new(),
            Self::One(one) => vec![one.to_string().into()],
            Self::Others(addresses) => *addresses,
        }
    }
}

impl Unstable {
    pub fn new(limits: Limits) -> Self {
        Self { limits, counts: Recent::new(ENTRIES_MAX) }
    }

    /// Counts a connect. `key` is a hash of the client id. After a detection counting begins anew, so that the next one takes as many
    /// connects again.
    pub fn connected(&mut self, key: u64, address: Option<&str>, took_over: bool, at_ms: u64) -> Option<Detection> {
        let count = self.counts.entry(key);
        if count.connects == 0 || at_ms.saturating_sub(count.since_ms) >= self.limits.window_ms {
            *count = Count { since_ms: at_ms, ..Count::default() };
        }
        count.connects += 1;
        count.takeovers += u32::from(took_over);
        if let Some(address) = address {
            count.addresses.add(address);
        }
        let (cause, number) = if count.takeovers >= self.limits.takeovers {
            (Cause::Fight, count.takeovers)
        } else if count.connects >= self.limits.connects {
            (Cause::Flapping, count.connects)
        } else {
            return None;
        };
        let addresses = std::mem::take(count).addresses.into_vec();
        Some(Detection { cause, count: number, addresses })
    }
}

/// A bounded map that forgets what was not asked for lately: two halves, of which the older goes when the younger is full.
#[derive(Debug)]
struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Eq + Hash + Clone, V: Default> Recent<K, V> {
    fn new(max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), half: (max / 2).max(1) }
    }

    fn entry(&mut self, key: K) -> &mut V {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).unwrap_or_default();
            if self.young.len() >= self.half {
                self.old = std::mem::take(&mut self.young);
            }
            return self.young.entry(key).or_insert(value);
        }
        self.young.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { window_ms: 60_000, connects: 15, takeovers: 5 };

    fn flapping(addresses: &[&str]) -> Option<Detection> {
        let addresses = addresses.iter().map(|address| (*address).into()).collect();
        Some(Detection { cause: Cause::Flapping, count: 15, addresses })
    }

    #[test]
    fn a_client_that_connects_too_often_within_the_window_is_told_once_for_so_many_connects() {
        let mut unstable = Unstable::new(LIMITS);
        let address = ByteString::from("192.0.2.1");
        for round in 0..3 {
            for n in 0..14 {
                assert_eq!(unstable.connected(1, Some(&*address), false, round * 1000 + n), None, "{round} {n}");
            }
            assert_eq!(unstable.connected(2, None, false, 0), None, "another client");
            assert_eq!(unstable.connected(1, Some(&*address), false, round * 1000 + 20), flapping(&["192.0.2.1"]));
        }
    }

    #[test]
    fn connects_outside_the_window_do_not_count() {
        let mut unstable = Unstable::new(LIMITS);
        for n in 0..100 {
            assert_eq!(unstable.connected(1, None, false, n * 4_300), None, "{n}");
        }
        // The leader's clock may be another's after a change of leaders, and stand still.
        assert_eq!(unstable.connected(2, None, true, 1_000), None);
        assert_eq!(unstable.connected(2, None, true, 0), None);
    }

    #[test]
    fn takeovers_are_a_fight_before_connects_are_too_many() {
        let mut unstable = Unstable::new(LIMITS);
        let addresses: Vec<ByteString> = (1..=6).map(|n| ByteString::from(format!("192.0.2.{n}"))).collect();
        assert_eq!(unstable.connected(1, Some(&*addresses[0]), false, 0), None);
        for address in &addresses[1..5] {
            assert_eq!(unstable.connected(1, Some(&**address), true, 0), None);
        }
        let last = addresses[2..].to_vec();
        let expected = Detection { cause: Cause::Fight, count: 5, addresses: last };
        assert_eq!(unstable.connected(1, Some(&*addresses[5]), true, 59_999), Some(expected));
        assert_eq!(unstable.connected(1, None, true, 59_999), None, "counted anew");
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_connects() {
        let mut unstable = Unstable::new(LIMITS);
        let mut detections = 0;
        for n in 0..(ENTRIES_MAX as u64 * 3) {
            unstable.connected(n + 10, None, false, 0);
            if n % 30_000 == 0 {
                detections += usize::from(unstable.connected(1, None, false, 0).is_some());
            }
        }
        assert!(unstable.counts.young.len() + unstable.counts.old.len() <= ENTRIES_MAX);
        for _ in 0..5 {
            detections += usize::from(unstable.connected(1, None, false, 0).is_some());
        }
        assert_eq!(detections, 1, "ten times among 300,000 others, and five times more");
    }
}
