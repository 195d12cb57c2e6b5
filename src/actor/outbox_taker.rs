//! The OutboxTaker actor of a shard: while this node leads the shard it takes, from every shard's outbox, what matches sessions, groups
//! and retained topics of its own shard, and proposes it together with the new position. The position is part of the shard's state and is
//! checked when the command applies, so nothing is lost and nothing taken twice, whoever leads (design.md 4).
//!
//! Outboxes are read from this node's own replicas. The leader of the source shard also decides, in the same command, what nobody
//! subscribes to at all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{Actor, AsyncContext, Context, WrapFuture};
use bytestring::ByteString;
use tokio::time::Instant;

use crate::mqtt::{GroupId, Message, Origin, QoS, SubscriptionIds};
use crate::replica::command::TakeCommand;
use crate::replica::{Command, OutboxEvent, Position, ShardId, Target};
use crate::routing::GroupMatch;
use crate::signal::namespace::{Namespace, is_told_already};
use crate::signal::{Dead, DropReason, Dropped, Receiver, RenderedOnce, Signal};

use super::essential::Essential;
use super::inbox::{Attends, Inbox, Mail, attend};
use super::node::Node;
use super::retaining::{self, Reserved, Room};
use super::{clock, publish};

pub type TakerMail = Mail<TakerItem>;

/// Events taken in one command.
const TAKE_MAX: usize = 1024;
/// Bytes of messages in one command, about; a larger one goes alone.
const TAKE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the names of one message's receivers in one command: far more than there are sessions in a shard, unless their names are
/// of the longest.
const TARGETS_BYTES_MAX: usize = 24 * 1024 * 1024;
/// A position that moved past events without receivers here is stored at least this often.
const POSITION_INTERVAL: Duration = Duration::from_secs(1);
/// And this soon where something of its own shard waits for that to be counted.
const COUNT_DELAY: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_millis(100);

/// What a taker is told.
#[derive(Debug, Clone, Copy)]
pub enum TakerItem {
    /// Some outbox has new events.
    Look,
    Leads(bool),
}

/// The actor.
pub struct OutboxTaker {
    _essential: Essential,
    node: Arc<Node>,
    shard: ShardId,
    inbox: Arc<Inbox<TakerItem>>,
    batch: Vec<TakerItem>,
    leads: bool,
    busy: bool,
    /// For each source how far this leader has looked; the stored position may be behind where nothing matched.
    seen: Vec<Position>,
    stored_at: Instant,
    /// Of its own shard, behind the stored position.
    uncounted: Vec<Uncounted>,
    /// A time to store its own shard's position is set.
    to_count: bool,
    /// The source whose turn is next.
    next: usize,
}

/// Counted by the leader of its shard, as soon as no other will look at it again: once in the cluster.
enum Uncounted {
    Event(Arc<OutboxEvent>),
    /// What nobody subscribes to; whether a message tells of it.
    Dead {
        signal: Signal,
        made: bool,
    },
    /// What nobody subscribes to, nor to what would tell of it.
    Unheard(ByteString),
}

/// What one look at an outbox found.
struct Taken {
    command: TakeCommand,
    /// QoS 0 messages of shared subscriptions, for one member each once the command is stored.
    direct: Vec<(Arc<Message>, GroupMatch)>,
    /// Messages for which there is no room among the retained ones, to be told once the command is stored.
    not_retained: Vec<Arc<Message>>,
    /// Room for those that are.
    reserved: Vec<Reserved>,
    /// What is to be counted once the position is stored.
    uncounted: Vec<Uncounted>,
    /// What found no room and is told of no further; counted once the command is stored.
    refused: Vec<Dropped>,
    /// How much more the queues take that were asked.
    rooms: Rooms,
    /// Nothing to store but the position.
    empty: bool,
}

/// By their owners; `None` where there is always room.
#[derive(Default)]
struct Rooms {
    sessions: HashMap<ByteString, Option<usize>>,
    groups: HashMap<GroupId, Option<usize>>,
}

impl Taken {
    fn only(command: TakeCommand) -> Self {
        let (direct, not_retained, reserved, uncounted, refused, rooms) = Default::default();
        Self { command, direct, not_retained, reserved, uncounted, refused, rooms, empty: true }
    }
}

