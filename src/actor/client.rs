//! The Client actor: a connection and its session machine, on the arbiter that accepted it.
//!
//! It reads inside the actor's context into a buffer borrowed from the thread, so that an idle connection owns no buffer, hands packets to
//! the machine and runs the effects. Decisions about MQTT are the machine's.

mod effects;
mod login;
mod pump;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use bytes::{Buf, BytesMut};
use bytestring::ByteString;
use tokio::sync::oneshot;

use crate::mqtt::codec;
use crate::mqtt::{Delivery, GroupId, Packet, ProtocolVersion, QoS, ReasonCode, Source};
use crate::replica::{ConnectionRef, ShardId};
use crate::session::{Effect, Machine, Now};
use crate::signal::{ConnectionFacts, Initiator};

use super::clock;
use super::gate::Login;
use super::hub::{ClientMail, Local};
use super::inbox::{Inbox, Mail, Wake};
use super::queue::QueueItem;
use super::transport::{Accepted, Transport};

/// Payload bytes of one client that may wait to be stored: one message of the largest size does not stop the reading, two do.
const STORING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Unsent bytes above which a socket counts as not writable, and below which it is writable again (spec/hivemq.md 2.4).
const HIGH_WATER_BYTES: usize = 65_536;
const LOW_WATER_BYTES: usize = 32_768;
/// Packets up to this size are copied out of a buffer that holds several.
const COPY_BYTES_MAX: usize = 65_536;

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
    /// Read what the client sent, then drop `done`: another connection is to take over.
    Settle {
        done: oneshot::Sender<()>,
    },
    Timeout,
}

/// The identity of a registered connection.
#[derive(Debug, Clone)]
pub struct Identity {
    pub client: ByteString,
    pub shard: ShardId,
    pub persistent: bool,
    pub facts: Arc<ConnectionFacts>,
}

/// The actor.
pub struct Client {
    local: Rc<Local>,
    transport: Box<dyn Transport>,
    accepted: Accepted,
    connection: ConnectionRef,
    machine: Machine,
    /// The authentication that is under way.
    login: Option<Box<Login>>,
    identity: Option<Identity>,
    inbox: Arc<Inbox<ClientItem>>,
    batch: Vec<ClientItem>,
    effects: Vec<Effect>,
    /// Bytes of a packet that is not complete yet.
    partial: BytesMut,
    out: BytesMut,
    /// Deliveries that came while the send quota was used up (by shared subscriptions), in order.
    held: VecDeque<Delivery>,
    /// Entries of shared subscriptions handed to this client and not done with.
    shared: Vec<(GroupId, u64)>,
    /// Highest position of the replicated queue handed to the client.
    sent_seq: u64,
    /// Steps of replicated deliveries gathered in this turn.
    steps: Vec<(u64, crate::replica::command::QueueStep)>,
    completed: usize,
    /// Dropped when there is nothing to read.
    settling: Vec<oneshot::Sender<()>>,
    /// The reactor has looked at the socket since the first of them came.
    settle_due: bool,
    writable: bool,
    /// The time of this turn, read once for all that is done in it.
    now: Now,
    /// Close when `out` is written.
    closing: bool,
    /// The peer closed, or the socket failed.
    gone: bool,
    /// The node stops: connections end as UNSPECIFIED (spec/hivemq.md 10.1).
    stopping: bool,
    /// How the connection ended, for the metrics.
    ended: (Initiator, Option<ReasonCode>),
    /// Counted as a connection: its CONNECT was accepted.
    counted: bool,
    /// The actor stopped in the ordinary way.
    over: bool,
    timer_ms: u64,
    /// Payload bytes of its messages that are not stored yet.
    storing_bytes: usize,
    /// Questions to the outside, in the order they were asked.
    deferred: VecDeque<effects::Deferred>,
    /// Wakes the actor's task.
    waker: Option<Waker>,
}

impl Client {
    /// Starts a connection's actor on the arbiter it is called on.
    pub fn start_for(local: Rc<Local>, transport: Box<dyn Transport>, accepted: Accepted) {
        let node = Arc::clone(local.node());
        let connection = node.new_connection(local.arbiter());
        let inbox = Arc::new(Inbox::default());
        let now = clock::now();
        let machine = Machine::new(Arc::clone(&node.settings.session), now);
        let client = Self {
            local: Rc::clone(&local),
            transport,
            accepted,
            connection,
            machine,
            login: None,
            identity: None,
            inbox: Arc::clone(&inbox),
            batch: Vec::new(),
            effects: Vec::new(),
            partial: BytesMut::new(),
            out: BytesMut::new(),
            held: VecDeque::new(),
            shared: Vec::new(),
            sent_seq: 0,
            steps: Vec::new(),
            completed: 0,
            settling: Vec::new(),
            settle_due: false,
            writable: true,
            now,
            closing: false,
            gone: false,
            stopping: false,
            ended: (Initiator::Unspecified, None),
            counted: false,
            over: false,
            timer_ms: 0,
            storing_bytes: 0,
            deferred: VecDeque::new(),
            waker: None,
        };
        node.connections.fetch_add(1, Ordering::Relaxed);
        let address = client.start();
        let mail: ClientMail = Mail::new(inbox, address);
        local.insert(connection.connection, mail);
    }

