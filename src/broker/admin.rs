//! What the commands of the admin socket do.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::actor::clock::wall_ms;
use crate::admin::report::{GroupReport, MemberReport, StatusReport, Waiting};
use crate::admin::{Handler, Outcome, Progress};
use crate::cluster::{Cluster, MemberStatus};
use crate::edge::HealthSource;

use super::health::NodeHealth;

pub(super) struct NodeAdmin {
    cluster: Cluster,
    health: Arc<NodeHealth>,
}

impl NodeAdmin {
    pub(super) fn new(cluster: Cluster, health: Arc<NodeHealth>) -> Self {
        Self { cluster, health }
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

impl NodeAdmin {
    fn member(&self, member: &MemberStatus) -> MemberReport {
        let own = member.id == self.cluster.node();
        MemberReport {
            name: member.name.clone(),
            address: member.address.clone(),
            incarnation: member.incarnation,
            alive: member.alive,
            connected: member.connected,
            draining: own && self.health.draining(),
            version: own.then(|| env!("CARGO_PKG_VERSION").to_owned()),
            protocol: None,
        }
    }
}
