//! What can be done to a stored queue: push with limits, take out, shield what may be in flight. Plain data, no reports.

use super::session::{Queue, QueueEntry, QueueHead};
use super::slot::Slot;
use crate::mqtt::QoS;

/// The largest send window of a client (spec/hivemq.md 2.5). Entries are sent in order, so what is in flight lies among the first
/// so many of the queue.
pub const IN_FLIGHT_MAX: usize = 50;

/// Limit of entries of retained origin in one queue (spec/hivemq.md 2.2).
pub(super) const RETAINED_ORIGIN_MAX: usize = 100_000;

/// Places below which a queue gives no room back.
const SPARE_MIN: usize = 256;

/// What became of a pushed entry.
#[derive(Debug, PartialEq)]
pub(super) enum Pushed {
    Queued {
        seq: u64,
    },
    /// Queued, and the oldest that could go went.
    QueuedInstead {
        seq: u64,
        discarded: Slot,
    },
    Refused,
}

impl Queue {
    /// Appends an entry, whose `seq` is given here, within the limits of spec/hivemq.md 2.2: entries of retained origin and the others
    /// are counted apart.
    pub(super) fn push(&mut self, head: &mut QueueHead, mut entry: QueueEntry) -> Pushed {
        let retained = self.retained_count as usize;
        let is_full = if entry.retained_origin { retained >= RETAINED_ORIGIN_MAX } else { self.counted() >= head.limit as usize };
        let mut discarded = None;
        if is_full {
            let oldest = if head.discard_oldest { self.oldest_discardable(head.sent_seq, entry.retained_origin) } else { None };
            discarded = oldest.and_then(|index| self.take(index));
            if discarded.is_none() {
                return Pushed::Refused;
            }
        }
        let seq = head.next_seq;
        head.next_seq += 1;
        entry.seq = seq;
        self.append(Slot::new(entry));
        match discarded {
            Some(entry) => Pushed::QueuedInstead { seq, discarded: entry },
            None => Pushed::Queued { seq },
        }
    }

    /// Whether so many entries wait that their owner's people may want to know: four fifths of the limit.
    pub fn is_nearly_full(&self, head: &QueueHead) -> bool {
        self.counted() * 5 >= head.limit as usize * 4 && head.limit > 0
    }

    /// Whether the entry pushed last made it so.
    pub(super) fn became_nearly_full(&self, head: &QueueHead) -> bool {
        self.is_nearly_full(head) && (self.counted() - 1) * 5 < head.limit as usize * 4
    }

    /// How many more messages it takes; `None` where the oldest makes room.
    pub(super) fn room(&self, head: &QueueHead) -> Option<usize> {
        (!head.discard_oldest).then(|| (head.limit as usize).saturating_sub(self.counted()))
    }

    /// Entries that count for the limit.
    fn counted(&self) -> usize {
        self.entries.len().saturating_sub(self.retained_count as usize)
    }

    /// Appends an entry that has its `seq` already.
    pub(super) fn append(&mut self, entry: Slot) {
        self.retained_count += u32::from(entry.is_retained_origin());
        if self.entries.len() >= self.shielded() && entry.seq() > self.lent_seq {
            self.watch(&entry);
        }
        self.entries.push_back(entry);
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, index: usize) -> Option<Slot> {
        let entry = self.entries.remove(index)?;
        self.retained_count -= u32::from(entry.is_retained_origin());
        self.unwatch_entry(&entry);
        // A queue that was long gives its room back.
        if self.entries.capacity() >= SPARE_MIN && self.entries.len() * 4 <= self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
        // The entry behind the shield moved under it.
        let shielded = self.shielded();
        if index < shielded && !self.expiring.is_empty() && self.entries.len() >= shielded {
            self.unwatch(shielded - 1);
        }
        Some(entry)
    }

    /// Forgets the message of an entry: it waits for PUBCOMP and can't expire any more.
    pub(super) fn forget_message(&mut self, index: usize) {
        self.unwatch(index);
        if let Some(entry) = self.entries.get_mut(index) {
            entry.forget_message();
        }
    }

