//! Deliveries on their way to the machine: what may go now, what is held back, and what is not sent at all.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::Client;
use crate::mqtt::{Delivery, QoS, Source};
use crate::replica::command::QueueStep;
use crate::signal::DropReason;

/// QoS 0 messages that may be put onto sockets which are not writable, of all connections of the node (spec/hivemq.md 2.4), as long as no more
/// bytes wait for one than may wait in its queue.
const STUFFED_MAX: usize = 1000;

impl Client {
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        let Some(delivery) = self.allowed(delivery) else { return };
        if self.is_prevented(&delivery) {
            self.not_delivered(&delivery, QueueStep::Dropped(DropReason::ExtensionPreventedOutbound));
            return;
        }
        if delivery.qos != QoS::AtMostOnce {
            if !self.held.get().is_none_or(VecDeque::is_empty)
                || !self.writable
                || self.subscribing > 0
                || self.machine.send_quota() == 0
            {
                self.held.get_mut().push_back(delivery);
                return;
            }
            if let Source::Queue { seq } = delivery.source {
                self.sent_seq = self.sent_seq.max(seq);
            }
            let kept = kept(&delivery);
            if !self.machine.deliver(delivery, self.now, &mut self.effects) {
                self.held.get_mut().extend(kept);
            }
        } else if !self.writable && !self.stuff() {
            self.not_writable(&delivery);
        } else if !self.machine.deliver(delivery, self.now, &mut self.effects) {
            tracing::debug!("a QoS 0 message came before the connection was registered");
        }
    }

    /// Whether the operator keeps the message from this client. An exchange of QoS 2 that has begun goes to its end [MQTT-4.3.3-7].
    pub(super) fn is_prevented(&self, delivery: &Delivery) -> bool {
        let prevented = &self.local.node().settings.prevented;
        let begun = delivery.dup && delivery.qos == QoS::ExactlyOnce;
        !prevented.outbound.is_empty()
            && !begun
            && self.identity.as_ref().is_some_and(|identity| prevented.is_outbound(&delivery.message.topic, identity.client()))
    }

    /// Takes a place for a QoS 0 message on a socket that is not writable.
    pub(super) fn stuff(&mut self) -> bool {
        if self.out.len() >= self.local.node().settings.queue.qos0_bytes_max {
            return false;
        }
        let stuffed = &self.local.node().stuffed;
        let free = stuffed.fetch_add(1, Ordering::Relaxed) < STUFFED_MAX;
        if free {
            self.stuffed += 1;
        } else {
            stuffed.fetch_sub(1, Ordering::Relaxed);
        }
        free
    }

    pub(super) fn unstuff(&mut self) {
        self.local.node().stuffed.fetch_sub(std::mem::take(&mut self.stuffed) as usize, Ordering::Relaxed);
    }

    /// Sends what was held back for lack of quota or of a writable socket.
    pub(super) fn deliver_held(&mut self) {
        while self.writable && self.subscribing == 0 && self.machine.send_quota() > 0 {
            let Some(delivery) = self.held.existing().and_then(VecDeque::pop_front) else { break };
            if let Source::Queue { seq } = delivery.source {
                self.sent_seq = self.sent_seq.max(seq);
            }
            let kept = kept(&delivery);
            if !self.machine.deliver(delivery, self.now, &mut self.effects) {
                if let Some(kept) = kept {
                    self.held.get_mut().push_front(kept);
                }
                break;
            }
        }
    }
}

/// A copy to try again with, where the machine may refuse a delivery: the Packet Identifier of a replicated queue's entry can be in use.
fn kept(delivery: &Delivery) -> Option<Delivery> {
    matches!(delivery.source, Source::Queue { .. }).then(|| delivery.clone())
}
