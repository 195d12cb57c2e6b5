//! The way back of a node whose data is damaged: what it has is set aside, and its peers fill it again.
//!
//! The node stays who it is (name, cluster, number of shards), so that it needs no new place in the cluster, and it is marked: a node that
//! forgot what it had acknowledged must not help elect a leader that never had it. `cluster::membership` gives it its votes back once it
//! holds what its leaders had committed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::directory::Directory;
use super::file_log;
use super::identity::{FILE_NAME, IdentityFile, Stored};
use super::{Identity, StorageError, flushed_mark};

/// What a recovery does, or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Where the data goes; a folder inside the data directory.
    pub aside: PathBuf,
    /// Names of what goes there.
    pub moved: Vec<String>,
    /// Who the node goes on being. `None`: the file that says so cannot be read and goes aside as well.
    pub identity: Option<Identity>,
    /// Why not.
    pub identity_fault: Option<String>,
    /// The names of the other members, as the node knew them last. `None`: not known.
    pub others: Option<Vec<String>>,
}

/// What becomes of who the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// It stays in its cluster, whose other nodes fill it again.
    Stays,
    /// It is a new node afterwards.
    IsNew,
}

impl Recovery {
    /// Nobody could fill the node again: it is a cluster of its own.
    pub fn is_alone(&self) -> bool {
        let in_cluster = self.identity.as_ref().is_some_and(|identity| identity.cluster_id.is_some());
        in_cluster && self.others.as_ref().is_some_and(Vec::is_empty)
    }
}

/// Says what `run` would do, and does nothing. Refuses a directory in use, and one of a newer format.
pub fn plan(path: &Path, who: Who, now_ms: u64) -> Result<Recovery, StorageError> {
    let _directory = Directory::inspect_node(path)?;
    Ok(planned(path, who, now_ms)?.0)
}

/// Sets the data aside and marks the node. Deletes nothing. Interrupted, it is run again.
pub fn run(path: &Path, who: Who, now_ms: u64) -> Result<Recovery, StorageError> {
    // Not to be created here.
    drop(Directory::inspect_node(path)?);
    let _directory = Directory::claim(path)?;
    let (recovery, stored) = planned(path, who, now_ms)?;
    let io = |error| StorageError::io(path, error);
    if !recovery.moved.is_empty() {
        fs::create_dir(&recovery.aside).map_err(io)?;
    }
    // First the data, then the mark: a directory that says it is empty is emptied at a start.
    for name in &recovery.moved {
        fs::rename(path.join(name), recovery.aside.join(name)).map_err(io)?;
    }
    if !recovery.moved.is_empty() {
        if stored.is_some() && who == Who::Stays {
            // With it, all that is in there moved back is the directory as it was.
            fs::copy(path.join(FILE_NAME), recovery.aside.join(FILE_NAME)).map_err(io)?;
        }
        File::open(&recovery.aside).and_then(|dir| dir.sync_all()).map_err(io)?;
    }
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io)?;
    if let (Some(stored), Who::Stays) = (stored, who) {
        let voteless = stored.identity.cluster_id.is_some();
        // A promise was for the founding of that cluster, and would give it a vote.
        let promised_to = stored.identity.promised_to.filter(|_| !voteless);
        let identity = Identity { promised_to, ..stored.identity };
        let emptied = Stored {
            identity,
            initialised: false,
            voteless,
            voting: Vec::new(),
            others: stored.others,
            left: stored.left,
            closed_at: None,
            marked: false,
        };
        IdentityFile::in_directory(path).write(&emptied)?;
    }
    Ok(recovery)
}

fn planned(path: &Path, who: Who, now_ms: u64) -> Result<(Recovery, Option<Stored>), StorageError> {
    let (stored, identity_fault) = match IdentityFile::in_directory(path).read() {
        Ok(Some(stored)) => (Some(stored), None),
        Ok(None) => (None, Some("it is missing".to_owned())),
        Err(StorageError::Damaged { what, .. }) => (None, Some(what)),
        Err(other) => return Err(other),
    };
    let mut names = vec![file_log::DIRECTORY, "state", flushed_mark::FILE_NAME];
    if stored.is_none() || who == Who::IsNew {
        names.push(FILE_NAME);
    }
    let moved = names.into_iter().filter(|name| path.join(name).exists()).map(str::to_owned).collect();
    let identity = stored.as_ref().map(|stored| stored.identity.clone());
    let others = stored.as_ref().and_then(|stored| stored.others.clone());
    Ok((Recovery { aside: path.join(format!("set-aside-{now_ms}")), moved, identity, identity_fault, others }, stored))
}

#[cfg(test)]
#[path = "recover_test.rs"]
mod tests;
