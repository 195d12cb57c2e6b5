//! Starting nodes and watching what they tell.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::cluster::clock::wall_ms;
use crate::cluster::{Cluster, ClusterSettings, Hooks, PeerMessage};
use crate::mqtt::{Message, Origin, QoS};
use crate::replica::event::Event;
use crate::replica::{Command, NodeId, ShardId, State};
use crate::storage::{Mode, Storage, StorageError};

pub const SHARDS: u16 = 2;

/// What a node's hooks were told.
#[derive(Default)]
pub struct Recorder {
    pub loaded: AtomicU32,
    pub lost: AtomicU32,
    pub leads: Mutex<BTreeMap<ShardId, bool>>,
    pub events: Mutex<Vec<(ShardId, Event)>>,
    pub messages: Mutex<Vec<(NodeId, PeerMessage)>>,
}

impl Hooks for Recorder {
    fn shard_loaded(&self, _shard: ShardId, _state: &State) {
        self.loaded.fetch_add(1, Ordering::Relaxed);
    }

    fn applied(&self, shard: ShardId, events: &[Event], _leads: bool) {
        self.events.lock().extend(events.iter().map(|event| (shard, event.clone())));
    }

    fn leadership(&self, shard: ShardId, leads: bool) {
        self.leads.lock().insert(shard, leads);
    }

    fn peer_message(&self, from: NodeId, message: PeerMessage) {
        self.messages.lock().push((from, message));
    }

    fn incarnation_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// A running node.
pub struct TestNode {
    pub cluster: Cluster,
    pub hooks: Arc<Recorder>,
}

/// An address that was free a moment ago and that this process gives to nobody else. Below the range from which the kernel gives ports to
/// outgoing connections and to listeners without a port: while nothing listens there, none of those may be given it.
pub fn free_address() -> SocketAddr {
    const PORTS: std::ops::Range<u32> = 12_000..31_900;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(given < PORTS.len() as u32, "no free port in {PORTS:?}");
        // Test runs at the same time start at different places.
        let port = PORTS.start + (std::process::id() * 997 + given) % PORTS.len() as u32;
        if let Ok(listener) = std::net::TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())) {
            return listener.local_addr().unwrap();
        }
    }
}

/// The plan of a cluster: names, ports and data directories.
pub struct Plan {
    directory: TempDir,
    mode: Mode,
    pub addresses: Vec<SocketAddr>,
}

impl Plan {
    pub fn new(nodes: usize, mode: Mode) -> Self {
        let addresses = (0..nodes).map(|_| free_address()).collect();
        Self { directory: tempfile::tempdir().unwrap(), mode, addresses }
    }

    pub fn name(node: usize) -> String {
        format!("node-{node}")
    }

    pub fn path(&self, node: usize) -> PathBuf {
        self.directory.path().join(Self::name(node))
    }

    pub fn settings(&self, node: usize) -> ClusterSettings {
        ClusterSettings {
            enabled: self.addresses.len() > 1,
            node_name: Self::name(node),
            bind: Some(self.addresses[node]),
            advertised: self.addresses[node].to_string(),
            seeds: self.addresses.iter().map(ToString::to_string).collect(),
            dns: None,
            expected_nodes: Some(self.addresses.len()),
            secret: "a secret".to_owned(),
            tls: None,
            shards: SHARDS,
            // Shorter than the defaults, and long enough for a vote and its flush on a machine that does other things.
            heartbeat_ms: 150,
            election_min_ms: 600,
            election_max_ms: 1_200,
            close_without_majority_ms: 10_000,
            protocol: crate::cluster::Protocol::default(),
            must_agree: Vec::new(),
        }
    }

    pub async fn start(&self, node: usize) -> TestNode {
        self.start_with(node, self.settings(node)).await
    }

    pub async fn start_with(&self, node: usize, settings: ClusterSettings) -> TestNode {
        let storage = Arc::new(self.open(node).await.unwrap());
        let hooks = Arc::new(Recorder::default());
        let cluster = Cluster::start(settings, storage, Arc::clone(&hooks) as _).await.unwrap();
        TestNode { cluster, hooks }
    }

