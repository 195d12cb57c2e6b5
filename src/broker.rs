//! The composition root: builds every part in order and hands out handles; the only file that knows all rooms.

mod admin;
mod authentication;
mod census;
mod health;
mod sample;
pub(crate) mod settings;
mod stop;

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_rt::{Arbiter, ArbiterHandle};
use tokio::sync::oneshot;

use crate::actor::gate::{key_watch, watch};
use crate::actor::hooks::NodeHooks;
use crate::actor::hub::{Hub, HubMail, Local};
use crate::actor::outbox_taker::{OutboxTaker, TakerMail};
use crate::actor::{Node, clock, declared, overload};
use crate::addon::supervisor::{AddonRenderer, Supervisor};
use crate::addon::{AddonSettings, supervisor::SupervisorMail};
use crate::admin::AdminHandle;
use crate::cluster::{Cluster, ClusterError, Hooks};
use crate::config::Settings;
use crate::config::settings::{PersistenceMode, SHARDS};
use crate::edge::{HttpError, HttpHandle};
use crate::internal_client::InternalClient;
use crate::listener::{Bound, ListenerError};
use crate::replica::ShardId;
use crate::storage::{Mode, ShardCount, Storage, StorageError};
use crate::telemetry::{Metrics, MetricsError};

/// An arbiter index fits into the lowest byte of a connection's number.
const ARBITERS_MAX: usize = 64;
const POLL: Duration = Duration::from_millis(20);

