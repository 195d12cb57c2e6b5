//! Health sources for the tests of this room.

use super::health::{ClusterHealth, GroupHealth, HealthSource, ListenerHealth, LoadHealth, MqttHealth, NodeHealth, Waiting};

#[derive(Debug, Clone)]
pub(super) struct Fixture {
    pub(super) cluster: ClusterHealth,
    pub(super) mqtt: MqttHealth,
    pub(super) draining_since_ms: Option<u64>,
    pub(super) load: LoadHealth,
}

impl HealthSource for Fixture {
    fn cluster(&self) -> ClusterHealth {
        self.cluster.clone()
    }

    fn mqtt(&self) -> MqttHealth {
        self.mqtt.clone()
    }

    fn draining_since_ms(&self) -> Option<u64> {
        self.draining_since_ms
    }

    fn load(&self) -> LoadHealth {
        self.load.clone()
    }
}

impl Fixture {
    /// Node 1 of two; node 2 is alive.
    pub(super) fn ready() -> Self {
        let node = |name: &str, alive| NodeHealth { name: name.to_owned(), address: format!("{name}:7800"), alive };
        let group = |name: &str, leader: &str| GroupHealth {
            name: name.to_owned(),
            leader: Some(leader.to_owned()),
            term: 4,
            last_log_index: 121,
            applied_index: 120,
            voters: vec!["node-1".to_owned(), "node-2".to_owned()],
        };
        Self {
            cluster: ClusterHealth {
                node_name: "node-1".to_owned(),
                cluster_id: Some("c-1".to_owned()),
                ready: true,
                waiting: None,
                nodes: vec![node("node-1", true), node("node-2", true), node("node-3", false)],
                groups: vec![group("meta", "node-1"), group("0", "node-2")],
            },
            mqtt: MqttHealth {
                listeners: vec![ListenerHealth {
                    name: "tcp-listener-1883".to_owned(),
                    bind_address: "0.0.0.0".to_owned(),
                    port: 1883,
                    running: true,
                }],
                waiting: None,
            },
            draining_since_ms: None,
            load: LoadHealth { level: 0, cause: None, since_ms: 1_756_377_500_000 },
        }
    }

    /// Waits for its cluster.
    pub(super) fn waiting() -> Self {
        let mut fixture = Self::ready();
        fixture.cluster.ready = false;
        fixture.cluster.waiting = Some(Waiting { what: "a majority of 3 nodes".to_owned(), since_ms: 1_756_377_600_000 });
        fixture.cluster.groups[1].leader = None;
        fixture
    }

    pub(super) fn draining() -> Self {
        Self { draining_since_ms: Some(1_756_377_700_000), ..Self::ready() }
    }

    /// Every text is `text`.
    pub(super) fn named(text: &str) -> Self {
        let text = || text.to_owned();
        Self {
            cluster: ClusterHealth {
                node_name: text(),
                cluster_id: Some(text()),
                ready: false,
                waiting: Some(Waiting { what: text(), since_ms: 0 }),
                nodes: vec![NodeHealth { name: text(), address: text(), alive: true }],
                groups: vec![GroupHealth { name: text(), leader: Some(text()), voters: vec![text()], ..GroupHealth::default() }],
            },
            mqtt: MqttHealth {
                listeners: vec![ListenerHealth { name: text(), bind_address: text(), port: 1, running: false }],
                waiting: None,
            },
            draining_since_ms: None,
            load: LoadHealth::default(),
        }
    }
}
