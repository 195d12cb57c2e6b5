//! The disk of a simulated node: what is synced survives a crash; of what is not, a crash leaves any beginning, as a disk may.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use crate::plant::{Plant, is_planted};
use crate::storage::StorageError;
use crate::storage::log::{Flushed, LogStore};
use crate::storage::state::{Changes, Incoming, Reads, StateStore};
use crate::storage::store::SimulatedDisk;

/// Changes of a state store that were not flushed are written by the system now and then: after so many.
const STATE_WRITES_UNSYNCED_MAX: usize = 64;

/// What a node's groups, and the node itself, have on the disk. Handles given out belong to one life of the node's process.
pub struct Disk {
    identity: Mutex<Option<Vec<u8>>>,
    logs: Vec<Arc<Mutex<Log>>>,
    states: Vec<Arc<Mutex<State>>>,
    life: Arc<Mutex<u64>>,
}

/// A handle's claim to the disk: void once the process is gone.
#[derive(Clone)]
struct Claim {
    life: Arc<Mutex<u64>>,
    number: u64,
}

impl Claim {
    fn check(&self) -> Result<(), StorageError> {
        if *self.life.lock() == self.number { Ok(()) } else { Err(StorageError::Engine("the process is gone".to_owned())) }
    }
}

#[derive(Clone, Default)]
struct LogContent {
    entries: BTreeMap<u64, Bytes>,
    purged: Option<(u64, Bytes)>,
    vote: Option<Bytes>,
}

/// A change of a log on its way to the disk.
enum LogChange {
    Append(Vec<(u64, Bytes)>),
    Truncate(u64),
    Purge(u64, Bytes),
    Vote(Bytes),
}

#[derive(Default)]
struct Log {
    synced: LogContent,
    /// As the process sees it.
    now: LogContent,
    unsynced: VecDeque<LogChange>,
    waiting: Vec<Flushed>,
}

impl LogContent {
    fn apply(&mut self, change: &LogChange) {
        match change {
            LogChange::Append(entries) => self.entries.extend(entries.iter().cloned()),
            LogChange::Truncate(from) => drop(self.entries.split_off(from)),
            LogChange::Purge(through, marker) => {
                self.entries = self.entries.split_off(&(through + 1));
                self.purged = Some((*through, marker.clone()));
            }
            LogChange::Vote(vote) => self.vote = Some(vote.clone()),
        }
    }
}

impl Log {
    fn change(&mut self, change: LogChange) {
        self.now.apply(&change);
        self.unsynced.push_back(change);
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            self.synced.apply(&change);
        }
    }

    fn crash(&mut self, rng: &mut StdRng) {
        let kept = if self.unsynced.is_empty() { 0 } else { rng.random_range(0..=self.unsynced.len()) };
        for change in self.unsynced.drain(..).take(kept) {
            self.synced.apply(&change);
        }
        self.now = self.synced.clone();
        self.waiting.clear();
    }
}

type Records = BTreeMap<Vec<u8>, Arc<[u8]>>;

#[derive(Clone, Default)]
struct StateContent {
    records: Records,
    applied: Option<Vec<u8>>,
}

#[derive(Default)]
struct State {
    synced: StateContent,
    now: StateContent,
    unsynced: VecDeque<(Changes, Vec<u8>)>,
}

impl StateContent {
    fn apply(&mut self, changes: Changes, applied: Vec<u8>) {
        for (key, value) in changes {
            match value {
                Some(value) => self.records.insert(key, value.into()),
                None => self.records.remove(&key),
            };
        }
        self.applied = Some(applied);
    }
}

impl State {
    fn sync(&mut self, writes: usize) {
        for (changes, applied) in self.unsynced.drain(..writes) {
            self.synced.apply(changes, applied);
        }
    }

    fn crash(&mut self, rng: &mut StdRng) {
        let kept = if self.unsynced.is_empty() { 0 } else { rng.random_range(0..=self.unsynced.len()) };
        self.sync(kept);
        self.unsynced.clear();
        self.now = self.synced.clone();
    }
}

impl Disk {
    pub fn new(groups: u16) -> Arc<Self> {
        Arc::new(Self {
            identity: Mutex::default(),
            logs: (0..groups).map(|_| Arc::default()).collect(),
            states: (0..groups).map(|_| Arc::default()).collect(),
            life: Arc::default(),
        })
    }

    /// The disk's turn: everything appended so far is flushed, and whoever waits for it is told.
    pub fn sync(&self) {
        for log in &self.logs {
            let waiting = {
                let mut log = log.lock();
                if !is_planted(Plant::AcknowledgeBeforeFlush) {
                    log.sync();
                }
                std::mem::take(&mut log.waiting)
            };
            waiting.into_iter().for_each(|flushed| flushed(Ok(())));
        }
    }

    /// The process is gone: its handles are void, and of what was not flushed some beginning is left; all of it where only the process died.
    pub fn crash(&self, rng: &mut StdRng, power_lost: bool) {
        *self.life.lock() += 1;
        for log in &self.logs {
            let mut log = log.lock();
            if !power_lost {
                log.sync();
            }
            log.crash(rng);
        }
        for state in &self.states {
            let mut state = state.lock();
            if !power_lost {
                let all = state.unsynced.len();
                state.sync(all);
            }
            state.crash(rng);
        }
    }

    fn claim(&self) -> Claim {
        Claim { life: Arc::clone(&self.life), number: *self.life.lock() }
    }
}

