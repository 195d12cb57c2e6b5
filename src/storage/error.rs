//! What can go wrong with the data directory.

use std::path::PathBuf;

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
    #[error("data directory {path} is used by another process (pid file {lock}); stop it or use another --data directory")]
    Locked { path: PathBuf, lock: PathBuf },
    #[error("{file} is damaged at {offset}: {what}")]
    Damaged { file: PathBuf, offset: String, what: String },
    #[error("storage stopped after a failed write: {0}")]
    Poisoned(String),
    #[error("storage: {0}")]
    Engine(String),
}
