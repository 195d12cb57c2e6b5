//! openraft's state machine over a `Machine` (a shard or `meta`) and its `storage::StateStore`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Stream, StreamExt};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::cluster::blocking::blocking;
use crate::replica::Unwritten;
use crate::storage::state::{Changes, Incoming};
use crate::storage::{StateStore, StorageError};

use super::codec::{decode, encode};
use super::log_store::RaftLog;
use super::snapshot::{ChunkReader, SnapshotBuilder, SnapshotData};
use super::type_config::{Entry, LogId, Payload, SnapshotMeta, StoredMembership, TypeConfig};

/// Entries applied before they are told: bounds a batch while a replica catches up.
const APPLY_ENTRIES_MAX: usize = 64;
/// Records that differ from those of the state, or bytes of the commands that changed them, before they are written at the latest. The log has
/// them, so nothing is lost by waiting, and what comes and goes meanwhile (an event of the outbox, a message that is acknowledged, a client
/// that stays for a moment) is never written. Until then it is in memory: more is waited for only where queued messages pass through.
pub const UNWRITTEN_RECORDS_MAX: usize = 256;
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;
/// The same where messages pass. Two thousand in flight through the queue of a shared subscription are as many records that are new and as many
/// that are gone. A write of so many takes some ten milliseconds, in which the group applies nothing.
const PASSING_RECORDS_MAX: usize = 4096;
const PASSING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Records, and KiB, that are waited for longer for each message that passed.
const FOR_EACH_PASSED: usize = 8;
const UNWRITTEN_COMMANDS_MAX: usize = 32 * 1024;

/// What a group replicates. `apply` and what writes are called by one thread at a time.
pub trait Machine: Send + Sync + 'static {
    /// Applies an entry; what it tells is held back until `publish`.
    fn apply(&self, index: u64, payload: &Payload);
    /// How much is changed and not written.
    fn unwritten(&self) -> Unwritten;
    /// Tells what the entries applied since the last call said; an error where it must not get out.
    fn publish(&self) -> io::Result<()>;
    /// Records changed since the last call; an error where what was applied must not be written.
    fn take_changes(&self) -> io::Result<Changes>;
    /// The changes are written, and nothing was applied since they were taken.
    fn written(&self);
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
    state: Arc<AppliedState>,
    /// False until openraft has read its initial state: until then it asks only what the snapshot covers.
    serving: Arc<AtomicBool>,
}

/// What is applied, and how much of it the store has.
pub struct AppliedState {
    machine: Arc<dyn Machine>,
    store: Arc<dyn StateStore>,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    applied: AppliedMarker,
    /// Something was applied that the store has not.
    is_ahead: bool,
    /// A write failed: its changes are taken, and a later one must not say that the store has them.
    has_failed: bool,
    commands: usize,
    bytes: usize,
}

impl Progress {
    fn is_far_ahead(&self, machine: &dyn Machine) -> bool {
        let Unwritten { records, passed } = machine.unwritten();
        let more = passed.saturating_mul(FOR_EACH_PASSED);
        records >= UNWRITTEN_RECORDS_MAX.saturating_add(more).min(PASSING_RECORDS_MAX)
            || self.bytes >= UNWRITTEN_BYTES_MAX.saturating_add(more.saturating_mul(1024)).min(PASSING_BYTES_MAX)
            || self.commands >= UNWRITTEN_COMMANDS_MAX
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied.log_id, last_membership: self.applied.membership.clone() }
    }
}

