//! A shard on this node: its state, what applying it tells, and the way in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::replica::event::Applied;
use crate::replica::{Command, Incarnation, NodeId, Proposal, ReadError, ShardId, State, StoredRecords, Unwritten};
use crate::storage::state::{Changes, Incoming, Reads};
use crate::storage::{StateStore, StorageError};
use crate::telemetry::rate_limited::RateLimited;
use crate::warn_limited;

use super::Hooks;
use super::raft::Payload;
use super::raft::state_machine::Machine;
use super::shard_clock::ShardClock;
use super::submit::Submitter;
use super::visibility::Visibility;

/// Warnings of queues that fill up.
static NEARLY_FULL: RateLimited = RateLimited::new(Duration::from_secs(10));

/// One shard's replica.
pub struct Shard {
    pub id: ShardId,
    node: NodeId,
    pub state: RwLock<State>,
    pub submitter: Arc<Submitter>,
    pub clock: Arc<ShardClock>,
    /// What was applied and is not told yet.
    untold: Mutex<Untold>,
    leads: AtomicBool,
    hooks: Arc<dyn Hooks>,
    visibility: Arc<Visibility>,
    disk: Disk,
}

/// Where queued messages are read from, and how many of them may be in memory as well.
struct Disk {
    store: Arc<dyn StateStore>,
    resident_bytes_max: usize,
}

/// The records of one state. A read that fails stops the storage.
struct Records {
    store: Arc<dyn StateStore>,
    /// Where a received state is until it takes the place of the one before.
    incoming: Option<Arc<dyn Reads>>,
    installed: AtomicBool,
}

impl Records {
    fn reads(&self) -> &dyn Reads {
        match &self.incoming {
            Some(incoming) if !self.installed.load(Ordering::Acquire) => incoming.as_ref(),
            Some(_) | None => self.store.as_ref(),
        }
    }
}

impl StoredRecords for Records {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        self.reads().get(key).map_err(|error| ReadError(error.to_string()))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), ReadError> {
        self.reads().range(first, last, visit).map_err(|error| ReadError(error.to_string()))
    }
}

/// What entries told, and to whom they matter.
#[derive(Default)]
struct Untold {
    applied: Applied,
    /// Of the last of them.
    index: u64,
    /// Other nodes that acknowledge something of them to clients once it is effective here.
    origins: Vec<NodeId>,
}

impl Untold {
    fn add_origins(&mut self, proposal: &Proposal, own: NodeId) {
        for batch in &proposal.batches {
            let waits = || batch.commands.iter().any(Command::is_acknowledged_as_effective);
            if batch.node != own && !self.origins.contains(&batch.node) && waits() {
                self.origins.push(batch.node);
            }
        }
    }
}

impl Shard {
    /// Loads the stored state and tells that it is there. Of queued messages that are in `store`, at most `resident_bytes_max` bytes are kept in
    /// memory later on.
    pub fn load(
        id: ShardId,
        node: NodeId,
        incarnation: Incarnation,
        store: Arc<dyn StateStore>,
        resident_bytes_max: usize,
        hooks: Arc<dyn Hooks>,
        visibility: Arc<Visibility>,
    ) -> Result<Arc<Self>, StorageError> {
        let records = Records { store: Arc::clone(&store), incoming: None, installed: true.into() };
        let mut state = State::over(id, Arc::new(records), resident_bytes_max);
        store.load(&mut |key, value| state.load(key, value).map_err(|error| StorageError::Engine(error.to_string())))?;
        state.finish_load();
        if let Some(error) = state.failure() {
            return Err(StorageError::Engine(error.to_string()));
        }
        hooks.shard_loaded(id, &state);
        let clock = Arc::new(ShardClock::default());
        clock.follow(state.last_at_ms());
        Ok(Arc::new(Self {
            id,
            node,
            state: RwLock::new(state),
            submitter: Arc::new(Submitter::new(id, node, incarnation)),
            clock,
            untold: Mutex::default(),
            leads: AtomicBool::new(false),
            hooks,
            visibility,
            disk: Disk { store, resident_bytes_max },
        }))
    }

    /// Reads the state; `None` once it lacks something because the disk could not be read. (The node is about to end.)
    pub fn read<R>(&self, f: impl FnOnce(&State) -> R) -> Option<R> {
        let state = self.state.read();
        state.failure().is_none().then(|| f(&state))
    }

    pub fn set_leads(&self, leads: bool) {
        self.leads.store(leads, Ordering::Release);
        self.hooks.leadership(self.id, leads);
    }

    pub fn leads(&self) -> bool {
        self.leads.load(Ordering::Acquire)
    }
}

impl Machine for Shard {
    fn apply(&self, index: u64, payload: &Payload) {
        let Payload::Shard(proposal) = payload else {
            tracing::error!(index, shard = self.id.0, "an entry of another group is ignored");
            return;
        };
        let mut applied = self.state.write().apply(index, proposal);
        self.clock.follow(proposal.at_ms);
        let mut untold = self.untold.lock();
        untold.applied.answers.append(&mut applied.answers);
        untold.applied.events.append(&mut applied.events);
        untold.index = index;
        untold.add_origins(proposal, self.node);
    }

    fn take_changes(&self) -> io::Result<Changes> {
        let mut state = self.state.write();
        whole(&state)?;
        Ok(state.take_changes())
    }

    fn written(&self) {
        self.state.write().written();
    }

    fn unwritten(&self) -> Unwritten {
        self.state.read().unwritten()
    }

    fn publish(&self) -> io::Result<()> {
        let filling = {
            let mut state = self.state.write();
            whole(&state)?;
            state.take_filling()
        };
        // All nodes see it; one tells.
        if let Some(owner) = filling.filter(|_| self.leads()) {
            warn_limited!(NEARLY_FULL, %owner, "a queue has reached 80 % of its limit; when it is full messages are dropped");
        }
        let Untold { applied: Applied { answers, events }, index, origins } = std::mem::take(&mut *self.untold.lock());
        if !events.is_empty() {
            self.hooks.applied(self.id, &events, self.leads());
        }
        self.visibility.applied_here(self.id, index, &origins);
        self.submitter.complete(answers, |node, incarnation| self.state.read().applied_seq(node, incarnation));
        Ok(())
    }

    fn install(&self, incoming: &mut dyn Incoming, applied: Vec<u8>) -> io::Result<()> {
        let records =
            Arc::new(Records { store: Arc::clone(&self.disk.store), incoming: Some(incoming.reads()), installed: false.into() });
        let mut state = State::over(self.id, Arc::clone(&records) as Arc<dyn StoredRecords>, self.disk.resident_bytes_max);
        let load =
            &mut |key: &[u8], value: &[u8]| state.load(key, value).map_err(|error| StorageError::Engine(error.to_string()));
        incoming.load(load).map_err(io::Error::other)?;
        state.finish_load();
        whole(&state)?;
        incoming.flush().map_err(io::Error::other)?;
        let mut present = self.state.write();
        // Under the lock: whoever looks into the store while he reads the state finds that state's records.
        incoming.make_current(applied).map_err(io::Error::other)?;
        records.installed.store(true, Ordering::Release);
        *present = state;
        // Readers may look meanwhile; nobody but this task writes.
        let present = RwLockWriteGuard::downgrade(present);
        self.clock.follow(present.last_at_ms());
        self.hooks.shard_loaded(self.id, &present);
        drop(present);
        self.publish()
    }
}

/// What was applied without a message it needed must not get out: the group stops.
fn whole(state: &State) -> io::Result<()> {
    state.failure().map_or(Ok(()), |error| Err(io::Error::other(error.clone())))
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod tests;
