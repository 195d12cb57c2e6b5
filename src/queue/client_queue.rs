//! The queue of one connection in memory.
//!
//! Two lists to the client, QoS 0 and QoS 1/2, each in order of arrival. What came from retained messages at subscribe time has limits of its own
//! and so stands apart; a number given at arrival merges it. Messages that can expire stand in an index by time as well, the others cost it
//! nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::mqtt::{Delivery, QoS};
use crate::signal::DropReason;

/// Waiting deliveries that came from retained messages, of QoS 1/2 (spec/hivemq.md 2.2) and as many of QoS 0.
pub const RETAINED_LEN_MAX: usize = 100_000;
/// What a waiting QoS 0 delivery of a retained message costs: the message itself is in memory anyway.
const RETAINED_QOS0_BYTES: usize = 128;

/// Limits of a connection's queue (spec/hivemq.md 2.2, 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// QoS 1/2 messages, in flight ones included, retained-origin ones not.
    pub max_queue_size: u32,
    pub discard_oldest: bool,
    /// Bytes of QoS 0 messages waiting for this client.
    pub qos0_bytes_max: usize,
}

/// What became of a pushed delivery.
#[derive(Debug, Clone, PartialEq)]
pub enum Push {
    Accepted,
    /// Not queued (the pushed one), or queued in place of the oldest (the dropped one is returned).
    Dropped {
        delivery: Box<Delivery>,
        reason: DropReason,
        pushed_accepted: bool,
    },
}

/// What comes out.
#[derive(Debug, Clone, PartialEq)]
pub enum Pop {
    Deliver(Box<Delivery>),
    Expired(Box<Delivery>),
    Empty,
}

/// QoS 0 and QoS 1/2 lists of one connection; order holds within each list (spec/hivemq.md 2.2).
#[derive(Debug, Default)]
pub struct ClientQueue {
    qos0: List,
    retained_qos0: List,
    normal: List,
    retained: List,
    /// When each waiting message that can expire does.
    expiries: BTreeSet<Expiry>,
    qos0_bytes: usize,
    /// Number of the next arrival.
    next: u64,
    /// The last delivery was QoS 1/2: the turn is QoS 0's.
    qos0_turn: bool,
}

/// (Wall clock ms, number, list) of a waiting message.
type Expiry = (u64, u64, Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Qos0,
    RetainedQos0,
    Normal,
    Retained,
}

impl Kind {
    fn is_qos0(self) -> bool {
        matches!(self, Self::Qos0 | Self::RetainedQos0)
    }
}

impl ClientQueue {
    pub fn new() -> Self {
        Self::default()
    }

    /// `in_flight` = QoS 1/2 deliveries already handed out and not acknowledged: they count. `retained` = the delivery comes from
    /// a retained message at subscribe time (own limit of 100,000).
    pub fn push(&mut self, delivery: Delivery, retained: bool, in_flight: u32, limits: &QueueLimits) -> Push {
        let delivery = Box::new(delivery);
        let (kind, is_full) = match (delivery.qos, retained) {
            (QoS::AtMostOnce, false) => (Kind::Qos0, self.qos0_bytes >= limits.qos0_bytes_max),
            // They come all at once, however fast the client reads, and cost little.
            (QoS::AtMostOnce, true) => (Kind::RetainedQos0, self.retained_qos0.len() >= RETAINED_LEN_MAX),
            (_, false) => {
                let counted = self.normal.len() as u64 + u64::from(in_flight);
                (Kind::Normal, counted >= u64::from(limits.max_queue_size))
            }
            (_, true) => (Kind::Retained, self.retained.len() >= RETAINED_LEN_MAX),
        };
        if !is_full {
            self.append(kind, delivery);
            return Push::Accepted;
        }
        if kind == Kind::Qos0 {
            return Push::Dropped { delivery, reason: DropReason::Qos0MemoryExceeded, pushed_accepted: false };
        }
        let reason = DropReason::ClientMessageQueueFull;
        let oldest = if limits.discard_oldest { self.take_first(kind) } else { None };
        match oldest {
            Some(oldest) => {
                self.append(kind, delivery);
                Push::Dropped { delivery: oldest, reason, pushed_accepted: true }
            }
            // `discard`, or everything counted is in flight.
            None => Push::Dropped { delivery, reason, pushed_accepted: false },
        }
    }

    /// Takes the next delivery: one QoS 0 after each QoS 1/2; QoS 1/2 only while `quota > 0`.
    pub fn pop(&mut self, quota: usize, now_ms: u64) -> Pop {
        let Some(kind) = self.next_kind(quota) else { return Pop::Empty };
        let Some(delivery) = self.take_first(kind) else { return Pop::Empty };
        if delivery.message.is_expired(now_ms) {
            return Pop::Expired(delivery);
        }
        self.qos0_turn = !kind.is_qos0();
        Pop::Deliver(delivery)
    }

