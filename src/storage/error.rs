//! What can go wrong with the data directory.

use std::path::{Path, PathBuf};

/// What to do about damage.
pub(super) const WAY_OUT: &str =
    " (`troupemq storage check` tells all that is, `troupemq storage recover` has the other nodes fill this one again)";

/// Errors name the file or directory and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("cannot use data directory {path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("data directory {path} has format version {found}, this program reads up to {known}; start the newer program")]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    #[error(
        "data directory {path} belongs to {found}, not to {expected}; use another --data directory or restore the configuration"
    )]
    WrongOwner { path: PathBuf, found: String, expected: String },
    #[error(
        "node {node} left cluster {cluster} for good, and its data directory {path} with it; to join anew, or to found another cluster, start \
         the node with an empty --data directory"
    )]
    Left { path: PathBuf, node: String, cluster: String },
    #[error("{path} is no data directory of a node: there is nothing of one in it; name the right one with --data")]
    NotANode { path: PathBuf },
    #[error("data directory {path} is used by process {pid} (pid file {lock}); stop it or use another --data directory")]
    Locked { path: PathBuf, lock: PathBuf, pid: String },
    #[error("{file} is damaged at {offset}: {what}{WAY_OUT}")]
    Damaged { file: PathBuf, offset: String, what: String },
    #[error("storage stopped after a failed write: {0}")]
    Poisoned(String),
    #[error("storage: {0}")]
    Engine(String),
}

impl StorageError {
    pub(super) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(super) fn damaged(file: &Path, offset: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset: offset.into(), what: what.into() }
    }

    /// Maps an error of the engine that came up while `doing` (a place such as `group 3 index 17`) in the database at `dir`.
    pub(super) fn engine(dir: &Path, doing: &str, error: fjall::Error) -> Self {
        use fjall::{Error, LsmError};
        match error {
            Error::Io(source) | Error::Storage(LsmError::Io(source)) => Self::io(dir, source),
            Error::Locked => Self::Locked { path: dir.to_owned(), lock: dir.join("lock"), pid: "unknown".into() },
            Error::Poisoned => Self::Poisoned(format!(
                "{}: {doing}: an earlier write failed in the background (is there room on the disk? {})",
                dir.display(),
                free(dir)
            )),
            Error::Storage(what) => Self::damaged(dir, doing, what.to_string()),
            Error::JournalRecovery(what) => Self::damaged(dir, doing, what.to_string()),
            Error::Unrecoverable => Self::damaged(dir, doing, "the engine cannot recover it"),
            Error::InvalidTrailer => Self::damaged(dir, doing, "a batch of a journal has no end"),
            Error::InvalidTag(_) => Self::damaged(dir, doing, "an entry of a journal is of no known kind"),
            Error::InvalidVersion(_) => Self::damaged(dir, doing, "the engine's format version is missing, or none it knows"),
            other => Self::Engine(format!("{}: {doing}: {other:?}", dir.display())),
        }
    }
}

/// The room there is where the directory lies, for the engine does not say why it failed.
fn free(dir: &Path) -> String {
    match rustix::fs::statvfs(dir) {
        Ok(found) => format!("{} KiB are free", found.f_bavail.saturating_mul(found.f_frsize) / 1024),
        Err(error) => error.to_string(),
    }
}
