//! The Client actor: a connection and its session machine, on the arbiter that accepted it.
//!
//! It reads inside the actor's context into a buffer borrowed from the thread, so that an idle connection owns no buffer, hands packets to
//! the machine and runs the effects. Decisions about MQTT are the machine's.
//!
//! Here: what the actor is and what it is told. The way of a packet: `pump` reads and writes, `input` takes packets out of the bytes, `effects`
//! does what the machine decides, `deliver` hands messages to the machine, `output` puts packets onto the socket.

mod deliver;
mod effects;
mod input;
mod login;
mod output;
mod partial;
mod pump;
#[cfg(test)]
mod pump_test;
mod recheck;
mod record;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context};
use bytes::BytesMut;
use bytestring::ByteString;
use tokio::sync::oneshot;

use crate::auth::Principal;
use crate::cluster::Lane;
use crate::mqtt::{Delivery, GroupId, QoS, ReasonCode, Source};
use crate::replica::command::QueueStep;
use crate::replica::{ConnectionRef, ShardId};
use crate::session::{Effect, Machine, Now, Seldom};
use crate::signal::{ConnectionFacts, Initiator};

use super::gate::Login;
use super::hub::Local;
use super::inbox::{Inbox, Mail};
use super::queue::QueueItem;
use super::transport::{Accepted, Transport};
use super::{clock, holding, shared_subscription};
use partial::Partial;
pub use partial::Room;
use recheck::Withdrawn;

/// Payload bytes of one client that may wait to be stored: one message of the largest size does not stop the reading, two do.
const STORING_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Packets taken before others get their turn: a read can hold thousands of small ones.
const TURN_PACKETS_MAX: u32 = 512;
/// Effects that gather before they are run.
const EFFECTS_MAX: usize = 32;

/// A client that is asked to leave waits so long for the answers to what it sent.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// What a client is told by its hub and its queue.
#[derive(Debug)]
pub enum ClientItem {
    Deliver(Box<Delivery>),
    /// PUBREC of this entry was stored on an earlier connection.
    ResumeRelease {
        seq: u64,
    },
    Close {
        reason_code: ReasonCode,
        tell_shard: bool,
    },
    /// The client is kept out from now on.
    Banned {
        reason: String,
    },
    /// Go when what the client sent so far is answered: the node stops, drains or has too many clients.
    Leave,
    /// Read what the client sent, then drop `done`: another connection is to take over.
    Settle {
        done: oneshot::Sender<()>,
    },
    Timeout,
    /// It may be read again.
    Read,
    /// The last of what the queue handed out at once: it may hand out more.
    HandMore,
}

/// Whether the machine's timer ran out. The machine is told a moment later: what came in time may wait in the socket, unseen by a thread that
/// was held up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimedOut {
    No,
    Seen,
    /// A moment has passed.
    Due,
}

/// The identity of a registered connection.
#[derive(Debug, Clone)]
pub struct Identity {
    pub shard: ShardId,
    pub persistent: bool,
    pub facts: Arc<ConnectionFacts>,
}

impl Identity {
    /// The client id.
    pub fn client(&self) -> &ByteString {
        &self.facts.client_id
    }
}

thread_local! {
    /// What the client whose turn it is takes out of its inbox.
    static BATCH: RefCell<Vec<ClientItem>> = const { RefCell::new(Vec::new()) };
}

/// What few clients need.
#[derive(Debug, Default)]
struct Rare {
    /// Entries of shared subscriptions handed to this client and not done with; of one no more than `window`.
    shared: Vec<(GroupId, u64)>,
    /// Dropped when there is nothing to read.
    settling: Vec<oneshot::Sender<()>>,
    /// Why the client says it goes.
    given_reason: Option<Box<str>>,
}

