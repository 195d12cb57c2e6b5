//! What the HTTP edge is told of the node's health.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

use crate::cluster::Cluster;
use crate::edge::{ClusterHealth, GroupHealth, HealthSource, ListenerHealth, Waiting};
use crate::listener::Bound;

pub(super) struct NodeHealth {
    cluster: Cluster,
    listeners: RwLock<Vec<Bound>>,
    draining: AtomicBool,
}

impl NodeHealth {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { cluster, listeners: RwLock::default(), draining: AtomicBool::new(false) }
    }

    pub(super) fn set_listeners(&self, listeners: Vec<Bound>) {
        *self.listeners.write() = listeners;
    }

    pub(super) fn stop_listeners(&self) {
        self.listeners.read().iter().for_each(Bound::stop);
    }

    pub(super) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}

impl HealthSource for NodeHealth {
    fn cluster(&self) -> ClusterHealth {
        let status = self.cluster.status();
        let name = |id: u64| {
            let known = status.members.iter().find(|member| member.0 == id);
            known.map_or_else(|| format!("{id:016x}"), |member| member.1.clone())
        };
        ClusterHealth {
            node_name: status.node_name.clone(),
            cluster_id: status.cluster_id.clone(),
            ready: status.ready,
            waiting: status.waiting_for.clone().map(|(what, since_ms)| Waiting { what, since_ms }),
            nodes: status
                .members
                .iter()
                .map(|(_, name, address, alive)| crate::edge::NodeHealth {
                    name: name.clone(),
                    address: address.clone(),
                    alive: *alive,
                })
                .collect(),
            groups: status
                .groups
                .iter()
                .map(|group| GroupHealth {
                    name: group.name.clone(),
                    leader: group.leader.map(name),
                    term: group.term,
                    last_log_index: group.last_log_index,
                    applied_index: group.applied_index,
                    voters: group.voters.iter().copied().map(name).collect(),
                })
                .collect(),
        }
    }

    fn listeners(&self) -> Vec<ListenerHealth> {
        let health = |listener: &Bound| ListenerHealth {
            name: listener.name.clone(),
            bind_address: listener.address.ip().to_string(),
            port: listener.address.port(),
            running: listener.is_running(),
        };
        self.listeners.read().iter().map(health).collect()
    }

    fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.cluster.is_draining()
    }
}