    /// Where the entry with that `seq` is.
    pub(super) fn find(&self, seq: u64) -> Option<usize> {
        // Acknowledgements come nearly always in order.
        if self.entries.front().is_some_and(|entry| entry.seq() == seq) {
            return Some(0);
        }
        self.entries.binary_search_by_key(&seq, Slot::seq).ok()
    }

    /// Up to `max` entries with `seq > after`.
    pub(super) fn after(&self, after: u64, max: usize) -> impl Iterator<Item = &Slot> {
        let start = self.entries.partition_point(|entry| entry.seq() <= after);
        self.entries.range(start..).take(max)
    }

    /// The highest `seq` among those that may have been sent on a connection of which nothing is known but how many it takes at a time.
    pub(super) fn last_possibly_sent(&self, window: usize) -> u64 {
        let last = self.entries.len().min(window);
        last.checked_sub(1).and_then(|index| self.entries.get(index)).map_or(0, Slot::seq)
    }

    /// Notes how far messages were sent; only while what was sent is shielded, so that nothing watched changes.
    pub(super) fn set_begun(&mut self, sent_seq: u64) {
        self.begun_seq = self.begun_seq.max(sent_seq);
    }

    fn shielded(&self) -> usize {
        self.shielded as usize
    }

    /// Shields the first `count` entries from expiry and discarding.
    pub(super) fn shield(&mut self, count: usize) {
        let before = self.shielded().min(self.entries.len());
        self.shielded = u32::try_from(count).unwrap_or(u32::MAX);
        let after = count.min(self.entries.len());
        for index in before..after {
            self.unwatch(index);
        }
        for index in after..before {
            if let Some(entry) = self.entries.get(index)
                && let Some(key) = expiry_key(entry, self.begun_seq)
            {
                self.expiring.insert(key);
            }
        }
    }

    /// Shields the entries up to `through`, those still to come included, and no others: for a queue of which none is shielded by its place.
    pub(super) fn lend(&mut self, through: u64) {
        let before = std::mem::replace(&mut self.lent_seq, through);
        let end = |seq: u64| self.entries.partition_point(|entry| entry.seq() <= seq);
        for entry in self.entries.range(end(before.min(through))..end(before.max(through))) {
            let Some(key) = expiry_key(entry, self.begun_seq) else { continue };
            if through > before {
                self.expiring.remove(&key);
            } else {
                self.expiring.insert(key);
            }
        }
    }

    /// When the first entry that is not shielded expires, wall clock ms.
    pub(super) fn next_expiry_ms(&self) -> Option<u64> {
        self.expiring.first().map(|(at_ms, _)| *at_ms)
    }

    /// Takes out the entry that expires first.
    pub(super) fn take_first_expiring(&mut self) -> Option<Slot> {
        let (_, seq) = self.expiring.pop_first()?;
        let index = self.find(seq)?;
        self.take(index)
    }

    /// The oldest entry of the same kind that is not in flight. An entry after PUBREC is in flight by definition.
    fn oldest_discardable(&self, sent_seq: u64, retained_origin: bool) -> Option<usize> {
        let unsent = self.entries.partition_point(|entry| entry.seq() <= sent_seq);
        let start = unsent.max(self.shielded()).min(self.entries.len());
        let found = self.entries.range(start..).position(|e| e.is_retained_origin() == retained_origin && e.has_message());
        found.map(|offset| start + offset)
    }

    fn watch(&mut self, entry: &Slot) {
        if let Some(key) = expiry_key(entry, self.begun_seq) {
            self.expiring.insert(key);
        }
    }

    fn unwatch(&mut self, index: usize) {
        if let Some(key) = self.entries.get(index).and_then(|entry| expiry_key(entry, self.begun_seq)) {
            self.expiring.remove(&key);
        }
    }

    fn unwatch_entry(&mut self, entry: &Slot) {
        if let Some(key) = expiry_key(entry, self.begun_seq) {
            self.expiring.remove(&key);
        }
    }
}

/// (expiry, `seq`) of an entry that can expire.
fn expiry_key(entry: &Slot, begun_seq: u64) -> Option<(u64, u64)> {
    if entry.qos() == QoS::ExactlyOnce && entry.seq() <= begun_seq {
        return None;
    }
    Some((entry.expires_at_ms()?, entry.seq()))
}
