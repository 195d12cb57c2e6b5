//! Keeps tests that start many processes from starting them all at once, whatever the number of test threads.

use std::sync::{Condvar, Mutex};

/// Shares of the machine.
const CAPACITY: usize = 6;

/// How much of the machine a test asks for.
#[derive(Debug, Clone, Copy)]
pub enum Weight {
    /// One node.
    Node = 1,
    /// Three nodes.
    Cluster = 2,
    /// Three nodes under load, or a measurement: alone.
    Whole = CAPACITY as isize,
}

struct State {
    free: usize,
    next_ticket: u64,
    serving: u64,
}

static STATE: Mutex<State> = Mutex::new(State { free: CAPACITY, next_ticket: 0, serving: 0 });
static CHANGED: Condvar = Condvar::new();

/// A share of the machine, given back when dropped.
#[derive(Debug)]
pub struct Permit(usize);

/// Waits for a share, first come, first served.
pub fn acquire(weight: Weight) -> Permit {
    let wanted = weight as usize;
    let mut state = STATE.lock().expect("nobody panics while holding it");
    let ticket = state.next_ticket;
    state.next_ticket += 1;
    while state.serving != ticket || state.free < wanted {
        state = CHANGED.wait(state).expect("nobody panics while holding it");
    }
    state.serving += 1;
    state.free -= wanted;
    CHANGED.notify_all();
    Permit(wanted)
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Ok(mut state) = STATE.lock() {
            state.free += self.0;
        }
        CHANGED.notify_all();
    }
}
