//! The data directory as a whole.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::Directory;
use super::file_log::FileLogs;
use super::file_state::FileStates;
use super::flushed_mark::{self, FlushedMark};
use super::identity::{ClosedAt, IdentityFile, Stored};
use super::memory::Memory;
use super::stats::{Health, StorageStats};
use super::{Identity, LogStore, StateStore, StorageError};
use crate::telemetry::Tally;

/// `persistence/mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    File,
    InMemory,
}

/// What a simulated node keeps its data on.
#[cfg(any(test, feature = "sim"))]
pub trait SimulatedDisk: Send + Sync {
    /// What was written last.
    fn identity(&self) -> Option<Vec<u8>>;
    /// Durable on return.
    fn write_identity(&self, identity: Vec<u8>) -> Result<(), StorageError>;
    fn log(&self, group: u16) -> Option<Arc<dyn LogStore>>;
    fn state(&self, group: u16) -> Option<Arc<dyn StateStore>>;
}

/// An open data directory. Dropping it writes what is pending, ends its threads and releases the directory; handles that outlive it refuse
/// everything.
pub struct Storage {
    identity: Mutex<Stored>,
    health: Arc<Health>,
    backend: Backend,
}

enum Backend {
    Memory(Memory),
    File(Files),
    #[cfg(any(test, feature = "sim"))]
    Simulated(Arc<dyn SimulatedDisk>),
}

/// How many shards a node is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardCount {
    /// Data with another number are refused.
    Exactly(u16),
    /// As many as the data have; so many where there are none.
    StoredOr(u16),
}

impl ShardCount {
    fn of_new_data(self) -> u16 {
        match self {
            Self::Exactly(shards) | Self::StoredOr(shards) => shards,
        }
    }
}

impl From<u16> for ShardCount {
    fn from(shards: u16) -> Self {
        Self::Exactly(shards)
    }
}

struct Files {
    logs: FileLogs,
    states: FileStates,
    identity: IdentityFile,
    /// Last: the lock is given back when all else is closed.
    _directory: Directory,
}

impl Storage {
    /// Opens or creates the directory for a node of that name; `now_ms` seeds the incarnation. Refuses a directory of another node, of
    /// another shard count (unless the node never was in a cluster), of a newer format, or in use. `in-memory` does not touch `path`.
    pub fn open(
        path: &Path,
        mode: Mode,
        node_name: &str,
        shards: impl Into<ShardCount>,
        now_ms: u64,
    ) -> Result<Self, StorageError> {
        let shards = shards.into();
        if shards.of_new_data() >= u16::MAX - 1 {
            return Err(StorageError::Engine(format!("{} shards are too many", shards.of_new_data())));
        }
        let health = Arc::<Health>::default();
        let (backend, identity) = match mode {
            Mode::InMemory => {
                let shards = shards.of_new_data();
                (Backend::Memory(Memory::new(shards + 1, &health)), new_identity(node_name, shards, now_ms))
            }
            Mode::File => {
                let (files, identity) = Files::open(path, node_name, shards, now_ms, &health)?;
                (Backend::File(files), identity)
            }
        };
        Ok(Self { identity: Mutex::new(identity), health, backend })
    }

    /// Opens what a simulated node left on its disk, or an empty one.
    #[cfg(any(test, feature = "sim"))]
    pub fn simulated(disk: Arc<dyn SimulatedDisk>, node_name: &str, shards: u16, now_ms: u64) -> Result<Self, StorageError> {
        let stored = disk.identity().and_then(|json| serde_json::from_slice(&json).ok());
        let mut stored = stored.unwrap_or_else(|| new_identity(node_name, shards, 0));
        stored.identity.incarnation = next_incarnation(&stored.identity, now_ms);
        write_simulated(disk.as_ref(), &stored)?;
        Ok(Self { identity: Mutex::new(stored), health: Arc::default(), backend: Backend::Simulated(disk) })
    }

    pub fn identity(&self) -> Identity {
        self.identity.lock().identity.clone()
    }

