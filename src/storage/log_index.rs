//! What a node keeps in memory of one group's log: where it begins and ends, its vote, and its latest entries.
//!
//! Both modes use it. The bounds are never searched for on the disk again: a scan there would wade through the tombstones of everything
//! purged.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use super::StorageError;

#[derive(Debug, Default)]
pub(super) struct LogIndex {
    /// First entry there is, if it is less than `next`.
    first: u64,
    /// Index of the next append; `None` while nothing was ever appended or purged.
    next: Option<u64>,
    /// The latest entries, up to the last.
    tail: VecDeque<Bytes>,
    tail_bytes: usize,
    /// Entries before this one are on the disk and may leave the tail.
    written: u64,
    /// Grows with each truncation: tells entries of the same index apart.
    epoch: u64,
    pub(super) purged: Option<Bytes>,
    pub(super) vote: Option<Bytes>,
}

impl LogIndex {
    /// A log found on the disk with the entries of `range`.
    pub(super) fn found(range: Range<u64>, purged: Option<Bytes>, vote: Option<Bytes>) -> Self {
        Self { first: range.start, next: Some(range.end), written: range.end, purged, vote, ..Self::default() }
    }

    /// A log without entries and without anything purged.
    pub(super) fn fresh(vote: Option<Bytes>) -> Self {
        Self { vote, ..Self::default() }
    }

    pub(super) fn bounds(&self) -> Range<u64> {
        self.first..self.next.unwrap_or(self.first)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the bytes appended.
    pub(super) fn append(&mut self, entries: &[(u64, Bytes)]) -> Result<usize, StorageError> {
        let Some((first, _)) = entries.first() else { return Ok(0) };
        let next = self.next.unwrap_or(*first);
        for ((index, _), expected) in entries.iter().zip(next..) {
            if *index != expected {
                return Err(StorageError::Engine(format!("append of entry {index} where {expected} is next")));
            }
        }
        if self.next.is_none() {
            (self.first, self.written) = (next, next);
        }
        self.next = Some(next + entries.len() as u64);
        let bytes = entries.iter().map(|(_, entry)| entry.len()).sum();
        self.tail.extend(entries.iter().map(|(_, entry)| entry.clone()));
        self.tail_bytes += bytes;
        Ok(bytes)
    }

    /// Removes entries from `from` on; returns their indexes.
    pub(super) fn truncate_from(&mut self, from: u64) -> Range<u64> {
        let bounds = self.bounds();
        let removed = from.clamp(bounds.start, bounds.end)..bounds.end;
        if removed.is_empty() {
            return removed;
        }
        let tail_from = self.tail_from();
        let keep = usize::try_from(removed.start.saturating_sub(tail_from)).unwrap_or(usize::MAX);
        self.tail_bytes -= self.tail.drain(keep.min(self.tail.len())..).map(|entry| entry.len()).sum::<usize>();
        self.next = Some(removed.start);
        self.written = self.written.min(removed.start);
        self.epoch += 1;
        removed
    }

    /// Removes entries up to `through`; returns their indexes, or `None` if as much was purged before.
    pub(super) fn purge_through(&mut self, through: u64, marker: Bytes) -> Option<Range<u64>> {
        let bounds = self.bounds();
        let end = through.checked_add(1)?;
        if self.purged.is_some() && end <= bounds.start {
            return None;
        }
        let removed = bounds.start..end.clamp(bounds.start, bounds.end);
        let leave = usize::try_from(end.saturating_sub(self.tail_from())).unwrap_or(usize::MAX);
        self.tail_bytes -= self.tail.drain(..leave.min(self.tail.len())).map(|entry| entry.len()).sum::<usize>();
        self.first = end.max(bounds.start);
        self.next = Some(bounds.end.max(end));
        self.written = self.written.max(end);
        self.purged = Some(marker);
        Some(removed)
    }

    /// The entries before `end` are on the disk, if they are of this epoch; the oldest leave the tail until it has at most `tail_bytes_max`.
    pub(super) fn written(&mut self, epoch: u64, end: u64, tail_bytes_max: usize) {
        if epoch == self.epoch {
            self.written = self.written.max(end);
        }
        while self.tail_bytes > tail_bytes_max && self.tail_from() < self.written {
            let Some(entry) = self.tail.pop_front() else { break };
            self.tail_bytes -= entry.len();
        }
    }

    /// The part of `range` that only the disk has, and the entries of the rest.
    pub(super) fn read(&self, range: &RangeInclusive<u64>) -> (Range<u64>, Vec<(u64, Bytes)>) {
        let bounds = self.bounds();
        let from = bounds.start.max(*range.start());
        let to = bounds.end.min(range.end().saturating_add(1)).max(from);
        let tail_from = self.tail_from();
        let in_memory = from.max(tail_from)..to;
        let skip = usize::try_from(in_memory.start - tail_from).unwrap_or(usize::MAX);
        let entries = in_memory.zip(self.tail.iter().skip(skip).cloned()).collect();
        (from..to.min(tail_from).max(from), entries)
    }

    fn tail_from(&self) -> u64 {
        self.bounds().end - self.tail.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(range: Range<u64>) -> Vec<(u64, Bytes)> {
        range.map(|index| (index, Bytes::from(format!("entry {index:04}")))).collect()
    }

    #[test]
    fn entries_follow_each_other_wherever_the_first_one_is() {
        let mut log = LogIndex::default();
        log.append(&entries(5..8)).unwrap();
        assert!(log.append(&entries(7..9)).is_err());
        assert!(log.append(&entries(9..10)).is_err());
        log.append(&entries(8..9)).unwrap();
        assert_eq!(log.bounds(), 5..9);
        assert_eq!(log.read(&(0..=u64::MAX)), (5..5, entries(5..9)));
        assert_eq!(log.read(&(6..=7)).1, entries(6..8));
    }

    #[test]
    fn only_what_is_written_leaves_the_tail() {
        let mut log = LogIndex::default();
        log.append(&entries(0..10)).unwrap();
        log.written(0, 4, 0);
        assert_eq!(log.read(&(0..=20)), (0..4, entries(4..10)));
        log.written(0, 10, 20);
        assert_eq!(log.read(&(0..=20)), (0..8, entries(8..10)));
        assert_eq!(log.read(&(2..=3)), (2..4, vec![]));
    }

    #[test]
    fn a_write_of_entries_truncated_meanwhile_does_not_count_for_their_successors() {
        let mut log = LogIndex::default();
        log.append(&entries(0..10)).unwrap();
        let before = log.epoch();
        assert_eq!(log.truncate_from(5), 5..10);
        log.append(&entries(5..7)).unwrap();
        log.written(before, 10, 0);
        assert_eq!(log.read(&(0..=20)).1.last(), entries(6..7).last());
        log.written(log.epoch(), 7, 0);
        assert_eq!(log.read(&(0..=20)), (0..7, vec![]));
    }

    #[test]
    fn purging_behind_the_last_entry_moves_the_next_one() {
        let mut log = LogIndex::default();
        log.append(&entries(0..3)).unwrap();
        assert_eq!(log.purge_through(9, Bytes::from("m")), Some(0..3));
        assert_eq!(log.bounds(), 10..10);
        assert_eq!(log.purge_through(4, Bytes::from("older")), None);
        assert_eq!(log.purged, Some(Bytes::from("m")));
        log.append(&entries(10..11)).unwrap();
        assert_eq!(log.truncate_from(0), 10..11);
        assert_eq!(log.bounds(), 10..10);
    }
}
