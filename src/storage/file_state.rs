//! The state of all groups in one database, `state/`.
//!
//! Each group has a keyspace of its own, `meta-g<n>` or `shard-<k>-g<n>`, with its records and, under a reserved key, `applied`; n is
//! the generation. A snapshot is written to a new generation beside the old one; one flushed record in the keyspace `control` then makes
//! it the current one, and the old one is deleted. Clearing and refilling one keyspace would leave nothing after a crash, and the
//! engine's `clear` lets a table that is being written in that moment come back.

mod check;
mod incoming;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode, Readable};
use parking_lot::{Mutex, RwLock};

use super::StorageError;
use super::committer::closed;
use super::engine::{self, Sizes};
use super::journal_check::Proof;
use super::long_key;
use super::quiet::Quiet;
use super::record::{KEY_LEN_MAX, VALUE_LEN_MAX, seal, unseal};
use super::state::{Changes, Incoming, Reads, StateStore};
use super::stats::{self, Health};

const CONTROL: &str = "control";
/// Written after each flush; found behind damage in a journal it shows that the damaged place had been flushed.
const FLUSHED_KEY: &[u8] = b"troupemq: flushed before this";
const RESERVED: &[u8] = &[0xFF; 8];
const APPLIED_KEY: &[u8] = b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFapplied";
/// Of a key in a message, bytes.
const KEY_LEN_SHOWN: usize = 64;
/// Fewer deleted records are not worth a compaction, unless they are large: of so many bytes together, going by the records' mean.
const DELETED_MIN: u64 = 64;
const DELETED_BYTES_MIN: u64 = 1024 * 1024;

/// The states of all groups.
pub(super) struct FileStates {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    sizes: Sizes,
    health: Arc<Health>,
    /// `None` after the close.
    engine: RwLock<Option<Engine>>,
    /// Batches written; what `flush` has to do.
    written: AtomicU64,
    /// Held while flushing.
    flushed: Mutex<Flushed>,
    quiet: Mutex<Quiet>,
    /// Held while a generation gets its number.
    receiving: Mutex<()>,
    #[cfg(test)]
    fail_next_sync: std::sync::atomic::AtomicBool,
    /// Records deleted since the last compaction, by group.
    deleted: Vec<AtomicU64>,
}

struct Flushed {
    /// `Shared::written` at the last flush.
    written: u64,
    /// Number of the last flush, counted since the directory was made.
    number: u64,
}

#[derive(Clone)]
struct Engine {
    db: Database,
    control: Keyspace,
    groups: Arc<Vec<Generation>>,
}

#[derive(Clone)]
struct Generation {
    number: u64,
    keyspace: Keyspace,
    /// Records there after the last compaction, or at the start.
    kept: Arc<AtomicU64>,
}

impl Generation {
    fn new(number: u64, keyspace: Keyspace) -> Self {
        let kept = Arc::new(AtomicU64::new(keyspace.approximate_len() as u64));
        Self { number, keyspace, kept }
    }
}

impl FileStates {
    pub(super) fn disk_bytes(&self) -> u64 {
        stats::disk_bytes(&self.shared.dir)
    }

