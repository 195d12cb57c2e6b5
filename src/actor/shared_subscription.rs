//! The SharedSubscription actor: gives each message of a group's replicated queue to one member; lives on the node that leads the
//! group's shard and follows the leadership.
//!
//! Members are read from the routing table, entries from this node's replica, so a new leader's actor needs no hand-over: it offers every
//! entry again that was not acknowledged (QoS 1). What it hands out the shard has lent it before (`queue::lending`). A QoS 2 message begun with a member is completed with that member: such an entry moves
//! into the member's own replicated queue, exactly once, by the outbox.

mod assigning;
mod lending;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{Actor, ActorContext, AsyncContext, Context, WrapFuture};
use ahash::{AHashMap, AHashSet};
use bytestring::ByteString;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::PeerMessage;
use crate::mqtt::{Delivery, GroupId, Message, QoS, Source};
use crate::queue::{Dispatcher, Lending};
use crate::replica::body::INLINE_BYTES_MAX;
use crate::replica::command::{Assignment, QueueStep};
use crate::replica::session::{QueueEntry, Session};
use crate::replica::{Command, ConnectionRef, Fetch, Found, Look, Position, ShardId, State};
use crate::routing::Member;

use super::clock;
use super::essential::Essential;
use super::fetch::{self, Fetched};
use super::hub::HubItem;
use super::inbox::{Attends, Inbox, Mail, attend};
use super::node::Node;
use assigning::Moving;

pub type GroupMail = Mail<GroupItem>;

/// Entries a member may hold at a time.
const MEMBER_WINDOW: u32 = 32;
/// Entries read ahead from the replica.
const AHEAD_MAX: usize = 256;
/// About how many bytes of them; a larger one comes alone.
const AHEAD_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Pause before an entry is offered again that no member's node took.
const RETRY: Duration = Duration::from_millis(100);
/// The same where the members' own queues had no room, which an acknowledgement makes.
const BUSY_RETRY: Duration = Duration::from_millis(10);
/// Silence of a member's node about an entry before it is handed over again.
const RESEND: Duration = Duration::from_secs(5);

/// What a shared subscription's actor is told.
#[derive(Debug)]
pub enum GroupItem {
    /// The queue, the members or the leadership changed.
    Look,
    /// Members are done with entries.
    Done(Vec<u64>),
    /// A member has as much as it takes.
    Refused {
        seq: u64,
        member: (u64, u64, u64),
    },
    Stop,
}

/// The actors of this node, by group.
#[derive(Default)]
pub struct Groups {
    actors: Mutex<AHashMap<GroupId, GroupMail>>,
}

impl Groups {
    /// The group's actor, started if there is none.
    pub fn ensure(&self, node: &Arc<Node>, group: &GroupId) -> GroupMail {
        let mut actors = self.actors.lock();
        if let Some(mail) = actors.get(group) {
            return mail.clone();
        }
        let mail = SharedSubscription::start_for(node, group.clone());
        actors.insert(group.clone(), mail.clone());
        mail
    }

    pub fn get(&self, group: &GroupId) -> Option<GroupMail> {
        self.actors.lock().get(group).cloned()
    }

    pub fn remove(&self, group: &GroupId) {
        if let Some(mail) = self.actors.lock().remove(group) {
            mail.post(GroupItem::Stop);
        }
    }

    pub fn poke_all(&self) {
        for mail in self.actors.lock().values() {
            mail.post(GroupItem::Look);
        }
    }

    pub fn poke(&self, groups: &[GroupId]) {
        for group in groups {
            if let Some(mail) = self.get(group) {
                mail.post(GroupItem::Look);
            }
        }
    }

    /// Shared subscriptions of a client, as far as this node has actors at all.
    pub fn of_client(&self, node: &Node, client: &ByteString) -> Vec<GroupId> {
        if self.actors.lock().is_empty() {
            return Vec::new();
        }
        node.routing
            .subscriptions_of(client)
            .into_iter()
            .filter_map(|(filter, _, _)| filter.share.map(|share| GroupId { share, filter: filter.filter }))
            .collect()
    }

    pub fn member_changed(&self, node: &Node, client: &ByteString) {
        let groups = self.of_client(node, client);
        self.poke(&groups);
    }
}

