//! How queues are read by those who deliver: what is in memory at once, and what is on disk by a `Fetch` that needs no lock of the state.

use bytestring::ByteString;

use super::cold::{Cold, ReadError};
use super::record_key::QueueOwner;
use super::session::{Queue, QueueEntry};
use super::slot::Slot;
use super::state::State;
use crate::mqtt::GroupId;

/// A part of a queue, as of one moment.
#[derive(Debug, Default)]
pub struct Look {
    /// Which queue it is: one that is made anew under the same name is another.
    pub queue: u64,
    pub found: Vec<Found>,
    /// Reads the first entries in `found` that are on disk.
    pub fetch: Option<Fetch>,
}

/// An entry of a queue.
#[derive(Debug)]
pub struct Found {
    pub seq: u64,
    /// Wall clock ms; `None` never.
    pub expires_at_ms: Option<u64>,
    /// `None` where it is on disk.
    pub entry: Option<QueueEntry>,
}

/// Entries that follow each other and are on disk.
#[derive(Debug, Clone)]
pub struct Fetch {
    cold: Cold,
    owner: QueueOwner,
    first: u64,
    last: u64,
}

impl Fetch {
    /// The same for the entries from number `first` to `last` of the queue.
    #[must_use]
    pub fn of(self, first: u64, last: u64) -> Self {
        Self { first, last, ..self }
    }

    /// Reads as many of them as are read at a time, in order; blocks on the disk. The queue goes on meanwhile: an entry that is gone is left out,
    /// and what comes is to be looked for again before it is handed out.
    pub fn run(&self) -> Result<Vec<QueueEntry>, ReadError> {
        let read = self.cold.entries(&self.owner, self.first, self.last)?;
        Ok(read.into_iter().map(|(entry, _)| entry).collect())
    }
}

impl State {
    /// Up to `max` entries of a session's queue with `seq > after`, in order.
    pub fn look(&self, client: &str, after: u64, max: usize) -> Look {
        let Some(session) = self.sessions.get(client) else { return Look::default() };
        self.look_at(&session.queue, after, max, || QueueOwner::Session(session.client.clone()))
    }

    /// The same of a shared subscription's queue.
    pub fn look_at_group(&self, group: &GroupId, after: u64, max: usize) -> Look {
        let Some(kept) = self.groups.get(group) else { return Look::default() };
        self.look_at(&kept.queue, after, max, || QueueOwner::Group(group.clone()))
    }

    fn look_at(&self, queue: &Queue, after: u64, max: usize, owner: impl FnOnce() -> QueueOwner) -> Look {
        let found: Vec<Found> = queue.after(after, max).map(Found::of).collect();
        let mut stubs = found.iter().skip_while(|found| found.entry.is_some()).take_while(|found| found.entry.is_none());
        let fetch = stubs.next().and_then(|first| {
            let last = stubs.last().map_or(first.seq, |last| last.seq);
            Some(Fetch { cold: self.cold.clone()?, owner: owner(), first: first.seq, last })
        });
        Look { queue: queue.id.number(), found, fetch }
    }

    /// Number and expiry (wall clock ms) of the entries that a shared subscription's dispatcher was lent and that expire, among the first `max`.
    pub fn lent_expiring(&self, group: &GroupId, max: usize) -> Vec<(u64, u64)> {
        let Some(kept) = self.groups.get(group) else { return Vec::new() };
        let lent = kept.queue.after(0, max).take_while(|slot| slot.seq() <= kept.queue_head.sent_seq);
        lent.filter_map(|slot| Some((slot.seq(), slot.expires_at_ms()?))).collect()
    }

    /// Which of these entries a shared subscription's queue has no more.
    pub fn missing_in_group(&self, group: &GroupId, seqs: impl Iterator<Item = u64>) -> Vec<u64> {
        let queue = self.groups.get(group).map(|kept| &kept.queue);
        seqs.filter(|seq| queue.is_none_or(|queue| queue.find(*seq).is_none())).collect()
    }

    /// Up to `max` queue entries of a session with `seq > after`, in order. Reads the disk: for checks.
    pub fn queue_after(&self, client: &str, after: u64, max: usize) -> Vec<QueueEntry> {
        self.read_after(&QueueOwner::Session(ByteString::from(client)), after, max)
    }

    /// Up to `max` entries of a shared subscription's queue with `seq > after`, in order. Reads the disk: for checks.
    pub fn group_queue_after(&self, group: &GroupId, after: u64, max: usize) -> Vec<QueueEntry> {
        self.read_after(&QueueOwner::Group(group.clone()), after, max)
    }

    fn read_after(&self, owner: &QueueOwner, after: u64, max: usize) -> Vec<QueueEntry> {
        let Some(queue) = self.queue_of(owner) else { return Vec::new() };
        let read = |seq| self.cold.as_ref()?.entries(owner, seq, seq).map_err(|error| self.fail(error)).ok()?.pop();
        let whole = |slot: &Slot| slot.entry().or_else(|| read(slot.seq()).map(|(entry, _)| entry));
        queue.after(after, max).filter_map(whole).collect()
    }
}

impl Found {
    fn of(slot: &Slot) -> Self {
        Self { seq: slot.seq(), expires_at_ms: slot.expires_at_ms(), entry: slot.entry() }
    }
}
