//! A queued message in memory: whole, or only what the shard decides by while the record on disk has the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::session::QueueEntry;
use crate::mqtt::{Message, QoS, SubscriptionIds};

/// One place of a queue: 16 bytes where the message is on disk and does not expire, 32 where it expires.
#[derive(Debug, Clone)]
pub struct Slot {
    /// `seq`, and the facts below in its lowest bits.
    packed: u64,
    rest: Option<Box<Rest>>,
}

/// What few places of a long queue have.
#[derive(Debug, Clone)]
enum Rest {
    /// The message is on disk and expires, wall clock ms.
    Expires(u64),
    /// The message, while it is in memory.
    Whole(Box<Whole>),
}

/// No entry has a higher number: a billion a second for 36 years. Records that name one are refused as damaged.
pub(super) const SEQ_MAX: u64 = u64::MAX >> FACT_BITS;
const FACT_BITS: u32 = 4;
const QOS: u64 = 0b11;
const RETAINED_ORIGIN: u64 = 0b100;
const HAS_MESSAGE: u64 = 0b1000;

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
        let packed = pack(&entry);
        let rest = entry.message.is_some().then(|| Rest::Whole(Box::new(Whole { entry, _charge: None })));
        Self { packed, rest: rest.map(Box::new) }
    }

    /// An entry whose record is on disk.
    pub(super) fn stub_of(entry: &QueueEntry) -> Self {
        Self { packed: pack(entry), rest: expiry_of(entry).map(Rest::Expires).map(Box::new) }
    }

    pub fn seq(&self) -> u64 {
        self.packed >> FACT_BITS
    }

    pub fn qos(&self) -> QoS {
        match self.packed & QOS {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    /// Came from a retained message at subscribe time.
    pub fn is_retained_origin(&self) -> bool {
        self.packed & RETAINED_ORIGIN != 0
    }

    /// False after PUBREC: only PUBREL is still to be exchanged.
    pub fn has_message(&self) -> bool {
        self.packed & HAS_MESSAGE != 0
    }

    /// Wall clock ms; `None` never.
    pub fn expires_at_ms(&self) -> Option<u64> {
        match self.rest.as_deref()? {
            Rest::Expires(at_ms) => Some(*at_ms),
            Rest::Whole(whole) => expiry_of(&whole.entry),
        }
    }

    /// Whether the message is on disk only.
    pub fn is_stub(&self) -> bool {
        self.has_message() && self.whole().is_none()
    }

    fn whole(&self) -> Option<&Whole> {
        match self.rest.as_deref()? {
            Rest::Expires(_) => None,
            Rest::Whole(whole) => Some(whole),
        }
    }

    /// The message, where it is in memory.
    pub(super) fn message(&self) -> Option<&Arc<Message>> {
        self.whole()?.entry.message.as_ref()
    }

    /// The whole entry; `None` where the disk has it.
    pub fn entry(&self) -> Option<QueueEntry> {
        match self.whole() {
            Some(whole) => Some(whole.entry.clone()),
            None if self.has_message() => None,
            None => Some(self.without_message()),
        }
    }

    /// The same for an entry that left its queue.
    pub(super) fn into_message(self) -> Option<Arc<Message>> {
        match *self.rest? {
            Rest::Expires(_) => None,
            Rest::Whole(whole) => whole.entry.message,
        }
    }

    /// Forgets the message: the entry waits for PUBCOMP and can't expire any more.
    pub(super) fn forget_message(&mut self) {
        self.packed &= !HAS_MESSAGE;
        self.rest = None;
    }

    /// The record is on disk: what is in memory stays if `budget` has room and goes otherwise.
    pub(super) fn keep_within(&mut self, budget: &Arc<Budget>) {
        let Some(Rest::Whole(whole)) = self.rest.as_deref_mut() else { return };
        let bytes = whole.entry.message.as_ref().map_or(0, |message| message.size_bytes());
        match budget.charge(bytes) {
            Some(charge) => whole._charge = Some(charge),
            None => self.cool(),
        }
    }

    /// The record is on disk: what is in memory goes.
    pub(super) fn cool(&mut self) {
        let Some(rest) = self.rest.as_deref_mut() else { return };
        let Rest::Whole(whole) = rest else { return };
        match expiry_of(&whole.entry) {
            Some(at_ms) => *rest = Rest::Expires(at_ms),
            None => self.rest = None,
        }
    }

    /// What is left of an entry after PUBREC. RETAIN and Subscription Identifiers went with the message, whether they were in memory or
    /// not: every node stores the same.
    fn without_message(&self) -> QueueEntry {
        QueueEntry {
            seq: self.seq(),
            qos: self.qos(),
            retain: false,
            retained_origin: self.is_retained_origin(),
            subscription_ids: SubscriptionIds::new(),
            message: None,
        }
    }
}

/// By what it stands for: where the message is does not matter.
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        (self.packed, self.expires_at_ms()) == (other.packed, other.expires_at_ms())
    }
}

fn pack(entry: &QueueEntry) -> u64 {
    let flag = |is_so: bool, flag: u64| if is_so { flag } else { 0 };
    let facts = flag(entry.retained_origin, RETAINED_ORIGIN) | flag(entry.message.is_some(), HAS_MESSAGE);
    (entry.seq << FACT_BITS) | (entry.qos as u64) | facts
}

fn expiry_of(entry: &QueueEntry) -> Option<u64> {
    entry.message.as_ref().and_then(|message| message.expires_at_ms())
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
        assert!(size_of::<Slot>() <= 16);
        assert!(size_of::<Rest>() <= 16);
    }

    #[test]
    fn a_slot_tells_the_facts_of_its_entry() {
        for seq in [1, SEQ_MAX] {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for (retained_origin, has_message) in [(false, false), (false, true), (true, false), (true, true)] {
                    let message = entry(seq).message.filter(|_| has_message);
                    let entry = QueueEntry { qos, retained_origin, message, ..entry(seq) };
                    for slot in [Slot::new(entry.clone()), Slot::stub_of(&entry)] {
                        let found = (slot.seq(), slot.qos(), slot.is_retained_origin(), slot.has_message(), slot.expires_at_ms());
                        assert_eq!(found, (seq, qos, retained_origin, has_message, has_message.then_some(6000)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_cooled_entry_is_a_stub_of_itself() {
        for message in [entry(3).message, Some(crate::replica::testing::message("t"))] {
            let entry = QueueEntry { message, ..entry(3) };
            let mut slot = Slot::new(entry.clone());
            slot.cool();
            assert!(slot.is_stub());
            assert_eq!(slot, Slot::stub_of(&entry));
            assert_eq!(slot.rest.is_some(), slot.expires_at_ms().is_some());
        }
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
