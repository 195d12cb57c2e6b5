//! Sends what is pending for one shard to its leader, again when the leader or the link changed or nothing moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};

use crate::cluster::clock::monotonic_ms;
use crate::cluster::group::LeaderView;
use crate::cluster::transport::Transport;
use crate::cluster::{PeerMessage, SubmitError};
use crate::mqtt::ReasonCode;
use crate::replica::body::{self, Cut};
use crate::replica::event::{Answer, Outcome};
use crate::replica::{Command, ConnectionRef, Incarnation, NodeId, ShardId};
use crate::telemetry::RateLimited;

use super::estimate::{COMMAND_BYTES_MAX, command_bytes};
use super::pending::{Pending, Settled, Waiter, tell};
use super::{Lane, Proposer};

/// Nothing applied for so long while something is pending: it is sent again.
const STALL_MS: u64 = 1_000;
/// Without a leader for so long new commands are refused at once.
const LEADERLESS_MS: u64 = 5_000;
/// Between looks at links and clocks; and before a refused send is tried again.
const TICK: Duration = Duration::from_millis(100);
const RETRY: Duration = Duration::from_millis(10);

static TOO_LARGE: RateLimited = RateLimited::new(Duration::from_secs(10));

/// One shard's way in.
pub struct Submitter {
    shard: ShardId,
    node: NodeId,
    pending: Mutex<Pending>,
    wake: Notify,
    closed: AtomicBool,
}

