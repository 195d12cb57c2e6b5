//! The open loop: when each message is due, and waking its publisher then.
//!
//! tokio's timers go by milliseconds, which is more than a message takes; a `timerfd` goes by nanoseconds.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime};
use tokio::io::unix::AsyncFd;

use super::Failure;
use super::gate::Gate;
use super::latency::Latency;
use super::thread::Thread;
use super::units::whole;

/// Wake-ups are no closer than this; what falls between goes with the next.
const STEP_MIN_NS: u64 = 20_000;

/// Times of one publisher's messages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Schedule {
    pub(super) start_ns: u64,
    pub(super) first_ns: f64,
    pub(super) interval_ns: f64,
}

impl Schedule {
    /// Of the publisher at this place among all; together they publish `per_second`, evenly.
    pub(super) fn new(per_second: f64, publishers: usize, place: usize) -> Self {
        let interval_ns = 1e9 / per_second * publishers as f64;
        Self { start_ns: 0, first_ns: interval_ns / publishers.max(1) as f64 * place as f64, interval_ns }
    }

    pub(super) fn due_ns(&self, number: u64) -> u64 {
        self.start_ns + whole(self.first_ns + self.interval_ns * number as f64)
    }

    /// How many messages are due by now.
    pub(super) fn due_count(&self, now_ns: u64) -> u64 {
        let passed = now_ns.saturating_sub(self.start_ns) as f64 - self.first_ns;
        if now_ns < self.start_ns || passed < 0.0 { 0 } else { whole((passed / self.interval_ns).floor()) + 1 }
    }
}

/// Sleeps to the microsecond.
pub(super) struct Metronome {
    timer: AsyncFd<OwnedFd>,
}

impl Metronome {
    pub(super) fn new() -> Result<Self, Failure> {
        let failed = |reason: String| Failure::Local { what: "make a timer", reason };
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC);
        let timer = timer.map_err(|error| failed(error.to_string()))?;
        #[allow(deprecated, reason = "its successor is unsafe, for types that do not keep their descriptor: an OwnedFd does")]
        let timer = AsyncFd::new(timer).map_err(|error| failed(error.to_string()))?;
        Ok(Self { timer })
    }

    pub(super) async fn sleep(&self, ns: u64) {
        let time = Duration::from_nanos(ns.max(1));
        let value = Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        if timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once).is_err() {
            return tokio::time::sleep(time).await;
        }
        loop {
            let Ok(mut ready) = self.timer.readable().await else { return };
            let read = ready.try_io(|timer| Ok(io::read(timer.get_ref(), &mut [0_u8; 8])?));
            if read.is_ok() {
                return;
            }
        }
    }
}

/// A publisher of the open loop.
pub(super) struct Paced {
    pub(super) gate: Arc<Gate>,
    pub(super) schedule: Schedule,
}

/// Wakes publishers when their messages are due, while the thread goes, and records how late it was itself.
pub(super) async fn keep_pace(thread: Rc<Thread>, mut publishers: Vec<Paced>) -> Result<(), Failure> {
    let metronome = Metronome::new()?;
    publishers.sort_by(|one, other| one.schedule.first_ns.total_cmp(&other.schedule.first_ns));
    let lags = RefCell::new(Latency::new());
    let count = publishers.len() as u64;
    let due = |number: u64| {
        let place = usize::try_from(number % count.max(1)).unwrap_or(0);
        publishers.get(place).map(|publisher| (publisher.schedule.due_ns(number / count), &publisher.gate))
    };
    let mut number = 0;
    while thread.is_going() {
        let Some((next_ns, _)) = due(number) else { return Ok(()) };
        let now = thread.clock.now_ns();
        if next_ns > now {
            metronome.sleep((next_ns - now).max(STEP_MIN_NS)).await;
        }
        let now = thread.clock.now_ns();
        while let Some((due_ns, gate)) = due(number).filter(|(due_ns, _)| *due_ns <= now) {
            if thread.clock.counts(due_ns) {
                lags.borrow_mut().record(now - due_ns);
            }
            gate.wake();
            number += 1;
        }
        let lags = lags.replace(Latency::new());
        thread.counters.times.lock().lag.add(lags);
        // Even where everything is late, the publishers get their turn.
        tokio::task::yield_now().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_all_publishers_are_evenly_spread() {
        let schedules: Vec<Schedule> =
            (0..4).map(|place| Schedule { start_ns: 1_000, ..Schedule::new(1000.0, 4, place) }).collect();
        let mut all: Vec<u64> = schedules.iter().flat_map(|schedule| (0..3).map(|n| schedule.due_ns(n))).collect();
        all.sort_unstable();
        assert_eq!(all, (0..12).map(|n| 1_000 + n * 1_000_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_due_is_counted_to_the_nanosecond() {
        let schedule = Schedule { start_ns: 500, first_ns: 100.0, interval_ns: 1_000.0 };
        for (now, due) in [(0, 0), (599, 0), (600, 1), (1_599, 1), (1_600, 2), (100_600, 101)] {
            assert_eq!(schedule.due_count(now), due, "{now}");
        }
        for number in 0..5 {
            assert_eq!(schedule.due_count(schedule.due_ns(number)), number + 1);
        }
    }
}
