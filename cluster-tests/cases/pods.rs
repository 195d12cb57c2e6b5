//! Pods that restart, come and go. Processes stand in for them: the same directory is the same volume. What takes containers is in
//! `containers/`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{publisher, texts};
use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::trio::{Trio, alive};
use crate::harness::{SOON, http, ports, program, wait};

const NAMES: [&str; 3] = ["node1", "node2", "node3"];

/// Members as a node lists them, alive or not.
fn members(node: &Node) -> Option<BTreeSet<String>> {
    let status = node.status()?;
    status["members"].as_array()?.iter().map(|member| Some(member["name"].as_str()?.to_owned())).collect()
}

#[track_caller]
fn assert_all_are_members(node: &Node) {
    let expected: BTreeSet<String> = NAMES.map(str::to_owned).into();
    wait::until("the node lists its members", SOON, || (members(node)? == expected).then_some(()));
}

/// What is published on each of these nodes arrives at each of them, once.
async fn assert_all_hear_all(trio: &Trio, nodes: &[usize]) {
    let mut subscribers = Vec::new();
    for index in nodes {
        let mut subscriber = Client::connect(trio.mqtt(*index), &Options::v5(&format!("hears-{index}"))).await;
        subscriber.subscribe("to/all", QoS::AtLeastOnce).await;
        subscribers.push(subscriber);
    }
    for index in nodes {
        let mut publisher = publisher(trio.mqtt(*index)).await;
        publisher.publish("to/all", index.to_string().as_bytes(), QoS::AtLeastOnce).await;
        publisher.disconnect().await;
    }
    let expected: Vec<String> = nodes.iter().map(usize::to_string).collect();
    for mut subscriber in subscribers {
        let mut heard = texts(&mut subscriber, nodes.len()).await;
        heard.sort();
        assert_eq!(heard, expected, "of {nodes:?}");
        subscriber.disconnect().await;
    }
}

/// Row 18: a pod that was scaled away came back with its old volume and heard the others no more. One that was told to leave is another case,
/// `cluster::membership::a_node_leaves_and_a_dead_one_is_forgotten`: it says that its volume is of no use any more.
#[tokio::test]
async fn a_node_that_was_scaled_away_comes_back_with_its_old_volume_and_all_hear_all() {
    let mut trio = Trio::ready(Weight::Cluster);
    assert_all_hear_all(&trio, &[0, 1, 2]).await;
    assert!(trio.nodes[2].stop().success());
    for node in &trio.nodes[..2] {
        wait::until("two are left", SOON, || (alive(node) == 2 && node.is_up()).then_some(()));
    }
    assert_all_hear_all(&trio, &[0, 1]).await;
    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    trio.nodes.iter().for_each(assert_all_are_members);
    assert_all_hear_all(&trio, &[0, 1, 2]).await;
}

/// Row 19: SIGTERM was taken for leaving, and the session was dropped.
#[tokio::test]
async fn a_sigterm_takes_neither_a_membership_nor_what_is_queued() {
    const QUEUED: usize = 100;
    let expected: Vec<String> = (0..QUEUED).map(|number| number.to_string()).collect();
    let options = Options::v5("offline").persistent();
    let queue = async |addresses: [SocketAddr; 2]| {
        let mut subscriber = Client::connect(addresses[0], &options).await;
        subscriber.subscribe("t", QoS::AtLeastOnce).await;
        subscriber.disconnect().await;
        let mut publisher = publisher(addresses[1]).await;
        for text in &expected {
            publisher.publish("t", text.as_bytes(), QoS::AtLeastOnce).await;
        }
        publisher.disconnect().await;
    };
    let assert_queued = async |address: SocketAddr| {
        let mut subscriber = Client::connect(address, &options).await;
        assert!(subscriber.session_present());
        assert_eq!(texts(&mut subscriber, QUEUED).await, expected);
    };

    let permit = acquire(Weight::Node);
    let mut alone = Node::ready(Config::default());
    queue([alone.mqtt(); 2]).await;
    assert!(alone.stop().success());
    alone.start();
    assert_queued(alone.mqtt()).await;
    drop((alone, permit));

    let mut trio = Trio::ready(Weight::Cluster);
    queue([trio.mqtt(0), trio.mqtt(1)]).await;
    for index in (0..3).rev() {
        assert!(trio.nodes[index].stop().success());
        let other = &trio.nodes[(index + 1) % 3];
        wait::until("it is seen to be away", SOON, || (alive(other) == 2).then_some(()));
        assert_all_are_members(other);
        trio.nodes[index].launch();
        trio.wait_ready_one(index);
    }
    trio.nodes.iter().for_each(assert_all_are_members);
    assert_queued(trio.mqtt(2)).await;
}