    /// Opens or creates the states of groups `0..groups`. `closed_at`: number of the last flush at the last clean close.
    pub(super) fn open(
        dir: PathBuf,
        groups: u16,
        initialised: bool,
        closed_at: Option<u64>,
        health: Arc<Health>,
    ) -> Result<Self, StorageError> {
        let sizes = Sizes::state(groups.saturating_sub(1));
        let db = engine::open(&dir, sizes, Proof::Key(FLUSHED_KEY), initialised, closed_at.is_some())?;
        let control = engine::keyspace(&db, &dir, CONTROL, sizes, !initialised)?;
        let flushes = number(&control, &dir, FLUSHED_KEY, "number of the last flush")?.unwrap_or(0);
        if let Some(closed_at) = closed_at.filter(|closed_at| *closed_at > flushes) {
            let what = format!("what came after it is missing: flushed up to {closed_at}");
            return Err(StorageError::damaged(&dir, format!("flush {flushes}"), what));
        }
        let groups = (0..groups)
            .map(|group| {
                let place = format!("group {group} generation");
                let number = number(&control, &dir, &group.to_be_bytes(), &place)?.unwrap_or(0);
                let name = keyspace_name(group, number);
                Ok(Generation::new(number, engine::keyspace(&db, &dir, &name, sizes, !initialised)?))
            })
            .collect::<Result<Vec<_>, StorageError>>()?;
        let shared = Shared {
            deleted: groups.iter().map(|_| AtomicU64::new(0)).collect(),
            dir,
            sizes,
            health,
            engine: RwLock::new(Some(Engine { db, control, groups: Arc::new(groups) })),
            written: AtomicU64::new(0),
            flushed: Mutex::new(Flushed { written: 0, number: flushes }),
            quiet: Mutex::default(),
            receiving: Mutex::default(),
            #[cfg(test)]
            fail_next_sync: false.into(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(super) fn group(&self, id: u16) -> Option<Arc<dyn StateStore>> {
        let groups = self.shared.engine.read().as_ref().map_or(0, |engine| engine.groups.len());
        (usize::from(id) < groups).then(|| Arc::new(FileState { shared: self.shared.clone(), group: id }) as Arc<dyn StateStore>)
    }

    /// Deletes what an interrupted replace left: its new generation or the old one. It writes, so the directory must count as open.
    pub(super) fn delete_abandoned(&self) -> Result<(), StorageError> {
        let shared = &self.shared;
        let engine = shared.engine()?;
        let current = |name: &str| name == CONTROL || engine.groups.iter().any(|group| &**group.keyspace.name() == name);
        let names = engine.db.list_keyspace_names().into_iter();
        let abandoned: Vec<String> = names.filter(|name| !current(name)).map(|name| name.to_string()).collect();
        if abandoned.is_empty() {
            return Ok(());
        }
        tracing::info!(?abandoned, "deletes what an interrupted snapshot left");
        shared.delete_all(&engine, &abandoned)
    }

    /// Writes out what is in memory after a load, once it ended. To be called at regular times.
    pub(super) fn rest(&self) -> Result<(), StorageError> {
        let shared = &self.shared;
        let engine = shared.engine()?;
        if !shared.quiet.lock().look(engine.db.write_buffer_size()) {
            return Ok(());
        }
        let failed = |error| shared.engine_error("memtables", error);
        engine::write_out(engine.groups.iter().map(|group| &group.keyspace)).map_err(failed)?;
        shared.forget_replaced(&engine)
    }

    #[cfg(test)]
    pub(super) fn memtable_bytes(&self) -> u64 {
        let groups = self.shared.engine().map(|engine| engine.groups).unwrap_or_default();
        groups.iter().map(|group| engine::memtable_bytes(&group.keyspace)).sum()
    }

    #[cfg(test)]
    pub(super) fn fail_next_sync(&self) {
        self.shared.fail_next_sync.store(true, Ordering::SeqCst);
    }

    /// Flushes and closes the database. Returns the number of the last flush, `None` if it failed.
    pub(super) fn close(&self) -> Option<u64> {
        let flushed = self.shared.flush().and_then(|()| self.shared.sync());
        self.shared.engine.write().take();
        flushed.ok().map(|()| self.shared.flushed.lock().number)
    }
}

impl Drop for FileStates {
    fn drop(&mut self) {
        self.close();
    }
}

struct FileState {
    shared: Arc<Shared>,
    group: u16,
}

impl Reads for FileState {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let (_, generation) = self.engine()?;
        self.shared.get(self.group, &generation.keyspace, key)
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        let (_, generation) = self.engine()?;
        self.shared.range(self.group, &generation.keyspace, (first, last), visit)
    }
}

impl StateStore for FileState {
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError> {
        let (engine, generation) = self.engine()?;
        for (key, value) in &changes {
            check_record(key, value.as_deref().unwrap_or_default())?;
        }
        let records = last_of_each(changes);
        let mut batch = engine.db.batch();
        let mut deleted = 0;
        for (key, value) in records {
            match value {
                Some(value) => put(&mut batch, &generation.keyspace, &key, &value),
                None => {
                    deleted += 1;
                    batch.remove(&generation.keyspace, &*long_key::stored(&key).0);
                }
            }
        }
        self.deleted().fetch_add(deleted, Ordering::Relaxed);
        put(&mut batch, &generation.keyspace, APPLIED_KEY, &applied);
        self.shared.commit(batch, &self.place("write"))
    }

    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let (_, generation) = self.engine()?;
        let place = self.place("applied");
        let stored = generation.keyspace.get(APPLIED_KEY).map_err(|error| self.shared.engine_error(&place, error))?;
        stored.map(|stored| self.unseal(APPLIED_KEY, &stored)).transpose()
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        let (engine, generation) = self.engine()?;
        self.shared.load(self.group, &engine.db, &generation.keyspace, visit)
    }

    fn receive(&self) -> Result<Box<dyn Incoming>, StorageError> {
        let incoming = incoming::FileIncoming::begin(Arc::clone(&self.shared), self.group)?;
        Ok(Box::new(incoming))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.shared.flush()
    }

    fn compact(&self) -> Result<(), StorageError> {
        let (engine, generation) = self.engine()?;
        let deleted = self.deleted().load(Ordering::Relaxed);
        // Not of those there now: the engine counts each version of a record, and `applied` has one with each write. So a compaction writes no
        // more than four times what was deleted, and what was written since the last.
        let kept = generation.kept.load(Ordering::Relaxed);
        let is_much = deleted >= DELETED_MIN || generation.keyspace.disk_space() / kept.max(1) * deleted >= DELETED_BYTES_MIN;
        if !is_much || deleted < kept.div_ceil(4).max(1) {
            return Ok(());
        }
        let failed = |error| self.shared.engine_error(&self.place("compaction"), error);
        engine::compact(&generation.keyspace).map_err(failed)?;
        self.deleted().fetch_sub(deleted, Ordering::Relaxed);
        generation.kept.store(generation.keyspace.approximate_len() as u64, Ordering::Relaxed);
        self.shared.forget_replaced(&engine)
    }
}

impl FileState {
    fn deleted(&self) -> &AtomicU64 {
        static NONE: AtomicU64 = AtomicU64::new(0);
        self.shared.deleted.get(usize::from(self.group)).unwrap_or(&NONE)
    }

