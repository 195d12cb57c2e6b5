//! Snapshots on their way in: each chunk is written beside the present state before it is answered, so that memory holds one.
//!
//! There is no limit of time on the whole. A transfer that nobody continues for a minute is given up; what it wrote is deleted. A sender that
//! fails or is followed by another begins anew. A whole snapshot ends those of other senders: whoever still sends begins anew.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cluster::blocking::{beside, blocking};
use crate::cluster::group::group_name;
use crate::replica::NodeId;
use crate::replica::state::Record;
use crate::storage::StateStore;
use crate::storage::state::Incoming;

use super::snapshot::Received;

/// A transfer nobody continued for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Transfers one group takes in at a time: of a leader, and of one that is no longer and does not know.
const TRANSFERS_MAX: usize = 2;
/// Between two lines in the log about one transfer.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// What is being received by one group.
pub struct Transfers {
    group: u16,
    store: Arc<dyn StateStore>,
    /// By sender. `None` while a chunk is being written.
    open: Mutex<HashMap<NodeId, (u64, Option<Transfer>)>>,
}

struct Transfer {
    incoming: Box<dyn Incoming>,
    chunks: u32,
    touched: Instant,
    progress: Progress,
}

impl Transfers {
    pub fn new(group: u16, store: Arc<dyn StateStore>) -> Self {
        Self { group, store, open: Mutex::default() }
    }

    /// Writes the next chunk. False where it does not fit (one is missing, too many transfers): the sender begins anew.
    pub async fn take_chunk(&self, from: NodeId, number: u64, ordinal: u32, records: Vec<Record>) -> io::Result<bool> {
        let transfer = if ordinal == 0 { self.begin(from, number).await? } else { self.take(from, number, ordinal) };
        let Some(mut transfer) = transfer else { return Ok(false) };
        let group = self.group;
        let written = blocking(move || {
            let bytes = records.iter().map(|(key, value)| key.len() + value.len()).sum();
            let count = records.len();
            transfer.incoming.write(records)?;
            transfer.chunks += 1;
            transfer.touched = Instant::now();
            if transfer.progress.add(count, bytes) {
                tracing::info!(group = group_name(group), from, progress = %transfer.progress, "receives a snapshot");
            }
            Ok::<_, crate::storage::StorageError>(transfer)
        });
        let transfer = match written.await? {
            Ok(transfer) => transfer,
            Err(error) => {
                self.open.lock().remove(&from);
                return Err(io::Error::other(error));
            }
        };
        let given_up = {
            let mut open = self.open.lock();
            match open.get_mut(&from) {
                Some((known, slot)) if *known == number => {
                    *slot = Some(transfer);
                    return Ok(true);
                }
                _ => transfer,
            }
        };
        discard(vec![given_up]);
        Ok(false)
    }

    /// The whole of it, where all chunks came. What others began is given up: mostly it is of a leader that died, and holds room on the disk.
    pub fn finish(&self, from: NodeId, number: u64, chunks: u32) -> Option<Received> {
        let transfer = self.take(from, number, chunks)?;
        let others = std::mem::take(&mut *self.open.lock());
        discard(others.into_values().filter_map(|(_, slot)| slot).collect());
        tracing::info!(group = group_name(self.group), from, progress = %transfer.progress, "received a snapshot, installs it");
        Some(Received::new(transfer.incoming))
    }

    /// Gives up what nobody continues.
    pub fn forget_idle(&self) {
        let is_idle = |transfer: &Transfer| transfer.touched.elapsed() >= IDLE_MAX;
        let mut open = self.open.lock();
        let idle: Vec<NodeId> =
            open.iter().filter(|(_, (_, slot))| slot.as_ref().is_some_and(is_idle)).map(|(&from, _)| from).collect();
        let idle: Vec<_> = idle.into_iter().filter_map(|from| open.remove(&from)?.1).collect();
        drop(open);
        discard(idle);
    }

    /// Makes room for a transfer; an earlier one of the same sender was given up.
    async fn begin(&self, from: NodeId, number: u64) -> io::Result<Option<Transfer>> {
        self.forget_idle();
        let earlier = {
            let mut open = self.open.lock();
            let earlier = open.remove(&from);
            if open.len() >= TRANSFERS_MAX {
                return Ok(None);
            }
            open.insert(from, (number, None));
            earlier
        };
        discard(earlier.and_then(|(_, slot)| slot).into_iter().collect());
        let store = Arc::clone(&self.store);
        let begun = blocking(move || store.receive()).await?;
        match begun {
            Ok(incoming) => Ok(Some(Transfer { incoming, chunks: 0, touched: Instant::now(), progress: Progress::default() })),
            Err(error) => {
                self.open.lock().remove(&from);
                Err(io::Error::other(error))
            }
        }
    }

    /// Takes a transfer out that has so many chunks; its place stays occupied.
    fn take(&self, from: NodeId, number: u64, chunks: u32) -> Option<Transfer> {
        let mut open = self.open.lock();
        let Entry::Occupied(mut entry) = open.entry(from) else { return None };
        let (known, slot) = entry.get_mut();
        if *known != number {
            return None;
        }
        slot.take_if(|transfer| transfer.chunks == chunks)
    }
}

/// Drops transfers where it may block.
fn discard(transfers: Vec<Transfer>) {
    if !transfers.is_empty() {
        beside(move || drop(transfers));
    }
}

/// How much of a transfer is done, and when that was last logged.
#[derive(Debug)]
pub struct Progress {
    records: usize,
    bytes: usize,
    began: Instant,
    logged: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { records: 0, bytes: 0, began: Instant::now(), logged: Instant::now() }
    }
}

impl Progress {
    /// Counts; true when it is time for a line in the log.
    pub fn add(&mut self, records: usize, bytes: usize) -> bool {
        self.records += records;
        self.bytes += bytes;
        let due = self.logged.elapsed() >= LOG_INTERVAL;
        if due {
            self.logged = Instant::now();
        }
        due
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { records, bytes, began, .. } = self;
        write!(f, "{records} records, {bytes} bytes in {:.1} s", began.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
#[path = "transfers_test.rs"]
mod tests;
