//! The cluster part of this node: its groups, shards and peers, and the tasks between them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::replica::{Incarnation, NodeId, ShardId};
use crate::storage::Storage;

use super::blocking::blocking;
use super::clock::wall_ms;
use super::control::Control;
use super::group::{Group, META_GROUP, raft_config};
use super::handle::ClusterError;
use super::meta::Meta;
use super::operator::Operator;
use super::raft::network::Network;
use super::raft::rpc::{Request, Response};
use super::raft::state_machine::Machine;
use super::raft::{PeerNode, TypeConfig};
use super::shard::Shard;
use super::submit::{Proposer, proposer};
use super::succession::{self, Succession};
use super::transport::hello::VERSION_MIN;
use super::transport::socket::Listener;
use super::transport::{PeerView, Receiver, Tls, Transport};
use super::visibility::{self, Progress, Visibility};
use super::{
    ClusterSettings, Hooks, PeerMessage, about, balancer, drain, failure_detector, founding, housekeeping, liveness, membership,
    node_id, ticker, versions,
};

/// Control messages waiting to be handled; they are sent again, so a lost one is no matter.
const CONTROLS_MAX: usize = 1024;
/// A peer nothing was heard of for so long does not count for a majority in reach.
const UNHEARD_MS: u64 = 2_000;

/// Everything the cluster part of a node consists of.
pub struct Node {
    pub id: NodeId,
    pub settings: ClusterSettings,
    pub storage: Arc<Storage>,
    pub hooks: Arc<dyn Hooks>,
    /// `None` in a cluster of one.
    pub transport: Option<Arc<Transport>>,
    incarnation: AtomicU64,
    /// By group index.
    pub groups: Vec<Arc<Group>>,
    /// By shard number.
    pub shards: Vec<Arc<Shard>>,
    proposers: Vec<Proposer>,
    pub meta: Arc<Meta>,
    pub visibility: Arc<Visibility>,
    /// This process founded the cluster: no release before has seen it.
    pub founded: AtomicBool,
    cluster_id: watch::Sender<Option<String>>,
    /// Rung when a link to a peer breaks.
    pub link_bell: Notify,
    pub succession: Succession,
    /// Events in outboxes that are not taken by all, looked at in each tick.
    pub untaken: AtomicUsize,
    controls: mpsc::Sender<(NodeId, Control)>,
    /// When this node heard of a cluster that may be the one its founder founded; it waits a little for the founder's word.
    pub heard_of_cluster: Mutex<Option<tokio::time::Instant>>,
    /// Promises received, as founder to be.
    pub promises: Mutex<BTreeMap<NodeId, String>>,
    /// Looked at now and then, so that asking costs nothing.
    ready: AtomicBool,
    was_ready: AtomicBool,
    /// The node is about to end: readiness comes and goes and is nobody's concern.
    pub stopping: AtomicBool,
    /// An operator wants it to have no clients and to lead nothing.
    draining: AtomicBool,
    pub drain_bell: Notify,
    /// Peers that stop or drain, and when they said so.
    pub draining_peers: Mutex<BTreeMap<NodeId, (u64, Option<Incarnation>)>>,
    /// Whether too few members are in reach for anything to be agreed on.
    minority: watch::Sender<bool>,
    pub operator: Operator,
    /// What readiness waits for, and since when.
    waiting_for: Mutex<Option<(String, u64)>>,
    /// Whether the log said last that clients may come; a planned hand-over changes nothing.
    told_ready: Mutex<Option<bool>>,
    pub cancel: CancellationToken,
}

/// Bytes of queued messages that stay in memory although they are on disk, for connections that will take them at once; of all shards.
const QUEUE_MEMORY_BYTES: usize = 24 * 1024 * 1024;