/// The actor. There are as many as connections: what few need is in `Seldom`. A few bytes more, and its task takes the
/// allocator's next size (`tests` below).
pub struct Client {
    local: Rc<Local>,
    transport: Box<dyn Transport>,
    accepted: Box<Accepted>,
    connection: ConnectionRef,
    machine: Machine,
    /// The authentication that is under way.
    login: Option<Box<Login>>,
    identity: Option<Identity>,
    /// Who it turned out to be.
    principal: Arc<Principal>,
    /// `None`, as a rule: the session brought nothing that its client may not have.
    withdrawn: Option<Box<Withdrawn>>,
    inbox: Arc<Inbox<ClientItem>>,
    effects: Vec<Effect>,
    /// Bytes of a packet that is not complete yet.
    partial: Partial,
    out: BytesMut,
    /// Deliveries that came while the send quota was used up (by shared subscriptions), in order.
    held: Seldom<VecDeque<Delivery>>,
    /// The send quota of this connection, when nothing is in flight.
    window: usize,
    rare: Seldom<Rare>,
    /// Highest position of the replicated queue handed to the client.
    sent_seq: u64,
    /// Steps of replicated deliveries gathered in this turn.
    steps: Seldom<Vec<(u64, QueueStep)>>,
    completed: u32,
    /// SUBACKs that wait until retained messages are in the replicated queue; what comes out of that meanwhile waits for them.
    subscribing: u32,
    /// The reactor has looked at the socket since the first of them came.
    settle_due: bool,
    writable: bool,
    /// QoS 0 messages put onto the socket since it is not writable.
    stuffed: u32,
    /// A write outside the pump failed.
    write_failed: bool,
    /// Since when the client is not read though it might send, monotonic ms: the node has too much to do, or has read its share of bytes.
    held_since_ms: Option<NonZeroU64>,
    timed_out: TimedOut,
    /// Packets taken since others had their turn.
    turn_packets: u32,
    /// The time of this turn, read once for all that is done in it.
    now: Now,
    /// Close when `out` is written.
    closing: bool,
    /// The peer closed, or the socket failed.
    gone: bool,
    /// To go when there is no answer to wait for.
    leaving: bool,
    /// The node stops: connections end as UNSPECIFIED (spec/hivemq.md 10.1).
    stopping: bool,
    /// How the connection ended, for the metrics and the event log.
    ended: (Initiator, Option<ReasonCode>),
    /// Counted as a connection: its CONNECT was accepted.
    counted: bool,
    /// The event log has its end.
    end_recorded: bool,
    /// The actor stopped in the ordinary way.
    over: bool,
    timer_ms: u64,
    /// What it publishes, once it does; broken where some of it is not stored.
    lane: Option<Arc<Lane>>,
    /// Payload bytes of its messages that are not stored yet.
    storing_bytes: usize,
    /// Questions to the outside, in the order they were asked.
    deferred: Seldom<VecDeque<effects::Deferred>>,
    /// Wakes the actor's task.
    waker: Option<Waker>,
}

impl Client {
    /// Starts a connection's actor on the arbiter it is called on.
    pub fn start_for(local: Rc<Local>, transport: Box<dyn Transport>, accepted: Accepted) {
        let client = Self::new(&local, transport, accepted);
        let (connection, inbox) = (client.connection.connection, Arc::clone(&client.inbox));
        local.node().connections.fetch_add(1, Ordering::Relaxed);
        client.start();
        local.insert(connection, Mail::new(inbox));
    }

    fn new(local: &Rc<Local>, transport: Box<dyn Transport>, accepted: Accepted) -> Self {
        let node = Arc::clone(local.node());
        let connection = node.new_connection(local.arbiter());
        let now = clock::now();
        let machine = Machine::new(Arc::clone(&node.settings.session), now);
        Self {
            local: Rc::clone(local),
            transport,
            accepted: Box::new(accepted),
            connection,
            machine,
            login: None,
            identity: None,
            principal: login::anybody(),
            withdrawn: None,
            inbox: Arc::default(),
            effects: Vec::new(),
            partial: Partial::new(Arc::clone(&node.incomplete)),
            out: BytesMut::new(),
            held: Seldom::default(),
            window: 0,
            rare: Seldom::default(),
            sent_seq: 0,
            steps: Seldom::default(),
            completed: 0,
            subscribing: 0,
            settle_due: false,
            writable: true,
            stuffed: 0,
            write_failed: false,
            held_since_ms: None,
            timed_out: TimedOut::No,
            turn_packets: 0,
            now,
            closing: false,
            gone: false,
            leaving: false,
            stopping: false,
            ended: (Initiator::Unspecified, None),
            counted: false,
            end_recorded: false,
            over: false,
            timer_ms: 0,
            lane: None,
            storing_bytes: 0,
            deferred: Seldom::default(),
            waker: None,
        }
    }