impl OutboxTaker {
    /// Starts the taker of a shard on the arbiter it is called on.
    pub fn start_for(node: Arc<Node>, shard: ShardId, shards: u16) -> TakerMail {
        let inbox = Arc::new(Inbox::default());
        let taker = Self {
            _essential: Essential("an outbox taker"),
            node,
            shard,
            inbox: Arc::clone(&inbox),
            batch: Vec::new(),
            leads: false,
            busy: false,
            seen: vec![Position::default(); usize::from(shards)],
            stored_at: Instant::now(),
            uncounted: Vec::new(),
            to_count: false,
            next: 0,
        };
        taker.start();
        Mail::new(inbox)
    }

    /// Looks at every outbox in turn and proposes the first thing found; goes on when that is applied.
    fn look(&mut self, ctx: &mut Context<Self>) {
        if !self.leads || self.busy {
            return;
        }
        let store_positions = self.stored_at.elapsed() >= POSITION_INTERVAL;
        let first = self.next;
        for source in (first..self.seen.len()).chain(0..first) {
            // One that always has something must not keep the others waiting.
            self.next = (source + 1) % self.seen.len();
            let Ok(number) = u16::try_from(source) else { break };
            while let Some(mut taken) = self.take(ShardId(number)) {
                self.uncounted.append(&mut taken.uncounted);
                let moved = taken.command.to;
                if let Some(seen) = self.seen.get_mut(source) {
                    *seen = moved;
                }
                if !taken.empty {
                    self.propose(taken, ctx);
                    return;
                }
            }
            if store_positions && let Some(command) = self.position_to_store(ShardId(number)) {
                let none = Taken::only(command);
                self.propose(none, ctx);
                return;
            }
        }
        if store_positions {
            self.stored_at = Instant::now();
        }
        if !self.uncounted.is_empty() && !self.to_count {
            self.to_count = true;
            ctx.run_later(COUNT_DELAY, Self::store_own);
        }
    }

    /// Stores how far it has looked at its own shard's outbox, unless that is about to be done.
    fn store_own(&mut self, ctx: &mut Context<Self>) {
        self.to_count = false;
        if self.leads
            && !self.busy
            && let Some(command) = self.position_to_store(self.shard)
        {
            self.propose(Taken::only(command), ctx);
        }
    }

    fn stored(&self, source: ShardId) -> Position {
        let shard = self.shard;
        self.node.cluster().and_then(|c| c.read(shard, |state| state.taken(source))).unwrap_or_default()
    }

    fn seen(&self, source: ShardId) -> Position {
        let seen = self.seen.get(usize::from(source.0)).copied().unwrap_or_default();
        seen.max(self.stored(source))
    }

    fn position_to_store(&self, source: ShardId) -> Option<TakeCommand> {
        let (from, to) = (self.stored(source), self.seen(source));
        (to > from).then(|| TakeCommand { source, from, to, enqueue: Vec::new(), retain: Vec::new(), republish: Vec::new() })
    }

    /// The next part of a source's outbox; `None` where there is no more.
    fn take(&self, source: ShardId) -> Option<Taken> {
        let after = self.seen(source);
        let events = self.node.cluster()?.read(source, |state| state.outbox_after(after, TAKE_MAX))?;
        let to = events.first()?.0;
        let command =
            TakeCommand { source, from: self.stored(source), to, enqueue: Vec::new(), retain: Vec::new(), republish: Vec::new() };
        let now_ms = clock::wall_ms();
        let mut taken = Taken::only(command);
        let (mut bytes, mut names) = (0, 0);
        for (at, (position, event)) in events.iter().enumerate() {
            bytes += event.size_bytes();
            if at > 0 && bytes.max(names) > TAKE_BYTES_MAX {
                break;
            }
            let (enqueued, refused) = (taken.command.enqueue.len(), taken.refused.len());
            self.take_event(event, source, now_ms, &mut taken);
            names +=
                taken.command.enqueue.iter().skip(enqueued).flat_map(|(_, targets)| targets).map(target_bytes).sum::<usize>();
            taken.command.to = *position;
            bytes += (taken.refused.len() - refused) * size_of::<Dropped>();
        }
        let TakeCommand { enqueue, retain, republish, .. } = &taken.command;
        let stores_nothing = enqueue.is_empty() && retain.is_empty() && republish.is_empty();
        taken.empty = stores_nothing && taken.direct.is_empty() && taken.not_retained.is_empty() && taken.refused.is_empty();
        Some(taken)
    }

