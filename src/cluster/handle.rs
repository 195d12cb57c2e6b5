//! The cluster as the rest of the process sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::plant::{Plant, is_planted};
use crate::replica::event::Outcome;
use crate::replica::meta::Member;
use crate::replica::{Command, ConnectionRef, Incarnation, NodeId, ShardId, State};
use crate::storage::Storage;
use crate::telemetry::PeerLinkSample;
use crate::telemetry::tally::{SECONDS, Tally};

use super::about::{self, About};
use super::clock::wall_ms;
use super::control::{Control, FEATURES};
use super::drain;
use super::group::{Group, group_name};
use super::leaving::{self, LeaveError};
use super::node::{Node, members};
use super::placement::VOTERS_MAX;
use super::removal::{self, RemoveError};
use super::shard::Shard;
use super::submit::Lane;
use super::submit::pending::Settled;
use super::transfer;
use super::visibility::EVERYWHERE_MAX;
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
    /// Replicas without a vote.
    pub learners: Vec<NodeId>,
    /// Committed entries, as far as this node knows, that its replica has not applied.
    pub lag: u64,
    /// A change of its members is under way: what `voters` says is not agreed on yet.
    pub changing: bool,
    /// How often this node met another leader than before.
    pub leader_changes: u64,
}

/// A member: what `meta` says of it, and what this node sees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberStatus {
    pub id: NodeId,
    pub name: String,
    pub address: String,
    pub incarnation: Incarnation,
    /// By `meta`.
    pub alive: bool,
    /// There is a link to it, or it is this node.
    pub connected: bool,
    /// It stops or drains: nothing is handed to it.
    pub draining: bool,
    /// Version of its program, and of the protocols it speaks (lowest, highest), where it said so.
    pub version: Option<(String, (u16, u16))>,
}

/// What comes of it, group by group, when an operator gives up what only lost disks held: see `Cluster::accept_loss`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loss {
    /// This replica votes as it is.
    pub accepted: Vec<String>,
    /// A leader in reach fills this replica: nothing is given up.
    pub led: Vec<String>,
    /// This replica has its vote, and there is no leader in reach.
    pub waiting: Vec<String>,
    /// Nobody in reach knows who votes: nothing can go on.
    pub hopeless: Vec<String>,
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

