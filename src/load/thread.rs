//! One thread of the load, as its clients see it. Never left by a reference: its clients are its own for life.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use super::counters::Counters;
use super::gate::Gate;

/// Beats of the pings and of what is written off.
const BEAT: Duration = Duration::from_secs(1);

pub(super) struct Thread {
    pub(super) index: usize,
    pub(super) threads: usize,
    /// Names the run in payloads.
    pub(super) run: u32,
    pub(super) keep_alive_s: u16,
    /// A longer packet is none of ours.
    pub(super) packet_bytes_max: usize,
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Arc<Counters>,
    /// Read buffer of whoever reads.
    pub(super) scratch: RefCell<Vec<u8>>,
    /// Of what is being handled, for one lock instead of many.
    pub(super) latencies: RefCell<Vec<u64>>,
    gates: RefCell<Vec<Arc<Gate>>>,
    phase: Cell<Phase>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Preparing,
    /// Publishers publish.
    Going,
    /// Publishers begin nothing new.
    Stopping,
    /// Everybody parts.
    Finishing,
}

impl Thread {
    pub(super) fn new(
        index: usize,
        threads: usize,
        run: u32,
        keep_alive_s: u16,
        packet_bytes_max: usize,
        clock: Arc<Clock>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            index,
            threads,
            run,
            keep_alive_s,
            packet_bytes_max,
            clock,
            counters,
            scratch: RefCell::default(),
            latencies: RefCell::default(),
            gates: RefCell::default(),
            phase: Cell::new(Phase::Preparing),
        }
    }

    pub(super) fn new_gate(&self) -> Arc<Gate> {
        let gate = Arc::new(Gate::default());
        self.gates.borrow_mut().push(Arc::clone(&gate));
        gate
    }

    /// For a gate that was made elsewhere.
    pub(super) fn adopt(&self, gate: &Arc<Gate>) {
        self.gates.borrow_mut().push(Arc::clone(gate));
    }

    pub(super) fn is_going(&self) -> bool {
        self.phase.get() == Phase::Going
    }

    pub(super) fn is_finishing(&self) -> bool {
        self.phase.get() == Phase::Finishing
    }

    /// Sets the phase and wakes everybody.
    pub(super) fn enter(&self, phase: Phase) {
        if phase > self.phase.get() {
            self.phase.set(phase);
            self.gates.borrow().iter().for_each(|gate| gate.wake());
        }
    }

    /// The beat of pings; does not end.
    pub(super) async fn beat(&self) {
        loop {
            tokio::time::sleep(BEAT).await;
            self.gates.borrow().iter().for_each(|gate| gate.beat(self.keep_alive_s));
        }
    }
}