    fn take_event(&self, event: &Arc<OutboxEvent>, source: ShardId, now_ms: u64, taken: &mut Taken) {
        let Taken { command, direct, not_retained, reserved, uncounted, refused, rooms, .. } = taken;
        let dead_known = match &**event {
            OutboxEvent::Returned { group, message } => {
                if self.node.shard_of(&group.full()) == self.shard {
                    command.enqueue.push((Arc::clone(message), vec![Target::Returned { group: group.clone() }]));
                }
                return;
            }
            OutboxEvent::Assigned { client, message, retain, subscription_ids } => {
                if self.node.shard_of(client) == self.shard {
                    let target = assigned(client, *retain, subscription_ids);
                    command.enqueue.push((Arc::clone(message), vec![target]));
                }
                return;
            }
            OutboxEvent::AssignedFrom { client, group, message, retain, subscription_ids } => {
                if self.node.shard_of(client) == self.shard {
                    let target = Target::Member {
                        client: client.clone(),
                        group: group.clone(),
                        retain: *retain,
                        subscription_ids: subscription_ids.clone(),
                    };
                    let is_known = self.node.cluster().is_some_and(|cluster| target.since() <= cluster.level());
                    let target = if is_known { target } else { assigned(client, *retain, subscription_ids) };
                    command.enqueue.push((Arc::clone(message), vec![target]));
                }
                return;
            }
            OutboxEvent::Publish { dead_known, .. } => {
                if source == self.shard && event.is_will() {
                    uncounted.push(Uncounted::Event(Arc::clone(event)));
                }
                *dead_known
            }
            OutboxEvent::Lifecycle(_) | OutboxEvent::Dropped(_) | OutboxEvent::Expired(_) => {
                if source == self.shard {
                    uncounted.push(Uncounted::Event(Arc::clone(event)));
                }
                false
            }
        };
        let rendered = match &**event {
            OutboxEvent::Lifecycle(lifecycle) => Some(&lifecycle.rendered),
            OutboxEvent::Dropped(dropped) => Some(&dropped.rendered),
            OutboxEvent::Expired(expired) => Some(&expired.rendered),
            _ => None,
        };
        // The taker of its own shard looks in any case: it tells what is dead.
        if source != self.shard && rendered.is_some_and(|rendered| !rendered.may_concern(self.shard.0)) {
            return;
        }
        if let OutboxEvent::Lifecycle(lifecycle) = &**event
            && !self.node.routing.has_dollar_filters()
        {
            // A filter that begins with a wildcard does not match it [MQTT-4.7.2-1].
            lifecycle.rendered.concerns(std::iter::empty());
            let unheard = if source == self.shard { self.node.renderer.pass_over(lifecycle) } else { None };
            uncounted.extend(unheard.map(Uncounted::Unheard));
            return;
        }
        let Some(message) = self.node.renderer.render_outbox(event, now_ms) else { return };
        let matches = self.node.routing.matches(&message.topic, message.publisher());
        if let Some(rendered) = rendered {
            let groups = matches.groups.iter().map(|found| self.node.shard_of(&found.group.full()).0);
            rendered.concerns(matches.clients.iter().map(|found| found.route.shard).chain(groups));
        }
        let mut targets: Vec<Target> = matches
            .clients
            .iter()
            .filter(|found| found.route.shard == self.shard.0)
            .filter_map(|found| publish::session_target(&message, found))
            .collect();
        for found in &matches.groups {
            if self.node.shard_of(&found.group.full()) != self.shard {
                continue;
            }
            if message.qos.min(found.qos) == QoS::AtMostOnce {
                direct.push((Arc::clone(&message), found.clone()));
            } else {
                let queue = &self.node.settings.queue;
                targets.push(Target::Group {
                    group: found.group.clone(),
                    queue_limit: queue.max_queue_size,
                    discard_oldest: queue.discard_oldest,
                });
            }
        }
        if source == self.shard && !matches.any && !dead_known {
            command.republish.extend(self.dead(&message, now_ms, uncounted));
        }
        if message.retain
            && matches!((&message.origin, &**event), (Origin::Client(_), OutboxEvent::Publish { .. }))
            && self.node.shard_of(&message.topic) == self.shard
        {
            // One whose publisher was told that it is retained is retained.
            let room = if dead_known { None } else { self.room(&message) };
            match room {
                Some(Room::Full) => not_retained.push(Arc::clone(&message)),
                Some(Room::There(room)) => {
                    reserved.push(room);
                    command.retain.push(Arc::clone(&message));
                }
                None => command.retain.push(Arc::clone(&message)),
            }
        }
        self.drop_excess(&message, &mut targets, now_ms);
        if is_told_already(&message.topic, Namespace::Dropped) {
            self.refuse(&message, &mut targets, rooms, refused, now_ms);
        }
        if !targets.is_empty() {
            command.enqueue.push((message, targets));
        }
    }

