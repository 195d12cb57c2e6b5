//! The one thread that writes the Raft logs of all groups.
//!
//! Groups put what they want to write on one list. The committer takes all there is, writes it as one batch, flushes once, and then tells
//! everybody in order; meanwhile the list fills again, and for longer where the processor is short (`pacing`). Later operations on a key replace earlier ones within the batch, for the engine
//! leaves open which of two writes of a key in one batch wins.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fjall::{Database, Keyspace, PersistMode};
use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;

use super::StorageError;
use super::flushed_mark::FlushedMark;
use super::log::Flushed;
use super::log_index::LogIndex;
use super::pacing::Pacing;
use super::record::seal;
use super::stats::Health;

/// Latest entries kept in memory once they are written, shared evenly by the groups, and the most for one of them. Who replicates keeps what is
/// being sent decoded (`cluster::raft`), and the engine has in memory what it wrote last: this is for what comes between.
const TAILS_BYTES_MAX: usize = 1024 * 1024;
const TAIL_BYTES_MAX: usize = 512 * 1024;
/// A purge can be long: keys written in one batch.
const BATCH_KEYS_MAX: usize = 16_384;

/// Keys: `group u16 BE | index u64 BE` for entries; `0xFFFF | kind u8 | group u16 BE` for votes and purge marks; groups stay below 0xFFFF.
pub(super) type Key = SmallVec<[u8; 10]>;

pub(super) fn entry_key(group: u16, index: u64) -> Key {
    group.to_be_bytes().into_iter().chain(index.to_be_bytes()).collect()
}

pub(super) fn vote_key(group: u16) -> Key {
    [0xFF, 0xFF, b'v'].into_iter().chain(group.to_be_bytes()).collect()
}

pub(super) fn purged_key(group: u16) -> Key {
    [0xFF, 0xFF, b'p'].into_iter().chain(group.to_be_bytes()).collect()
}

/// Number of the last batch; written with each, one more each time.
pub(super) const BATCH_NUMBER_KEY: &[u8] = &[0xFF, 0xFF, b'n'];

/// One group, shared by its handles and the committer.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: u16,
    pub(super) index: RwLock<LogIndex>,
}

pub(super) enum Change {
    Append {
        entries: Vec<(u64, Bytes)>,
        epoch: u64,
        flushed: Flushed,
    },
    /// Removes the keys from the last to the first: interrupted, the rest is still contiguous.
    Truncate {
        removed: std::ops::Range<u64>,
        done: Done,
    },
    Purge {
        removed: std::ops::Range<u64>,
        through: u64,
        marker: Bytes,
        done: Done,
    },
    Vote {
        vote: Bytes,
        done: Done,
    },
    /// A batch with its number only.
    Number {
        done: Done,
    },
}

pub(super) type Done = SyncSender<Result<(), StorageError>>;

/// Where a blocked caller waits.
pub(super) fn done() -> (Done, Receiver<Result<(), StorageError>>) {
    sync_channel(1)
}

#[derive(Clone)]
pub(super) struct LogEngine {
    pub(super) db: Database,
    pub(super) keyspace: Keyspace,
}

#[derive(Default)]
struct Pending {
    changes: Vec<(Arc<Group>, Change)>,
    /// When the first of them came.
    since: Option<Instant>,
    stopped: bool,
}

/// What there is to write.
struct Taken {
    changes: Vec<(Arc<Group>, Change)>,
    /// How long the first lay there, where the committer was asleep.
    late: Option<Duration>,
}

/// Shared by the committer and all handles.
pub(super) struct Shared {
    pub(super) dir: PathBuf,
    pub(super) health: Arc<Health>,
    /// `None` after the close: handles that outlive the storage do not keep the database open.
    pub(super) engine: RwLock<Option<LogEngine>>,
    tail_bytes_max: usize,
    pending: Mutex<Pending>,
    wake: Condvar,
    #[cfg(test)]
    pub(super) fail_next_write: std::sync::atomic::AtomicBool,
}

