//! The logs of all groups in one database, `raft/`, one keyspace.

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use fjall::{Guard, Keyspace, PersistMode};
use parking_lot::{Mutex, RwLock};

use super::StorageError;
use super::committer::{self, BATCH_NUMBER_KEY, Change, Group, LogEngine, Shared, entry_key, purged_key, vote_key};
use super::engine::{self, Sizes};
use super::flushed_mark::FlushedMark;
use super::journal_check::Proof;
use super::log::{Flushed, LogStore};
use super::log_index::LogIndex;
use super::quiet::Quiet;
use super::record::{VALUE_LEN_MAX, unseal};
use super::stats::{self, Health};

/// In the data directory.
pub(super) const DIRECTORY: &str = "raft";
const KEYSPACE: &str = "log";
/// Keys removed in one batch when an interrupted purge is finished.
const LEFTOVER_KEYS_MAX: usize = 16_384;

/// All logs. Dropping or closing it writes what is pending and ends the committer.
pub(super) struct FileLogs {
    shared: Arc<Shared>,
    groups: Vec<Arc<Group>>,
    committer: Mutex<Option<JoinHandle<u64>>>,
    quiet: Mutex<Quiet>,
}

impl FileLogs {
    /// Opens or creates the logs of groups `0..groups` in `data`. `closed_at`: number of the last batch at the last clean close.
    /// `marked`: the last one known to be flushed.
    pub(super) fn open(
        data: &Path,
        groups: u16,
        initialised: bool,
        closed_at: Option<u64>,
        marked: Option<u64>,
        health: Arc<Health>,
    ) -> Result<Self, StorageError> {
        let dir = data.join(DIRECTORY);
        let proof = Proof::Numbered(BATCH_NUMBER_KEY);
        let db = engine::open(&dir, Sizes::RAFT, proof, initialised, closed_at.is_some())?;
        let keyspace = engine::keyspace(&db, &dir, KEYSPACE, Sizes::RAFT, !initialised)?;
        let engine = LogEngine { db, keyspace };
        let batch_number = match get(&engine.keyspace, &dir, BATCH_NUMBER_KEY, "batch number")? {
            None => 0,
            Some(number) => u64_in(&dir, "batch number", &number)?.0,
        };
        if let Some(flushed) = closed_at.max(marked).filter(|flushed| *flushed > batch_number) {
            let what = format!("the end of the log is missing: it was flushed up to batch {flushed}");
            return Err(StorageError::damaged(&dir, format!("batch {batch_number}"), what));
        }
        let mark = FlushedMark::create(data, batch_number)?;
        let groups = (0..groups)
            .map(|id| Ok(Arc::new(Group { id, index: RwLock::new(find(&engine, &dir, id)?) })))
            .collect::<Result<Vec<_>, StorageError>>()?;
        let shared = Arc::new(Shared::new(dir.clone(), groups.len(), health, engine));
        let committer = {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("raft-log".into());
            thread.spawn(move || committer::run(&shared, batch_number, mark)).map_err(|error| StorageError::io(&dir, error))?
        };
        Ok(Self { shared, groups, committer: Mutex::new(Some(committer)), quiet: Mutex::default() })
    }

    /// Index of the first entry of a group and of the last.
    pub(super) fn bounds(&self, id: u16) -> Option<(u64, u64)> {
        let bounds = self.groups.get(usize::from(id))?.index.read().bounds();
        Some((bounds.start, bounds.last()?))
    }

    pub(super) fn group(&self, id: u16) -> Option<Arc<dyn LogStore>> {
        let group = self.groups.get(usize::from(id))?.clone();
        Some(Arc::new(FileLog { shared: self.shared.clone(), group }))
    }

    pub(super) fn table_bytes(&self) -> u64 {
        self.shared.engine().map_or(0, |engine| engine.keyspace.disk_space())
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        stats::disk_bytes(&self.shared.dir)
    }

    /// Gives back the room of purged entries.
    pub(super) fn compact(&self) -> Result<(), StorageError> {
        let failed = |error| StorageError::engine(&self.shared.dir, "compaction", error);
        let keyspace = self.shared.engine()?.keyspace;
        engine::compact(&keyspace).map_err(failed)?;
        self.forget_replaced(&keyspace)
    }

    /// Writes out what is in memory after a load, once it ended. To be called at regular times.
    pub(super) fn rest(&self) -> Result<(), StorageError> {
        let engine = self.shared.engine()?;
        if !self.quiet.lock().look(engine.db.write_buffer_size()) {
            return Ok(());
        }
        let written_out = engine::write_out(std::iter::once(&engine.keyspace));
        written_out.map_err(|error| StorageError::engine(&self.shared.dir, "memtables", error))?;
        self.forget_replaced(&engine.keyspace)
    }

