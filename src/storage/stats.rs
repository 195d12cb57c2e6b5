//! Counters of the storage and the flag that stops it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::StorageError;
use crate::telemetry::tally::{SECONDS, Tally};

/// Plain numbers for metrics, as of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StorageStats {
    /// Flushes of the Raft log since the start (one serves many groups).
    pub flushes: u64,
    /// Time spent in them, in seconds.
    pub flush_seconds_total: f64,
    /// Duration of the last one, in microseconds.
    pub last_flush_us: u64,
    /// Bytes of entries appended to all logs, without keys and envelopes.
    pub log_bytes_appended: u64,
    /// A write or flush failed; nothing is accepted any more.
    pub poisoned: bool,
}

/// What the files of a folder take on the disk, bytes. The engine is not asked, since its answer may wait for a flush that hangs.
pub(super) fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // A file that is gone meanwhile takes nothing.
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => disk_bytes(&entry.path()),
        Ok(found) => found.blocks() * BLOCK_BYTES,
        Err(_) => 0,
    });
    bytes.sum()
}

/// Of `MetadataExt::blocks`.
const BLOCK_BYTES: u64 = 512;

/// Shared by the log, the state and their handles.
#[derive(Debug)]
pub(super) struct Health {
    flush_seconds: Mutex<Tally>,
    flushes: AtomicU64,
    flush_us_total: AtomicU64,
    last_flush_us: AtomicU64,
    log_bytes_appended: AtomicU64,
    poison: OnceLock<String>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            flush_seconds: Mutex::new(Tally::new(SECONDS)),
            flushes: AtomicU64::default(),
            flush_us_total: AtomicU64::default(),
            last_flush_us: AtomicU64::default(),
            log_bytes_appended: AtomicU64::default(),
            poison: OnceLock::default(),
        }
    }
}

impl Health {
    pub(super) fn flushed(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.flush_seconds.lock().observe(took.as_secs_f64());
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.flush_us_total.fetch_add(us, Ordering::Relaxed);
        self.last_flush_us.store(us, Ordering::Relaxed);
    }

    pub(super) fn appended(&self, bytes: u64) {
        self.log_bytes_appended.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Refuses everything from now on. The first reason is kept. A failed fsync may have thrown the written pages away, so trying again
    /// could report success for lost data.
    pub(super) fn poison(&self, reason: &StorageError) {
        if self.poison.set(reason.to_string()).is_ok() {
            tracing::error!(%reason, "storage stops: the data directory cannot be written, or not be read");
        }
    }

    pub(super) fn check(&self) -> Result<(), StorageError> {
        self.poison.get().map_or(Ok(()), |reason| Err(StorageError::Poisoned(reason.clone())))
    }

    /// How long flushes took.
    pub(super) fn flush_seconds(&self) -> Tally {
        self.flush_seconds.lock().clone()
    }

    #[expect(clippy::cast_precision_loss, reason = "a metric; 2^53 us are 285 years")]
    pub(super) fn stats(&self) -> StorageStats {
        StorageStats {
            flushes: self.flushes.load(Ordering::Relaxed),
            flush_seconds_total: self.flush_us_total.load(Ordering::Relaxed) as f64 / 1e6,
            last_flush_us: self.last_flush_us.load(Ordering::Relaxed),
            log_bytes_appended: self.log_bytes_appended.load(Ordering::Relaxed),
            poisoned: self.poison.get().is_some(),
        }
    }
}
