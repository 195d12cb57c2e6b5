//! The log of one group: its interface. Indexes are contiguous between purged and last.

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::error::StorageError;

/// Called when what was appended is flushed to the disk (or at once `in-memory`). It must not block: a truncate, purge or vote from within
/// it would wait for the very thread that calls it.
pub type Flushed = Box<dyn FnOnce(Result<(), StorageError>) + Send>;

/// A handle on one group's log; cheap to clone. One committer for all groups collects what they append and flushes once.
///
/// `append` does not wait for the disk. `truncate_from`, `purge_through` and `save_vote` **block** until they are durable; async callers use
/// `spawn_blocking`. All four take effect in the order of the calls. Reads of recent entries come from memory, older ones may touch the disk.
pub trait LogStore: Send + Sync {
    /// Appends entries (index, bytes), in order, contiguous; readable on return, `flushed` is called when durable. Entries that do not
    /// follow the last one are refused.
    fn append(&self, entries: Vec<(u64, Bytes)>, flushed: Flushed) -> Result<(), StorageError>;
    /// Removes entries with index >= `from`, durable on return.
    fn truncate_from(&self, from: u64) -> Result<(), StorageError>;
    /// Removes entries with index <= `through`, which may lie behind the last; the next append is then `through + 1`. `marker` (opaque) is
    /// kept as `purged`. Durable on return. Purging less than before changes nothing.
    fn purge_through(&self, through: u64, marker: Bytes) -> Result<(), StorageError>;
    /// The entries of `range` there are. One missing between purged and last is `Damaged`.
    fn read(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, Bytes)>, StorageError>;
    /// Index and bytes of the last entry.
    fn last(&self) -> Result<Option<(u64, Bytes)>, StorageError>;
    fn purged(&self) -> Result<Option<Bytes>, StorageError>;
    /// Durable on return.
    fn save_vote(&self, vote: Bytes) -> Result<(), StorageError>;
    fn vote(&self) -> Result<Option<Bytes>, StorageError>;
}
