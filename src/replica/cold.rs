//! Queued messages whose only copy is on disk.
//!
//! A queue holds a small `Slot` for each entry. Once the record of an entry is written (`State::written`), its message stays in memory only
//! where it will be wanted at once: while the owner is connected (or is a shared subscription), among the first [`RESIDENT_FIRST`] of the queue,
//! and as long as the shard's budget has room. Never before the record is written: whoever looks in between finds it in memory.
//!
//! Where `apply` needs such a message (to report it dropped or expired, or to assign it) it reads it. It cannot fail: a read that does
//! is noted, nothing that was applied is written or told from then on (`State::failure`), and the group stops.
//!
//! A state without a disk (`State::new`) keeps everything in memory.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use ahash::RandomState;
use bytes::Bytes;

use super::body::{BodyId, Living, with_payload};
use super::record::{decode_entry, decode_part};
use super::record_key::{QueueOwner, RecordKey};
use super::session::{Queue, QueueEntry};
use super::slot::{Budget, Slot};
use super::state::State;
use crate::mqtt::{GroupId, Message};

/// So many first entries of a queue may be in memory: twice what a connection may have in flight, and a few more.
pub(super) const RESIDENT_FIRST: usize = 128;

/// Entries, and about how many bytes of them, that are read at a time.
pub const READ_ENTRIES_MAX: usize = 64;
const READ_BYTES_MAX: usize = 256 * 1024;

/// Entries read ahead while one entry of the log is applied.
const AHEAD_MAX: usize = 1024;

/// The records of the state on disk.
pub trait StoredRecords: Send + Sync {
    /// The value of a record; `None` where there is no such record.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError>;
    /// Visits the records from `first` to `last` (both included) in key order, until `visit` says that it has enough (false). `visit` does not
    /// come back in here.
    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), ReadError>;
}

/// A record that cannot be read, or is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// The disk, and what is shared by all that is read from it.
#[derive(Clone)]
pub(super) struct Cold {
    records: Arc<dyn StoredRecords>,
    living: Living,
    pub(super) budget: Arc<Budget>,
}

impl fmt::Debug for Cold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cold").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// An entry as it was read, and the body that is its payload.
type Read = (QueueEntry, Option<BodyId>);

impl Cold {
    pub(super) fn new(records: Arc<dyn StoredRecords>, living: Living, resident_bytes_max: usize) -> Self {
        Self { records, living, budget: Budget::new(resident_bytes_max) }
    }

    pub(super) fn get(&self, key: &RecordKey) -> Result<Vec<u8>, ReadError> {
        let key = key.encode();
        self.records.get(&key)?.ok_or_else(|| missing(&key))
    }

    /// Entries of a queue from number `first` to `last` that have a record, as many as are read at a time.
    pub(super) fn entries(&self, owner: &QueueOwner, first: u64, last: u64) -> Result<Vec<Read>, ReadError> {
        let key = |seq| RecordKey::Entry(owner.clone(), seq).encode();
        let (first, last) = (key(first), key(last));
        let mut read: Vec<Read> = Vec::new();
        let mut failed = None;
        let mut bytes = 0;
        let mut take = |key: &[u8], value: &[u8]| {
            // Names are prefixes of each other: another owner's entries may lie between.
            let is_of_owner = key.len() == first.len() && key.iter().rev().skip(8).eq(first.iter().rev().skip(8));
            if !is_of_owner {
                return true;
            }
            match decode_entry(key, value) {
                Ok(entry) => {
                    let is_large = entry.1.is_some();
                    read.push(entry);
                    bytes += value.len();
                    // A large payload comes alone.
                    !is_large && bytes < READ_BYTES_MAX && read.len() < READ_ENTRIES_MAX
                }
                Err(error) => {
                    failed = Some(ReadError(error.to_string()));
                    false
                }
            }
        };
        if first == last {
            if let Some(value) = self.records.get(&first)? {
                take(&first, &value);
            }
        } else {
            self.records.range(&first, &last, &mut take)?;
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        for (entry, body) in &mut read {
            if let (Some(message), Some(id)) = (&mut entry.message, *body) {
                *message = with_payload(message, self.payload(id)?);
            }
        }
        Ok(read)
    }

    /// The payload in a body: the one somebody holds, or read.
    pub(super) fn payload(&self, id: BodyId) -> Result<Bytes, ReadError> {
        if let Some(bytes) = self.living.get(id) {
            return Ok(bytes);
        }
        let (bytes, bytes_total) = self.parts(id)?;
        if bytes.len() != bytes_total {
            return Err(missing(&RecordKey::BodyPart(id, u32::MAX).encode()));
        }
        Ok(self.living.share(id, bytes))
    }

    /// What is stored of a body, and how long the whole is.
    pub(super) fn parts(&self, id: BodyId) -> Result<(Vec<u8>, usize), ReadError> {
        let key = |ordinal| RecordKey::BodyPart(id, ordinal).encode();
        let (mut bytes, mut total) = (Vec::new(), 0);
        let mut failed = None;
        self.records.range(&key(0), &key(u32::MAX), &mut |key, value| match decode_part(key, value) {
            Ok((bytes_total, part)) => {
                if bytes.is_empty() {
                    total = usize::try_from(bytes_total).unwrap_or(usize::MAX);
                    bytes.reserve_exact(total.min(super::body::BODY_BYTES_MAX));
                }
                bytes.extend_from_slice(part);
                true
            }
            Err(error) => {
                failed = Some(ReadError(error.to_string()));
                false
            }
        })?;
        failed.map_or(Ok((bytes, total)), Err)
    }
}

fn missing(key: &[u8]) -> ReadError {
    ReadError(format!("record {} is missing", key.escape_ascii()))
}

/// Entries read ahead for the rest of one entry of the log: many of a queue may be discarded, or expire, in a row.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    queues: HashMap<QueueOwner, BTreeMap<u64, Read>, RandomState>,
    entries: usize,
}

