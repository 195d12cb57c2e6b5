//! The Queue actor of a connection: holds what waits in memory (`queue::ClientQueue`) and follows the session's replicated queue in
//! this node's replica; hands the Client as much as its window takes.
//!
//! It lives where the client is connected, on the client's arbiter, and reads the local replica: no hop to the shard's leader, and a
//! change of leader does not disturb deliveries (ARCHITECTURE.md gives the reason).

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{Actor, ActorContext, AsyncContext, Context, WrapFuture};

use crate::mqtt::{Delivery, Message, QoS, Source};
use crate::queue::{ClientQueue, Pop, Push};
use crate::replica::command::QueueStep;
use crate::replica::session::QueueEntry;
use crate::replica::{Command, Fetch, Found, Look, State};
use crate::signal::{DropReason, Receiver};

use super::client::ClientItem;
use super::clock;
use super::fetch::{self, Fetched};
use super::hub::{ClientMail, Grant, Local, QueueMail};
use super::inbox::{Attends, Inbox, Mail, attend};

/// Entries read from the replica at a time.
const READ_MAX: usize = 64;

/// What is handed to the client at once; more when that is on the socket. It bounds what a socket that takes no more is left with.
const BATCH_MESSAGES_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 256 * 1024;

/// Before the replica is looked at again for acknowledgements that are on their way.
const AHEAD_PAUSE: Duration = Duration::from_millis(2);

/// What a queue is told.
#[derive(Debug)]
pub enum QueueItem {
    Push {
        delivery: Box<Delivery>,
        retained: bool,
    },
    /// The replicated queue has new entries.
    Queued,
    /// The connection is registered.
    Grant(Grant),
    /// So many deliveries of QoS above 0 are done with.
    Completed(usize),
    /// The socket takes more, or does not.
    Writable(bool),
    /// The client is done with what was handed out.
    HandMore,
    /// Look for expired messages.
    Tick,
    Stop,
}

/// What is handed out in one turn.
#[derive(Default)]
struct Batch {
    messages: usize,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, message: Option<&Message>) {
        self.messages += 1;
        self.bytes += message.map_or(0, Message::size_bytes);
    }

    fn is_full(&self) -> bool {
        self.messages >= BATCH_MESSAGES_MAX || self.bytes >= BATCH_BYTES_MAX
    }
}

/// What a look at the replicated queue gave.
#[derive(Default)]
struct Entries {
    look: Look,
    /// How many might have come: as many as were asked for, or fewer.
    allowed: usize,
}

/// The actor.
pub struct Queue {
    local: Rc<Local>,
    client: ClientMail,
    inbox: Arc<Inbox<QueueItem>>,
    batch: Vec<QueueItem>,
    grant: Option<Grant>,
    waiting: ClientQueue,
    /// Position in the replicated queue up to which entries were handed out.
    cursor: u64,
    /// Entries up to it were sent on an earlier connection.
    sent_seq: u64,
    may_have_entries: bool,
    /// Entries of the replicated queue that were read from the disk.
    fetched: Fetched,
    /// Deliveries of QoS above 0 handed out and not done with.
    outstanding: usize,
    writable: bool,
    /// The client has a full batch.
    handing: bool,
    connection: u64,
    /// A look at the replica is due.
    looking: bool,
    /// Told to `Node::congestion`.
    congested: bool,
}

impl Queue {
    /// Starts the queue of a connection on the arbiter it is called on.
    pub fn start_for(local: Rc<Local>, connection: u64, client: ClientMail, grant: Option<Grant>) -> QueueMail {
        tracing::trace!(connection, "queue starts");
        let inbox = Arc::new(Inbox::default());
        let queue = Self {
            local,
            client,
            inbox: Arc::clone(&inbox),
            batch: Vec::new(),
            grant: None,
            waiting: ClientQueue::new(),
            cursor: 0,
            sent_seq: 0,
            may_have_entries: false,
            fetched: Fetched::default(),
            outstanding: 0,
            writable: true,
            handing: false,
            connection,
            looking: false,
            congested: false,
        };
        queue.start();
        let mail = Mail::new(inbox);
        if let Some(grant) = grant {
            mail.post(QueueItem::Grant(grant));
        }
        mail
    }

    fn handle_item(&mut self, item: QueueItem, ctx: &mut Context<Self>) {
        match item {
            QueueItem::Push { delivery, retained } => self.push(*delivery, retained),
            QueueItem::Queued => self.may_have_entries = true,
            QueueItem::Grant(grant) => self.granted(grant),
            QueueItem::Completed(count) => self.outstanding = self.outstanding.saturating_sub(count),
            QueueItem::Writable(writable) => {
                self.writable = writable;
                self.handing = false;
            }
            QueueItem::HandMore => self.handing = false,
            QueueItem::Tick => self.expire(),
            QueueItem::Stop => ctx.stop(),
        }
    }

