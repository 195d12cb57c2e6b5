//! Due times: what `Command::Expire` does, in the order of (time, kind, name), the same on every node.

use std::collections::BTreeSet;

use bytestring::ByteString;

use super::apply::Scope;
use super::record_key::{QueueOwner, RecordKey};
use super::session::Queue;
use super::state::State;

/// What can fall due.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DueKey {
    /// The Will of a client waits out its delay.
    Will(ByteString),
    /// The session of a client ends.
    Session(ByteString),
    /// A message of a queue expires: one due time for each queue, the earliest.
    Queue(QueueOwner),
    /// The retained message of a topic expires.
    Retained(ByteString),
}

/// All due times of a shard.
#[derive(Debug, Default, PartialEq)]
pub(super) struct DueTimes {
    times: BTreeSet<(u64, DueKey)>,
}

impl DueTimes {
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.times.first().map(|(at_ms, _)| *at_ms)
    }

    /// Moves a due time; `key` is built only if something changes.
    pub(super) fn change(&mut self, before_ms: Option<u64>, after_ms: Option<u64>, key: impl FnOnce() -> DueKey) {
        if before_ms == after_ms {
            return;
        }
        let mut entry = (0, key());
        if let Some(at_ms) = before_ms {
            entry.0 = at_ms;
            self.times.remove(&entry);
        }
        if let Some(at_ms) = after_ms {
            entry.0 = at_ms;
            self.times.insert(entry);
        }
    }

    /// Shields the first entries of a session's queue, which takes them out of the due times, or lets them expire again.
    pub(super) fn shield(&mut self, queue: &mut Queue, count: usize, client: &ByteString) {
        let before_ms = queue.next_expiry_ms();
        queue.shield(count);
        self.change(before_ms, queue.next_expiry_ms(), || DueKey::Queue(QueueOwner::Session(client.clone())));
    }

    fn pop_due(&mut self, now_ms: u64) -> Option<DueKey> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.times.pop_first().map(|(_, key)| key)
    }
}

impl State {
    /// How many of the things that are due, `limit` at most, may be done in one go: the queues of sessions that end are taken out as a whole, and
    /// those of one go have about `entries_max` entries, unless the first has more. A queue is due once for each of its messages, so that more may
    /// be done than there are due times now.
    pub fn due_in_one_go(&self, now_ms: u64, limit: u32, entries_max: usize) -> u32 {
        let (mut count, mut entries) = (0, 0);
        for (_, key) in self.due.times.iter().take_while(|(at_ms, _)| *at_ms <= now_ms) {
            if let DueKey::Session(client) = key {
                entries += self.sessions.get(client).map_or(0, |session| session.queue.entries.len());
            }
            count += 1;
            if count >= limit || entries >= entries_max {
                return count.min(limit);
            }
        }
        limit
    }

    /// Does at most `limit` of the things that are due.
    pub(super) fn expire(&mut self, scope: &mut Scope, limit: u32) {
        for _ in 0..limit {
            let Some(key) = self.due.pop_due(scope.now_ms) else { return };
            match key {
                DueKey::Will(client) => self.publish_pending_will(scope, &client),
                DueKey::Session(client) => self.remove_session(scope, &client),
                DueKey::Queue(owner) => self.expire_queued(scope, owner),
                DueKey::Retained(topic) => self.remove_retained(&topic),
            }
        }
    }

    /// Takes out the message of the queue that expires first; the due time of the queue was popped.
    fn expire_queued(&mut self, scope: &mut Scope, owner: QueueOwner) {
        let queue = match &owner {
            QueueOwner::Session(client) => self.sessions.get_mut(client).map(|session| &mut session.queue),
            QueueOwner::Group(group) => self.groups.get_mut(group).map(|group| &mut group.queue),
        };
        let Some(queue) = queue else { return };
        let expired = queue.take_first_expiring();
        self.due.change(None, queue.next_expiry_ms(), || DueKey::Queue(owner.clone()));
        let Some(expired) = expired else { return };
        self.queued_count -= 1;
        let (receiver, qos) = (self.receiver_of(&owner, expired.seq()), expired.qos());
        self.forget_assigned(&owner, expired.seq());
        self.dirty.gone(RecordKey::Entry(owner.clone(), expired.seq()));
        if let Some(message) = self.message_of_taken(&owner, expired) {
            self.report_expired(scope, message, qos, receiver);
        }
    }
}
