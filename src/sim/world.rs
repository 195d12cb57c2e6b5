//! Simulated machines, the network between them and clients, in one thread, step by step.

use std::rc::Rc;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

use crate::config::Settings;
use crate::mqtt::QoS;
use crate::plant::{self, Plant};
use crate::replica::{ShardId, State};

use super::client::{Profile, SimClient};
use super::faults::Faults;
use super::network::Network;
use super::node::{SHARDS, SimNode};
use super::oracle::Oracle;
use super::trace::Trace;
use super::{Options, Outcome};

/// A step of the simulated time.
const STEP_MS: u64 = 5;
/// The cluster must be ready, and come to rest once everything is healed, within so much.
const READY_MS_MAX: u64 = 60_000;
const REST_MS_MAX: u64 = 180_000;
/// Nothing came for so long: everything is at rest.
const REST_MS: u64 = 8_000;
/// Replicas at rest are equal at some moment within so much.
const EQUAL_MS_MAX: u64 = 2_000;
/// Events in a shard's outbox, and entries of one queue, at rest.
const OUTBOX_REST_MAX: u64 = 20_000;

pub struct World {
    pub now_ms: u64,
    pub rng: StdRng,
    pub nodes: Vec<SimNode>,
    pub clients: Vec<SimClient>,
    pub net: Rc<Network>,
    pub oracle: Oracle,
    pub faults: Faults,
    settings: Settings,
    terms: Vec<u64>,
    steps: u64,
}

/// Simulates one seed to its end.
pub fn run(seed: u64, options: &Options) -> Outcome {
    plant::plant(options.plant);
    if std::env::var_os("SIM_LOG").is_some() {
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .without_time()
            .with_writer(std::io::stderr)
            .try_init();
    }
    let mut world = World::new(seed, options);
    world.play(options.chaos_ms);
    let outcome = world.outcome(seed);
    drop(world);
    plant::plant(None::<Plant>);
    outcome
}

