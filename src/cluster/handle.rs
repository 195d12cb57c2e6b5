//! The cluster as the rest of the process sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;

use crate::plant::{Plant, is_planted};
use crate::replica::event::Outcome;
use crate::replica::{Command, Incarnation, NodeId, ShardId, State};
use crate::storage::Storage;

use super::clock::wall_ms;
use super::group::Group;
use super::node::Node;
use super::removal::{self, RemoveError};
use super::shard::Shard;
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
    /// (id, name, address, alive: by `meta`, and this node has a link to it)
    pub members: Vec<(NodeId, String, String, bool)>,
    pub groups: Vec<GroupStatus>,
    /// Member, every group has a leader in reach, and this node has caught up: clients may come.
    pub ready: bool,
    /// What readiness waits for, in words, and since when (wall clock ms).
    pub waiting_for: Option<(String, u64)>,
}

/// The running cluster part of this node; clone freely. When the last clone goes, everything stops, as in a crash.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.stop();
    }
}

/// How long shutdown waits for others to take leadership over.
const HAND_OVER: Duration = Duration::from_secs(2);

impl Cluster {
    /// Starts peer transport, founding or joining, and all groups. Returns at once; `status().ready` tells when clients may come.
    pub async fn start(settings: ClusterSettings, storage: Arc<Storage>, hooks: Arc<dyn Hooks>) -> Result<Self, ClusterError> {
        let node = Node::start(settings, storage, hooks).await?;
        Ok(Self { inner: Arc::new(Inner { node }) })
    }

    pub fn node(&self) -> NodeId {
        self.inner.node.id
    }

    /// The incarnation connections are to be registered with now.
    pub fn incarnation(&self) -> Incarnation {
        self.inner.node.incarnation()
    }

    pub fn shards(&self) -> u16 {
        self.inner.node.settings.shards
    }

    /// Submits a command; resolves when this node's own replica has applied it. Survives a change of leader; exactly once.
    /// Without a leader for 5 s it is refused at once; one that waits is answered after 10 s, with `Unavailable` if it was never sent,
    /// with `Unknown` if it may yet apply. After `Unknown` for a `Connect`, submit the `Disconnect` of that connection: commands of a
    /// node apply in the order it submitted them.
    pub fn submit(
        &self,
        shard: ShardId,
        command: Command,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + 'static {
        let submitted = match self.shard(shard) {
            Some((shard, group)) => shard.submitter.submit(command, &group.view()),
            None => Err(SubmitError::Unavailable),
        };
        async move { submitted?.await.unwrap_or(Err(SubmitError::Unknown)).map(|settled| settled.outcome) }
    }

    /// The same, but resolves only when the replicas of all nodes that serve clients have applied the command, as far as these are in touch
    /// (see `visibility`); only for commands that are acknowledged as effective.
    pub fn submit_everywhere(
        &self,
        shard: ShardId,
        command: Command,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + 'static {
        debug_assert!(command.is_acknowledged_as_effective(), "nobody would say that it is applied");
        let submitted = match self.shard(shard) {
            Some((shard, group)) => shard.submitter.submit(command, &group.view()),
            None => Err(SubmitError::Unavailable),
        };
        let visibility = Arc::clone(&self.inner.node.visibility);
        async move {
            let settled = submitted?.await.unwrap_or(Err(SubmitError::Unknown))?;
            if let Some(applied) = visibility.everywhere(shard, settled.index)
                && !is_planted(Plant::SubackNotVisible)
            {
                // An error is the end of this node.
                let _ = applied.await;
            }
            Ok(settled.outcome)
        }
    }

    /// Whether this node may know less than the others have acknowledged meanwhile: it was stopped for a moment. What its clients send must
    /// wait. False where the node serves no clients: they are to be told so.
    pub fn is_stale(&self) -> bool {
        self.inner.node.visibility.is_stale() && self.accepts_clients()
    }

    /// How often a node was left out of what is acknowledged, since it did not answer.
    pub fn left_out_total(&self) -> u64 {
        self.inner.node.visibility.left_out_total()
    }

    /// Submits without waiting: acknowledgements of deliveries.
    pub fn submit_nowait(&self, shard: ShardId, command: Command) -> Result<(), SubmitError> {
        let (shard, _) = self.shard(shard).ok_or(SubmitError::Unavailable)?;
        shard.submitter.submit_nowait(command)
    }

