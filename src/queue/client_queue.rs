//! The queue of one connection in memory: skeleton of its interface.

use crate::mqtt::Delivery;
use crate::signal::DropReason;

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
pub struct ClientQueue {}

impl ClientQueue {
    pub fn new() -> Self {
        Self::default()
    }

    /// `in_flight` = QoS 1/2 deliveries already handed out and not acknowledged: they count. `retained` = the delivery comes from
    /// a retained message at subscribe time (own limit of 100,000).
    pub fn push(&mut self, _delivery: Delivery, _retained: bool, _in_flight: u32, _limits: &QueueLimits) -> Push {
        Push::Accepted
    }

    /// Takes the next delivery: one QoS 0 after each QoS 1/2; QoS 1/2 only while `quota > 0`.
    pub fn pop(&mut self, _quota: usize, _now_ms: u64) -> Pop {
        Pop::Empty
    }

    /// Bytes of waiting QoS 0 messages.
    pub fn qos0_bytes(&self) -> usize {
        0
    }

    pub fn len(&self) -> usize {
        0
    }

    pub fn is_empty(&self) -> bool {
        true
    }

    /// When the first waiting message expires, wall clock ms.
    pub fn next_expiry_ms(&self) -> Option<u64> {
        None
    }

    /// Takes out every waiting message that is expired.
    pub fn take_expired(&mut self, _now_ms: u64) -> Vec<Delivery> {
        Vec::new()
    }
}