    /// Keeps what finds no room in a full queue out of the log where nothing comes of its loss but a count: an analyst who is too slow would
    /// have each message of `$dropped` stored twice to be dropped.
    fn refuse(
        &self,
        message: &Arc<Message>,
        targets: &mut Vec<Target>,
        rooms: &mut Rooms,
        refused: &mut Vec<Dropped>,
        at_ms: u64,
    ) {
        let Some(cluster) = self.node.cluster() else { return };
        targets.retain(|target| {
            let (room, receiver, qos) = match target {
                Target::Session { client, qos, .. } => {
                    let read = || cluster.read(self.shard, |state| state.room(client)).flatten();
                    (rooms.sessions.entry(client.clone()).or_insert_with(read), Receiver::Client(client.clone()), *qos)
                }
                Target::Group { group, .. } => {
                    let read = || cluster.read(self.shard, |state| state.group_room(group)).flatten();
                    let receiver = Receiver::SharedSubscription(group.full());
                    (rooms.groups.entry(group.clone()).or_insert_with(read), receiver, message.qos)
                }
                Target::Member { .. } | Target::Returned { .. } => return true,
            };
            match room {
                Some(0) => {
                    let (message, reason) = (Arc::clone(message), DropReason::ClientMessageQueueFull);
                    refused.push(Dropped { message, qos, receiver, reason, at_ms, rendered: RenderedOnce::default() });
                    false
                }
                Some(left) => {
                    *left -= 1;
                    true
                }
                None => true,
            }
        });
    }

    fn room(&self, message: &Message) -> Option<Room> {
        self.node.cluster().map(|cluster| retaining::room(&self.node, cluster, message))
    }

    /// Receivers whose names no command can hold miss the message; else it would stop the outbox for good.
    fn drop_excess(&self, message: &Arc<Message>, targets: &mut Vec<Target>, now_ms: u64) {
        let mut bytes = 0;
        let fits = |target: &&Target| {
            bytes += target_bytes(target);
            bytes <= TARGETS_BYTES_MAX
        };
        let fitting = targets.iter().take_while(fits).count();
        for target in targets.drain(fitting..) {
            let (receiver, qos) = match target {
                Target::Session { client, qos, .. } => (Receiver::Client(client), qos),
                Target::Group { group, .. } | Target::Member { group, .. } | Target::Returned { group } => {
                    (Receiver::SharedSubscription(group.full()), message.qos)
                }
            };
            let lost = publish::delivery(message, qos, false, SubscriptionIds::new());
            self.node.signals.dropped(&lost, receiver, DropReason::InternalError, now_ms);
        }
    }