/// Why the broker does not start; the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("{0}")]
    Storage(#[from] StorageError),
    #[error("{0}")]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Listener(#[from] ListenerError),
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    #[error("cannot start threads: {0}")]
    Runtime(#[source] std::io::Error),
    #[error("a part of the broker stopped while it started")]
    Stopped,
}

thread_local! {
    /// What the actors of this arbiter share.
    static LOCAL: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

fn local() -> Option<Rc<Local>> {
    LOCAL.with_borrow(Clone::clone)
}

/// A running broker.
pub struct Broker {
    node: Arc<Node>,
    cluster: Cluster,
    storage: Arc<Storage>,
    runtime: ClusterRuntime,
    arbiters: Vec<Arbiter>,
    listeners: Vec<Bound>,
    http: Vec<HttpHandle>,
    health: Arc<health::NodeHealth>,
    shutdown: settings::Shutdown,
    /// `None` where its socket cannot be opened.
    admin: Option<AdminHandle>,
    /// Whether the node left its cluster for good.
    left: tokio::sync::watch::Receiver<bool>,
    /// Looks whether the credentials have changed.
    credentials: Option<actix_rt::task::JoinHandle<()>>,
    /// Looks whether the keys of tokens have changed.
    keys: Option<actix_rt::task::JoinHandle<()>>,
    /// Looks after declared shared subscriptions.
    declared: actix_rt::task::JoinHandle<()>,
    /// Measures how much the node has to do.
    overload: actix_rt::task::JoinHandle<()>,
}

impl Broker {
    /// Starts everything. Listeners are bound when it returns, and refuse clients until the node is ready. To be called inside an
    /// actix `System`.
    pub async fn start(settings: &Settings, data: &Path) -> Result<Self, BrokerError> {
        let storage = Arc::new(open_storage(settings, data)?);
        let shards = storage.identity().shards;
        let metrics = Arc::new(Metrics::new()?);
        let events = settings::event_log(&settings.event_log, data, &metrics).map_err(BrokerError::Runtime)?;
        let addons = AddonSettings::new(&settings.addons, settings.mqtt.message_expiry_max_s);
        let renderer = Arc::new(AddonRenderer::new(addons, Arc::clone(&metrics)).with_events(events.clone()));
        let authentication = authentication::build(&settings.security, &metrics, &events).map_err(BrokerError::Runtime)?;
        let node = Node::new(settings::node(settings), Arc::clone(&metrics), renderer.clone());
        let node =
            Arc::new(node.with_gate(authentication.gate).with_events(events).with_guard(settings::guard(&settings.security)));

        let arbiters: Vec<Arbiter> = (0..arbiter_count()).map(|_| Arbiter::new()).collect();
        let handles: Vec<ArbiterHandle> = arbiters.iter().map(Arbiter::handle).collect();
        node.connect_arbiters(handles.clone());
        node.connect_hubs(start_hubs(&node, &handles).await?);
        node.connect_takers(start_takers(&node, &handles, shards).await?);
        let client = InternalClient::new(Arc::clone(&node));
        let supervisor = on_arbiter(&handles, 0, move || Supervisor::start_for(client, renderer)).await?;
        node.signals.connect(Box::<SupervisorMail>::new(supervisor));

        let runtime = cluster_runtime()?;
        let hooks: Arc<dyn Hooks> = Arc::new(NodeHooks(Arc::clone(&node)));
        let starting = Cluster::start(settings::cluster(settings, shards), Arc::clone(&storage), Arc::clone(&hooks));
        let cluster = runtime.spawn(starting).await??;
        node.connect_cluster(cluster.clone());
        // What the shards told before the node knew its cluster.
        for shard in (0..cluster.shards()).map(ShardId) {
            hooks.leadership(shard, cluster.leads(shard));
        }

        let health = Arc::new(health::NodeHealth::new(Arc::clone(&node), cluster.clone()));
        let sampler = Arc::new(sample::Sampler::new(Arc::clone(&node), Arc::clone(&storage)));
        let (left_sender, left) = tokio::sync::watch::channel(false);
        watch_loops(&node, &handles, &runtime);
        let (declaring, measured) = (Arc::clone(&node), Arc::clone(&node));
        let mut broker = Self {
            node,
            cluster,
            storage,
            runtime,
            arbiters,
            listeners: Vec::new(),
            http: Vec::new(),
            health: Arc::clone(&health),
            shutdown: settings::shutdown(&settings.shutdown),
            admin: None,
            left,
            declared: actix_rt::spawn(declared::run(declaring)),
            overload: actix_rt::spawn(overload::run(measured)),
            credentials: authentication.watch.map(|watch| actix_rt::spawn(watch::run(watch))),
            keys: authentication.keys.map(|keys| actix_rt::spawn(key_watch::run(keys))),
        };
        for http in &settings.http {
            let address = SocketAddr::new(http.bind_address, http.port);
            let (element, surface) = settings::surface(http);
            let (metrics, health) = (Arc::clone(&metrics), Arc::clone(&health));
            broker.http.push(crate::edge::serve(address, element, surface, metrics, sampler.clone(), health).await?);
        }
        for listener in &settings.listeners {
            let timeout_ms = settings.restrictions.no_connect_idle_timeout_ms;
            broker.listeners.push(crate::listener::start(listener, &handles, local, timeout_ms)?);
        }
        health.set_listeners(broker.listeners.clone());
        let admin = Arc::new(admin::NodeAdmin::new(Arc::clone(&broker.node), broker.cluster.clone(), health, left_sender));
        broker.admin = open_admin(&broker.runtime, data.to_owned(), admin).await?;
        Ok(broker)
    }

    /// Resolves when the node is ready for clients.
    pub async fn ready(&self) {
        while !self.cluster.is_ready() || !self.node.has_declared.load(Ordering::Acquire) {
            actix_rt::time::sleep(POLL).await;
        }
    }

    /// The MQTT listeners as they are bound.
    pub fn listeners(&self) -> &[Bound] {
        &self.listeners
    }

    /// The HTTP listeners as they are bound.
    pub fn http(&self) -> &[HttpHandle] {
        &self.http
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Resolves when the node has left its cluster for good, as an operator wanted: the process is to end.
    pub async fn left(&self) {
        let mut left = self.left.clone();
        if left.wait_for(|left| *left).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Why the broker cannot go on, if so: the disk failed.
    pub fn failure(&self) -> Option<String> {
        let poisoned = || self.storage.stats().poisoned.then(|| "the data directory cannot be written any more".to_owned());
        self.cluster.failure().or_else(poisoned)
    }
}

/// A node without its socket serves clients as well as any: it is said, and it runs on.
async fn open_admin(
    runtime: &ClusterRuntime,
    data: PathBuf,
    handler: Arc<admin::NodeAdmin>,
) -> Result<Option<AdminHandle>, BrokerError> {
    let opened = runtime.spawn(async move {
        // With persistence in memory nothing else makes it.
        std::fs::create_dir_all(&data)?;
        crate::admin::serve(&data, handler)
    });
    Ok(match opened.await? {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!(%error, "no admin socket in the data directory: `troupemq cluster` cannot reach this node");
            None
        }
    })
}

fn open_storage(settings: &Settings, data: &Path) -> Result<Storage, StorageError> {
    let mode = match settings.persistence {
        PersistenceMode::File => Mode::File,
        PersistenceMode::InMemory => Mode::InMemory,
    };
    let shards = settings.cluster.shards.map_or(ShardCount::StoredOr(SHARDS), ShardCount::Exactly);
    Storage::open(data, mode, &settings.cluster.node_name, shards, clock::wall_ms())
}

fn arbiter_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(1, ARBITERS_MAX)
}

/// Consensus and storage run beside the arbiters, so that a busy client never delays a heartbeat.
struct ClusterRuntime(Option<tokio::runtime::Runtime>);

impl ClusterRuntime {
    /// Runs a future there; the handle resolves wherever it is awaited.
    fn spawn<F>(&self, future: F) -> impl Future<Output = Result<F::Output, BrokerError>> + use<F>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = self.0.as_ref().map(|runtime| runtime.spawn(future));
        async move {
            match task {
                Some(task) => task.await.map_err(|_| BrokerError::Stopped),
                None => Err(BrokerError::Stopped),
            }
        }
    }
}

impl Drop for ClusterRuntime {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which is not allowed inside another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn cluster_runtime() -> Result<ClusterRuntime, BrokerError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arbiter_count().max(2))
        .thread_name("cluster")
        .enable_all()
        .build()
        .map_err(BrokerError::Runtime)?;
    Ok(ClusterRuntime(Some(runtime)))
}