    /// Bytes arrived: takes whole packets out of them.
    fn on_bytes(&mut self, bytes: &[u8], ctx: &mut Context<Self>) {
        self.local.node().metrics.transferred(bytes.len(), 0);
        self.machine.handle_bytes(self.now);
        if self.partial.is_empty() {
            let used = self.on_slice(bytes, ctx);
            if !self.closing {
                self.partial.extend_from_slice(bytes.get(used..).unwrap_or_default());
            }
        } else {
            self.partial.extend_from_slice(bytes);
            self.on_partial(ctx);
        }
    }

    /// Packets straight out of the thread's buffer; returns the bytes used.
    fn on_slice(&mut self, bytes: &[u8], ctx: &mut Context<Self>) -> usize {
        let mut used = 0;
        while !self.closing && self.machine.wants_input() {
            let rest = bytes.get(used..).unwrap_or_default();
            match codec::frame(rest, self.machine.max_packet_size_bytes()) {
                Ok(Some(frame)) if rest.len() >= frame.total_len() => {
                    let packet = bytes::Bytes::copy_from_slice(rest.get(..frame.total_len()).unwrap_or_default());
                    used += frame.total_len();
                    self.on_packet(frame, packet, ctx);
                }
                Ok(_) => break,
                Err(error) => {
                    self.on_decode_error(&error, rest, ctx);
                    break;
                }
            }
        }
        used
    }

    /// Packets out of what was kept.
    fn on_partial(&mut self, ctx: &mut Context<Self>) {
        while !self.closing && self.machine.wants_input() && !self.partial.is_empty() {
            match codec::frame(&self.partial, self.machine.max_packet_size_bytes()) {
                Ok(Some(frame)) if self.partial.len() >= frame.total_len() => {
                    let total = frame.total_len();
                    // A slice would pin the whole buffer for as long as a topic or a client id of this packet lives.
                    let packet = if total <= COPY_BYTES_MAX {
                        let copy = bytes::Bytes::copy_from_slice(self.partial.get(..total).unwrap_or_default());
                        self.partial.advance(total);
                        copy
                    } else {
                        self.partial.split_to(total).freeze()
                    };
                    self.on_packet(frame, packet, ctx);
                }
                Ok(_) => break,
                Err(error) => {
                    let bytes = std::mem::take(&mut self.partial);
                    self.on_decode_error(&error, &bytes, ctx);
                    break;
                }
            }
        }
        if self.partial.is_empty() {
            self.partial = BytesMut::new();
        }
    }

    fn on_packet(&mut self, frame: codec::Frame, packet: bytes::Bytes, ctx: &mut Context<Self>) {
        // A first packet that is broken is looked at again for the version to answer in.
        let first = self.machine.protocol().is_none().then(|| packet.clone());
        match codec::decode(frame, packet, self.machine.protocol()) {
            Ok(decoded) => {
                self.local.node().metrics.received(&decoded);
                let assigned = || effects::assigned_client_id(self.connection);
                self.machine.handle_packet(decoded, &assigned, self.now, &mut self.effects);
                self.run_effects(ctx);
            }
            Err(error) => self.on_decode_error(&error, first.as_deref().unwrap_or_default(), ctx),
        }
    }

    fn on_decode_error(&mut self, error: &codec::DecodeError, bytes: &[u8], ctx: &mut Context<Self>) {
        tracing::debug!(peer = ?self.accepted.peer, %error, "bytes are no valid packet");
        let version = if self.machine.protocol().is_none() { codec::connect_version(bytes) } else { None };
        self.machine.handle_decode_error(error, version, self.now, &mut self.effects);
        self.run_effects(ctx);
    }

    /// The peer closed or the socket failed.
    fn on_closed(&mut self, ctx: &mut Context<Self>) {
        if self.gone {
            return;
        }
        self.gone = true;
        self.out = BytesMut::new();
        // Its turn comes after what the client sent before; `Close` follows then.
        if !self.closing {
            self.machine.handle_closed(self.now, &mut self.effects);
            self.run_effects(ctx);
        }
    }

