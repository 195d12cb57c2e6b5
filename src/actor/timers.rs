//! An arbiter's timers: when each connection wants to be asked about its deadlines.
//!
//! Deadlines move with every packet, so a timer is not moved with them: it fires at the old one, the connection finds that it has time
//! left and sets the next. What is far away is cut, so that timers of connections that are gone do not pile up: one is forgotten only when it fires.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// How often an arbiter looks for timers that are due: the accuracy of keep alive.
pub const TICK: Duration = Duration::from_millis(100);
/// No timer is set farther ahead, milliseconds: bounds what connections that came and went leave behind.
const AHEAD_MAX_MS: u64 = 120_000;

/// The timers, soonest first.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Timers {
    /// Sets a timer for about `due_ms` (monotonic), and tells when it fires: then or, where that is far away, sooner.
    pub fn set(&mut self, connection: u64, due_ms: u64, now_ms: u64) -> u64 {
        let due_ms = due_ms.min(now_ms.saturating_add(AHEAD_MAX_MS));
        self.heap.push(Reverse((due_ms, connection)));
        due_ms
    }

    /// Takes a connection whose timer is due.
    pub fn pop_due(&mut self, now_ms: u64) -> Option<u64> {
        let Reverse((due_ms, _)) = self.heap.peek()?;
        if *due_ms > now_ms {
            return None;
        }
        self.heap.pop().map(|Reverse((_, connection))| connection)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the hub looks at the timers.
    const TICK_MS: u64 = TICK.as_millis() as u64;

    /// A connection as the Client actor keeps its timer: one, set again when it fired.
    struct Connection {
        patience_ms: u64,
        heard_ms: u64,
        speaks_every_ms: u64,
        silent_from_ms: u64,
        timer_ms: u64,
        closed_ms: Option<u64>,
    }

    impl Connection {
        fn due_ms(&self) -> u64 {
            self.heard_ms + self.patience_ms
        }
    }

    /// Runs a virtual clock, a millisecond a step; the ticks come up to 40 ms late, as on a busy thread.
    #[test]
    fn a_connection_is_closed_within_a_quarter_second_after_its_patience_and_never_before() {
        let mut connections: Vec<Connection> = (1..=200_u64)
            .map(|n| Connection {
                patience_ms: 1500 * (1 + n % 5),
                heard_ms: 0,
                speaks_every_ms: 37 + n * 13 % 1400,
                silent_from_ms: n * 97 % 9_000,
                timer_ms: 0,
                closed_ms: None,
            })
            .collect();
        let mut timers = Timers::default();
        let mut next_tick_ms = TICK_MS;
        for now_ms in 0..25_000_u64 {
            for (index, connection) in connections.iter_mut().enumerate().filter(|(_, c)| c.closed_ms.is_none()) {
                if now_ms < connection.silent_from_ms && now_ms.is_multiple_of(connection.speaks_every_ms) {
                    connection.heard_ms = now_ms;
                }
                if connection.timer_ms == 0 {
                    connection.timer_ms = timers.set(index as u64, connection.due_ms(), now_ms);
                }
            }
            if now_ms < next_tick_ms {
                continue;
            }
            next_tick_ms = now_ms + TICK_MS + now_ms % 41;
            while let Some(index) = timers.pop_due(now_ms) {
                let connection = &mut connections[usize::try_from(index).unwrap()];
                connection.timer_ms = 0;
                if now_ms >= connection.due_ms() {
                    connection.closed_ms.get_or_insert(now_ms);
                }
            }
        }
        for connection in &connections {
            let closed_ms = connection.closed_ms.unwrap();
            let late_ms = closed_ms.checked_sub(connection.due_ms()).unwrap();
            assert!(late_ms <= 250, "{late_ms} ms late");
        }
    }

    #[test]
    fn connections_that_came_and_went_leave_nothing_behind_for_long() {
        let mut timers = Timers::default();
        for second in 0..1_000_u64 {
            for connection in 0..10 {
                timers.set(second * 10 + connection, second * 1000 + 98_302_500, second * 1000);
            }
            while timers.pop_due(second * 1000).is_some() {}
        }
        assert!(timers.len() <= 10 * 121, "{}", timers.len());
    }

    #[test]
    fn a_far_deadline_is_asked_about_sooner() {
        let mut timers = Timers::default();
        assert_eq!(timers.set(1, 98_302_500, 1_000), 1_000 + AHEAD_MAX_MS);
        assert_eq!(timers.set(2, 2_500, 1_000), 2_500);
        assert_eq!((timers.pop_due(2_499), timers.pop_due(2_500), timers.pop_due(2_500)), (None, Some(2), None));
    }
}
