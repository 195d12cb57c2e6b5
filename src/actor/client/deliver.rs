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
        } else if self.waits_for_the_socket(&delivery) {
            self.held.get_mut().push_back(delivery);
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

    /// Whether a QoS 0 message is held back for a socket that takes no more, at most what the queue hands out at once. Retained messages come
    /// all at once and would be lost to a client that reads as fast as it can; nothing of QoS 0 overtakes them.
    fn waits_for_the_socket(&self, delivery: &Delivery) -> bool {
        let holds_qos0 = || self.held.get().is_some_and(|held| held.iter().any(|delivery| delivery.qos == QoS::AtMostOnce));
        (!self.writable && delivery.retain) || holds_qos0()
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
        while self.writable && self.subscribing == 0 {
            let quota = self.machine.send_quota();
            let may_go = |delivery: &Delivery| quota > 0 || delivery.qos == QoS::AtMostOnce;
            let Some(held) = self.held.existing().filter(|held| held.front().is_some_and(may_go)) else { break };
            let Some(delivery) = held.pop_front() else { break };
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