    fn handle_item(&mut self, item: ClientItem) {
        let now = self.now;
        match item {
            ClientItem::Deliver(delivery) => {
                if let Source::Share { group, seq } = &delivery.source {
                    if self.shared.iter().any(|(known, at)| at == seq && known == group) {
                        return; // handed over again, since the dispatcher heard nothing for a while
                    }
                    self.shared.push((group.clone(), *seq));
                }
                self.deliver(*delivery);
            }
            ClientItem::ResumeRelease { seq } => {
                self.sent_seq = self.sent_seq.max(seq);
                self.machine.resume_release(seq, now, &mut self.effects);
            }
            ClientItem::Close { reason_code, tell_shard } => {
                self.stopping = reason_code == ReasonCode::ServerShuttingDown;
                if reason_code == ReasonCode::SessionTakenOver {
                    self.ended = (Initiator::SessionTakenOver, Some(reason_code));
                } else if !tell_shard {
                    self.ended = (Initiator::Server, Some(reason_code));
                }
                self.machine.disconnect(reason_code, reason_code.name(), tell_shard, now, &mut self.effects);
            }
            ClientItem::Settle { done } => self.settling.push(done),
            ClientItem::Timeout => {
                // Another may be set behind this one: only what this connection waits for is over.
                if now.mono_ms >= self.timer_ms {
                    self.timer_ms = 0;
                }
                if self.stores_much() {
                    // What the client sends meanwhile is not read: that is not its silence.
                    self.machine.handle_bytes(now);
                }
                self.machine.handle_timeout(now, &mut self.effects);
                self.count_login_timeout();
            }
        }
    }

    /// Whether so much of what it published waits to be stored that it is not read for a while.
    fn stores_much(&self) -> bool {
        self.storing_bytes > STORING_BYTES_MAX
    }

    fn deliver(&mut self, delivery: Delivery) {
        if delivery.qos != QoS::AtMostOnce {
            if !self.held.is_empty() || self.machine.send_quota() == 0 {
                self.held.push_back(delivery);
                return;
            }
            if let Source::Queue { seq } = delivery.source {
                self.sent_seq = self.sent_seq.max(seq);
            }
            let kept = kept(&delivery);
            if !self.machine.deliver(delivery, self.now, &mut self.effects) {
                self.held.extend(kept);
            }
        } else if !self.machine.deliver(delivery, self.now, &mut self.effects) {
            tracing::debug!("a QoS 0 message came before the connection was registered");
        }
    }

    /// Sends what was held back for lack of quota.
    fn deliver_held(&mut self) {
        while self.machine.send_quota() > 0 {
            let Some(delivery) = self.held.pop_front() else { break };
            if let Source::Queue { seq } = delivery.source {
                self.sent_seq = self.sent_seq.max(seq);
            }
            let kept = kept(&delivery);
            if !self.machine.deliver(delivery, self.now, &mut self.effects) {
                if let Some(kept) = kept {
                    self.held.push_front(kept);
                }
                break;
            }
        }
    }

    /// Appends a packet to what is to be written.
    fn write(&mut self, packet: &Packet) {
        let version = self.machine.protocol().unwrap_or(ProtocolVersion::V5);
        self.local.node().metrics.sent(packet);
        if self.gone {
            return;
        }
        codec::encode(packet, version, &mut self.out);
        if self.writable && self.out.len() > HIGH_WATER_BYTES {
            self.set_writable(false);
        }
    }

    fn set_writable(&mut self, writable: bool) {
        self.writable = writable;
        let gauge = &self.local.node().metrics.hivemq.not_writable_current;
        if writable {
            gauge.dec()
        } else {
            gauge.inc()
        }
        self.local.post_existing(self.connection.connection, QueueItem::Writable(writable));
    }

    /// Something was written: the socket may be writable again; an empty buffer is given back.
    fn written(&mut self) {
        if self.out.is_empty() && self.out.capacity() > 0 {
            self.out = BytesMut::new();
        }
        if !self.writable && self.out.len() < LOW_WATER_BYTES {
            self.set_writable(true);
        }
    }

    /// Keeps one timer of the arbiter for the machine's next deadline. Deadlines move at every packet; the timer follows when it fires.
    fn schedule(&mut self) {
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

    fn now_stop(&mut self, ctx: &mut Context<Self>) {
        ctx.stop();
    }
}

/// A copy to try again with, where the machine may refuse a delivery: the Packet Identifier of a replicated queue's entry can be in use.
fn kept(delivery: &Delivery) -> Option<Delivery> {
    matches!(delivery.source, Source::Queue { .. }).then(|| delivery.clone())
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
        if !self.writable {
            node.metrics.hivemq.not_writable_current.dec();
        }
    }
}

impl Drop for Client {
    /// An actor that panicked costs its own connection and no more: its session learns that the connection is gone.
    fn drop(&mut self) {
        if self.over || !std::thread::panicking() {
            return;
        }
        tracing::error!(peer = ?self.accepted.peer, "a client's actor failed; its connection is closed");
        self.local.remove(self.connection.connection);
        self.local.node().connections.fetch_sub(1, Ordering::Relaxed);
        if self.counted {
            self.local.node().metrics.connection_closed(Initiator::Unspecified, None);
        }
        self.fail();
    }
}

impl Handler<Wake> for Client {
    type Result = ();

    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        self.now = clock::now();
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            self.handle_item(item);
        }
        if batch.capacity() <= 64 {
            self.batch = batch;
        }
        self.run_effects(ctx);
    }
}