/// The node gained or lost the leadership of a shard: its groups get or lose their actors here.
pub fn leadership(node: &Arc<Node>, shard: ShardId, leads: bool) {
    let Some(cluster) = node.cluster() else { return };
    let groups: Vec<GroupId> =
        cluster.read(shard, |state| state.groups().map(|(id, _)| id.clone()).collect()).unwrap_or_default();
    for group in groups {
        if leads {
            node.groups.ensure(node, &group).post(GroupItem::Look);
        } else {
            node.groups.remove(&group);
        }
    }
}

/// A member of this node is done with an entry: tells the dispatcher, wherever it is.
pub fn report(node: &Node, group: &GroupId, seq: u64) {
    let Some(cluster) = node.cluster() else { return };
    let shard = node.shard_of(&group.full());
    let reached = match cluster.leader(shard) {
        Some(leader) if leader == cluster.node() => {
            done(node, group, vec![seq]);
            true
        }
        Some(leader) => cluster.send(leader, PeerMessage::DispatchDone { group: group.clone(), entries: vec![(seq, true)] }),
        None => false,
    };
    if !reached {
        // No leader in reach: what was finished is still stored, when there is one.
        submit_steps(node, group, vec![(seq, QueueStep::Completed)]);
    }
}

/// A member of this node found that an entry expired, or that it cannot have it: the shard takes it out and says so, once. The dispatcher hears of
/// it after that, since what it stores says nothing of the reason.
pub fn lose(node: &Arc<Node>, group: GroupId, seq: u64, step: QueueStep, connection: ConnectionRef) {
    let Some(cluster) = node.cluster() else { return };
    let command = Command::AcknowledgeShared { group: group.clone(), steps: vec![(seq, step)] };
    let submitted = cluster.submit(node.shard_of(&group.full()), command);
    let node = Arc::clone(node);
    tokio::spawn(async move {
        match submitted.await {
            Ok(_) => report(&node, &group, seq),
            Err(_) => refuse(&node, &group, seq, connection),
        }
    });
}

/// A connection of this node has as many of the group's entries as it takes at a time: another member is to get this one.
pub fn refuse(node: &Node, group: &GroupId, seq: u64, connection: ConnectionRef) {
    let Some(cluster) = node.cluster() else { return };
    match cluster.leader(node.shard_of(&group.full())) {
        Some(leader) if leader == cluster.node() => refused(node, group, seq, connection),
        // One that gets lost is handed over again after a while.
        Some(leader) => {
            let _ = cluster.send(leader, PeerMessage::DispatchRefused { group: group.clone(), seq, connection });
        }
        None => {}
    }
}

/// A member took an entry not: for the dispatcher of this node.
pub fn refused(node: &Node, group: &GroupId, seq: u64, connection: ConnectionRef) {
    if let Some(mail) = node.groups.get(group) {
        let member = (connection.node, connection.incarnation, connection.connection);
        mail.post(GroupItem::Refused { seq, member });
    }
}

/// How long a member's node waits for its own replica to have the entry that was dispatched; then the dispatcher sends it again.
const STORED_PATIENCE: Duration = Duration::from_secs(4);
const STORED_LOOK: Duration = Duration::from_millis(10);

/// A large message of a group's queue for a member of this node: taken from this node's replica, which may be a moment behind.
pub async fn take_stored(
    node: Arc<Node>,
    connection: u64,
    (group, seq): (GroupId, u64),
    delivery: impl FnOnce(Arc<Message>, Source) -> Delivery,
) {
    let shard = node.shard_of(&group.full());
    let until = Instant::now() + STORED_PATIENCE;
    let message = loop {
        let read = |state: &State| state.look_at_group(&group, seq.saturating_sub(1), 1);
        let Look { mut found, fetch, .. } = node.cluster().and_then(|cluster| cluster.read(shard, read)).unwrap_or_default();
        let entry = match (found.pop().filter(|found| found.seq == seq).map(|found| found.entry), fetch) {
            (Some(None), Some(fetch)) => {
                let read = fetch::run(Arc::clone(&node.fetches), fetch).await.unwrap_or_default();
                read.into_iter().find(|entry| entry.seq == seq)
            }
            (found, _) => found.flatten(),
        };
        if let Some(message) = entry.and_then(|entry| entry.message) {
            break message;
        }
        if Instant::now() >= until {
            return;
        }
        tokio::time::sleep(STORED_LOOK).await;
    };
    if let Some(hub) = node.hub_of(connection) {
        let delivery = Box::new(delivery(message, Source::Share { group, seq }));
        hub.post(HubItem::Dispatch { connection, delivery });
    }
}

