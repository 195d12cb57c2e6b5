//! The cluster as the rest of the process sees it: skeleton of its interface.

use std::future::Future;
use std::sync::Arc;

use crate::replica::event::Outcome;
use crate::replica::{Command, Incarnation, NodeId, ShardId, State};
use crate::storage::Storage;

use super::{ClusterSettings, Hooks, PeerMessage};

/// Why a command has no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// No majority in reach, or not a member yet: refuse with 0x88.
    #[error("the shard has no leader in reach")]
    Unavailable,
    /// Too much is waiting already: refuse with 0x89, or stop reading the client.
    #[error("too many commands wait for the shard")]
    Overloaded,
    /// Applied for sure or not at all, unknown which (a snapshot skipped the answer, or the incarnation was lost).
    #[error("the outcome of the command is unknown")]
    Unknown,
}

/// State of one Raft group on this node.
#[derive(Debug, Clone, Default)]
pub struct GroupStatus {
    /// `meta` or the shard number.
    pub name: String,
    pub leader: Option<NodeId>,
    pub term: u64,
    pub last_log_index: u64,
    pub applied_index: u64,
    pub snapshot_index: u64,
    pub voters: Vec<NodeId>,
}

/// State of the cluster as this node sees it.
#[derive(Debug, Clone, Default)]
pub struct ClusterStatus {
    pub node: NodeId,
    pub node_name: String,
    pub incarnation: Incarnation,
    pub cluster_id: Option<String>,
    /// (id, name, address, alive)
    pub members: Vec<(NodeId, String, String, bool)>,
    pub groups: Vec<GroupStatus>,
    /// Member, every group has a leader in reach, and this node has caught up: clients may come.
    pub ready: bool,
    /// What readiness waits for, in words, and since when (wall clock ms).
    pub waiting_for: Option<(String, u64)>,
}

/// The running cluster part of this node; clone freely.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    settings: ClusterSettings,
    incarnation: u64,
    shards: Vec<parking_lot::RwLock<(State, u64, u64)>>,
    hooks: Arc<dyn Hooks>,
}

impl Cluster {
    pub async fn start(settings: ClusterSettings, storage: Arc<Storage>, hooks: Arc<dyn Hooks>) -> Result<Self, ClusterError> {
        let shards = (0..settings.shards).map(|k| parking_lot::RwLock::new((State::new(ShardId(k)), 0, 0))).collect();
        for k in 0..settings.shards { hooks.leadership(ShardId(k), true); }
        Ok(Self { inner: Arc::new(Inner { settings, incarnation: storage.identity().incarnation, shards, hooks }) })
    }
    pub fn node(&self) -> NodeId { 1 }
    pub fn incarnation(&self) -> Incarnation { self.inner.incarnation }
    pub fn shards(&self) -> u16 { self.inner.settings.shards }
    pub fn is_ready(&self) -> bool { true }
    fn apply(&self, shard: ShardId, command: Command) -> Result<Outcome, SubmitError> {
        let mut guard = self.inner.shards[usize::from(shard.0)].write();
        guard.1 += 1;
        guard.2 += 1;
        let (index, seq) = (guard.1, guard.2);
        let proposal = crate::replica::Proposal { at_ms: std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64), batches: vec![crate::replica::Batch { node: 1, incarnation: self.inner.incarnation, first_seq: seq, commands: Arc::new(vec![command]) }] };
        let applied = guard.0.apply(index, &proposal);
        let _ = guard.0.take_changes();
        let due = guard.0.next_expiry_ms();
        drop(guard);
        self.inner.hooks.applied(shard, &applied.events, true);
        let _ = due;
        applied.answers.into_iter().next().map(|a| a.outcome).ok_or(SubmitError::Unknown)
    }
    pub fn submit(&self, shard: ShardId, command: Command) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + 'static {
        let outcome = self.apply(shard, command);
        async move { outcome }
    }
    pub fn submit_nowait(&self, shard: ShardId, command: Command) -> Result<(), SubmitError> { self.apply(shard, command).map(|_| ()) }
    pub fn read<R>(&self, shard: ShardId, f: impl FnOnce(&State) -> R) -> Option<R> { Some(f(&self.inner.shards.get(usize::from(shard.0))?.read().0)) }
    pub fn leads(&self, _shard: ShardId) -> bool { true }
    pub fn leader(&self, _shard: ShardId) -> Option<NodeId> { Some(1) }
    #[must_use]
    pub fn send(&self, _node: NodeId, _message: PeerMessage) -> bool { false }
    pub fn peers(&self) -> Vec<NodeId> { Vec::new() }
    pub fn status(&self) -> ClusterStatus { ClusterStatus { ready: true, node: 1, node_name: self.inner.settings.node_name.clone(), ..ClusterStatus::default() } }
    pub async fn shutdown(&self) {}
}

/// Why the cluster part cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cluster is stopped")]
    Stopped,
    #[error("cannot listen for peers on {address}: {source}")]
    Bind {
        address: std::net::SocketAddr,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Storage(#[from] crate::storage::StorageError),
    #[error("raft: {0}")]
    Raft(String),
}
