//! What the commands of the admin socket do.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::actor::Node;
use crate::actor::clock::wall_ms;
use crate::actor::parting::{self, Whom as Parting};
use crate::admin::report::{GroupReport, MemberReport, StatusReport, Waiting};
use crate::admin::{Handler, Outcome, Progress};
use crate::auth::bans::Whom;
use crate::auth::unstable::Cause;
use crate::cluster::{Cluster, Loss, MemberStatus, RemoveError, node_id};
use crate::replica::ShardId;

use super::POLL;
use super::health::NodeHealth;

/// Clients of a node that leaves get this long.
const DRAIN: Duration = Duration::from_secs(5);

/// What a list shows at most: an answer has a bound.
const BANS_LISTED_MAX: usize = 1_000;
const QUEUES_LISTED_MAX: usize = 1_000;

pub(super) struct NodeAdmin {
    node: Arc<Node>,
    cluster: Cluster,
    health: Arc<NodeHealth>,
    /// One at a time.
    leaving: tokio::sync::Mutex<()>,
    left: watch::Sender<bool>,
}

impl NodeAdmin {
    /// `left` is told when the node is no member any more.
    pub(super) fn new(node: Arc<Node>, cluster: Cluster, health: Arc<NodeHealth>, left: watch::Sender<bool>) -> Self {
        Self { node, cluster, health, leaving: tokio::sync::Mutex::default(), left }
    }

