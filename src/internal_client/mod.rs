//! The one interface by which the rest of the process publishes: add-ons now, edges later. It is no way around the queues: a message
//! takes the same hops as a client's.

use std::sync::Arc;

use crate::actor::Node;
use crate::actor::publish::{self, Published};
use crate::cluster::SubmitError;
use crate::mqtt::{Message, ReasonCode};
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

    /// Publishes to the whole cluster. Resolves when the message is as safe as its QoS asks: `Success` or `NoMatchingSubscribers`.
    pub fn publish(&self, message: &Arc<Message>) -> impl Future<Output = Result<ReasonCode, SubmitError>> + use<> {
        let published = publish::publish(&self.node, message, false, None);
        async move {
            match published {
                Published::Done(code) => Ok(code),
                Published::Stored(stored) => stored.await,
            }
        }
    }

    /// Says that a signal of this node is done with.
    pub fn signal_handled(&self, signal: &Signal) {
        self.node.signals.handled(signal);
    }

    /// Hands a message that every node makes by itself (an outbox event) to this node's own clients only.
    pub fn deliver_local(&self, message: &Arc<Message>) {
        publish::deliver_local(&self.node, message);
    }
}
