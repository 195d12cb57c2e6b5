//! How the databases are opened: sizes, checks before the engine looks, and errors instead of panics.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, KeyspaceCreateOptions};

use super::StorageError;
use super::journal_check::{self, Proof};

const MIB: u64 = 1024 * 1024;

/// Sizes of one database. An idle node needs little of it: caches and memtables grow with use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Blocks read from tables, for all keyspaces together.
    pub(super) block_cache_bytes: u64,
    /// Written data of one keyspace kept in memory before it becomes a table. The engine stops writers at five of them.
    pub(super) memtable_bytes: u64,
    pub(super) open_files_max: usize,
}

impl Sizes {
    pub(super) const RAFT: Self = Self { block_cache_bytes: 4 * MIB, memtable_bytes: 8 * MIB, open_files_max: 64 };

    /// The memtables of all shards share about 18 MiB: they are what the engine takes most of. Blocks that are not in its cache are mostly in
    /// the kernel's.
    pub(super) fn state(shards: u16) -> Self {
        let memtable_bytes = (18 * MIB / u64::from(shards.max(1))).clamp(2 * MIB, 8 * MIB);
        Self { block_cache_bytes: 8 * MIB, memtable_bytes, open_files_max: 512 }
    }

    fn keyspace(self) -> KeyspaceCreateOptions {
        KeyspaceCreateOptions::default().max_memtable_size(self.memtable_bytes)
    }
}

/// A journal is closed at 64 MB; behind this much in closed ones the engine writes out the keyspaces that hold them back (its minimum).
const CLOSED_JOURNALS_BYTES: u64 = 64 * MIB;

/// A memtable of fewer bytes is not worth a table.
const LITTLE_BYTES: u64 = 64 * 1024;
const WRITTEN_OUT_WITHIN: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

/// Opens or creates the database at `dir`. `initialised`: it was complete before, so nothing may be missing. `closed`: closed cleanly.
pub(super) fn open(dir: &Path, sizes: Sizes, proof: Proof, initialised: bool, closed: bool) -> Result<Database, StorageError> {
    if initialised {
        check_complete(dir)?;
        journal_check::check(dir, proof, closed)?;
    } else if dir.exists() {
        // A first start that did not get to its end: nothing in here was ever acknowledged, and the engine trips over halves.
        fs::remove_dir_all(dir).map_err(|error| StorageError::io(dir, error))?;
    }
    // One worker: with two the engine keeps one of them spinning while the other compacts.
    let builder = Database::builder(dir)
        .cache_size(sizes.block_cache_bytes)
        .max_journaling_size(CLOSED_JOURNALS_BYTES)
        .max_cached_files(Some(sizes.open_files_max))
        .worker_threads(1);
    // The engine asserts some of what it reads back.
    match catch_unwind(AssertUnwindSafe(|| builder.open())) {
        Ok(opened) => opened.map_err(|error| StorageError::engine(dir, "open", error)),
        Err(_) => Err(StorageError::damaged(dir, "open", "the engine gave up on its content, see the log")),
    }
}

/// Opens a keyspace, creates it if it may be new.
pub(super) fn keyspace(db: &Database, dir: &Path, name: &str, sizes: Sizes, may_be_new: bool) -> Result<Keyspace, StorageError> {
    if !may_be_new && !db.keyspace_exists(name) {
        return Err(StorageError::damaged(dir, format!("keyspace {name}"), "it is missing"));
    }
    db.keyspace(name, || sizes.keyspace()).map_err(|error| StorageError::engine(dir, name, error))
}

/// Writes the memtable out and merges all tables into as few as possible, without what was deleted or replaced. The engine's own compactions
/// wait for more to be written: what is deleted last would stay on the disk for as long as it is quiet. The files of what was replaced stay
/// until `forget_replaced`.
pub(super) fn compact(keyspace: &Keyspace) -> Result<(), fjall::Error> {
    keyspace.rotate_memtable_and_wait()?;
    keyspace.major_compact()
}

/// Writes out the memtables of `keyspaces` that hold more than little, and waits until that is done, for `WRITTEN_OUT_WITHIN` at most: the
/// engine goes on by itself. What was written out stays in memory until `forget_replaced`.
pub(super) fn write_out<'a>(keyspaces: impl Iterator<Item = &'a Keyspace> + Clone) -> Result<(), fjall::Error> {
    for keyspace in keyspaces.clone() {
        if keyspace.tree.active_memtable().size() >= LITTLE_BYTES {
            keyspace.rotate_memtable()?;
        }
    }
    let began = Instant::now();
    while keyspaces.clone().any(|keyspace| keyspace.sealed_memtable_count() > 0) && began.elapsed() < WRITTEN_OUT_WITHIN {
        poll();
    }
    Ok(())
}

/// Bytes that `keyspace` has in memtables, those included that are written out and not forgotten.
#[cfg(test)]
pub(super) fn memtable_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.tree.version_memtable_size_sum()
}

#[expect(clippy::disallowed_methods, reason = "the engine tells nobody when a memtable is written out")]
fn poll() {
    thread::sleep(POLL);
}

/// Lets go of the tables that compactions replaced and of the memtables that were written out, those of all keyspaces of the database. For
/// whoever still reads, the engine keeps the version before, and looks for what nobody reads any more only when a memtable is written out: in
/// a quiet database, never. Something must have been written to `keyspace` since.
pub(super) fn forget_replaced(keyspace: &Keyspace) -> Result<(), fjall::Error> {
    keyspace.rotate_memtable_and_wait()
}

/// The engine takes a directory without its `version` for a new one, and removes a keyspace without its `current`.
fn check_complete(dir: &Path) -> Result<(), StorageError> {
    let missing = |path: &Path| StorageError::damaged(path, "byte 0", "it is missing");
    let io = |error| StorageError::io(dir, error);
    let version = dir.join("version");
    if !version.is_file() {
        return Err(missing(&version));
    }
    for keyspace in fs::read_dir(dir.join("keyspaces")).map_err(io)? {
        let keyspace = keyspace.map_err(io)?.path();
        let current = keyspace.join("current");
        let has_tables = fs::read_dir(keyspace.join("tables")).is_ok_and(|mut tables| tables.next().is_some());
        if has_tables && !current.is_file() {
            return Err(missing(&current));
        }
    }
    Ok(())
}
