//! What the HTTP edge is told of the node's health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::actor::overload::{Overload, Resource};
use crate::actor::{Node, clock};
use crate::cluster::Cluster;
use crate::edge::{ClusterHealth, GroupHealth, HealthSource, ListenerHealth, LoadHealth, MqttHealth, Waiting};
use crate::listener::Bound;

pub(super) struct NodeHealth {
    node: Arc<Node>,
    cluster: Cluster,
    listeners: RwLock<Vec<Bound>>,
    draining: AtomicBool,
    /// When the node began to drain, or to stop, wall clock; 0 = it does not.
    draining_since_ms: AtomicU64,
    started_ms: u64,
}

impl NodeHealth {
    pub(super) fn new(node: Arc<Node>, cluster: Cluster) -> Self {
        Self {
            node,
            cluster,
            listeners: RwLock::default(),
            draining: AtomicBool::new(false),
            draining_since_ms: AtomicU64::new(0),
            started_ms: clock::wall_ms(),
        }
    }

    pub(super) fn set_listeners(&self, listeners: Vec<Bound>) {
        *self.listeners.write() = listeners;
    }

    pub(super) fn stop_listeners(&self) {
        self.listeners.read().iter().for_each(Bound::stop);
    }

    /// The node stops.
    pub(super) fn set_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.begin_drain();
    }

    /// The node drains because an operator wants it to.
    pub(super) fn begin_drain(&self) {
        let now_ms = clock::wall_ms();
        let _began_before = self.draining_since_ms.compare_exchange(0, now_ms, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(super) fn end_drain(&self) {
        if !self.draining.load(Ordering::Relaxed) {
            self.draining_since_ms.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.cluster.is_draining()
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

    fn mqtt(&self) -> MqttHealth {
        let health = |listener: &Bound| ListenerHealth {
            name: listener.name.clone(),
            bind_address: listener.address.ip().to_string(),
            port: listener.address.port(),
            running: listener.is_running(),
        };
        let listeners: Vec<ListenerHealth> = self.listeners.read().iter().map(health).collect();
        let what = if listeners.is_empty() {
            Some("its listeners to be bound")
        } else if !self.node.has_declared.load(Ordering::Acquire) {
            Some("the shared subscriptions that it declares to be in force")
        } else {
            None
        };
        let waiting = what.map(|what| Waiting { what: what.to_owned(), since_ms: self.started_ms });
        MqttHealth { listeners, waiting }
    }

    fn draining_since_ms(&self) -> Option<u64> {
        self.is_draining().then(|| self.draining_since_ms.load(Ordering::Relaxed))
    }

    fn load(&self) -> LoadHealth {
        let Overload { level, cause, since_ms } = self.node.load.overload();
        let since_ms = if since_ms == 0 { self.started_ms } else { since_ms };
        LoadHealth { level, cause: cause.map(Resource::name), since_ms }
    }
}
