//! A simulated node: the broker as it is, but for listeners and HTTP, on a runtime of its own whose clock stands still between turns.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use crate::actor::Node;
use crate::actor::client::Client;
use crate::actor::hooks::NodeHooks;
use crate::actor::hub::{Hub, HubItem, Local};
use crate::actor::outbox_taker::OutboxTaker;
use crate::actor::parting::{self, Whom};
use crate::actor::transport::{Accepted, ListenerName};
use crate::addon::AddonSettings;
use crate::addon::supervisor::{AddonRenderer, Supervisor, SupervisorMail};
use crate::broker::settings as rooms;
use crate::cluster::simulated::{self, Net, Turn};
use crate::cluster::{Cluster, ClusterSettings, Hooks};
use crate::config::Settings;
use crate::internal_client::InternalClient;
use crate::mqtt::ReasonCode;
use crate::replica::{NodeId, ShardId, State};
use crate::storage::Storage;
use crate::telemetry::Metrics;

use super::disk::Disk;
use super::network::{self, Network};
use super::pipe::{NodeEnd, Pipe};

pub const SHARDS: u16 = 2;
/// A node is stopped in order within so much, by its own clock.
const STOP_MAX: Duration = Duration::from_secs(12);

/// A machine: its disk, its clock and, while it runs, its process.
pub struct SimNode {
    pub index: usize,
    pub name: String,
    disk: Arc<Disk>,
    process: Option<Process>,
    /// By how much its clocks run fast, parts per million.
    pub drift_ppm: i64,
    drift_carry: i64,
    /// What its wall clock is ahead of the simulated time, ms.
    pub wall_ahead_ms: i64,
    pub paused_until_ms: u64,
    /// For so long it was paused and has not noticed yet.
    missed_ms: u64,
    pub restart_at_ms: Option<u64>,
    pub disk_busy_until_ms: u64,
    /// It was removed from the cluster, or never was in it, and is to stay away.
    pub is_out: bool,
}

/// The parts of a running broker that the simulator speaks to. Dropped in this order, the runtime last.
struct Process {
    stopping: Option<actix_rt::task::JoinHandle<()>>,
    local: Rc<Local>,
    cluster: Cluster,
    node: Arc<Node>,
    storage: Arc<Storage>,
    turn: RefCell<Option<Turn>>,
    /// Connections with clients.
    pipes: Vec<std::rc::Weak<RefCell<Pipe>>>,
    system: actix_rt::SystemRunner,
}

impl SimNode {
    pub fn new(index: usize) -> Self {
        Self {
            index,
            name: format!("node-{index}"),
            disk: Disk::new(SHARDS + 1),
            process: None,
            drift_ppm: 0,
            drift_carry: 0,
            wall_ahead_ms: 0,
            paused_until_ms: 0,
            missed_ms: 0,
            restart_at_ms: None,
            disk_busy_until_ms: 0,
            is_out: false,
        }
    }

    pub fn id(&self) -> NodeId {
        crate::cluster::node_id(&self.name)
    }

    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    pub fn is_paused(&self, now_ms: u64) -> bool {
        now_ms < self.paused_until_ms
    }

    fn wall_ms(&self, now_ms: u64) -> u64 {
        const EPOCH_MS: i64 = 1_800_000_000_000;
        u64::try_from(EPOCH_MS + i64::try_from(now_ms).unwrap_or(0) + self.wall_ahead_ms).unwrap_or(0)
    }