    /// Reads no more, and goes when what was read is answered: a publisher gets its acknowledgement, or none for what nobody took.
    fn leave(&mut self, ctx: &mut Context<Self>) {
        self.leaving = true;
        // A CONNECT that is being registered has an effect, and an event: it is not refused, but answered like all that was read.
        if self.counted || self.identity.is_some() {
            ctx.run_later(LEAVE_MAX, |client, ctx| {
                client.part();
                client.run_effects(ctx);
            });
        } else {
            self.part();
        }
    }

    fn part(&mut self) {
        let reason_code = ReasonCode::ServerShuttingDown;
        self.stopping = true;
        self.machine.registration_unknown(&mut self.effects);
        self.machine.disconnect(reason_code, reason_code.name(), true, self.now, &mut self.effects);
    }

    fn handle_item(&mut self, item: ClientItem, ctx: &mut Context<Self>) {
        let now = self.now;
        match item {
            ClientItem::Leave => self.leave(ctx),
            ClientItem::Deliver(delivery) => {
                if let Source::Share { group, seq } = &delivery.source {
                    let shared = self.rare.get().map(|rare| rare.shared.as_slice()).unwrap_or_default();
                    if shared.iter().any(|(known, at)| at == seq && known == group) {
                        return; // handed over again, since the dispatcher heard nothing for a while
                    }
                    let held = shared.iter().filter(|(known, _)| known == group).count();
                    // Before this client knows that it is registered it does not know its window either, and refuses nothing: the dispatcher
                    // takes a refusal for a window that is full.
                    if delivery.qos != QoS::AtMostOnce && self.window > 0 && held >= self.window {
                        shared_subscription::refuse(self.local.node(), group, *seq, self.connection);
                        return;
                    }
                    self.rare.get_mut().shared.push((group.clone(), *seq));
                }
                self.deliver(*delivery);
            }
            ClientItem::ResumeRelease { seq } => {
                self.sent_seq = self.sent_seq.max(seq);
                self.machine.resume_release(seq, now, &mut self.effects);
            }
            // Its end was told.
            ClientItem::Close { .. } if self.closing => {}
            ClientItem::Close { reason_code, tell_shard } => {
                self.stopping = reason_code == ReasonCode::ServerShuttingDown;
                if reason_code == ReasonCode::SessionTakenOver {
                    self.ended = (Initiator::SessionTakenOver, Some(reason_code));
                } else if !tell_shard {
                    self.ended = (Initiator::Server, Some(reason_code));
                }
                if !tell_shard {
                    // A CONNECT under way has taken effect, or may have: it is not refused.
                    self.machine.registration_unknown(&mut self.effects);
                }
                self.machine.disconnect(reason_code, reason_code.name(), tell_shard, now, &mut self.effects);
                // What ends it first is what it is told to have ended by.
                self.run_effects(ctx);
            }
            ClientItem::Banned { reason } if self.counted => self.ban(&reason),
            // Its CONNECT has taken effect, with an event: it is not refused, but learns that it came in, and then that it goes.
            ClientItem::Banned { reason } => self.defer(std::future::ready(reason), |reason, client, ctx| {
                client.ban(&reason);
                client.run_effects(ctx);
            }),
            ClientItem::Settle { done } => self.rare.get_mut().settling.push(done),
            ClientItem::Timeout => {
                if self.stores_much() {
                    // What the client sends meanwhile is not read: that is not its silence.
                    self.machine.handle_bytes(now);
                }
                // Deadlines move at every packet.
                if self.machine.next_timeout().is_some_and(|due| due <= now.mono_ms) {
                    self.timed_out = TimedOut::Seen;
                } else if now.mono_ms >= self.timer_ms {
                    // Another may be set behind this one: only what this connection waits for is over.
                    self.timer_ms = 0;
                }
            }
            ClientItem::Read => self.read_again(),
            // Where it is not writable, `Writable` says so when it is.
            ClientItem::HandMore if self.writable => {
                self.local.post_existing(self.connection.connection, QueueItem::HandMore);
            }
            ClientItem::HandMore => {}
        }
    }

    /// Banned (0x8A) is a code for CONNACK alone (MQTT 5 section 3.14.2.1).
    fn ban(&mut self, reason: &str) {
        self.machine.disconnect(ReasonCode::AdministrativeAction, reason, true, self.now, &mut self.effects);
    }

