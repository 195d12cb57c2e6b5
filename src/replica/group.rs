//! Queues of shared subscriptions.
//!
//! Which entries members have in flight is known to the dispatcher only. It is *lent* the first entries, up to a number: it hands out no
//! others, and they neither expire nor are discarded here. What of them no member has when its time has passed the dispatcher takes out itself
//! (`QueueStep::Expired`). It is lent a little more than its members can take, also numbers of entries that are still to come, so that a command
//! does for many messages; nothing while no member is connected. What the dispatcher of a former leader was lent stays so until the next one asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::apply::Scope;
use super::command::{Assignment, DeclareCommand, QueueStep};
use super::enqueue::walk;
use super::event::{Event, OutboxEvent};
use super::expiry::DueKey;
use super::ids::NodeId;
use super::record_key::{QueueOwner, RecordKey};
use super::session::{Group, Queue, QueueEntry, QueueHead};
use super::state::State;
use super::stored_queue::Pushed;
use crate::mqtt::{GroupId, Message};
use crate::signal::Receiver;

impl State {
    /// Queues one message, in a queue made where there is none. The limits given last hold.
    pub(super) fn enqueue_for_group(
        &mut self,
        scope: &mut Scope,
        id: &GroupId,
        (limit, discard_oldest): (u32, bool),
        message: &Arc<Message>,
        entry: QueueEntry,
    ) {
        let qos = entry.qos;
        if message.is_expired(scope.now_ms) {
            return self.report_expired(scope, message.clone(), qos, Receiver::SharedSubscription(id.full()));
        }
        // Not by `entry`, which would take a copy of the name each time.
        if !self.groups.contains_key(id) {
            self.dirty.created(RecordKey::Group(id.clone()));
            let made = Group { queue: Queue::default(), queue_head: QueueHead::new(limit, discard_oldest) };
            self.groups.insert(id.clone(), made);
        }
        let Some(group) = self.groups.get_mut(id) else { return };
        group.queue_head.limit = limit;
        group.queue_head.discard_oldest = discard_oldest;
        let before_ms = group.queue.next_expiry_ms();
        let pushed = group.queue.push(&mut group.queue_head, entry);
        self.dirty.mark(RecordKey::Group(id.clone()));
        if pushed != Pushed::Refused {
            self.due.change(before_ms, group.queue.next_expiry_ms(), || DueKey::Queue(QueueOwner::Group(id.clone())));
            scope.tell_group_queued(id);
            if group.queue.became_nearly_full(&group.queue_head) {
                self.filling = Some(QueueOwner::Group(id.clone()));
            }
        }
        self.settle_push(scope, pushed, (message, qos), || QueueOwner::Group(id.clone()));
    }

