//! The way of a message from its publisher to queues and nodes (hops 3 to 5 of ARCHITECTURE.md).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytestring::ByteString;
use futures_util::future::try_join_all;
use smallvec::SmallVec;

use crate::cluster::{Cluster, Lane, PeerMessage, SubmitError};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{Delivery, Message, Origin, QoS, ReasonCode, Source, SubscriptionIds, topic_name};
use crate::plant::{Plant, is_planted};
use crate::replica::event::Outcome;
use crate::replica::{Command, ConnectionRef, NodeId, ShardId, Target};
use crate::routing::{ClientMatch, GroupMatch, Matches, Member};
use crate::signal::{DropReason, Receiver};

use super::clock;
use super::congestion;
use super::hub::{HubItem, LocalTarget};
use super::node::Node;
use super::retaining::{self, Reserved, Room};

/// The result of a publish once it is as safe as its QoS asks.
pub type Stored = Pin<Box<dyn Future<Output = Result<ReasonCode, SubmitError>> + Send>>;

type Submitted = Pin<Box<dyn Future<Output = Result<Outcome, SubmitError>> + Send>>;

/// What became of a publish.
pub enum Published {
    /// Nothing to wait for.
    Done(ReasonCode),
    /// Safe when the future resolves.
    Stored(Stored),
}

/// Publishes a message: to this node's clients, to nodes with others, to the queues of shards, to the retained store. `told`: the publisher
/// can be told that the message is refused; nothing is done with it then. `lane`: the connection it came on, which is to be closed when that
/// breaks; the answer may then wait for others.
pub fn publish(node: &Node, message: &Arc<Message>, told: bool, lane: Option<&Arc<Lane>>) -> Published {
    let matches = node.routing.matches(&message.topic, message.publisher());
    let code = code_of(&matches);
    let Some(cluster) = node.cluster() else { return Published::Done(code) };
    let retained = match room(node, cluster, message) {
        None if told => return Published::Done(ReasonCode::QuotaExceeded),
        retained => retained,
    };
    let mut plan = Plan::default();
    let clients = matches.clients.iter().filter(|found| plan.add_client(node, message, found)).count();
    let groups = matches.groups.iter().filter(|found| plan.add_group(node, message, found)).count();
    if topic_name::is_reserved(&message.topic) {
        node.renderer.enqueued(message, clients + groups);
    }
    let mut stored: Vec<Submitted> = Vec::new();
    match retained {
        Some(Some(reserved)) => stored.push(retain(node, cluster, message, reserved, lane)),
        Some(None) => {}
        None => retaining::raise_not_retained(node, message),
    }
    for (shard, targets) in plan.shards {
        let command = Command::Enqueue { message: Arc::clone(message), targets };
        stored.push(Box::pin(cluster.submit_in_lane(shard, command, lane)));
    }
    let receivers = congested_receivers(node, message, &plan.local);
    hand_to_hubs(node, message, plan.local);
    for peer in plan.nodes {
        if !send_to_node(node, cluster, peer, PeerMessage::Publish { message: Arc::clone(message) }) {
            raise_lost(node, message, &matches, peer);
        }
    }
    if !matches.any {
        node.signals.dead(message, clock::wall_ms());
    }
    if (stored.is_empty() && receivers.is_empty()) || is_planted(Plant::PubackBeforeStored) {
        return Published::Done(code);
    }
    let congestion = Arc::clone(&node.congestion);
    Published::Stored(Box::pin(async move {
        let code = worst(try_join_all(stored).await?, code);
        if !receivers.is_empty() {
            congestion::wait(congestion, receivers).await;
        }
        Ok(code)
    }))
}

/// Room for a message that is to be retained: `Some(None)` where it is not to be, `None` where there is no room.
#[expect(clippy::option_option, reason = "three outcomes, looked at where they are made")]
fn room(node: &Node, cluster: &Cluster, message: &Message) -> Option<Option<Reserved>> {
    if !message.retain || !matches!(message.origin, Origin::Client(_)) {
        return Some(None);
    }
    match retaining::room(node, cluster, message) {
        Room::There(reserved) => Some(Some(reserved)),
        Room::Full => None,
    }
}