impl Submitter {
    pub fn new(shard: ShardId, node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            shard,
            node,
            pending: Mutex::new(Pending::new(node, incarnation)),
            wake: Notify::new(),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes a command in; the outcome comes on the receiver. A lane that it belongs to is broken where it is refused.
    pub fn submit(
        &self,
        command: Command,
        leader: &LeaderView,
        lane: Option<&Arc<Lane>>,
    ) -> Result<oneshot::Receiver<Result<Settled, SubmitError>>, SubmitError> {
        let submitted = self.take_in(command, leader, lane);
        if let (Err(_), Some(lane)) = (&submitted, lane) {
            lane.break_off();
        }
        submitted
    }

    fn take_in(
        &self,
        command: Command,
        leader: &LeaderView,
        lane: Option<&Arc<Lane>>,
    ) -> Result<oneshot::Receiver<Result<Settled, SubmitError>>, SubmitError> {
        let (waiter, waiting) = oneshot::channel();
        let is_end = matches!(command, Command::Disconnect { .. });
        let command = body::cut(command);
        if self.is_too_large(&command) {
            let _ = waiter.send(Ok(Settled { outcome: Outcome::Refused(ReasonCode::QuotaExceeded), index: 0 }));
            return Ok(waiting);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(SubmitError::Unavailable);
        }
        if leader.leaderless_ms(monotonic_ms()) > LEADERLESS_MS && !is_end {
            return Err(SubmitError::Unavailable);
        }
        let waiter = Waiter::new(waiter, lane.map(Arc::clone));
        self.push(command, Some(waiter))?;
        Ok(waiting)
    }

    /// Takes a connection's registration back; false where it may take effect.
    pub fn withdraw_connect(&self, connection: ConnectionRef) -> bool {
        self.pending.lock().withdraw_connect(connection)
    }

    /// Takes in a command nobody waits for.
    pub fn submit_nowait(&self, command: Command) -> Result<(), SubmitError> {
        let command = body::cut(command);
        if self.is_too_large(&command) {
            return Err(SubmitError::Overloaded);
        }
        self.push(command, None)
    }

    /// With the window full there is nothing to wake for: in a storm, most pushes.
    fn push(&self, command: Cut, waiter: Option<Waiter>) -> Result<(), SubmitError> {
        let has_next = {
            let mut pending = self.pending.lock();
            pending.push(command, waiter, monotonic_ms())?;
            pending.has_next()
        };
        if has_next {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Whether a command, without what travels in parts, is more than one entry may hold; says so in the log.
    fn is_too_large(&self, command: &Cut) -> bool {
        let (Cut::Small(command) | Cut::Large { command, .. }) = command;
        let bytes = command_bytes(command);
        if bytes > COMMAND_BYTES_MAX {
            let shard = self.shard.0;
            crate::warn_limited!(
                TOO_LARGE,
                shard,
                bytes,
                max = COMMAND_BYTES_MAX,
                "a command too large to be replicated is refused"
            );
        }
        bytes > COMMAND_BYTES_MAX
    }

    /// This node's replica applied entries: tells whoever waited for them.
    pub fn complete(&self, answers: Vec<Answer>, applied_seq: impl FnOnce(NodeId, Incarnation) -> u64) {
        let (told, has_next) = {
            let mut pending = self.pending.lock();
            if pending.is_empty() {
                return;
            }
            let applied_seq = applied_seq(self.node, pending.incarnation());
            let told = pending.complete(answers, applied_seq, monotonic_ms());
            (told, pending.has_next())
        };
        tell(told);
        if has_next {
            self.wake.notify_one();
        }
    }

    /// Voids what the old incarnation submitted.
    pub fn renew(&self, incarnation: Incarnation) {
        let told = self.pending.lock().renew(incarnation);
        tell(told);
    }

    /// The node stops: nothing is taken in any more, and what waits will not be heard of.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let incarnation = self.pending.lock().incarnation();
        self.renew(incarnation);
    }

    /// A link came up: looks at once whether something is to be sent again.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Commands without an outcome yet.
    pub fn pending_count(&self) -> usize {
        self.pending.lock().len()
    }

    /// How full it is, as a share of what may wait; at 1 commands are refused.
    pub fn fullness(&self) -> f64 {
        self.pending.lock().fullness()
    }

    /// Sends until cancelled.
    pub async fn run(
        self: Arc<Self>,
        mut leader: watch::Receiver<LeaderView>,
        proposer: Proposer,
        transport: Option<Arc<Transport>>,
    ) {
        let mut route = None;
        let mut rewound_ms = 0;
        loop {
            let view = *leader.borrow_and_update();
            let now_route = view.leader.map(|node| (node, view.term, link_epoch(transport.as_ref(), node, self.node)));
            if now_route != route {
                route = now_route;
                self.pending.lock().rewind();
            }
            let sent_all = match view.leader.filter(|_| view.reachable) {
                Some(node) => self.send_all(node, &proposer, transport.as_deref()),
                None => true,
            };
            let pause = if sent_all { TICK } else { RETRY };
            tokio::select! {
                biased;
                () = self.wake.notified(), if sent_all => {}
                changed = leader.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(pause) => self.look_at_clock(&mut rewound_ms),
            }
        }
    }

    /// Sends what is to be sent; false where it was not taken.
    fn send_all(&self, leader: NodeId, proposer: &Proposer, transport: Option<&Transport>) -> bool {
        loop {
            let Some(batch) = self.pending.lock().next_batch() else { return true };
            let (incarnation, first_seq) = (batch.incarnation, batch.first_seq);
            let sent = if leader == self.node {
                proposer.offer(batch)
            } else {
                let message = PeerMessage::Commands { shard: self.shard, batch };
                transport.is_some_and(|transport| transport.send(leader, message))
            };
            if !sent {
                return false;
            }
            let mut pending = self.pending.lock();
            if pending.incarnation() == incarnation {
                pending.batch_sent(first_seq);
            }
        }
    }

    fn look_at_clock(&self, rewound_ms: &mut u64) {
        let now_ms = monotonic_ms();
        let mut pending = self.pending.lock();
        if pending.is_empty() {
            return;
        }
        if now_ms.saturating_sub(pending.progress_ms().max(*rewound_ms)) >= STALL_MS {
            *rewound_ms = now_ms;
            pending.rewind();
        }
        let told = pending.give_up(now_ms);
        drop(pending);
        tell(told);
    }
}

fn link_epoch(transport: Option<&Arc<Transport>>, leader: NodeId, own: NodeId) -> u64 {
    transport.filter(|_| leader != own).map_or(0, |transport| transport.link_epoch(leader))
}
