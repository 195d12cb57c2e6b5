//! The meta group's replica: who is a member, and which incarnations are alive.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::replica::meta::{Member, MetaState};
use crate::replica::state::Record;
use crate::replica::{Incarnation, NodeId};
use crate::storage::state::Changes;
use crate::storage::{StateStore, StorageError};

use super::raft::Payload;
use super::raft::codec::{decode, encode};
use super::raft::state_machine::Machine;

/// The one record the state is kept in.
const RECORD_KEY: &[u8] = b"meta";

/// The replicated state, and a bell for its changes.
pub struct Meta {
    state: RwLock<MetaState>,
    changed: watch::Sender<()>,
}

impl Meta {
    pub fn load(store: &dyn StateStore) -> Result<Arc<Self>, StorageError> {
        let mut state = MetaState::default();
        store.load(&mut |key, value| {
            if key == RECORD_KEY {
                state = decode(value).map_err(|error| StorageError::Engine(format!("meta: {error}")))?;
            }
            Ok(())
        })?;
        Ok(Arc::new(Self { state: RwLock::new(state), changed: watch::Sender::new(()) }))
    }

    /// Wakes after entries were applied.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub fn member(&self, node: NodeId) -> Option<Member> {
        self.state.read().members.get(&node).cloned()
    }

    pub fn members(&self) -> Vec<(NodeId, Member)> {
        self.state.read().members.iter().map(|(&node, member)| (node, member.clone())).collect()
    }

    /// Whether an incarnation is known to be over.
    pub fn is_dead(&self, node: NodeId, incarnation: Incarnation) -> bool {
        self.state
            .read()
            .members
            .get(&node)
            .is_some_and(|member| member.incarnation > incarnation || (member.incarnation == incarnation && !member.alive))
    }
}

impl Machine for Meta {
    fn apply(&self, index: u64, payload: &Payload) {
        let Payload::Meta(commands) = payload else {
            tracing::error!(index, "an entry of another group is ignored");
            return;
        };
        let mut state = self.state.write();
        for command in commands {
            for event in state.apply(command) {
                tracing::info!(?event, "membership");
            }
        }
    }

    fn take_changes(&self) -> io::Result<Changes> {
        Ok(match encode(&*self.state.read()) {
            Ok(value) => vec![(RECORD_KEY.to_vec(), Some(value))],
            Err(error) => {
                tracing::error!(%error, "the meta state cannot be encoded");
                Vec::new()
            }
        })
    }

    fn publish(&self) {
        self.changed.send_replace(());
    }

    fn replace(&self, records: &[Record]) -> io::Result<()> {
        let mut state = MetaState::default();
        for (key, value) in records {
            if key == RECORD_KEY {
                state = decode(value)?;
            }
        }
        *self.state.write() = state;
        self.publish();
        Ok(())
    }
}
