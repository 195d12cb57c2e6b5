//! The log of one group: skeleton of its interface. Indexes are contiguous between purged and last.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::error::StorageError;

/// Called when what was appended is flushed to the disk (or at once `in-memory`).
pub type Flushed = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// A handle on one group's log; cheap to clone. One committer for all groups collects what they append and flushes once.
pub trait LogStore: Send + Sync {
    /// Appends entries (index, bytes), in order, contiguous; readable on return, `flushed` is called when durable.
    fn append(&self, entries: Vec<(u64, Bytes)>, flushed: Flushed) -> Result<(), StorageError>;
    /// Removes entries with index >= `from`, durable on return.
    fn truncate_from(&self, from: u64) -> Result<(), StorageError>;
    /// Removes entries with index <= `through`; `marker` (opaque) is kept as `purged`.
    fn purge_through(&self, through: u64, marker: Bytes) -> Result<(), StorageError>;
    fn read(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, Bytes)>, StorageError>;
    /// Index and bytes of the last entry.
    fn last(&self) -> Result<Option<(u64, Bytes)>, StorageError>;
    fn purged(&self) -> Result<Option<Bytes>, StorageError>;
    /// Durable on return.
    fn save_vote(&self, vote: Bytes) -> Result<(), StorageError>;
    fn vote(&self) -> Result<Option<Bytes>, StorageError>;
}
