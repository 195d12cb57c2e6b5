//! Snapshots: the stored state itself is the snapshot, so building one is flushing it.
//!
//! The records are copied into memory only while they are sent to a peer whose log is too far behind. (A full copy for now: a reader on
//! a snapshot of the store would send it in bounded memory.)

use std::io;
use std::sync::Arc;

use openraft::storage::RaftSnapshotBuilder;
use openraft::type_config::alias::SnapshotOf;

use crate::replica::state::Record;
use crate::storage::StateStore;

use super::type_config::{SnapshotMeta, TypeConfig};

/// A whole state on its way to a peer; empty where openraft asks only for what the snapshot covers.
#[derive(Debug, Clone, Default)]
pub struct SnapshotData {
    pub records: Arc<Vec<Record>>,
}

/// Makes what was applied until now durable, so that the log behind it may go.
pub struct SnapshotBuilder {
    pub store: Arc<dyn StateStore>,
    /// What was applied, and written to the store, when the builder was made.
    pub meta: SnapshotMeta,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, SnapshotData>, io::Error> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.flush()).await?.map_err(io::Error::other)?;
        Ok(openraft::Snapshot { meta: self.meta.clone(), snapshot: SnapshotData::default() })
    }
}
