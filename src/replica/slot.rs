//! A queued message in memory: whole, or only what the shard decides by while the record on disk has the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::session::QueueEntry;
use crate::mqtt::{Message, QoS, SubscriptionIds};

/// One place of a queue, at most 32 bytes beside a whole message.
#[derive(Debug, Clone)]
pub struct Slot {
    seq: u64,
    /// Wall clock ms, `NEVER` where it does not expire.
    expires_at_ms: u64,
    /// The message, while it is in memory.
    whole: Option<Box<Whole>>,
    qos: QoS,
    retained_origin: bool,
    has_message: bool,
}

const NEVER: u64 = u64::MAX;

/// An entry in memory, and the part of the budget it takes once it is on disk as well.
#[derive(Debug)]
struct Whole {
    entry: QueueEntry,
    _charge: Option<Charge>,
}

impl Clone for Whole {
    fn clone(&self) -> Self {
        Self { entry: self.entry.clone(), _charge: None }
    }
}

impl Slot {
    /// A whole entry.
    pub(super) fn new(entry: QueueEntry) -> Self {
        let mut slot = Self::stub_of(&entry);
        if slot.has_message {
            slot.whole = Some(Box::new(Whole { entry, _charge: None }));
        }
        slot
    }

    /// An entry whose record is on disk.
    pub(super) fn stub_of(entry: &QueueEntry) -> Self {
        let expires_at_ms = entry.message.as_ref().and_then(|message| message.expires_at_ms());
        Self {
            seq: entry.seq,
            expires_at_ms: expires_at_ms.unwrap_or(NEVER),
            whole: None,
            qos: entry.qos,
            retained_origin: entry.retained_origin,
            has_message: entry.message.is_some(),
        }
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn qos(&self) -> QoS {
        self.qos
    }

    /// Came from a retained message at subscribe time.
    pub fn is_retained_origin(&self) -> bool {
        self.retained_origin
    }

    /// False after PUBREC: only PUBREL is still to be exchanged.
    pub fn has_message(&self) -> bool {
        self.has_message
    }

    /// Wall clock ms; `None` never.
    pub fn expires_at_ms(&self) -> Option<u64> {
        (self.expires_at_ms != NEVER).then_some(self.expires_at_ms)
    }

    /// Whether the message is on disk only.
    pub fn is_stub(&self) -> bool {
        self.has_message && self.whole.is_none()
    }

    /// The message, where it is in memory.
    pub(super) fn message(&self) -> Option<&Arc<Message>> {
        self.whole.as_ref()?.entry.message.as_ref()
    }

    /// The whole entry; `None` where the disk has it.
    pub fn entry(&self) -> Option<QueueEntry> {
        match &self.whole {
            Some(whole) => Some(whole.entry.clone()),
            None if self.has_message => None,
            None => Some(self.without_message()),
        }
    }

    /// The same for an entry that left its queue.
    pub(super) fn into_message(self) -> Option<Arc<Message>> {
        self.whole?.entry.message
    }

    /// Forgets the message: the entry waits for PUBCOMP and can't expire any more.
    pub(super) fn forget_message(&mut self) {
        self.has_message = false;
        self.expires_at_ms = NEVER;
        self.whole = None;
    }

    /// The record is on disk: what is in memory stays if `budget` has room and goes otherwise.
    pub(super) fn keep_within(&mut self, budget: &Arc<Budget>) {
        if let Some(whole) = &mut self.whole {
            let bytes = whole.entry.message.as_ref().map_or(0, |message| message.size_bytes());
            match budget.charge(bytes) {
                Some(charge) => whole._charge = Some(charge),
                None => self.whole = None,
            }
        }
    }

    /// The record is on disk: what is in memory goes.
    pub(super) fn cool(&mut self) {
        self.whole = None;
    }

    /// What is left of an entry after PUBREC. RETAIN and Subscription Identifiers went with the message, whether they were in memory or
    /// not: every node stores the same.
    fn without_message(&self) -> QueueEntry {
        QueueEntry {
            seq: self.seq,
            qos: self.qos,
            retain: false,
            retained_origin: self.retained_origin,
            subscription_ids: SubscriptionIds::new(),
            message: None,
        }
    }
}

/// By what it stands for: where the message is does not matter.
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        let of = |slot: &Self| (slot.seq, slot.expires_at_ms, slot.qos, slot.retained_origin, slot.has_message);
        of(self) == of(other)
    }
}

/// Bytes of messages that are in memory although they are on disk, of all queues of a shard.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a part, given back when the charge drops. Asked by one thread at a time.
    fn charge(self: &Arc<Self>, bytes: usize) -> Option<Charge> {
        if self.used().saturating_add(bytes) > self.max {
            return None;
        }
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Some(Charge { budget: Arc::clone(self), bytes })
    }
}

#[derive(Debug)]
struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::testing::expiring;

    fn entry(seq: u64) -> QueueEntry {
        QueueEntry {
            seq,
            qos: QoS::ExactlyOnce,
            retain: true,
            retained_origin: false,
            subscription_ids: [7].into_iter().collect(),
            message: Some(expiring("t", Some(5), 1000)),
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert!(size_of::<Slot>() <= 32);
    }

    #[test]
    fn a_stub_stands_for_the_same_entry() {
        let (whole, stub) = (Slot::new(entry(3)), Slot::stub_of(&entry(3)));
        assert_eq!(whole, stub);
        assert_eq!((whole.entry(), stub.entry()), (Some(entry(3)), None));
        assert_eq!((stub.seq(), stub.expires_at_ms(), stub.is_stub(), whole.is_stub()), (3, Some(6000), true, false));
    }

    #[test]
    fn what_is_left_after_pubrec_is_the_same_wherever_the_message_was() {
        let (mut whole, mut stub) = (Slot::new(entry(3)), Slot::stub_of(&entry(3)));
        whole.forget_message();
        stub.forget_message();
        assert!(!stub.is_stub() && whole.entry().is_some());
        assert_eq!(whole.entry(), stub.entry());
        assert_eq!(stub.expires_at_ms(), None);
    }

    #[test]
    fn a_budget_is_kept_and_given_back() {
        let bytes = entry(1).message.map_or(0, |message| message.size_bytes());
        let budget = Budget::new(bytes * 2);
        let mut slots: Vec<Slot> = (1..4).map(|seq| Slot::new(entry(seq))).collect();
        slots.iter_mut().for_each(|slot| slot.keep_within(&budget));
        assert_eq!(slots.iter().map(Slot::is_stub).collect::<Vec<_>>(), [false, false, true]);
        assert_eq!(budget.used(), bytes * 2);
        slots[0].cool();
        slots[1].forget_message();
        assert_eq!(budget.used(), 0);
    }
}