    /// Whether so much of what it published waits to be stored that it is not read for a while.
    fn stores_much(&self) -> bool {
        self.storing_bytes > STORING_BYTES_MAX
    }

    /// Whether what comes next is wanted now.
    fn may_read(&self) -> bool {
        !self.gone && !self.stores_much() && self.takes_packets()
    }

    /// Keeps one timer of the arbiter for the machine's next deadline. Deadlines move at every packet; the timer follows when it fires.
    fn schedule(&mut self) {
        if self.is_held() {
            return; // its clock stands still
        }
        if let Some(due) = self.machine.next_timeout()
            && (self.timer_ms == 0 || due < self.timer_ms)
        {
            self.timer_ms = self.local.set_timer(self.connection.connection, due, self.now.mono_ms);
        }
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Whether the node has reasons not to read from this client now.
    fn must_wait(&self) -> bool {
        let node = self.local.node();
        if self.counted { node.holds_clients() } else { node.holds_newcomers() }
    }

    /// Reads nothing until the node says so.
    fn hold(&mut self) {
        if self.held_since_ms.replace(NonZeroU64::MIN.saturating_add(self.now.mono_ms.saturating_sub(1))).is_none() {
            self.local.node().metrics.hivemq.backpressure_active.inc();
            holding::wait_for_turn(&self.local, self.connection.connection);
        }
    }

    fn read_again(&mut self) {
        if let Some(since_ms) = self.held_since_ms.take() {
            self.local.node().metrics.hivemq.backpressure_active.dec();
            self.machine.handle_pause(self.now.mono_ms.saturating_sub(since_ms.get()));
        }
    }

    /// Whether the client is not read, and its clock stands still. Time to send a CONNECT is given once.
    fn is_held(&self) -> bool {
        self.held_since_ms.is_some() && self.machine.protocol().is_some()
    }

    /// The end of an actor, however it comes.
    fn settle(&mut self) {
        let hivemq = &self.local.node().metrics.hivemq;
        if !self.writable {
            hivemq.not_writable_current.dec();
        }
        if self.held_since_ms.take().is_some() {
            hivemq.backpressure_active.dec();
        }
        self.unstuff();
    }

    fn now_stop(&mut self, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

impl Actor for Client {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.schedule();
        ctx.spawn(pump::Pump::new());
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        self.over = true;
        let node = self.local.node();
        self.local.remove(self.connection.connection);
        node.connections.fetch_sub(1, Ordering::Relaxed);
        if self.counted {
            node.metrics.connection_closed(self.ended.0, self.ended.1);
        }
        self.record_end();
        self.settle();
    }
}

impl Drop for Client {
    /// An actor that panicked costs its own connection and no more: its session learns that the connection is gone.
    fn drop(&mut self) {
        if self.over || !std::thread::panicking() {
            return;
        }
        tracing::error!(peer = ?self.accepted.peer(), "a client's actor failed; its connection is closed");
        self.local.remove(self.connection.connection);
        self.local.node().connections.fetch_sub(1, Ordering::Relaxed);
        if self.counted {
            self.local.node().metrics.connection_closed(Initiator::Unspecified, None);
        }
        self.record_end();
        self.settle();
        self.fail();
    }
}

impl Client {
    /// Takes what is in the inbox.
    fn on_mail(&mut self, ctx: &mut Context<Self>) {
        let mut batch = BATCH.take();
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            self.handle_item(item, ctx);
            // What is put onto the socket decides on what follows.
            if self.effects.len() >= EFFECTS_MAX {
                self.run_effects(ctx);
            }
        }
        if batch.capacity() <= 64 {
            BATCH.set(batch);
        }
        self.run_effects(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        // With what actix and tokio put around it: 768 bytes, a size that the allocator has; the next is 896.
        assert!(size_of::<Client>() <= 376, "{}", size_of::<Client>());
        // With the counts of an `Arc`: 64.
        assert!(size_of::<Inbox<ClientItem>>() <= 48, "{}", size_of::<Inbox<ClientItem>>());
        assert!(size_of::<Accepted>() <= 64, "{}", size_of::<Accepted>());
        // With the counts of an `Arc`: 128.
        assert!(size_of::<ConnectionFacts>() <= 112, "{}", size_of::<ConnectionFacts>());
    }
}
