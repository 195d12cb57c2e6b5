//! The Hub of an arbiter: takes what other threads and nodes have for the arbiter's connections and hands it to their actors; keeps
//! the arbiter's timers.
//!
//! Fan-out crosses threads once per arbiter, not once per subscriber.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::{Actor, AsyncContext, Context};
use ahash::AHashMap;
use bytestring::ByteString;
use tokio::sync::oneshot;

use crate::cluster::chance;
use crate::mqtt::{Delivery, Message, QoS, ReasonCode, Source, SubscriptionIds};
use crate::replica::{ConnectionRef, ShardId, State};
use crate::signal::ConnectionFacts;

use super::client::ClientItem;
use super::clock;
use super::essential::Essential;
use super::holding::Holding;
use super::inbox::{Attends, Inbox, Mail, attend};
use super::node::Node;
use super::queue::{Queue, QueueItem};
use super::timers::{self, Timers};

pub type HubMail = Mail<HubItem>;
pub type ClientMail = Mail<ClientItem>;
pub type QueueMail = Mail<QueueItem>;

/// One local receiver of a fan-out.
#[derive(Debug, Clone)]
pub struct LocalTarget {
    pub connection: u64,
    pub qos: QoS,
    pub retain: bool,
    pub subscription_ids: SubscriptionIds,
}

/// What a hub is handed.
#[derive(Debug)]
pub enum HubItem {
    /// One message for several connections of this arbiter.
    Publish { message: Arc<Message>, targets: Vec<LocalTarget> },
    /// One delivery for one connection, through its queue.
    Enqueue { connection: u64, delivery: Box<Delivery> },
    /// An entry of a shared subscription, straight to the connection that was chosen.
    Dispatch { connection: u64, delivery: Box<Delivery> },
    /// The connection's replicated queue has new entries.
    Queued { connection: u64 },
    /// The shard's replica was replaced: connections of it that are not their sessions' any more are closed, the others look at their queues.
    Reconcile { shard: ShardId },
    /// The connection is to be taken over: it reads what its client sent, then drops `done`.
    Settle { connection: u64, done: oneshot::Sender<()> },
    /// The shard ended the connection.
    Close { connection: u64, reason_code: ReasonCode },
    /// The connection's client is kept out from now on.
    Banned { connection: u64, reason: String },
    /// Every connection is to be closed: the incarnation is lost, or there is no time left for more than a word.
    CloseAll { reason_code: ReasonCode, tell_shard: bool },
    /// Some connections are to leave: the node stops, drains or has too many. `told` counts them, up to `max`.
    PartWith { count: usize, registered: bool, told: Arc<AtomicU64>, max: u64 },
}

/// What a registered connection's queue starts with.
#[derive(Debug, Clone)]
pub struct Grant {
    pub facts: Arc<ConnectionFacts>,
    pub connection: ConnectionRef,
    pub shard: ShardId,
    /// The session's replicated queue may hold messages: it is persistent, or was until this connection resumed it.
    pub may_have_entries: bool,
    /// Messages of QoS above 0 that may be in flight.
    pub window: u16,
}

impl Grant {
    pub fn client(&self) -> &ByteString {
        &self.facts.client_id
    }
}

/// One of very many: small. Of its grant it has what is not known otherwise.
struct LocalClient {
    mail: ClientMail,
    queue: Option<Box<QueueMail>>,
    /// `None` until its CONNECT is accepted.
    facts: Option<Arc<ConnectionFacts>>,
    shard: ShardId,
    window: u16,
    may_have_entries: bool,
    /// Was asked to leave.
    leaves: bool,
}

impl LocalClient {
    fn new(mail: ClientMail) -> Self {
        Self { mail, queue: None, facts: None, shard: ShardId(0), window: 0, may_have_entries: false, leaves: false }
    }

    fn is_registered(&self) -> bool {
        self.facts.is_some()
    }

    fn grant(&self, connection: ConnectionRef) -> Option<Grant> {
        let Self { shard, may_have_entries, window, .. } = *self;
        self.facts.as_ref().map(|facts| Grant { facts: Arc::clone(facts), connection, shard, may_have_entries, window })
    }
}

/// The arbiter's connections and timers, reached directly by the actors of the same thread.
pub struct Local {
    node: Arc<Node>,
    arbiter: usize,
    clients: RefCell<AHashMap<u64, LocalClient>>,
    timers: RefCell<Timers>,
    pub(super) holding: Holding,
}