    /// Starts the broker's process from what is on the disk.
    ///
    /// # Errors
    /// Why it does not start.
    pub fn start(
        &mut self,
        nodes: usize,
        settings: &Settings,
        net: &Rc<Network>,
        rng: &mut StdRng,
        now_ms: u64,
    ) -> Result<(), String> {
        let chance = rng.random::<u64>();
        let system = actix_rt::System::with_tokio_rt(|| {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            // Without the flag (.cargo/config.toml) the order of wake-ups is tokio's, and two runs of a seed differ.
            #[cfg(tokio_unstable)]
            builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&chance.to_le_bytes()));
            #[cfg(not(tokio_unstable))]
            let _ = chance;
            builder.enable_time().start_paused(true).build().expect("a runtime")
        });
        let arbiter = actix_rt::System::current().arbiter().clone();
        let origin = system.block_on(async { Instant::now() });
        let turn = Turn::new(origin, self.wall_ms(now_ms), rng.random(), Rc::clone(net) as Rc<dyn Net>);
        net.set_turn(self.index);
        simulated::swap(Some(turn));
        let settings = settings_of(self.index, &self.name, nodes, settings);
        let disk = Arc::clone(&self.disk);
        let started = system.block_on(async move {
            let name = settings.0.node_name.clone();
            let storage = Storage::simulated(disk, &name, SHARDS, crate::cluster::clock::wall_ms()).map_err(|e| e.to_string())?;
            let storage = Arc::new(storage);
            assemble(settings, Arc::clone(&storage), arbiter).await.map(|parts| (parts, storage))
        });
        let turn = simulated::swap(None);
        match started {
            Ok(((local, cluster, node), storage)) => {
                let turn = RefCell::new(turn);
                self.process = Some(Process { stopping: None, local, cluster, node, storage, turn, pipes: Vec::new(), system });
                self.restart_at_ms = None;
                Ok(())
            }
            Err(error) => {
                drop(system);
                Err(error)
            }
        }
    }

    /// Runs something as this node does.
    fn within<R>(&mut self, net: &Network, run: impl AsyncFnOnce(&mut Running<'_>) -> R) -> Option<R> {
        let process = self.process.as_mut()?;
        net.set_turn(self.index);
        simulated::swap(process.turn.take());
        let Process { local, cluster, node, pipes, stopping, .. } = process;
        let mut running = Running { local, cluster, node, pipes, stopping };
        let result = process.system.block_on(run(&mut running));
        process.turn.replace(simulated::swap(None));
        Some(result)
    }

    /// Asks this node something; no time passes. (Its clocks are to be had on its runtime only.)
    fn ask<R>(&self, ask: impl FnOnce(&Cluster) -> R) -> Option<R> {
        let process = self.process.as_ref()?;
        simulated::swap(process.turn.take());
        let answer = process.system.block_on(async { ask(&process.cluster) });
        process.turn.replace(simulated::swap(None));
        Some(answer)
    }

    /// Lets so many simulated milliseconds pass, more or fewer by its drifting clock.
    pub fn turn(&mut self, net: &Network, ms: u64, now_ms: u64) {
        let ms_i = i64::try_from(ms).unwrap_or(0);
        self.drift_carry += ms_i * self.drift_ppm;
        let extra = self.drift_carry / 1_000_000;
        self.drift_carry -= extra * 1_000_000;
        self.wall_ahead_ms += extra;
        let own_ms = u64::try_from((ms_i + extra).max(1)).unwrap_or(1);
        let is_synced = now_ms >= self.disk_busy_until_ms;
        let disk = Arc::clone(&self.disk);
        let missed = Duration::from_millis(std::mem::take(&mut self.missed_ms));
        self.within(net, async |_| {
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            if is_synced {
                disk.sync();
            }
            tokio::time::sleep(Duration::from_millis(own_ms)).await;
        });
    }

    /// Stops the process as SIGSTOP does; its clocks go on.
    pub fn pause(&mut self, now_ms: u64, for_ms: u64) {
        if !self.is_paused(now_ms) {
            self.paused_until_ms = now_ms + for_ms;
            self.missed_ms += for_ms;
        }
    }

    /// Sets the wall clock.
    pub fn jump(&mut self, by_ms: i64) {
        self.wall_ahead_ms += by_ms;
        if let Some(turn) = self.process.as_mut().and_then(|process| process.turn.get_mut().as_mut()) {
            turn.wall_ms_at_origin = turn.wall_ms_at_origin.saturating_add_signed(by_ms);
        }
    }

    /// The process is gone at once.
    pub fn crash(&mut self, net: &Network, rng: &mut StdRng, power_lost: bool) {
        let Some(process) = self.process.take() else { return };
        self.disk.crash(rng, power_lost);
        net.process_gone(self.index, !power_lost);
        for pipe in process.pipes.iter().filter_map(std::rc::Weak::upgrade) {
            pipe.borrow_mut().node_closed = true;
        }
        net.set_turn(self.index);
        simulated::swap(process.turn.take());
        drop(process);
        simulated::swap(None);
        self.paused_until_ms = 0;
        self.missed_ms = 0;
    }

    /// A new, empty disk.
    pub fn lose_disk(&mut self) {
        self.disk = Disk::new(SHARDS + 1);
    }

    /// Begins to stop in order.
    pub fn begin_stop(&mut self, net: &Network) {
        self.within(net, async |running| {
            if running.stopping.is_some() {
                return;
            }
            let stopping = stop_in_order(running.cluster.clone(), Arc::clone(running.node));
            *running.stopping = Some(actix_rt::spawn(async move {
                let _ = tokio::time::timeout(STOP_MAX, stopping).await;
            }));
        });
    }

    pub fn is_stopping(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.stopping.is_some())
    }

    pub fn is_stopped(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.stopping.as_ref().is_some_and(|task| task.is_finished()))
    }

    /// A client connects.
    pub fn accept(&mut self, net: &Network, client: u16) -> Option<Rc<RefCell<Pipe>>> {
        if self.is_stopping() {
            return None;
        }
        self.within(net, async |running| {
            let pipe = Pipe::new();
            running.pipes.retain(|pipe| pipe.strong_count() > 0);
            running.pipes.push(Rc::downgrade(&pipe));
            let accepted = Accepted {
                peer_ip: Some([10, 1, 0, 1].into()),
                peer_port: client,
                local: None,
                listener_port: 1883,
                listener: Arc::new(ListenerName { name: "sim".into(), kind: "TCP Listener" }),
                secure: false,
                certificate: None,
            };
            Client::start_for(Rc::clone(running.local), Box::new(NodeEnd(Rc::clone(&pipe))), accepted);
            pipe
        })
    }

    pub fn is_ready(&self) -> bool {
        self.ask(Cluster::is_ready).unwrap_or(false)
    }

    /// Its replicas are there, and have their votes, as everybody's.
    pub fn is_filled(&self, nodes: usize) -> bool {
        let is_voteless = self.process.as_ref().is_none_or(|process| process.storage.is_voteless());
        let status = self.ask(Cluster::status);
        self.is_ready()
            && !is_voteless
            && status.is_some_and(|status| status.groups.iter().all(|group| !group.changing && group.voters.len() == nodes))
    }

    pub fn waiting_for(&self) -> Option<String> {
        self.ask(Cluster::status).and_then(|status| status.waiting_for).map(|(reason, _)| reason)
    }

    pub fn failure(&self) -> Option<String> {
        self.ask(Cluster::failure).flatten()
    }

    pub fn read<R>(&self, shard: ShardId, read: impl FnOnce(&State) -> R) -> Option<R> {
        self.ask(|cluster| cluster.read(shard, read)).flatten()
    }

    pub fn leads(&self, shard: ShardId) -> bool {
        self.ask(|cluster| cluster.leads(shard)).unwrap_or(false)
    }

    pub fn pending(&self) -> usize {
        self.ask(|cluster| (0..SHARDS).map(|shard| cluster.pending(ShardId(shard))).sum()).unwrap_or(0)
    }

    /// Terms of all groups, to count elections, and where each is: (term, applied, snapshot).
    pub fn groups(&self) -> Vec<(u64, u64, u64)> {
        let status = self.ask(Cluster::status);
        status.map_or_else(Vec::new, |s| s.groups.iter().map(|g| (g.term, g.applied_index, g.snapshot_index)).collect())
    }

    /// Begins to remove another node from the cluster; tried again by whoever asks again.
    pub fn remove_member(&mut self, net: &Network, gone: NodeId) {
        self.within(net, async |running| {
            let cluster = running.cluster.clone();
            actix_rt::spawn(async move {
                let _ = cluster.remove_member(gone, |_| ()).await;
            });
        });
    }
}