impl Node {
    /// Loads all state, starts all groups and, in a cluster of several, the peer transport.
    pub async fn start(
        settings: ClusterSettings,
        storage: Arc<Storage>,
        hooks: Arc<dyn Hooks>,
    ) -> Result<Arc<Self>, ClusterError> {
        let identity = storage.identity();
        let id = node_id(&settings.node_name);
        let listener = listen(&settings).await?;
        let tls = match settings.tls.clone().filter(|_| listener.is_some()) {
            // Files are read, and passwords stretched.
            Some(tls) => Some(tokio::task::spawn_blocking(|| Tls::load(tls)).await.map_err(|_| ClusterError::Stopped)??),
            None => None,
        };
        let transport = listener.as_ref().map(|_| {
            let silence = Duration::from_millis(settings.silence_ms());
            let transport = Transport::new(
                &settings.node_name,
                &settings.advertised,
                identity.incarnation,
                settings.shards,
                &settings.secret,
                silence,
                tls,
            );
            transport.set_identity(identity.incarnation, identity.cluster_id.clone());
            transport
        });

        if let Some(transport) = &transport {
            transport.set_versions(VERSION_MIN, settings.protocol.max);
        }
        let config = raft_config(&settings)?;
        // Until it is known to be one that was there before, or to found, its votes could undo what it forgot (see `membership`).
        let was_there = |group| identity.cluster_id.is_some() && storage.votes_in(group);
        let may_vote = |group| Arc::new(AtomicBool::new(was_there(group) || transport.is_none()));
        let network = |group| Network { transport: transport.clone(), node: id, group, may_vote: may_vote(group) };
        let meta_store = storage.state(META_GROUP)?;
        let meta = Meta::load(meta_store.as_ref())?;
        let machine: Arc<dyn Machine> = Arc::clone(&meta) as _;
        let log = storage.log(META_GROUP)?;
        let mut groups =
            vec![Group::start(META_GROUP, network(META_GROUP), Arc::clone(&config), log, meta_store, machine).await?];
        let visibility = Arc::new(Visibility::new(id, settings.shards, transport.clone()));
        let mut shards = Vec::new();
        let mut proposers = Vec::new();
        for number in 0..settings.shards {
            let group = number + 1;
            let store = storage.state(group)?;
            let shard = Shard::load(
                ShardId(number),
                id,
                identity.incarnation,
                Arc::clone(&store),
                QUEUE_MEMORY_BYTES / usize::from(settings.shards.max(1)),
                Arc::clone(&hooks),
                Arc::clone(&visibility),
            )?;
            let machine: Arc<dyn Machine> = Arc::clone(&shard) as _;
            let started = Group::start(group, network(group), Arc::clone(&config), storage.log(group)?, store, machine).await?;
            let (proposer, batches) = Proposer::new();
            tokio::spawn(proposer::run(started.raft.clone(), Arc::clone(&shard.clock), batches));
            groups.push(started);
            shards.push(shard);
            proposers.push(proposer);
        }
        let (controls, control_queue) = mpsc::channel(CONTROLS_MAX);
        let node = Arc::new(Self {
            id,
            settings,
            storage,
            hooks,
            transport,
            incarnation: AtomicU64::new(identity.incarnation),
            groups,
            shards,
            proposers,
            meta,
            visibility,
            founded: AtomicBool::new(false),
            cluster_id: watch::Sender::new(identity.cluster_id),
            link_bell: Notify::new(),
            succession: Succession::default(),
            untaken: AtomicUsize::new(0),
            controls,
            heard_of_cluster: Mutex::default(),
            promises: Mutex::default(),
            ready: AtomicBool::new(false),
            was_ready: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            drain_bell: Notify::new(),
            draining_peers: Mutex::default(),
            minority: watch::Sender::new(false),
            operator: Operator::default(),
            waiting_for: Mutex::default(),
            told_ready: Mutex::default(),
            cancel: CancellationToken::new(),
        });
        node.spawn_tasks(control_queue);
        if let (Some(transport), Some(listener)) = (&node.transport, listener) {
            let inbox = Arc::new(Inbox { node: Arc::downgrade(&node) });
            transport.start(listener, &node.settings.seeds, node.settings.dns.clone(), inbox);
        }
        Ok(node)
    }

    fn spawn_tasks(self: &Arc<Self>, controls: mpsc::Receiver<(NodeId, Control)>) {
        for group in &self.groups {
            let shard = group.shard().and_then(|shard| self.shard(shard)).cloned();
            let told = move |leads| {
                if let Some(shard) = &shard {
                    shard.set_leads(leads);
                }
            };
            tokio::spawn(Arc::clone(group).watch_leader(self.cancel.clone(), told));
        }
        for (shard, proposer) in self.shards.iter().zip(&self.proposers) {
            let Some(group) = self.group_of(shard.id) else { continue };
            let run = Arc::clone(&shard.submitter).run(group.watch(), proposer.clone(), self.transport.clone());
            self.spawn(run);
        }
        self.spawn(membership::handle_controls(Arc::clone(self), controls));
        self.spawn(founding::run(Arc::clone(self)));
        self.spawn(membership::keep_member(Arc::clone(self)));
        self.spawn(liveness::run(Arc::clone(self)));
        self.spawn(ticker::run(Arc::clone(self)));
        self.spawn(housekeeping::run(Arc::clone(self)));
        self.spawn(visibility::run(Arc::clone(self)));
        self.spawn(versions::run(Arc::clone(self)));
        if self.transport.is_some() {
            self.spawn(drain::run(Arc::clone(self)));
            self.spawn(failure_detector::run(Arc::clone(self)));
            self.spawn(balancer::run(Arc::clone(self)));
            self.spawn(about::run(Arc::clone(self)));
            self.spawn(succession::run(Arc::clone(self)));
        }
    }