    /// Durable on return. A cluster id, once set, cannot be changed. A node joins, and has no vote yet, unless the cluster is the one `founded`
    /// by whom it promised itself to; else that promise is void.
    pub fn set_cluster_id(&self, cluster_id: &str, founded: bool) -> Result<(), StorageError> {
        self.change_stored(|stored, path| match &stored.identity.cluster_id {
            Some(found) if found != cluster_id => Err(wrong_owner(path, "cluster", found, cluster_id)),
            Some(_) => Ok(()),
            None => {
                stored.identity.cluster_id = Some(cluster_id.to_owned());
                stored.voteless = !(founded && stored.identity.promised_to.is_some());
                if stored.voteless {
                    stored.voting.clear();
                    stored.identity.promised_to = None;
                }
                Ok(())
            }
        })
    }

    /// Whether the node came into its cluster without data, and that is not made good yet.
    pub fn is_voteless(&self) -> bool {
        self.identity.lock().voteless
    }

    /// Whether the node has its vote in a group: it was there before, or what it lost is made good in this one.
    pub fn votes_in(&self, group: u16) -> bool {
        let stored = self.identity.lock();
        !stored.voteless || stored.voting.contains(&group)
    }

    /// Durable on return.
    pub fn set_voteless(&self, voteless: bool) -> Result<(), StorageError> {
        self.change_stored(|stored, _| {
            stored.voteless = voteless;
            stored.voting.clear();
            Ok(())
        })
    }

    /// The groups in which a node that came without data has its vote again. Durable on return.
    pub fn set_voting(&self, groups: Vec<u16>) -> Result<(), StorageError> {
        self.change_stored(|stored, _| {
            stored.voting = groups;
            Ok(())
        })
    }

    /// The other members' names, as they were stored last.
    pub fn others(&self) -> Option<Vec<String>> {
        self.identity.lock().others.clone()
    }

    /// Durable on return.
    pub fn set_others(&self, names: Vec<String>) -> Result<(), StorageError> {
        self.change_stored(|stored, _| {
            stored.others = Some(names);
            Ok(())
        })
    }

    /// The node left its cluster: the directory is refused from now on. Durable on return.
    pub fn set_left(&self) -> Result<(), StorageError> {
        self.change_stored(|stored, _| {
            stored.left = true;
            Ok(())
        })
    }

    /// Whether what was stored is there after a restart.
    pub fn is_on_disk(&self) -> bool {
        !matches!(self.backend, Backend::Memory(_))
    }

    /// Durable on return.
    pub fn set_promise(&self, founder: Option<&str>) -> Result<(), StorageError> {
        self.change_identity(|identity, _| {
            identity.promised_to = founder.map(str::to_owned);
            Ok(())
        })
    }

    /// A newer incarnation for a process that was declared dead while it lives. Durable on return.
    pub fn renew_incarnation(&self, now_ms: u64) -> Result<u64, StorageError> {
        self.change_identity(|identity, _| {
            identity.incarnation = next_incarnation(identity, now_ms);
            Ok(identity.incarnation)
        })
    }

    /// Group 0 is `meta`, group `1 + k` is shard `k`.
    pub fn log(&self, group: u16) -> Result<Arc<dyn LogStore>, StorageError> {
        let log = match &self.backend {
            Backend::Memory(memory) => memory.log(group),
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(disk) => disk.log(group),
            Backend::File(files) => files.logs.group(group),
        };
        log.ok_or_else(|| no_group(group))
    }

    pub fn state(&self, group: u16) -> Result<Arc<dyn StateStore>, StorageError> {
        let state = match &self.backend {
            Backend::Memory(memory) => memory.state(group),
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(disk) => disk.state(group),
            Backend::File(files) => files.states.group(group),
        };
        state.ok_or_else(|| no_group(group))
    }