/// Passes connections on, from a port that nobody listened on before.
async fn open(port: u16, to: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("the port is free");
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(("127.0.0.1", to)).await {
                    _ = copy_bidirectional(&mut near, &mut far).await;
                }
            });
        }
    });
}

/// Row 20: a pod that could not join was ready all the same and took clients for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_join_is_never_ready_and_becomes_so_by_itself_once_it_can() {
    /// In the place of ten minutes: many times what joining takes.
    const BLOCKED: Duration = Duration::from_secs(4);
    let ways = [ports::reserve(), ports::reserve()];
    // The first two do not know of the third, and it knows ports where nobody listens yet.
    let mut trio = Trio::new(Weight::Cluster, |config| {
        let cluster = config.cluster.as_mut().expect("a cluster");
        if cluster.node_name == NAMES[2] {
            cluster.all_ports[..2].copy_from_slice(&ways);
        } else {
            cluster.all_ports.truncate(2);
        }
    });
    let to: Vec<u16> = trio.nodes.iter().filter_map(|node| Some(node.config.cluster.as_ref()?.port)).collect();
    trio.nodes.iter_mut().for_each(Node::launch);
    trio.nodes[..2].iter_mut().for_each(Node::wait_ready);
    let stranger = &trio.nodes[2];
    let probe = |kind: &str| http::get(stranger.http(), &format!("/api/v1/health/{kind}")).map(|(status, _)| status);
    wait::until("it answers", SOON, || (probe("liveness") == Some(200)).then_some(()));
    let begun = Instant::now();
    while begun.elapsed() < BLOCKED {
        assert_eq!((probe("liveness"), probe("readiness")), (Some(200), Some(503)), "{}", stranger.stderr());
        match Client::try_connect(stranger.mqtt(), &Options::v5("early")).await {
            Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, ReasonCode::ServerUnavailable),
            other => panic!("{:?}", other.map(|_| "a node that is no member took a client")),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for (way, to) in ways.into_iter().zip(to) {
        open(way, to).await;
    }
    trio.wait_ready();
    trio.nodes.iter().for_each(assert_all_are_members);
    assert_all_hear_all(&trio, &[0, 1, 2]).await;
}

/// Sessions in the cluster, as each node tells those that it answers for.
fn sessions(trio: &Trio) -> f64 {
    trio.nodes.iter().map(|node| node.metric("com_hivemq_sessions_overall_current")).sum()
}

