//! A cluster grows from one node to three and to five, and shrinks to three and to one that was not the first, while clients publish and
//! one with a persistent session receives, and goes from node to node: every acknowledged message arrives.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish};
use crate::harness::config::{ClusterConfig, Config, SECRET, SHARDS};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::roamer::Roamer;
use crate::harness::{ports, wait};

const NODES: usize = 5;
const PUBLISHERS: usize = 4;
/// A change of membership is through within this, five debug builds on two busy cores.
const CHANGE: Duration = Duration::from_secs(90);

type Acknowledged = Arc<Mutex<BTreeSet<String>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_to_three_to_five_and_back_under_load_without_a_lost_message() {
    grow_and_shrink(50, true).await;
}

/// The same at leisure: nodes come one by one, each when the one before is ready, and there is more to lose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: cargo test -p cluster-tests -- --ignored growth"]
async fn one_to_three_to_five_to_three_to_one_under_load_without_a_lost_message() {
    grow_and_shrink(300, false).await;
}

/// `each`: messages acknowledged in each size of the cluster. `together`: nodes start at the same time.
async fn grow_and_shrink(each: usize, together: bool) {
    let _permit = acquire(Weight::Whole);
    let begun = Instant::now();
    let home = tempfile::Builder::new().prefix("troupemq-").tempdir().expect("a temporary directory");
    let mut nodes = nodes(home.path());
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::mqtt).collect();
    nodes[0].launch();
    nodes[0].wait_ready();

    let mut subscriber = Roamer::connect(addresses.clone(), 0, Options::v5("grown").persistent()).await;
    assert_eq!(subscriber.client().await.subscribe("grow/#", QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
    let received = Arc::new(Mutex::new(BTreeSet::new()));
    let (stop_receiving, stopped) = watch::channel(false);
    let subscriber = tokio::spawn(receive(subscriber, Arc::clone(&received), stopped));
    let acknowledged = Acknowledged::default();
    let count = Arc::new(AtomicUsize::new(0));
    let (stop, stopping) = watch::channel(false);
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|number| {
            let (addresses, acknowledged, count) = (addresses.clone(), Arc::clone(&acknowledged), Arc::clone(&count));
            tokio::spawn(publish_on(number, addresses, acknowledged, count, stopping.clone()))
        })
        .collect();
    let more = async |what: &str| {
        let goal = count.load(Ordering::Relaxed) + each;
        let reached = async || (count.load(Ordering::Relaxed) >= goal).then_some(());
        wait::until_async(&format!("messages are acknowledged by {what}"), CHANGE, reached).await;
    };

    more("one node").await;
    for (size, joining) in [(3, 1..3), (5, 3..5)] {
        for index in joining.clone() {
            nodes[index].launch();
            if !together {
                nodes[index].wait_ready();
            }
        }
        for index in joining {
            nodes[index].wait_ready();
            println!("{:?} {} is ready", begun.elapsed(), nodes[index].name);
        }
        wait_voters(&nodes[0], size).await;
        println!("{:?} {size} nodes vote", begun.elapsed());
        more(&format!("{size} nodes")).await;
        println!("{:?} messages are acknowledged", begun.elapsed());
    }
    for (size, leaving) in [(3, [4, 0]), (1, [1, 3])] {
        for index in leaving {
            let left = nodes[index].admin(&["leave"]);
            assert_eq!(left.code, Some(0), "{left:?}");
            assert!(nodes[index].wait_ended().success(), "a node that left ends well");
            println!("{:?} {} has left", begun.elapsed(), nodes[index].name);
        }
        wait_voters(&nodes[2], size).await;
        more(&format!("{size} nodes that are left")).await;
    }
    stop.send(true).expect("publishers are there");
    for publisher in publishers {
        publisher.await.expect("the publisher ends well");
    }
    let acknowledged = acknowledged.lock().expect("not poisoned").clone();
    let missing = || -> Vec<String> {
        let received = received.lock().expect("not poisoned");
        acknowledged.difference(&received).cloned().collect()
    };
    let until = Instant::now() + CHANGE;
    while !missing().is_empty() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop_receiving.send(true).expect("the subscriber is there");
    let subscriber = subscriber.await.expect("the subscriber ends well");
    println!(
        "{} messages acknowledged, {} received, {} connects of the subscriber",
        acknowledged.len(),
        received.lock().expect("not poisoned").len(),
        subscriber.connects
    );
    let missing = missing();
    assert!(missing.is_empty(), "{} of {} acknowledged messages are lost: {missing:?}", missing.len(), acknowledged.len());
    assert_eq!(subscriber.wrongly_redelivered, Vec::<String>::new());
    assert!(subscriber.connects > 1, "it went from node to node");
}