impl World {
    fn new(seed: u64, options: &Options) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let profiles = profiles(&mut rng);
        let net = Rc::new(Network::new(options.nodes, StdRng::seed_from_u64(rng.random())));
        let mut nodes: Vec<SimNode> = (0..options.nodes).map(SimNode::new).collect();
        for node in &mut nodes {
            node.drift_ppm = rng.random_range(-20_000..=20_000);
            node.wall_ahead_ms = rng.random_range(-2_000..=2_000);
        }
        let clients = profiles.iter().enumerate().map(|(index, profile)| SimClient::new(index, profile.clone())).collect();
        Self {
            now_ms: 0,
            rng,
            nodes,
            clients,
            net,
            oracle: Oracle::new(Trace::new(options.aloud), profiles, options.nodes),
            faults: Faults::default(),
            settings: super::settings(),
            terms: vec![0; usize::from(SHARDS) + 1],
            steps: 0,
        }
    }

    fn play(&mut self, chaos_ms: u64) {
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        self.until("the cluster to be ready", READY_MS_MAX, Self::all_are_ready);
        let late_ms = self.now_ms + chaos_ms;
        for client in &mut self.clients {
            let id = client.profile.id.as_str();
            client.next_connect_ms = match id {
                "events" => 0,
                _ if id.starts_with("late") => self.rng.random_range(self.now_ms..late_ms),
                _ => u64::MAX,
            };
        }
        // What these are to see happens as soon as others connect.
        self.until("the watcher of events", READY_MS_MAX, |world| world.clients[0].subscribed);
        self.clients[1].next_connect_ms = self.now_ms;
        self.until("the watcher of wills", READY_MS_MAX, |world| world.clients[1].subscribed);
        for client in self.clients.iter_mut().filter(|client| client.next_connect_ms == u64::MAX) {
            let is_publisher = !client.profile.topics.is_empty();
            client.next_connect_ms = self.now_ms + u64::from(is_publisher) * 2_000;
        }
        let chaos_begins_ms = self.now_ms + 1_000;
        let chaos_ends_ms = self.now_ms + chaos_ms;
        while self.now_ms < chaos_ends_ms && self.oracle.failure.is_none() {
            if self.now_ms > chaos_begins_ms {
                self.faults();
            }
            self.step();
        }
        self.come_to_rest();
    }

    fn until(&mut self, what: &str, ms_max: u64, is_so: impl Fn(&Self) -> bool) {
        let end_ms = self.now_ms + ms_max;
        while !is_so(self) && self.oracle.failure.is_none() {
            if self.now_ms >= end_ms {
                let waiting: Vec<_> = self.nodes.iter().map(|node| node.waiting_for()).collect();
                self.oracle.fail(format!("waited {ms_max} ms in vain for {what}; the nodes wait for {waiting:?}"));
                return;
            }
            self.go_on_with_members();
            self.step();
        }
    }

    pub(super) fn all_are_ready(&self) -> bool {
        self.nodes.iter().all(SimNode::is_ready)
    }

    /// Every replica has about all that is committed.
    pub(super) fn have_equal_logs(&self) -> bool {
        let applied: Vec<Vec<(u64, u64, u64)>> = self.nodes.iter().map(SimNode::groups).collect();
        let same_term =
            applied.windows(2).all(|pair| pair[0].iter().zip(&pair[1]).all(|(a, b)| a.0 == b.0 && a.1.abs_diff(b.1) < 20));
        same_term && applied.iter().all(|groups| groups.len() == usize::from(SHARDS) + 1)
    }

    /// Heals everything, waits until nothing is under way, and looks whether anything is missing.
    fn come_to_rest(&mut self) {
        if self.oracle.failure.is_some() {
            return;
        }
        self.oracle.trace.say(self.now_ms, format_args!("everything heals"));
        self.net.heal();
        self.faults.healing.clear();
        self.faults.doomed.clear();
        if let Some((removed, at_ms)) = &mut self.faults.removed {
            let _ = removed;
            *at_ms = (*at_ms).min(self.now_ms + 10_000);
        }
        for node in &mut self.nodes {
            node.drift_ppm = 0;
            node.disk_busy_until_ms = 0;
        }
        for client in &mut self.clients {
            client.quiet = true;
            client.next_connect_ms = client.next_connect_ms.min(self.now_ms);
            client.profile.visitor = false;
            if let Some(connection) = &mut client.connection {
                (connection.leave_ms, connection.hasty_ms) = (None, None);
            }
        }
        // One that is stopped hears nothing of it before it goes on.
        self.until("all nodes to be ready", REST_MS_MAX, |world| {
            world.all_are_ready() && world.nodes.iter().all(|node| !node.is_paused(world.now_ms))
        });
        self.until("all clients to be at rest", REST_MS_MAX, |world| world.clients.iter().all(SimClient::is_at_rest));
        let mut delivered = (self.oracle.coverage.count("messages delivered"), self.now_ms);
        let end_ms = self.now_ms + REST_MS_MAX;
        while self.now_ms < delivered.1 + REST_MS && self.oracle.failure.is_none() {
            self.step();
            let count = self.oracle.coverage.count("messages delivered");
            if count != delivered.0 {
                delivered = (count, self.now_ms);
            }
            if self.now_ms > end_ms {
                self.oracle.fail("messages are delivered without end".to_owned());
            }
        }
        if self.oracle.failure.is_none() {
            self.check_rest();
        }
    }

    fn check_rest(&mut self) {
        let online: Vec<usize> = self.clients.iter().filter(|client| client.is_online()).map(|client| client.index).collect();
        if online.len() < self.clients.len() {
            self.oracle.fail("not all clients stay online".to_owned());
        }
        for client in &self.clients {
            if !client.left_open.is_empty() {
                let what = format!("{} has {} connections at once", client.profile.id, client.left_open.len() + 1);
                self.oracle.fail(what);
                return;
            }
        }
        self.oracle.at_rest(&online);
        self.check_replicas();
    }

    fn digests(&self, shard: ShardId) -> Vec<u64> {
        self.nodes.iter().filter_map(|node| node.read(shard, |state| state.digest())).collect()
    }

    /// Replicas are equal, but for an entry that is just on its way, and hold no more than they should.
    fn check_replicas(&mut self) {
        for shard in (0..SHARDS).map(ShardId) {
            let differ = |digests: &[u64]| digests.windows(2).any(|pair| pair[0] != pair[1]);
            let by_ms = self.now_ms + EQUAL_MS_MAX;
            while differ(&self.digests(shard)) && self.now_ms < by_ms {
                self.step();
            }
            let digests = self.digests(shard);
            if differ(&digests) {
                self.oracle.fail(format!("replicas of shard {} differ: {digests:x?}", shard.0));
            }
            for node in &self.nodes {
                let Some((queued, bounds)) = node.read(shard, |state| (state.queued_count(), state.outbox_bounds())) else {
                    continue;
                };
                let outbox = bounds.1.index.saturating_sub(bounds.0.index);
                if queued > 0 || outbox > OUTBOX_REST_MAX || node.pending() > 0 {
                    let pending = node.pending();
                    let queues = node.read(shard, queues).unwrap_or_default();
                    let leader = self.nodes.iter().position(|node| node.leads(shard));
                    let what = format!(
                        "at rest node {} holds {queued} queued messages in shard {} ({queues}; leader {leader:?}), {outbox} entries of \
                         outbox, {pending} commands",
                        node.index, shard.0
                    );
                    self.oracle.fail(what);
                    return;
                }
            }
        }
    }

    fn start(&mut self, node: usize) {
        let nodes = self.nodes.len();
        let net = Rc::clone(&self.net);
        self.oracle.trace.say(self.now_ms, format_args!("node {node} starts"));
        if let Err(error) = self.nodes[node].start(nodes, &self.settings, &net, &mut self.rng, self.now_ms) {
            self.oracle.fail(format!("node {node} does not start: {error}"));
        }
    }

    pub(super) fn step(&mut self) {
        self.now_ms += STEP_MS;
        self.steps += 1;
        let now_ms = self.now_ms;
        let powered: Vec<bool> = self.nodes.iter().map(|node| node.is_running() || node.restart_at_ms.is_none()).collect();
        self.net.step(now_ms, |node| powered.get(node).copied().unwrap_or(false));
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_running()
                && !self.nodes[node].is_out
                && self.nodes[node].restart_at_ms.is_some_and(|at| at <= now_ms)
            {
                self.start(node);
            }
            if self.nodes[node].is_stopped() {
                let net = Rc::clone(&self.net);
                self.nodes[node].crash(&net, &mut self.rng, false);
                self.nodes[node].restart_at_ms = Some(now_ms + self.rng.random_range(50..5_000));
            }
        }
        self.clients();
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.shuffle(&mut self.rng);
        let net = Rc::clone(&self.net);
        for node in order {
            if !self.nodes[node].is_paused(now_ms) {
                self.nodes[node].turn(&net, STEP_MS, now_ms);
            }
        }
        if now_ms.is_multiple_of(100) {
            self.look();
        }
    }

    fn clients(&mut self) {
        let net = Rc::clone(&self.net);
        for client in &mut self.clients {
            client.step(self.now_ms, &mut self.rng, &mut self.oracle);
            if client.connection.is_some() || self.now_ms < client.next_connect_ms {
                continue;
            }
            let node = self.rng.random_range(0..self.nodes.len());
            client.next_connect_ms = self.now_ms + 200;
            if self.nodes[node].is_paused(self.now_ms) {
                continue;
            }
            let port = u16::try_from(client.index).unwrap_or(0);
            if let Some(pipe) = self.nodes[node].accept(&net, port) {
                client.open(node, pipe, self.now_ms, &mut self.rng, &mut self.oracle);
            }
        }
    }

    /// What is looked at now and then.
    fn look(&mut self) {
        if self.oracle.trace.aloud {
            let (bytes, connects) = self.net.totals();
            self.oracle.trace.say(self.now_ms, format_args!("{bytes} bytes between nodes, {connects} connections"));
        }
        for node in &self.nodes {
            for (group, (term, _, _)) in node.groups().into_iter().enumerate() {
                if term > self.terms[group] {
                    self.oracle.coverage.add("terms", term - self.terms[group]);
                    self.terms[group] = term;
                }
            }
            if let Some(failure) = node.failure().filter(|_| !node.is_stopping()) {
                self.oracle.fail(format!("node {} has stopped: {failure}", node.index));
            }
        }
        for node in 0..self.nodes.len() {
            let touched = (0..self.nodes.len()).any(|other| other != node && self.net.is_cut(node, other));
            if touched {
                self.oracle.node_cut_off(node, self.now_ms);
            }
        }
        for shard in (0..SHARDS).map(ShardId) {
            let leaders = self.nodes.iter().filter(|node| node.leads(shard)).count();
            self.oracle
                .coverage
                .add("shard seconds without a leader", u64::from(leaders == 0 && self.now_ms.is_multiple_of(1_000)));
        }
    }

    fn outcome(&mut self, seed: u64) -> Outcome {
        let (bytes, connects) = self.net.totals();
        let coverage = &mut self.oracle.coverage;
        coverage.add("bytes between nodes", bytes);
        coverage.add("connections between nodes", connects);
        coverage.add("steps", self.steps);
        coverage.add("messages published", self.oracle.messages.len() as u64);
        Outcome {
            seed,
            failure: self.oracle.failure.take(),
            hash: self.oracle.trace.hash(),
            simulated_ms: self.now_ms,
            coverage: self.oracle.coverage.clone(),
            trace: self.oracle.trace.last(usize::MAX),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let net = Rc::clone(&self.net);
        for node in &mut self.nodes {
            node.crash(&net, &mut self.rng, false);
        }
    }
}

