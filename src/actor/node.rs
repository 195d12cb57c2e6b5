//! What all actors of a node share.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use actix_rt::ArbiterHandle;
use tokio::sync::Semaphore;

use crate::cluster::Cluster;
use crate::mqtt::GroupId;
use crate::queue::QueueLimits;
use crate::replica::{ConnectionRef, NodeId, ShardId};
use crate::routing::Table;
use crate::session::SessionSettings;
use crate::telemetry::EventLog;
use crate::telemetry::metrics::Metrics;

use super::client::Room;
use super::congestion::Congestion;
use super::detours::Detours;
use super::fetch::FETCHES_MAX;
use super::gate::Gate;
use super::guard::Guard;
use super::hub::HubMail;
use super::outbox_taker::TakerMail;
use super::overload::Load;
use super::prevented::Prevented;
use super::render::Renderer;
use super::retaining::{RetainedLimits, Retaining};
use super::settle::Asked;
use super::shared_subscription::Groups;
use super::signal_bus::SignalBus;
use super::throttle::Throttle;

/// Settings the actors need.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    pub session: Arc<SessionSettings>,
    pub queue: QueueLimits,
    /// Bytes of QoS 0 messages waiting in all queues of the node.
    pub qos0_total_bytes_max: usize,
    /// Bytes held for packets of which not all has come, of all connections.
    pub incomplete_bytes_max: usize,
    /// Read from all clients together; 0 = any number.
    pub inbound_bytes_per_s: u64,
    pub max_connections: Option<u64>,
    /// Clients asked to leave in a second, where the node parts with some.
    pub clients_per_second: u32,
    pub retained: RetainedLimits,
    pub prevented: Prevented,
    /// Shared subscriptions that this node declares.
    pub declared: Vec<GroupId>,
}

/// The node; made once, shared by reference.
pub struct Node {
    pub settings: NodeSettings,
    pub routing: Table,
    pub metrics: Arc<Metrics>,
    pub events: EventLog,
    pub guard: Guard,
    pub signals: SignalBus,
    pub renderer: Arc<dyn Renderer>,
    pub groups: Groups,
    pub congestion: Arc<Congestion>,
    pub settling: Asked,
    /// Retained messages on their way.
    pub retaining: Retaining,
    pub detours: Detours,
    pub load: Load,
    /// Whether what this node declares is in force.
    pub has_declared: AtomicBool,
    /// Bytes of QoS 0 messages waiting in all queues of the node.
    pub qos0_bytes: AtomicUsize,
    /// For packets of which not all has come.
    pub incomplete: Arc<Room>,
    /// QoS 0 messages that were put onto sockets which were not writable, and still wait there.
    pub stuffed: AtomicUsize,
    /// Turns of those who read queued messages from the disk.
    pub(super) fetches: Arc<Semaphore>,
    /// `None`: clients are read as fast as they send.
    pub throttle: Option<Throttle>,
    pub connections: AtomicU64,
    /// Parts with clients beyond its share.
    pub rebalancing: AtomicBool,
    /// `None`: everybody is let in.
    gate: Option<Arc<Gate>>,
    cluster: OnceLock<Cluster>,
    hubs: OnceLock<Vec<HubMail>>,
    takers: OnceLock<Vec<TakerMail>>,
    arbiters: OnceLock<Vec<ArbiterHandle>>,
    next_connection: AtomicU64,
    next_member: AtomicUsize,
}

impl Node {
    pub fn new(settings: NodeSettings, metrics: Arc<Metrics>, renderer: Arc<dyn Renderer>) -> Self {
        Self {
            throttle: Throttle::new(settings.inbound_bytes_per_s),
            incomplete: Arc::new(Room::new(settings.incomplete_bytes_max)),
            has_declared: AtomicBool::new(settings.declared.is_empty()),
            settings,
            routing: Table::new(),
            metrics,
            events: EventLog::default(),
            guard: Guard::default(),
            signals: SignalBus::default(),
            renderer,
            groups: Groups::default(),
            congestion: Arc::default(),
            settling: Asked::default(),
            retaining: Retaining::default(),
            detours: Detours::default(),
            load: Load::default(),
            qos0_bytes: AtomicUsize::new(0),
            stuffed: AtomicUsize::new(0),
            fetches: Arc::new(Semaphore::new(FETCHES_MAX)),
            connections: AtomicU64::new(0),
            rebalancing: AtomicBool::new(false),
            gate: None,
            cluster: OnceLock::new(),
            hubs: OnceLock::new(),
            takers: OnceLock::new(),
            arbiters: OnceLock::new(),
            next_connection: AtomicU64::new(1),
            next_member: AtomicUsize::new(0),
        }
    }

    /// Has clients judged.
    #[must_use]
    pub fn with_gate(mut self, gate: Option<Arc<Gate>>) -> Self {
        self.gate = gate;
        self
    }