    fn granted(&mut self, grant: Grant) {
        self.may_have_entries = grant.may_have_entries;
        let sent = self.local.node().cluster().and_then(|cluster| {
            cluster.read(grant.shard, |state| state.session(grant.client()).map(|s| s.queue_head.sent_seq)).flatten()
        });
        self.sent_seq = sent.unwrap_or(0);
        self.grant = Some(grant);
    }

    fn push(&mut self, delivery: Delivery, retained: bool) {
        let node = self.local.node();
        // What goes on at once needs no memory of the node's: slow readers cost the others nothing.
        let waits = !self.writable || self.handing || self.grant.is_none() || self.waiting.qos0_bytes() >= BATCH_BYTES_MAX;
        let full = waits && node.qos0_bytes.load(Ordering::Relaxed) >= node.settings.qos0_total_bytes_max;
        if delivery.qos == QoS::AtMostOnce && full {
            self.raise_dropped(&delivery, DropReason::Qos0MemoryExceeded);
            return;
        }
        let before = self.waiting.qos0_bytes();
        let in_flight = u32::try_from(self.outstanding).unwrap_or(u32::MAX);
        let outcome = self.waiting.push(delivery, retained, in_flight, &node.settings.queue);
        self.account(before);
        if let Push::Dropped { delivery, reason, .. } = outcome {
            self.raise_dropped(&delivery, reason);
        }
    }

    /// Tells publishers when the queue is half full, and when it is clearly below again.
    fn tell_congestion(&mut self) {
        let limit = self.local.node().settings.queue.max_queue_size as usize;
        let waiting = self.waiting.counted_len();
        let congested = if self.congested { waiting > limit * 3 / 8 } else { waiting > limit / 2 };
        if congested != self.congested {
            self.congested = congested;
            self.local.node().congestion.set(self.connection, congested);
        }
    }

