//! The stored state of one group: its interface.

use std::sync::Arc;

use super::error::StorageError;

/// Changed records: key and new value, `None` = deleted.
pub type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Single records of a state.
pub trait Reads: Send + Sync {
    /// The value of a record; `None` where there is none. What was written when it is called is seen. A record that cannot be read stops the
    /// storage, as a failed write does: whoever needs it cannot go on without.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
    /// Visits the records from `first` to `last`, both included, in key order until `visit` returns false; else as `get`. `visit` must not
    /// come back in here. Keys longer than the engine takes keep their order only among those that differ in their last 8 bytes.
    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError>;
}

/// A handle on one group's state. Everything may block on the disk; `write` does so only when the engine cannot keep up. One writer a group.
///
/// Keys are 1 to 1,048,576 bytes and do not begin with eight 0xFF bytes. A key changed twice in one `write` ends with the last change.
pub trait StateStore: Reads {
    /// Writes changed records and `applied` (opaque: log id and membership) in one atomic batch. Not flushed yet.
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError>;
    /// The last written `applied`. After a crash it may be older than what was written, never older than what was flushed. Should it ever be
    /// behind the purged end of the group's log, the state must come from the peers.
    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError>;
    /// Visits all records in key order, as of the time of the call.
    #[expect(clippy::type_complexity, reason = "a name for the visitor would say less than its type")]
    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError>;
    /// Begins to receive a state that is to take the place of this one (a snapshot). Until it does, this one is read and written as before.
    fn receive(&self) -> Result<Box<dyn Incoming>, StorageError>;
    /// Flushes to the disk everything written so far: the log may be purged behind the `applied` read before this call.
    fn flush(&self) -> Result<(), StorageError>;
    /// Gives back the room of what was deleted, where that is a good part of what is there. Rewrites the rest, so it may take long; for quiet
    /// moments.
    fn compact(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

/// A whole state on its way into the place of a group's present one. Memory holds what one `write` brings. Everything blocks on the disk, the
/// drop too: it deletes what did not become current, or what was current before.
pub trait Incoming: Send {
    /// Writes the next records, in any order; not flushed.
    fn write(&mut self, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), StorageError>;
    /// Reads of what was written, until it is made current.
    fn reads(&self) -> Arc<dyn Reads>;
    /// Visits all records written, in key order.
    #[expect(clippy::type_complexity, reason = "a name for the visitor would say less than its type")]
    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError>;
    /// Flushes what was written, so that little is left for `make_current`.
    fn flush(&self) -> Result<(), StorageError>;
    /// Makes it the group's state, with `applied`; durable on return. Interrupted anywhere it is as if it had not begun.
    fn make_current(&mut self, applied: Vec<u8>) -> Result<(), StorageError>;
}
