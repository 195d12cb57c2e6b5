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
    _inner: Arc<()>,
}

impl Cluster {
    /// Starts peer transport, founding or joining, and all groups. Returns at once; `status().ready` tells when clients may come.
    pub async fn start(_settings: ClusterSettings, _storage: Arc<Storage>, _hooks: Arc<dyn Hooks>) -> Result<Self, ClusterError> {
        Err(ClusterError::Stopped)
    }

    pub fn node(&self) -> NodeId {
        0
    }

    /// The incarnation connections are to be registered with now.
    pub fn incarnation(&self) -> Incarnation {
        0
    }

    pub fn shards(&self) -> u16 {
        0
    }

    /// Submits a command; resolves when this node's own replica has applied it. Survives a change of leader; exactly once.
    /// Waits at most some seconds for a leader, then `Unavailable`.
    pub fn submit(
        &self,
        _shard: ShardId,
        _command: Command,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + 'static {
        async { Err(SubmitError::Unavailable) }
    }

    /// Submits without waiting: acknowledgements of deliveries.
    pub fn submit_nowait(&self, _shard: ShardId, _command: Command) -> Result<(), SubmitError> {
        Err(SubmitError::Unavailable)
    }

    /// Reads this node's replica of a shard; keep it short.
    pub fn read<R>(&self, _shard: ShardId, _f: impl FnOnce(&State) -> R) -> Option<R> {
        None
    }

    /// Whether this node leads the shard now.
    pub fn leads(&self, _shard: ShardId) -> bool {
        false
    }

    pub fn leader(&self, _shard: ShardId) -> Option<NodeId> {
        None
    }

    /// Sends to a peer, in order; false where the link is down or its buffer full.
    #[must_use]
    pub fn send(&self, _node: NodeId, _message: PeerMessage) -> bool {
        false
    }

    /// The other nodes that are alive.
    pub fn peers(&self) -> Vec<NodeId> {
        Vec::new()
    }

    pub fn status(&self) -> ClusterStatus {
        ClusterStatus::default()
    }

    /// Hands leadership over, flushes, closes. Does not leave the cluster.
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