impl Shared {
    pub(super) fn new(dir: PathBuf, groups: usize, health: Arc<Health>, engine: LogEngine) -> Self {
        Self {
            dir,
            health,
            engine: RwLock::new(Some(engine)),
            tail_bytes_max: (TAILS_BYTES_MAX / groups.max(1)).min(TAIL_BYTES_MAX),
            pending: Mutex::default(),
            wake: Condvar::new(),
            #[cfg(test)]
            fail_next_write: false.into(),
        }
    }

    /// Called with the group's lock held, so that the list has the order in which the index changed.
    pub(super) fn submit(&self, group: &Arc<Group>, change: Change) -> Result<(), StorageError> {
        let mut pending = self.pending.lock();
        if pending.stopped {
            return Err(closed());
        }
        if pending.changes.is_empty() {
            pending.since = Some(Instant::now());
        }
        pending.changes.push((group.clone(), change));
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn stop(&self) {
        self.pending.lock().stopped = true;
        self.wake.notify_one();
    }

    pub(super) fn engine(&self) -> Result<LogEngine, StorageError> {
        self.health.check()?;
        self.engine.read().clone().ok_or_else(closed)
    }

    /// All there is; waits for something, `None` if for longer than `patience`. Nothing: stopped.
    fn take(&self, patience: Option<Duration>) -> Option<Taken> {
        let until = patience.map(|patience| Instant::now() + patience);
        let mut pending = self.pending.lock();
        let mut slept = false;
        while pending.changes.is_empty() && !pending.stopped {
            match until {
                None => self.wake.wait(&mut pending),
                Some(until) if self.wake.wait_until(&mut pending, until).timed_out() && pending.changes.is_empty() => {
                    return None;
                }
                Some(_) => {}
            }
            slept = true;
        }
        let since = pending.since.take().filter(|_| slept);
        Some(Taken { changes: std::mem::take(&mut pending.changes), late: since.map(|since| since.elapsed()) })
    }
}

pub(super) fn closed() -> StorageError {
    StorageError::Poisoned("it was closed".into())
}

/// Body of the thread. Ends when stopped and nothing is pending, and closes the database; returns the number of the last batch.
pub(super) fn run(shared: &Shared, mut batch_number: u64, mut mark: FlushedMark) -> u64 {
    let _close = CloseOnExit(shared);
    let mut pacing = Pacing::default();
    let mut began = Instant::now();
    loop {
        let pause = pacing.interval().saturating_sub(began.elapsed());
        if !pause.is_zero() {
            let asleep = Instant::now();
            #[expect(clippy::disallowed_methods, reason = "time is what it waits for")]
            std::thread::sleep(pause);
            pacing.woken_late(asleep.elapsed().saturating_sub(pause));
        }
        let Some(Taken { changes, late }) = shared.take(mark.sync_due_in()) else {
            if let Err(error) = mark.sync() {
                shared.health.poison(&error);
                return batch_number;
            }
            continue;
        };
        if changes.is_empty() {
            return batch_number;
        }
        late.into_iter().for_each(|late| pacing.woken_late(late));
        began = Instant::now();
        let result = shared.engine().and_then(|engine| write(shared, &engine, &changes, &mut batch_number, &mut mark));
        if let Err(error) = &result {
            shared.health.poison(error);
        }
        let outcome = || result.is_ok().then_some(()).map_or_else(|| shared.health.check(), Ok);
        for (group, change) in changes {
            finish(&group, change, outcome(), shared.tail_bytes_max);
        }
    }
}

/// However the thread ends, nobody waits for it in vain.
struct CloseOnExit<'a>(&'a Shared);

