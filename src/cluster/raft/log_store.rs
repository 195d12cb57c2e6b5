//! openraft's log storage over `storage::LogStore`.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogState, OptionalSend};
use parking_lot::Mutex;

use crate::cluster::blocking::blocking;
use crate::storage::LogStore;

use super::codec::{decode, encode};
use super::entry_cache::EntryCache;
use super::type_config::{Entry, LogId, TypeConfig, Vote};

/// Bytes of entries in one replication request (at least one entry goes).
const APPEND_BYTES_MAX: usize = 512 * 1024;
/// Entries read from the store at a time: few at first, for each may be large.
const READ_ENTRIES_MIN: u64 = 4;
const READ_ENTRIES_MAX: u64 = 64;

/// One group's log; cheap to clone.
#[derive(Clone)]
pub struct RaftLog {
    store: Arc<dyn LogStore>,
    cache: Arc<Mutex<EntryCache>>,
    appended_bytes: Arc<AtomicU64>,
}

impl RaftLog {
    pub fn new(store: Arc<dyn LogStore>) -> Self {
        Self { store, cache: Arc::default(), appended_bytes: Arc::default() }
    }

    /// Up to where entries were removed.
    pub fn purged(&self) -> io::Result<Option<LogId>> {
        self.store.purged().map_err(io::Error::other)?.map(|bytes| decode(&bytes)).transpose()
    }

    /// Bytes appended since the process started; a ticker takes a snapshot when they grew much.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
    }

    /// Forgets the decoded entries up to this one; they can still be read from the store.
    pub fn release(&self, through: u64) {
        self.cache.lock().purge_through(through);
    }

    /// Entries `start..end`, fewer where they are many bytes, at least one if it exists.
    fn read_limited(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        if let Some(found) = self.cache.lock().get(start, end, bytes_max) {
            return Ok(found);
        }
        let last = (end - 1).min(start.saturating_add(READ_ENTRIES_MAX - 1));
        let (mut bytes, mut found) = (0, Vec::new());
        let (mut next, mut step) = (start, READ_ENTRIES_MIN);
        while next <= last {
            let to = last.min(next + step - 1);
            let read = self.store.read(next..=to).map_err(io::Error::other)?;
            let is_short = (read.len() as u64) < to - next + 1;
            for (index, encoded) in read {
                bytes += encoded.len();
                if !found.is_empty() && bytes > bytes_max {
                    return Ok(found);
                }
                found.push(decode_entry(index, &encoded)?);
            }
            if is_short {
                break;
            }
            next = to + 1;
            step *= 2;
        }
        Ok(found)
    }

    /// Runs what waits for the disk off the async threads.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn LogStore) -> Result<R, crate::storage::StorageError> + Send + 'static,
    ) -> io::Result<R> {
        let store = Arc::clone(&self.store);
        blocking(move || work(store.as_ref())).await?.map_err(io::Error::other)
    }
}

impl RaftLogReader<TypeConfig> for RaftLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let (mut next, end) = bounds(&range);
        let mut entries = Vec::new();
        while next < end {
            let mut more = self.read_limited(next, end, usize::MAX)?;
            let Some(last) = more.last() else { break };
            next = last.index() + 1;
            entries.append(&mut more);
        }
        Ok(entries)
    }

    /// Read as they are applied: a replica that catches up must not hold all it missed in memory.
    async fn entries_stream<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend {
        let (start, end) = bounds(&range);
        let reading = Reading { log: self.clone(), next: start, end, read: VecDeque::new() };
        stream::unfold(reading, |mut reading| {
            let next = reading.next_entry();
            std::future::ready(next.map(|next| (next, reading)))
        })
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read_limited(start, end, APPEND_BYTES_MAX)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.store.vote().map_err(io::Error::other)?.map(|bytes| decode(&bytes)).transpose()
    }
}

