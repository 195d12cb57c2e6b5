//! What this room asks about the node's health; `broker` hands in what knows.

use serde::Serialize;

/// Knows how the node is. Asked at each request: must be quick and must not wait.
pub trait HealthSource: Send + Sync + 'static {
    fn cluster(&self) -> ClusterHealth;
    /// The configured MQTT listeners, also those that are not bound (yet).
    fn listeners(&self) -> Vec<ListenerHealth>;
    /// Whether the node is shutting down: it serves what it has, but is not to be given more.
    fn draining(&self) -> bool;
}

/// The cluster as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterHealth {
    pub node_name: String,
    pub cluster_id: Option<String>,
    /// The node is a member, has caught up, and every Raft group has a leader in reach.
    pub ready: bool,
    /// What readiness waits for.
    pub waiting: Option<Waiting>,
    pub nodes: Vec<NodeHealth>,
    pub groups: Vec<GroupHealth>,
}

/// Something that is awaited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// In words.
    pub what: String,
    /// Wall clock, ms since the epoch.
    pub since_ms: u64,
}

/// A member of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeHealth {
    pub name: String,
    pub address: String,
    pub alive: bool,
}

/// A Raft group on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupHealth {
    /// `meta` or the shard's number.
    pub name: String,
    /// Name of the leading node.
    pub leader: Option<String>,
    pub term: u64,
    pub last_log_index: u64,
    pub applied_index: u64,
    /// Names of the voting nodes.
    pub voters: Vec<String>,
}

/// An MQTT listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerHealth {
    /// `tcp-listener-1883`.
    pub name: String,
    pub bind_address: String,
    /// The port that is bound, where it is; else the configured one.
    pub port: u16,
    pub running: bool,
}

/// The status of a component (spec/hivemq.md 6.5). The node has no state between the two that clients would act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    Up,
    Down,
}

impl Status {
    pub fn of(up: bool) -> Self {
        if up { Self::Up } else { Self::Down }
    }

    /// Up only where both are.
    pub fn and(self, other: Self) -> Self {
        Self::of(self == Self::Up && other == Self::Up)
    }

    /// The word in the JSON.
    pub fn text(self) -> &'static str {
        match self {
            Self::Up => "UP",
            Self::Down => "DOWN",
        }
    }
}

/// The status of the cluster component.
pub fn cluster_status(cluster: &ClusterHealth) -> Status {
    Status::of(cluster.ready)
}

/// The status of the MQTT component: every listener runs, and there is one.
pub fn mqtt_status(listeners: &[ListenerHealth]) -> Status {
    Status::of(!listeners.is_empty() && listeners.iter().all(|listener| listener.running))
}
