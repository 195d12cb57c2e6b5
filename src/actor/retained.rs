//! Retained messages at subscribe time, from this node's replicas.

use std::rc::Rc;
use std::sync::Arc;

use crate::mqtt::packet::RetainHandling;
use crate::mqtt::{Message, QoS, SubscriptionIds};
use crate::replica::{Command, ConnectionRef, ShardId, Target};
use crate::session::Subscription;

use super::client::Identity;
use super::hub::Local;
use super::node::Node;
use super::queue::QueueItem;
use super::{clock, publish};

/// Sends what is retained for new subscriptions: into the session's replicated queue, or the connection's own.
pub fn send(local: &Rc<Local>, connection: ConnectionRef, identity: &Identity, subscriptions: &[Subscription], existed: &[bool]) {
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
            send_one(local, connection, identity, subscription, message);
        }
    }
}

fn matching(node: &Node, subscription: &Subscription) -> Vec<Arc<Message>> {
    let Some(cluster) = node.cluster() else { return Vec::new() };
    let filter = &subscription.filter;
    let now_ms = clock::wall_ms();
    let read = |shard| cluster.read(shard, |state| state.retained_matching(&filter.filter, now_ms)).unwrap_or_default();
    if filter.has_wildcard() {
        (0..cluster.shards()).flat_map(|shard| read(ShardId(shard))).collect()
    } else {
        read(node.shard_of(&filter.filter))
    }
}

fn send_one(
    local: &Rc<Local>,
    connection: ConnectionRef,
    identity: &Identity,
    subscription: &Subscription,
    message: Arc<Message>,
) {
    let qos = message.qos.min(subscription.options.qos);
    let subscription_ids: SubscriptionIds = subscription.identifier.into_iter().collect();
    if qos != QoS::AtMostOnce && identity.persistent {
        let target =
            Target::Session { client: identity.client.clone(), qos, retain: true, subscription_ids, retained_origin: true };
        let command = Command::Enqueue { message, targets: vec![target] };
        if local.node().cluster().is_none_or(|c| c.submit_nowait(identity.shard, command).is_err()) {
            tracing::warn!(client = %identity.client, "a retained message could not be queued: the shard is overloaded");
        }
    } else {
        let delivery = publish::delivery(&message, qos, true, subscription_ids);
        local.post(connection.connection, QueueItem::Push { delivery: Box::new(delivery), retained: true });
    }
}