    /// Reads this node's replica of a shard; keep it short.
    pub fn read<R>(&self, shard: ShardId, f: impl FnOnce(&State) -> R) -> Option<R> {
        let (shard, _) = self.shard(shard)?;
        Some(f(&shard.state.read()))
    }

    /// Whether this node leads the shard now.
    pub fn leads(&self, shard: ShardId) -> bool {
        self.shard(shard).is_some_and(|(shard, _)| shard.leads())
    }

    /// The shard's leader, if it is in reach.
    pub fn leader(&self, shard: ShardId) -> Option<NodeId> {
        self.shard(shard).and_then(|(_, group)| group.view().reachable_leader())
    }

    /// Sends to a peer, in order; false where the link is down or its buffer full.
    #[must_use]
    pub fn send(&self, node: NodeId, message: PeerMessage) -> bool {
        self.inner.node.transport.as_ref().is_some_and(|transport| transport.send(node, message))
    }

    /// The other nodes that are alive.
    pub fn peers(&self) -> Vec<NodeId> {
        let node = &self.inner.node;
        let members = node.meta.members().into_iter();
        members.filter(|(id, member)| *id != node.id && member.alive).map(|(id, _)| id).collect()
    }

    /// `status().ready` without the rest: cheap enough for each CONNECT.
    pub fn is_ready(&self) -> bool {
        self.inner.node.is_ready()
    }

    /// Whether a CONNECT is worth proposing: ready, or so recently that a leader may be there in a moment.
    pub fn accepts_clients(&self) -> bool {
        self.inner.node.accepts_clients()
    }

    /// Why a group of this node has stopped for good: its storage failed, and the process should end.
    pub fn failure(&self) -> Option<String> {
        self.inner.node.groups.iter().find_map(|group| group.failure())
    }

    /// Why this node must not serve where it was started: its data belong to another cluster than the nodes it is configured with. Known at once
    /// where it is the only member of its own, and after a while where none of the other members is there.
    pub fn misplaced(&self) -> Option<String> {
        let node = &self.inner.node;
        let transport = node.transport.as_ref()?;
        let (own, foreign) = (node.cluster_id()?, transport.foreign_cluster()?);
        let alone = node.groups.first()?.status().voters == [node.id] && node.expected_nodes() > 1;
        let deserted = !transport.peers().iter().any(|peer| peer.connected)
            && node.waiting().is_some_and(|(_, since_ms)| wall_ms().saturating_sub(since_ms) >= DESERTED_MS);
        (alone || deserted).then(|| {
            format!(
                "the data directory belongs to cluster {own}, of which no other member is there, but the configured nodes belong to cluster \
                 {foreign}; use another --data directory, or take those nodes out of the configuration"
            )
        })
    }

    pub fn status(&self) -> ClusterStatus {
        let node = &self.inner.node;
        let waiting_for = node.waiting();
        let members = node.meta.members().into_iter();
        ClusterStatus {
            node: node.id,
            node_name: node.settings.node_name.clone(),
            incarnation: node.incarnation(),
            cluster_id: node.cluster_id(),
            members: members
                .map(|(id, member)| {
                    let alive = member.alive && node.hears(id);
                    (id, member.name, member.address, alive)
                })
                .collect(),
            groups: node.groups.iter().map(|group| group.status()).collect(),
            ready: node.accepts_clients(),
            waiting_for,
        }
    }

    /// Commands of this node for the shard that have no outcome yet.
    pub fn pending(&self, shard: ShardId) -> usize {
        self.shard(shard).map_or(0, |(shard, _)| shard.submitter.pending_count())
    }

    /// Removes a stopped node for good: it counts for no majority any more. (A node that comes back under its name joins anew.)
    pub async fn remove_member(&self, node: NodeId) -> Result<(), RemoveError> {
        removal::remove(&self.inner.node, node).await
    }

    /// Hands leadership over, flushes, closes. Does not leave the cluster.
    pub async fn shutdown(&self) {
        let node = &self.inner.node;
        node.stopping.store(true, Ordering::Relaxed);
        let _ = timeout(HAND_OVER, node.hand_over()).await;
        node.close().await;
    }

    #[cfg(test)]
    pub(super) fn groups(&self) -> &[Arc<Group>] {
        &self.inner.node.groups
    }

    fn shard(&self, shard: ShardId) -> Option<(&Arc<Shard>, &Arc<Group>)> {
        Some((self.inner.node.shard(shard)?, self.inner.node.group_of(shard)?))
    }
}

/// How long a node whose configured peers belong to another cluster waits for a member of its own.
const DESERTED_MS: u64 = 10_000;

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
