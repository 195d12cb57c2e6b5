//! openraft's log storage over `storage::LogStore`.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::{LogState, OptionalSend};
use parking_lot::Mutex;

use crate::storage::LogStore;

use super::codec::{decode, encode};
use super::entry_cache::EntryCache;
use super::type_config::{Entry, LogId, TypeConfig, Vote};

/// Bytes of entries in one replication request (at least one entry goes).
const APPEND_BYTES_MAX: usize = 1024 * 1024;
/// Entries read from the store at a time.
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

    /// Bytes appended since the process started; a ticker takes a snapshot when they grew much.
    pub fn appended_bytes(&self) -> u64 {
        self.appended_bytes.load(Ordering::Relaxed)
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
        let mut bytes = 0;
        let mut found = Vec::new();
        for (index, encoded) in self.store.read(start..=last).map_err(io::Error::other)? {
            bytes += encoded.len();
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            found.push(decode_entry(index, &encoded)?);
        }
        Ok(found)
    }

    /// Runs what waits for the disk off the async threads.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn LogStore) -> Result<R, crate::storage::StorageError> + Send + 'static,
    ) -> io::Result<R> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || work(store.as_ref())).await?.map_err(io::Error::other)
    }
}

impl RaftLogReader<TypeConfig> for RaftLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let mut next = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end + 1,
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        let mut entries = Vec::new();
        while next < end {
            let mut more = self.read_limited(next, end, usize::MAX)?;
            let Some(last) = more.last() else { break };
            next = last.index() + 1;
            entries.append(&mut more);
        }
        Ok(entries)
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
        let last_purged_log_id: Option<LogId> =
            self.store.purged().map_err(io::Error::other)?.map(|bytes| decode(&bytes)).transpose()?;
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

fn decode_entry(index: u64, bytes: &[u8]) -> io::Result<Entry> {
    let entry: Entry = decode(bytes)?;
    if entry.index() != index {
        let what = format!("log entry {index} says it is {}", entry.index());
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(entry)
}
