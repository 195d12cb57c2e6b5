use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::{ClusterSettings, SubmitError};
use crate::config::tls::fixture::{Ca, node_settings};
use crate::replica::{Outcome, ShardId};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, TestNode, log, retain, wait_for, wait_same_state};
use super::visibility::{has, retain_everywhere};
use super::wire::Wire;

/// Three nodes; each pair of directions has its own wire, so one node can be cut off.
pub struct Wired {
    pub nodes: Vec<TestNode>,
    /// `wires[a][b]` carries what `a` dials to `b`.
    wires: Vec<Vec<Wire>>,
    _plan: Plan,
}

impl Wired {
    pub async fn start() -> Self {
        Self::start_with(|settings| settings).await
    }

    pub async fn start_with(shape: impl Fn(ClusterSettings) -> ClusterSettings) -> Self {
        let plan = Plan::new(3, Mode::File);
        let mut wires = Vec::new();
        for _ in 0..3 {
            let mut row = Vec::new();
            for address in &plan.addresses {
                row.push(Wire::to(*address).await);
            }
            wires.push(row);
        }
        let mut nodes = Vec::new();
        for (node, row) in wires.iter().enumerate() {
            let seeds = row.iter().map(|wire| wire.address.to_string()).collect();
            // What it says of itself leads nowhere: others know it by their own wires only.
            let advertised = format!("127.0.0.1:1{node}");
            nodes.push(plan.start_with(node, ClusterSettings { seeds, advertised, ..shape(plan.settings(node)) }).await);
        }
        for node in &nodes {
            node.ready().await;
        }
        Self { nodes, wires, _plan: plan }
    }

    pub fn each_wire_of(&self, node: usize, act: impl Fn(&Wire)) {
        for other in (0..3).filter(|other| *other != node) {
            act(&self.wires[node][other]);
            act(&self.wires[other][node]);
        }
    }
}

impl Wired {
    pub fn each_wire_between(&self, a: usize, b: usize, act: impl Fn(&Wire)) {
        act(&self.wires[a][b]);
        act(&self.wires[b][a]);
    }

