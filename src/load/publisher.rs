//! The sending machine: publishes in a closed loop (as its window allows) or an open one (as its schedule says), and takes
//! acknowledgements.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Failure;
use super::connection::OUT_BYTES;
use super::counters::add;
use super::drive::Machine;
use super::gate::Gate;
use super::judge::Sent;
use super::numbering::Numbering;
use super::pace::Schedule;
use super::silence::Silence;
use super::stamp::{Message, Template, read_acknowledgement};
use super::thread::Thread;
use super::window::{Stage, Window};
use crate::mqtt::QoS;
use crate::mqtt::codec::Frame;

const PUBACK: u8 = 4;
const PUBREC: u8 = 5;
const PUBCOMP: u8 = 7;
const PUBREL_HEADER: [u8; 2] = [0x62, 2];
/// Refused messages remembered at most; more would count as lost.
const REFUSED_MAX: usize = 1_000_000;

pub(super) struct Publisher {
    pub(super) qos: QoS,
    pub(super) numbering: Numbering,
    pub(super) gate: Arc<Gate>,
    /// Open loop, if there is one.
    pub(super) schedule: Option<Schedule>,
    /// Messages to publish at most.
    pub(super) limit: u64,
    /// How many subscribers get each message.
    pub(super) copies: u64,
    /// In the closed loop a message is in flight until all have received it.
    pub(super) until_received: bool,
    pub(super) silence: Silence,
    /// Sessions that should have been there and were not.
    pub(super) sessions_lost: u64,
    template: Template,
    window: Window,
    /// In the closed loop until received: messages not received.
    window_max: u64,
    written_off: u64,
    /// The number of the next message.
    next: u64,
    /// What the new connection has to hear again.
    again: VecDeque<u16>,
    refused: Vec<u64>,
    counted: Counted,
}

/// Since the last settling.
#[derive(Default)]
struct Counted {
    acked: u64,
    refused: u64,
}

impl Publisher {
    pub(super) fn new(qos: QoS, numbering: Numbering, template: Template, window: u16, gate: Arc<Gate>) -> Self {
        Self {
            qos,
            numbering,
            gate,
            schedule: None,
            limit: u64::MAX,
            copies: 1,
            until_received: qos == QoS::AtMostOnce,
            silence: Silence::default(),
            sessions_lost: 0,
            template,
            window: Window::new(window),
            window_max: u64::from(window),
            written_off: 0,
            next: 0,
            again: VecDeque::new(),
            refused: Vec::new(),
            counted: Counted::default(),
        }
    }

    /// What the server lets it have in flight.
    pub(super) fn narrow(&mut self, receive_maximum: u16) {
        self.window.narrow(receive_maximum);
    }

    /// Adds what was sent to its streams.
    pub(super) fn report(&self, streams: &mut HashMap<u32, Sent>) {
        match self.numbering {
            Numbering::One { stream, .. } | Numbering::Topics { stream, .. } => {
                streams.entry(stream).or_default().count += self.next
            }
            Numbering::Turns { .. } => {
                for number in self.next.saturating_sub(u64::from(u32::MAX))..self.next {
                    let place = self.numbering.place(number);
                    let sent = streams.entry(place.stream).or_default();
                    sent.count = sent.count.max(place.sequence + 1);
                }
            }
        }
        let published = |id: &u16| self.window.slot(*id).is_some_and(|slot| slot.stage == Stage::Published);
        let under_way = self.window.under_way().into_iter().filter(published).filter_map(|id| self.window.slot(id));
        for number in under_way.map(|slot| slot.number).chain(self.refused.iter().copied()) {
            let place = self.numbering.place(number);
            streams.entry(place.stream).or_default().uncertain.insert(place.sequence);
        }
    }

    /// How many messages may go now.
    fn allowed(&mut self, now_ns: u64) -> u64 {
        let left = self.limit.saturating_sub(self.next);
        match &self.schedule {
            Some(schedule) => left.min(schedule.due_count(now_ns).saturating_sub(self.next)),
            None if self.until_received => {
                let under_way = (self.next * self.copies).saturating_sub(self.gate.received() + self.written_off);
                if self.gate.take_write_off() && under_way > 0 {
                    self.written_off += under_way;
                    return left.min(self.window_max);
                }
                left.min((self.window_max * self.copies).saturating_sub(under_way) / self.copies.max(1))
            }
            None => left,
        }
    }

    fn append(&mut self, id: u16, number: u64, dup: bool, at_ns: u64, out: &mut Vec<u8>) {
        let place = self.numbering.place(number);
        let message = Message { packet_id: id, dup, topic: place.topic, stream: place.stream, sequence: place.sequence, at_ns };
        self.template.append(&message, out);
    }