    /// Gives back the room of purged log entries on the disk. May take a while; for quiet moments.
    pub fn compact_logs(&self) -> Result<(), StorageError> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(_) => Ok(()),
            Backend::File(files) => files.logs.compact(),
        }
    }

    /// Writes out what the engine keeps in memory after a load, once it ended. To be called twice a second; may block on the disk.
    pub fn rest(&self) -> Result<(), StorageError> {
        match &self.backend {
            Backend::Memory(_) => Ok(()),
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(_) => Ok(()),
            Backend::File(files) => files.states.rest().and_then(|()| files.logs.rest()),
        }
    }

    /// Bytes of the tables of all logs on the disk, without journals.
    pub fn log_table_bytes(&self) -> u64 {
        match &self.backend {
            Backend::Memory(_) => 0,
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(_) => 0,
            Backend::File(files) => files.logs.table_bytes(),
        }
    }

    /// How long flushes of the log took, seconds.
    pub fn flush_seconds(&self) -> Tally {
        self.health.flush_seconds()
    }

    /// Bytes on the disk that the logs and the states take, with what was not given back yet; 0 where there is no disk.
    pub fn disk_bytes(&self) -> (u64, u64) {
        match &self.backend {
            Backend::Memory(_) => (0, 0),
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(_) => (0, 0),
            Backend::File(files) => (files.logs.disk_bytes(), files.states.disk_bytes()),
        }
    }

    /// Takes nothing any more: what should be here is not.
    pub fn stop(&self, why: String) {
        self.health.poison(&StorageError::Engine(why));
    }

    pub fn stats(&self) -> StorageStats {
        self.health.stats()
    }

    fn change_identity<R>(
        &self,
        change: impl FnOnce(&mut Identity, &Path) -> Result<R, StorageError>,
    ) -> Result<R, StorageError> {
        self.change_stored(|stored, path| change(&mut stored.identity, path))
    }

    fn change_stored<R>(&self, change: impl FnOnce(&mut Stored, &Path) -> Result<R, StorageError>) -> Result<R, StorageError> {
        let mut current = self.identity.lock();
        let mut changed = current.clone();
        let result = match &self.backend {
            Backend::Memory(_) => change(&mut changed, Path::new("in-memory"))?,
            #[cfg(any(test, feature = "sim"))]
            Backend::Simulated(disk) => {
                let result = change(&mut changed, Path::new("simulated"))?;
                write_simulated(disk.as_ref(), &changed)?;
                result
            }
            Backend::File(files) => {
                let result = change(&mut changed, files.identity.path())?;
                if changed != *current {
                    files.identity.write(&changed)?;
                }
                result
            }
        };
        *current = changed;
        Ok(result)
    }

    /// Bytes that the logs and the states have in memtables.
    #[cfg(test)]
    pub(super) fn memtable_bytes(&self) -> (u64, u64) {
        match &self.backend {
            Backend::File(files) => (files.logs.memtable_bytes(), files.states.memtable_bytes()),
            Backend::Memory(_) | Backend::Simulated(_) => (0, 0),
        }
    }

    #[cfg(test)]
    pub(super) fn fail_next_state_flush(&self) {
        if let Backend::File(files) = &self.backend {
            files.states.fail_next_sync();
        }
    }

    #[cfg(test)]
    pub(super) fn fail_next_log_write(&self) {
        if let Backend::File(files) = &self.backend {
            files.logs.fail_next_write();
        }
    }
}

impl Files {
    fn open(
        path: &Path,
        node_name: &str,
        shards: ShardCount,
        now_ms: u64,
        health: &Arc<Health>,
    ) -> Result<(Self, Stored), StorageError> {
        let directory = Directory::claim(path)?;
        let file = IdentityFile::in_directory(path);
        let mut stored = match file.read()? {
            Some(stored) => {
                let stored = with_shards(stored, shards, path, &file)?;
                check_owner(file.path(), &stored.identity, node_name, shards)?;
                if stored.left {
                    let cluster = stored.identity.cluster_id.unwrap_or_default();
                    return Err(StorageError::Left { path: path.to_owned(), node: stored.identity.node_name, cluster });
                }
                stored
            }
            None if directory.raft().exists() || directory.state().exists() => {
                return Err(StorageError::damaged(file.path(), "byte 0", "it is missing beside stored data"));
            }
            None => {
                let stored = new_identity(node_name, shards.of_new_data(), 0);
                file.write(&stored)?;
                stored
            }
        };
        let (initialised, closed_at) = (stored.initialised, stored.closed_at);
        let marked = if stored.marked { read_mark(path)? } else { None };
        let groups = stored.identity.shards.saturating_add(1);
        let logs = FileLogs::open(path, groups, initialised, closed_at.map(|at| at.log), marked, health.clone())?;
        let states = FileStates::open(directory.state(), groups, initialised, closed_at.map(|at| at.state), health.clone())?;
        stored.identity.incarnation = next_incarnation(&stored.identity, now_ms);
        stored = Stored { initialised: true, closed_at: None, marked: true, ..stored };
        file.write(&stored)?;
        states.delete_abandoned()?;
        Ok((Self { logs, states, identity: file, _directory: directory }, stored))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.close();
    }
}