/// One that is acknowledged must be found by every subscriber from then on, on whatever node.
fn retain(node: &Node, cluster: &Cluster, message: &Arc<Message>, reserved: Reserved, lane: Option<&Arc<Lane>>) -> Submitted {
    let shard = node.shard_of(&message.topic);
    let command = Command::Retain { message: Arc::clone(message) };
    let everywhere = message.qos != QoS::AtMostOnce;
    let lane = lane.map(Arc::clone);
    let submit = move |cluster: &Cluster| -> Submitted {
        if everywhere {
            Box::pin(cluster.submit_everywhere_in_lane(shard, command, lane.as_ref()))
        } else {
            Box::pin(cluster.submit_in_lane(shard, command, lane.as_ref()))
        }
    };
    let Some((before, on_its_way)) = node.detours.follow(message) else {
        let submitted = submit(cluster);
        return Box::pin(async move {
            let outcome = submitted.await;
            drop(reserved);
            outcome
        });
    };
    // Goes on also where its connection ends: what was sent counts as if it had not waited.
    let cluster = cluster.clone();
    let waited = tokio::spawn(async move {
        let _ = before.await;
        let outcome = submit(&cluster).await;
        drop((reserved, on_its_way));
        outcome
    });
    Box::pin(async move { waited.await.unwrap_or(Err(SubmitError::Unknown)) })
}

/// The local receivers of a message that is to be acknowledged late; empty, nearly always, where it is not.
fn congested_receivers(node: &Node, message: &Message, local: &[(usize, Vec<LocalTarget>)]) -> Vec<u64> {
    if message.qos == QoS::AtMostOnce || !node.congestion.is_any() {
        return Vec::new();
    }
    let receivers: Vec<u64> = local.iter().flat_map(|(_, targets)| targets).map(|target| target.connection).collect();
    if node.congestion.holds(&receivers) { receivers } else { Vec::new() }
}

/// QoS 2 of a session that outlives its connection: the publisher's shard stores identifier and message together and its outbox hands the
/// message to every shard, so that neither a resend nor a failover doubles it.
pub fn receive(
    node: &Arc<Node>,
    message: &Arc<Message>,
    (client, connection, packet_id): (&ByteString, ConnectionRef, PacketId),
    told: bool,
    lane: &Arc<Lane>,
) -> Published {
    let matches = node.routing.matches(&message.topic, message.publisher());
    let code = code_of(&matches);
    let dead = !matches.any;
    let Some(cluster) = node.cluster() else { return Published::Done(code) };
    let shard = node.shard_of(client);
    let Some(reserved) = room(node, cluster, message) else {
        // A resend was taken when it came first.
        let received = cluster.read(shard, |state| state.session(client).is_some_and(|s| s.received.contains(&packet_id.get())));
        if received == Some(true) {
            return Published::Done(ReasonCode::Success);
        }
        if told {
            return Published::Done(ReasonCode::QuotaExceeded);
        }
        retaining::raise_not_retained(node, message);
        return receive(
            node,
            &Arc::new(Message { retain: false, ..Message::clone(message) }),
            (client, connection, packet_id),
            told,
            lane,
        );
    };
    let on_its_way = if message.retain { node.detours.enter(message) } else { None };
    let command = Command::Receive { client: client.clone(), connection, packet_id, message: Arc::clone(message), dead };
    // A retained message must be found by every subscriber from its PUBREC on: in the outbox, until the topic's shard has taken it.
    let submitted: Submitted = if message.retain {
        Box::pin(cluster.submit_everywhere_in_lane(shard, command, Some(lane)))
    } else {
        Box::pin(cluster.submit_in_lane(shard, command, Some(lane)))
    };
    let (node, message, topic_cluster) = (Arc::clone(node), Arc::clone(message), cluster.clone());
    Published::Stored(Box::pin(async move {
        let outcome = submitted.await;
        // In the outbox it is counted from now on.
        drop(reserved);
        if let Some(on_its_way) = on_its_way {
            let topic_shard = node.shard_of(&message.topic);
            tokio::spawn(on_its_way.until_taken(topic_cluster, shard, topic_shard));
        }
        match outcome? {
            Outcome::Refused(refused) => return Ok(refused),
            // A resend was told before.
            Outcome::Received { duplicate: false } if dead => node.signals.dead(&message, clock::wall_ms()),
            _ => {}
        }
        Ok(code)
    }))
}