/// Entries are done with: for the dispatcher of this node.
pub fn done(node: &Node, group: &GroupId, seqs: Vec<u64>) {
    match node.groups.get(group) {
        Some(mail) => mail.post(GroupItem::Done(seqs)),
        None => submit_steps(node, group, seqs.into_iter().map(|seq| (seq, QueueStep::Completed)).collect()),
    }
}

fn submit_steps(node: &Node, group: &GroupId, steps: Vec<(u64, QueueStep)>) {
    if steps.is_empty() {
        return;
    }
    let Some(cluster) = node.cluster() else { return };
    let command = Command::AcknowledgeShared { group: group.clone(), steps };
    if cluster.submit_nowait(node.shard_of(&group.full()), command).is_err() {
        tracing::debug!(group = %group.full(), "acknowledged entries could not be stored and may be delivered again");
    }
}

/// The actor.
pub struct SharedSubscription {
    _essential: Essential,
    node: Arc<Node>,
    group: GroupId,
    shard: ShardId,
    inbox: Arc<Inbox<GroupItem>>,
    batch: Vec<GroupItem>,
    dispatcher: Dispatcher,
    /// Entries offered and not done with.
    entries: BTreeMap<u64, QueueEntry>,
    /// Entries that were read from the disk.
    fetched: Fetched,
    members: AHashMap<(u64, u64, u64), Member>,
    /// What they take at a time of QoS 1 and 2.
    windows: AHashMap<(u64, u64, u64), u32>,
    lending: Lending,
    /// Entries that members were done with; and what it was when it was to be seen whether more come.
    finished: u64,
    stall_from: Option<u64>,
    /// Lent entries are looked at in a while.
    expiry_look: bool,
    /// Entries handed to members of other nodes, and when: a link that breaks loses them, or the word that they are done.
    remote: BTreeMap<u64, Instant>,
    /// QoS 2 entries on their way into the members' own queues.
    moving: BTreeMap<u64, Moving>,
    /// Members that gave something back are tried again in a moment.
    retrying: bool,
    /// Whether somebody declared it when it was looked at last.
    declared: bool,
    /// The end of the queue is being made sure of.
    removing: bool,
}

impl SharedSubscription {
    fn start_for(node: &Arc<Node>, group: GroupId) -> GroupMail {
        let inbox = Arc::new(Inbox::default());
        let shard = node.shard_of(&group.full());
        let arbiter = node.arbiter(usize::from(shard.0));
        let actor = Self {
            _essential: Essential("a shared subscription"),
            node: Arc::clone(node),
            group,
            shard,
            inbox: Arc::clone(&inbox),
            batch: Vec::new(),
            dispatcher: Dispatcher::new(),
            entries: BTreeMap::new(),
            fetched: Fetched::default(),
            members: AHashMap::new(),
            windows: AHashMap::new(),
            lending: Lending::default(),
            finished: 0,
            stall_from: None,
            expiry_look: false,
            remote: BTreeMap::new(),
            moving: BTreeMap::new(),
            retrying: false,
            declared: false,
            removing: false,
        };
        match arbiter {
            Some(arbiter) => Self::start_in_arbiter(&arbiter, move |_| actor),
            None => actor.start(),
        };
        Mail::new(inbox)
    }

    fn look(&mut self, ctx: &mut Context<Self>) {
        if !self.node.cluster().is_some_and(|c| c.leads(self.shard)) {
            return;
        }
        let all = self.node.routing.members(&self.group);
        let was_declared = std::mem::replace(&mut self.declared, self.node.routing.is_declared(&self.group));
        let is_deserted = all.is_empty() && !self.declared;
        self.members = all.into_iter().filter_map(|m| m.route.state().connection.map(|c| (c, m))).collect();
        self.windows.retain(|key, _| self.members.contains_key(key));
        for (key, member) in &self.members {
            self.windows.entry(*key).or_insert_with(|| window(&self.node, member));
        }
        let window = |(key, member): (&(u64, u64, u64), &Member)| {
            let known = self.windows.get(key).filter(|_| member.options.qos != QoS::AtMostOnce);
            (*key, known.copied().unwrap_or(MEMBER_WINDOW))
        };
        let mut connected: Vec<_> = self.members.iter().map(window).collect();
        connected.sort_unstable();
        for seq in self.dispatcher.set_members(&connected) {
            self.remote.remove(&seq);
        }
        if is_deserted {
            self.remove_queue(was_declared, ctx);
            return;
        }
        self.settle_moved();
        self.read_ahead(ctx);
        let through = self.borrow(ctx);
        self.dispatch(through, ctx);
        if !self.moving.is_empty() {
            self.retry_after(BUSY_RETRY, ctx);
        }
    }

