//! A shard on this node: its state, what applying it tells, and the way in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};

use crate::replica::event::Applied;
use crate::replica::{Command, Incarnation, NodeId, Proposal, ShardId, State};
use crate::storage::state::{Changes, Incoming};
use crate::storage::{StateStore, StorageError};

use super::Hooks;
use super::raft::Payload;
use super::raft::state_machine::Machine;
use super::submit::Submitter;
use super::visibility::Visibility;

/// One shard's replica.
pub struct Shard {
    pub id: ShardId,
    node: NodeId,
    pub state: RwLock<State>,
    pub submitter: Arc<Submitter>,
    /// What was applied and is not told yet.
    untold: Mutex<Untold>,
    leads: AtomicBool,
    hooks: Arc<dyn Hooks>,
    visibility: Arc<Visibility>,
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
    /// Loads the stored state and tells that it is there.
    pub fn load(
        id: ShardId,
        node: NodeId,
        incarnation: Incarnation,
        store: &dyn StateStore,
        hooks: Arc<dyn Hooks>,
        visibility: Arc<Visibility>,
    ) -> Result<Arc<Self>, StorageError> {
        let mut state = State::new(id);
        store.load(&mut |key, value| state.load(key, value).map_err(|error| StorageError::Engine(error.to_string())))?;
        state.finish_load();
        hooks.shard_loaded(id, &state);
        Ok(Arc::new(Self {
            id,
            node,
            state: RwLock::new(state),
            submitter: Arc::new(Submitter::new(id, node, incarnation)),
            untold: Mutex::default(),
            leads: AtomicBool::new(false),
            hooks,
            visibility,
        }))
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
        let mut untold = self.untold.lock();
        untold.applied.answers.append(&mut applied.answers);
        untold.applied.events.append(&mut applied.events);
        untold.index = index;
        untold.add_origins(proposal, self.node);
    }

    fn take_changes(&self) -> Changes {
        self.state.write().take_changes()
    }

    fn publish(&self) {
        let Untold { applied: Applied { answers, events }, index, origins } = std::mem::take(&mut *self.untold.lock());
        if !events.is_empty() {
            self.hooks.applied(self.id, &events, self.leads());
        }
        self.visibility.applied_here(self.id, index, &origins);
        self.submitter.complete(answers, |node, incarnation| self.state.read().applied_seq(node, incarnation));
    }

    fn install(&self, incoming: &mut dyn Incoming, applied: Vec<u8>) -> io::Result<()> {
        let mut state = State::new(self.id);
        let load =
            &mut |key: &[u8], value: &[u8]| state.load(key, value).map_err(|error| StorageError::Engine(error.to_string()));
        incoming.load(load).map_err(io::Error::other)?;
        state.finish_load();
        incoming.flush().map_err(io::Error::other)?;
        let mut present = self.state.write();
        // Under the lock: whoever looks into the store while he reads the state finds that state's records.
        incoming.make_current(applied).map_err(io::Error::other)?;
        *present = state;
        // Readers may look meanwhile; nobody but this task writes.
        let present = RwLockWriteGuard::downgrade(present);
        self.hooks.shard_loaded(self.id, &present);
        drop(present);
        self.publish();
        Ok(())
    }
}
