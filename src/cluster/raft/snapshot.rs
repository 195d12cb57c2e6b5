//! Snapshots: the stored state itself is the snapshot, so building one is flushing it.
//!
//! A peer whose log is too far behind is sent the records as they are read from the store, chunk by chunk, while the state goes on. The
//! receiver writes each chunk to its disk, beside the state it has, before it asks for the next by answering (`transfers`). When all are there
//! they are loaded and take the place of its state in one step. A transfer that ends before begins anew.

use std::fmt;
use std::io;
use std::sync::Arc;

use openraft::storage::RaftSnapshotBuilder;
use openraft::type_config::alias::SnapshotOf;
use tokio::sync::mpsc;

use crate::cluster::blocking::blocking;
use crate::plant::{Plant, is_planted};
use crate::replica::state::Record;
use crate::storage::state::Incoming;
use crate::storage::{StateStore, StorageError};

use super::type_config::{SnapshotMeta, TypeConfig};

/// Bytes of records one chunk holds (a single larger record goes alone).
///
/// Heartbeats travel on the same link behind it: on 20 Mbit/s for a tenth of a second.
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks read ahead of what is sent.
const CHUNKS_AHEAD: usize = 2;

/// A chunk, or `None` behind the last: a reader that just ends has failed.
type Part = io::Result<Option<Vec<Record>>>;

/// A whole state on its way between peers.
#[derive(Debug)]
pub enum SnapshotData {
    /// openraft asks only for what the snapshot covers.
    MetaOnly,
    /// All of it is written beside the present state.
    Received(Received),
    /// Being read, to be sent.
    Reading(ChunkReader),
}

/// What `transfers` received.
pub struct Received(Box<dyn Incoming>);

impl Received {
    pub fn new(incoming: Box<dyn Incoming>) -> Self {
        Self(incoming)
    }

    pub fn incoming(&mut self) -> &mut dyn Incoming {
        &mut *self.0
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Received")
    }
}

/// The records of a state as of one moment.
#[derive(Debug)]
pub struct ChunkReader {
    first: Option<Part>,
    rest: mpsc::Receiver<Part>,
}

impl ChunkReader {
    /// Begins to read; what is written to the store after this returned is not seen.
    pub async fn open(store: Arc<dyn StateStore>) -> Self {
        let (parts, mut rest) = mpsc::channel(CHUNKS_AHEAD);
        #[cfg(any(test, feature = "sim"))]
        if crate::cluster::simulated::is_on() {
            return Self::read_at_once(store.as_ref());
        }
        tokio::task::spawn_blocking(move || {
            let last = match read_chunks(store.as_ref(), |chunk| parts.blocking_send(Ok(Some(chunk))).is_ok()) {
                Ok(()) => Ok(None),
                Err(error) => Err(io::Error::other(error)),
            };
            // A receiver that is gone gave the transfer up.
            let _ = parts.blocking_send(last);
        });
        // With its first part at the latest the reader has its view of the store.
        let first = rest.recv().await;
        Self { first, rest }
    }

    /// A simulated node has no thread to read beside.
    #[cfg(any(test, feature = "sim"))]
    fn read_at_once(store: &dyn StateStore) -> Self {
        let mut chunks = std::collections::VecDeque::new();
        let read = read_chunks(store, |chunk| {
            chunks.push_back(Ok(Some(chunk)));
            true
        });
        chunks.push_back(read.map(|()| None).map_err(io::Error::other));
        let first = chunks.pop_front();
        let (parts, rest) = mpsc::channel(chunks.len().max(1));
        chunks.into_iter().for_each(|part| drop(parts.try_send(part)));
        Self { first, rest }
    }

    /// The next chunk, `None` behind the last.
    pub async fn next(&mut self) -> Part {
        let part = match self.first.take() {
            Some(first) => Some(first),
            None => self.rest.recv().await,
        };
        part.unwrap_or_else(|| Err(io::Error::other("the reader of the snapshot ended early")))
    }
}

/// Reads all records in chunks until `take` wants no more.
fn read_chunks(store: &dyn StateStore, mut take: impl FnMut(Vec<Record>) -> bool) -> Result<(), StorageError> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    store.load(&mut |key, value| {
        if is_planted(Plant::SnapshotWithoutQueues) && crate::replica::is_queue_entry(key) {
            return Ok(());
        }
        let size = key.len() + value.len() + 16;
        if !chunk.is_empty() && bytes + size > CHUNK_BYTES {
            bytes = 0;
            if !take(std::mem::take(&mut chunk)) {
                return Err(StorageError::Engine("the transfer was given up".to_owned()));
            }
        }
        bytes += size;
        chunk.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    if !chunk.is_empty() {
        take(chunk);
    }
    Ok(())
}

/// Makes what was applied until it was made durable, so that the log behind it may go.
pub struct SnapshotBuilder {
    pub store: Arc<dyn StateStore>,
    /// What was applied by then, and written to the store; once.
    pub written: Option<io::Result<SnapshotMeta>>,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotData>, io::Error> {
        let meta = self.written.take().unwrap_or_else(|| Err(io::Error::other("a snapshot is built once")))?;
        let store = Arc::clone(&self.store);
        blocking(move || store.flush()).await?.map_err(io::Error::other)?;
        Ok(openraft::Snapshot { meta, snapshot: SnapshotData::MetaOnly })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Mode, Storage};

    fn store(records: &[(u8, usize)]) -> Arc<dyn StateStore> {
        let storage = Storage::open(std::path::Path::new(""), Mode::InMemory, "a", 1, 0).unwrap();
        let store = storage.state(0).unwrap();
        let changes = records.iter().map(|(key, size)| (vec![*key], Some(vec![0; *size]))).collect();
        store.write(changes, Vec::new()).unwrap();
        store
    }

    async fn chunks(reader: &mut ChunkReader) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        while let Some(chunk) = reader.next().await.unwrap() {
            keys.push(chunk.iter().map(|(key, _)| key[0]).collect());
        }
        keys
    }

    #[tokio::test]
    async fn chunks_are_bounded_and_a_larger_record_goes_alone() {
        let store = store(&[(1, 1000), (2, CHUNK_BYTES * 2), (3, 1000), (4, 1000)]);
        let mut reader = ChunkReader::open(store).await;
        assert_eq!(chunks(&mut reader).await, [vec![1], vec![2], vec![3, 4]]);
        assert!(reader.next().await.is_err());
    }

    #[tokio::test]
    async fn what_is_written_later_is_not_seen() {
        let records: Vec<_> = (0..20).map(|key| (key, CHUNK_BYTES / 2)).collect();
        let store = store(&records);
        let mut reader = ChunkReader::open(Arc::clone(&store)).await;
        store.write(vec![(vec![19], None), (vec![20], Some(vec![0]))], Vec::new()).unwrap();
        assert_eq!(chunks(&mut reader).await.concat(), (0..20).collect::<Vec<u8>>());
    }

    #[tokio::test]
    async fn an_empty_state_has_no_chunks() {
        let mut reader = ChunkReader::open(store(&[])).await;
        assert_eq!(chunks(&mut reader).await.len(), 0);
    }
}