/// What a turn of the node may use.
struct Running<'a> {
    local: &'a Rc<Local>,
    cluster: &'a Cluster,
    node: &'a Arc<Node>,
    pipes: &'a mut Vec<std::rc::Weak<RefCell<Pipe>>>,
    stopping: &'a mut Option<actix_rt::task::JoinHandle<()>>,
}

fn settings_of(index: usize, name: &str, nodes: usize, settings: &Settings) -> (ClusterSettings, Settings) {
    let cluster = ClusterSettings {
        enabled: true,
        node_name: name.to_owned(),
        bind: Some(network::address(index)),
        advertised: network::address(index).to_string(),
        seeds: (0..nodes.max(index + 1)).map(|node| network::address(node).to_string()).collect(),
        expected_nodes: Some(nodes),
        secret: "simulated".to_owned(),
        tls: None,
        ..rooms::cluster(settings, SHARDS)
    };
    (cluster, settings.clone())
}

/// As `broker::stop` does.
async fn stop_in_order(cluster: Cluster, node: Arc<Node>) {
    const STAGE_MAX: Duration = Duration::from_secs(3);
    let none_left = async || {
        while node.connections.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    cluster.begin_stop();
    let _ = tokio::time::timeout(STAGE_MAX, cluster.hand_over()).await;
    let by = Instant::now() + STAGE_MAX;
    let _ = tokio::time::timeout(STAGE_MAX, parting::part_with(&node, Whom::All, Some(by), || true)).await;
    for hub in node.hubs() {
        hub.post(HubItem::CloseAll { reason_code: ReasonCode::ServerShuttingDown, tell_shard: true });
    }
    let _ = tokio::time::timeout(STAGE_MAX, none_left()).await;
    let settled = async {
        while (0..SHARDS).any(|shard| cluster.pending(ShardId(shard)) > 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let _ = tokio::time::timeout(STAGE_MAX, settled).await;
    let _ = tokio::time::timeout(STAGE_MAX, cluster.say_goodbye()).await;
    cluster.close().await;
}

/// Puts the parts together as `broker` does, on one arbiter.
async fn assemble(
    settings: (ClusterSettings, Settings),
    storage: Arc<Storage>,
    arbiter: actix_rt::ArbiterHandle,
) -> Result<(Rc<Local>, Cluster, Arc<Node>), String> {
    let (cluster_settings, settings) = settings;
    let metrics = Arc::new(Metrics::new().map_err(|e| e.to_string())?);
    let addons = AddonSettings::new(&settings.addons, settings.mqtt.message_expiry_max_s);
    let renderer = Arc::new(AddonRenderer::new(addons, Arc::clone(&metrics)));
    let node = Arc::new(Node::new(rooms::node(&settings), metrics, renderer.clone()));
    node.connect_arbiters(vec![arbiter]);
    let local = Local::new(Arc::clone(&node), 0);
    node.connect_hubs(vec![Hub::start(Rc::clone(&local))]);
    let takers = (0..SHARDS).map(|shard| OutboxTaker::start_for(Arc::clone(&node), ShardId(shard), SHARDS)).collect();
    node.connect_takers(takers);
    let supervisor = Supervisor::start_for(InternalClient::new(Arc::clone(&node)), renderer);
    node.signals.connect(Box::<SupervisorMail>::new(supervisor));
    let hooks: Arc<dyn Hooks> = Arc::new(NodeHooks(Arc::clone(&node)));
    let cluster = Cluster::start(cluster_settings, storage, Arc::clone(&hooks)).await.map_err(|e| e.to_string())?;
    node.connect_cluster(cluster.clone());
    for shard in (0..SHARDS).map(ShardId) {
        hooks.leadership(shard, cluster.leads(shard));
    }
    Ok((local, cluster, node))
}
