//! The stored state of one group: skeleton of its interface.

use super::error::StorageError;

/// Changed records: key and new value, `None` = deleted.
pub type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A handle on one group's state.
pub trait StateStore: Send + Sync {
    /// Writes changed records and `applied` (opaque: log id and membership) in one atomic batch. Not flushed yet.
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError>;
    /// The last written `applied`.
    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError>;
    /// Visits all records in key order.
    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError>;
    /// Replaces everything (an installed snapshot), durable on return. Interrupted half-way it is as if it had not begun, or
    /// the next start finds the group without state and asks its peers.
    fn replace(&self, records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, applied: Vec<u8>) -> Result<(), StorageError>;
    /// Flushes to the disk everything written so far: the log may be purged behind the `applied` read before this call.
    fn flush(&self) -> Result<(), StorageError>;
}
