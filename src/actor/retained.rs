//! Retained messages at subscribe time, from this node's replicas.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::SubmitError;
use crate::mqtt::packet::RetainHandling;
use crate::mqtt::{Delivery, Message, QoS, SubscriptionIds, topic_filter};
use crate::replica::{Command, ConnectionRef, Position, ShardId, State, Target};
use crate::session::Subscription;
use crate::signal::{DropReason, Receiver};
use crate::telemetry::RateLimited;

use super::client::Identity;
use super::hub::Local;
use super::node::Node;
use super::queue::QueueItem;
use super::{clock, publish};

/// Bytes of retained messages on their way into a session's replicated queue at a time.
const WINDOW_BYTES: usize = 4 * 1024 * 1024;
const WINDOW_MESSAGES: usize = 256;
/// Pause before a message is proposed again that the shard had no room for.
const RETRY: Duration = Duration::from_millis(20);
/// The same where the shard had no leader in reach.
const UNAVAILABLE_RETRY: Duration = Duration::from_millis(500);

static NOT_QUEUED: RateLimited = RateLimited::new(Duration::from_secs(10));

/// What is retained for new subscriptions.
pub struct Retained {
    /// For the connection's own queue.
    pub own: Vec<Delivery>,
    /// For the session's replicated queue.
    pub replicated: Replicated,
}

/// Messages for a replicated queue, in order.
pub struct Replicated(std::vec::IntoIter<Queued>);

/// A retained message for one subscription.
pub struct Queued {
    message: Arc<Message>,
    qos: QoS,
    subscription_ids: SubscriptionIds,
}

impl Replicated {
    /// As many as are proposed at a time; `None` where there are no more.
    pub fn next_window(&mut self) -> Option<Vec<Queued>> {
        let (mut bytes, mut window) = (0, Vec::new());
        while bytes < WINDOW_BYTES
            && window.len() < WINDOW_MESSAGES
            && let Some(next) = self.0.next()
        {
            bytes += next.message.size_bytes();
            window.push(next);
        }
        (!window.is_empty()).then_some(window)
    }
}

/// Looks for what is retained.
pub fn look(local: &Rc<Local>, identity: &Identity, subscriptions: &[Subscription], existed: &[bool]) -> Retained {
    let (mut own, mut replicated) = (Vec::new(), Vec::new());
    for (subscription, existed) in subscriptions.iter().zip(existed) {
        let wanted = match subscription.options.retain_handling {
            RetainHandling::Send => true,           // [MQTT-3.3.1-9]
            RetainHandling::SendIfNew => !*existed, // [MQTT-3.3.1-10]
            RetainHandling::DoNotSend => false,     // [MQTT-3.3.1-11]
        };
        // [MQTT 5 section 4.8.2] no retained messages for a Shared Subscription.
        if !wanted || subscription.filter.share.is_some() {
            continue;
        }
        for message in matching(local.node(), subscription) {
            let qos = message.qos.min(subscription.options.qos);
            let subscription_ids: SubscriptionIds = subscription.identifier.into_iter().collect();
            if qos != QoS::AtMostOnce && identity.persistent {
                replicated.push(Queued { message, qos, subscription_ids });
            } else {
                own.push(publish::delivery(&message, qos, true, subscription_ids));
            }
        }
    }
    Retained { own, replicated: Replicated(replicated.into_iter()) }
}

/// Gives the connection's own queue what is retained.
pub fn push(local: &Rc<Local>, connection: ConnectionRef, own: Vec<Delivery>) {
    for delivery in own {
        local.post(connection.connection, QueueItem::Push { delivery: Box::new(delivery), retained: true });
    }
}

/// What is retained for a subscription: what the topics' shards hold, and over it what waits in outboxes for them to take. The shards are read
/// first, so that a message that is taken meanwhile is not missed.
fn matching(node: &Node, subscription: &Subscription) -> Vec<Arc<Message>> {
    let Some(cluster) = node.cluster() else { return Vec::new() };
    let filter = &subscription.filter;
    let now_ms = clock::wall_ms();
    let shards: Vec<ShardId> =
        if filter.has_wildcard() { (0..cluster.shards()).map(ShardId).collect() } else { vec![node.shard_of(&filter.filter)] };
    let mut messages = Vec::new();
    let mut taken = HashMap::new();
    for shard in shards {
        let read = |state: &State| {
            messages.append(&mut state.retained_matching(&filter.filter, now_ms));
            (0..cluster.shards()).map(|source| state.taken(ShardId(source))).collect::<Vec<_>>()
        };
        taken.insert(shard, cluster.read(shard, read).unwrap_or_default());
    }
    for source in 0..cluster.shards() {
        let of = |taken: &Vec<Position>| taken.get(usize::from(source)).copied().unwrap_or_default();
        let first = taken.values().map(of).min().unwrap_or_default();
        let untaken = cluster.read(ShardId(source), |state| state.to_retain_after(first)).unwrap_or_default();
        for (position, message) in untaken {
            let is_untaken = taken.get(&node.shard_of(&message.topic)).is_some_and(|taken| position > of(taken));
            if is_untaken && topic_filter::matches(&filter.filter, &message.topic) {
                put(&mut messages, message, now_ms);
            }
        }
    }
    messages
}