impl AppliedState {
    fn apply(&self, entry: &Entry) {
        let mut progress = self.progress.lock();
        let log_id = entry.log_id();
        match &entry.payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(payload) => {
                let (commands, bytes) = payload.weight();
                progress.commands += commands;
                progress.bytes += bytes;
                self.machine.apply(log_id.index(), payload);
            }
            EntryPayload::Membership(membership) => {
                progress.applied.membership = StoredMembership::new(Some(log_id), membership.clone());
            }
        }
        progress.applied.log_id = Some(log_id);
        progress.is_ahead = true;
    }

    /// Tells what was applied, once more than enough is unwritten after it is written.
    fn publish(&self) -> io::Result<()> {
        let mut progress = self.progress.lock();
        if progress.is_far_ahead(&*self.machine) || progress.has_failed {
            self.write_locked(&mut progress)?;
        }
        drop(progress);
        self.machine.publish()
    }

    /// Writes what was applied since the last write, with how far that is, in one batch. Nothing is applied meanwhile.
    pub fn write(&self) -> io::Result<SnapshotMeta> {
        let mut progress = self.progress.lock();
        self.write_locked(&mut progress)?;
        Ok(progress.meta())
    }

    fn write_locked(&self, progress: &mut Progress) -> io::Result<()> {
        if !progress.is_ahead {
            return Ok(());
        }
        if std::mem::replace(&mut progress.has_failed, true) {
            return Err(io::Error::other("an earlier write of the state failed"));
        }
        let changes = self.machine.take_changes()?;
        self.store.write(changes, encode(&progress.applied)?).map_err(io::Error::other)?;
        self.machine.written();
        *progress = Progress { applied: std::mem::take(&mut progress.applied), ..Progress::default() };
        Ok(())
    }

    fn is_far_ahead(&self) -> bool {
        self.progress.lock().is_far_ahead(&*self.machine)
    }

    fn meta(&self) -> SnapshotMeta {
        self.progress.lock().meta()
    }
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
        let progress = Mutex::new(Progress { applied, ..Progress::default() });
        Ok(Self { state: Arc::new(AppliedState { machine, store, progress }), serving })
    }

    /// To have it written now and then; openraft owns the rest.
    pub fn applied(&self) -> Arc<AppliedState> {
        Arc::clone(&self.state)
    }

    /// Refuses a state that ends before the log begins: entries between are on no disk here. The log is purged only behind what the state has
    /// flushed, so the state was damaged.
    pub fn check_meets(&self, log: &RaftLog) -> io::Result<()> {
        let (purged, applied) = (log.purged()?, self.state.progress.lock().applied.log_id);
        if purged.is_none_or(|purged| applied.is_some_and(|applied| applied.index() >= purged.index())) {
            return Ok(());
        }
        let end = |id: Option<LogId>| id.map_or_else(|| "nothing".to_owned(), |id| format!("entry {}", id.index()));
        let what = format!("holds {} and the log begins behind {}", end(applied), end(purged));
        Err(io::Error::other(StorageError::Damaged { file: "state".into(), offset: "its end".to_owned(), what }))
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let SnapshotMeta { last_log_id, last_membership, .. } = self.state.meta();
        Ok((last_log_id, last_membership))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        let mut responders = Vec::new();
        let mut untold = 0;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.state.apply(&entry);
            responders.extend(responder);
            untold += 1;
            if untold == APPLY_ENTRIES_MAX || self.state.is_far_ahead() {
                self.state.publish()?;
                untold = 0;
                responders.drain(..).for_each(|responder| responder.send(()));
            }
        }
        if untold > 0 {
            self.state.publish()?;
        }
        responders.into_iter().for_each(|responder| responder.send(()));
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder { store: Arc::clone(&self.state.store), written: Some(self.state.write()) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> Result<(), io::Error> {
        let applied = AppliedMarker { log_id: meta.last_log_id, membership: meta.last_membership.clone() };
        let marker = encode(&applied)?;
        let SnapshotData::Received(mut received) = snapshot else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a snapshot that was not received"));
        };
        let state = Arc::clone(&self.state);
        // The drop of what was received deletes the generation before: with it on the thread that may block.
        blocking(move || {
            let mut progress = state.progress.lock();
            state.machine.install(received.incoming(), marker)?;
            *progress = Progress { applied, ..Progress::default() };
            Ok(())
        })
        .await?
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<TypeConfig, SnapshotData>>, io::Error> {
        // This task applies nothing before it returns, so what is stored then is what `meta` says.
        let meta = self.state.write()?;
        if meta.last_log_id.is_none() {
            return Ok(None);
        }
        let snapshot = if self.serving.load(Ordering::Acquire) {
            SnapshotData::Reading(ChunkReader::open(Arc::clone(&self.state.store)).await)
        } else {
            SnapshotData::MetaOnly
        };
        Ok(Some(openraft::Snapshot { meta, snapshot }))
    }
}