/// Whose queues hold how many.
fn queues(state: &State) -> String {
    let sessions = state.sessions().map(|session| (session.client.to_string(), session.queue.entries.len()));
    let groups = state.groups().map(|(id, group)| (id.full().to_string(), group.queue.entries.len()));
    let held = sessions.chain(groups).filter(|(_, count)| *count > 0);
    held.map(|(owner, count)| format!("{owner} {count}")).collect::<Vec<_>>().join(", ")
}

fn profiles(rng: &mut StdRng) -> Vec<Profile> {
    use QoS::{AtLeastOnce, ExactlyOnce};
    let base = |id: &str, persistent: bool, filters: &[(&str, QoS)]| Profile {
        id: id.to_owned(),
        persistent,
        filters: filters.iter().map(|(filter, qos)| ((*filter).to_owned(), *qos)).collect(),
        topics: Vec::new(),
        rate: 1.0,
        window: 8,
        retain: false,
        will: false,
        visitor: false,
        ack_delay_ms: 60,
    };
    let mut all = vec![
        base("events", true, &[("$client-events/#", AtLeastOnce), ("$expired/#", AtLeastOnce)]),
        base("wills", true, &[("w/#", AtLeastOnce)]),
        base("all-2", true, &[("t/#", ExactlyOnce)]),
        base("all-1", true, &[("t/+/0", AtLeastOnce), ("t/#", AtLeastOnce)]),
        base("some-2", true, &[("t/pub-0/#", ExactlyOnce)]),
        base("clean", false, &[("t/#", ExactlyOnce)]),
        base("g-1", true, &[("$share/g/t/#", ExactlyOnce)]),
        base("g-2", true, &[("$share/g/t/#", ExactlyOnce)]),
        base("g-3", true, &[("$share/g/t/#", ExactlyOnce)]),
        base("h-1", true, &[("$share/h/t/#", AtLeastOnce)]),
        base("h-2", true, &[("$share/h/t/#", AtLeastOnce)]),
        base("late-1", true, &[("t/#", ExactlyOnce)]),
        base("late-2", true, &[("t/#", AtLeastOnce)]),
        base("late-3", true, &[("t/+/1", ExactlyOnce)]),
        base("late-4", true, &[("t/#", ExactlyOnce)]),
        Profile { visitor: true, ..base("visitor-1", false, &[("r/#", AtLeastOnce)]) },
        Profile { visitor: true, ..base("visitor-2", false, &[("r/#", ExactlyOnce)]) },
        Profile { will: true, ..base("willing-1", true, &[]) },
        Profile { will: true, ..base("willing-2", false, &[]) },
    ];
    for number in 0..3 {
        let id = format!("pub-{number}");
        let topics = (0..2).map(|at| format!("t/{id}/{at}")).collect();
        let rate = rng.random_range(1.0..5.0);
        all.push(Profile { topics, rate, will: number == 0, ..base(&id, true, &[]) });
    }
    for number in 0..2 {
        let topics = vec![format!("r/{number}")];
        all.push(Profile { topics, rate: 1.0, window: 1, retain: true, ..base(&format!("keeper-{number}"), true, &[]) });
    }
    all
}
