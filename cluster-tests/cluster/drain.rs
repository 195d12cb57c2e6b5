//! Nodes that stop or drain in good order: clients are told, find their sessions elsewhere at once, and nothing acknowledged is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::roamer::Roamer;
use crate::harness::trio::{Trio, alive};
use crate::harness::{QUIET, SOON, http, program, wait};

const PUBLISHERS: usize = 6;
/// Publishes of one publisher that are under way.
const WINDOW: usize = 8;

/// How far each group is applied on the node.
fn applied(node: &Node) -> BTreeMap<String, f64> {
    node.metrics().into_iter().filter(|(name, _)| name.starts_with("troupemq_raft_applied_index")).collect()
}

fn admin(node: &Node, command: &str) -> Output {
    let mut asked = Command::new(program());
    asked.args(["cluster", command, "--data"]).arg(node.data()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut asking = asked.spawn().expect("the program runs");
    // It waits for as long as it takes; the test does not.
    let until = Instant::now() + SOON * 2;
    while asking.try_wait().expect("a child").is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = asking.try_wait().expect("a child").is_some();
    let _ = asking.kill();
    let output = asking.wait_with_output().expect("what it said");
    assert!(ended, "{command} does not end: {output:?}");
    output
}

fn done(node: &Node, command: &str) -> String {
    let output = admin(node, command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {text} {}", String::from_utf8_lossy(&output.stderr));
    text
}

fn is_draining(node: &Node) -> bool {
    let page = http::get(node.http(), "/api/v1/health");
    page.is_some_and(|(status, body)| status == 503 && body.contains("\"draining\":true"))
}

/// Groups that a node leads by its own metrics.
fn leads(node: &Node) -> usize {
    let is = |(name, value): (&String, &f64)| name.starts_with("troupemq_raft_is_leader") && *value == 1.0;
    node.metrics().iter().filter(|sample| is(*sample)).count()
}

/// Publishes from connections that end with their sessions, so that nothing is sent again: what has no acknowledgement may be there or not.
async fn publish_until(stop: Arc<AtomicBool>, addresses: Vec<SocketAddr>, number: usize) -> Vec<String> {
    let options = Options::v5(&format!("publisher-{number}"));
    let (mut acknowledged, mut sent, mut turn) = (Vec::new(), 0, number);
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let Ok(mut client) = Client::try_connect(addresses[turn % addresses.len()], &options).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut waiting: Vec<(u16, String)> = Vec::new();
        loop {
            let stops = stop.load(Ordering::Relaxed) || client.disconnect.is_some();
            let outcome = if waiting.len() < WINDOW && !stops {
                sent += 1;
                let text = format!("{number}/{sent}");
                let started = client.start_publish(publish("drained", text.as_bytes(), QoS::AtLeastOnce)).await;
                started.map(|id| waiting.extend(id.map(|id| (id.get(), text))))
            } else {
                client.step(SOON).await
            };
            for id in std::mem::take(&mut client.session.acknowledged) {
                let at = waiting.iter().position(|(waiting, _)| *waiting == id.0.get()).expect("a publish");
                acknowledged.push(waiting.remove(at).1);
            }
            match outcome {
                Ok(()) if stops && waiting.is_empty() && client.disconnect.is_none() => break,
                Ok(()) => {}
                Err(Gone::Closed(_)) => break,
                Err(Gone::Timeout) => panic!("neither acknowledged nor closed within {SOON:?}"),
            }
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_nothing_that_was_acknowledged() {
    let mut trio = Trio::ready_with(Weight::Whole, |config| {
        config.mqtt = "<queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>".to_owned();
    });
    let mut subscriber = Roamer::connect(trio.all_mqtt(), 0, Options::v5("subscriber").persistent()).await;
    subscriber.client().await.subscribe("drained", QoS::AtLeastOnce).await;
    let stop = Arc::new(AtomicBool::new(false));
    let publishers: Vec<_> =
        (0..PUBLISHERS).map(|number| tokio::spawn(publish_until(Arc::clone(&stop), trio.all_mqtt(), number))).collect();
    let receiving = tokio::spawn(async move {
        let mut received = BTreeSet::new();
        loop {
            let message = subscriber.message(SOON * 3).await.expect("a message");
            let text = String::from_utf8_lossy(&message.payload).into_owned();
            if text == "end" {
                return received;
            }
            received.insert(text);
        }
    });
    for node in &mut trio.nodes {
        let begun = Instant::now();
        assert!(node.stop().success(), "{} ends well", node.name);
        println!("{} stopped within {:?}", node.name, begun.elapsed());
        assert!(!node.stderr().contains("the time to stop is over"));
        node.launch();
        node.wait_ready();
        let node = &*node;
        wait::until("it sees all three", SOON, || (node.is_up() && alive(node) == 3).then_some(()));
    }
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for publisher in publishers {
        acknowledged.extend(publisher.await.expect("a publisher ends well"));
    }
    let mut closer = Client::connect(trio.mqtt(0), &Options::v5("closer")).await;
    closer.publish("drained", b"end", QoS::AtLeastOnce).await;
    let received = receiving.await.expect("the subscriber ends well");
    let lost: Vec<_> = acknowledged.iter().filter(|text| !received.contains(*text)).collect();
    println!("{} acknowledged, {} received", acknowledged.len(), received.len());
    assert!(acknowledged.len() > 100);
    assert_eq!(lost, Vec::<&String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_node_that_stops_are_told_and_resume_elsewhere_at_once() {
    const CLIENTS: usize = 20;
    let mut trio = Trio::ready(Weight::Cluster);
    let mut watcher = Client::connect(trio.mqtt(1), &Options::v5("watcher").persistent()).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    events::effective(&mut watcher, &trio.all_mqtt()).await;
    let will = |id: &str| Options::v5(id).persistent().will(&format!("wills/{id}"), "gone", 0);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let options = will(&format!("t-{number}"));
        let mut client = Client::connect(trio.mqtt(0), &options).await;
        client.subscribe("wills/none", QoS::AtLeastOnce).await;
        clients.push((client, options, trio.mqtt(1 + number % 2)));
    }
    events::expect(&mut watcher, "t-", CLIENTS).await;
    // Only now, since they do not wait for their end for ever.
    let mut told = Vec::new();
    for (mut client, options, address) in clients {
        told.push(tokio::spawn(async move {
            let code = client.closed().await;
            let begun = Instant::now();
            let resumed = Client::connect(address, &options).await;
            (code, resumed.session_present(), begun.elapsed(), resumed)
        }));
    }
    let begun = Instant::now();
    trio.nodes[0].terminate();
    let (mut gaps, mut resumed) = (Vec::new(), Vec::new());
    for told in told {
        let (code, session_present, gap, client) = told.await.expect("a client");
        assert_eq!(code, Some(ReasonCode::ServerShuttingDown));
        assert!(session_present);
        gaps.push(gap);
        resumed.push(client);
    }
    gaps.sort_unstable();
    println!("resumed within {:?} (median), {:?} (longest)", gaps[CLIENTS / 2], gaps[CLIENTS - 1]);
    assert!(trio.nodes[0].wait_ended().success());
    println!("stopped within {:?}", begun.elapsed());
    // Its end was told, and need not be noticed.
    wait::until("the others know", SOON, || (alive(&trio.nodes[1]) == 2 && alive(&trio.nodes[2]) == 2).then_some(()));
    let mut seen = events::expect(&mut watcher, "t-", 2 * CLIENTS).await;
    seen.sort();
    let mut expected: Vec<_> =
        (0..CLIENTS).flat_map(|number| [format!("t-{number}:+"), format!("t-{number}:-UNSPECIFIED")]).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

/// Terms of all groups, as a node knows them.
fn terms(node: &Node) -> BTreeMap<String, f64> {
    node.metrics().into_iter().filter(|(name, _)| name.starts_with("troupemq_raft_term")).collect()
}

/// Publishes one message after the other on one connection. Returns how many, and the longest wait for an acknowledgement.
async fn publish_through(address: SocketAddr, number: usize, stop: Arc<AtomicBool>) -> (u32, Duration) {
    let mut client = Client::connect(address, &Options::v5(&format!("load-{number}"))).await;
    let (mut count, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        assert_eq!(client.publish(&format!("load/{}", number % 4), b"load", QoS::AtLeastOnce).await, ReasonCode::Success);
        longest = longest.max(begun.elapsed());
        count += 1;
    }
    (count, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_refuses_nobody_elsewhere_and_costs_each_group_one_election() {
    const CLIENTS: usize = 20;
    const LOAD: usize = 16;
    let mut trio = Trio::ready_with(Weight::Whole, |config| {
        config.mqtt = "<queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>".to_owned();
    });
    for number in 0..4 {
        let mut away = Client::connect(trio.mqtt(1), &Options::v5(&format!("away-{number}")).persistent()).await;
        away.subscribe(&format!("load/{number}"), QoS::AtLeastOnce).await;
        away.disconnect().await;
    }
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let options = Options::v5(&format!("t-{number}")).persistent();
        let client = Client::connect(trio.mqtt(0), &options).await;
        clients.push((client, options, trio.mqtt(1 + number % 2)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> =
        (0..LOAD).map(|number| tokio::spawn(publish_through(trio.mqtt(1 + number % 2), number, Arc::clone(&stop)))).collect();
    // Leadership is spread once the cluster is calm.
    for node in &trio.nodes {
        wait::until("it leads what it should", SOON * 2, || (leads(node) >= 2).then_some(()));
    }
    let before = terms(&trio.nodes[1]);
    let begun = Instant::now();
    trio.nodes[0].terminate();
    let mut told = Vec::new();
    for (mut client, options, address) in clients {
        told.push(tokio::spawn(async move {
            let code = client.closed().await;
            let closed = Instant::now();
            let resumed = Client::try_connect(address, &options).await;
            (code, resumed.map(|resumed| resumed.session_present()).map_err(|error| format!("{error:?}")), closed.elapsed())
        }));
    }
    let mut gaps = Vec::new();
    for told in told {
        let (code, resumed, gap) = told.await.expect("a client");
        assert_eq!((code, resumed), (Some(ReasonCode::ServerShuttingDown), Ok(true)));
        gaps.push(gap);
    }
    assert!(trio.nodes[0].wait_ended().success());
    println!("stopped within {:?}", begun.elapsed());
    stop.store(true, Ordering::Relaxed);
    let (mut count, mut longest) = (0, Duration::ZERO);
    for load in load {
        let (published, of_one) = load.await.expect("a publisher is neither refused nor closed");
        count += published;
        longest = longest.max(of_one);
    }
    gaps.sort_unstable();
    println!("resumed within {:?} (median), {:?} (longest)", gaps[CLIENTS / 2], gaps[CLIENTS - 1]);
    println!("{count} messages through the others, acknowledged within {longest:?} at most");
    let after = terms(&trio.nodes[1]);
    assert!(before.len() > 1 && before.keys().eq(after.keys()), "{before:?} {after:?}");
    let twice: Vec<_> = before.iter().filter(|(group, term)| after[*group] > **term + 1.0).collect();
    assert!(twice.is_empty(), "{twice:?} became {after:?}");
}

#[tokio::test]
async fn a_node_waits_before_it_closes_and_hurries_when_told_again() {
    let more = "<shutdown><delay>60</delay><timeout>120</timeout></shutdown>".to_owned();
    let config = crate::harness::config::Config { more, ..Default::default() };
    let mut node = Node::ready(config);
    let mut client = Client::connect(node.mqtt(), &Options::v5("c")).await;
    node.terminate();
    wait::until("it says that it drains", SOON, || is_draining(&node).then_some(()));
    client.ping().await;
    Client::connect(node.mqtt(), &Options::v5("late")).await.ping().await;
    let begun = Instant::now();
    node.signal(Signal::INT);
    assert_eq!(client.closed().await, Some(ReasonCode::ServerShuttingDown));
    assert!(node.wait_ended().success());
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_is_unfinished_when_the_time_is_over_is_said() {
    // The rate alone would take 20 s; the timeout makes it faster.
    let more = "<shutdown><clients-per-second>1</clients-per-second><timeout>6</timeout></shutdown>".to_owned();
    let config = crate::harness::config::Config { more, ..Default::default() };
    let mut node = Node::ready(config);
    let mut clients = Vec::new();
    for number in 0..20 {
        clients.push(Client::connect(node.mqtt(), &Options::v5(&format!("c-{number}"))).await);
    }
    node.terminate();
    for mut client in clients {
        assert_eq!(client.closed().await, Some(ReasonCode::ServerShuttingDown));
    }
    assert!(node.wait_ended().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_node_has_no_clients_and_leads_nothing_until_it_is_undrained() {
    let trio = Trio::ready_with(Weight::Cluster, |config| {
        config.mqtt = "<server-reference><reference>elsewhere:1883</reference>\
                       <refuse-connections>when-unavailable</refuse-connections></server-reference>"
            .to_owned();
    });
    let mut stays = Client::connect(trio.mqtt(1), &Options::v5("stays").persistent()).await;
    stays.subscribe("t", QoS::AtLeastOnce).await;
    let mut goes: Vec<Client> = Vec::new();
    for number in 0..9 {
        let mut client = Client::connect(trio.mqtt(0), &Options::v5(&format!("goes-{number}")).persistent()).await;
        client.subscribe("t", QoS::AtLeastOnce).await;
        goes.push(client);
    }
    assert!(done(&trio.nodes[0], "drain").starts_with("drained"));
    for client in &mut goes {
        assert_eq!(client.closed().await, Some(ReasonCode::UseAnotherServer));
    }
    assert!(is_draining(&trio.nodes[0]));
    assert_eq!(trio.nodes[0].metric("troupemq_draining"), 1.0);
    let status = String::from_utf8_lossy(&admin(&trio.nodes[1], "status").stdout).into_owned();
    assert!(status.lines().any(|line| line.starts_with("node1") && line.contains("draining")), "{status}");
    let refused = Client::try_connect(trio.mqtt(0), &Options::v5("new")).await.map(|_| ()).expect_err("refused");
    assert!(format!("{refused:?}").contains("UseAnotherServer"), "{refused:?}");
    // It goes on replicating, and the others do not hand leadership back: their balancer would after some seconds.
    let until = Instant::now() + Duration::from_secs(9);
    while Instant::now() < until {
        stays.publish("t", b"replicated", QoS::AtLeastOnce).await;
        stays.text().await;
        assert_eq!(leads(&trio.nodes[0]), 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(done(&trio.nodes[0], "drain").starts_with("drained"), "again");

    done(&trio.nodes[0], "undrain");
    wait::until("it is ready again", SOON, || trio.nodes[0].is_up().then_some(()));
    let back = Client::connect(trio.mqtt(0), &Options::v5("goes-0").persistent()).await;
    assert!(back.session_present());
    wait::until("it leads again", SOON * 2, || (leads(&trio.nodes[0]) > 0).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_request_nodes_part_with_what_they_have_beyond_their_share() {
    let trio = Trio::ready_with(Weight::Cluster, |config| {
        config.more = "<shutdown><clients-per-second>50</clients-per-second></shutdown>".to_owned();
    });
    let mut clients = Vec::new();
    for number in 0..30 {
        clients.push(Client::connect(trio.mqtt(0), &Options::v5(&format!("c-{number}"))).await);
    }
    let stays = Client::connect(trio.mqtt(1), &Options::v5("stays")).await;
    // The node that is asked counts in its own replicas, which may be behind those that have answered.
    let known: Vec<_> = [0, 1].map(|node| applied(&trio.nodes[node])).into_iter().flatten().collect();
    wait::until("the node that is asked knows them all", SOON, || {
        let knows = applied(&trio.nodes[2]);
        known.iter().all(|(group, index)| knows.get(group).is_some_and(|known| known >= index)).then_some(())
    });
    let begun = Instant::now();
    let said = done(&trio.nodes[2], "rebalance");
    assert!(["node1 30", "node2 1", "node3 0"].iter().all(|of| said.contains(of)), "{said}");
    // 31 on three nodes: 11 each at most.
    let connections = || trio.nodes[0].metric("com_hivemq_networking_connections_current");
    wait::until("the excess is gone", SOON, || (connections() <= 11.0).then_some(()));
    println!("19 of 30 parted with within {:?}", begun.elapsed());
    tokio::time::sleep(QUIET).await;
    assert_eq!(connections(), 11.0);
    assert_eq!(trio.nodes[1].metric("com_hivemq_networking_connections_current"), 1.0);
    drop((clients, stays));
}