    /// Runs a task until the node stops.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Stops all tasks and links at once.
    pub fn stop(&self) {
        self.cancel.cancel();
        self.shards.iter().for_each(|shard| shard.submitter.close());
        if let Some(transport) = &self.transport {
            transport.stop();
        }
    }

    /// Whether this node is to lead nothing and to have no clients: it stops, leaves, or an operator drains it.
    pub fn leaves_work(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || self.is_draining() || self.operator.is_leaving()
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
        self.drain_bell.notify_one();
    }

    /// The node is about to end.
    pub fn begin_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.drain_bell.notify_one();
    }

    /// Whether a majority of the members that decide on `meta` was heard lately. Links that were cut are up for a while yet.
    pub fn hears_majority(&self) -> bool {
        let Some(transport) = &self.transport else { return true };
        let voters: Vec<NodeId> = self.meta_group().metrics().membership_config.voter_ids().collect();
        let heard = |peer: &&PeerView| peer.connected && peer.silent_ms.is_some_and(|silent| silent < UNHEARD_MS);
        let peers = transport.peers();
        let heard = peers.iter().filter(heard).filter(|peer| voters.contains(&peer.id)).count();
        voters.is_empty() || (heard + usize::from(voters.contains(&self.id))) * 2 > voters.len()
    }

    /// Whether too few members are in reach for anything to be agreed on.
    pub fn is_minority(&self) -> bool {
        *self.minority.borrow()
    }

    /// Tells when this node is without a majority.
    pub fn watch_minority(&self) -> watch::Receiver<bool> {
        self.minority.subscribe()
    }

    /// Stops, and leaves everything applied on the disk.
    pub async fn close(&self) {
        self.stop();
        for group in &self.groups {
            if let Err(error) = group.raft.shutdown().await {
                tracing::warn!(group = group.name(), %error, "a group did not stop cleanly");
            }
            let Ok(store) = self.storage.state(group.index) else { continue };
            let group_closed = Arc::clone(group);
            let flush = move || group_closed.write_state().and_then(|()| store.flush().map_err(std::io::Error::other));
            match blocking(flush).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(group = group.name(), %error, "the state was not flushed"),
                Err(error) => tracing::error!(group = group.name(), %error, "the state was not flushed"),
            }
        }
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation.load(Ordering::Acquire)
    }

    /// A new incarnation is in force: submissions of the old one are void.
    pub fn set_incarnation(&self, incarnation: Incarnation) {
        self.incarnation.store(incarnation, Ordering::Release);
        self.visibility.lease.drop_all();
        self.shards.iter().for_each(|shard| shard.submitter.renew(incarnation));
        if let Some(transport) = &self.transport {
            transport.set_identity(incarnation, self.cluster_id());
        }
    }

    /// Whether a member can be alive as far as this node can tell: without a majority `meta` cannot say that one is not.
    pub fn hears(&self, member: NodeId) -> bool {
        member == self.id || self.transport.as_ref().is_some_and(|transport| transport.connected(member))
    }

    /// How many nodes found the cluster: as many as are expected, and no fewer than those configured and this one, if it is not among them. A
    /// list that leaves this node out must not make a majority of fewer. `None`: this node founds none.
    pub fn expected_nodes(&self) -> Option<usize> {
        let expected = self.settings.expected_nodes?;
        if expected != self.settings.seeds.len() {
            // Told, not counted from the list.
            return Some(expected);
        }
        let others = self.transport.as_ref().map_or(0, |transport| transport.other_seeds());
        Some(if others == 0 { 1 } else { (others + 1).max(expected) })
    }

    /// Whether there may be others: configured ones, or those a name has.
    pub fn looks_for_others(&self) -> bool {
        self.settings.dns.is_some() || self.transport.as_ref().is_some_and(|transport| transport.other_seeds() > 0)
    }

    /// Whether no other is configured, and the name of the cluster has addresses of this node only.
    pub fn is_named_alone(&self) -> bool {
        self.transport.as_ref().is_some_and(|transport| transport.is_named_alone() && transport.other_seeds() == 0)
    }

    pub fn cluster_id(&self) -> Option<String> {
        self.cluster_id.borrow().clone()
    }

    pub fn watch_cluster_id(&self) -> watch::Receiver<Option<String>> {
        self.cluster_id.subscribe()
    }

    /// Belongs to a cluster from now on, durably. Another one's id is refused. It has votes there if it is the one `founded` with its promise.
    pub async fn set_cluster_id(&self, id: &str, founded: bool) -> Result<(), ClusterError> {
        let storage = Arc::clone(&self.storage);
        let stored = id.to_owned();
        blocking(move || storage.set_cluster_id(&stored, founded))
            .await
            .map_err(|error| ClusterError::Raft(error.to_string()))??;
        if let Some(transport) = &self.transport {
            transport.set_identity(self.incarnation(), Some(id.to_owned()));
        }
        self.cluster_id.send_replace(Some(id.to_owned()));
        Ok(())
    }

    /// The version that all members are known to speak.
    pub fn level(&self) -> u16 {
        self.meta.level().max(VERSION_MIN)
    }

    pub fn meta_group(&self) -> &Arc<Group> {
        &self.groups[usize::from(META_GROUP)]
    }

    pub fn shard(&self, shard: ShardId) -> Option<&Arc<Shard>> {
        self.shards.get(usize::from(shard.0))
    }

    pub fn group_of(&self, shard: ShardId) -> Option<&Arc<Group>> {
        self.groups.get(usize::from(shard.0) + 1)
    }

    /// The name of a node, or its id where nobody told it.
    pub fn name_of(&self, id: NodeId) -> String {
        if id == self.id {
            return self.settings.node_name.clone();
        }
        let peer = || self.transport.as_ref()?.peers().into_iter().find(|peer| peer.id == id).map(|peer| peer.name);
        self.meta.member(id).map(|member| member.name).or_else(peer).unwrap_or_else(|| format!("{id:016x}"))
    }

    /// This node as the Raft membership names it.
    pub fn peer_node(&self) -> PeerNode {
        PeerNode { name: self.settings.node_name.clone(), address: self.settings.advertised.clone() }
    }

    /// Its own incarnation is known to the cluster, and alive.
    pub fn is_established(&self) -> bool {
        self.meta.member(self.id).is_some_and(|own| own.alive && own.incarnation == self.incarnation())
    }

    /// Members of all groups, by the membership of meta.
    pub fn raft_members(&self) -> BTreeMap<NodeId, PeerNode> {
        members(&self.meta_group().metrics())
    }

    /// What readiness waits for.
    pub fn not_ready_because(&self) -> Option<String> {
        if self.cluster_id().is_none() {
            return Some(match self.storage.identity().promised_to {
                Some(founder) if founder != self.settings.node_name => {
                    format!("{founder}, to which this node promised itself, to found the cluster")
                }
                _ if self.settings.expected_nodes.is_none() => {
                    "a cluster to join: without <expected-nodes> this node founds none".to_owned()
                }
                _ => "the cluster to be founded or found".to_owned(),
            });
        }
        // First: a drain does not come to its end without.
        if self.is_minority() {
            return Some("a majority of the nodes in reach".to_owned());
        }
        if self.is_draining() {
            return Some("the end of its drain".to_owned());
        }
        for group in &self.groups {
            let name = super::group::group_name(group.index);
            if let Some(failure) = group.failure() {
                return Some(format!("a restart: group {name} has stopped: {failure}"));
            }
            if group.view().reachable_leader().is_none() {
                return Some(if group.may_vote() {
                    format!("a leader of group {name}")
                } else {
                    format!(
                        "a leader of group {name}: this node came without data and has no vote; start the other nodes, or, where their data are \
                         lost for good, give up what only they held (troupemq cluster accept-loss)"
                    )
                });
            }
            if !group.view().caught_up || group.lag() > READY_LAG_ENTRIES {
                return Some(format!("group {name} to catch up"));
            }
        }
        if !self.is_established() {
            return Some("the cluster to know this node".to_owned());
        }
        // What its first clients need is stored in the newest way.
        if !self.was_ready.load(Ordering::Relaxed) && versions::is_raising(self) {
            return Some("the new cluster's protocol version".to_owned());
        }
        (!self.visibility.is_level(self.incarnation())).then(|| "what the other nodes have acknowledged".to_owned())
    }

    pub fn is_ready(&self) -> bool {
        // Who is woken since there is no majority is not to find it ready still.
        self.ready.load(Ordering::Relaxed) && !self.is_minority()
    }

    /// Ready, or not ready since a moment ago: while a leadership is handed over a CONNECT waits for the new leader instead of being refused.
    pub fn accepts_clients(&self) -> bool {
        if self.is_draining() || self.is_minority() {
            return false;
        }
        let was_ready = self.was_ready.load(Ordering::Relaxed);
        let recently = || self.waiting_for.lock().as_ref().is_some_and(|(_, since)| wall_ms().saturating_sub(*since) < GRACE_MS);
        self.is_ready() || (was_ready && recently())
    }

    /// Updates what readiness waits for and since when.
    pub fn waiting(&self) -> Option<(String, u64)> {
        let minority = !self.hears_majority();
        self.minority.send_if_modified(|known| std::mem::replace(known, minority) != minority);
        let reason = self.not_ready_because();
        let mut waiting = self.waiting_for.lock();
        match (reason, &*waiting) {
            (Some(reason), Some((known, _))) if reason == *known => {}
            (None, None) if self.is_ready() => {}
            (Some(reason), Some((_, since))) => *waiting = Some((reason, *since)),
            (reason, _) => *waiting = reason.map(|reason| (reason, wall_ms())),
        }
        self.ready.store(waiting.is_none(), Ordering::Relaxed);
        self.was_ready.fetch_or(waiting.is_none(), Ordering::Relaxed);
        self.tell_readiness(waiting.as_ref());
        let meta = self.meta_group();
        self.meta.set_follows(meta.view().caught_up && meta.lag() == 0);
        waiting.clone()
    }

    /// In the log, where readiness changes: not for a leadership that is handed over, during which clients are taken all the same.
    fn tell_readiness(&self, waiting: Option<&(String, u64)>) {
        if self.cancel.is_cancelled() || self.stopping.load(Ordering::Relaxed) {
            return;
        }
        let refuses = self.is_draining() || *self.minority.borrow() || !self.was_ready.load(Ordering::Relaxed);
        let is_ready = waiting.is_none_or(|(_, since)| !refuses && wall_ms().saturating_sub(*since) < GRACE_MS);
        if self.told_ready.lock().replace(is_ready) == Some(is_ready) {
            return;
        }
        match waiting {
            Some((reason, _)) if !is_ready => tracing::info!(reason, "not ready: waits for"),
            Some(_) | None => tracing::info!("ready"),
        }
    }
}

