//! The state of all groups in one database, `state/`.
//!
//! Each group has a keyspace of its own, `meta-g<n>` or `shard-<k>-g<n>`, with its records and, under a reserved key, `applied`; n is
//! the generation. A snapshot is written to a new generation beside the old one; one flushed record in the keyspace `control` then makes
//! it the current one, and the old one is deleted. Clearing and refilling one keyspace would leave nothing after a crash, and the
//! engine's `clear` lets a table that is being written in that moment come back.

use std::collections::BTreeMap;
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
use super::record::{KEY_LEN_MAX, VALUE_LEN_MAX, seal, unseal};
use super::state::{Changes, StateStore};
use super::stats::Health;

const CONTROL: &str = "control";
/// Written after each flush; found behind damage in a journal it shows that the damaged place had been flushed.
const FLUSHED_KEY: &[u8] = b"troupemq: flushed before this";
const RESERVED: &[u8] = &[0xFF; 8];
const APPLIED_KEY: &[u8] = b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFapplied";
/// Fewer deleted records are not worth a compaction.
const DELETED_MIN: u64 = 64;
const REPLACE_CHUNK_BYTES: usize = 1024 * 1024;

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
}

impl FileStates {
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
                Ok(Generation { number, keyspace: engine::keyspace(&db, &dir, &name, sizes, !initialised)? })
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
        let abandoned: Vec<_> = engine.db.list_keyspace_names().into_iter().filter(|name| !current(name)).collect();
        if abandoned.is_empty() {
            return Ok(());
        }
        // The engine forgets the sequence numbers of deleted keyspaces and would use them again within one journal, where only a growing
        // one is sound: a later record in a keyspace that stays holds it up.
        shared.written.fetch_add(1, Ordering::Release);
        shared.flush()?;
        shared.sync()?;
        for name in abandoned {
            shared.delete(&engine.db, engine::keyspace(&engine.db, &shared.dir, &name, shared.sizes, false)?);
        }
        Ok(())
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

impl StateStore for FileState {
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError> {
        let (engine, generation) = self.engine()?;
        let mut records = BTreeMap::new();
        for (key, value) in changes {
            check_record(&key, value.as_deref().unwrap_or_default())?;
            // The engine leaves open which of two changes of a key in one batch wins.
            records.insert(key, value);
        }
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
        let mut after = self.place("before the first record");
        for record in engine.db.snapshot().iter(&generation.keyspace) {
            let (key, stored) = record.into_inner().map_err(|error| self.shared.engine_error(&after, error))?;
            let value = unseal(&key, &stored).map_err(|what| self.damaged(&key, what))?;
            if !key.starts_with(RESERVED) {
                let (whole, value) =
                    long_key::original(&key, value).ok_or_else(|| self.damaged(&key, "its long key does not fit".to_owned()))?;
                visit(whole, value)?;
            }
            after = self.place(&format!("after key {}", key.escape_ascii()));
        }
        Ok(())
    }

    fn replace(&self, records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>, applied: Vec<u8>) -> Result<(), StorageError> {
        let (engine, old) = self.engine()?;
        let mut number = old.number + 1;
        // Left by a replace that failed in this process.
        while engine.db.keyspace_exists(&keyspace_name(self.group, number)) {
            number += 1;
        }
        let name = keyspace_name(self.group, number);
        let new =
            Generation { number, keyspace: engine::keyspace(&engine.db, &self.shared.dir, &name, self.shared.sizes, true)? };
        self.fill(&engine, &new.keyspace, records, &applied)?;
        self.shared.make_current(self.group, new)?;
        self.shared.flush()?;
        self.shared.delete(&engine.db, old.keyspace);
        Ok(())
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.shared.flush()
    }

    fn compact(&self) -> Result<(), StorageError> {
        let (_, generation) = self.engine()?;
        let deleted = self.deleted().load(Ordering::Relaxed);
        // Deleted ones count among those there, and so do the marks of their deletion.
        let there = generation.keyspace.approximate_len() as u64;
        if deleted < DELETED_MIN.max(there / 4) {
            return Ok(());
        }
        engine::compact(&generation.keyspace).map_err(|error| self.shared.engine_error(&self.place("compaction"), error))?;
        self.deleted().fetch_sub(deleted, Ordering::Relaxed);
        Ok(())
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

    fn fill(
        &self,
        engine: &Engine,
        keyspace: &Keyspace,
        records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
        applied: &[u8],
    ) -> Result<(), StorageError> {
        let place = self.place("replace");
        let (mut batch, mut bytes) = (engine.db.batch(), 0);
        for (key, value) in records {
            check_record(&key, &value)?;
            put(&mut batch, keyspace, &key, &value);
            bytes += key.len() + value.len();
            if bytes >= REPLACE_CHUNK_BYTES {
                self.shared.commit(std::mem::replace(&mut batch, engine.db.batch()), &place)?;
                bytes = 0;
            }
        }
        put(&mut batch, keyspace, APPLIED_KEY, applied);
        self.shared.commit(batch, &place)
    }

    fn unseal(&self, key: &[u8], stored: &[u8]) -> Result<Vec<u8>, StorageError> {
        unseal(key, stored).map(<[u8]>::to_vec).map_err(|what| self.damaged(key, what))
    }

    fn damaged(&self, key: &[u8], what: String) -> StorageError {
        StorageError::damaged(&self.shared.dir, self.place(&format!("key {}", key.escape_ascii())), what)
    }

    fn place(&self, what: &str) -> String {
        format!("group {} {what}", self.group)
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

    fn stop_on_error(&self, result: Result<(), StorageError>) -> Result<(), StorageError> {
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

    fn sync(&self) -> Result<(), StorageError> {
        let synced = self.engine()?.db.persist(PersistMode::SyncData);
        self.stop_on_error(synced.map_err(|error| self.engine_error("flush", error)))
    }

    /// The records of `new` are written before this one and flushed with it.
    fn make_current(&self, group: u16, new: Generation) -> Result<(), StorageError> {
        let engine = self.engine()?;
        let mut batch = engine.db.batch().durability(Some(PersistMode::SyncAll));
        put(&mut batch, &engine.control, &group.to_be_bytes(), &new.number.to_be_bytes());
        self.commit(batch, &format!("group {group} replace"))?;
        let mut engine = self.engine.write();
        let groups = Arc::make_mut(&mut engine.as_mut().ok_or_else(closed)?.groups);
        *groups.get_mut(usize::from(group)).ok_or_else(closed)? = new;
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

fn put(batch: &mut OwnedWriteBatch, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
    let (stored, front) = long_key::stored(key);
    let sealed = if front.is_empty() { seal(&stored, value) } else { seal(&stored, &[&front, value].concat()) };
    batch.insert(keyspace, &*stored, sealed);
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