    fn forget(&mut self, seq: u64) {
        self.dispatcher.done(seq);
        self.entries.remove(&seq);
        self.remote.remove(&seq);
    }

    /// Nobody subscribes any more: the queue goes (spec/hivemq.md 2.6). But this node's table may be behind in other shards, where a
    /// member may be: first they are all brought to what they are now.
    fn remove_queue(&mut self, was_declared: bool, ctx: &mut Context<Self>) {
        let Some(cluster) = self.node.cluster().filter(|_| !self.removing) else { return };
        let queue = |state: &State| state.group(&self.group).map(|group| (group.queue_head.next_seq, group.queue.entries.len()));
        let Some((next_seq, messages)) = cluster.read(self.shard, queue).flatten() else { return };
        // Changes nothing; applied here when all that was acknowledged before is.
        let barrier = || Command::TrimOutbox { through: Position::default() };
        let barriers: Vec<_> = (0..cluster.shards()).map(|shard| cluster.submit(ShardId(shard), barrier())).collect();
        self.removing = true;
        ctx.spawn(join_all(barriers).into_actor(self).map(move |reached, actor, _| {
            actor.removing = false;
            let routing = &actor.node.routing;
            let is_deserted = routing.members(&actor.group).is_empty() && !routing.is_declared(&actor.group);
            if !is_deserted || reached.iter().any(Result::is_err) {
                return; // looked at again by the timer
            }
            let group = actor.group.full();
            if was_declared && messages > 0 {
                tracing::warn!(%group, messages, "a shared subscription is declared no more and has no member: its queue is removed");
            } else {
                tracing::debug!(%group, messages, "a shared subscription lost its last member: its queue is removed");
            }
            let command = Command::RemoveGroup { group: actor.group.clone(), next_seq };
            if actor.node.cluster().is_none_or(|cluster| cluster.submit_nowait(actor.shard, command).is_err()) {
                tracing::debug!(%group, "the queue stays for now: the shard is overloaded");
            }
        }));
    }

    fn read_ahead(&mut self, ctx: &mut Context<Self>) {
        let held = self.entries.values().filter_map(|entry| entry.message.as_ref());
        let mut bytes = held.map(|message| message.size_bytes()).sum::<usize>();
        if self.members.is_empty() || self.entries.len() >= AHEAD_MAX || bytes >= AHEAD_BYTES_MAX {
            return;
        }
        let (after, want) = (self.dispatcher.offered(), AHEAD_MAX - self.entries.len());
        let Some(cluster) = self.node.cluster() else { return };
        let look = cluster.read(self.shard, |state| state.look_at_group(&self.group, after, want));
        let Look { queue, found, fetch } = look.unwrap_or_default();
        let mut found = found.into_iter();
        while bytes < AHEAD_BYTES_MAX
            && let Some(Found { seq, entry, .. }) = found.next()
        {
            let Some(entry) = entry.or_else(|| self.fetched.take(queue, seq)) else {
                // Nothing overtakes what is on disk.
                let last = found.take_while(|found| found.entry.is_none()).last().map_or(seq, |found| found.seq);
                if let Some(fetch) = fetch {
                    self.fetch((queue, seq), fetch.of(seq, last), ctx);
                }
                return;
            };
            if let Some(message) = &entry.message {
                bytes += message.size_bytes();
                if message.expires_at_ms().is_some() {
                    self.lending.saw_expiry();
                }
            }
            self.dispatcher.offer([seq]);
            self.entries.insert(seq, entry);
        }
    }