/// Row 21: after nodes had left and joined, one client had two sessions.
#[tokio::test]
async fn a_client_that_changes_nodes_while_they_restart_has_one_session_without_a_gap() {
    const EACH: usize = 10;
    let mut trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("one").persistent();
    let mut client = Client::connect(trio.mqtt(0), &options).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    let mut published = 0;
    for restarted in 0..3 {
        let (next, last) = ((restarted + 1) % 3, (restarted + 2) % 3);
        let mut expected: BTreeSet<String> = BTreeSet::new();
        let mut publish = async |address: SocketAddr| {
            let mut publisher = publisher(address).await;
            for _ in 0..EACH {
                published += 1;
                publisher.publish("t", published.to_string().as_bytes(), QoS::AtLeastOnce).await;
                expected.insert(published.to_string());
            }
            publisher.disconnect().await;
        };
        // Some to the client where it is and does not read, some while it is away.
        publish(trio.mqtt(last)).await;
        assert!(trio.nodes[restarted].stop().success());
        drop(client);
        publish(trio.mqtt(next)).await;
        trio.nodes[restarted].launch();
        trio.wait_ready_one(restarted);
        let mut before = Client::connect(trio.mqtt(last), &options).await;
        assert!(before.session_present());
        let mut received = BTreeSet::new();
        while received != expected {
            received.insert(before.text().await);
        }
        for place in [restarted, next] {
            let now = Client::connect(trio.mqtt(place), &options).await;
            assert!(now.session_present());
            assert_eq!(before.closed().await, Some(ReasonCode::SessionTakenOver));
            before = now;
        }
        wait::until("there is one session", SOON, || (sessions(&trio) == 1.0).then_some(()));
        client = before;
    }
    assert_eq!(published, 6 * EACH);
}

/// Row 25: a restart dropped all clients at once, and new ones kept coming.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_parts_with_clients_at_its_rate_and_can_be_ended_half_way() {
    const CLIENTS: usize = 60;
    const RATE: usize = 10;
    let trio = Trio::ready_with(Weight::Cluster, |config| {
        config.more = format!("<shutdown><clients-per-second>{RATE}</clients-per-second><timeout>120</timeout></shutdown>");
    });
    let options = |number: usize| Options::v5(&format!("drained-{number}")).persistent();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client::connect(trio.mqtt(0), &options(number)).await;
        client.subscribe("t", QoS::AtLeastOnce).await;
        clients.push(client);
    }
    let node = &trio.nodes[0];
    let here = || node.metric("com_hivemq_networking_connections_current");
    wait::until("all are counted", SOON, || (here() == CLIENTS as f64).then_some(()));

    let begun = Instant::now();
    let mut drain = Command::new(program());
    drain.args(["cluster", "drain", "--data"]).arg(node.data()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut drain = drain.spawn().expect("the program runs");
    wait::until("the first have gone", SOON, || (here() <= (CLIENTS - RATE) as f64).then_some(()));
    assert!(!node.is_up(), "it is not ready before it parts with anybody");
    assert!(Client::try_connect(trio.mqtt(0), &Options::v5("new")).await.is_err(), "nobody new comes");
    let ended = node.admin(&["undrain"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let took = begun.elapsed();
    let status = wait::until("the command ends", SOON, || drain.try_wait().expect("a child"));
    assert!(!status.success(), "the drain was ended: {status}");
    wait::until("it is ready again", SOON, || node.is_up().then_some(()));

    let (mut stay, mut told) = (Vec::new(), Vec::new());
    for (number, mut client) in clients.into_iter().enumerate() {
        if client.try_ping().await.is_ok() {
            stay.push(client);
            continue;
        }
        let reason = client.disconnect.as_ref().map(|disconnect| disconnect.reason_code);
        let why = [ReasonCode::ServerShuttingDown, ReasonCode::UseAnotherServer];
        assert!(reason.is_some_and(|reason| why.contains(&reason)), "{reason:?}");
        told.push(number);
    }
    // In the first second as many may go at once.
    let most = RATE as f64 * (took.as_secs_f64() + 1.0);
    println!("told {} of {CLIENTS} within {took:?}", told.len());
    assert!(told.len() >= RATE && told.len() as f64 <= most && !stay.is_empty(), "{} of at most {most}", told.len());
    let mut elsewhere = Client::connect(trio.mqtt(1), &options(told[0])).await;
    assert!(elsewhere.session_present(), "its session is there at once");
    elsewhere.publish("t", b"to all", QoS::AtLeastOnce).await;
    assert_eq!(elsewhere.text().await, "to all");
    for client in &mut stay {
        assert_eq!(client.text().await, "to all", "who was not told stays where it was");
    }
}
