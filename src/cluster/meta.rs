//! The meta group's replica: who is a member, and which incarnations are alive.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;

use crate::replica::meta::{Member, MetaEvent, MetaState};
use crate::replica::{Incarnation, NodeId, Unwritten};
use crate::storage::state::{Changes, Incoming};
use crate::storage::{StateStore, StorageError};

use super::raft::Payload;
use super::raft::codec::{decode, encode};
use super::raft::state_machine::Machine;

/// The record the state is kept in.
const RECORD_KEY: &[u8] = b"meta";
/// That of the level, a u16, big endian.
const LEVEL_KEY: &[u8] = b"meta level";

/// The replicated state, and a bell for its changes.
pub struct Meta {
    state: RwLock<MetaState>,
    changed: watch::Sender<()>,
    /// What is applied happens now; else it is history, which a node reads that starts or is filled.
    follows: AtomicBool,
}

impl Meta {
    pub fn load(store: &dyn StateStore) -> Result<Arc<Self>, StorageError> {
        let state = read(&mut |visit| store.load(visit))?;
        Ok(Arc::new(Self { state: RwLock::new(state), changed: watch::Sender::new(()), follows: AtomicBool::new(false) }))
    }

    /// Whether the replica has all that is committed, as far as this node knows.
    pub fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
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

    /// The version that all members are known to speak; 0 where that was never written.
    pub fn level(&self) -> u16 {
        self.state.read().level
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

fn names(state: &MetaState) -> BTreeMap<NodeId, String> {
    state.members.iter().map(|(&id, member)| (id, member.name.clone())).collect()
}

/// For operators, unless it is history.
fn tell<'a>(event: &MetaEvent, name: impl Fn(NodeId) -> Option<&'a String>, is_news: bool) {
    let (id, what) = match event {
        MetaEvent::Up { node, .. } => (*node, "a member is up"),
        MetaEvent::Down { node, .. } => (*node, "a member is down"),
        MetaEvent::Removed { node } => (*node, "a member was removed"),
    };
    let node = name(id).cloned().unwrap_or_else(|| format!("{id:016x}"));
    if is_news {
        tracing::info!(node, "{what}");
    } else {
        tracing::debug!(node, "{what} (history)");
    }
}

impl Machine for Meta {
    fn apply(&self, index: u64, payload: &Payload) {
        let Payload::Meta(commands) = payload else {
            tracing::error!(index, "an entry of another group is ignored");
            return;
        };
        let is_news = self.follows.load(Ordering::Relaxed);
        let mut state = self.state.write();
        for command in commands {
            let names = names(&state);
            for event in state.apply(command) {
                tell(&event, |id| state.members.get(&id).map(|member| &member.name).or_else(|| names.get(&id)), is_news);
            }
        }
    }

    fn take_changes(&self) -> io::Result<Changes> {
        Ok(match encode(&*self.state.read()) {
            Ok(value) => {
                let level = self.level();
                let raised = (level > 0).then(|| (LEVEL_KEY.to_vec(), Some(level.to_be_bytes().to_vec())));
                [(RECORD_KEY.to_vec(), Some(value))].into_iter().chain(raised).collect()
            }
            Err(error) => {
                tracing::error!(%error, "the meta state cannot be encoded");
                Vec::new()
            }
        })
    }

    fn written(&self) {}

    /// All of it is one record, which changes seldom.
    fn unwritten(&self) -> Unwritten {
        Unwritten { records: 1, passed: 0 }
    }

    fn publish(&self) -> io::Result<()> {
        self.changed.send_replace(());
        Ok(())
    }

    fn install(&self, incoming: &mut dyn Incoming, applied: Vec<u8>) -> io::Result<()> {
        let state = read(&mut |visit| incoming.load(visit)).map_err(io::Error::other)?;
        incoming.flush().map_err(io::Error::other)?;
        let mut present = self.state.write();
        incoming.make_current(applied).map_err(io::Error::other)?;
        *present = state;
        drop(present);
        self.publish()
    }
}

/// Visits all records of a state.
type Load<'a> = dyn FnMut(&mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> + 'a;

/// The state that stored records hold. Keys it does not know are of a newer program.
fn read(load: &mut Load<'_>) -> Result<MetaState, StorageError> {
    let (mut state, mut level) = (MetaState::default(), 0);
    load(&mut |key, value| {
        if key == RECORD_KEY {
            state = decode(value).map_err(|error| StorageError::Engine(format!("meta: {error}")))?;
        } else if key == LEVEL_KEY {
            let bytes = value.try_into().map_err(|_| StorageError::Engine("meta: the level is no number".to_owned()))?;
            level = u16::from_be_bytes(bytes);
        }
        Ok(())
    })?;
    Ok(MetaState { level, ..state })
}