impl Ahead {
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.entries = 0;
    }

    /// The queue is gone: another of that name has other entries.
    pub(super) fn forget(&mut self, owner: &QueueOwner) {
        if !self.queues.is_empty() {
            self.queues.remove(owner);
        }
    }

    fn read(&mut self, cold: &Cold, owner: &QueueOwner, seq: u64) -> Result<Read, ReadError> {
        let run = self.queues.get_mut(owner);
        // The first of a queue is read alone: there may be no second.
        let last = if run.is_some() { seq.saturating_add(READ_ENTRIES_MAX as u64 - 1) } else { seq };
        if let Some(found) = run.and_then(|run| run.remove(&seq)) {
            return Ok(found);
        }
        let mut read = cold.entries(owner, seq, last)?.into_iter();
        let found = read.next().filter(|(entry, _)| entry.seq == seq && entry.message.is_some());
        let found = found.ok_or_else(|| missing(&RecordKey::Entry(owner.clone(), seq).encode()))?;
        if self.entries + read.len() >= AHEAD_MAX {
            self.clear();
        }
        self.entries += read.len() + 1;
        self.queues.entry(owner.clone()).or_default().extend(read.map(|read| (read.0.seq, read)));
        Ok(found)
    }
}

impl State {
    /// The same state over a disk: what is written leaves memory, but for `resident_bytes_max` bytes of messages.
    pub fn over(shard: super::ids::ShardId, records: Arc<dyn StoredRecords>, resident_bytes_max: usize) -> Self {
        let mut state = Self::new(shard);
        state.cold = Some(Cold::new(records, state.bodies.living(), resident_bytes_max));
        state
    }

    /// Why a message could not be read that `apply` needed: what was applied since is not to be written, nor told.
    pub fn failure(&self) -> Option<&ReadError> {
        self.failure.get()
    }

    /// Bytes of queued messages that are in memory although they are on disk.
    pub fn resident_bytes(&self) -> usize {
        self.cold.as_ref().map_or(0, |cold| cold.budget.used())
    }

    /// What the last `take_changes` named is written, and nothing was applied since: messages that are not wanted soon leave memory.
    pub fn written(&mut self) {
        let Some(cold) = &self.cold else { return };
        for (owner, seq) in std::mem::take(&mut self.fresh) {
            let (queue, is_served) = match &owner {
                QueueOwner::Session(client) => {
                    let Some(session) = self.sessions.get_mut(client) else { continue };
                    (&mut session.queue, session.connection.is_some())
                }
                QueueOwner::Group(group) => {
                    let Some(group) = self.groups.get_mut(group) else { continue };
                    (&mut group.queue, true)
                }
            };
            let Some(index) = queue.find(seq) else { continue };
            let Some(slot) = queue.entries.get_mut(index) else { continue };
            if is_served && index < RESIDENT_FIRST {
                slot.keep_within(&cold.budget);
            } else {
                slot.cool();
            }
        }
        for client in std::mem::take(&mut self.left) {
            if let Some(session) = self.sessions.get_mut(&client).filter(|session| session.connection.is_none()) {
                session.queue.entries.iter_mut().take(RESIDENT_FIRST).for_each(Slot::cool);
            }
        }
        self.bodies.cool();
    }

    /// The message of an entry that was taken out of its queue.
    pub(super) fn message_of_taken(&mut self, owner: &QueueOwner, slot: Slot) -> Option<Arc<Message>> {
        if slot.is_stub() { self.read_message(owner, slot.seq()) } else { slot.into_message() }
    }

    /// The message of an entry of a shared subscription's queue.
    pub(super) fn message_of_group(&mut self, id: &GroupId, seq: u64) -> Option<Arc<Message>> {
        let queue = &self.groups.get(id)?.queue;
        let slot = queue.entries.get(queue.find(seq)?)?;
        if slot.is_stub() { self.read_message(&QueueOwner::Group(id.clone()), seq) } else { slot.message().cloned() }
    }

    fn read_message(&mut self, owner: &QueueOwner, seq: u64) -> Option<Arc<Message>> {
        let cold = self.cold.as_ref()?;
        match self.ahead.read(cold, owner, seq) {
            Ok((entry, body)) => {
                if let (Some(id), Some(message)) = (body, &entry.message) {
                    self.bodies.adopt(id, &message.payload);
                }
                entry.message
            }
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    pub(super) fn fail(&self, error: ReadError) {
        // The first reason is kept.
        let _ = self.failure.set(error);
    }

    /// The stored value of a record whose content is not in memory.
    pub(super) fn stored_value(&self, key: &RecordKey) -> Option<Vec<u8>> {
        self.cold.as_ref()?.get(key).map_err(|error| self.fail(error)).ok()
    }

    pub(super) fn queue_of(&self, owner: &QueueOwner) -> Option<&Queue> {
        match owner {
            QueueOwner::Session(client) => self.sessions.get(client).map(|session| &session.queue),
            QueueOwner::Group(group) => self.groups.get(group).map(|group| &group.queue),
        }
    }
}