    /// What is re-published of a message that nobody subscribes to, if anybody subscribes to that. What is dead is to be counted.
    fn dead(&self, message: &Arc<Message>, now_ms: u64, uncounted: &mut Vec<Uncounted>) -> Option<Arc<Message>> {
        let hears = |told: &Arc<Message>| self.node.routing.matches(&told.topic, None).any;
        if self.node.routing.has_dollar_filters() {
            let signal = Signal::Dead(Dead { message: Arc::clone(message), at_ms: now_ms });
            if let Some(told) = self.node.renderer.render(&signal, now_ms, false).filter(hears) {
                uncounted.push(Uncounted::Dead { signal, made: true });
                return Some(told);
            }
        }
        uncounted.push(Uncounted::Unheard(message.topic.clone()));
        None
    }

    fn count(&mut self) {
        let now_ms = clock::wall_ms();
        for uncounted in std::mem::take(&mut self.uncounted) {
            match uncounted {
                Uncounted::Event(event) => self.node.renderer.count_outbox(&event, now_ms),
                Uncounted::Dead { signal, made } => self.node.renderer.count(&signal, made, now_ms),
                Uncounted::Unheard(topic) => self.node.renderer.count_unheard(&topic),
            }
        }
    }

    fn propose(&mut self, taken: Taken, ctx: &mut Context<Self>) {
        let Taken { command, direct, not_retained, reserved, refused, .. } = taken;
        let Some(cluster) = self.node.cluster() else { return };
        self.busy = true;
        let (source, to) = (command.source, command.to);
        let enqueued: Vec<(Arc<Message>, usize)> =
            command.enqueue.iter().map(|(message, targets)| (Arc::clone(message), targets.len())).collect();
        let submitted = cluster.submit(self.shard, Command::Take(Box::new(command)));
        ctx.spawn(submitted.into_actor(self).map(move |outcome, taker, ctx| {
            taker.busy = false;
            let is_taken = taker.stored(source) == to;
            if is_taken && source == taker.shard {
                taker.count();
            }
            // Applied is not taken: a command of another leader may have moved the position first, and this one did nothing then.
            if outcome.is_err() || !is_taken {
                tracing::debug!(shard = taker.shard.0, ?outcome, "outbox events were not taken, trying again");
                taker.reset();
                ctx.run_later(RETRY, |taker, ctx| taker.look(ctx));
                return;
            }
            for (message, receivers) in enqueued {
                taker.node.renderer.enqueued(&message, receivers);
            }
            let now_ms = clock::wall_ms();
            for dropped in refused {
                taker.node.renderer.enqueued(&dropped.message, 1);
                taker.node.renderer.render(&Signal::Dropped(dropped), now_ms, true);
            }
            drop(reserved);
            for message in &not_retained {
                retaining::raise_not_retained(&taker.node, message);
            }
            for (message, group) in direct {
                let given = publish::deliver_to_member(&taker.node, &message, &group);
                taker.node.renderer.enqueued(&message, usize::from(given));
            }
            taker.look(ctx);
        }));
    }

    /// Starts again from the stored positions.
    fn reset(&mut self) {
        self.seen.fill(Position::default());
        self.uncounted.clear();
    }
}

/// The session of a member that was chosen.
fn assigned(client: &ByteString, retain: bool, subscription_ids: &SubscriptionIds) -> Target {
    let (qos, subscription_ids) = (QoS::ExactlyOnce, subscription_ids.clone());
    Target::Session { client: client.clone(), qos, retain, subscription_ids, retained_origin: false }
}

/// Bytes of a target in a command, about.
fn target_bytes(target: &Target) -> usize {
    const FIXED: usize = 96;
    FIXED
        + match target {
            Target::Session { client, .. } => client.len(),
            Target::Group { group, .. } | Target::Returned { group } => group.share.len() + group.filter.len(),
            Target::Member { client, group, .. } => client.len() + group.share.len() + group.filter.len(),
        }
}

impl Actor for OutboxTaker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        attend(ctx);
        ctx.run_interval(POSITION_INTERVAL, |taker, ctx| taker.look(ctx));
    }
}

impl Attends for OutboxTaker {
    type Item = TakerItem;

    fn inbox(&self) -> &Arc<Inbox<TakerItem>> {
        &self.inbox
    }

    fn on_mail(&mut self, ctx: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            if let TakerItem::Leads(leads) = item {
                self.leads = leads;
                self.reset();
            }
        }
        self.batch = batch;
        self.look(ctx);
    }
}
