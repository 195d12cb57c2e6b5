//! One Raft group on this node: its replica, and who leads it as far as this node can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use openraft::type_config::alias::CommittedLeaderIdOf;
use openraft::vote::RaftLeaderId;
use openraft::{Config, Instant, RaftMetrics, SnapshotPolicy};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::replica::{NodeId, ShardId};
use crate::storage::{LogStore, StateStore};

use super::clock::monotonic_ms;
use super::handle::{ClusterError, GroupStatus};
use super::raft::log_store::RaftLog;
use super::raft::network::Network;
use super::raft::rpc::{Request, Response, Transfers, execute};
use super::raft::state_machine::{Machine, StateMachine};
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
    transfers: Transfers,
    view: watch::Sender<LeaderView>,
    heard: Mutex<Heard>,
    /// Whether this replica may vote: not while an emptied data directory is being filled again.
    may_vote: AtomicBool,
    /// A change of membership is under way.
    changing: Arc<AtomicBool>,
    /// For so long after a majority answered no other can lead.
    lease_ms: u64,
}

/// The leader whose append was taken last: the metrics may still tell of the one before.
#[derive(Default)]
struct Heard {
    leader: Option<NodeId>,
    term: u64,
    at_ms: u64,
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
        let lease_ms = config.election_timeout_max;
        let log = RaftLog::new(log);
        let serving = Arc::new(AtomicBool::new(false));
        let machine = StateMachine::new(machine, state, Arc::clone(&serving))
            .await
            .map_err(|error| ClusterError::Raft(format!("{}: {error}", group_name(index))))?;
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
            transfers: Transfers::default(),
            view: watch::Sender::new(view),
            heard: Mutex::default(),
            may_vote: AtomicBool::new(true),
            changing: Arc::default(),
            lease_ms,
        }))
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

    pub fn set_may_vote(&self, may: bool) {
        self.may_vote.store(may, Ordering::Relaxed);
    }

    pub fn may_vote(&self) -> bool {
        self.may_vote.load(Ordering::Relaxed)
    }

    /// Why the replica has stopped for good: storage failed.
    pub fn failure(&self) -> Option<String> {
        self.metrics().running_state.err().map(|error| error.to_string())
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

    /// The connected voter that is the least behind, if this node leads.
    pub fn successor(&self, connected: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let metrics = self.metrics();
        if !metrics.state.is_leader() {
            return None;
        }
        let replication = metrics.replication.as_ref()?;
        let voters = metrics.membership_config.voter_ids().filter(|&voter| voter != self.node && connected(voter));
        voters.max_by_key(|voter| replication.get(voter).copied().flatten())
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
        if matches!(request, Request::Vote(_) | Request::PreVote(_)) && !self.may_vote() {
            return Response::Refused("this replica lost its data and is being filled again".to_owned());
        }
        let chunk = matches!(request, Request::SnapshotChunk { .. });
        let term = match &request {
            Request::Append(append) => Some(append.vote.leader_id().term),
            Request::SnapshotEnd { vote, .. } => Some(vote.leader_id().term),
            _ => None,
        };
        let response = execute(&self.raft, &self.transfers, from, request).await;
        if !matches!(response, Response::Refused(_)) {
            let mut heard = self.heard.lock();
            if let Some(term) = term.filter(|term| *term >= heard.term) {
                *heard = Heard { leader: Some(from), term, at_ms: monotonic_ms() };
            } else if chunk && heard.leader == Some(from) {
                heard.at_ms = monotonic_ms();
            }
        }
        response
    }

    /// Keeps the view of the leader up to date and tells each change of `leads`, until the group stops.
    pub async fn watch_leader(self: Arc<Self>, changed: impl Fn(bool) + Send + 'static) {
        use openraft::async_runtime::watch::WatchReceiver;
        let mut metrics = self.raft.metrics();
        let mut led = false;
        loop {
            let view = self.look(&metrics.borrow_watched());
            self.view.send_if_modified(|known| {
                // The time alone wakes nobody.
                let modified = LeaderView { reachable_ms: 0, ..*known } != LeaderView { reachable_ms: 0, ..view };
                *known = view;
                modified
            });
            if view.leads != led {
                led = view.leads;
                changed(led);
            }
            if let Ok(Err(_)) = timeout(LOOK, metrics.changed()).await {
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
        let (reachable, leased) = match metrics.current_leader {
            Some(_) if leading => {
                let acked_ms = self.acked_ms_ago(metrics);
                (acked_ms < self.lease_ms.saturating_mul(2), acked_ms < self.lease_ms)
            }
            Some(leader) if leader != self.node => {
                let heard = self.heard.lock();
                let of_it = heard.leader == Some(leader) && heard.term == metrics.current_term;
                (of_it && now_ms.saturating_sub(heard.at_ms) < self.lease_ms * 2, false)
            }
            _ => (false, false),
        };
        LeaderView {
            leader: metrics.current_leader,
            term: metrics.current_term,
            leads: leased && caught_up,
            caught_up,
            reachable,
            reachable_ms: if reachable { now_ms } else { self.view().reachable_ms },
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
        backoff: "50ms 100ms ...1s".to_owned(),
        ..Config::default()
    };
    let config = config.validate().map_err(|error| ClusterError::Raft(error.to_string()))?;
    Ok(Arc::new(config))
}