/// How late timers are on each arbiter, and on the threads of the cluster, which are one to whoever waits for them.
fn watch_loops(node: &Node, arbiters: &[ArbiterHandle], runtime: &ClusterRuntime) {
    for (number, arbiter) in arbiters.iter().enumerate() {
        arbiter.spawn(node.load.lags.watch(&number.to_string(), &node.metrics));
    }
    drop(runtime.spawn(node.load.lags.watch("cluster", &node.metrics)));
}

async fn start_hubs(node: &Arc<Node>, arbiters: &[ArbiterHandle]) -> Result<Vec<HubMail>, BrokerError> {
    let mut hubs = Vec::new();
    for index in 0..arbiters.len() {
        let node = Arc::clone(node);
        let start = move || {
            let local = Local::new(node, index);
            LOCAL.with_borrow_mut(|slot| *slot = Some(Rc::clone(&local)));
            Hub::start(local)
        };
        hubs.push(on_arbiter(arbiters, index, start).await?);
    }
    Ok(hubs)
}

async fn start_takers(node: &Arc<Node>, arbiters: &[ArbiterHandle], shards: u16) -> Result<Vec<TakerMail>, BrokerError> {
    let mut takers = Vec::new();
    for shard in 0..shards {
        let node = Arc::clone(node);
        let start = move || OutboxTaker::start_for(node, ShardId(shard), shards);
        takers.push(on_arbiter(arbiters, usize::from(shard), start).await?);
    }
    Ok(takers)
}

/// Runs a function on an arbiter and brings back what it made.
async fn on_arbiter<T: Send + 'static>(
    arbiters: &[ArbiterHandle],
    number: usize,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BrokerError> {
    let (sender, receiver) = oneshot::channel();
    let arbiter = arbiters.get(number % arbiters.len().max(1)).ok_or(BrokerError::Stopped)?;
    arbiter.spawn_fn(move || drop(sender.send(make())));
    receiver.await.map_err(|_| BrokerError::Stopped)
}

/// The address a person on this machine would type.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