/// How long after it was ready a node takes clients on, waiting for a leader.
const GRACE_MS: u64 = 3_000;
/// A replica so many entries behind what is committed serves already.
const READY_LAG_ENTRIES: u64 = 256;

/// The members a group's metrics name.
pub fn members(metrics: &openraft::RaftMetrics<TypeConfig>) -> BTreeMap<NodeId, PeerNode> {
    metrics.membership_config.nodes().map(|(&node, known)| (node, known.clone())).collect()
}

async fn listen(settings: &ClusterSettings) -> Result<Option<Listener>, ClusterError> {
    let Some(address) = settings.bind.filter(|_| settings.enabled) else { return Ok(None) };
    let listener = Listener::bind(address).await.map_err(|source| ClusterError::Bind { address, source })?;
    Ok(Some(listener))
}

/// What comes from peers. Holds the node weakly: the node owns the transport.
struct Inbox {
    node: Weak<Node>,
}

impl Receiver for Inbox {
    fn call(&self, from: NodeId, group: u16, request: Request) -> BoxFuture<'static, Response> {
        let group = self.node.upgrade().and_then(|node| node.groups.get(usize::from(group)).cloned());
        async move {
            match group {
                Some(group) => group.execute(from, request).await,
                None => Response::Refused("no such group here".to_owned()),
            }
        }
        .boxed()
    }

    fn message(&self, from: NodeId, message: PeerMessage) {
        let Some(node) = self.node.upgrade() else { return };
        match message {
            PeerMessage::Commands { shard, batch } => {
                // Not taken (full) or not proposed (no leader): the origin sends again.
                if let Some(proposer) = node.proposers.get(usize::from(shard.0)) {
                    proposer.offer(batch);
                }
            }
            message => node.hooks.peer_message(from, message),
        }
    }

    fn pressed(&self) -> bool {
        self.node.upgrade().is_some_and(|node| node.hooks.pressed())
    }

    fn progress(&self, from: NodeId, progress: Progress) {
        if let Some(node) = self.node.upgrade() {
            visibility::heard(&node, from, progress);
        }
    }

    fn control(&self, from: NodeId, control: Control) {
        if let Some(node) = self.node.upgrade() {
            let _ = node.controls.try_send((from, control));
        }
    }

    fn link_up(&self, _peer: NodeId) {
        if let Some(node) = self.node.upgrade() {
            node.shards.iter().for_each(|shard| shard.submitter.wake());
        }
    }

    fn link_down(&self, _peer: NodeId) {
        if let Some(node) = self.node.upgrade() {
            node.link_bell.notify_one();
            node.succession.bell.notify_one();
        }
    }
}