impl Local {
    pub fn new(node: Arc<Node>, arbiter: usize) -> Rc<Self> {
        let clients = RefCell::new(AHashMap::with_hasher(chance::hasher()));
        Rc::new(Self { node, arbiter, clients, timers: RefCell::default(), holding: Holding::default() })
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn arbiter(&self) -> usize {
        self.arbiter
    }

    /// A connection exists: deliveries may come for it from now on.
    pub fn insert(&self, connection: u64, mail: ClientMail) {
        self.clients.borrow_mut().insert(connection, LocalClient::new(mail));
    }

    /// The connection is over; its queue ends with it.
    pub fn remove(&self, connection: u64) {
        let gone = self.clients.borrow_mut().remove(&connection);
        if let Some(LocalClient { queue: Some(queue), .. }) = gone {
            queue.post(QueueItem::Stop);
        }
    }

    /// The connection was registered: its queue may deliver.
    pub fn grant(self: &Rc<Self>, connection: u64, grant: Grant) {
        let queue = {
            let mut clients = self.clients.borrow_mut();
            let Some(client) = clients.get_mut(&connection) else { return };
            client.facts = Some(Arc::clone(&grant.facts));
            (client.shard, client.window, client.may_have_entries) = (grant.shard, grant.window, grant.may_have_entries);
            client.queue.clone()
        };
        match queue {
            Some(queue) => queue.post(QueueItem::Grant(grant)),
            // A queue that outlives connections may have entries already: look at once.
            None if grant.may_have_entries => self.post(connection, QueueItem::Queued),
            None => {}
        }
    }

    /// Posts to the connection's queue actor, which is started at the first need. Nothing happens where the connection is gone.
    pub fn post(self: &Rc<Self>, connection: u64, item: QueueItem) {
        let mut clients = self.clients.borrow_mut();
        let Some(client) = clients.get_mut(&connection) else { return };
        if let Some(queue) = &client.queue {
            queue.post(item);
            return;
        }
        let grant = client.grant(self.node.connection_ref(connection));
        let queue = Queue::start_for(Rc::clone(self), connection, client.mail.clone(), grant);
        client.queue.insert(Box::new(queue)).post(item);
    }

    /// Posts to the queue actor if it was ever needed.
    pub fn post_existing(&self, connection: u64, item: QueueItem) {
        if let Some(LocalClient { queue: Some(queue), .. }) = self.clients.borrow().get(&connection) {
            queue.post(item);
        }
    }

    /// Asks for `ClientItem::Timeout` at about `due_ms` (monotonic), or sooner where that is far away; tells when.
    pub fn set_timer(&self, connection: u64, due_ms: u64, now_ms: u64) -> u64 {
        self.timers.borrow_mut().set(connection, due_ms, now_ms)
    }

    pub(super) fn mail(&self, connection: u64) -> Option<ClientMail> {
        self.clients.borrow().get(&connection).map(|c| c.mail.clone())
    }

    /// Whether the connection's CONNECT was accepted.
    pub(super) fn has_come_in(&self, connection: u64) -> bool {
        self.clients.borrow().get(&connection).is_some_and(LocalClient::is_registered)
    }

    fn fire_timers(&self, now_ms: u64) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now_ms);
            let Some(connection) = due else { break };
            if let Some(mail) = self.mail(connection) {
                mail.post(ClientItem::Timeout);
            }
        }
    }
}

/// The actor.
pub struct Hub {
    _essential: Essential,
    local: Rc<Local>,
    inbox: Arc<Inbox<HubItem>>,
    batch: Vec<HubItem>,
    ticks: u64,
}

impl Hub {
    /// Starts the hub of the arbiter it is called on.
    pub fn start(local: Rc<Local>) -> HubMail {
        let inbox = Arc::new(Inbox::default());
        Self { _essential: Essential("a hub"), local, inbox: Arc::clone(&inbox), batch: Vec::new(), ticks: 0 }.start();
        Mail::new(inbox)
    }