    /// Opens the directory when the last task of the node that was there has gone.
    pub async fn open(&self, node: usize) -> Result<Storage, StorageError> {
        let path = self.path(node);
        std::fs::create_dir_all(&path).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match Storage::open(&path, self.mode, &Self::name(node), SHARDS, wall_ms()) {
                Err(error @ StorageError::Locked { .. }) if Instant::now() < until => {
                    tracing::debug!(%error, "the data directory is not free yet");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                opened => return opened,
            }
        }
    }

    /// Removes the directory when the last task of the node that was there has gone: before that it could be written again.
    pub async fn wipe(&self, node: usize) {
        match self.open(node).await {
            Ok(_) | Err(StorageError::Left { .. }) => std::fs::remove_dir_all(self.path(node)).unwrap(),
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn start_all(&self) -> Vec<TestNode> {
        let mut nodes = Vec::new();
        for node in 0..self.addresses.len() {
            nodes.push(self.start(node).await);
        }
        for node in &nodes {
            node.ready().await;
        }
        nodes
    }
}

impl TestNode {
    pub async fn ready(&self) {
        wait_for("readiness", || self.cluster.status().ready, || format!("{:?}", self.cluster.status())).await;
    }

    /// A retained message: visible in the state, on every node.
    pub async fn retain(&self, topic: &str) {
        let shard = ShardId::of(topic, SHARDS);
        let outcome = self.cluster.submit(shard, retain(topic)).await;
        assert_eq!(outcome, Ok(crate::replica::Outcome::Done), "{topic}");
    }

    pub fn retained(&self) -> usize {
        (0..SHARDS).filter_map(|shard| self.cluster.read(ShardId(shard), State::retained_count)).sum()
    }

    pub fn digests(&self) -> Vec<u64> {
        (0..SHARDS).filter_map(|shard| self.cluster.read(ShardId(shard), State::digest)).collect()
    }
}

pub fn retain(topic: &str) -> Command {
    retain_bytes(topic, 10)
}

pub fn retain_bytes(topic: &str, payload_bytes: usize) -> Command {
    static STAMP: AtomicU64 = AtomicU64::new(1);
    Command::Retain {
        message: Arc::new(Message {
            topic: topic.into(),
            payload: vec![b'x'; payload_bytes].into(),
            qos: QoS::AtLeastOnce,
            retain: true,
            payload_format_indicator: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Default::default(),
            message_expiry_interval: None,
            received_at_ms: STAMP.fetch_add(1, Ordering::Relaxed),
            origin: Origin::Extension,
        }),
    }
}

/// Waits for a condition; panics with a description after a minute, in which a busy machine gets there too.
pub async fn wait_for(what: &str, condition: impl Fn() -> bool, state: impl Fn() -> String) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "no {what}: {}", state());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until all nodes hold the same state; the node that submitted last comes last.
pub async fn wait_same_state(nodes: &[&TestNode]) {
    let digests = || nodes.iter().map(|node| node.digests()).collect::<Vec<_>>();
    let same = || {
        let digests = digests();
        digests.iter().all(|digest| *digest == digests[0])
    };
    wait_for("same state", same, || format!("{:?}", digests())).await;
}

/// Log lines of a failing test: set RUST_LOG.
pub fn log() {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

pub fn connect_command(connection: crate::replica::ConnectionRef) -> Command {
    Command::Connect(Arc::new(crate::replica::ConnectCommand {
        connection,
        clean_start: false,
        session_expiry_interval_s: 0,
        will: None,
        facts: Arc::new(crate::signal::ConnectionFacts {
            client_id: "client".into(),
            client_id_assigned: false,
            client_ip: None,
            node_ip: None,
            listener_port: None,
            secure: false,
            protocol: crate::mqtt::ProtocolVersion::V5,
            username: None,
            tls: crate::signal::TlsNames::default(),
            connected_at_ms: 0,
        }),
        user_properties: Vec::new(),
        queue_limit: 10,
        discard_oldest: false,
        lifecycle: true,
        take_over: crate::replica::command::TakeOver::Any,
    }))
}
