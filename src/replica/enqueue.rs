//! Queues of sessions and shared subscriptions: what goes in, what comes out by the steps of deliveries, what is reported.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use super::apply::Scope;
use super::command::{QueueStep, Target};
use super::event::OutboxEvent;
use super::expiry::{DueKey, DueTimes};
use super::ids::ConnectionRef;
use super::record::DirtyRecords;
use super::record_key::{QueueOwner, RecordKey};
use super::session::{Queue, QueueEntry};
use super::slot::Slot;
use super::state::State;
use super::stored_queue::Pushed;
use crate::mqtt::{Message, QoS, UserProperties};
use crate::plant::{Plant, is_planted};
use crate::signal::namespace::{Namespace, is_told_already};
use crate::signal::{DropReason, Dropped, Expired, Receiver, RenderedOnce};

impl State {
    /// Queues one message for each target.
    pub(super) fn enqueue(&mut self, scope: &mut Scope, message: &Arc<Message>, targets: &[Target]) {
        for target in targets {
            match target {
                Target::Session { client, qos, retain, subscription_ids, retained_origin } => {
                    let entry = QueueEntry {
                        seq: 0,
                        qos: *qos,
                        retain: *retain,
                        retained_origin: *retained_origin,
                        subscription_ids: subscription_ids.clone(),
                        message: Some(message.clone()),
                    };
                    self.enqueue_for_session(scope, client, message, entry);
                }
                Target::Group { group, queue_limit, discard_oldest } => {
                    let entry = QueueEntry::for_group(message);
                    self.enqueue_for_group(scope, group, (*queue_limit, *discard_oldest), message, entry);
                }
                Target::Member { client, group, retain, subscription_ids } => {
                    self.enqueue_for_member(scope, (client, group), message, *retain, subscription_ids);
                }
                Target::Returned { group } => self.take_back(scope, group, message),
            }
        }
    }

    pub(super) fn enqueue_for_session(
        &mut self,
        scope: &mut Scope,
        client: &ByteString,
        message: &Arc<Message>,
        entry: QueueEntry,
    ) {
        let Some(session) = self.sessions.get_mut(client).filter(|session| !session.is_expired(scope.now_ms)) else { return };
        let qos = entry.qos;
        if message.is_expired(scope.now_ms) {
            return self.report_expired(scope, message.clone(), qos, Receiver::Client(client.clone()));
        }
        let before_ms = session.queue.next_expiry_ms();
        let pushed = session.queue.push(&mut session.queue_head, entry);
        if pushed != Pushed::Refused {
            self.due.change(before_ms, session.queue.next_expiry_ms(), || DueKey::Queue(QueueOwner::Session(client.clone())));
            self.dirty.mark(RecordKey::QueueHead(client.clone()));
            scope.tell_queued(client);
            if session.queue.became_nearly_full(&session.queue_head) {
                self.filling = Some(QueueOwner::Session(client.clone()));
            }
        }
        self.settle_push(scope, pushed, (message, qos), || QueueOwner::Session(client.clone()));
    }

    /// Marks what a push changed and reports what it cost.
    pub(super) fn settle_push(
        &mut self,
        scope: &mut Scope,
        pushed: Pushed,
        (message, qos): (&Arc<Message>, QoS),
        owner: impl Fn() -> QueueOwner,
    ) {
        match pushed {
            Pushed::Queued { seq } => {
                self.queued_count += 1;
                self.dirty.created(RecordKey::Entry(owner(), seq));
            }
            Pushed::QueuedInstead { seq, discarded } => {
                self.dirty.created(RecordKey::Entry(owner(), seq));
                let (owner, qos) = (owner(), discarded.qos());
                self.dirty.gone(RecordKey::Entry(owner.clone(), discarded.seq()));
                let receiver = self.receiver_of(&owner, discarded.seq());
                self.forget_assigned(&owner, discarded.seq());
                if let Some(message) = self.message_of_taken(&owner, discarded) {
                    self.report_dropped(scope, message, qos, receiver, DropReason::ClientMessageQueueFull);
                }
            }
            Pushed::Refused => {
                self.report_dropped(scope, message.clone(), qos, owner().receiver(), DropReason::ClientMessageQueueFull);
            }
        }
    }