    fn each_wire(&self, act: impl Fn(&Wire)) {
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            self.each_wire_between(a, b, &act);
        }
    }

    fn lost(&self) -> u32 {
        self.nodes.iter().map(|node| node.hooks.lost.load(Ordering::Relaxed)).sum()
    }

    fn terms(&self) -> Vec<u64> {
        self.nodes[0].cluster.status().groups.iter().map(|group| group.term).collect()
    }

    /// What each node has acknowledged as effective everywhere is there on all three.
    async fn acknowledges_everywhere(&self, name: &str, rounds: usize) {
        for round in 0..rounds {
            for node in &self.nodes {
                let topic = format!("{name}/{round}/{}", node.cluster.node());
                retain_everywhere(node, &topic).await;
                let missing: Vec<_> = self.nodes.iter().map(|other| has(other, &topic)).collect();
                assert_eq!(missing, [true; 3], "{topic}");
            }
        }
    }

    /// Not at one moment: a machine that holds a node up for a second has it look anew at what the others acknowledged, with whole wires too.
    async fn all_serve(&self) {
        let serves = |node: &TestNode| node.cluster.is_ready() && !node.cluster.is_stale();
        let waits = |node: &TestNode| (node.cluster.is_stale(), node.cluster.status().waiting_for);
        let states = || format!("{:?}", self.nodes.iter().map(waits).collect::<Vec<_>>());
        if !self.nodes.iter().all(serves) {
            tracing::info!(states = states(), "not all serve at this moment");
        }
        wait_for("three nodes that serve", || self.nodes.iter().all(serves), states).await;
    }

    /// One pair cannot talk for long, or only in one direction: all three serve on, and what they acknowledge is true.
    async fn serves_on_without_a_pair(&self, cut: impl Fn(&Self)) {
        self.acknowledges_everywhere("before", 1).await;
        cut(self);
        let until = Instant::now() + Duration::from_secs(12);
        let mut longest = Duration::ZERO;
        let mut round = 0;
        while Instant::now() < until {
            let begun = Instant::now();
            self.acknowledges_everywhere(&format!("during/{round}"), 1).await;
            longest = longest.max(begun.elapsed());
            round += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tracing::info!(?longest, round, "three acknowledgements while a pair was cut");
        self.all_serve().await;
        assert!(self.nodes.iter().all(|node| node.cluster.peers().len() == 2));
        self.each_wire(Wire::mend);
        self.acknowledges_everywhere("after", 3).await;
        assert_eq!(self.lost(), 0, "no incarnation ended");
        wait_same_state(&[&self.nodes[0], &self.nodes[1], &self.nodes[2]]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_that_cannot_talk_is_heard_through_the_third() {
    log();
    let wired = Wired::start().await;
    wired.serves_on_without_a_pair(|wired| wired.each_wire_between(0, 1, Wire::cut)).await;
}

/// The pair's handshakes go through the third, which has only passed their bytes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_with_tls_is_heard_through_the_third() {
    log();
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new("ca");
    let wired = Wired::start_with(|settings| {
        let identity = ca.node(&[&settings.node_name], 1);
        let tls = node_settings(directory.path(), &settings.node_name, &identity, &ca);
        ClusterSettings { tls: Some(tls), ..settings }
    })
    .await;
    // While all start, one that is not there yet may have been reached through another.
    let are_direct = || wired.nodes.iter().all(|node| node.cluster.links_are_direct());
    wait_for("direct links", are_direct, String::new).await;
    wired.acknowledges_everywhere("before", 1).await;
    wired.each_wire_between(0, 1, Wire::cut);
    wired.acknowledges_everywhere("during", 5).await;
    assert!(!are_direct(), "through the third");
    wired.all_serve().await;
    wired.each_wire(Wire::mend);
    wired.acknowledges_everywhere("after", 2).await;
    assert_eq!(wired.lost(), 0, "no incarnation ended");
    wait_same_state(&[&wired.nodes[0], &wired.nodes[1], &wired.nodes[2]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_that_is_refused_is_not_dead_and_is_heard_through_the_third() {
    log();
    let wired = Wired::start().await;
    // Each pair once, so that one of each is `meta`'s leader.
    for (a, b) in [(0, 1), (1, 2), (0, 2)] {
        wired.each_wire_between(a, b, Wire::refuse);
        let until = Instant::now() + Duration::from_secs(5);
        let mut round = 0;
        while Instant::now() < until {
            wired.acknowledges_everywhere(&format!("{a}{b}/{round}"), 1).await;
            round += 1;
            assert!(wired.nodes.iter().all(|node| node.cluster.peers().len() == 2), "nobody is declared dead");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        wired.all_serve().await;
        wired.each_wire(Wire::mend);
        wired.acknowledges_everywhere(&format!("{a}{b}/after"), 1).await;
    }
    assert_eq!(wired.lost(), 0, "no incarnation ended");
    wait_same_state(&[&wired.nodes[0], &wired.nodes[1], &wired.nodes[2]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_of_which_one_does_not_hear_the_other_is_heard_through_the_third() {
    log();
    let wired = Wired::start().await;
    // What 0 sends to 1 does not arrive.
    let cut = |wired: &Wired| {
        wired.wires[0][1].cut_there();
        wired.wires[1][0].cut_back();
    };
    wired.serves_on_without_a_pair(cut).await;
}

/// `../shared/cases.md`, row 17, without clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blips_of_all_links_at_once_heal_without_help() {
    log();
    let wired = Wired::start().await;
    let mut published = 0;
    for (ms, times) in [(5, 20), (50, 20), (500, 4), (1_500, 3)] {
        for _ in 0..times {
            wired.each_wire(Wire::cut);
            let mut waiting = Vec::new();
            for node in &wired.nodes {
                let topic = format!("blip/{published}");
                published += 1;
                waiting.push(tokio::spawn(node.cluster.submit(ShardId::of(&topic, SHARDS), retain(&topic))));
            }
            tokio::time::sleep(Duration::from_millis(ms)).await;
            wired.each_wire(Wire::mend);
            for outcome in waiting {
                assert_eq!(outcome.await.unwrap(), Ok(Outcome::Done));
            }
        }
    }
    assert_eq!(wired.lost(), 0, "no incarnation ended");
    for node in &wired.nodes {
        node.ready().await;
    }
    wired.acknowledges_everywhere("after", 2).await;
    wait_same_state(&[&wired.nodes[0], &wired.nodes[1], &wired.nodes[2]]).await;
    assert_eq!(wired.nodes[0].retained(), published + 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_leader_changes_while_one_link_is_slow() {
    log();
    // The defaults of the configuration.
    let wired = Wired::start_with(|settings| ClusterSettings {
        heartbeat_ms: 200,
        election_min_ms: 800,
        election_max_ms: 1600,
        ..settings
    })
    .await;
    wired.each_wire_between(0, 1, |wire| wire.delay(Duration::from_millis(300)));
    // One change at most, when the link becomes slow.
    tokio::time::sleep(Duration::from_secs(4)).await;
    wait_for("leaders", || wired.nodes.iter().all(|node| node.cluster.is_ready()), String::new).await;
    let before = wired.terms();
    let until = Instant::now() + Duration::from_secs(15);
    let mut number = 0;
    while Instant::now() < until {
        for node in &wired.nodes {
            node.retain(&format!("slow/{number}")).await;
            number += 1;
        }
    }
    // Handed over to spread it, if at all: no election nobody asked for.
    let elections: u64 = wired.terms().iter().zip(&before).map(|(after, before)| after - before).sum();
    let handed_over = u64::from(SHARDS) + 1;
    tracing::info!(elections, number, "while one link was slow");
    assert!(elections <= handed_over, "{before:?} {:?}", wired.terms());
    assert_eq!(wired.lost(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_majority_says_so_and_takes_no_clients_at_once() {
    log();
    let wired = Wired::start().await;
    wired.each_wire_of(0, Wire::cut);
    let begun = Instant::now();
    wired.nodes[0].cluster.minority().await;
    // What was on its way when the wires were cut may be read late, on a busy machine after this.
    let waits = || wired.nodes[0].cluster.status().waiting_for.map(|(what, _)| what);
    let alone = || waits().as_deref() == Some("a majority of the nodes in reach");
    let refuses = || !wired.nodes[0].cluster.accepts_clients() && !wired.nodes[0].cluster.is_ready();
    wait_for("knowledge of being alone", || alone() && refuses(), || format!("{:?}", waits())).await;
    tracing::info!(took = ?begun.elapsed(), "knows that it is alone");
    assert!(wired.nodes[1].cluster.accepts_clients() || wired.nodes[2].cluster.accepts_clients());
    wired.each_wire(Wire::mend);
    wait_for("readiness", || wired.nodes[0].cluster.is_ready(), String::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_handed_over_when_the_successors_commit() {
    log();
    let wired = Wired::start().await;
    let leader = |node: &&TestNode| node.cluster.groups().iter().any(|group| group.is_leader());
    let stopping = wired.nodes.iter().find(leader).unwrap();
    // An entry of a new leader comes, and is known to be committed so much later twice.
    wired.each_wire(|wire| wire.delay(Duration::from_millis(100)));
    stopping.cluster.begin_stop();
    stopping.cluster.hand_over().await;
    for group in stopping.cluster.groups() {
        assert!(!group.is_leader() && group.view().caught_up, "{}: {:?}", group.name(), group.view());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_is_known_to_be_gone_at_once_and_its_peers_lead() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let gone = nodes[0].cluster.node();
    nodes[0].cluster.begin_stop();
    nodes[0].cluster.hand_over().await;
    wait_for("end of leadership", || nodes[0].cluster.led().is_empty(), String::new).await;
    nodes[0].cluster.say_goodbye().await;
    // Told by `meta`, with all its links up.
    let known = || nodes[1..].iter().all(|node| !node.cluster.peers().contains(&gone));
    wait_for("death", known, String::new).await;
    assert_eq!(nodes[0].hooks.lost.load(Ordering::Relaxed), 0, "its clients were told by itself");
    nodes[0].cluster.close().await;
    nodes[1].retain("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_node_leads_nothing_and_replicates() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    nodes[0].cluster.set_draining(true);
    nodes[0].cluster.hand_over().await;
    wait_for("end of leadership", || nodes[0].cluster.led().is_empty(), String::new).await;
    assert!(!nodes[0].cluster.accepts_clients());
    let told = || nodes[1].cluster.members().iter().any(|member| member.id == nodes[0].cluster.node() && member.draining);
    wait_for("word of it", told, String::new).await;
    nodes[1].retain("while it drains").await;
    wait_same_state(&[&nodes[2], &nodes[0], &nodes[1]]).await;
    // Nobody else is left that could lead with it: it does.
    nodes[1].cluster.shutdown().await;
    wait_for("a leader", || !nodes[2].cluster.led().is_empty() || !nodes[0].cluster.led().is_empty(), String::new).await;
    nodes[2].retain("two are left").await;
    nodes[0].cluster.set_draining(false);
    nodes[0].ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_cut_off_is_replaced_gives_up_and_comes_back() {
    log();
    let wired = Wired::start().await;
    let nodes = &wired.nodes;
    for i in 0..6 {
        nodes[i % 3].retain(&format!("before/{i}")).await;
    }
    let shard = ShardId(0);
    wait_for("leader", || nodes.iter().any(|node| node.cluster.leads(shard)), String::new).await;
    let cut = nodes.iter().position(|node| node.cluster.leads(shard)).unwrap();
    let (other, another) = (&nodes[(cut + 1) % 3], &nodes[(cut + 2) % 3]);
    let incarnation = nodes[cut].cluster.incarnation();

    wired.each_wire_of(cut, Wire::cut);
    let begun = Instant::now();
    let lonely = nodes[cut].cluster.submit(shard, retain("lonely"));
    let lonely = tokio::spawn(lonely);
    for i in 0..SHARDS * 4 {
        other.retain(&format!("during/{i}")).await;
    }
    let took = begun.elapsed();
    tracing::info!(?took, "the majority serves again");
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_for("end of leadership", || !nodes[cut].cluster.leads(shard), String::new).await;
    wait_for("loss of readiness", || !nodes[cut].cluster.is_ready(), String::new).await;
    let dead = |node: &TestNode| {
        let cut = nodes[cut].cluster.node();
        !node.cluster.peers().contains(&cut)
    };
    wait_for("death", || dead(other) && dead(another), String::new).await;
    tracing::info!(took = ?begun.elapsed(), "declared dead");
    wait_for("loss of the incarnation", || nodes[cut].hooks.lost.load(Ordering::Relaxed) == 1, String::new).await;
    assert!(nodes[cut].cluster.incarnation() > incarnation);
    assert_eq!(lonely.await.unwrap(), Err(SubmitError::Unknown));

    wired.each_wire_of(cut, Wire::mend);
    nodes[cut].ready().await;
    nodes[cut].retain("after").await;
    other.retain("after too").await;
    wait_same_state(&[another, &nodes[cut], other]).await;
    assert_eq!(nodes[cut].hooks.lost.load(Ordering::Relaxed), 1);
    assert!(nodes.iter().all(|node| (16..=17).contains(&node.retained())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut_loses_nothing_and_ends_no_incarnation() {
    log();
    let wired = Wired::start().await;
    let nodes = &wired.nodes;
    wired.each_wire_of(0, Wire::cut);
    let waiting: Vec<_> = (0..30)
        .map(|i| (i, nodes[0].cluster.submit(ShardId::of(&format!("t/{i}"), SHARDS), retain(&format!("t/{i}")))))
        .map(|(_, submitted)| tokio::spawn(submitted))
        .collect();
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    wired.each_wire_of(0, Wire::mend);
    for outcome in waiting {
        assert_eq!(outcome.await.unwrap(), Ok(Outcome::Done));
    }
    wait_same_state(&[&nodes[1], &nodes[2], &nodes[0]]).await;
    assert_eq!(nodes[1].retained(), 30);
    assert!(nodes.iter().all(|node| node.hooks.lost.load(Ordering::Relaxed) == 0));
}