    fn send_again(&mut self, out: &mut Vec<u8>) {
        while out.len() < OUT_BYTES
            && let Some(id) = self.again.pop_front()
        {
            match self.window.slot(id) {
                Some(slot) if slot.stage == Stage::Published => self.append(id, slot.number, true, slot.at_ns, out),
                Some(_) => release(id, out),
                None => {}
            }
        }
    }

    fn end(&mut self, thread: &Thread, id: u16, code: u8, now_ns: u64) -> Result<(), Failure> {
        let Some(slot) = self.window.end(id) else {
            return Err(Failure::Protocol(format!("an acknowledgement of {id}, which is not under way")));
        };
        if code >= 0x80 && slot.stage == Stage::Published {
            self.counted.refused += 1;
            if self.refused.len() < REFUSED_MAX {
                self.refused.push(slot.number);
            }
            return Ok(());
        }
        self.counted.acked += 1;
        if thread.clock.counts(slot.at_ns) {
            thread.latencies.borrow_mut().push(now_ns.saturating_sub(slot.at_ns));
        }
        Ok(())
    }
}

fn release(id: u16, out: &mut Vec<u8>) {
    out.extend_from_slice(&PUBREL_HEADER);
    out.extend_from_slice(&id.to_be_bytes());
}

impl Machine for Publisher {
    fn produce(&mut self, thread: &Thread, now_ns: u64, out: &mut Vec<u8>) {
        self.send_again(out);
        if !thread.is_going() || !self.again.is_empty() {
            return;
        }
        let mut allowed = self.allowed(now_ns);
        let before = self.next;
        while allowed > 0 && out.len() < OUT_BYTES {
            let at_ns = self.schedule.map_or(now_ns, |schedule| schedule.due_ns(self.next));
            let id = match self.qos {
                QoS::AtMostOnce => 0,
                QoS::AtLeastOnce | QoS::ExactlyOnce => match self.window.take(self.next, at_ns) {
                    Some(id) => id,
                    None => break,
                },
            };
            self.append(id, self.next, false, at_ns, out);
            self.next += 1;
            allowed -= 1;
        }
        let sent = self.next - before;
        add(&thread.counters.sent, sent);
        if self.qos == QoS::AtMostOnce && sent > 0 {
            add(&thread.counters.acked, sent);
            thread.counters.last_acked_ns.fetch_max(now_ns, Ordering::Relaxed);
        }
    }

    fn handle(&mut self, thread: &Thread, frame: Frame, packet: &[u8], now_ns: u64, out: &mut Vec<u8>) -> Result<(), Failure> {
        let (id, code) = match frame.first_byte >> 4 {
            PUBACK | PUBREC | PUBCOMP => read_acknowledgement(frame, packet)?,
            other => return Err(Failure::Protocol(format!("a packet of type {other} for a publisher of {:?}", self.qos))),
        };
        match (frame.first_byte >> 4, self.qos) {
            (PUBACK, QoS::AtLeastOnce) | (PUBCOMP, QoS::ExactlyOnce) => self.end(thread, id, code, now_ns),
            (PUBREC, QoS::ExactlyOnce) if code >= 0x80 => self.end(thread, id, code, now_ns),
            (PUBREC, QoS::ExactlyOnce) => {
                if !self.window.release(id) {
                    return Err(Failure::Protocol(format!("PUBREC of {id}, which is not under way")));
                }
                release(id, out);
                Ok(())
            }
            (other, qos) => Err(Failure::Protocol(format!("an acknowledgement of type {other} for a publisher of {qos:?}"))),
        }
    }

    fn settle(&mut self, thread: &Thread, now_ns: u64) {
        let Counted { acked, refused } = std::mem::take(&mut self.counted);
        add(&thread.counters.refused, refused);
        if acked > 0 {
            add(&thread.counters.acked, acked);
            thread.counters.last_acked_ns.fetch_max(now_ns, Ordering::Relaxed);
            self.silence.progress(&thread.clock, now_ns);
        }
        let mut latencies = thread.latencies.borrow_mut();
        if !latencies.is_empty() {
            let mut times = thread.counters.times.lock();
            latencies.drain(..).for_each(|ns| times.acknowledged.record(ns));
        }
    }

    fn resume(&mut self, session_present: bool, receive_maximum: u16) {
        self.sessions_lost += u64::from(!session_present);
        self.window.narrow(receive_maximum);
        self.again = self.window.under_way().into();
    }
}

#[cfg(test)]
#[path = "publisher_test.rs"]
mod tests;
