//! What the commands of the admin socket do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::actor::clock::wall_ms;
use crate::actor::{Node, parting};
use crate::admin::report::{GroupReport, MemberReport, StatusReport, Waiting};
use crate::admin::{Handler, Outcome, Progress};
use crate::cluster::{Cluster, MemberStatus};
use crate::edge::HealthSource;

use super::health::NodeHealth;

pub(super) struct NodeAdmin {
    cluster: Cluster,
    health: Arc<NodeHealth>,
    node: Arc<Node>,
}

impl NodeAdmin {
    pub(super) fn new(cluster: Cluster, health: Arc<NodeHealth>, node: Arc<Node>) -> Self {
        Self { cluster, health, node }
    }
}

impl Handler for NodeAdmin {
    fn status(&self) -> StatusReport {
        let status = self.cluster.status();
        let members = self.cluster.members();
        let name = |id: u64| {
            let known = members.iter().find(|member| member.id == id);
            known.map_or_else(|| format!("{id:016x}"), |member| member.name.clone())
        };
        let names = |ids: &[u64]| ids.iter().copied().map(name).collect();
        StatusReport {
            node: status.node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_id: status.cluster_id,
            ready: status.ready && !self.health.draining(),
            waiting_for: status.waiting_for.map(|(what, since_ms)| Waiting {
                what,
                since_ms,
                for_ms: wall_ms().saturating_sub(since_ms),
            }),
            members: members.iter().map(|member| self.member(member)).collect(),
            groups: status
                .groups
                .iter()
                .map(|group| GroupReport {
                    name: group.name.clone(),
                    leader: group.leader.map(name),
                    term: group.term,
                    voters: names(&group.voters),
                    learners: names(&group.learners),
                    last_log_index: group.last_log_index,
                    applied_index: group.applied_index,
                    lag: group.lag,
                })
                .collect(),
            warnings: Vec::new(),
        }
    }

    fn drain(&self, progress: Progress) -> BoxFuture<'_, Outcome> {
        self.drained(progress).boxed()
    }

    fn undrain(&self) -> Outcome {
        self.cluster.set_draining(false);
        Ok("takes clients again; `cluster rebalance` has the other nodes part with what they have beyond their share".to_owned())
    }

    fn rebalance(&self) -> Outcome {
        let before = self.clients_by_name();
        self.cluster.rebalance();
        Ok(format!("nodes with more clients than their share part with the excess; clients now: {before}"))
    }

    fn leave(&self, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async { Err("not there yet".to_owned()) }.boxed()
    }

    fn forget(&self, _node: String, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async { Err("not there yet".to_owned()) }.boxed()
    }

    fn transfer_leadership(&self, _to: Option<String>, _group: Option<String>, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async { Err("not there yet".to_owned()) }.boxed()
    }
}

/// Between looks at how many clients are left.
const LOOK: Duration = Duration::from_millis(250);

impl NodeAdmin {
    async fn drained(&self, progress: Progress) -> Outcome {
        if !self.cluster.is_draining() {
            self.cluster.set_draining(true);
            tokio::spawn(parting::drain(Arc::clone(&self.node)));
        }
        let mut handed_over = std::pin::pin!(self.cluster.hand_over());
        let mut leads = true;
        let mut told = None;
        loop {
            let clients = self.node.connections.load(Ordering::Relaxed);
            if clients == 0 && !leads {
                return Ok("drained: it has no clients and leads nothing that another could lead; `cluster undrain` ends that"
                    .to_owned());
            }
            if !self.cluster.is_draining() {
                return Err("the drain was ended by `cluster undrain`".to_owned());
            }
            progress.tell_change(&mut told, format!("{clients} clients left, leads {} groups", self.cluster.led().len()));
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = &mut handed_over, if leads => leads = false,
            }
        }
    }

    fn clients_by_name(&self) -> String {
        let members = self.cluster.members();
        let name = |id| members.iter().find(|member| member.id == id).map_or("?", |member| member.name.as_str());
        let of: Vec<String> =
            self.cluster.clients_by_node().into_iter().map(|(id, clients)| format!("{} {clients}", name(id))).collect();
        of.join(", ")
    }

    fn member(&self, member: &MemberStatus) -> MemberReport {
        let own = member.id == self.cluster.node();
        MemberReport {
            name: member.name.clone(),
            address: member.address.clone(),
            incarnation: member.incarnation,
            alive: member.alive,
            connected: member.connected,
            draining: member.draining,
            version: own.then(|| env!("CARGO_PKG_VERSION").to_owned()),
            protocol: None,
        }
    }
}
