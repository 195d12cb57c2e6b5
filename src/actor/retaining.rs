//! Limits of retained messages: how many the cluster keeps, and their bytes.
//!
//! All nodes hold all retained messages, so each knows how full the cluster is. A message is refused at the node where it comes in, before
//! anything is done with it: no command is ever refused by a shard, and what is retained is the same on all nodes whatever their
//! settings say. What is on its way counts as retained, so one node never exceeds a limit (and may refuse a little early while much is on its
//! way); several nodes at the same moment can, by what the others have on their way.
//!
//! Deleting always works, and so does replacing by a message that is not larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::mqtt::{Message, ProtocolVersion, QoS, SubscriptionIds};
use crate::replica::{Position, ShardId};
use crate::signal::{DropReason, Receiver};
use crate::telemetry::RateLimited;

use super::node::Node;
use super::{clock, publish};

static FULL: RateLimited = RateLimited::new(Duration::from_secs(10));

/// Limits of the whole cluster.
#[derive(Debug, Clone, Copy)]
pub struct RetainedLimits {
    pub messages_max: u64,
    /// As `Message::size_bytes` counts them.
    pub bytes_max: u64,
}

/// What this node has on its way to the shards.
#[derive(Debug, Default, Clone)]
pub struct Retaining(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

/// Room for a message on its way; dropped when that is retained, or will not be.
#[derive(Debug)]
pub struct Reserved {
    counts: Arc<Counts>,
    messages: usize,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.counts.messages.fetch_sub(self.messages, Ordering::AcqRel);
        self.counts.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Retaining {
    fn reserve(&self, messages: usize, bytes: usize) -> Reserved {
        self.0.messages.fetch_add(messages, Ordering::AcqRel);
        self.0.bytes.fetch_add(bytes, Ordering::AcqRel);
        Reserved { counts: Arc::clone(&self.0), messages, bytes }
    }
}

/// What becomes of a message that is to be retained.
pub enum Room {
    There(Reserved),
    Full,
}

/// Looks for room for a message with RETAIN.
pub fn room(node: &Node, cluster: &Cluster, message: &Message) -> Room {
    if message.payload.is_empty() {
        return Room::There(node.retaining.reserve(0, 0));
    }
    let former = cluster.read(node.shard_of(&message.topic), |state| state.retained_size(&message.topic)).flatten();
    let size = message.size_bytes();
    let (messages, bytes) = former.map_or((1, size), |former| (0, size.saturating_sub(former)));
    let reserved = node.retaining.reserve(messages, bytes);
    if messages == 0 && bytes == 0 {
        return Room::There(reserved);
    }
    let under_way = (node.retaining.0.messages.load(Ordering::Acquire), node.retaining.0.bytes.load(Ordering::Acquire));
    let stored = stored(cluster);
    let limits = node.settings.retained;
    let fits = |(messages_more, bytes_more): (usize, usize)| {
        let total = |stored: usize, under_way: usize, more: usize| stored.saturating_add(under_way).saturating_add(more) as u64;
        (messages == 0 || total(stored.0, under_way.0, messages_more) <= limits.messages_max)
            && total(stored.1, under_way.1, bytes_more) <= limits.bytes_max
    };
    if !fits(waiting_in_outboxes(node, cluster)) {
        crate::warn_limited!(
            FULL,
            messages = stored.0,
            bytes = stored.1,
            "retained messages are refused: mqtt/retained-messages/max-messages or max-bytes is reached"
        );
        return Room::Full;
    }
    Room::There(reserved)
}

/// Whether a publisher can be told that its message is refused; else it is acknowledged, reaches who subscribes now, and is not retained.
pub fn can_be_told(protocol: ProtocolVersion, qos: QoS) -> bool {
    protocol.is_v5() && qos != QoS::AtMostOnce
}

/// Signals that a message is not retained.
pub fn raise_not_retained(node: &Node, message: &Arc<Message>) {
    let lost = publish::delivery(message, message.qos, true, SubscriptionIds::new());
    let receiver = Receiver::Consumer(Receiver::RETAINED.into());
    node.signals.dropped(&lost, receiver, DropReason::RetainedMessageLimitReached, clock::wall_ms());
}

/// Messages retained in all shards, and their bytes.
fn stored(cluster: &Cluster) -> (usize, usize) {
    let of = |shard| cluster.read(ShardId(shard), |state| (state.retained_count(), state.retained_bytes())).unwrap_or_default();
    (0..cluster.shards()).map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Messages that wait in outboxes for their topics' shards. Nearly always none: they are there for milliseconds.
fn waiting_in_outboxes(node: &Node, cluster: &Cluster) -> (usize, usize) {
    let mut sum = (0, 0);
    for source in (0..cluster.shards()).map(ShardId) {
        if cluster.read(source, |state| state.to_retain_count()).unwrap_or_default() == 0 {
            continue;
        }
        let taken = |shard| cluster.read(shard, |state| state.taken(source)).unwrap_or_default();
        let taken: Vec<Position> = (0..cluster.shards()).map(|shard| taken(ShardId(shard))).collect();
        let first = taken.iter().min().copied().unwrap_or_default();
        for (position, message) in cluster.read(source, |state| state.to_retain_after(first)).unwrap_or_default() {
            let shard = node.shard_of(&message.topic);
            let is_untaken = taken.get(usize::from(shard.0)).is_some_and(|taken| position > *taken);
            if is_untaken && !message.payload.is_empty() {
                let former = cluster.read(shard, |state| state.retained_size(&message.topic)).flatten();
                sum.0 += usize::from(former.is_none());
                sum.1 += message.size_bytes().saturating_sub(former.unwrap_or_default());
            }
        }
    }
    sum
}