    fn engine(&self) -> Result<(Engine, Generation), StorageError> {
        let engine = self.shared.engine()?;
        let generation = engine.groups.get(usize::from(self.group)).cloned().ok_or_else(closed)?;
        Ok((engine, generation))
    }

    fn unseal(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, StorageError> {
        unseal(key, stored).map(<[u8]>::to_vec).map_err(|what| self.damaged(key, what))
    }

    fn damaged(&self, key: &[u8], what: String) -> StorageError {
        self.shared.damaged_record(self.group, key, what)
    }

    fn place(&self, what: &str) -> String {
        place(self.group, what)
    }
}

impl Shared {
    fn engine(&self) -> Result<Engine, StorageError> {
        self.health.check()?;
        self.engine.read().clone().ok_or_else(closed)
    }

    fn engine_error(&self, place: &str, error: fjall::Error) -> StorageError {
        StorageError::engine(&self.dir, place, error)
    }

    /// An error stops the storage: the engine may or may not have kept the batch.
    fn commit(&self, batch: OwnedWriteBatch, place: &str) -> Result<(), StorageError> {
        self.stop_on_error(batch.commit().map_err(|error| self.engine_error(place, error)))?;
        self.written.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn stop_on_error<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.inspect_err(|error| self.health.poison(error))
    }

    fn flush(&self) -> Result<(), StorageError> {
        let engine = self.engine()?;
        let mut flushed = self.flushed.lock();
        let written = self.written.load(Ordering::Acquire);
        if flushed.written == written {
            return Ok(());
        }
        self.sync()?;
        *flushed = Flushed { written, number: flushed.number + 1 };
        let mark = seal(FLUSHED_KEY, &flushed.number.to_be_bytes());
        self.stop_on_error(engine.control.insert(FLUSHED_KEY, mark).map_err(|error| self.engine_error("flush", error)))
    }

    /// Lets go of what compactions and full memtables replaced, in all groups.
    fn forget_replaced(&self, engine: &Engine) -> Result<(), StorageError> {
        // The mark of the flush is newer than what was replaced.
        self.written.fetch_add(1, Ordering::Release);
        self.flush()?;
        engine::forget_replaced(&engine.control).map_err(|error| self.engine_error("memtables", error))
    }

    fn sync(&self) -> Result<(), StorageError> {
        #[cfg(test)]
        if self.fail_next_sync.load(Ordering::SeqCst) {
            return self.stop_on_error(Err(StorageError::io(&self.dir, std::io::Error::from_raw_os_error(5))));
        }
        let synced = self.engine()?.db.persist(PersistMode::SyncData);
        self.stop_on_error(synced.map_err(|error| self.engine_error("flush", error)))
    }

    fn damaged_record(&self, group: u16, key: &[u8], what: String) -> StorageError {
        let start = key.get(..KEY_LEN_SHOWN).unwrap_or(key);
        StorageError::damaged(&self.dir, place(group, &format!("key {}", start.escape_ascii())), what)
    }

    fn get(&self, group: u16, keyspace: &Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let (short, _) = long_key::stored(key);
        let read = || {
            let found = keyspace.get(&*short);
            let found = found.map_err(|error| self.engine_error(&place(group, "get"), error))?;
            let Some(found) = found else { return Ok(None) };
            let (whole, value) = self.original(group, &short, &found)?;
            // By the checksum it cannot be another; a digest of a long key might.
            Ok((whole == key).then(|| value.to_vec()))
        };
        self.stop_on_error(read())
    }