/// Hands a message that reached this node from elsewhere (a peer, an outbox) to the clients connected here that no replicated queue
/// serves, and tells how many those are. Never forwarded again.
pub fn deliver_local(node: &Node, message: &Arc<Message>) -> usize {
    let matches = node.routing.matches(&message.topic, message.publisher());
    let mut plan = Plan::default();
    for found in &matches.clients {
        plan.add_client(node, message, found);
    }
    let receivers = plan.local.iter().map(|(_, targets)| targets.len()).sum();
    hand_to_hubs(node, message, plan.local);
    receivers
}

/// A QoS 0 message for one member of a shared subscription, chosen among the connected ones in turn; false where there is none.
pub fn deliver_to_member(node: &Node, message: &Arc<Message>, found: &GroupMatch) -> bool {
    let members: Vec<Member> =
        node.routing.members(&found.group).into_iter().filter(|m| m.route.state().connection.is_some()).collect();
    if members.is_empty() {
        return false; // QoS 0 for offline members is not kept and not counted (spec/hivemq.md 2.2)
    }
    let Some(member) = members.get(node.next_turn() % members.len()) else { return false };
    let Some(connection) = member.route.state().connection else { return false };
    let retain = message.retain && member.options.retain_as_published;
    let subscription_ids: SubscriptionIds = member.identifier.into_iter().collect();
    if node.is_local(connection) {
        let source = Source::Member { group: found.group.clone() };
        let given = delivery(message, QoS::AtMostOnce, retain, subscription_ids);
        enqueue_local(node, connection.2, Delivery { source, ..given });
    } else if let Some(cluster) = node.cluster() {
        let shared = PeerMessage::DeliverShared {
            message: Arc::clone(message),
            group: found.group.clone(),
            client: member.route.client.clone(),
            qos: QoS::AtMostOnce,
            retain,
            subscription_ids,
        };
        if !send_to_node(node, cluster, connection.0, shared) {
            let shared_subscription = found.group.full();
            let receiver = Receiver::SharedSubscriptionMember { shared_subscription, client: member.route.client.clone() };
            let lost = delivery(message, QoS::AtMostOnce, retain, SubscriptionIds::new());
            node.signals.dropped(&lost, receiver, DropReason::InternalError, clock::wall_ms());
        }
    }
    true
}

/// Puts a delivery into the in-memory queue of a connection of this node.
pub fn enqueue_local(node: &Node, connection: u64, delivery: Delivery) {
    if let Some(hub) = node.hub_of(connection) {
        hub.post(HubItem::Enqueue { connection, delivery: Box::new(delivery) });
    }
}

/// A copy for a connection's own queue.
pub fn delivery(message: &Arc<Message>, qos: QoS, retain: bool, subscription_ids: SubscriptionIds) -> Delivery {
    Delivery { message: Arc::clone(message), qos, retain, subscription_ids, dup: false, source: Source::Local }
}

/// The entry of a client's queue for a matched subscription, where a replicated queue serves it.
pub fn session_target(message: &Message, found: &ClientMatch) -> Option<Target> {
    let qos = message.qos.min(found.qos);
    (qos != QoS::AtMostOnce && found.route.state().persistent).then(|| Target::Session {
        client: found.route.client.clone(),
        qos,
        retain: message.retain && found.retain_as_published,
        subscription_ids: found.subscription_ids.clone(),
        retained_origin: false,
    })
}