/// How long others may take to take leadership over, and to take note of the end.
pub const HAND_OVER: Duration = Duration::from_secs(2);
pub const GOODBYE: Duration = Duration::from_secs(1);

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

    /// The version that all members are known to speak (`versions`): newer kinds of commands are not taken.
    pub fn level(&self) -> u16 {
        self.inner.node.level()
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
        self.submit_in_lane(shard, command, None)
    }

    /// The same for what a connection publishes: nothing goes in behind what failed.
    pub fn submit_in_lane(
        &self,
        shard: ShardId,
        command: Command,
        lane: Option<&Arc<Lane>>,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + use<> {
        let submitted = self.hand_in(shard, command, lane);
        async move { submitted?.await.unwrap_or(Err(SubmitError::Unknown)).map(|settled| settled.outcome) }
    }

    /// The same, but resolves only when the replicas of all nodes that serve clients have applied the command, as far as these are in touch
    /// (see `visibility`); only for commands that are acknowledged as effective.
    pub fn submit_everywhere(
        &self,
        shard: ShardId,
        command: Command,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + 'static {
        self.submit_everywhere_in_lane(shard, command, None)
    }

    /// As `submit_everywhere` and `submit_in_lane`.
    pub fn submit_everywhere_in_lane(
        &self,
        shard: ShardId,
        command: Command,
        lane: Option<&Arc<Lane>>,
    ) -> impl Future<Output = Result<Outcome, SubmitError>> + Send + use<> {
        debug_assert!(command.is_acknowledged_as_effective(), "nobody would say that it is applied");
        let submitted = self.hand_in(shard, command, lane);
        let visibility = Arc::clone(&self.inner.node.visibility);
        async move {
            let settled = submitted?.await.unwrap_or(Err(SubmitError::Unknown))?;
            if let Some(applied) = visibility.everywhere(shard, settled.index)
                && !is_planted(Plant::SubackNotVisible)
            {
                // An error within is the end of this node. What some node does not know is not acknowledged.
                timeout(EVERYWHERE_MAX, applied).await.map_err(|_| SubmitError::Unknown)?.ok();
            }
            Ok(settled.outcome)
        }
    }

    fn hand_in(
        &self,
        shard: ShardId,
        command: Command,
        lane: Option<&Arc<Lane>>,
    ) -> Result<oneshot::Receiver<Result<Settled, SubmitError>>, SubmitError> {
        match self.shard(shard) {
            // Some member is of a release that cannot read the other.
            Some((shard, group)) if command.since() <= self.level() => shard.submitter.submit(command, &group.view(), lane),
            _ => {
                lane.into_iter().for_each(|lane| lane.break_off());
                Err(SubmitError::Unavailable)
            }
        }
    }

    /// Takes a `Connect` back that was not sent yet; false where it may take effect.
    pub fn withdraw_connect(&self, shard: ShardId, connection: ConnectionRef) -> bool {
        self.shard(shard).is_some_and(|(shard, _)| shard.submitter.withdraw_connect(connection))
    }

    /// Whether this node may know less than the others have acknowledged meanwhile: it was stopped for a moment, is cut off, or behind. What
    /// its clients send must wait.
    pub fn is_stale(&self) -> bool {
        self.inner.node.visibility.is_stale()
    }

    /// Events in outboxes that some shard has not taken, as of 0.1 s ago. A position in which nothing matched is stored once a second only: what a
    /// second brings may be among them.
    pub fn untaken_events(&self) -> usize {
        self.inner.node.untaken.load(Ordering::Relaxed)
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

    /// Reads this node's replica of a shard; keep it short. `None` where the replica has failed: what it says is not to be acted on.
    pub fn read<R>(&self, shard: ShardId, f: impl FnOnce(&State) -> R) -> Option<R> {
        let (shard, _) = self.shard(shard)?;
        shard.read(f)
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

    /// Ends this node: its disk does not hold what it should. Whoever asks `failure` learns that the storage has stopped.
    pub fn stop_storage(&self, why: String) {
        self.inner.node.storage.stop(why);
    }

    /// Whether a majority of the members that decide was heard lately.
    pub fn hears_majority(&self) -> bool {
        self.inner.node.hears_majority()
    }

    /// Whether there is a link to a node.
    pub fn hears(&self, node: NodeId) -> bool {
        self.inner.node.hears(node)
    }

    /// The other nodes that are alive.
    pub fn peers(&self) -> Vec<NodeId> {
        let node = &self.inner.node;
        let members = node.meta.members().into_iter();
        members.filter(|(id, member)| *id != node.id && member.alive).map(|(id, _)| id).collect()
    }

    /// Whether every peer is reached without a third node's help.
    #[cfg(test)]
    pub fn links_are_direct(&self) -> bool {
        self.inner.node.transport.as_ref().is_some_and(|transport| transport.is_direct())
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
        let alone = node.groups.first()?.status().voters == [node.id] && node.looks_for_others();
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

    /// Both links to every other node; none in a cluster of one.
    pub fn links(&self) -> Vec<PeerLinkSample> {
        self.inner.node.transport.as_ref().map_or_else(Vec::new, |transport| transport.links())
    }

    /// How long groups had no leader that this node could follow, seconds; of all groups.
    pub fn failover_seconds(&self) -> Tally {
        let mut seconds = Tally::new(SECONDS);
        self.inner.node.groups.iter().for_each(|group| seconds.add(group.failovers().seconds()));
        seconds
    }

    /// The fullest part of what may wait for a shard, as a share of its limit: commands, or bytes.
    pub fn backlog(&self) -> f64 {
        let fullest = self.inner.node.shards.iter().map(|shard| shard.submitter.fullness());
        fullest.fold(0.0, f64::max)
    }

    /// All members, by `meta`.
    pub fn members(&self) -> Vec<MemberStatus> {
        let node = &self.inner.node;
        let abouts = node.operator.abouts.lock();
        let version = |id| {
            let about = if id == node.id { Some(About::of(node)) } else { abouts.get(&id).cloned() };
            about.map(|about| (about.program, about.protocol))
        };
        let member = |(id, member): (NodeId, Member)| MemberStatus {
            id,
            name: member.name,
            address: member.address,
            incarnation: member.incarnation,
            alive: member.alive,
            connected: node.hears(id),
            draining: drain::is_draining(node, id),
            version: version(id),
        };
        node.meta.members().into_iter().map(member).collect()
    }

    /// Commands of this node for the shard that have no outcome yet.
    pub fn pending(&self, shard: ShardId) -> usize {
        self.shard(shard).map_or(0, |(shard, _)| shard.submitter.pending_count())
    }

    /// Removes a stopped node for good: it counts for no majority any more. (A node that comes back under its name joins anew.) `told` hears how
    /// far it is.
    pub async fn remove_member(&self, node: NodeId, told: impl Fn(String)) -> Result<(), RemoveError> {
        removal::remove(&self.inner.node, node, told).await
    }

    /// Whether this node can leave without the others losing their majority; a leader that is missing is waited for, for a while.
    pub async fn check_leave(&self) -> Result<(), LeaveError> {
        leaving::wait_check(&self.inner.node).await
    }

    /// This node, which has no clients any more, leaves for good; on success the process is to end.
    pub async fn leave(&self, told: impl Fn(String)) -> Result<(), LeaveError> {
        leaving::leave(&self.inner.node, told).await
    }

    /// How many members there are, and how many may be lost: for operators.
    pub fn members_left(&self) -> String {
        let node = &self.inner.node;
        let count = node.meta.members().iter().filter(|(id, _)| *id != node.id || !node.operator.is_leaving()).count();
        let voters = count.min(VOTERS_MAX);
        let spare = voters.saturating_sub(1) / 2;
        let members = if count == 1 { "1 member is".to_owned() } else { format!("{count} members are") };
        match spare {
            0 => format!("{members} left, none of which may be lost"),
            _ => format!("{members} left, of which {spare} may be lost at a time"),
        }
    }

    /// Has another node lead; tells who leads then, or what is missing.
    pub async fn transfer_leadership(
        &self,
        to: Option<&str>,
        group: Option<&str>,
        told: impl Fn(String),
    ) -> Result<String, String> {
        transfer::transfer(&self.inner.node, to, group, told).await
    }

    /// Replicas of this node that came without data vote as they are: what only lost disks held is given up.
    pub fn accept_loss(&self) -> Loss {
        let node = &self.inner.node;
        let mut loss = Loss::default();
        for group in &node.groups {
            let votes = group.may_vote();
            let knows_voters = !members(&group.metrics()).is_empty();
            let kind = match (votes, group.view().reachable) {
                (true, true) => continue,
                (false, true) => &mut loss.led,
                (true, false) if knows_voters => &mut loss.waiting,
                (false, false) if knows_voters || group.words().is_any() => {
                    node.operator.loss_accepted.lock().insert(group.index);
                    &mut loss.accepted
                }
                (_, false) => &mut loss.hopeless,
            };
            kind.push(group_name(group.index));
        }
        loss
    }

    /// Which voters this node can talk to, in words.
    pub fn in_reach(&self) -> String {
        removal::in_reach(&self.inner.node)
    }

    /// What an operator should know of: settings that differ between nodes.
    pub fn warnings(&self) -> Vec<String> {
        about::warnings(&self.inner.node)
    }

    /// The node is about to end: from now on it leads nothing, as far as others can.
    pub fn begin_stop(&self) {
        self.inner.node.begin_stop();
    }

    /// Resolves when this node leads no group that another could lead.
    pub async fn hand_over(&self) {
        drain::hand_over(&self.inner.node).await;
    }

    /// Tells the cluster that this node's incarnation is over; its connections should be. Resolves when that is applied here.
    pub async fn say_goodbye(&self) {
        if self.inner.node.transport.is_some() {
            drain::say_goodbye(&self.inner.node).await;
        }
    }

    /// Stops and flushes. Does not leave the cluster.
    pub async fn close(&self) {
        self.inner.node.close().await;
    }

    /// Hands leadership over, says goodbye, flushes, closes: for nodes without clients.
    pub async fn shutdown(&self) {
        self.begin_stop();
        let _ = timeout(HAND_OVER, self.hand_over()).await;
        let _ = timeout(GOODBYE, self.say_goodbye()).await;
        self.close().await;
    }

    /// Refuses clients and leads nothing from now on, or does so no more. Forgotten with the process.
    pub fn set_draining(&self, draining: bool) {
        self.inner.node.set_draining(draining);
    }

    pub fn is_draining(&self) -> bool {
        self.inner.node.is_draining()
    }

    /// Whether this node stops or drains.
    pub fn leaves_work(&self) -> bool {
        self.inner.node.leaves_work()
    }

    /// Names of the groups this node leads.
    pub fn led(&self) -> Vec<String> {
        let led = self.inner.node.groups.iter().filter(|group| group.is_leader());
        led.map(|group| group_name(group.index)).collect()
    }

    /// Asks every node, this one too, to part with the clients it has beyond its share.
    pub fn rebalance(&self) {
        let node = &self.inner.node;
        if let Some(transport) = &node.transport {
            transport.broadcast(|version| (version >= FEATURES).then_some(Control::Rebalance));
        }
        node.hooks.rebalance();
    }

    /// Connections that came in, of each node that is to have clients.
    pub fn clients_by_node(&self) -> BTreeMap<NodeId, u64> {
        let node = &self.inner.node;
        let members = node.meta.members().into_iter();
        let serving = members.filter(|(id, member)| member.alive && node.hears(*id) && !drain::is_draining(node, *id));
        let mut clients: BTreeMap<NodeId, u64> = serving.map(|(id, _)| (id, 0)).collect();
        for shard in &node.shards {
            for (of, count) in shard.state.read().connections_by_node() {
                if let Some(known) = clients.get_mut(&of) {
                    *known += count;
                }
            }
        }
        clients
    }

    /// Resolves once too few members are in reach for anything to be agreed on.
    pub fn minority(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut minority = self.inner.node.watch_minority();
        async move {
            if minority.wait_for(|minority| *minority).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn storage(&self) -> &Storage {
        &self.inner.node.storage
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
    #[error("<cluster><transport><tcp><tls>: {0}")]
    Tls(#[from] crate::config::tls::TlsError),
    #[error("{0}")]
    Storage(#[from] crate::storage::StorageError),
    #[error("raft: {0}")]
    Raft(String),
}
