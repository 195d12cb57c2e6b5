//! `in-memory` mode: the same interfaces over maps. Nothing survives the process, so everything is durable at once.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::StorageError;
use super::log::{Flushed, LogStore};
use super::log_index::LogIndex;
use super::state::{Changes, Incoming, Reads, StateStore};
use super::stats::Health;

/// Logs and states of all groups.
pub(super) struct Memory {
    logs: Vec<Arc<MemoryLog>>,
    states: Vec<Arc<MemoryState>>,
}

impl Memory {
    pub(super) fn new(groups: u16, health: &Arc<Health>) -> Self {
        let log = |_| Arc::new(MemoryLog { index: Mutex::default(), health: health.clone() });
        Self { logs: (0..groups).map(log).collect(), states: (0..groups).map(|_| Arc::default()).collect() }
    }

    pub(super) fn log(&self, group: u16) -> Option<Arc<dyn LogStore>> {
        Some(self.logs.get(usize::from(group))?.clone())
    }

    pub(super) fn state(&self, group: u16) -> Option<Arc<dyn StateStore>> {
        Some(self.states.get(usize::from(group))?.clone())
    }
}

/// Its tail is the whole log, for nothing is ever reported as written to a disk.
struct MemoryLog {
    index: Mutex<LogIndex>,
    health: Arc<Health>,
}

impl LogStore for MemoryLog {
    fn append(&self, entries: Vec<(u64, Bytes)>, flushed: Flushed) -> Result<(), StorageError> {
        let bytes = self.index.lock().append(&entries)?;
        self.health.appended(bytes as u64);
        // No lock is held: the callback may come back in here.
        flushed(Ok(()));
        Ok(())
    }

    fn truncate_from(&self, from: u64) -> Result<(), StorageError> {
        self.index.lock().truncate_from(from);
        Ok(())
    }

    fn purge_through(&self, through: u64, marker: Bytes) -> Result<(), StorageError> {
        self.index.lock().purge_through(through, marker);
        Ok(())
    }

    fn read(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, Bytes)>, StorageError> {
        Ok(self.index.lock().read(&range).1)
    }

    fn last(&self) -> Result<Option<(u64, Bytes)>, StorageError> {
        let index = self.index.lock();
        Ok(index.bounds().last().and_then(|last| index.read(&(last..=last)).1.pop()))
    }

    fn purged(&self) -> Result<Option<Bytes>, StorageError> {
        Ok(self.index.lock().purged.clone())
    }

    fn save_vote(&self, vote: Bytes) -> Result<(), StorageError> {
        self.index.lock().vote = Some(vote);
        Ok(())
    }

    fn vote(&self) -> Result<Option<Bytes>, StorageError> {
        Ok(self.index.lock().vote.clone())
    }
}

type Records = BTreeMap<Vec<u8>, Arc<[u8]>>;

#[derive(Default)]
struct MemoryState {
    content: Arc<Mutex<(Records, Option<Vec<u8>>)>>,
}

struct MemoryIncoming {
    content: Arc<Mutex<(Records, Option<Vec<u8>>)>>,
    records: Arc<Mutex<Records>>,
}

/// The records of a state that is received.
struct MemoryReads(Arc<Mutex<Records>>);

impl Reads for MemoryReads {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(get(&self.0.lock(), key))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        range(&self.0.lock(), first, last, visit);
        Ok(())
    }
}

fn get(records: &Records, key: &[u8]) -> Option<Vec<u8>> {
    records.get(key).map(|value| value.to_vec())
}

fn range(records: &Records, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
    if first <= last {
        let bounds = (Bound::Included(first), Bound::Included(last));
        let _ = records.range::<[u8], _>(bounds).all(|(key, value)| visit(key, value));
    }
}

impl Incoming for MemoryIncoming {
    fn write(&mut self, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), StorageError> {
        self.records.lock().extend(records.into_iter().map(|(key, value)| (key, value.into())));
        Ok(())
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        let records = self.records.lock().clone();
        records.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn reads(&self) -> Arc<dyn Reads> {
        Arc::new(MemoryReads(Arc::clone(&self.records)))
    }

    fn flush(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn make_current(&mut self, applied: Vec<u8>) -> Result<(), StorageError> {
        *self.content.lock() = (std::mem::take(&mut *self.records.lock()), Some(applied));
        Ok(())
    }
}

impl Reads for MemoryState {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(get(&self.content.lock().0, key))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        range(&self.content.lock().0, first, last, visit);
        Ok(())
    }
}

impl StateStore for MemoryState {
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError> {
        let mut content = self.content.lock();
        for (key, value) in changes {
            match value {
                Some(value) => content.0.insert(key, value.into()),
                None => content.0.remove(&key),
            };
        }
        content.1 = Some(applied);
        Ok(())
    }

    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.content.lock().1.clone())
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        let records = self.content.lock().0.clone();
        records.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn receive(&self) -> Result<Box<dyn Incoming>, StorageError> {
        Ok(Box::new(MemoryIncoming { content: Arc::clone(&self.content), records: Arc::default() }))
    }

    fn flush(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