    /// Bytes of waiting QoS 0 messages. Changes by exactly what a call of `push`, `pop` or `take_expired` queued and took out, so the
    /// difference of before and after is what a budget of the whole node must add or give back; a queue that is given up gives back
    /// what it holds then.
    pub fn qos0_bytes(&self) -> usize {
        self.qos0_bytes + self.retained_qos0.len() * RETAINED_QOS0_BYTES
    }

    /// Waiting deliveries of any QoS.
    pub fn len(&self) -> usize {
        self.qos0.len() + self.retained_qos0.len() + self.normal.len() + self.retained.len()
    }

    /// Waiting deliveries that count against `max_queue_size`.
    pub fn counted_len(&self) -> usize {
        self.normal.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the first waiting message expires, wall clock ms.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.expiries.first().map(|(at_ms, ..)| *at_ms)
    }

    /// Takes out every waiting message that is expired, the first to expire first.
    pub fn take_expired(&mut self, now_ms: u64) -> Vec<Delivery> {
        let mut expired = Vec::new();
        while let Some(&(at_ms, number, kind)) = self.expiries.first()
            && at_ms <= now_ms
        {
            self.expiries.pop_first();
            if let Some(delivery) = self.list(kind).remove(number) {
                self.note_taken(kind, &delivery);
                expired.push(*delivery);
            }
        }
        expired
    }

    fn next_kind(&self, quota: usize) -> Option<Kind> {
        let qos0 = || first((Kind::Qos0, &self.qos0), (Kind::RetainedQos0, &self.retained_qos0));
        let qos12 = || first((Kind::Normal, &self.normal), (Kind::Retained, &self.retained)).filter(|_| quota > 0);
        if self.qos0_turn { qos0().or_else(qos12) } else { qos12().or_else(qos0) }
    }

    fn append(&mut self, kind: Kind, delivery: Box<Delivery>) {
        let number = self.next;
        self.next += 1;
        if kind == Kind::Qos0 {
            self.qos0_bytes += delivery.message.size_bytes();
        }
        if let Some(at_ms) = delivery.message.expires_at_ms() {
            self.expiries.insert((at_ms, number, kind));
        }
        self.list(kind).append(number, delivery);
    }

    fn take_first(&mut self, kind: Kind) -> Option<Box<Delivery>> {
        let (number, delivery) = self.list(kind).take_first()?;
        if let Some(at_ms) = delivery.message.expires_at_ms() {
            self.expiries.remove(&(at_ms, number, kind));
        }
        self.note_taken(kind, &delivery);
        Some(delivery)
    }

    fn note_taken(&mut self, kind: Kind, delivery: &Delivery) {
        if kind == Kind::Qos0 {
            // What `append` added: a message does not change while it is shared.
            self.qos0_bytes -= delivery.message.size_bytes();
        }
    }

    fn list(&mut self, kind: Kind) -> &mut List {
        match kind {
            Kind::Qos0 => &mut self.qos0,
            Kind::RetainedQos0 => &mut self.retained_qos0,
            Kind::Normal => &mut self.normal,
            Kind::Retained => &mut self.retained,
        }
    }
}

/// Which of two lists has the older first delivery.
fn first(one: (Kind, &List), other: (Kind, &List)) -> Option<Kind> {
    match (one.1.first(), other.1.first()) {
        (Some(of_one), Some(of_other)) if of_other < of_one => Some(other.0),
        (Some(_), _) => Some(one.0),
        (None, of_other) => of_other.map(|_| other.0),
    }
}

/// Deliveries by ascending number. One taken from the middle leaves a gap; gaps are closed when they outnumber the deliveries, so a
/// removal costs a search. The first is never a gap.
#[derive(Debug, Default)]
struct List {
    slots: VecDeque<(u64, Option<Box<Delivery>>)>,
    gaps: usize,
}

impl List {
    /// Slots an empty list may keep allocated.
    const KEPT_SLOTS: usize = 64;

    fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    fn first(&self) -> Option<u64> {
        self.slots.front().map(|(number, _)| *number)
    }

    fn append(&mut self, number: u64, delivery: Box<Delivery>) {
        self.slots.push_back((number, Some(delivery)));
    }

    fn take_first(&mut self) -> Option<(u64, Box<Delivery>)> {
        let (number, delivery) = self.slots.pop_front()?;
        self.tidy();
        delivery.map(|delivery| (number, delivery))
    }

    fn remove(&mut self, number: u64) -> Option<Box<Delivery>> {
        let at = self.slots.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let delivery = self.slots.get_mut(at)?.1.take()?;
        self.gaps += 1;
        self.tidy();
        Some(delivery)
    }

    fn tidy(&mut self) {
        while let Some((_, None)) = self.slots.front() {
            self.slots.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.len() {
            self.slots.retain(|(_, delivery)| delivery.is_some());
            self.gaps = 0;
        }
        if self.slots.is_empty() && self.slots.capacity() > Self::KEPT_SLOTS {
            self.slots = VecDeque::new();
        }
    }
}

#[cfg(test)]
#[path = "client_queue_test.rs"]
mod tests;
