//! What the cluster room needs of the configuration.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::settings::NodeTlsSettings;

use super::versions::Protocol;

/// Settings of this node's part in the cluster.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// False: a cluster of one, no peer transport is opened.
    pub enabled: bool,
    pub node_name: String,
    /// Where the peer transport listens.
    pub bind: Option<SocketAddr>,
    /// `host:port` other nodes reach this one at.
    pub advertised: String,
    /// `host:port` of the other nodes (this node's own may be among them).
    pub seeds: Vec<String>,
    /// A name whose addresses are nodes, beside the seeds.
    pub dns: Option<Dns>,
    /// Number of nodes that found the cluster; `None`: this one founds none. A list of seeds that leaves this node out does not make it less.
    pub expected_nodes: Option<usize>,
    pub secret: String,
    /// TLS with peers.
    pub tls: Option<NodeTlsSettings>,
    pub shards: u16,
    pub heartbeat_ms: u64,
    /// Election timeout is drawn from this range, ms.
    pub election_min_ms: u64,
    pub election_max_ms: u64,
    /// For so long a node keeps its clients without a leader of `meta` in reach.
    pub close_without_majority_ms: u64,
    pub protocol: Protocol,
    /// Settings that are to be the same on every node, by their names in config.xml; where they differ it is told.
    pub must_agree: Vec<(String, String)>,
}

/// Discovery by DNS.
#[derive(Debug, Clone)]
pub struct Dns {
    pub name: String,
    /// Each address is a node at this port.
    pub port: u16,
    pub timeout: Duration,
    /// Between two looks.
    pub interval: Duration,
}

/// Silence of a peer shorter than this is never taken for its death.
pub const SILENCE_MS_MIN: u64 = 3_000;

impl ClusterSettings {
    /// A peer nothing is heard of for so long is dead.
    pub fn silence_ms(&self) -> u64 {
        (self.election_max_ms * 2).max(SILENCE_MS_MIN)
    }

    /// A node that hears no leader of `meta` for so long gives its incarnation up: its connections close.
    /// Not before two elections could be over, or every change of leader would cost clients their connections.
    pub fn majority_lost_ms(&self) -> u64 {
        self.close_without_majority_ms.max(self.election_max_ms * 2)
    }
}