    /// Steps of deliveries to members.
    pub(super) fn acknowledge_shared(&mut self, scope: &mut Scope, id: &GroupId, steps: &[(u64, QueueStep)]) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let owner = QueueOwner::Group(id.clone());
        let walked = walk(&mut group.queue, &owner, steps, &mut self.due, &mut self.dirty);
        self.settle_steps(scope, &owner, walked);
    }

    /// Lends the dispatcher the entries up to `through`, and no others, if what it was lent before is what it knows of.
    pub(super) fn lend_shared(&mut self, id: &GroupId, from: u64, through: u64) {
        let Some(group) = self.groups.get_mut(id).filter(|group| group.queue_head.sent_seq == from) else { return };
        let before_ms = group.queue.next_expiry_ms();
        group.queue_head.sent_seq = through;
        group.queue.lend(through);
        self.due.change(before_ms, group.queue.next_expiry_ms(), || DueKey::Queue(QueueOwner::Group(id.clone())));
        self.dirty.mark(RecordKey::Group(id.clone()));
    }

    /// Hands entries over to members' sessions; what is gone meanwhile (expired, discarded) is not handed over.
    /// `named`: the events say which group; nodes of version 2 cannot read those.
    pub(super) fn assign_shared(&mut self, scope: &mut Scope, id: &GroupId, assignments: &[Assignment], named: bool) {
        let mut steps = Vec::with_capacity(assignments.len());
        let mut events = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let Some(message) = self.message_of_group(id, assignment.seq) else { continue };
            steps.push((assignment.seq, QueueStep::Completed));
            let (client, retain) = (assignment.client.clone(), assignment.retain);
            let subscription_ids = assignment.subscription_ids.clone();
            events.push(if named {
                OutboxEvent::AssignedFrom { client, group: id.clone(), message, retain, subscription_ids }
            } else {
                OutboxEvent::Assigned { client, message, retain, subscription_ids }
            });
        }
        self.acknowledge_shared(scope, id, &steps);
        for event in events {
            self.append_outbox(scope, event);
        }
    }

    /// Queues again what a member did not get, behind what waits. A queue that is gone, with all its members, takes nothing back.
    pub(super) fn take_back(&mut self, scope: &mut Scope, id: &GroupId, message: &Arc<Message>) {
        let Some(group) = self.groups.get(id) else { return };
        let (limit, discard_oldest) = (group.queue_head.limit, group.queue_head.discard_oldest);
        self.enqueue_for_group(scope, id, (u32::MAX, discard_oldest), message, QueueEntry::for_group(message));
        if let Some(group) = self.groups.get_mut(id) {
            group.queue_head.limit = limit;
        }
    }

    /// Takes over what a node declares in this shard. A queue is there from then on.
    pub(super) fn declare(&mut self, scope: &mut Scope, declare: &DeclareCommand) {
        let node = declare.node;
        let withdrawn = |(id, nodes): (&GroupId, &BTreeSet<NodeId>)| {
            (nodes.contains(&node) && !declare.groups.contains(id)).then(|| id.clone())
        };
        let withdrawn: Vec<GroupId> = self.declared.iter().filter_map(withdrawn).collect();
        for id in withdrawn {
            let Some(nodes) = self.declared.get_mut(&id) else { continue };
            nodes.remove(&node);
            let is_last = nodes.is_empty();
            self.dirty.mark(RecordKey::Declared(id.clone()));
            if is_last {
                self.declared.remove(&id);
                scope.tell(Event::GroupDeclared { group: id, declared: false });
            }
        }
        for id in &declare.groups {
            let nodes = self.declared.entry(id.clone()).or_default();
            let is_first = nodes.is_empty();
            if !nodes.insert(node) {
                continue;
            }
            self.dirty.mark(RecordKey::Declared(id.clone()));
            if is_first {
                scope.tell(Event::GroupDeclared { group: id.clone(), declared: true });
            }
            if !self.groups.contains_key(id) {
                let queue_head = QueueHead::new(declare.queue_limit, declare.discard_oldest);
                self.groups.insert(id.clone(), Group { queue: Queue::default(), queue_head });
                self.dirty.created(RecordKey::Group(id.clone()));
            }
        }
    }

    /// Removes a shared subscription's queue; what it holds is not reported.
    pub(super) fn remove_group(&mut self, scope: &mut Scope, id: &GroupId, next_seq: u64) {
        if self.declared.contains_key(id) || self.groups.get(id).is_none_or(|group| group.queue_head.next_seq != next_seq) {
            return;
        }
        let Some(group) = self.groups.remove(id) else { return };
        self.due.change(group.queue.next_expiry_ms(), None, || DueKey::Queue(QueueOwner::Group(id.clone())));
        self.queued_count -= group.queue.entries.len();
        self.dirty.gone(RecordKey::Group(id.clone()));
        for entry in &group.queue.entries {
            self.dirty.gone(RecordKey::Entry(QueueOwner::Group(id.clone()), entry.seq()));
        }
        self.ahead.forget(&QueueOwner::Group(id.clone()));
        scope.tell_group_removed(id.clone());
    }
}
