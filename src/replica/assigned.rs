//! QoS 2 messages of shared subscriptions in the queues of members.
//!
//! A message that was begun with a member is completed with that member [MQTT-4.8.2-4], or with nobody [MQTT-4.8.2-5]; one that was
//! assigned to it and not sent is the group's, and goes back when the member's connection ends. So the shard keeps which entries of a queue
//! came from which group, until they go or are received: what becomes of them otherwise is also told as the group's loss.

use std::sync::Arc;

use bytestring::ByteString;

use super::apply::Scope;
use super::event::OutboxEvent;
use super::expiry::DueKey;
use super::record_key::{QueueOwner, RecordKey};
use super::session::{QueueEntry, Session};
use super::state::State;
use crate::mqtt::{GroupId, Message, QoS, SubscriptionFilter, SubscriptionIds};
use crate::signal::Receiver;

impl State {
    /// Queues a message for the member that was chosen, if it is still there to take it.
    pub(super) fn enqueue_for_member(
        &mut self,
        scope: &mut Scope,
        (client, group): (&ByteString, &GroupId),
        message: &Arc<Message>,
        retain: bool,
        subscription_ids: &SubscriptionIds,
    ) {
        let Some(session) = self.sessions.get(client).filter(|session| takes(session, group)) else {
            return self.append_outbox(scope, OutboxEvent::Returned { group: group.clone(), message: message.clone() });
        };
        if message.is_expired(scope.now_ms) {
            let receiver = Receiver::SharedSubscription(group.full());
            return self.report_expired(scope, message.clone(), QoS::ExactlyOnce, receiver);
        }
        let seq = session.queue_head.next_seq;
        let entry = QueueEntry {
            qos: QoS::ExactlyOnce,
            retain,
            subscription_ids: subscription_ids.clone(),
            ..QueueEntry::for_group(message)
        };
        self.enqueue_for_session(scope, client, message, entry);
        if self.sessions.get(client).is_some_and(|session| session.queue_head.next_seq > seq) {
            self.assigned.entry(client.clone()).or_default().insert(seq, group.clone());
            self.dirty.created(RecordKey::Assigned(client.clone(), seq));
        }
    }

    /// Gives back to their groups the messages that were never sent, in order; the others stay with the session.
    pub(super) fn return_unsent(&mut self, scope: &mut Scope, client: &ByteString) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Some(assigned) = self.assigned.get_mut(client) else { return };
        let unsent = assigned.split_off(&session.queue_head.sent_seq.saturating_add(1));
        if assigned.is_empty() {
            self.assigned.remove(client);
        }
        let before_ms = session.queue.next_expiry_ms();
        let mut returned = Vec::new();
        for (seq, group) in unsent {
            self.dirty.gone(RecordKey::Assigned(client.clone(), seq));
            let Some(slot) = session.queue.find(seq).and_then(|index| session.queue.take(index)) else { continue };
            self.queued_count -= 1;
            self.dirty.gone(RecordKey::Entry(QueueOwner::Session(client.clone()), seq));
            returned.push((group, slot));
        }
        let after_ms = session.queue.next_expiry_ms();
        let owner = QueueOwner::Session(client.clone());
        self.due.change(before_ms, after_ms, || DueKey::Queue(owner.clone()));
        for (group, slot) in returned {
            if let Some(message) = self.message_of_taken(&owner, slot) {
                self.append_outbox(scope, OutboxEvent::Returned { group, message });
            }
        }
    }

    /// The groups that gave a connected member entries of its queue that were not sent before, nor on this connection, which came to `sent_seq`.
    pub fn assigned_after(&self, client: &ByteString, sent_seq: u64) -> impl Iterator<Item = &GroupId> {
        let sent_seq = self.sessions.get(client).map_or(0, |session| session.queue_head.sent_seq).max(sent_seq);
        let assigned = self.assigned.get(client).into_iter().flatten();
        assigned.filter(move |(seq, _)| **seq > sent_seq).map(|(_, group)| group)
    }

    /// The group that an entry of a queue was assigned from.
    pub(super) fn group_of(&self, owner: &QueueOwner, seq: u64) -> Option<&GroupId> {
        let QueueOwner::Session(client) = owner else { return None };
        self.assigned.get(client)?.get(&seq)
    }

    /// An entry of a queue goes, or has been received: it is the group's no more.
    pub(super) fn forget_assigned(&mut self, owner: &QueueOwner, seq: u64) {
        let QueueOwner::Session(client) = owner else { return };
        let Some(groups) = self.assigned.get_mut(client) else { return };
        if groups.remove(&seq).is_some() {
            self.dirty.gone(RecordKey::Assigned(client.clone(), seq));
        }
        if groups.is_empty() {
            self.assigned.remove(client);
        }
    }

    /// The session is gone.
    pub(super) fn forget_all_assigned(&mut self, client: &ByteString) {
        for seq in self.assigned.remove(client).into_iter().flat_map(|groups| groups.into_keys()) {
            self.dirty.gone(RecordKey::Assigned(client.clone(), seq));
        }
    }
}

/// Whether a session is connected, still a member, and has room.
fn takes(session: &Session, group: &GroupId) -> bool {
    let filter = SubscriptionFilter { share: Some(group.share.clone()), filter: group.filter.clone() };
    let counted = session.queue.entries.len().saturating_sub(session.queue.retained_count as usize);
    session.connection.is_some() && counted < session.queue_head.limit as usize && session.subscriptions.contains_key(&filter)
}
