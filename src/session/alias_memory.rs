//! The memory that the Topic Aliases of all connections of a node take together (spec/hivemq.md 9.2, 9.8).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Below it, new connections are offered aliases.
const SOFT_LIMIT_BYTES: usize = 50 * 1024 * 1024;
/// Above it, a client that sets one more is disconnected.
const HARD_LIMIT_BYTES: usize = 200 * 1024 * 1024;
/// What an alias takes besides its topic's bytes.
const OVERHEAD_BYTES: usize = 80;

/// The account; clones share it.
#[derive(Debug, Clone)]
pub struct AliasMemory(Arc<Account>);

#[derive(Debug)]
struct Account {
    bytes: AtomicUsize,
    count: AtomicUsize,
    soft_limit_bytes: usize,
    hard_limit_bytes: usize,
}

/// What one table holds of it; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Held {
    memory: AliasMemory,
    bytes: usize,
    count: usize,
}

impl AliasMemory {
    pub fn new(soft_limit_bytes: usize, hard_limit_bytes: usize) -> Self {
        let (bytes, count) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Account { bytes, count, soft_limit_bytes, hard_limit_bytes }))
    }

    /// Aliases of all connections.
    pub fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Bytes of all connections.
    pub fn used_bytes(&self) -> usize {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Whether more aliases should be begun: those of new connections, and any towards clients, which can do without.
    pub(super) fn is_plenty(&self) -> bool {
        self.used_bytes() < self.0.soft_limit_bytes
    }

    pub(super) fn hold(&self) -> Held {
        Held { memory: self.clone(), bytes: 0, count: 0 }
    }
}

impl Default for AliasMemory {
    fn default() -> Self {
        Self::new(SOFT_LIMIT_BYTES, HARD_LIMIT_BYTES)
    }
}

impl Held {
    /// Counts an alias for the topic; false where all together are above the hard limit.
    pub(super) fn take(&mut self, topic: &str) -> bool {
        let bytes = topic.len() + OVERHEAD_BYTES;
        self.bytes += bytes;
        self.count += 1;
        self.memory.0.count.fetch_add(1, Ordering::Relaxed);
        self.memory.0.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.memory.0.hard_limit_bytes
    }

    /// The alias stands for the topic no more.
    pub(super) fn give_back(&mut self, topic: &str) {
        self.release(topic.len() + OVERHEAD_BYTES, 1);
    }

    pub(super) fn is_plenty(&self) -> bool {
        self.memory.is_plenty()
    }

    fn release(&mut self, bytes: usize, count: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.count = self.count.saturating_sub(count);
        self.memory.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.memory.0.count.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release(self.bytes, self.count);
    }
}
