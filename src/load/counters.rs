//! What the threads count and whoever conducts them reads while they work.

use std::fs;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::latency::Latency;

/// Of one thread, in cache lines of their own.
#[repr(align(128))]
pub(super) struct Counters {
    thread_id: AtomicU32,
    pub(super) sent: AtomicU64,
    /// Acknowledged to the publisher; at QoS 0: sent.
    pub(super) acked: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Messages that had not come before.
    pub(super) received: AtomicU64,
    /// Accepted by the server, ever.
    pub(super) connected: AtomicU64,
    /// Not let in.
    pub(super) failed: AtomicU64,
    /// Connections that ended against our will.
    pub(super) lost: AtomicU64,
    /// Connections that we ended.
    pub(super) parted: AtomicU64,
    pub(super) last_acked_ns: AtomicU64,
    pub(super) last_received_ns: AtomicU64,
    pub(super) times: Mutex<Pending>,
}

/// Times since they were last taken.
pub(super) struct Pending {
    /// From sending (or when it was to be sent) to receiving; in `connect` from SYN to CONNACK.
    pub(super) latency: Latency,
    /// From sending (or when it was to be sent) to the last acknowledgement.
    pub(super) acknowledged: Latency,
    /// How late the open loop itself was.
    pub(super) lag: Latency,
}

impl Pending {
    const fn new() -> Self {
        Self { latency: Latency::new(), acknowledged: Latency::new(), lag: Latency::new() }
    }
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            thread_id: AtomicU32::new(0),
            sent: AtomicU64::new(0),
            acked: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            received: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            parted: AtomicU64::new(0),
            last_acked_ns: AtomicU64::new(0),
            last_received_ns: AtomicU64::new(0),
            times: Mutex::new(Pending::new()),
        }
    }

    /// To be called by the thread itself.
    pub(super) fn belong_to_this_thread(&self) {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        self.thread_id.store(u32::try_from(id).unwrap_or(0), Ordering::Relaxed);
    }

    pub(super) fn take_times(&self) -> Pending {
        std::mem::replace(&mut *self.times.lock(), Pending::new())
    }

    /// CPU time of the thread; `None` where the system does not tell.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        let id = self.thread_id.load(Ordering::Relaxed);
        fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?.split(' ').next()?.parse().ok()
    }
}

pub(super) fn add(counter: &AtomicU64, count: u64) {
    if count > 0 {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// Sums over all threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) sent: u64,
    pub(super) acked: u64,
    pub(super) refused: u64,
    pub(super) received: u64,
    pub(super) connected: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    pub(super) parted: u64,
    pub(super) last_acked_ns: u64,
    pub(super) last_received_ns: u64,
}

impl Totals {
    pub(super) fn of<'a>(threads: impl Iterator<Item = &'a Counters>) -> Self {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        threads.fold(Self::default(), |sum, thread| Self {
            sent: sum.sent + get(&thread.sent),
            acked: sum.acked + get(&thread.acked),
            refused: sum.refused + get(&thread.refused),
            received: sum.received + get(&thread.received),
            connected: sum.connected + get(&thread.connected),
            failed: sum.failed + get(&thread.failed),
            lost: sum.lost + get(&thread.lost),
            parted: sum.parted + get(&thread.parted),
            last_acked_ns: sum.last_acked_ns.max(get(&thread.last_acked_ns)),
            last_received_ns: sum.last_received_ns.max(get(&thread.last_received_ns)),
        })
    }

    /// Sent, and neither acknowledged nor refused.
    pub(super) fn under_way(&self) -> u64 {
        self.sent.saturating_sub(self.acked + self.refused)
    }
}