    fn range(
        &self,
        group: u16,
        keyspace: &Keyspace,
        (first, last): (&[u8], &[u8]),
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StorageError> {
        let (first, last) = (long_key::stored(first).0, long_key::stored(last).0);
        if first > last {
            return Ok(());
        }
        let mut read = || {
            for record in keyspace.range(&*first..=&*last) {
                let (key, stored) = record.into_inner().map_err(|error| self.engine_error(&place(group, "range"), error))?;
                if !key.starts_with(RESERVED) {
                    let (whole, value) = self.original(group, &key, &stored)?;
                    if !visit(whole, value) {
                        break;
                    }
                }
            }
            Ok(())
        };
        self.stop_on_error(read())
    }

    /// The whole key and the value of what the engine holds under `key`.
    fn original<'a>(&self, group: u16, key: &'a [u8], stored: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), StorageError> {
        let value = unseal(key, stored).map_err(|what| self.damaged_record(group, key, what))?;
        long_key::original(key, value).ok_or_else(|| self.damaged_record(group, key, "its long key does not fit".to_owned()))
    }

    /// Visits the records of a keyspace in key order.
    #[expect(clippy::type_complexity, reason = "a name for the visitor would say less than its type")]
    fn load(
        &self,
        group: u16,
        db: &Database,
        keyspace: &Keyspace,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut last_key = None;
        for record in db.snapshot().iter(keyspace) {
            let (key, stored) = record.into_inner().map_err(|error| {
                let after = last_key.as_deref().map_or_else(
                    || "before the first record".to_owned(),
                    |key: &[u8]| format!("after key {}", key.get(..KEY_LEN_SHOWN).unwrap_or(key).escape_ascii()),
                );
                self.engine_error(&place(group, &after), error)
            })?;
            if key.starts_with(RESERVED) {
                unseal(&key, &stored).map_err(|what| self.damaged_record(group, &key, what))?;
            } else {
                let (whole, value) = self.original(group, &key, &stored)?;
                visit(whole, value)?;
            }
            last_key = Some(key);
        }
        Ok(())
    }

    /// Deletes generations that are not current. The engine forgets the sequence numbers of deleted keyspaces and would use them again within
    /// one journal, where only a growing one is sound: a later record in a keyspace that stays holds it up.
    fn delete_all(&self, engine: &Engine, names: &[String]) -> Result<(), StorageError> {
        self.written.fetch_add(1, Ordering::Release);
        self.flush()?;
        self.sync()?;
        for name in names {
            self.delete(&engine.db, engine::keyspace(&engine.db, &self.dir, name, self.sizes, false)?);
        }
        Ok(())
    }

    /// Not being able to is no fault of the state: the next start tries again.
    fn delete(&self, db: &Database, keyspace: Keyspace) {
        let name = keyspace.name().to_string();
        if let Err(error) = db.delete_keyspace(keyspace) {
            tracing::warn!(dir = %self.dir.display(), name, %error, "cannot delete an old generation of a group's state");
        }
    }
}

fn place(group: u16, what: &str) -> String {
    format!("group {group} {what}")
}

fn put(batch: &mut OwnedWriteBatch, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
    let (stored, front) = long_key::stored(key);
    let sealed = if front.is_empty() { seal(&stored, value) } else { seal(&stored, &[&front, value].concat()) };
    batch.insert(keyspace, &*stored, sealed);
}

/// The last change of each key: the engine leaves open which of two in one batch wins. In key order, as they come from the state.
fn last_of_each(mut changes: Changes) -> Changes {
    if changes.is_sorted_by(|(one, _), (next, _)| one < next) {
        return changes;
    }
    changes.reverse();
    changes.sort_by(|(one, _), (other, _)| one.cmp(other));
    changes.dedup_by(|(one, _), (kept, _)| one == kept);
    changes
}

fn check_record(key: &[u8], value: &[u8]) -> Result<(), StorageError> {
    let fault = match key {
        [] => "has an empty key",
        _ if key.len() > KEY_LEN_MAX => "has too long a key",
        _ if value.len() > VALUE_LEN_MAX => "has too long a value",
        _ if key.starts_with(RESERVED) => "has a reserved key",
        _ => return Ok(()),
    };
    let start = key.get(..64).unwrap_or(key).escape_ascii();
    Err(StorageError::Engine(format!("a record {fault} (key {start}.., {} bytes)", key.len())))
}

fn keyspace_name(group: u16, generation: u64) -> String {
    match group.checked_sub(1) {
        None => format!("meta-g{generation}"),
        Some(shard) => format!("shard-{shard}-g{generation}"),
    }
}

fn number(control: &Keyspace, dir: &Path, key: &[u8], place: &str) -> Result<Option<u64>, StorageError> {
    let Some(stored) = control.get(key).map_err(|error| StorageError::engine(dir, place, error))? else { return Ok(None) };
    let value = unseal(key, &stored).map_err(|what| StorageError::damaged(dir, place, what))?;
    let number = value.try_into().map_err(|_| StorageError::damaged(dir, place, "not a number"))?;
    Ok(Some(u64::from_be_bytes(number)))
}