/// Where one message goes.
#[derive(Default)]
struct Plan {
    local: SmallVec<[(usize, Vec<LocalTarget>); 4]>,
    nodes: SmallVec<[NodeId; 4]>,
    shards: SmallVec<[(ShardId, Vec<Target>); 4]>,
}

impl Plan {
    /// False where the client gets nothing: QoS 0 is not kept for those who are away.
    fn add_client(&mut self, node: &Node, message: &Message, found: &ClientMatch) -> bool {
        if let Some(target) = session_target(message, found) {
            self.add_target(ShardId(found.route.shard), target);
            return true;
        }
        let Some(connection) = found.route.state().connection else { return false };
        if !node.is_local(connection) {
            if !self.nodes.contains(&connection.0) {
                self.nodes.push(connection.0);
            }
            return true;
        }
        let target = LocalTarget {
            connection: connection.2,
            qos: message.qos.min(found.qos),
            retain: message.retain && found.retain_as_published,
            subscription_ids: found.subscription_ids.clone(),
        };
        let arbiter = usize::try_from(connection.2 & 0xFF).unwrap_or(0);
        match self.local.iter_mut().find(|(a, _)| *a == arbiter) {
            Some((_, targets)) => targets.push(target),
            None => self.local.push((arbiter, vec![target])),
        }
        true
    }

    fn add_group(&mut self, node: &Node, message: &Arc<Message>, found: &GroupMatch) -> bool {
        if message.qos.min(found.qos) == QoS::AtMostOnce {
            return deliver_to_member(node, message, found);
        }
        let queue = &node.settings.queue;
        let target =
            Target::Group { group: found.group.clone(), queue_limit: queue.max_queue_size, discard_oldest: queue.discard_oldest };
        self.add_target(node.shard_of(&found.group.full()), target);
        true
    }

    fn add_target(&mut self, shard: ShardId, target: Target) {
        match self.shards.iter_mut().find(|(s, _)| *s == shard) {
            Some((_, targets)) => targets.push(target),
            None => self.shards.push((shard, vec![target])),
        }
    }
}

fn hand_to_hubs(node: &Node, message: &Arc<Message>, local: SmallVec<[(usize, Vec<LocalTarget>); 4]>) {
    for (arbiter, targets) in local {
        if let Some(hub) = node.hubs().get(arbiter) {
            hub.post(HubItem::Publish { message: Arc::clone(message), targets });
        }
    }
}

/// False, counted, where the link is down or full.
fn send_to_node(node: &Node, cluster: &Cluster, peer: NodeId, message: PeerMessage) -> bool {
    let sent = cluster.send(peer, message);
    if !sent {
        node.metrics.own.peer_messages_lost_total.inc();
    }
    sent
}

/// A message did not get to another node: each client there that has no replicated queue for it missed it.
fn raise_lost(node: &Node, message: &Arc<Message>, matches: &Matches, peer: NodeId) {
    let now_ms = clock::wall_ms();
    for found in &matches.clients {
        let there = found.route.state().connection.is_some_and(|connection| connection.0 == peer);
        if there && session_target(message, found).is_none() {
            let lost = delivery(message, message.qos.min(found.qos), false, SubscriptionIds::new());
            let receiver = Receiver::Client(found.route.client.clone());
            node.signals.dropped(&lost, receiver, DropReason::InternalError, now_ms);
        }
    }
}

fn code_of(matches: &Matches) -> ReasonCode {
    if matches.any { ReasonCode::Success } else { ReasonCode::NoMatchingSubscribers }
}

/// The answer to the publisher where every store was done or refused.
fn worst(outcomes: Vec<Outcome>, code: ReasonCode) -> ReasonCode {
    let refused = |outcome| if let Outcome::Refused(refused) = outcome { Some(refused) } else { None };
    outcomes.into_iter().filter_map(refused).next_back().unwrap_or(code)
}