impl SimulatedDisk for Disk {
    fn identity(&self) -> Option<Vec<u8>> {
        self.identity.lock().clone()
    }

    fn write_identity(&self, identity: Vec<u8>) -> Result<(), StorageError> {
        *self.identity.lock() = Some(identity);
        Ok(())
    }

    fn log(&self, group: u16) -> Option<Arc<dyn LogStore>> {
        let log = Arc::clone(self.logs.get(usize::from(group))?);
        Some(Arc::new(LogHandle { log, claim: self.claim() }))
    }

    fn state(&self, group: u16) -> Option<Arc<dyn StateStore>> {
        let state = Arc::clone(self.states.get(usize::from(group))?);
        Some(Arc::new(StateHandle { state, claim: self.claim() }))
    }
}

struct LogHandle {
    log: Arc<Mutex<Log>>,
    claim: Claim,
}

impl LogStore for LogHandle {
    fn append(&self, entries: Vec<(u64, Bytes)>, flushed: Flushed) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut log = self.log.lock();
        if let (Some((&last, _)), Some((first, _))) = (log.now.entries.last_key_value(), entries.first())
            && *first != last + 1
        {
            return Err(StorageError::Engine(format!("entry {first} does not follow {last}")));
        }
        log.change(LogChange::Append(entries));
        log.waiting.push(flushed);
        Ok(())
    }

    fn truncate_from(&self, from: u64) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut log = self.log.lock();
        log.change(LogChange::Truncate(from));
        log.sync();
        Ok(())
    }

    fn purge_through(&self, through: u64, marker: Bytes) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut log = self.log.lock();
        if log.now.purged.as_ref().is_none_or(|(before, _)| *before < through) {
            log.change(LogChange::Purge(through, marker));
            log.sync();
        }
        Ok(())
    }

    fn read(&self, range: RangeInclusive<u64>) -> Result<Vec<(u64, Bytes)>, StorageError> {
        self.claim.check()?;
        if range.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.log.lock().now.entries.range(range).map(|(index, bytes)| (*index, bytes.clone())).collect())
    }

    fn last(&self) -> Result<Option<(u64, Bytes)>, StorageError> {
        self.claim.check()?;
        Ok(self.log.lock().now.entries.last_key_value().map(|(index, bytes)| (*index, bytes.clone())))
    }

    fn purged(&self) -> Result<Option<Bytes>, StorageError> {
        self.claim.check()?;
        Ok(self.log.lock().now.purged.as_ref().map(|(_, marker)| marker.clone()))
    }

    fn save_vote(&self, vote: Bytes) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut log = self.log.lock();
        if is_planted(Plant::VoteNotPersisted) {
            log.now.vote = Some(vote);
            return Ok(());
        }
        log.change(LogChange::Vote(vote));
        log.sync();
        Ok(())
    }

    fn vote(&self) -> Result<Option<Bytes>, StorageError> {
        self.claim.check()?;
        Ok(self.log.lock().now.vote.clone())
    }
}

struct StateHandle {
    state: Arc<Mutex<State>>,
    claim: Claim,
}

impl Reads for StateHandle {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.claim.check()?;
        Ok(get(&self.state.lock().now.records, key))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        self.claim.check()?;
        range(&self.state.lock().now.records, first, last, visit);
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

impl StateStore for StateHandle {
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut state = self.state.lock();
        state.now.apply(changes.clone(), applied.clone());
        state.unsynced.push_back((changes, applied));
        if state.unsynced.len() > STATE_WRITES_UNSYNCED_MAX {
            state.sync(1);
        }
        Ok(())
    }

    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError> {
        self.claim.check()?;
        Ok(self.state.lock().now.applied.clone())
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        self.claim.check()?;
        let records = self.state.lock().now.records.clone();
        records.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn receive(&self) -> Result<Box<dyn Incoming>, StorageError> {
        self.claim.check()?;
        Ok(Box::new(Received { state: Arc::clone(&self.state), claim: self.claim.clone(), records: Arc::default() }))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.claim.check()?;
        let mut state = self.state.lock();
        let all = state.unsynced.len();
        state.sync(all);
        Ok(())
    }
}

/// A state on its way; a crash leaves nothing of it.
struct Received {
    state: Arc<Mutex<State>>,
    claim: Claim,
    records: Arc<Mutex<Records>>,
}

/// The records of a state that is received.
struct ReceivedReads(Arc<Mutex<Records>>);

impl Reads for ReceivedReads {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(get(&self.0.lock(), key))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        range(&self.0.lock(), first, last, visit);
        Ok(())
    }
}

impl Incoming for Received {
    fn write(&mut self, records: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), StorageError> {
        self.claim.check()?;
        self.records.lock().extend(records.into_iter().map(|(key, value)| (key, value.into())));
        Ok(())
    }

    fn reads(&self) -> Arc<dyn Reads> {
        Arc::new(ReceivedReads(Arc::clone(&self.records)))
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        let records = self.records.lock().clone();
        records.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.claim.check()
    }

    fn make_current(&mut self, applied: Vec<u8>) -> Result<(), StorageError> {
        self.claim.check()?;
        let records = std::mem::take(&mut *self.records.lock());
        let mut state = self.state.lock();
        state.unsynced.clear();
        state.now = StateContent { records, applied: Some(applied) };
        state.synced = state.now.clone();
        Ok(())
    }
}