/// Does what the topic's shard will do with a message that waits in an outbox: subscribers of before have it already.
fn put(messages: &mut Vec<Arc<Message>>, message: Arc<Message>, now_ms: u64) {
    messages.retain(|known| known.topic != message.topic);
    if !message.payload.is_empty() && !message.is_expired(now_ms) {
        messages.push(message);
    }
}

/// Queues all messages in order, a window at a time, so that one subscriber of many retained messages does not take the room of a shard's
/// other clients. While the shard cannot take them they wait for it, as long as the connection is there: what was not queued then is sent at
/// the next SUBSCRIBE.
pub fn enqueue_all(node: Arc<Node>, connection: ConnectionRef, identity: Identity, mut messages: Replicated) {
    let Some(first) = messages.next_window() else { return };
    actix_rt::spawn(async move {
        let mut window = Some(first);
        while let Some(queued) = window {
            let mut failed = propose(&node, connection, &identity, commands(&identity, queued)).await;
            while !failed.is_empty() {
                let again = still_to_queue(&node, &identity, failed);
                actix_rt::time::sleep(UNAVAILABLE_RETRY).await;
                if !is_current(&node, connection, &identity) {
                    return;
                }
                failed = propose(&node, connection, &identity, again).await;
            }
            if !is_current(&node, connection, &identity) {
                return;
            }
            window = messages.next_window();
        }
    });
}

/// Queues messages in order; false where the connection is over, or the shard out of reach.
pub async fn enqueue(node: Arc<Node>, connection: ConnectionRef, identity: Identity, window: Vec<Queued>) -> bool {
    is_current(&node, connection, &identity)
        && propose(&node, connection, &identity, commands(&identity, window)).await.is_empty()
}

/// What is to be proposed again. Of a message that may be queued or not that is said, and not tried again: it would come twice.
fn still_to_queue(node: &Node, identity: &Identity, failed: Vec<(Command, SubmitError)>) -> Vec<Command> {
    crate::warn_limited!(
        NOT_QUEUED,
        client = %identity.client(),
        messages = failed.len(),
        "retained messages of a SUBSCRIBE wait: the session's shard has no leader in reach"
    );
    let (unknown, again): (Vec<_>, Vec<_>) = failed.into_iter().partition(|(_, error)| *error == SubmitError::Unknown);
    for (command, _) in unknown {
        if let Command::Enqueue { message, .. } = command {
            let lost = publish::delivery(&message, message.qos, true, SubscriptionIds::new());
            let receiver = Receiver::Client(identity.client().clone());
            node.signals.dropped(&lost, receiver, DropReason::InternalError, clock::wall_ms());
        }
    }
    again.into_iter().map(|(command, _)| command).collect()
}

/// Proposes commands in order; those that have no outcome come back.
async fn propose(
    node: &Arc<Node>,
    connection: ConnectionRef,
    identity: &Identity,
    commands: Vec<Command>,
) -> Vec<(Command, SubmitError)> {
    let Some(cluster) = node.cluster() else {
        return commands.into_iter().map(|command| (command, SubmitError::Unavailable)).collect();
    };
    let submit = |command: Command| (command.clone(), cluster.submit(identity.shard, command));
    let proposed: Vec<_> = commands.into_iter().map(submit).collect();
    let mut failed = Vec::new();
    for (command, outcome) in proposed {
        let mut outcome = outcome.await;
        while matches!(outcome, Err(SubmitError::Overloaded)) && is_current(node, connection, identity) {
            actix_rt::time::sleep(RETRY).await;
            outcome = cluster.submit(identity.shard, command.clone()).await;
        }
        if let Err(error) = outcome {
            failed.push((command, error));
        }
    }
    failed
}

fn commands(identity: &Identity, window: Vec<Queued>) -> Vec<Command> {
    let command = |Queued { message, qos, subscription_ids }| {
        let client = identity.client().clone();
        let target = Target::Session { client, qos, retain: true, subscription_ids, retained_origin: true };
        Command::Enqueue { message, targets: vec![target] }
    };
    window.into_iter().map(command).collect()
}

/// Whether the connection is its session's, as far as this node knows.
pub fn is_current(node: &Node, connection: ConnectionRef, identity: &Identity) -> bool {
    let route = node.routing.client(identity.client()).and_then(|route| route.state().connection);
    route == Some((connection.node, connection.incarnation, connection.connection))
}
