//! How three nodes become a cluster, and what a minority does.

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::{Config, SHARDS};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::{Trio, alive, cluster_id};
use crate::harness::{SOON, http, ports, wait};

fn assert_one_cluster(trio: &Trio) {
    let ids: Vec<_> = trio.nodes.iter().map(cluster_id).collect();
    assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn three_nodes_started_at_once_found_one_cluster() {
    let trio = Trio::ready(Weight::Cluster);
    assert_one_cluster(&trio);
    for node in &trio.nodes {
        assert_eq!(node.metric("com_hivemq_cluster_nodes_count"), 3.0, "{}", node.name);
    }
}

#[tokio::test]
async fn three_nodes_started_one_by_one_found_one_cluster() {
    let mut trio = Trio::new(Weight::Cluster, |_| {});
    trio.nodes[2].launch();
    let first = &trio.nodes[2];
    wait::until("the first node serves HTTP", SOON, || http::get(first.http(), "/api/v1/health/liveness"));
    let (status, body) = http::get(first.http(), "/api/v1/health/readiness").expect("an answer");
    assert_eq!(status, 503, "one of three is not ready: {body}");
    assert_refused_as_unavailable(first).await;

    trio.nodes[0].launch();
    trio.nodes[2].wait_ready();
    trio.nodes[0].wait_ready();
    let mut client = Client::connect(trio.mqtt(0), &Options::v5("early").persistent()).await;
    client.subscribe("early", QoS::AtLeastOnce).await;
    client.disconnect().await;

    trio.nodes[1].launch();
    trio.wait_ready();
    assert_one_cluster(&trio);
    let client = Client::connect(trio.mqtt(1), &Options::v5("early").persistent()).await;
    assert!(client.session_present(), "the last node knows what the first two agreed on");
}

/// A client's shard is a function of their number: two nodes that count differently would each give a client a session.
#[test]
fn a_node_with_another_number_of_shards_is_refused() {
    let mut trio = Trio::new(Weight::Cluster, |_| {});
    if let Some(cluster) = &mut trio.nodes[2].config.cluster {
        cluster.shards = SHARDS - 2;
    }
    for node in &mut trio.nodes {
        node.launch();
    }
    trio.nodes[0].wait_ready();
    trio.nodes[1].wait_ready();
    let stranger = &trio.nodes[2];
    let told = |node: &Node| node.stderr().contains("give all nodes the same <shards>").then_some(());
    wait::until("the log of the stranger says why", SOON, || told(stranger));
    wait::until("the log of the others says why", SOON, || told(&trio.nodes[0]));
    assert!(!stranger.is_up());

    // It does as it was told, with the directory that it made.
    trio.nodes[2].kill();
    if let Some(cluster) = &mut trio.nodes[2].config.cluster {
        cluster.shards = SHARDS;
    }
    trio.nodes[2].launch();
    trio.wait_ready();
    assert_one_cluster(&trio);
}

/// `../shared/cases.md`, row 12: two nodes that each list the other only must not found two clusters.
#[test]
fn nodes_that_do_not_list_themselves_found_one_cluster() {
    let mut trio = Trio::new(Weight::Cluster, |config| {
        if let Some(cluster) = &mut config.cluster {
            cluster.all_ports.retain(|port| *port != cluster.port);
        }
    });
    trio.nodes[0].launch();
    let first = &trio.nodes[0];
    wait::until("the first node serves HTTP", SOON, || http::get(first.http(), "/api/v1/health/liveness"));
    assert!(!first.is_up(), "one of three, of which it lists two");
    trio.nodes[1].launch();
    trio.nodes[2].launch();
    trio.wait_ready();
    assert_one_cluster(&trio);
}

#[tokio::test]
async fn a_minority_refuses_clients_and_serves_again_when_it_is_none() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut old = Client::connect(trio.mqtt(0), &Options::v5("old").persistent()).await;
    old.subscribe("t", QoS::AtLeastOnce).await;
    trio.nodes[1].kill();
    trio.nodes[2].kill();
    let first = &trio.nodes[0];
    wait::until("a node alone is not ready", SOON, || (!first.is_up()).then_some(()));
    assert_refused_as_unavailable(first).await;
    assert_eq!(http::get(first.http(), "/api/v1/health/liveness").map(|(status, _)| status), Some(200));

    trio.nodes[2].launch();
    trio.nodes[2].wait_ready();
    wait::until("two of three are ready", SOON, || trio.nodes[0].is_up().then_some(()));
    let mut old = Client::connect(trio.mqtt(2), &Options::v5("old").persistent()).await;
    assert!(old.session_present());
    old.publish("t", b"again", QoS::AtLeastOnce).await;
    assert_eq!(old.text().await, "again");
}

