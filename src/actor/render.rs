//! How a signal becomes a message: add-ons are to the right, so they implement this and `broker` hands them in.

use std::sync::Arc;

use bytestring::ByteString;

use crate::mqtt::Message;
use crate::replica::OutboxEvent;
use crate::signal::{Lifecycle, Signal};

/// Pure rendering of signals, with the counters it moves.
pub trait Renderer: Send + Sync + 'static {
    /// The message an add-on publishes for the signal, if its add-on is on and the nesting rule allows. `count` = this node is the
    /// one that counts the signal (once cluster-wide).
    fn render(&self, signal: &Signal, now_ms: u64, count: bool) -> Option<Arc<Message>>;
    /// Counts a signal, as `render` does; `made`: `render` gave a message for it.
    fn count(&self, signal: &Signal, made: bool, now_ms: u64);
    /// Counts a message that nobody subscribes to, nor to what is told of it; once cluster-wide.
    fn count_unheard(&self, topic: &ByteString);
    /// The same for an event of a shard's outbox that is not about one member; made once for all who ask on this node.
    fn render_outbox(&self, event: &OutboxEvent, now_ms: u64) -> Option<Arc<Message>>;
    /// The topic that `render_outbox` would give a lifecycle event, where it makes a message of it. For when nobody hears it: `count_outbox` and
    /// `count_unheard` then count as if there had been one.
    fn pass_over(&self, event: &Lifecycle) -> Option<ByteString>;
    /// Counts such an event; once cluster-wide.
    fn count_outbox(&self, event: &OutboxEvent, now_ms: u64);
    /// Tells how many queues a message in an add-on namespace was put into.
    fn enqueued(&self, message: &Message, receivers: usize);
    /// Which lifecycle events are wanted at all.
    fn lifecycle_wanted(&self) -> bool;
}