    /// Reads entries from the disk, and goes on when they are there.
    fn fetch(&mut self, (queue, first): (u64, u64), fetch: Fetch, ctx: &mut Context<Self>) {
        if !self.fetched.begin(queue, first) {
            return;
        }
        let reading = fetch::run(Arc::clone(&self.node.fetches), fetch).into_actor(self);
        ctx.spawn(reading.map(|read, actor, ctx| {
            if actor.fetched.end(read) {
                actor.look(ctx);
            } else {
                actor.fetched.stop_where_missing(&actor.node);
                ctx.run_later(fetch::RETRY, |actor, ctx| {
                    actor.fetched.resume();
                    actor.look(ctx);
                });
            }
        }));
    }

    fn dispatch(&mut self, through: u64, ctx: &mut Context<Self>) {
        let level = self.node.cluster().map_or(0, |cluster| cluster.level());
        let mut refused = None;
        let (mut assignments, mut busy) = (Vec::new(), AHashSet::new());
        for handed in self.dispatcher.dispatch(through) {
            let Some(entry) = self.entries.get(&handed.seq) else {
                self.dispatcher.done(handed.seq);
                continue;
            };
            let Some(message) = entry.message.clone() else {
                self.finish(handed.seq, QueueStep::Completed);
                continue;
            };
            let Some(member) = self.members.get(&handed.member) else { continue };
            // A QoS 2 message that a member was given is not in this queue any more.
            let nobody_has_it = level < Command::LEND_SHARED_SINCE
                || self.lending.is_known(handed.seq)
                || message.qos.min(member.options.qos) != QoS::AtLeastOnce;
            if nobody_has_it && message.is_expired(clock::wall_ms()) {
                self.finish(handed.seq, QueueStep::Expired);
                continue;
            }
            if message.qos.min(member.options.qos) == QoS::ExactlyOnce {
                // Once busy, busy for this turn: what is behind an entry that it could not take must not come before it.
                if busy.contains(&handed.member) || self.is_busy(handed.member, member) {
                    busy.insert(handed.member);
                    self.dispatcher.give_back(handed.seq);
                    refused = Some(BUSY_RETRY);
                    continue;
                }
                let (client, shard) = (member.route.client.clone(), ShardId(member.route.shard));
                assignments.push(Assignment {
                    seq: handed.seq,
                    client: client.clone(),
                    retain: message.retain && member.options.retain_as_published,
                    subscription_ids: member.identifier.into_iter().collect(),
                });
                self.moving.insert(handed.seq, Moving { client, shard, is_stored: false });
                self.entries.remove(&handed.seq);
                continue;
            }
            let delivery = self.delivery(handed.seq, message, member);
            if !self.hand_over(handed.member, member.route.client.clone(), delivery) {
                self.dispatcher.give_back(handed.seq);
                refused = Some(RETRY);
            } else if !self.node.is_local(handed.member) {
                self.remote.insert(handed.seq, Instant::now());
            }
        }
        self.assign(assignments, ctx);
        if let Some(pause) = refused {
            self.retry_after(pause, ctx);
        }
    }

