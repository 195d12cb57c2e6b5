//! The receiving machine: judges, acknowledges, measures.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Failure;
use super::counters::add;
use super::drive::Machine;
use super::gate::Gate;
use super::judge::{Arrivals, Track};
use super::silence::Silence;
use super::stamp::{self, Stamp};
use super::thread::Thread;
use crate::mqtt::codec::{self, Frame};
use crate::mqtt::{Packet, ProtocolVersion};

const PUBLISH: u8 = 3;
const PUBREL: u8 = 6;
const SUBACK: u8 = 9;
const QOS_2: u8 = 0b0100;
const PUBACK_HEADER: [u8; 2] = [0x40, 2];
const PUBREC_HEADER: [u8; 2] = [0x50, 2];
const PUBCOMP_HEADER: [u8; 2] = [0x70, 2];

/// Streams that a subscriber hears, and what came of them.
pub(super) enum Ledger {
    /// Each by itself, in order; the first stream's number first.
    Ordered { first: u32, tracks: Vec<Track> },
    /// In any order, shared by all of this thread that hear for each other.
    Any { first: u32, arrivals: Rc<RefCell<Vec<Arrivals>>> },
}

pub(super) struct Subscriber {
    pub(super) ledger: Ledger,
    pub(super) silence: Silence,
    /// Messages of another run or none of ours.
    pub(super) foreign: u64,
    pub(super) sessions_lost: u64,
    /// Gates of the publishers of its streams that wait for what it receives.
    pub(super) waiting: Option<(u32, Arc<[Arc<Gate>]>)>,
    payload_bytes: usize,
    version: ProtocolVersion,
    /// Of QoS 2: Packet Identifiers whose PUBREL is to come, a bit each.
    known: Vec<u64>,
    received: u64,
    woken: Vec<u32>,
}

impl Subscriber {
    pub(super) fn new(ledger: Ledger, payload_bytes: usize, version: ProtocolVersion) -> Self {
        Self {
            ledger,
            silence: Silence::default(),
            foreign: 0,
            sessions_lost: 0,
            waiting: None,
            payload_bytes,
            version,
            known: Vec::new(),
            received: 0,
            woken: Vec::new(),
        }
    }

    fn take(&mut self, thread: &Thread, stamp: Option<Stamp>, now_ns: u64) {
        let Some(stamp) = stamp.filter(|stamp| stamp.run == thread.run) else {
            self.foreign += 1;
            return;
        };
        let is_new = match &mut self.ledger {
            Ledger::Ordered { first, tracks } => {
                let track = stamp.stream.checked_sub(*first).and_then(|at| tracks.get_mut(at as usize));
                track.map(|track| track.take(stamp.sequence))
            }
            Ledger::Any { first, arrivals } => {
                let mut arrivals = arrivals.borrow_mut();
                let of = stamp.stream.checked_sub(*first).and_then(|at| arrivals.get_mut(at as usize));
                of.map(|of| of.take(stamp.sequence))
            }
        };
        match is_new {
            None => self.foreign += 1,
            Some(false) => {}
            Some(true) => {
                self.received += 1;
                if thread.clock.counts(stamp.at_ns) {
                    thread.latencies.borrow_mut().push(now_ns.saturating_sub(stamp.at_ns));
                }
                if let Some((first, gates)) = &self.waiting
                    && let Some(gate) = stamp.stream.checked_sub(*first).and_then(|at| gates.get(at as usize))
                {
                    gate.add_received();
                    if self.woken.last() != Some(&stamp.stream) {
                        self.woken.push(stamp.stream);
                    }
                }
            }
        }
    }

    /// Marks a QoS 2 message as known; whether it was.
    fn is_known(&mut self, id: [u8; 2]) -> bool {
        let (word, bit) = place(id);
        if self.known.is_empty() {
            self.known = vec![0; 1024];
        }
        let Some(word) = self.known.get_mut(word) else { return false };
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    fn forget(&mut self, id: [u8; 2]) {
        let (word, bit) = place(id);
        if let Some(word) = self.known.get_mut(word) {
            *word &= !bit;
        }
    }
}

fn place(id: [u8; 2]) -> (usize, u64) {
    let id = u16::from_be_bytes(id);
    (usize::from(id / 64), 1 << (id % 64))
}

impl Machine for Subscriber {
    fn produce(&mut self, _: &Thread, _: u64, _: &mut Vec<u8>) {}

    fn handle(&mut self, thread: &Thread, frame: Frame, packet: &[u8], now_ns: u64, out: &mut Vec<u8>) -> Result<(), Failure> {
        match frame.first_byte >> 4 {
            PUBLISH => {
                let (id, stamp) = stamp::read(frame, packet, self.payload_bytes)?;
                let is_qos_2 = frame.first_byte & QOS_2 != 0;
                if let Some(id) = id {
                    out.extend_from_slice(if is_qos_2 { &PUBREC_HEADER } else { &PUBACK_HEADER });
                    out.extend_from_slice(&id);
                    // [MQTT-4.3.3-10]
                    if is_qos_2 && self.is_known(id) {
                        return Ok(());
                    }
                }
                self.take(thread, stamp, now_ns);
                Ok(())
            }
            PUBREL => {
                let (id, _) = stamp::read_acknowledgement(frame, packet)?;
                let id = id.to_be_bytes();
                self.forget(id);
                out.extend_from_slice(&PUBCOMP_HEADER);
                out.extend_from_slice(&id);
                Ok(())
            }
            SUBACK => match codec::decode(frame, Bytes::copy_from_slice(packet), Some(self.version))? {
                Packet::Suback(suback) => match suback.reason_codes.iter().find(|code| (**code as u8) >= 0x80) {
                    None => Ok(()),
                    Some(code) => Err(Failure::Protocol(format!("the subscription was refused: {}", code.name()))),
                },
                _ => Ok(()),
            },
            other => Err(Failure::Protocol(format!("a packet of type {other} for a subscriber"))),
        }
    }

    fn settle(&mut self, thread: &Thread, now_ns: u64) {
        let received = std::mem::take(&mut self.received);
        if received > 0 {
            add(&thread.counters.received, received);
            thread.counters.last_received_ns.fetch_max(now_ns, Ordering::Relaxed);
            self.silence.progress(&thread.clock, now_ns);
        }
        let mut latencies = thread.latencies.borrow_mut();
        if !latencies.is_empty() {
            let mut times = thread.counters.times.lock();
            latencies.drain(..).for_each(|ns| times.latency.record(ns));
        }
        if let Some((first, gates)) = &self.waiting {
            let gates = self.woken.drain(..).filter_map(|stream| gates.get(stream.checked_sub(*first)? as usize));
            gates.for_each(|gate| gate.wake());
        }
    }

    fn resume(&mut self, session_present: bool, _: u16) {
        if !session_present {
            self.sessions_lost += 1;
            self.known.clear();
        }
    }
}

#[cfg(test)]
#[path = "subscriber_test.rs"]
mod tests;
