//! The newest entries of a log, decoded: an entry is read once for each follower and once to be applied, soon after it was appended, and
//! leaves when that is done.

use std::collections::VecDeque;

use openraft::entry::RaftEntry;

use super::type_config::Entry;

/// Bytes of encoded entries one group keeps for followers that are behind; decoded they take about three times as much.
const CACHE_BYTES_MAX: usize = 512 * 1024;

/// A contiguous run of entries up to the last of the log.
#[derive(Default)]
pub struct EntryCache {
    entries: VecDeque<(Entry, usize)>,
    bytes: usize,
}

impl EntryCache {
    /// Adds the entry that was appended to the log.
    pub fn push(&mut self, entry: Entry, size_bytes: usize) {
        if self.entries.back().is_some_and(|(last, _)| last.index() + 1 != entry.index()) {
            self.clear();
        }
        self.bytes += size_bytes;
        self.entries.push_back((entry, size_bytes));
        while self.bytes > CACHE_BYTES_MAX && self.entries.len() > 1 {
            self.drop_front();
        }
    }

    /// Forgets entries with index >= `from`.
    pub fn truncate_from(&mut self, from: u64) {
        while self.entries.back().is_some_and(|(entry, _)| entry.index() >= from) {
            if let Some((_, size)) = self.entries.pop_back() {
                self.bytes -= size;
            }
        }
    }

    /// Forgets entries with index <= `through`.
    pub fn purge_through(&mut self, through: u64) {
        while self.entries.front().is_some_and(|(entry, _)| entry.index() <= through) {
            self.drop_front();
        }
    }

    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// The entries `start..end` (at most `bytes_max` of them, at least one) if all from `start` on are here.
    pub fn get(&self, start: u64, end: u64, bytes_max: usize) -> Option<Vec<Entry>> {
        let first = self.entries.front()?.0.index();
        if start < first || start >= end {
            return None;
        }
        let skip = usize::try_from(start - first).ok()?;
        if skip >= self.entries.len() {
            return None;
        }
        let mut bytes = 0;
        let mut found = Vec::new();
        for (entry, size) in self.entries.iter().skip(skip) {
            bytes += size;
            if entry.index() >= end || (!found.is_empty() && bytes > bytes_max) {
                break;
            }
            found.push(entry.clone());
        }
        Some(found)
    }

    fn drop_front(&mut self) {
        if let Some((_, size)) = self.entries.pop_front() {
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::raft::type_config::{LogId, TypeConfig};
    use openraft::type_config::alias::LeaderIdOf;
    use openraft::vote::RaftLeaderId;

    fn entry(index: u64) -> Entry {
        let leader = LeaderIdOf::<TypeConfig>::new(1, 1);
        Entry::new_blank(LogId::new(leader.to_committed(), index))
    }

    fn indexes(found: Option<Vec<Entry>>) -> Option<Vec<u64>> {
        found.map(|entries| entries.iter().map(RaftEntry::index).collect())
    }

    #[test]
    fn only_a_run_that_holds_the_start_is_answered() {
        let mut cache = EntryCache::default();
        (5..10).for_each(|i| cache.push(entry(i), 10));
        assert_eq!(indexes(cache.get(4, 6, 1000)), None);
        assert_eq!(indexes(cache.get(6, 8, 1000)), Some(vec![6, 7]));
        assert_eq!(indexes(cache.get(6, 10, 25)), Some(vec![6, 7]));
        assert_eq!(indexes(cache.get(6, 10, 1)), Some(vec![6]));
        assert_eq!(indexes(cache.get(10, 11, 1000)), None);
    }

    #[test]
    fn truncation_purge_and_gaps_keep_the_run_contiguous() {
        let mut cache = EntryCache::default();
        (5..10).for_each(|i| cache.push(entry(i), 10));
        cache.truncate_from(8);
        cache.purge_through(5);
        assert_eq!(indexes(cache.get(6, 100, 1000)), Some(vec![6, 7]));
        cache.push(entry(20), 10);
        assert_eq!(indexes(cache.get(6, 8, 1000)), None);
        assert_eq!(indexes(cache.get(20, 21, 1000)), Some(vec![20]));
        assert_eq!(cache.bytes, 10);
    }

    #[test]
    fn the_bytes_kept_are_bounded() {
        let mut cache = EntryCache::default();
        (0..10).for_each(|i| cache.push(entry(i), CACHE_BYTES_MAX / 4));
        assert_eq!(cache.entries.len(), 4);
    }
}
