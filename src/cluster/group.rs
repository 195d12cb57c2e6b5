//! One Raft group on this node: its replica, and who leads it as far as this node can tell.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use openraft::raft::TransferLeaderRequest;
use openraft::storage::RaftLogStorage;
use openraft::type_config::alias::CommittedLeaderIdOf;
use openraft::vote::RaftLeaderId;
use openraft::{Config, Instant, OptionalSend, RaftMetrics, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::replica::{NodeId, ShardId};
use crate::storage::{LogStore, StateStore};

use super::clock::monotonic_ms;
use super::emptied::{Word, Words};
use super::failover::Failovers;
use super::handle::{ClusterError, GroupStatus};
use super::placement::preferred_leader;
use super::raft::log_store::RaftLog;
use super::raft::network::Network;
use super::raft::rpc::{Request, Response, execute};
use super::raft::state_machine::{AppliedState, Machine, StateMachine};
use super::raft::transfers::Transfers;
use super::raft::type_config::LogId;
use super::raft::{Raft, TypeConfig};
use super::settings::ClusterSettings;

/// The meta group; shard `k` is group `1 + k`.
pub const META_GROUP: u16 = 0;
/// Building a snapshot is flushing the state, so it is done often and the log stays short.
const SNAPSHOT_ENTRIES: u64 = 5_000;
/// Entries kept behind a snapshot, for followers that were away for a moment.
const KEPT_ENTRIES: u64 = 5_000;
/// A snapshot is due after so many bytes of log as well, and the log behind the one before it is purged then: about twice as much is kept.
pub const SNAPSHOT_LOG_BYTES: u64 = 32 * 1024 * 1024;
/// Between looks at what no metric tells: whether the leader is still heard.
const LOOK: Duration = Duration::from_millis(100);
/// Between looks at how far the log is, while it moves: each entry moves it several times.
const LOOK_AT_PROGRESS: Duration = Duration::from_millis(20);
/// A snapshot and the removal of entries are waited for so long, each.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// Who leads a group, as this node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeaderView {
    pub leader: Option<NodeId>,
    pub term: u64,
    /// This node leads, has applied everything its predecessors committed, and no other can lead yet.
    pub leads: bool,
    /// An entry of the leader's own term is applied here, and so everything committed before it led.
    pub caught_up: bool,
    /// The leader was heard lately; or this node leads and was heard by a majority lately.
    pub reachable: bool,
    /// When it was last reachable, monotonic; 0 where it never was.
    pub reachable_ms: u64,
    /// When the leader was heard last, or a majority by this node that leads; monotonic, for `failover`.
    pub heard_ms: u64,
}

impl LeaderView {
    /// For how long there has been no leader in reach.
    pub fn leaderless_ms(&self, now_ms: u64) -> u64 {
        if self.reachable { 0 } else { now_ms.saturating_sub(self.reachable_ms) }
    }

    /// The leader, if it is in reach.
    pub fn reachable_leader(&self) -> Option<NodeId> {
        self.leader.filter(|_| self.reachable)
    }
}

/// A group's replica.
pub struct Group {
    pub index: u16,
    node: NodeId,
    pub raft: Raft,
    log: RaftLog,
    applied: Arc<AppliedState>,
    transfers: Transfers,
    view: watch::Sender<LeaderView>,
    heard: Mutex<Heard>,
    /// Rung when another leader than before is heard.
    heard_bell: Notify,
    /// Whether this replica may vote: not while an emptied data directory is being filled again.
    may_vote: Arc<AtomicBool>,
    /// The index from which on a replica that came without data counts, by its leader's word; 0 = not told yet.
    counts_from: AtomicU64,
    /// What such a replica was told of terms.
    words: Mutex<Words>,
    /// A change of membership is under way.
    changing: Arc<AtomicBool>,
    /// For so long after a majority answered no other can lead.
    lease_ms: u64,
    failovers: Mutex<Failovers>,
}

/// The leader whose append was taken last: the metrics may still tell of the one before.
#[derive(Default)]
struct Heard {
    leader: Option<NodeId>,
    term: u64,
    at_ms: u64,
}

/// The last entry that is applied here and, as far as this node knows, stored by everyone it replicates to: nobody will read it again soon.
fn read_by_all(metrics: &RaftMetrics<TypeConfig>) -> u64 {
    let index = |id: &Option<LogId>| id.map_or(0, |id| id.index());
    let followers = metrics.replication.iter().flat_map(|all| all.values().map(index));
    followers.chain([index(&metrics.last_applied)]).min().unwrap_or(0)
}

