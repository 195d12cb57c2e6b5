//! What others tell a connection's task: that it may send on, that it should ping, that all is over.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// Seconds after which QoS 0 messages that did not come are written off, so that the window has room again.
const WRITE_OFF_S: u32 = 2;
/// Seconds a PINGRESP may take at least.
const PONG_S_MIN: u32 = 2;

#[derive(Default)]
pub(super) struct Gate {
    waker: AtomicWaker,
    /// Of a QoS 0 publisher: what subscribers got of its messages.
    received: AtomicU64,
    received_before: AtomicU64,
    stuck_s: AtomicU32,
    write_off: AtomicBool,
    wrote: AtomicBool,
    heard: AtomicBool,
    idle_s: AtomicU32,
    /// Seconds since a ping that is not answered; 0: none is.
    unanswered_s: AtomicU32,
    ping_due: AtomicBool,
    dead: AtomicBool,
}

impl Gate {
    pub(super) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn add_received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn take_write_off(&self) -> bool {
        self.write_off.load(Ordering::Relaxed) && self.write_off.swap(false, Ordering::Relaxed)
    }

    pub(super) fn note_written(&self) {
        self.wrote.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_ping(&self) -> bool {
        self.ping_due.load(Ordering::Relaxed) && self.ping_due.swap(false, Ordering::Relaxed)
    }

    /// Whether a ping was not answered in time.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// For a connection that takes the place of the old.
    pub(super) fn revive(&self) {
        self.dead.store(false, Ordering::Relaxed);
        self.ping_due.store(false, Ordering::Relaxed);
        self.unanswered_s.store(0, Ordering::Relaxed);
        self.idle_s.store(0, Ordering::Relaxed);
    }

    /// To be called once a second.
    pub(super) fn beat(&self, keep_alive_s: u16) {
        let get = |of: &AtomicU32| of.load(Ordering::Relaxed);
        let received = self.received();
        if self.received_before.swap(received, Ordering::Relaxed) == received {
            self.stuck_s.store(get(&self.stuck_s) + 1, Ordering::Relaxed);
        } else {
            self.stuck_s.store(0, Ordering::Relaxed);
        }
        if get(&self.stuck_s) >= WRITE_OFF_S {
            self.stuck_s.store(0, Ordering::Relaxed);
            self.write_off.store(true, Ordering::Relaxed);
            self.wake();
        }
        if keep_alive_s == 0 {
            return;
        }
        let half = u32::from(keep_alive_s / 2).max(1);
        let heard = self.heard.swap(false, Ordering::Relaxed);
        let unanswered = get(&self.unanswered_s);
        if unanswered > 0 {
            self.unanswered_s.store(if heard { 0 } else { unanswered + 1 }, Ordering::Relaxed);
            if !heard && unanswered > half.max(PONG_S_MIN) {
                self.dead.store(true, Ordering::Relaxed);
                self.wake();
            }
            return;
        }
        let idle = if self.wrote.swap(false, Ordering::Relaxed) { 0 } else { get(&self.idle_s) + 1 };
        self.idle_s.store(idle, Ordering::Relaxed);
        if idle >= half {
            self.idle_s.store(0, Ordering::Relaxed);
            self.unanswered_s.store(1, Ordering::Relaxed);
            self.ping_due.store(true, Ordering::Relaxed);
            self.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_pings_at_half_its_keep_alive_and_dies_of_silence() {
        let gate = Gate::default();
        let mut pings = 0;
        for _ in 0..5 {
            gate.beat(10);
            pings += u32::from(gate.take_ping());
        }
        assert_eq!(pings, 1);
        gate.note_heard();
        (0..5).for_each(|_| gate.beat(10));
        assert!(!gate.is_dead());
        (0..20).for_each(|_| gate.beat(10));
        assert!(gate.is_dead());
        gate.revive();
        assert!(!gate.is_dead());
    }

    #[test]
    fn one_that_writes_or_has_no_keep_alive_does_not_ping() {
        let (busy, never) = (Gate::default(), Gate::default());
        for _ in 0..100 {
            busy.note_written();
            busy.beat(4);
            never.beat(0);
            assert!(!busy.take_ping() && !never.take_ping() && !busy.is_dead());
        }
    }

    #[test]
    fn messages_that_do_not_come_are_written_off() {
        let gate = Gate::default();
        gate.add_received();
        gate.beat(0);
        gate.beat(0);
        assert!(!gate.take_write_off());
        gate.beat(0);
        assert!(gate.take_write_off() && !gate.take_write_off());
    }
}