impl Storage {
    /// Writes what is pending and notes that the directory was closed cleanly. Handles refuse everything from now on. The drop does the same, but
    /// a process that ends does not drop what its threads hold.
    pub fn close(&self) {
        let Backend::File(files) = &self.backend else { return };
        let (log, state) = (files.logs.close(), files.states.close());
        let (Some(log), Some(state)) = (log, state) else { return };
        let mut stored = self.identity.lock();
        stored.closed_at = Some(ClosedAt { log, state });
        if let Err(error) = files.identity.write(&stored) {
            tracing::warn!(%error, "the next start cannot tell that the storage was closed cleanly");
        }
    }
}

/// How far the log was flushed, where that must be written.
pub(super) fn read_mark(path: &Path) -> Result<Option<u64>, StorageError> {
    let missing = || StorageError::damaged(&path.join(flushed_mark::FILE_NAME), "byte 0", "it is missing");
    FlushedMark::read(path)?.ok_or_else(missing).map(Some)
}

#[cfg(any(test, feature = "sim"))]
fn write_simulated(disk: &dyn SimulatedDisk, stored: &Stored) -> Result<(), StorageError> {
    disk.write_identity(serde_json::to_vec(stored).map_err(|error| StorageError::Engine(error.to_string()))?)
}

fn new_identity(node_name: &str, shards: u16, incarnation: u64) -> Stored {
    let identity = Identity { node_name: node_name.to_owned(), cluster_id: None, shards, incarnation, promised_to: None };
    let (voting, others) = (Vec::new(), None);
    Stored { identity, initialised: false, voteless: false, voting, others, left: false, closed_at: None, marked: false }
}

fn next_incarnation(identity: &Identity, now_ms: u64) -> u64 {
    identity.incarnation.saturating_add(1).max(now_ms)
}

/// A node that was in no cluster, and promised itself to nobody, has nothing in any shard: it takes another number of them. So one that was refused
/// for its number can do as it was told.
fn with_shards(stored: Stored, shards: ShardCount, path: &Path, file: &IdentityFile) -> Result<Stored, StorageError> {
    let Identity { node_name, cluster_id, shards: found, incarnation, promised_to } = &stored.identity;
    let ShardCount::Exactly(wanted) = shards else { return Ok(stored) };
    if *found == wanted || cluster_id.is_some() || promised_to.is_some() || stored.left {
        return Ok(stored);
    }
    if stored.marked && read_mark(path)? != Some(0) {
        // Something was written all the same.
        return Ok(stored);
    }
    // Not initialised: the databases are made anew.
    let anew = new_identity(node_name, wanted, *incarnation);
    file.write(&anew)?;
    tracing::info!(from = found, to = wanted, "a node that was in no cluster yet has another number of shards");
    Ok(anew)
}

fn check_owner(path: &Path, found: &Identity, node_name: &str, shards: ShardCount) -> Result<(), StorageError> {
    if found.node_name != node_name {
        return Err(wrong_owner(path, "node", &found.node_name, node_name));
    }
    match shards {
        ShardCount::Exactly(shards) if found.shards != shards => {
            Err(wrong_owner(path, "a cluster with shard count", &found.shards.to_string(), &shards.to_string()))
        }
        ShardCount::Exactly(_) | ShardCount::StoredOr(_) => Ok(()),
    }
}

fn wrong_owner(path: &Path, what: &str, found: &str, expected: &str) -> StorageError {
    StorageError::WrongOwner { path: path.to_owned(), found: format!("{what} {found}"), expected: format!("{what} {expected}") }
}

fn no_group(group: u16) -> StorageError {
    StorageError::Engine(format!("there is no group {group}"))
}