/// Held while a change of membership is under way.
pub struct Change {
    changing: Arc<AtomicBool>,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.changing.store(false, Ordering::Release);
    }
}

impl Group {
    /// Starts the replica; `machine` was loaded from `state`.
    pub async fn start(
        index: u16,
        network: Network,
        config: Arc<Config>,
        log: Arc<dyn LogStore>,
        state: Arc<dyn StateStore>,
        machine: Arc<dyn Machine>,
    ) -> Result<Arc<Self>, ClusterError> {
        let node = network.node;
        let may_vote = Arc::clone(&network.may_vote);
        let lease_ms = config.election_timeout_max;
        let transfers = Transfers::new(index, Arc::clone(&state));
        let log = RaftLog::new(log);
        let serving = Arc::new(AtomicBool::new(false));
        let machine = StateMachine::new(machine, state, Arc::clone(&serving))
            .await
            .and_then(|machine| machine.check_meets(&log).map(|()| machine))
            .map_err(|error| ClusterError::Raft(format!("group {}: {error}", group_name(index))))?;
        let applied = machine.applied();
        let raft = Raft::build(node, config, network, log.clone(), machine)
            .await
            .map_err(|error| ClusterError::Raft(format!("{}: {error}", group_name(index))))?;
        serving.store(true, Ordering::Release);
        raft.run();
        let view = LeaderView { reachable_ms: monotonic_ms(), ..LeaderView::default() };
        Ok(Arc::new(Self {
            index,
            node,
            raft,
            log,
            applied,
            transfers,
            view: watch::Sender::new(view),
            heard: Mutex::default(),
            heard_bell: Notify::new(),
            may_vote,
            counts_from: AtomicU64::new(0),
            words: Mutex::default(),
            changing: Arc::default(),
            lease_ms,
            failovers: Mutex::default(),
        }))
    }

    /// As operators see it.
    pub fn name(&self) -> String {
        group_name(self.index)
    }

    /// `None` for meta.
    pub fn shard(&self) -> Option<ShardId> {
        self.index.checked_sub(1).map(ShardId)
    }

    pub fn view(&self) -> LeaderView {
        *self.view.borrow()
    }

    pub fn watch(&self) -> watch::Receiver<LeaderView> {
        self.view.subscribe()
    }

    /// A replica without a vote neither grants one nor stands for election: there it would have its own. (openraft's switch for elections is not
    /// used for it: others turn it for reasons of theirs.)
    pub fn set_may_vote(&self, may: bool) {
        self.may_vote.store(may, Ordering::Relaxed);
    }

    pub fn may_vote(&self) -> bool {
        self.may_vote.load(Ordering::Relaxed)
    }

    /// Whether this replica stands for election. One that leads goes on until it hands over.
    pub fn set_may_lead(&self, may: bool) {
        self.raft.runtime_config().elect(may);
    }

    pub fn set_counts_from(&self, index: u64) {
        self.counts_from.store(index, Ordering::Relaxed);
    }

    pub fn counts_from(&self) -> Option<u64> {
        Some(self.counts_from.load(Ordering::Relaxed)).filter(|index| *index > 0)
    }