impl RaftLogStorage<TypeConfig> for RaftLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let last_purged_log_id = self.purged()?;
        let last = self.store.last().map_err(io::Error::other)?;
        let last_log_id = match last {
            Some((index, bytes)) => Some(decode_entry(index, &bytes)?.log_id()),
            None => last_purged_log_id,
        };
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let bytes = Bytes::from(encode(vote)?);
        self.blocking(move |store| store.save_vote(bytes)).await
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut encoded = Vec::new();
        let mut decoded = Vec::new();
        for entry in entries {
            let bytes = Bytes::from(encode(&entry)?);
            decoded.push((entry, bytes.len()));
            encoded.push((decoded[decoded.len() - 1].0.index(), bytes));
        }
        let flushed = Box::new(move |result: Result<(), crate::storage::StorageError>| {
            callback.io_completed(result.map_err(io::Error::other));
        });
        self.store.append(encoded, flushed).map_err(io::Error::other)?;
        let mut cache = self.cache.lock();
        for (entry, size) in decoded {
            self.appended_bytes.fetch_add(size as u64, Ordering::Relaxed);
            cache.push(entry, size);
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let from = last_log_id.map_or(0, |id| id.index() + 1);
        self.cache.lock().truncate_from(from);
        self.blocking(move |store| store.truncate_from(from)).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        let through = log_id.index();
        self.cache.lock().purge_through(through);
        let marker = Bytes::from(encode(&log_id)?);
        self.blocking(move |store| store.purge_through(through, marker)).await
    }
}

/// Entries being read bit by bit.
struct Reading {
    log: RaftLog,
    next: u64,
    end: u64,
    read: VecDeque<Entry>,
}

impl Reading {
    fn next_entry(&mut self) -> Option<io::Result<Entry>> {
        if self.read.is_empty() && self.next < self.end {
            match self.log.read_limited(self.next, self.end, APPEND_BYTES_MAX) {
                Ok(entries) => self.read = entries.into(),
                Err(error) => {
                    self.end = self.next;
                    return Some(Err(error));
                }
            }
        }
        let entry = self.read.pop_front()?;
        self.next = entry.index() + 1;
        Some(Ok(entry))
    }
}

/// The first index and the one behind the last.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start + 1,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end + 1,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end)
}

fn decode_entry(index: u64, bytes: &[u8]) -> io::Result<Entry> {
    let entry: Entry = decode(bytes)?;
    if entry.index() != index {
        let what = format!("log entry {index} says it is {}", entry.index());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use openraft::type_config::alias::LeaderIdOf;
    use openraft::vote::RaftLeaderId;

    use super::*;
    use crate::storage::{Mode, Storage};

    fn entry(index: u64) -> Entry {
        let leader = LeaderIdOf::<TypeConfig>::new(1, 1);
        Entry::new_blank(LogId::new(leader.to_committed(), index))
    }

    async fn log_of(count: u64) -> RaftLog {
        let storage = Storage::open(std::path::Path::new(""), Mode::InMemory, "a", 1, 0).unwrap();
        let mut log = RaftLog::new(storage.log(0).unwrap());
        log.append((1..=count).map(entry), IOFlushed::noop()).await.unwrap();
        log
    }

    async fn streamed(log: &mut RaftLog, start: u64, end: u64) -> Vec<u64> {
        let entries = log.entries_stream(start..end).await;
        entries.map(|entry| entry.unwrap().index()).collect().await
    }

    #[tokio::test]
    async fn entries_are_read_from_the_cache_and_from_the_store_alike() {
        let mut log = log_of(200).await;
        assert_eq!(streamed(&mut log, 10, 20).await, (10..20).collect::<Vec<_>>());
        log.cache.lock().clear();
        assert_eq!(streamed(&mut log, 1, 201).await, (1..201).collect::<Vec<_>>());
        assert_eq!(log.try_get_log_entries(1..=200).await.unwrap().len(), 200);
        assert_eq!(streamed(&mut log, 201, 201).await, Vec::<u64>::new());
    }

    #[tokio::test]
    async fn the_state_of_the_log_outlives_a_purge_of_everything() {
        let mut log = log_of(10).await;
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(entry(10).log_id()));
        log.truncate_after(Some(entry(8).log_id())).await.unwrap();
        assert_eq!(log.get_log_state().await.unwrap().last_log_id, Some(entry(8).log_id()));
        log.purge(entry(8).log_id()).await.unwrap();
        let state = log.get_log_state().await.unwrap();
        assert_eq!(state.last_log_id, Some(entry(8).log_id()));
        assert_eq!(state.last_purged_log_id, Some(entry(8).log_id()));
        assert_eq!(streamed(&mut log, 9, 9).await, Vec::<u64>::new());
    }

    #[tokio::test]
    async fn a_vote_is_read_back() {
        let mut log = log_of(0).await;
        assert_eq!(log.read_vote().await.unwrap(), None);
        let vote = Vote::new(3, 7);
        log.save_vote(&vote).await.unwrap();
        assert_eq!(log.read_vote().await.unwrap(), Some(vote));
    }
}
