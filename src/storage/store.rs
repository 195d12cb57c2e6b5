//! The data directory as a whole: skeleton of its interface.

use std::path::Path;
use std::sync::Arc;

use super::{Identity, LogStore, StateStore, StorageError};

/// `persistence/mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    File,
    InMemory,
}

/// An open data directory.
pub struct Storage {}

impl Storage {
    /// Opens or creates the directory for a node of that name; `now_ms` seeds the incarnation. Refuses a directory of another node, of
    /// another shard count, of a newer format, or in use.
    pub fn open(_path: &Path, _mode: Mode, _node_name: &str, _shards: u16, _now_ms: u64) -> Result<Self, StorageError> {
        Err(StorageError::Engine("not built yet".into()))
    }

    pub fn identity(&self) -> Identity {
        Identity { node_name: String::new(), cluster_id: None, shards: 0, incarnation: 0, promised_to: None }
    }

    /// Durable on return. A cluster id, once set, cannot be changed.
    pub fn set_cluster_id(&self, _cluster_id: &str) -> Result<(), StorageError> {
        Ok(())
    }

    /// Durable on return.
    pub fn set_promise(&self, _founder: Option<&str>) -> Result<(), StorageError> {
        Ok(())
    }

    /// A newer incarnation for a process that was declared dead while it lives.
    pub fn renew_incarnation(&self, _now_ms: u64) -> Result<u64, StorageError> {
        Ok(0)
    }

    /// Group 0 is `meta`, group `1 + k` is shard `k`.
    pub fn log(&self, _group: u16) -> Result<Arc<dyn LogStore>, StorageError> {
        Err(StorageError::Engine("not built yet".into()))
    }

    pub fn state(&self, _group: u16) -> Result<Arc<dyn StateStore>, StorageError> {
        Err(StorageError::Engine("not built yet".into()))
    }
}
