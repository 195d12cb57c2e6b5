//! What this room asks about the node's health; `broker` hands in what knows.

use serde::Serialize;

/// Knows how the node is. Asked at each request: must be quick and must not wait.
pub trait HealthSource: Send + Sync + 'static {
    fn cluster(&self) -> ClusterHealth;
    fn mqtt(&self) -> MqttHealth;
    /// Since when the node stops or drains, wall clock, ms: it serves what it has, but is not to be given more. `None`: it does not.
    fn draining_since_ms(&self) -> Option<u64>;
    fn load(&self) -> LoadHealth;
}

/// The way in for MQTT clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MqttHealth {
    /// The configured listeners, also those that are not bound any more; none before they are.
    pub listeners: Vec<ListenerHealth>,
    pub waiting: Option<Waiting>,
}

/// How much the node has to do (spec/hivemq.md 9.10). It makes no node less ready: fewer nodes would have more to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadHealth {
    /// 0 to 9.
    pub level: u8,
    /// What it comes from, in words; `None` at level 0.
    pub cause: Option<&'static str>,
    /// Since when it is this level, wall clock, ms.
    pub since_ms: u64,
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

/// The status of the MQTT component: nothing is awaited, every listener runs, and there is one.
pub fn mqtt_status(mqtt: &MqttHealth) -> Status {
    let MqttHealth { listeners, waiting } = mqtt;
    Status::of(waiting.is_none() && !listeners.is_empty() && listeners.iter().all(|listener| listener.running))
}