    /// What others told this replica, which came without data.
    pub fn words(&self) -> parking_lot::MutexGuard<'_, Words> {
        self.words.lock()
    }

    /// What this replica can tell of its term; `None` where it knows none, or has forgotten one.
    pub fn word(&self) -> Option<Word> {
        if !self.may_vote() {
            return None;
        }
        let metrics = self.metrics();
        let sets = metrics.membership_config.membership().get_joint_config();
        let voters: Vec<Vec<NodeId>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
        (!voters.is_empty()).then_some(Word { term: metrics.current_term, voters })
    }

    /// Why the replica has stopped for good: storage failed.
    pub fn failure(&self) -> Option<String> {
        self.metrics().running_state.err().map(|error| error.to_string())
    }

    /// Index of the entry that the replica's membership comes from, where all up to it is applied here.
    pub fn settled_membership(&self) -> Option<u64> {
        let metrics = self.metrics();
        let index = (*metrics.membership_config.log_id()).as_ref()?.index();
        metrics.last_applied.is_some_and(|applied| applied.index() >= index).then_some(index)
    }

    /// Whether two sets of voters decide: a change of membership has had its first step only.
    pub fn is_half_changed(&self) -> bool {
        self.metrics().membership_config.membership().get_joint_config().len() > 1
    }

    /// Of the last entry in the log, committed or not.
    pub fn last_index(&self) -> u64 {
        self.metrics().last_log_index.unwrap_or(0)
    }

    pub fn applied_index(&self) -> u64 {
        self.metrics().last_applied.map_or(0, |id| id.index())
    }

    /// `None` while another change of membership is under way.
    pub fn begin_change(&self) -> Option<Change> {
        let begun = !self.changing.swap(true, Ordering::AcqRel);
        begun.then(|| Change { changing: Arc::clone(&self.changing) })
    }

    /// Committed entries this replica has not applied, as far as it knows.
    pub fn lag(&self) -> u64 {
        let metrics = self.metrics();
        let committed = metrics.cluster_committed.map_or(0, |id| id.index());
        committed.saturating_sub(metrics.last_applied.map_or(0, |id| id.index()))
    }

    /// Leads as far as openraft is concerned, whether or not it could commit anything.
    pub fn is_leader(&self) -> bool {
        self.metrics().state.is_leader()
    }

    /// The connected voter that is the least behind, if this node leads; of several the one that should lead.
    pub fn successor(&self, connected: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let metrics = self.metrics();
        if !metrics.state.is_leader() {
            return None;
        }
        let replication = metrics.replication.as_ref()?;
        let voters: BTreeSet<NodeId> =
            metrics.membership_config.voter_ids().filter(|&voter| voter != self.node && connected(voter)).collect();
        let preferred = preferred_leader(self.index, &voters);
        voters.into_iter().max_by_key(|voter| (replication.get(voter).copied().flatten(), Some(*voter) == preferred))
    }

    /// Writes what was applied to the state, without flushing it. Blocks on the disk.
    pub fn write_state(&self) -> std::io::Result<()> {
        self.applied.write().map(|_| ())
    }

    /// How often its leader changed, and how long it had none: read while nothing else is.
    pub fn failovers(&self) -> parking_lot::MutexGuard<'_, Failovers> {
        self.failovers.lock()
    }

    /// Bytes appended to the log since the start.
    pub fn appended_bytes(&self) -> u64 {
        self.log.appended_bytes()
    }

    pub fn metrics(&self) -> RaftMetrics<TypeConfig> {
        use openraft::async_runtime::watch::WatchReceiver;
        self.raft.metrics().borrow_watched().clone()
    }

    /// Executes a peer's call.
    pub async fn execute(&self, from: NodeId, request: Request) -> Response {
        if request.is_for_election() && !self.may_vote() {
            return Response::Refused("this replica lost its data and is being filled again".to_owned());
        }
        let chunk = matches!(request, Request::SnapshotChunk { .. });
        let term = match &request {
            Request::Append(append) => Some(append.vote.leader_id().term),
            Request::SnapshotEnd { vote, .. } => Some(vote.leader_id().term),
            _ => None,
        };
        // A chunk of a snapshot says no term; its end does.
        if !self.may_vote() && (chunk || term.is_some()) && !self.words().may_follow(self.node, from, term.unwrap_or(u64::MAX)) {
            return Response::Refused(
                "this replica lost its data and does not know yet whether that leader is deposed".to_owned(),
            );
        }
        let response = execute(&self.raft, &self.transfers, from, request).await;
        if !matches!(response, Response::Refused(_)) {
            let mut heard = self.heard.lock();
            if let Some(term) = term.filter(|term| *term >= heard.term) {
                let is_new = heard.leader != Some(from) || heard.term != term;
                *heard = Heard { leader: Some(from), term, at_ms: monotonic_ms() };
                if is_new {
                    self.heard_bell.notify_one();
                }
            } else if chunk && heard.leader == Some(from) {
                heard.at_ms = monotonic_ms();
            }
        }
        response
    }

    /// Keeps the view of the leader up to date and tells each change of `leads`, until the group or its node stops.
    pub async fn watch_leader(self: Arc<Self>, cancel: CancellationToken, changed: impl Fn(bool) + Send + 'static) {
        use openraft::async_runtime::watch::WatchReceiver;
        let mut metrics = self.raft.metrics();
        let mut leadership = self.raft.server_metrics();
        let mut led = false;
        let mut seen = None;
        loop {
            self.transfers.forget_idle();
            let (view, read, progress) = {
                let metrics = metrics.borrow_watched();
                (self.look(&metrics), read_by_all(&metrics), (metrics.last_log_index, metrics.last_applied))
            };
            let moves = seen.replace(progress) != Some(progress);
            self.log.release(read);
            let mut is_settled = view.caught_up && view.reachable;
            self.view.send_if_modified(|known| {
                // The time alone wakes nobody.
                let timeless = |view: LeaderView| LeaderView { reachable_ms: 0, heard_ms: 0, ..view };
                let modified = timeless(*known) != timeless(view);
                is_settled &= !modified;
                self.failovers.lock().step(known, &view, monotonic_ms());
                *known = view;
                modified
            });
            if view.leads != led {
                led = view.leads;
                changed(led);
            }
            // openraft's metrics change at each of its ticks (25 a second with the default heartbeat), also where nothing happens.
            let patience = if is_settled && moves { LOOK_AT_PROGRESS } else { LOOK };
            let changed_at_all = async { if is_settled { leadership.changed().await } else { metrics.changed().await } };
            let is_over = tokio::select! {
                biased;
                looked = timeout(patience, changed_at_all) => matches!(looked, Ok(Err(_))),
                () = self.heard_bell.notified() => false,
                // What holds the group keeps it running.
                () = cancel.cancelled() => true,
            };
            if is_over {
                self.view.send_replace(LeaderView { leader: None, leads: false, caught_up: false, reachable: false, ..view });
                if led {
                    changed(false);
                }
                return;
            }
        }
    }

    fn look(&self, metrics: &RaftMetrics<TypeConfig>) -> LeaderView {
        let own_term: CommittedLeaderIdOf<TypeConfig> = metrics.vote.leader_id().to_committed();
        let caught_up = metrics.last_applied.is_some_and(|applied| *applied.committed_leader_id() == own_term);
        let leading = metrics.state.is_leader() && metrics.current_leader == Some(self.node);
        let now_ms = monotonic_ms();
        let (reachable, leased, heard_ms) = match metrics.current_leader {
            Some(_) if leading => {
                let acked_ms = self.acked_ms_ago(metrics);
                let heard_ms = now_ms.saturating_sub(acked_ms);
                (acked_ms < self.lease_ms.saturating_mul(2), acked_ms < self.lease_ms, heard_ms)
            }
            Some(leader) if leader != self.node => {
                let heard = self.heard.lock();
                let of_it = heard.leader == Some(leader) && heard.term == metrics.current_term;
                (of_it && now_ms.saturating_sub(heard.at_ms) < self.lease_ms * 2, false, heard.at_ms)
            }
            _ => (false, false, 0),
        };
        LeaderView {
            leader: metrics.current_leader,
            term: metrics.current_term,
            leads: leased && caught_up,
            caught_up,
            reachable,
            reachable_ms: if reachable { now_ms } else { self.view().reachable_ms },
            heard_ms: if reachable { heard_ms } else { self.view().heard_ms },
        }
    }

    /// How long ago the youngest append was sent that a majority answered; 0 for the only voter.
    fn acked_ms_ago(&self, metrics: &RaftMetrics<TypeConfig>) -> u64 {
        if metrics.membership_config.voter_ids().all(|voter| voter == self.node) {
            return 0;
        }
        let ago = metrics.last_quorum_acked.map(|acked| acked.elapsed());
        ago.map_or(u64::MAX, |ago| u64::try_from(ago.as_millis()).unwrap_or(u64::MAX))
    }

    /// Until when nobody else can lead, if this node does, monotonic; 0 if not.
    pub fn led_until_ms(&self) -> u64 {
        let metrics = self.metrics();
        if !metrics.state.is_leader() || metrics.current_leader != Some(self.node) {
            return 0;
        }
        let ago = self.acked_ms_ago(&metrics);
        monotonic_ms().saturating_add(self.lease_ms).saturating_sub(ago)
    }

    /// Removes the log up to this entry where all who replicate the group have it, as far as this node knows (one that does not lead knows of
    /// itself only). True when it is removed from the disk; else the caller comes again with the same entry: a snapshot must cover it first, and
    /// an entry that is being sent stays until it has been.
    pub async fn cut_log(&self, through: u64) -> bool {
        let metrics = self.metrics();
        let has_it = |matched: &Option<LogId>| matched.is_some_and(|matched| matched.index() >= through);
        if has_it(&metrics.purged) {
            return true;
        }
        if !has_it(&metrics.last_applied) || metrics.replication.as_ref().is_some_and(|all| !all.values().all(has_it)) {
            return false;
        }
        let cut = async {
            let trigger = self.raft.trigger();
            if !has_it(&metrics.snapshot) {
                trigger.snapshot().await.map_err(|error| error.to_string())?;
                self.wait_for(|metrics| has_it(&metrics.snapshot)).await?;
            }
            trigger.purge_log(through).await.map_err(|error| error.to_string())?;
            // The request returns before anything is removed, and what is compacted before that gives nothing back.
            self.wait_for(|metrics| has_it(&metrics.purged)).await
        };
        let cut: Result<(), String> = cut.await;
        if let Err(error) = &cut {
            tracing::debug!(group = self.name(), through, error, "the log is not cut yet");
        }
        cut.is_ok()
    }

    async fn wait_for(&self, done: impl Fn(&RaftMetrics<TypeConfig>) -> bool + OptionalSend) -> Result<(), String> {
        let waited = self.raft.wait(Some(CUT_WAIT)).metrics(done, "the log is cut").await;
        waited.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Term and index of the last entry this replica holds; `None` where it holds none.
    pub async fn last_entry(&self) -> Result<Option<(u64, u64)>, std::io::Error> {
        let state = self.log.clone().get_log_state().await?;
        Ok(state.last_log_id.map(|last| (last.committed_leader_id().term, last.index())))
    }

    /// Drops the lease of a leader whose process is gone, for the sake of its successor, which stands for election if that is this node.
    pub async fn succeed(&self, gone: NodeId, successor: NodeId) {
        let vote = self.metrics().vote;
        let outcome = if vote.is_committed() && *vote.leader_id().node_id() == gone {
            let request = TransferLeaderRequest::new(vote, successor, None);
            self.raft.handle_transfer_leader(request).await.map_err(|error| error.to_string()).map(|taken| format!("{taken:?}"))
        } else if successor == self.node {
            // Another has stood before and was not elected; the lease was dropped for it.
            self.raft.trigger().elect(false).await.map_err(|error| error.to_string()).map(|()| "again".to_owned())
        } else {
            return;
        };
        tracing::debug!(group = self.name(), gone, successor, ?outcome, "succession");
    }

    pub fn status(&self) -> GroupStatus {
        let metrics = self.metrics();
        GroupStatus {
            name: group_name(self.index),
            leader: self.view().reachable_leader(),
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            applied_index: metrics.last_applied.map_or(0, |id| id.index()),
            snapshot_index: metrics.snapshot.map_or(0, |id| id.index()),
            voters: metrics.membership_config.voter_ids().collect(),
            learners: metrics.membership_config.membership().learner_ids().collect(),
            lag: self.lag(),
            changing: self.is_half_changed() || self.settled_membership().is_none(),
            leader_changes: self.failovers.lock().changes(),
        }
    }
}