    /// Keeps the node's sum of waiting QoS 0 bytes.
    fn account(&self, before: usize) {
        let after = self.waiting.qos0_bytes();
        let total = &self.local.node().qos0_bytes;
        if after >= before {
            total.fetch_add(after - before, Ordering::Relaxed);
        } else {
            total.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn expire(&mut self) {
        let now_ms = clock::wall_ms();
        self.expire_entries(now_ms);
        if self.waiting.next_expiry_ms().is_some_and(|due| due <= now_ms) {
            let before = self.waiting.qos0_bytes();
            for delivery in self.waiting.take_expired(now_ms) {
                self.raise_expired(&delivery, now_ms);
            }
            self.account(before);
        }
    }

    /// Hands out what the window and the socket take.
    fn pump(&mut self, ctx: &mut Context<Self>) {
        let Some(grant) = &self.grant else { return };
        if !self.writable || self.handing {
            return;
        }
        let window = usize::from(grant.window);
        let mut batch = Batch::default();
        if self.may_have_entries && self.outstanding < window {
            self.pump_entries(window - self.outstanding, &mut batch, ctx);
        }
        let now_ms = clock::wall_ms();
        let before = self.waiting.qos0_bytes();
        while !batch.is_full() {
            // What a session kept, and goes on without being kept, is older than what comes now [MQTT-4.6.0-5].
            let room = if self.may_have_entries { 0 } else { window.saturating_sub(self.outstanding) };
            match self.waiting.pop(room, now_ms) {
                Pop::Deliver(delivery) => {
                    if delivery.qos != QoS::AtMostOnce {
                        self.outstanding += 1;
                    }
                    batch.add(Some(&delivery.message));
                    self.client.post(ClientItem::Deliver(delivery));
                }
                Pop::Expired(delivery) => self.raise_expired(&delivery, now_ms),
                Pop::Empty => break,
            }
        }
        self.account(before);
        if batch.is_full() {
            self.handing = true;
            self.client.post(ClientItem::HandMore);
        }
    }

    fn pump_entries(&mut self, room: usize, batch: &mut Batch, ctx: &mut Context<Self>) {
        let Some(grant) = self.grant.clone() else { return };
        let want = room.min(READ_MAX);
        let cursor = self.cursor;
        let Entries { look: Look { queue, found, fetch }, allowed } = self.entries_after(&grant, cursor, want);
        self.may_have_entries = found.len() == allowed;
        // As far ahead of the applied acknowledgements as may be: nobody tells when they are applied.
        if self.may_have_entries && allowed < want && !self.looking {
            self.looking = true;
            ctx.run_later(AHEAD_PAUSE, |queue, ctx| {
                queue.looking = false;
                queue.pump(ctx);
            });
        }
        let mut found = found.into_iter();
        while let Some(Found { seq, entry, .. }) = found.next() {
            if batch.is_full() {
                self.may_have_entries = true;
                break;
            }
            let Some(entry) = entry.or_else(|| self.fetched.take(queue, seq)) else {
                // Nothing overtakes what is on disk.
                self.may_have_entries = true;
                let last = found.take_while(|found| found.entry.is_none()).last().map_or(seq, |found| found.seq);
                if let Some(fetch) = fetch {
                    self.fetch((queue, seq), fetch.of(seq, last), ctx);
                }
                break;
            };
            batch.add(entry.message.as_deref());
            self.cursor = entry.seq;
            self.outstanding += 1;
            self.client.post(self.item_of(entry));
        }
    }

    /// Reads entries from the disk, and goes on when they are there.
    fn fetch(&mut self, (queue, first): (u64, u64), fetch: Fetch, ctx: &mut Context<Self>) {
        if !self.fetched.begin(queue, first) {
            return;
        }
        let reading = fetch::run(Arc::clone(&self.local.node().fetches), fetch).into_actor(self);
        ctx.spawn(reading.map(|read, queue, ctx| {
            if queue.fetched.end(read) {
                queue.pump(ctx);
            } else {
                queue.fetched.stop_where_missing(queue.local.node());
                ctx.run_later(fetch::RETRY, |queue, ctx| {
                    queue.fetched.resume();
                    queue.pump(ctx);
                });
            }
        }));
    }

    /// Entries of the replicated queue, as many as keeps what was handed out among its first [`Session::window`](crate::replica::Session::window): the
    /// shard counts on that where it discards, and where this node dies. Only while this connection is the session's: one that was declared dead, and does not know it yet, must
    /// hand out nothing that its successor counts as not sent.
    fn entries_after(&self, grant: &Grant, after: u64, max: usize) -> Entries {
        let read = |state: &State| {
            let current = state.session(grant.client()).filter(|session| session.connection == Some(grant.connection));
            let Some(current) = current else { return Entries { look: Look::default(), allowed: max } };
            let handed = state.handed_out(grant.client(), after);
            let allowed = max.min(current.window().saturating_sub(handed));
            Entries { look: state.look(grant.client(), after, allowed), allowed }
        };
        self.local.node().cluster().and_then(|cluster| cluster.read(grant.shard, read)).unwrap_or_default()
    }

    /// Takes out of the replicated queue what expired while the window was closed. The shard leaves the first entries of a connected client's
    /// queue to this node, which alone knows which of them were sent.
    fn expire_entries(&self, now_ms: u64) {
        let Some(grant) = self.grant.as_ref().filter(|_| self.may_have_entries) else { return };
        let expired = |found: &Found| found.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let found = self.entries_after(grant, self.cursor, READ_MAX).look.found.into_iter();
        let steps: Vec<_> = found.filter(expired).map(|found| (found.seq, QueueStep::Expired)).collect();
        if steps.is_empty() {
            return;
        }
        let command = Command::Acknowledge { client: grant.client().clone(), connection: grant.connection, steps };
        if self.local.node().cluster().is_none_or(|cluster| cluster.submit_nowait(grant.shard, command).is_err()) {
            tracing::debug!(client = %grant.client(), "expired messages stay in the queue for now: the shard is overloaded");
        }
    }

    fn item_of(&self, entry: QueueEntry) -> ClientItem {
        match entry.message {
            Some(message) => ClientItem::Deliver(Box::new(Delivery {
                message,
                qos: entry.qos,
                retain: entry.retain,
                subscription_ids: entry.subscription_ids,
                dup: entry.seq <= self.sent_seq,
                source: Source::Queue { seq: entry.seq },
            })),
            None => ClientItem::ResumeRelease { seq: entry.seq },
        }
    }

    fn receiver(&self, delivery: &Delivery) -> Option<Receiver> {
        let client = self.grant.as_ref()?.client().clone();
        Some(match &delivery.source {
            Source::Member { group } => Receiver::member(group.full(), client),
            _ => Receiver::Client(client),
        })
    }

    fn raise_dropped(&self, delivery: &Delivery, reason: DropReason) {
        if let Some(receiver) = self.receiver(delivery) {
            self.local.node().signals.dropped(delivery, receiver, reason, clock::wall_ms());
        }
    }

    fn raise_expired(&self, delivery: &Delivery, now_ms: u64) {
        if let Some(receiver) = self.receiver(delivery) {
            self.local.node().signals.expired(delivery, receiver, now_ms);
        }
    }
}

impl Actor for Queue {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        attend(ctx);
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        // The QoS 0 messages of a connection go with it and are not counted as dropped (spec/hivemq.md 2.1).
        self.local.node().qos0_bytes.fetch_sub(self.waiting.qos0_bytes(), Ordering::Relaxed);
        if self.congested {
            self.local.node().congestion.set(self.connection, false);
        }
    }
}

impl Attends for Queue {
    type Item = QueueItem;

    fn inbox(&self) -> &Arc<Inbox<QueueItem>> {
        &self.inbox
    }

    fn on_mail(&mut self, ctx: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        let mut pumped = false;
        for item in batch.drain(..) {
            self.handle_item(item, ctx);
            // What fills the room came in this very turn, one large message maybe: a client that takes it loses nothing behind it.
            if !pumped && self.waiting.qos0_bytes() >= self.local.node().settings.queue.qos0_bytes_max {
                pumped = true;
                self.pump(ctx);
            }
        }
        self.batch = batch;
        self.pump(ctx);
        self.tell_congestion();
    }
}