    /// Steps of deliveries on the session's current connection.
    pub(super) fn acknowledge(
        &mut self,
        scope: &mut Scope,
        client: &ByteString,
        connection: ConnectionRef,
        steps: &[(u64, QueueStep)],
    ) {
        let Some(session) = self.sessions.current_mut(client, connection) else {
            return;
        };
        let owner = QueueOwner::Session(client.clone());
        let walked = walk(&mut session.queue, &owner, steps, &mut self.due, &mut self.dirty);
        self.settle_steps(scope, &owner, walked);
        for (seq, _) in steps {
            self.forget_assigned(&owner, *seq);
        }
    }

    /// Counts and reports what steps of deliveries did.
    pub(super) fn settle_steps(&mut self, scope: &mut Scope, owner: &QueueOwner, walked: Walked) {
        self.queued_count -= walked.removed;
        for (entry, loss) in walked.lost {
            let (qos, receiver) = (entry.qos(), self.receiver_of(owner, entry.seq()));
            let Some(message) = self.message_of_taken(owner, entry) else { continue };
            match loss {
                Loss::Expired => self.report_expired(scope, message, qos, receiver),
                Loss::Dropped(reason) => self.report_dropped(scope, message, qos, receiver, reason),
            }
        }
    }

    /// Who misses an entry of a queue: a shared subscription also where the entry is in the queue of the member that was chosen for it.
    pub(super) fn receiver_of(&self, owner: &QueueOwner, seq: u64) -> Receiver {
        self.group_of(owner, seq).map_or_else(|| owner.receiver(), |group| Receiver::SharedSubscription(group.full()))
    }

    fn report_dropped(&mut self, scope: &mut Scope, message: Arc<Message>, qos: QoS, receiver: Receiver, reason: DropReason) {
        let message = if is_told_already(&message.topic, Namespace::Dropped) { only_named(&message) } else { message };
        let dropped = Dropped { message, qos, receiver, reason, at_ms: scope.now_ms, rendered: RenderedOnce::default() };
        self.append_outbox(scope, OutboxEvent::Dropped(dropped));
    }

    pub(super) fn report_expired(&mut self, scope: &mut Scope, message: Arc<Message>, qos: QoS, receiver: Receiver) {
        if is_planted(Plant::ExpiryNotTold) {
            return;
        }
        let message = if is_told_already(&message.topic, Namespace::Expired) { only_named(&message) } else { message };
        let expired = Expired { message, qos, receiver, at_ms: scope.now_ms, rendered: RenderedOnce::default() };
        self.append_outbox(scope, OutboxEvent::Expired(expired));
    }
}

/// A message of which nothing but its topic is wanted any more: what happened to it is counted and not told of. Outboxes are on disk and in
/// memory, and an analyst who is too slow makes as many of these as there are losses. (A node of the release before keeps the whole message here:
/// that nobody reads is the only difference.)
fn only_named(message: &Message) -> Arc<Message> {
    Arc::new(Message {
        payload: Bytes::new(),
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: UserProperties::default(),
        ..message.clone()
    })
}

impl QueueOwner {
    /// How reports name the owner.
    pub(super) fn receiver(&self) -> Receiver {
        match self {
            Self::Session(client) => Receiver::Client(client.clone()),
            Self::Group(group) => Receiver::SharedSubscription(group.full()),
        }
    }
}

/// What steps of deliveries did to a queue.
#[derive(Debug, Default)]
pub(super) struct Walked {
    removed: usize,
    lost: Vec<(Slot, Loss)>,
}

#[derive(Debug)]
enum Loss {
    Expired,
    Dropped(DropReason),
}

/// Applies steps to a queue; a `seq` that is not there is passed over.
pub(super) fn walk(
    queue: &mut Queue,
    owner: &QueueOwner,
    steps: &[(u64, QueueStep)],
    due: &mut DueTimes,
    dirty: &mut DirtyRecords,
) -> Walked {
    let before_ms = queue.next_expiry_ms();
    let mut walked = Walked::default();
    for (seq, step) in steps {
        let Some(index) = queue.find(*seq) else { continue };
        let key = RecordKey::Entry(owner.clone(), *seq);
        let loss = match step {
            QueueStep::Received => {
                dirty.mark(key);
                queue.forget_message(index);
                continue;
            }
            QueueStep::Completed => None,
            QueueStep::Expired => Some(Loss::Expired),
            QueueStep::Dropped(reason) => Some(Loss::Dropped(*reason)),
        };
        let Some(entry) = queue.take(index) else { continue };
        dirty.gone(key);
        walked.removed += 1;
        if let Some(loss) = loss {
            walked.lost.push((entry, loss));
        }
    }
    due.change(before_ms, queue.next_expiry_ms(), || DueKey::Queue(owner.clone()));
    walked
}
