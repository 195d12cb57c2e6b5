//! Clients publish, subscribe, come and go while a seed's faults happen; then the judge reads what they saw.
//!
//! `TROUPEMQ_FAULTS_SEED` runs one seed, `TROUPEMQ_FAULTS_STEPS` sets the number of its faults, and `TROUPEMQ_FAULTS_MINUTES` goes on with
//! new seeds for so long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::history::Recorder;
use super::islands::Islands;
use super::judge::{Fault, Rule, Setting, judge};
use super::net::{ENDS, NODES, Quality};
use super::players::Player;
use super::random::{Random, from_environment};
use super::schedule::{self, Role, Step};
use crate::harness::client::Options;
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::trio::{leader_of, leaders};

const STEPS: usize = 7;
/// A power cut, pauses, kills of each kind, a link of one direction, and all at once.
const SEEDS: [u64; 1] = [102];
/// All that was acknowledged has come, and all that ended was told, within this after the last fault.
const SETTLE: Duration = Duration::from_secs(60);
const PACE: Duration = Duration::from_millis(20);
/// A node serves for its lease of 2.5 s at most without the others, and they count nobody out before it is over.
const SETTING: Setting = Setting { watcher: Some("watcher"), stale_connection_ms: 3_000 };
/// A subscriber whose shard's leader is a target.
const ROAMING: &str = "roaming";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_comes_twice_whatever_fails() {
    let began = Instant::now();
    let minutes = from_environment("TROUPEMQ_FAULTS_MINUTES");
    let mut seeds: Vec<u64> = from_environment("TROUPEMQ_FAULTS_SEED").map_or(SEEDS.to_vec(), |seed| vec![seed]);
    let steps = from_environment("TROUPEMQ_FAULTS_STEPS").map_or(STEPS, |steps| steps as usize);
    let mut failed = Vec::new();
    let mut run_seeds = 0;
    while let Some(seed) = (!seeds.is_empty()).then(|| seeds.remove(0)) {
        let Some(faults) = run(seed, steps).await else { return };
        run_seeds += 1;
        if !faults.is_empty() {
            failed.push(seed);
        }
        if seeds.is_empty() && minutes.is_some_and(|minutes| began.elapsed() < Duration::from_secs(60 * minutes)) {
            seeds.push(seed + 1);
        }
    }
    println!("{run_seeds} seeds of {steps} faults each in {:?}, {} failed", began.elapsed(), failed.len());
    assert!(
        failed.is_empty(),
        "seeds {failed:?} failed, see above; again: TROUPEMQ_FAULTS_SEED=.. TROUPEMQ_FAULTS_STEPS={steps}"
    );
}

/// One seed on a new cluster; what the judge found. `None`: skipped.
async fn run(seed: u64, steps: usize) -> Option<Vec<Fault>> {
    let began = Instant::now();
    let islands = tokio::task::block_in_place(|| Islands::ready("campaign", seed, shape))?;
    let schedule = schedule::draw(&mut Random::new(seed), steps);
    println!(
        "seed {seed}: {} faults: {}",
        steps,
        schedule.iter().map(|(_, step)| step.to_string()).collect::<Vec<_>>().join("; ")
    );
    let mut stage = Stage::set(islands, seed).await;
    let mut faults = Vec::new();
    for (pause, step) in &schedule {
        tokio::time::sleep(*pause).await;
        faults.extend(stage.step(*step));
    }
    let recorder = stage.recorder.clone();
    faults.extend(stage.end().await);
    println!("seed {seed}: {} faults found in {} records, {:?}", faults.len(), recorder.records().len(), began.elapsed());
    if !faults.is_empty() {
        let path = recorder.save(&format!("campaign-{seed}"));
        let rules: BTreeSet<Rule> = faults.iter().map(|fault| fault.rule).collect();
        eprintln!("seed {seed}: {} faults ({rules:?}), history in {}; the first:", faults.len(), path.display());
        faults.iter().take(20).for_each(|fault| eprintln!("  {fault}"));
    }
    Some(faults)
}

pub fn shape(config: &mut Config) {
    config.mqtt = "<queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>".to_owned();
}