/// The first knows itself only; each of the others knows the one before and itself.
fn nodes(home: &std::path::Path) -> Vec<Node> {
    let cluster_ports: Vec<u16> = (0..NODES).map(|_| ports::reserve()).collect();
    (0..NODES)
        .map(|index| {
            let name = format!("node{}", index + 1);
            let cluster = ClusterConfig {
                node_name: name.clone(),
                port: cluster_ports[index],
                all_ports: cluster_ports[index.saturating_sub(1)..=index].to_vec(),
                secret: SECRET.to_owned(),
                shards: SHARDS,
                external_port: None,
                transport: String::new(),
                more: String::new(),
            };
            let config = Config {
                mqtt_port: ports::reserve(),
                websocket_port: ports::reserve(),
                http_port: ports::reserve(),
                cluster: Some(cluster),
                mqtt: "<queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>".to_owned(),
                ..Config::default()
            };
            Node::within(&home.join(&name), &name, config)
        })
        .collect()
}

/// Until every group has so many voters and nobody else.
async fn wait_voters(node: &Node, count: usize) {
    let all_vote = async || {
        let status = node.status()?;
        let groups = status["groups"].as_array()?;
        let voters = |group: &serde_json::Value| group["voters"].as_array().map(Vec::len);
        let learners = |group: &serde_json::Value| group["learners"].as_array().map(Vec::len);
        let right =
            groups.iter().all(|group| voters(group) == Some(count) && learners(group) == Some(0) && group["changing"] == false);
        let members = status["members"].as_array().is_some_and(|members| members.len() == count);
        (right && members && !groups.is_empty()).then_some(())
    };
    wait::until_async(&format!("{count} voters in every group"), CHANGE, all_vote).await;
}

/// Publishes until told to stop; a message that is not acknowledged is published again elsewhere.
async fn publish_on(
    number: usize,
    addresses: Vec<SocketAddr>,
    acknowledged: Acknowledged,
    count: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
) {
    let options = Options::v5(&format!("publisher-{number}"));
    let mut next = number;
    let mut message = 0;
    while !*stop.borrow() {
        let Ok(mut client) = Client::try_connect(addresses[next % NODES], &options).await else {
            next += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while !*stop.borrow() {
            let text = format!("{number}/{message}");
            match client.try_publish(publish("grow/message", text.as_bytes(), QoS::AtLeastOnce)).await {
                Ok(ReasonCode::Success) => {
                    acknowledged.lock().expect("not poisoned").insert(text);
                    count.fetch_add(1, Ordering::Relaxed);
                    message += 1;
                    // The nodes are debug builds: the load is to be steady, not the most they can do.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // Refused, or the connection is gone: again, elsewhere.
                Ok(ReasonCode::NoMatchingSubscribers) => panic!("a node does not know of the subscriber"),
                Ok(_) | Err(_) => break,
            }
        }
        next += 1;
    }
}

async fn receive(mut subscriber: Roamer, received: Arc<Mutex<BTreeSet<String>>>, stop: watch::Receiver<bool>) -> Roamer {
    while !*stop.borrow() {
        if let Some(message) = subscriber.message(Duration::from_millis(500)).await {
            let text = String::from_utf8(message.payload.to_vec()).expect("text");
            received.lock().expect("not poisoned").insert(text);
        }
    }
    subscriber
}