/// `meta`, or the shard's number.
pub fn group_name(index: u16) -> String {
    index.checked_sub(1).map_or_else(|| "meta".to_owned(), |shard| shard.to_string())
}

/// openraft's configuration for all groups of a node.
pub fn raft_config(settings: &ClusterSettings) -> Result<Arc<Config>, ClusterError> {
    #[cfg(any(test, feature = "sim"))]
    let (snapshot_entries, kept_entries) =
        if super::simulated::is_on() { super::simulated::LOG_ENTRIES } else { (SNAPSHOT_ENTRIES, KEPT_ENTRIES) };
    #[cfg(not(any(test, feature = "sim")))]
    let (snapshot_entries, kept_entries) = (SNAPSHOT_ENTRIES, KEPT_ENTRIES);
    let config = Config {
        cluster_name: "troupemq".to_owned(),
        heartbeat_interval: settings.heartbeat_ms,
        election_timeout_min: settings.election_min_ms,
        election_timeout_max: settings.election_max_ms,
        max_payload_entries: 256,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(snapshot_entries),
        max_in_snapshot_log_to_keep: kept_entries,
        replication_lag_threshold: snapshot_entries * 2,
        purge_batch_size: 256,
        enable_pre_vote: Some(true),
        // A restarted leader may hold less than it had applied: it must be elected anew, and append an entry of its own term.
        enable_leader_restore: Some(false),
        // A node whose volume was lost, or that keeps its data in memory, comes back empty under its name and is filled again.
        allow_log_reversion: Some(true),
        // Times of single entries, which nobody looks at.
        log_stage_capacity: Some(8),
        backoff: "50ms 100ms ...1s".to_owned(),
        ..Config::default()
    };
    let config = config.validate().map_err(|error| ClusterError::Raft(error.to_string()))?;
    Ok(Arc::new(config))
}