/// Until the node has noticed that it is alone, an attempt may also end without an answer.
async fn assert_refused_as_unavailable(node: &Node) {
    wait::until_async("CONNECT is refused with 0x88", SOON, async || {
        match Client::try_connect(node.mqtt(), &Options::v5("refused")).await {
            Err(ConnectError::Refused(connack)) => {
                assert_eq!(connack.reason_code, ReasonCode::ServerUnavailable);
                Some(())
            }
            Err(ConnectError::Socket(_)) => None,
            Ok(_) => panic!("a node without a majority accepted a client"),
        }
    })
    .await;
}

#[test]
fn a_restarted_node_rejoins() {
    let mut trio = Trio::ready(Weight::Cluster);
    let id = cluster_id(&trio.nodes[0]);
    for kill in [true, false] {
        if kill {
            trio.nodes[1].kill();
        } else {
            assert!(trio.nodes[1].stop().success());
        }
        let first = &trio.nodes[0];
        wait::until("the others see two nodes", SOON, || (alive(first) == 2).then_some(()));
        trio.nodes[1].launch();
        trio.wait_ready();
        assert_eq!(cluster_id(&trio.nodes[1]), id);
    }
}

#[test]
fn a_node_with_another_secret_stays_outside() {
    let mut trio = Trio::new(Weight::Cluster, |config| {
        if let Some(cluster) = config.cluster.as_mut().filter(|cluster| cluster.node_name == "node3") {
            cluster.secret = "this-is-not-the-secret-of-the-others".to_owned();
        }
    });
    trio.nodes.iter_mut().for_each(Node::launch);
    trio.nodes[0].wait_ready();
    trio.nodes[1].wait_ready();
    let (first, third) = (&trio.nodes[0], &trio.nodes[2]);
    wait::until("both logs name the secret", SOON, || {
        [first, third].iter().all(|node| node.stderr().contains("secret")).then_some(())
    });
    assert!(!third.is_up());
    assert_eq!(alive(first), 2);
    assert!(!third.stderr().contains("this-is-not") && !first.stderr().contains("this-is-not"), "secrets are not logged");
}

#[test]
fn data_of_another_cluster_is_refused() {
    let mut trio = Trio::ready(Weight::Cluster);
    // A node3 that has founded a cluster of its own.
    trio.nodes[2].kill();
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut alone = trio.nodes[2].config.clone();
    if let Some(cluster) = &mut alone.cluster {
        // Where the other two do not look for node3: they would take it in.
        cluster.port = ports::reserve();
        cluster.all_ports = vec![cluster.port];
    }
    let shared: Config = trio.nodes[2].config.clone();
    let mut stray = Node::within(home.path(), "stray", alone);
    stray.start();
    assert!(stray.stop().success());
    stray.config = shared;
    let refusal = stray.refused();
    assert_eq!(refusal.status.code(), Some(2), "{refusal:?}");
    let says = |log: &str| log.lines().any(|line| line.contains("refused") && line.matches("cluster").count() > 1);
    assert!(refusal.stderr.contains("--data") && says(&refusal.stderr), "{}", refusal.stderr);
    wait::until("the others say it too", SOON, || trio.nodes[..2].iter().any(|node| says(&node.stderr())).then_some(()));
    assert!(trio.nodes[0].is_up() && trio.nodes[1].is_up());
}