    fn handle_item(&self, item: HubItem) {
        match item {
            HubItem::Publish { message, targets } => self.publish(&message, targets),
            HubItem::Enqueue { connection, delivery } => {
                self.local.post(connection, QueueItem::Push { delivery, retained: false });
            }
            HubItem::Dispatch { connection, delivery } => {
                // For a connection that is gone nothing is to be done: its end reaches the dispatcher through the routing table.
                if let Some(mail) = self.local.mail(connection) {
                    mail.post(ClientItem::Deliver(delivery));
                }
            }
            HubItem::Queued { connection } => self.local.post(connection, QueueItem::Queued),
            HubItem::Reconcile { shard } => self.reconcile(shard),
            HubItem::Settle { connection, done } => {
                if let Some(mail) = self.local.mail(connection) {
                    mail.post(ClientItem::Settle { done });
                }
            }
            HubItem::Close { connection, reason_code } => {
                if let Some(mail) = self.local.mail(connection) {
                    mail.post(ClientItem::Close { reason_code, tell_shard: false });
                }
            }
            HubItem::Banned { connection, reason } => {
                if let Some(mail) = self.local.mail(connection) {
                    mail.post(ClientItem::Banned { reason });
                }
            }
            HubItem::CloseAll { reason_code, tell_shard } => {
                let clients: Vec<ClientMail> = self.local.clients.borrow().values().map(|c| c.mail.clone()).collect();
                for mail in clients {
                    mail.post(ClientItem::Close { reason_code, tell_shard });
                }
            }
            HubItem::PartWith { count, registered, told, max } => self.part_with(count, registered, &told, max),
        }
    }

    /// Asks connections to leave that were not asked before, `registered`: only those that came in.
    fn part_with(&self, count: usize, registered: bool, told: &AtomicU64, max: u64) {
        let mut mails = Vec::new();
        let mut clients = self.local.clients.borrow_mut();
        let candidates = clients.values_mut().filter(|client| !client.leaves && (client.is_registered() || !registered));
        for client in candidates.take(count) {
            let one_more = |told: u64| (told < max).then_some(told + 1);
            if told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
                break;
            }
            client.leaves = true;
            mails.push(client.mail.clone());
        }
        drop(clients);
        for mail in mails {
            mail.post(ClientItem::Leave);
        }
    }

    fn reconcile(&self, shard: ShardId) {
        let Some(cluster) = self.local.node().cluster() else { return };
        let node = self.local.node();
        let of_shard = |(connection, client): (&u64, &LocalClient)| {
            let grant = client.grant(node.connection_ref(*connection)).filter(|grant| grant.shard == shard)?;
            Some((*connection, client.mail.clone(), grant))
        };
        let local: Vec<_> = self.local.clients.borrow().iter().filter_map(of_shard).collect();
        for (connection, mail, grant) in local {
            let current = |state: &State| state.session(grant.client()).and_then(|session| session.connection);
            if cluster.read(shard, current).flatten() == Some(grant.connection) {
                self.local.post(connection, QueueItem::Queued);
            } else {
                mail.post(ClientItem::Close { reason_code: ReasonCode::SessionTakenOver, tell_shard: false });
            }
        }
    }

    fn publish(&self, message: &Arc<Message>, targets: Vec<LocalTarget>) {
        for target in targets {
            let delivery = Box::new(Delivery {
                message: Arc::clone(message),
                qos: target.qos,
                retain: target.retain,
                subscription_ids: target.subscription_ids,
                dup: false,
                source: Source::Local,
            });
            self.local.post(target.connection, QueueItem::Push { delivery, retained: false });
        }
    }
}

impl Actor for Hub {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        attend(ctx);
        ctx.run_interval(timers::TICK, |hub, _| {
            let now = clock::now();
            hub.local.fire_timers(now.mono_ms);
            hub.ticks += 1;
            if hub.ticks.is_multiple_of(QUEUE_TICKS) {
                let queues: Vec<QueueMail> =
                    hub.local.clients.borrow().values().filter_map(|c| c.queue.as_deref().cloned()).collect();
                for queue in queues {
                    queue.post(QueueItem::Tick);
                }
            }
        });
    }
}

/// Waiting messages are looked through for expired ones every this many ticks.
const QUEUE_TICKS: u64 = 5;

impl Attends for Hub {
    type Item = HubItem;

    fn inbox(&self) -> &Arc<Inbox<HubItem>> {
        &self.inbox
    }

    fn on_mail(&mut self, _: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            self.handle_item(item);
        }
        self.batch = batch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_takes_little_of_the_table() {
        assert!(size_of::<LocalClient>() <= 32, "{}", size_of::<LocalClient>());
    }
}
