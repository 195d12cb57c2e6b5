//! Three nodes that make one cluster.

use std::net::SocketAddr;

use tempfile::TempDir;
use troupemq::replica::ShardId;

use super::config::{ClusterConfig, Config, SECRET, SHARDS};
use super::node::Node;
use super::permit::{Permit, Weight, acquire};
use super::{SOON, http, ports, wait};

pub struct Trio {
    pub nodes: Vec<Node>,
    _home: TempDir,
    /// Last, so that the machine is free when the nodes are gone.
    _permit: Permit,
}

impl Trio {
    /// Three nodes, not started.
    pub fn new(weight: Weight, shape: impl Fn(&mut Config)) -> Self {
        let permit = acquire(weight);
        let home = tempfile::Builder::new().prefix("troupemq-").tempdir().expect("a temporary directory");
        let all_ports: Vec<u16> = (0..3).map(|_| ports::reserve()).collect();
        let nodes = (0..3)
            .map(|index| {
                let name = format!("node{}", index + 1);
                let cluster = ClusterConfig {
                    node_name: name.clone(),
                    port: all_ports[index],
                    all_ports: all_ports.clone(),
                    secret: SECRET.to_owned(),
                    shards: SHARDS,
                    external_port: None,
                    transport: String::new(),
                    more: String::new(),
                };
                let mut config = Config {
                    mqtt_port: ports::reserve(),
                    websocket_port: ports::reserve(),
                    http_port: ports::reserve(),
                    cluster: Some(cluster),
                    ..Config::default()
                };
                shape(&mut config);
                Node::within(&home.path().join(&name), &name, config)
            })
            .collect();
        Self { nodes, _home: home, _permit: permit }
    }

    /// Three nodes, started at the same moment, all ready.
    pub fn ready(weight: Weight) -> Self {
        Self::ready_with(weight, |_| {})
    }

    pub fn ready_with(weight: Weight, shape: impl Fn(&mut Config)) -> Self {
        let mut trio = Self::new(weight, shape);
        trio.start_all();
        trio
    }

    pub fn start_all(&mut self) {
        self.nodes.iter_mut().for_each(Node::launch);
        self.wait_ready();
    }

    /// Waits until all nodes have announced themselves, say that they are up, and see three nodes alive.
    pub fn wait_ready(&mut self) {
        self.nodes.iter_mut().for_each(Node::wait_ready);
        for node in &self.nodes {
            wait::until(&format!("{} is up and sees three nodes", node.name), SOON, || {
                (node.is_up() && alive(node) == 3).then_some(())
            });
        }
    }

    /// Waits until one node that was launched is ready, and all see three nodes alive.
    pub fn wait_ready_one(&mut self, index: usize) {
        self.nodes[index].wait_ready();
        for node in &self.nodes {
            wait::until(&format!("{} is up and sees three nodes", node.name), SOON, || {
                (node.is_up() && alive(node) == 3).then_some(())
            });
        }
    }

    pub fn mqtt(&self, index: usize) -> SocketAddr {
        self.nodes[index].mqtt()
    }

    pub fn all_mqtt(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Node::mqtt).collect()
    }
}

/// The nodes alive, as one of them sees it.
pub fn alive(node: &Node) -> u64 {
    cluster_details(node).and_then(|details| details["cluster-size"].as_u64()).unwrap_or(0)
}

/// The id of the cluster, as a node sees it.
pub fn cluster_id(node: &Node) -> Option<String> {
    Some(cluster_details(node)?["cluster-id"].as_str()?.to_owned())
}

fn cluster_details(node: &Node) -> Option<serde_json::Value> {
    let (_, body) = http::get(node.http(), "/api/v1/health/cluster")?;
    let mut component: serde_json::Value = serde_json::from_str(&body).ok()?;
    Some(component["details"].take())
}

/// The number of the node (from 0) that leads the shard of a key, as one of them sees it.
pub fn leader_of(node: &Node, key: &str) -> Option<usize> {
    let ShardId(shard) = ShardId::of(key, SHARDS);
    leaders(node)?.into_iter().find_map(|(group, leader)| (group == shard.to_string()).then_some(leader))
}

/// Groups (`meta`, or the number of a shard) with the number of the node that leads each, as the status page has them.
pub fn leaders(node: &Node) -> Option<Vec<(String, usize)>> {
    let (_, page) = http::get_as(node.http(), "/", "text/html")?;
    let (_, groups) = page.split_once("Raft groups")?;
    let (rows, _) = groups.split_once("</table>")?;
    let leader = |row: &str| {
        let (group, rest) = row.split_once("</td><td>")?;
        let (leader, _) = rest.split_once("</td>")?;
        Some((group.to_owned(), leader.strip_prefix("node")?.parse::<usize>().ok()? - 1))
    };
    Some(rows.split("<tr><td>").filter_map(leader).collect())
}
