//! The one interface by which the rest of the process publishes: add-ons now, edges later. It is no way around the queues: a message
//! takes the same hops as a client's.

use std::sync::Arc;

use crate::actor::Node;
use crate::actor::publish::{self, Published, Stored};
use crate::mqtt::Message;
use crate::signal::Signal;

/// Publishes on behalf of the process.
#[derive(Clone)]
pub struct InternalClient {
    node: Arc<Node>,
}

impl InternalClient {
    pub fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Publishes to the whole cluster. The future, where there is something to wait for, resolves when the message is as safe as its QoS asks.
    pub fn publish(&self, message: &Arc<Message>) -> Option<Stored> {
        match publish::publish(&self.node, message, false, None) {
            Published::Done(_) => None,
            Published::Stored(stored) => Some(stored),
        }
    }

    /// Says that a signal of this node is done with, and what was made of it stored.
    pub fn signal_handled(&self, signal: &Signal) {
        self.node.signals.handled(signal);
    }

    /// Counts an add-on message that its persistent receivers do not get.
    pub fn not_stored(&self) {
        self.node.metrics.own.addon_messages_not_stored_total.inc();
    }

    /// Whether any client of the cluster can hear topics that begin with `$`.
    pub fn is_heard(&self) -> bool {
        self.node.routing.has_dollar_filters()
    }

    /// Hands a message that every node makes by itself (an outbox event) to this node's own clients only.
    pub fn deliver_local(&self, message: &Arc<Message>) {
        let receivers = publish::deliver_local(&self.node, message);
        self.node.renderer.enqueued(message, receivers);
    }
}