/// The cluster and the clients.
struct Stage {
    islands: Islands,
    recorder: Recorder,
    publisher_at: Arc<AtomicUsize>,
    subscriber_at: Arc<AtomicUsize>,
    stop: watch::Sender<bool>,
    working: Vec<JoinHandle<()>>,
    stop_receiving: watch::Sender<bool>,
    receiving: Vec<JoinHandle<()>>,
}

impl Stage {
    async fn set(islands: Islands, seed: u64) -> Self {
        let recorder = Recorder::new();
        let addresses = islands.trio.all_mqtt();
        let (stop, stopped) = watch::channel(false);
        let (stop_receiving, receive_until) = watch::channel(false);
        let player = |options: Options| Player::new(options, addresses.clone(), &recorder, seed);
        let mut receiving = Vec::new();
        let mut subscriber_at = Arc::default();
        for (name, filters, qos, roam_ms, version) in [
            ("watcher", &[events::FILTER, "wills/#"][..], QoS::ExactlyOnce, None, ProtocolVersion::V5),
            ("staying", &["numbers/#"], QoS::ExactlyOnce, None, ProtocolVersion::V5),
            (ROAMING, &["numbers/#"], QoS::ExactlyOnce, Some(1_500), ProtocolVersion::V5),
            ("roaming-3", &["numbers/#"], QoS::ExactlyOnce, Some(2_500), ProtocolVersion::V3_1_1),
            ("roaming-1", &["numbers/#"], QoS::AtLeastOnce, Some(2_500), ProtocolVersion::V5),
            ("member-1", &["$share/group/numbers/#"], QoS::ExactlyOnce, None, ProtocolVersion::V5),
            ("member-2", &["$share/group/numbers/#"], QoS::ExactlyOnce, Some(3_000), ProtocolVersion::V5),
            ("member-3", &["$share/group/numbers/#"], QoS::ExactlyOnce, Some(2_000), ProtocolVersion::V3_1_1),
        ] {
            let mut player = player(Options::of(version, name).persistent());
            for filter in filters {
                player.subscribe(filter, qos).await;
            }
            if name == ROAMING {
                subscriber_at = Arc::clone(&player.place);
            }
            receiving.push(tokio::spawn(player.receive(roam_ms.map(Duration::from_millis), receive_until.clone())));
        }
        let mut working = Vec::new();
        let mut publisher_at = Arc::default();
        for (name, qos, version) in [
            ("p1", QoS::AtLeastOnce, ProtocolVersion::V5),
            ("p1-3", QoS::AtLeastOnce, ProtocolVersion::V3_1_1),
            ("p2", QoS::ExactlyOnce, ProtocolVersion::V5),
            ("p2-3", QoS::ExactlyOnce, ProtocolVersion::V3_1_1),
        ] {
            let player = player(Options::of(version, name).persistent());
            publisher_at = Arc::clone(&player.place);
            let publishing = player.publish_numbers(format!("numbers/{name}"), qos, PACE, stopped.clone());
            working.push(tokio::spawn(async move { _ = publishing.await }));
        }
        for number in 0..8 {
            let options = Options::v5(&format!("restless-{number}"));
            let options = if number % 2 == 0 { options.persistent() } else { options };
            working.push(tokio::spawn(player(options).numbered().with_will().come_and_go(stopped.clone())));
        }
        Self { islands, recorder, publisher_at, subscriber_at, stop, working, stop_receiving, receiving }
    }