    #[cfg(test)]
    pub(super) fn memtable_bytes(&self) -> u64 {
        self.shared.engine().map_or(0, |engine| engine::memtable_bytes(&engine.keyspace))
    }

    fn forget_replaced(&self, keyspace: &Keyspace) -> Result<(), StorageError> {
        // Something newer than what was replaced, in the one sequence of batches.
        let Some(group) = self.groups.first() else { return Ok(()) };
        let (done, wait) = committer::done();
        self.shared.submit(group, Change::Number { done })?;
        wait.recv().unwrap_or_else(|_| Err(committer::closed()))?;
        engine::forget_replaced(keyspace).map_err(|error| StorageError::engine(&self.shared.dir, "memtables", error))
    }

    /// Writes what is pending and closes the database. Returns the number of the last batch, `None` if a write failed.
    pub(super) fn close(&self) -> Option<u64> {
        let committer = self.committer.lock().take()?;
        self.shared.stop();
        if committer.thread().id() == std::thread::current().id() {
            // A flush callback held the last reference. The thread ends by itself and closes the database.
            return None;
        }
        committer.join().ok().filter(|_| self.shared.health.check().is_ok())
    }

    #[cfg(test)]
    pub(super) fn fail_next_write(&self) {
        self.shared.fail_next_write.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Drop for FileLogs {
    fn drop(&mut self) {
        self.close();
    }
}

struct FileLog {
    shared: Arc<Shared>,
    group: Arc<Group>,
}

impl LogStore for FileLog {
    fn append(&self, entries: Vec<(u64, Bytes)>, flushed: Flushed) -> Result<(), StorageError> {
        self.shared.health.check()?;
        if let Some((index, entry)) = entries.iter().find(|(_, entry)| entry.len() > VALUE_LEN_MAX) {
            return Err(StorageError::Engine(format!("entry {index} of {} bytes is too large", entry.len())));
        }
        let mut index = self.group.index.write();
        let bytes = index.append(&entries)?;
        self.shared.health.appended(bytes as u64);
        let epoch = index.epoch();
        self.shared.submit(&self.group, Change::Append { entries, epoch, flushed })
    }

    fn truncate_from(&self, from: u64) -> Result<(), StorageError> {
        self.change(|index, done| Some(Change::Truncate { removed: index.truncate_from(from), done }))
    }

    fn purge_through(&self, through: u64, marker: Bytes) -> Result<(), StorageError> {
        self.change(|index, done| {
            let removed = index.purge_through(through, marker.clone())?;
            Some(Change::Purge { removed, through, marker, done })
        })
    }

    fn read(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, Bytes)>, StorageError> {
        let engine = self.shared.engine()?;
        loop {
            let (epoch, first, on_disk, in_memory) = {
                let index = self.group.index.read();
                let (on_disk, in_memory) = index.read(&range);
                (index.epoch(), index.bounds().start, on_disk, in_memory)
            };
            if on_disk.is_empty() {
                return Ok(in_memory);
            }
            match read(&engine.keyspace, &self.shared.dir, self.group.id, on_disk) {
                Ok(mut entries) => {
                    entries.extend(in_memory);
                    return Ok(entries);
                }
                Err(error) => {
                    let index = self.group.index.read();
                    if (index.epoch(), index.bounds().start) == (epoch, first) {
                        return Err(error);
                    }
                    // Truncated or purged meanwhile: what is missing was removed.
                }
            }
        }
    }

    fn last(&self) -> Result<Option<(u64, Bytes)>, StorageError> {
        let Some(last) = self.group.index.read().bounds().last() else { return self.shared.health.check().map(|()| None) };
        Ok(self.read(last..=u64::MAX)?.pop())
    }

    fn purged(&self) -> Result<Option<Bytes>, StorageError> {
        self.shared.health.check()?;
        Ok(self.group.index.read().purged.clone())
    }

    fn save_vote(&self, vote: Bytes) -> Result<(), StorageError> {
        self.change(|index, done| {
            index.vote = Some(vote.clone());
            Some(Change::Vote { vote, done })
        })
    }

    fn vote(&self) -> Result<Option<Bytes>, StorageError> {
        self.shared.health.check()?;
        Ok(self.group.index.read().vote.clone())
    }
}

impl FileLog {
    /// Changes the index, hands the change to the committer and waits until it is durable. `None`: nothing to do.
    fn change(&self, change: impl FnOnce(&mut LogIndex, committer::Done) -> Option<Change>) -> Result<(), StorageError> {
        self.shared.health.check()?;
        let (done, wait) = committer::done();
        {
            let mut index = self.group.index.write();
            let Some(change) = change(&mut index, done) else { return Ok(()) };
            self.shared.submit(&self.group, change)?;
        }
        wait.recv().unwrap_or_else(|_| Err(committer::closed()))
    }
}

/// Finds the bounds of a group's log, its vote and purge mark; finishes an interrupted purge.
fn find(engine: &LogEngine, dir: &Path, group: u16) -> Result<LogIndex, StorageError> {
    let keyspace = &engine.keyspace;
    let vote = get(keyspace, dir, &vote_key(group), &format!("group {group} vote"))?;
    let place = format!("group {group} purge mark");
    let purged = match get(keyspace, dir, &purged_key(group), &place)? {
        None => None,
        Some(value) => Some(u64_in(dir, &place, &value)?),
    };
    let start = purged.as_ref().map_or(0, |(through, _)| through + 1);
    remove_leftovers(engine, dir, group, 0..start)?;

    let index_at = |end: Option<Guard>, what: &str| match end {
        None => Ok(None),
        Some(guard) => {
            let key = guard.key().map_err(|error| StorageError::engine(dir, &format!("group {group} {what}"), error))?;
            index_of(dir, group, &key).map(Some)
        }
    };
    let entries = || keyspace.range(entry_key(group, start)..=entry_key(group, u64::MAX));
    let first = index_at(entries().next(), "first entry")?;
    let last = index_at(entries().next_back(), "last entry")?;
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(match purged {
            Some((_, marker)) => LogIndex::found(start..start, Some(marker), vote),
            None => LogIndex::fresh(vote),
        });
    };
    if purged.is_some() && first != start {
        return Err(missing(dir, group, start));
    }
    read(keyspace, dir, group, last..last + 1)?;
    Ok(LogIndex::found(first..last + 1, purged.map(|(_, marker)| marker), vote))
}

fn remove_leftovers(engine: &LogEngine, dir: &Path, group: u16, purged: Range<u64>) -> Result<(), StorageError> {
    let failed = |error| StorageError::engine(dir, &format!("group {group} purge"), error);
    loop {
        let mut batch = engine.db.batch().durability(Some(PersistMode::SyncData));
        let keys = engine.keyspace.range(entry_key(group, purged.start)..entry_key(group, purged.end));
        for key in keys.take(LEFTOVER_KEYS_MAX) {
            batch.remove(&engine.keyspace, key.key().map_err(failed)?);
        }
        if batch.is_empty() {
            return Ok(());
        }
        batch.commit().map_err(failed)?;
    }
}

/// Reads entries that must all be there.
fn read(keyspace: &Keyspace, dir: &Path, group: u16, range: Range<u64>) -> Result<Vec<(u64, Bytes)>, StorageError> {
    let mut entries = Vec::new();
    let mut expected = range.clone();
    for entry in keyspace.range(entry_key(group, range.start)..entry_key(group, range.end)) {
        let Some(index) = expected.next() else { break };
        let place = format!("group {group} index {index}");
        let (key, value) = entry.into_inner().map_err(|error| StorageError::engine(dir, &place, error))?;
        if index_of(dir, group, &key)? != index {
            return Err(missing(dir, group, index));
        }
        let value = unseal(&key, &value).map_err(|what| StorageError::damaged(dir, place, what))?;
        entries.push((index, Bytes::copy_from_slice(value)));
    }
    expected.next().map_or(Ok(entries), |index| Err(missing(dir, group, index)))
}

fn get(keyspace: &Keyspace, dir: &Path, key: &[u8], place: &str) -> Result<Option<Bytes>, StorageError> {
    match keyspace.get(key).map_err(|error| StorageError::engine(dir, place, error))? {
        None => Ok(None),
        Some(stored) => {
            let value = unseal(key, &stored).map_err(|what| StorageError::damaged(dir, place, what))?;
            Ok(Some(Bytes::copy_from_slice(value)))
        }
    }
}

fn index_of(dir: &Path, group: u16, key: &[u8]) -> Result<u64, StorageError> {
    let index = key.strip_prefix(&group.to_be_bytes()).and_then(|index| index.try_into().ok());
    index.map(u64::from_be_bytes).ok_or_else(|| StorageError::damaged(dir, format!("group {group}"), "a key is not an entry's"))
}

/// Splits `number u64 BE | rest`.
fn u64_in(dir: &Path, place: &str, value: &Bytes) -> Result<(u64, Bytes), StorageError> {
    let (number, rest) = value.split_first_chunk().ok_or_else(|| StorageError::damaged(dir, place, "too short"))?;
    Ok((u64::from_be_bytes(*number), value.slice_ref(rest)))
}

fn missing(dir: &Path, group: u16, index: u64) -> StorageError {
    StorageError::damaged(dir, format!("group {group} index {index}"), "the entry is missing")
}
