//! The stored state of one group: its interface.

use super::error::StorageError;

/// Changed records: key and new value, `None` = deleted.
pub type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A handle on one group's state. Everything may block on the disk; `write` does so only when the engine cannot keep up. One writer a group.
///
/// Keys are 1 to 1,048,576 bytes and do not begin with eight 0xFF bytes. A key changed twice in one `write` ends with the last change.
pub trait StateStore: Send + Sync {
    /// Writes changed records and `applied` (opaque: log id and membership) in one atomic batch. Not flushed yet.
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError>;
    /// The last written `applied`. After a crash it may be older than what was written, never older than what was flushed. Should it ever be
    /// behind the purged end of the group's log, the state must come from the peers.
    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError>;
    /// Visits all records in key order, as of the time of the call.
    #[expect(clippy::type_complexity, reason = "a name for the visitor would say less than its type")]
    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError>;
    /// Replaces everything (an installed snapshot), durable on return. Interrupted anywhere it is as if it had not begun.
    fn replace(&self, records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, applied: Vec<u8>) -> Result<(), StorageError>;
    /// Flushes to the disk everything written so far: the log may be purged behind the `applied` read before this call.
    fn flush(&self) -> Result<(), StorageError>;
    /// Gives back the room of what was deleted, where that is a good part of what is there. Rewrites the rest, so it may take long; for quiet
    /// moments.
    fn compact(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