    /// Does it, undoes it, and waits until the cluster is whole.
    fn step(&mut self, step: Step) -> Option<Fault> {
        tokio::task::block_in_place(|| {
            self.recorder.fault(format!("{step}"));
            self.act(step);
            self.recorder.fault("undone");
            let whole = self.islands.whole_again();
            self.recorder.fault(format!("whole again: {whole:?}"));
            whole.err().map(|error| Fault { rule: Rule::Lost, what: format!("{step}: {error}") })
        })
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Kill(role, rest) => self.kill(&[self.node(role)], rest),
            Step::KillTwo(role, rest) => {
                let node = self.node(role);
                self.kill(&[node, (node + 1) % NODES], rest);
            }
            Step::KillAll(rest) => self.kill(&[0, 1, 2], rest),
            Step::PowerCut(role, rest) => {
                let node = self.node(role);
                self.islands.net.isolate(node);
                self.kill(&[node], rest);
                self.islands.net.heal();
            }
            Step::Pause(role, time) => {
                let node = self.node(role);
                self.islands.trio.nodes[node].signal(Signal::STOP);
                std::thread::sleep(time);
                self.islands.trio.nodes[node].signal(Signal::CONT);
            }
            Step::Cut(role, time) => {
                self.islands.net.cut_node(self.node(role));
                self.hold(time);
            }
            Step::Isolate(role, time) => {
                self.islands.net.isolate(self.node(role));
                self.hold(time);
            }
            Step::CutPair(a, b, time) => {
                self.islands.net.set_pair(a, b, Quality::CUT);
                self.hold(time);
            }
            Step::OneWay(a, b, time) => {
                self.islands.net.set(a, b, Quality::CUT);
                self.hold(time);
            }
            Step::Blip(time) => {
                self.islands.net.cut_all();
                self.hold(time);
            }
            Step::Slow(a, b, delay, time) => {
                self.islands.net.set_pair(a, b, slow(delay));
                self.hold(time);
            }
            Step::SlowAll(delay, time) => {
                for from in 0..ENDS {
                    (0..ENDS).for_each(|to| self.islands.net.set(from, to, slow(delay)));
                }
                self.hold(time);
            }
        }
    }

    fn kill(&mut self, nodes: &[usize], rest: Duration) {
        nodes.iter().for_each(|node| self.islands.trio.nodes[*node].kill());
        std::thread::sleep(rest);
        nodes.iter().for_each(|node| self.islands.trio.nodes[*node].launch());
    }

    fn hold(&self, time: Duration) {
        std::thread::sleep(time);
        self.islands.net.heal();
    }

    fn node(&self, role: Role) -> usize {
        let nodes = &self.islands.trio.nodes;
        match role {
            Role::Number(node) => node,
            Role::OfPublisher => self.publisher_at.load(Ordering::Relaxed),
            Role::OfSubscriber => self.subscriber_at.load(Ordering::Relaxed),
            Role::ShardLeader => leader_of(&nodes[0], ROAMING).unwrap_or(0),
            Role::MetaLeader => {
                let groups = leaders(&nodes[0]).unwrap_or_default();
                groups.into_iter().find_map(|(group, leader)| (group == "meta").then_some(leader)).unwrap_or(0)
            }
        }
    }

    /// Lets publishers finish and the rest arrive; what is wrong then.
    async fn end(self) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.stop.send(true).expect("clients are there");
        for client in self.working {
            match tokio::time::timeout(SETTLE, client).await {
                Ok(ended) => ended.expect("the client ends well"),
                Err(_) => faults.push(Fault { rule: Rule::Lost, what: format!("a client cannot finish within {SETTLE:?}") }),
            }
        }
        let settled = Instant::now();
        let judged = loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let found = judge(&self.recorder.records(), &SETTING);
            if settled.elapsed() > SETTLE || !found.iter().any(|fault| fault.rule.is_missing()) {
                break found;
            }
        };
        println!("all there {:?} after the last client had gone", settled.elapsed());
        // What comes now comes once too often.
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.stop_receiving.send(true).expect("clients are there");
        for client in self.receiving {
            client.await.expect("the client ends well");
        }
        faults.extend(if judged.is_empty() { judge(&self.recorder.records(), &SETTING) } else { judged });
        for node in &self.islands.trio.nodes {
            if node.stderr().contains("panicked") {
                faults.push(Fault { rule: Rule::Lost, what: format!("{} panicked: {}", node.name, last_panic(&node.stderr())) });
            }
        }
        tokio::task::block_in_place(|| drop(self.islands));
        faults
    }
}

fn slow(delay: Duration) -> Quality {
    Quality { cut: false, delay, jitter: delay / 4, lost_per_mille: 20, doubled_per_mille: 10 }
}

fn last_panic(log: &str) -> String {
    log.lines().rfind(|line| line.contains("panicked")).unwrap_or_default().to_owned()
}