    /// Has what happens to clients written.
    #[must_use]
    pub fn with_events(mut self, events: EventLog) -> Self {
        self.events = events;
        self
    }

    /// Keeps an eye on clients that do not come to rest.
    #[must_use]
    pub fn with_guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    pub fn gate(&self) -> Option<&Arc<Gate>> {
        self.gate.as_ref()
    }

    /// Completes the node: called once by the composition root.
    pub fn connect_hubs(&self, hubs: Vec<HubMail>) {
        let _ = self.hubs.set(hubs);
    }

    pub fn connect_arbiters(&self, arbiters: Vec<ArbiterHandle>) {
        let _ = self.arbiters.set(arbiters);
    }

    pub fn connect_takers(&self, takers: Vec<TakerMail>) {
        let _ = self.takers.set(takers);
    }

    pub fn connect_cluster(&self, cluster: Cluster) {
        let _ = self.cluster.set(cluster);
    }

    /// The cluster; `None` only while the node starts.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    pub fn hubs(&self) -> &[HubMail] {
        self.hubs.get().map_or(&[], Vec::as_slice)
    }

    pub fn takers(&self) -> &[TakerMail] {
        self.takers.get().map_or(&[], Vec::as_slice)
    }

    pub fn id(&self) -> NodeId {
        self.cluster().map_or(0, Cluster::node)
    }

    /// The shard of a key among this cluster's shards.
    pub fn shard_of(&self, key: &str) -> ShardId {
        ShardId::of(key, self.cluster().map_or(1, Cluster::shards))
    }

    /// A new connection of an arbiter: its index stands in the lowest 8 bits, so that a delivery finds the arbiter without a table.
    pub fn new_connection(&self, arbiter: usize) -> ConnectionRef {
        let counter = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connection_ref((counter << ARBITER_BITS) | (arbiter as u64 & ARBITER_MASK))
    }

    /// A connection of this node by its number.
    pub fn connection_ref(&self, connection: u64) -> ConnectionRef {
        let (node, incarnation) = self.cluster().map_or((0, 0), |c| (c.node(), c.incarnation()));
        ConnectionRef { node, incarnation, connection }
    }

    /// Whether a CONNECT is worth proposing.
    pub fn accepts_clients(&self) -> bool {
        self.has_declared.load(Ordering::Acquire) && self.cluster().is_some_and(Cluster::accepts_clients)
    }

    /// The hub of a connection of this node.
    pub fn hub_of(&self, connection: u64) -> Option<&HubMail> {
        self.hubs().get(usize::try_from(connection & ARBITER_MASK).unwrap_or(usize::MAX))
    }

    /// Whether the triple of a route is a live connection of this node.
    pub fn is_local(&self, connection: (u64, u64, u64)) -> bool {
        self.cluster().is_some_and(|c| c.node() == connection.0 && c.incarnation() == connection.1)
    }

    /// One of the node's arbiters, by any number.
    pub fn arbiter(&self, number: usize) -> Option<ArbiterHandle> {
        let arbiters = self.arbiters.get()?;
        arbiters.get(number % arbiters.len().max(1)).cloned()
    }

    /// Turns among equal members of a shared subscription.
    pub fn next_turn(&self) -> usize {
        self.next_member.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether so much waits for the arbiters, or for the add-ons, that publishers should not be read for a moment.
    pub fn is_pressed(&self) -> bool {
        self.hubs().iter().any(|hub| hub.len() > PRESSED_ITEMS) || self.signals.is_pressed()
    }

    /// Whether clients are not read for the moment.
    pub fn holds_clients(&self) -> bool {
        self.is_pressed() || self.is_stale() || self.is_behind_with_events()
    }

    /// The same for one that has not come in yet: where the node takes no clients, it is read, to be told so.
    pub fn holds_newcomers(&self) -> bool {
        self.is_pressed()
            || self.is_behind_with_events()
            || (self.is_stale() && self.cluster().is_some_and(Cluster::accepts_clients))
    }

    /// Whether so many events wait in outboxes that clients, who cause them, should not be read for a moment: outboxes are in memory.
    fn is_behind_with_events(&self) -> bool {
        self.cluster().is_some_and(|cluster| cluster.untaken_events() > UNTAKEN_EVENTS_MAX)
    }

    /// Whether what clients send must wait: this node was stopped for a moment, is cut off or behind, and may not know what others
    /// acknowledged meanwhile.
    pub fn is_stale(&self) -> bool {
        self.cluster().is_some_and(Cluster::is_stale)
    }
}

const ARBITER_BITS: u32 = 8;
const ARBITER_MASK: u64 = 0xFF;
/// Items waiting for one arbiter beyond which publishers are paused.
pub(super) const PRESSED_ITEMS: usize = 20_000;
/// Events waiting in the outboxes of all shards beyond which clients are not read: what some seconds bring at the most.
pub(super) const UNTAKEN_EVENTS_MAX: usize = 200_000;