    /// As for a restart; what takes longer is closed with the node.
    async fn close_clients(&self) {
        self.health.set_draining();
        self.health.stop_listeners();
        let until = Instant::now() + DRAIN;
        let parting =
            tokio::time::timeout(DRAIN, parting::part_with(&self.node, Parting::All, until.checked_sub(DRAIN / 2), || true));
        if parting.await.is_err() {
            tracing::warn!("some clients did not leave in time");
        }
        while self.node.connections.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            tokio::time::sleep(POLL).await;
        }
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
        let names = |ids: &[u64]| {
            let mut names: Vec<String> = ids.iter().copied().map(name).collect();
            names.sort_unstable();
            names
        };
        StatusReport {
            node: status.node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_id: status.cluster_id,
            ready: status.ready && !self.health.is_draining(),
            waiting_for: status.waiting_for.map(|(what, since_ms)| Waiting {
                what,
                since_ms,
                for_ms: wall_ms().saturating_sub(since_ms),
            }),
            members: {
                let mut reports: Vec<MemberReport> = members.iter().map(|member| self.member(member)).collect();
                reports.sort_unstable_by(|a, b| a.name.cmp(&b.name));
                reports
            },
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
                    changing: group.changing,
                })
                .collect(),
            warnings: self.cluster.warnings(),
        }
    }

    fn drain(&self, progress: Progress) -> BoxFuture<'_, Outcome> {
        self.drained(progress).boxed()
    }

    fn undrain(&self) -> Outcome {
        self.cluster.set_draining(false);
        self.health.end_drain();
        Ok("takes clients again; `cluster rebalance` has the other nodes part with what they have beyond their share".to_owned())
    }

    fn rebalance(&self) -> Outcome {
        let before = self.clients_by_name();
        self.cluster.rebalance();
        Ok(format!("nodes with more clients than their share part with the excess; clients now: {before}"))
    }

    fn leave(&self, progress: Progress) -> BoxFuture<'_, Outcome> {
        async move {
            let told = progress.changes();
            let Ok(_alone) = self.leaving.try_lock() else { return Err("this node is on its way out already".to_owned()) };
            // Before anything is changed.
            self.cluster.check_leave().await.map_err(|error| error.to_string())?;
            told("closes listeners and clients".to_owned());
            self.close_clients().await;
            self.cluster.leave(&told).await.map_err(|error| error.to_string())?;
            self.left.send_replace(true);
            let name = self.cluster.status().node_name;
            let left = self.cluster.members_left();
            Ok(format!(
                "{name} left the cluster and ends now; {left}. Its data directory is of no use any more: to have it join anew, start it with an \
                 empty one."
            ))
        }
        .boxed()
    }

    fn forget(&self, node: String, progress: Progress) -> BoxFuture<'_, Outcome> {
        async move {
            match self.cluster.remove_member(node_id(&node), progress.changes()).await {
                Ok(()) => Ok(format!("{node} is no member any more; {}", self.cluster.members_left())),
                // A script must see that a name is wrong; whoever asks twice sees what there is.
                Err(RemoveError::NotAMember) => {
                    let mut known: Vec<String> = self.cluster.members().into_iter().map(|member| member.name).collect();
                    known.sort_unstable();
                    Err(format!("{} is not a member; there are: {}", node.escape_debug(), known.join(", ")))
                }
                Err(error) => Err(format!("{node} is not forgotten: {error}")),
            }
        }
        .boxed()
    }

    fn transfer_leadership(&self, to: Option<String>, group: Option<String>, progress: Progress) -> BoxFuture<'_, Outcome> {
        async move {
            let told = progress.changes();
            self.cluster.transfer_leadership(to.as_deref(), group.as_deref(), told).await
        }
        .boxed()
    }

    fn bans(&self) -> Outcome {
        let bans = self.node.guard.bans();
        if bans.is_empty() {
            return Ok("nobody is banned on this node".to_owned());
        }
        let now_ms = wall_ms();
        let mut text = String::new();
        for (whom, ban) in bans.iter().take(BANS_LISTED_MAX) {
            let (kind, name) = match whom {
                Whom::ClientId(id) => ("client id", id),
                Whom::Address(address) => ("address", address),
            };
            let why = match ban.cause {
                Cause::Flapping => "connected too often",
                Cause::Fight => "was fought over",
            };
            let left_s = ban.until_ms.saturating_sub(now_ms).div_ceil(1000);
            // Writing to a string cannot fail.
            _ = writeln!(text, "{kind} {}  {why}, {left_s} s left", name.escape_debug());
        }
        if bans.len() > BANS_LISTED_MAX {
            _ = writeln!(text, "and {} more", bans.len() - BANS_LISTED_MAX);
        }
        Ok(text.trim_end().to_owned())
    }

    fn pardon(&self, client_id: Option<String>, address: Option<String>) -> Outcome {
        let named = [client_id.map(|id| Whom::ClientId(id.into())), address.map(|address| Whom::Address(address.into()))];
        let mut found = false;
        for whom in named.iter().flatten() {
            found |= self.node.guard.pardon(whom);
        }
        match found {
            true => Ok("this node lets it in again; other nodes keep bans of their own".to_owned()),
            false => Err("this node has no such ban; `troupemq ban list` shows those there are".to_owned()),
        }
    }

    fn queues(&self, top: usize) -> Outcome {
        let mut queues: Vec<(usize, u32, String)> = Vec::new();
        let top = top.clamp(1, QUEUES_LISTED_MAX);
        let fullest = |queues: &mut Vec<(usize, u32, String)>| {
            let share =
                |(len, limit, _): &(usize, u32, String)| (*len as u128 * u128::from(u32::MAX)) / u128::from((*limit).max(1));
            queues.sort_by(|a, b| share(b).cmp(&share(a)).then_with(|| b.0.cmp(&a.0)).then_with(|| a.2.cmp(&b.2)));
            queues.truncate(top);
        };
        for shard in (0..self.cluster.shards()).map(ShardId) {
            let of_shard = self.cluster.read(shard, |state| {
                let mut queues = Vec::new();
                for session in state.sessions().filter(|session| !session.queue.entries.is_empty()) {
                    queues.push((session.queue.entries.len(), session.queue_head.limit, session.client.to_string()));
                    if queues.len() >= top * 4 {
                        fullest(&mut queues);
                    }
                }
                for (group, queue) in state.groups().filter(|(_, group)| !group.queue.entries.is_empty()) {
                    queues.push((queue.queue.entries.len(), queue.queue_head.limit, group.full().to_string()));
                    if queues.len() >= top * 4 {
                        fullest(&mut queues);
                    }
                }
                queues
            });
            queues.extend(of_shard.unwrap_or_default());
            fullest(&mut queues);
        }
        if queues.is_empty() {
            return Ok("all queues are empty".to_owned());
        }
        let line = |(len, limit, owner): &(usize, u32, String)| {
            let percent = *len as u128 * 100 / u128::from((*limit).max(1));
            format!("{percent:>4} %  {len} of {limit}  {}", owner.escape_debug())
        };
        Ok(queues.iter().map(line).collect::<Vec<_>>().join("\n"))
    }

    fn accept_loss(&self) -> Outcome {
        told_of_loss(&self.cluster.accept_loss(), || self.cluster.in_reach())
    }
}

/// What an operator is told of data given up, and what to do where that alone is no way on.
fn told_of_loss(loss: &Loss, in_reach: impl FnOnce() -> String) -> Outcome {
    let groups = |names: &[String]| counted(names.len(), "group", &names.join(", "));
    let Loss { accepted, led, waiting, hopeless } = loss;
    if !accepted.is_empty() {
        let mut said = format!("this node votes from now on as it is, in {}", groups(accepted));
        if !hopeless.is_empty() {
            said += &format!("; who votes in {} nobody in reach can tell", groups(hopeless));
        }
        return Ok(said);
    }
    if !hopeless.is_empty() {
        return Err(format!(
            "nothing was done: neither this node nor one in reach knows who votes in {}, so nothing can go on from here. (A node that started a \
             moment ago may not have heard yet: ask again.) Start a node that still has its data. What `storage recover` set aside counts as such: \
             stop the node and move all in the folder set-aside-.. of its data directory back. Where no node has any, stop all, give each \
             `troupemq storage recover --lose-all --yes`, and start them together: they found a new, empty cluster.",
            groups(hopeless)
        ));
    }
    if !led.is_empty() {
        return Err(format!("refused: {} with a leader in reach, which fills this node", groups(led)));
    }
    if !waiting.is_empty() {
        return Err(format!(
            "there is nothing to give up here: this node has its votes in all groups; no leader in reach of {}: {}. A node whose `status` says \
             that it came without data may give up what only lost disks held",
            groups(waiting),
            in_reach()
        ));
    }
    Ok("nothing to do: this node has its votes in all groups".to_owned())
}

