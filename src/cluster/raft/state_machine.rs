//! openraft's state machine over a `Machine` (a shard or `meta`) and its `storage::StateStore`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;
use openraft::{EntryPayload, OptionalSend};
use serde::{Deserialize, Serialize};

use crate::cluster::blocking::blocking;
use crate::storage::state::{Changes, Incoming};
use crate::storage::{StateStore, StorageError};

use super::codec::{decode, encode};
use super::log_store::RaftLog;
use super::snapshot::{ChunkReader, SnapshotBuilder, SnapshotData};
use super::type_config::{LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig};

/// Entries applied before they are written and told: bounds a batch while a replica catches up.
const APPLY_ENTRIES_MAX: usize = 64;
/// The same in bytes of parts of large payloads, which are written as they are.
const APPLY_PART_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a group replicates. Called by one task at a time.
pub trait Machine: Send + Sync + 'static {
    /// Applies an entry; what it tells is held back until `publish`.
    fn apply(&self, index: u64, payload: &Payload);
    /// Records changed since the last call; an error where what was applied must not be written.
    fn take_changes(&self) -> io::Result<Changes>;
    /// The changes are written: tells what the entries applied since the last call said.
    fn publish(&self);
    /// Has a received state take the place of the present one, and tells. It is loaded beside the present state, which is served until then.
    /// Blocks on the disk.
    fn install(&self, incoming: &mut dyn Incoming, applied: Vec<u8>) -> io::Result<()>;
}

/// What is stored in one batch with the state: how far it is applied, and the membership by then.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AppliedMarker {
    pub log_id: Option<LogId>,
    pub membership: StoredMembership,
}

/// One group's state machine.
pub struct StateMachine {
    machine: Arc<dyn Machine>,
    store: Arc<dyn StateStore>,
    applied: AppliedMarker,
    /// False until openraft has read its initial state: until then it asks only what the snapshot covers.
    serving: Arc<AtomicBool>,
}

impl StateMachine {
    /// Takes over a machine that was loaded from `store`. What is stored is flushed, so it counts as a snapshot.
    pub async fn new(machine: Arc<dyn Machine>, store: Arc<dyn StateStore>, serving: Arc<AtomicBool>) -> io::Result<Self> {
        let applied = match store.applied().map_err(io::Error::other)? {
            Some(bytes) => decode(&bytes)?,
            None => AppliedMarker::default(),
        };
        let flushed = Arc::clone(&store);
        blocking(move || flushed.flush()).await?.map_err(io::Error::other)?;
        Ok(Self { machine, store, applied, serving })
    }

    /// Refuses a state that ends before the log begins: entries between are on no disk here. The log is purged only behind what the state has
    /// flushed, so the state was damaged.
    pub fn check_meets(&self, log: &RaftLog) -> io::Result<()> {
        let (purged, applied) = (log.purged()?, self.applied.log_id);
        if purged.is_none_or(|purged| applied.is_some_and(|applied| applied.index() >= purged.index())) {
            return Ok(());
        }
        let end = |id: Option<LogId>| id.map_or_else(|| "nothing".to_owned(), |id| format!("entry {}", id.index()));
        let what = format!("holds {} and the log begins behind {}", end(applied), end(purged));
        Err(io::Error::other(StorageError::Damaged { file: "state".into(), offset: "its end".to_owned(), what }))
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied.log_id, last_membership: self.applied.membership.clone() }
    }

    fn write(&self) -> io::Result<()> {
        let changes = self.machine.take_changes()?;
        self.store.write(changes, encode(&self.applied)?).map_err(io::Error::other)?;
        self.machine.publish();
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.applied.log_id, self.applied.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut responders = Vec::new();
        let (mut unwritten, mut part_bytes) = (0, 0);
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let log_id = entry.log_id();
            match &entry.payload {
                EntryPayload::Blank => {}
                EntryPayload::Normal(payload) => {
                    part_bytes += payload.part_bytes();
                    self.machine.apply(log_id.index(), payload);
                }
                EntryPayload::Membership(membership) => {
                    self.applied.membership = StoredMembership::new(Some(log_id), membership.clone());
                }
            }
            self.applied.log_id = Some(log_id);
            responders.extend(responder);
            unwritten += 1;
            if unwritten == APPLY_ENTRIES_MAX || part_bytes >= APPLY_PART_BYTES_MAX {
                self.write()?;
                (unwritten, part_bytes) = (0, 0);
                responders.drain(..).for_each(|responder| responder.send(()));
            }
        }
        if unwritten > 0 {
            self.write()?;
        }
        responders.into_iter().for_each(|responder| responder.send(()));
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder { store: Arc::clone(&self.store), meta: self.meta() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> Result<(), io::Error> {
        let applied = AppliedMarker { log_id: meta.last_log_id, membership: meta.last_membership.clone() };
        let marker = encode(&applied)?;
        let SnapshotData::Received(mut received) = snapshot else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a snapshot that was not received"));
        };
        let machine = Arc::clone(&self.machine);
        // The drop of what was received deletes the generation before: with it on the thread that may block.
        blocking(move || machine.install(received.incoming(), marker)).await??;
        self.applied = applied;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<TypeConfig, SnapshotData>>, io::Error> {
        if self.applied.log_id.is_none() {
            return Ok(None);
        }
        // Everything applied is in the store: `apply` returns only then.
        let snapshot = if self.serving.load(Ordering::Acquire) {
            SnapshotData::Reading(ChunkReader::open(Arc::clone(&self.store)).await)
        } else {
            SnapshotData::MetaOnly
        };
        Ok(Some(openraft::Snapshot { meta: self.meta(), snapshot }))
    }
}