    fn retry_after(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.retrying, true) {
            ctx.run_later(pause, |actor, ctx| {
                actor.retrying = false;
                actor.dispatcher.retry();
                actor.look(ctx);
            });
        }
    }

    /// Forgets what was offered; the next look reads the queue from its start. Members may get again what they hold (QoS 1).
    fn restart(&mut self) {
        self.dispatcher = Dispatcher::new();
        self.lending.forget_holders();
        self.entries.clear();
        self.remote.clear();
        self.moving.clear();
    }

    /// Hands entries again to members of other nodes that have not said for a while that they are done. A member that still has an entry
    /// in flight ignores the second one.
    fn hand_over_again(&mut self) {
        let overdue: Vec<u64> = self.remote.iter().filter(|(_, at)| at.elapsed() >= RESEND).map(|(seq, _)| *seq).collect();
        for seq in overdue {
            // Acknowledged by way of another node: where this one did not lead yet, or was out of reach.
            if !self.is_queued(seq) {
                self.dispatcher.done(seq);
                self.entries.remove(&seq);
                self.remote.remove(&seq);
                continue;
            }
            let handed = self.dispatcher.holder(seq).and_then(|key| Some((key, self.members.get(&key)?)));
            let message = self.entries.get(&seq).and_then(|entry| entry.message.clone());
            let (Some((key, member)), Some(message)) = (handed, message) else {
                self.remote.remove(&seq);
                continue;
            };
            let (client, delivery) = (member.route.client.clone(), self.delivery(seq, message, member));
            if self.hand_over(key, client, delivery) {
                self.remote.insert(seq, Instant::now());
            }
        }
    }

    fn is_queued(&self, seq: u64) -> bool {
        let read =
            |state: &State| state.look_at_group(&self.group, seq.saturating_sub(1), 1).found.first().map(|found| found.seq);
        self.node.cluster().and_then(|cluster| cluster.read(self.shard, read)).flatten() == Some(seq)
    }

    fn delivery(&self, seq: u64, message: Arc<Message>, member: &Member) -> Delivery {
        Delivery {
            qos: message.qos.min(member.options.qos),
            retain: message.retain && member.options.retain_as_published,
            subscription_ids: member.identifier.into_iter().collect(),
            dup: false,
            source: Source::Share { group: self.group.clone(), seq },
            message,
        }
    }

    fn hand_over(&self, member: (u64, u64, u64), client: ByteString, delivery: Delivery) -> bool {
        if self.node.is_local(member) {
            let Some(hub) = self.node.hub_of(member.2) else { return false };
            hub.post(HubItem::Dispatch { connection: member.2, delivery: Box::new(delivery) });
            return true;
        }
        let Source::Share { group, seq } = delivery.source else { return false };
        let connection = ConnectionRef { node: member.0, incarnation: member.1, connection: member.2 };
        if delivery.message.payload.len() > INLINE_BYTES_MAX {
            let dispatch = PeerMessage::DispatchStored {
                group,
                seq,
                qos: delivery.qos,
                retain: delivery.retain,
                subscription_ids: delivery.subscription_ids,
                dup: delivery.dup,
                client,
                connection,
            };
            return self.node.cluster().is_some_and(|cluster| cluster.send(member.0, dispatch));
        }
        let dispatch = PeerMessage::Dispatch {
            group,
            seq,
            message: delivery.message,
            qos: delivery.qos,
            retain: delivery.retain,
            subscription_ids: delivery.subscription_ids,
            dup: delivery.dup,
            client,
            connection,
        };
        self.node.cluster().is_some_and(|cluster| cluster.send(member.0, dispatch))
    }

    fn finish(&mut self, seq: u64, step: QueueStep) {
        self.forget(seq);
        submit_steps(&self.node, &self.group, vec![(seq, step)]);
    }

    fn entries_done(&mut self, seqs: &[u64]) {
        if !seqs.is_empty() {
            self.finished += 1;
            self.lending.finished();
        }
        seqs.iter().for_each(|seq| self.forget(*seq));
        submit_steps(&self.node, &self.group, seqs.iter().map(|seq| (*seq, QueueStep::Completed)).collect());
    }
}

impl Actor for SharedSubscription {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        attend(ctx);
        ctx.run_interval(RESEND, |actor, ctx| {
            actor.hand_over_again();
            actor.look(ctx);
        });
    }
}

impl Attends for SharedSubscription {
    type Item = GroupItem;

    fn inbox(&self) -> &Arc<Inbox<GroupItem>> {
        &self.inbox
    }

    fn on_mail(&mut self, ctx: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        let mut completed = Vec::new();
        for item in batch.drain(..) {
            match item {
                GroupItem::Look => {}
                GroupItem::Done(mut entries) => completed.append(&mut entries),
                GroupItem::Refused { seq, member } => {
                    // It may have gone to another meanwhile.
                    if self.dispatcher.holder(seq) == Some(member) {
                        self.dispatcher.refuse(seq);
                        self.remote.remove(&seq);
                        self.retry_after(RETRY, ctx);
                    }
                }
                GroupItem::Stop => {
                    ctx.stop();
                    return;
                }
            }
        }
        self.batch = batch;
        self.entries_done(&completed);
        self.look(ctx);
    }
}

/// How many entries a member takes at a time, as far as its session says; it refuses what is more.
fn window(node: &Node, member: &Member) -> u32 {
    let window = |state: &State| state.session(&member.route.client).map(Session::window);
    let read = node.cluster().and_then(|cluster| cluster.read(ShardId(member.route.shard), window)).flatten();
    read.and_then(|window| u32::try_from(window).ok()).map_or(MEMBER_WINDOW, |window| window.min(MEMBER_WINDOW))
}
