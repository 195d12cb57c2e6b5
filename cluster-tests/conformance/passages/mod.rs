//! Sessions on their way: the same scenarios on one connection, over two of them, over two nodes, and across kill -9 of one node and of all.
//!
//! A scenario has two halves with a `pass` between them. All scenarios run at the same time; when each has done its first half, what the
//! passage does to the nodes happens once, and they go on.

mod deliveries;
mod limits;
mod scenario;
pub mod scenarios;
mod shared;
mod subscriptions;
mod time;

use std::net::SocketAddr;

use tokio::sync::{oneshot, watch};
use troupemq::mqtt::ProtocolVersion;

use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use scenario::{After, Stage};

/// What lies between the halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Nothing: the connection stays.
    SameConnection,
    /// The connection is cut, the next one goes to the same node.
    Reconnect,
    /// The next connection goes to another node; the first is taken over where it still stands.
    OtherNode,
    /// kill -9 of the client's node; the next connection goes to another.
    NodeKilled,
    /// kill -9 of all nodes, which come back.
    AllKilled,
}

const PASSAGES: [Passage; 5] =
    [Passage::SameConnection, Passage::Reconnect, Passage::OtherNode, Passage::NodeKilled, Passage::AllKilled];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_keep_every_promise_on_every_passage() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut failures = Vec::new();
    for passage in PASSAGES {
        failures.extend(run_all(&mut trio, passage).await);
    }
    for node in &trio.nodes {
        assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
    }
    assert!(failures.is_empty(), "{} scenarios failed, see above: {failures:#?}", failures.len());
}

/// Runs all scenarios over one passage; the names of those that failed.
async fn run_all(trio: &mut Trio, passage: Passage) -> Vec<String> {
    let addresses = trio.all_mqtt();
    let (go, gone) = watch::channel(None);
    let (mut running, mut arrivals) = (Vec::new(), Vec::new());
    for scenario in scenarios::ALL.iter().filter(|scenario| scenario.runs_over(passage)) {
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            if version != ProtocolVersion::V5 && scenario.only_v5 {
                continue;
            }
            let (arrived, arrival) = oneshot::channel();
            let stage = Stage::new(scenario.name, passage, version, addresses[0], arrived, gone.clone());
            let name = format!("{passage:?}, {version:?}: {}", scenario.name);
            running.push((name, tokio::spawn((scenario.run)(stage))));
            arrivals.push(arrival);
        }
    }
    for arrival in arrivals {
        // An error: the scenario ended before its passage, which is told below.
        _ = arrival.await;
    }
    let after = tokio::task::block_in_place(|| act(trio, passage));
    _ = go.send(Some(After { address: after }));
    let mut failed = Vec::new();
    for (name, task) in running {
        if let Err(error) = task.await {
            eprintln!("{name}: {error}");
            failed.push(name);
        }
    }
    if passage == Passage::NodeKilled {
        tokio::task::block_in_place(|| {
            trio.nodes[0].launch();
            trio.wait_ready();
        });
    }
    failed
}

/// Does what the passage does to the nodes; where clients go afterwards.
fn act(trio: &mut Trio, passage: Passage) -> SocketAddr {
    match passage {
        Passage::SameConnection | Passage::Reconnect => trio.mqtt(0),
        Passage::OtherNode => trio.mqtt(1),
        Passage::NodeKilled => {
            trio.nodes[0].kill();
            trio.mqtt(1)
        }
        Passage::AllKilled => {
            trio.nodes.iter_mut().for_each(crate::harness::node::Node::kill);
            trio.start_all();
            trio.mqtt(0)
        }
    }
}