/// `group meta`, or `groups meta, 0`: one thing, or several.
fn counted(count: usize, what: &str, text: &str) -> String {
    format!("{what}{} {text}", if count == 1 { "" } else { "s" })
}

/// Between looks at how many clients are left.
const LOOK: Duration = Duration::from_millis(250);

/// A drain waits so long for a majority that went away.
const ALONE_MAX: Duration = Duration::from_secs(10);

const ALONE: &str = "this node reaches no majority of the members, so nobody can take over what it leads: start the other nodes.";

/// Whether a drain can come to its end, and leaves somebody to serve clients. A cluster of one node may drain: nobody expects it to serve
/// meanwhile.
fn check_drain(hears_majority: bool, members: &[MemberStatus], own: u64) -> Result<(), String> {
    if !hears_majority {
        return Err(format!("{ALONE} Nothing was done."));
    }
    let mut others = members.iter().filter(|member| member.id != own).peekable();
    if others.peek().is_some() && !others.any(|member| member.alive && member.connected && !member.draining) {
        return Err("no node would take clients: all others drain or are away; `cluster undrain` one of them, or start it. Nothing was done."
            .to_owned());
    }
    Ok(())
}

impl NodeAdmin {
    async fn drained(&self, progress: Progress) -> Outcome {
        if !self.cluster.is_draining() {
            check_drain(self.cluster.hears_majority(), &self.cluster.members(), self.cluster.node())?;
            self.cluster.set_draining(true);
            self.health.begin_drain();
            tokio::spawn(parting::drain(Arc::clone(&self.node)));
        }
        let mut handed_over = std::pin::pin!(self.cluster.hand_over());
        let mut leads = true;
        let told = progress.changes();
        let mut heard = Instant::now();
        loop {
            // Not every connection: those that try again are refused again and again.
            let clients = self.node.metrics.hivemq.connections_current.get();
            if clients == 0 && !leads {
                return Ok("drained: it has no clients and leads nothing that another could lead; `cluster undrain` ends that"
                    .to_owned());
            }
            if !self.cluster.is_draining() {
                return Err("the drain was ended by `cluster undrain`".to_owned());
            }
            if self.cluster.hears_majority() {
                heard = Instant::now();
            } else if heard.elapsed() >= ALONE_MAX {
                return Err(format!("{ALONE} It goes on draining; `cluster undrain` ends that."));
            }
            told(format!("clients left: {clients}, groups led: {}", self.cluster.led().len()));
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
        MemberReport {
            name: member.name.clone(),
            address: member.address.clone(),
            incarnation: member.incarnation,
            alive: member.alive,
            connected: member.connected,
            draining: member.draining,
            version: member.version.as_ref().map(|(program, _)| program.clone()),
            protocol: member.version.as_ref().map(|(_, protocol)| *protocol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_data_is_told_what_comes_of_it_or_what_to_do() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let loss = |accepted: &[&str], led: &[&str], waiting: &[&str], hopeless: &[&str]| Loss {
            accepted: names(accepted),
            led: names(led),
            waiting: names(waiting),
            hopeless: names(hopeless),
        };
        for (loss, done, expected) in [
            (loss(&[], &[], &[], &[]), true, "nothing to do"),
            (loss(&["meta", "0"], &["1"], &["2"], &[]), true, "as it is, in groups meta, 0"),
            (loss(&["meta"], &[], &[], &["0"]), true, "who votes in group 0 nobody"),
            (loss(&[], &["1"], &[], &["meta"]), false, "--lose-all"),
            (loss(&[], &["1"], &["2"], &[]), false, "refused: group 1"),
            (loss(&[], &[], &["2"], &[]), false, "of group 2: 1 of 3"),
        ] {
            let said = told_of_loss(&loss, || "1 of 3".to_owned());
            assert_eq!(said.is_ok(), done, "{loss:?}: {said:?}");
            let (Ok(text) | Err(text)) = said;
            assert!(text.contains(expected), "{loss:?}: {text}");
        }
    }

    #[test]
    fn a_drain_that_cannot_end_or_leaves_nobody_to_serve_is_refused() {
        let member = |id, draining| MemberStatus { id, alive: true, connected: true, draining, ..MemberStatus::default() };
        let away = |id| MemberStatus { id, alive: false, ..MemberStatus::default() };
        for (hears, members, expected) in [
            (true, vec![member(1, false)], ""),
            (true, vec![member(1, false), member(2, true), member(3, false)], ""),
            (true, vec![member(1, false), member(2, true), member(3, true)], "no node would take clients"),
            (true, vec![member(1, false), member(2, true), away(3)], "no node would take clients"),
            (false, vec![member(1, false), away(2), away(3)], "no majority"),
        ] {
            let said = check_drain(hears, &members, 1).err().unwrap_or_default();
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{members:?}: {said}");
        }
    }
}