impl Drop for CloseOnExit<'_> {
    fn drop(&mut self) {
        let Self(shared) = self;
        if std::thread::panicking() {
            shared.health.poison(&StorageError::Engine("the thread that writes the logs panicked".into()));
        }
        shared.stop();
        for (group, change) in shared.take(None).map(|taken| taken.changes).unwrap_or_default() {
            finish(&group, change, Err(closed()), shared.tail_bytes_max);
        }
        shared.engine.write().take();
    }
}

fn write(
    shared: &Shared,
    engine: &LogEngine,
    changes: &[(Arc<Group>, Change)],
    batch_number: &mut u64,
    mark: &mut FlushedMark,
) -> Result<(), StorageError> {
    let mut batch = Batch { shared, engine, batch_number, mark, staged: BTreeMap::new() };
    for (group, change) in changes {
        match change {
            Change::Append { entries, .. } => {
                for (index, entry) in entries {
                    batch.put(entry_key(group.id, *index), entry);
                }
            }
            Change::Truncate { removed, .. } => {
                for index in removed.clone().rev() {
                    batch.remove(entry_key(group.id, index))?;
                }
            }
            Change::Purge { removed, through, marker, .. } => {
                // First: should the removals not get to their end, the next start finishes them.
                batch.put(purged_key(group.id), &purged_value(*through, marker));
                for index in removed.clone() {
                    batch.remove(entry_key(group.id, index))?;
                }
            }
            Change::Vote { vote, .. } => batch.put(vote_key(group.id), vote),
            Change::Number { .. } => {}
        }
    }
    batch.flush()
}

fn finish(group: &Group, change: Change, result: Result<(), StorageError>, tail_bytes_max: usize) {
    match change {
        Change::Append { entries, epoch, flushed } => {
            if let (Ok(()), Some((last, _))) = (&result, entries.last()) {
                group.index.write().written(epoch, last + 1, tail_bytes_max);
            }
            if catch_unwind(AssertUnwindSafe(|| flushed(result))).is_err() {
                tracing::error!(group = group.id, "a flush callback panicked");
            }
        }
        // A caller that went away does not need to know.
        Change::Truncate { done, .. } | Change::Purge { done, .. } | Change::Vote { done, .. } | Change::Number { done } => {
            drop(done.send(result));
        }
    }
}

/// Writes staged so far. Each batch is flushed before the next is written; `journal_check` relies on it.
struct Batch<'a> {
    shared: &'a Shared,
    engine: &'a LogEngine,
    batch_number: &'a mut u64,
    mark: &'a mut FlushedMark,
    staged: BTreeMap<Key, Option<Vec<u8>>>,
}

impl Batch<'_> {
    fn put(&mut self, key: Key, value: &[u8]) {
        let value = seal(&key, value);
        self.staged.insert(key, Some(value));
    }

    fn remove(&mut self, key: Key) -> Result<(), StorageError> {
        self.staged.insert(key, None);
        if self.staged.len() >= BATCH_KEYS_MAX { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StorageError> {
        #[cfg(test)]
        if self.shared.fail_next_write.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(StorageError::io(&self.shared.dir, std::io::ErrorKind::StorageFull.into()));
        }
        let next = *self.batch_number + 1;
        let started = Instant::now();
        let LogEngine { db, keyspace } = self.engine;
        let mut batch = db.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in std::mem::take(&mut self.staged) {
            match value {
                Some(value) => batch.insert(keyspace, key.as_slice(), value),
                None => batch.remove(keyspace, key.as_slice()),
            }
        }
        batch.insert(keyspace, BATCH_NUMBER_KEY, seal(BATCH_NUMBER_KEY, &next.to_be_bytes()));
        batch.commit().map_err(|error| StorageError::engine(&self.shared.dir, "write of the log", error))?;
        *self.batch_number = next;
        self.mark.advance(next)?;
        self.shared.health.flushed(started.elapsed());
        Ok(())
    }
}

/// `through u64 BE | marker`.
fn purged_value(through: u64, marker: &[u8]) -> Vec<u8> {
    [&through.to_be_bytes(), marker].concat()
}
