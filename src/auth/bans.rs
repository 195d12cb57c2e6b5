//! Who is not let in for a while: client ids and addresses, until a time of the wall clock.

use std::collections::{BTreeSet, HashMap};

use bytestring::ByteString;

use super::unstable::Cause;

/// Bans at a time, and bytes of their names; of more, those that end first are forgotten.
pub const BANS_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// Whom a ban keeps out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    ClientId(ByteString),
    Address(ByteString),
}

/// Since when, until when and why; milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    pub since_ms: u64,
    pub until_ms: u64,
    pub cause: Cause,
}

/// The bans of a node.
#[derive(Debug, Default)]
pub struct Bans {
    client_ids: HashMap<ByteString, Ban>,
    addresses: HashMap<ByteString, Ban>,
    by_end: BTreeSet<(u64, Whom)>,
    bytes: usize,
}

impl Bans {
    /// Keeps somebody out; a ban that ends later stays.
    pub fn add(&mut self, whom: Whom, ban: Ban) {
        self.forget_ended(ban.since_ms);
        if self.get(&whom).is_some_and(|known| known.until_ms >= ban.until_ms) {
            return;
        }
        self.remove(&whom);
        self.bytes += name(&whom).len();
        self.by_end.insert((ban.until_ms, whom.clone()));
        match whom {
            Whom::ClientId(name) => self.client_ids.insert(name, ban),
            Whom::Address(name) => self.addresses.insert(name, ban),
        };
        while self.by_end.len() > BANS_MAX || self.bytes > BYTES_MAX {
            let Some((_, first)) = self.by_end.first().cloned() else { break };
            self.remove(&first);
        }
    }

    /// The ban that keeps a client out, if one does; of two, the one that ends later.
    pub fn find(&self, client_id: &str, address: Option<&str>, now_ms: u64) -> Option<Ban> {
        let by_address = address.and_then(|address| self.addresses.get(address));
        let found = [self.client_ids.get(client_id), by_address];
        found.into_iter().flatten().copied().filter(|ban| ban.until_ms > now_ms).max_by_key(|ban| ban.until_ms)
    }

    /// Lets somebody in again; whether anybody kept it out.
    pub fn remove(&mut self, whom: &Whom) -> bool {
        let removed = match whom {
            Whom::ClientId(name) => self.client_ids.remove(name),
            Whom::Address(name) => self.addresses.remove(name),
        };
        let Some(removed) = removed else { return false };
        self.by_end.remove(&(removed.until_ms, whom.clone()));
        self.bytes -= name(whom).len();
        true
    }

    /// All that have not ended, those that end first in front.
    pub fn list(&self, now_ms: u64) -> Vec<(Whom, Ban)> {
        let running = self.by_end.iter().filter(|(until_ms, _)| *until_ms > now_ms);
        running.filter_map(|(_, whom)| Some((whom.clone(), *self.get(whom)?))).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.by_end.is_empty()
    }

    /// How many have not ended.
    pub fn len(&self, now_ms: u64) -> usize {
        self.by_end.iter().filter(|(until_ms, _)| *until_ms > now_ms).count()
    }

    fn get(&self, whom: &Whom) -> Option<&Ban> {
        match whom {
            Whom::ClientId(name) => self.client_ids.get(name),
            Whom::Address(name) => self.addresses.get(name),
        }
    }

    fn forget_ended(&mut self, now_ms: u64) {
        while let Some((until_ms, whom)) = self.by_end.first().cloned()
            && until_ms <= now_ms
        {
            self.remove(&whom);
        }
    }
}

fn name(whom: &Whom) -> &ByteString {
    match whom {
        Whom::ClientId(name) | Whom::Address(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(id: &str) -> Whom {
        Whom::ClientId(id.into())
    }

    fn ban(since_ms: u64, until_ms: u64) -> Ban {
        Ban { since_ms, until_ms, cause: Cause::Flapping }
    }

    #[test]
    fn a_ban_keeps_out_who_it_names_until_it_ends() {
        let mut bans = Bans::default();
        bans.add(client("c"), ban(0, 1_000));
        bans.add(Whom::Address("192.0.2.1".into()), ban(0, 2_000));
        let table = [
            ("c", None, 999, Some(1_000)),
            ("c", None, 1_000, None),
            ("c", Some("192.0.2.1"), 0, Some(2_000)),
            ("d", Some("192.0.2.1"), 1_999, Some(2_000)),
            ("d", Some("192.0.2.1"), 2_000, None),
            ("d", Some("192.0.2.2"), 0, None),
            ("192.0.2.1", Some("c"), 0, None),
        ];
        for (client_id, address, now_ms, expected) in table {
            assert_eq!(
                bans.find(client_id, address, now_ms).map(|ban| ban.until_ms),
                expected,
                "{client_id} {address:?} {now_ms}"
            );
        }
        let names = |bans: &Bans, now_ms| bans.list(now_ms).into_iter().map(|(whom, _)| whom).collect::<Vec<_>>();
        assert_eq!(names(&bans, 0), [client("c"), Whom::Address("192.0.2.1".into())]);
        assert_eq!((names(&bans, 1_500).len(), bans.len(1_500), bans.len(2_000)), (1, 1, 0));
        assert!(bans.remove(&client("c")) && !bans.remove(&client("c")) && !bans.remove(&Whom::Address("c".into())));
        assert_eq!(bans.find("c", None, 0), None);
    }

    #[test]
    fn a_ban_is_prolonged_and_never_cut() {
        let mut bans = Bans::default();
        for (until_ms, expected) in [(1_000, 1_000), (500, 1_000), (3_000, 3_000)] {
            bans.add(client("c"), ban(0, until_ms));
            assert_eq!((bans.find("c", None, 0).map(|ban| ban.until_ms), bans.list(0).len()), (Some(expected), 1));
        }
    }

    #[test]
    fn bans_are_bounded_in_number_and_in_bytes() {
        let mut bans = Bans::default();
        for n in 0..(BANS_MAX as u64 + 10) {
            bans.add(client(&n.to_string()), ban(0, 1_000 + n));
        }
        let until = |client_id: &str| bans.find(client_id, None, 0).map(|ban| ban.until_ms);
        assert_eq!((bans.len(0), until("9"), until("10")), (BANS_MAX, None, Some(1_010)));
        bans.add(client("late"), ban(20_000, 30_000));
        assert_eq!(bans.by_end.len(), 1, "those that ended are forgotten");
        for n in 0..500 {
            bans.add(client(&format!("{n}{}", "x".repeat(60_000))), ban(20_000, 40_000 + n));
        }
        assert!(bans.bytes <= BYTES_MAX && bans.len(20_000) > 100, "{} {}", bans.bytes, bans.len(20_000));
        assert_eq!(bans.bytes, bans.by_end.iter().map(|(_, whom)| name(whom).len()).sum::<usize>());
    }
}
