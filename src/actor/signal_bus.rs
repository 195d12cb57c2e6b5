//! Signals of this node on their way to the add-on supervisor, in order. Never blocks who raises one; bounded, overflow counted.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::mqtt::{Delivery, Message};
use crate::replica::OutboxEvent;
use crate::signal::{Dead, DropReason, Dropped, Expired, Receiver, RenderedOnce, Signal};
use crate::telemetry::RateLimited;

/// Signals waiting for the supervisor, and of messages it makes that are not stored yet, at most.
const PENDING_MAX: usize = 100_000;
/// Bytes of their messages, at most.
const PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;

static OVERFLOWED: RateLimited = RateLimited::new(Duration::from_secs(10));

/// What the supervisor is told.
#[derive(Debug, Clone)]
pub enum BusItem {
    /// Happened on this node alone: publish it to the cluster.
    Local(Signal),
    /// Stands in a shard's outbox: hand it to this node's own clients that no replicated queue serves. (The shard's taker counts it.)
    Outbox { event: Arc<OutboxEvent> },
}

/// Posts to whoever listens (the supervisor's inbox).
pub trait BusListener: Send + Sync + 'static {
    fn post(&self, item: BusItem);
    fn pending(&self) -> usize;
}

/// The bus; one for a node.
#[derive(Default)]
pub struct SignalBus {
    listener: OnceLock<Box<dyn BusListener>>,
    overflowed: AtomicU64,
    /// Local signals that were posted and not handled, and their bytes.
    pending: AtomicUsize,
    pending_bytes: AtomicUsize,
}

impl SignalBus {
    /// Connects the supervisor, once.
    pub fn connect(&self, listener: Box<dyn BusListener>) {
        if self.listener.set(listener).is_err() {
            tracing::error!("the signal bus has a listener already");
        }
    }

    /// Whether so much waits for the supervisor that clients should not be read for a moment.
    pub fn is_pressed(&self) -> bool {
        self.listener.get().is_some_and(|listener| listener.pending() >= PENDING_MAX)
    }

    /// How much of what may wait for the supervisor does.
    #[expect(clippy::cast_precision_loss, reason = "shares of limits far below 2^53")]
    pub fn fullness(&self) -> f64 {
        let listener = self.listener.get().map_or(0, |listener| listener.pending());
        let waiting = self.pending.load(Ordering::Relaxed).max(listener) as f64 / PENDING_MAX as f64;
        waiting.max(self.pending_bytes.load(Ordering::Relaxed) as f64 / PENDING_BYTES_MAX as f64)
    }

    /// Signals lost because too many were waiting.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    pub fn post(&self, item: BusItem) {
        let Some(listener) = self.listener.get() else { return };
        // Outbox items are bounded by the log's own pace and must reach local clients; local signals give way first.
        if let BusItem::Local(signal) = &item {
            let waiting = self.pending.load(Ordering::Relaxed).max(listener.pending());
            let bytes = self.pending_bytes.load(Ordering::Relaxed);
            if waiting >= PENDING_MAX || bytes >= PENDING_BYTES_MAX {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                crate::warn_limited!(OVERFLOWED, waiting, bytes, "add-on topics miss events: too many at once");
                return;
            }
            self.pending.fetch_add(1, Ordering::Relaxed);
            self.pending_bytes.fetch_add(signal.size_bytes(), Ordering::Relaxed);
        }
        listener.post(item);
    }

    /// The supervisor is done with a local signal, and what it made of it is stored.
    pub fn handled(&self, signal: &Signal) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
        self.pending_bytes.fetch_sub(signal.size_bytes(), Ordering::Relaxed);
    }

    /// A delivery was dropped for its receiver.
    pub fn dropped(&self, delivery: &Delivery, receiver: Receiver, reason: DropReason, at_ms: u64) {
        let message = Arc::clone(&delivery.message);
        self.post(BusItem::Local(Signal::Dropped(Dropped {
            message,
            qos: delivery.qos,
            receiver,
            reason,
            at_ms,
            rendered: RenderedOnce::default(),
        })));
    }

    /// A delivery expired for its receiver.
    pub fn expired(&self, delivery: &Delivery, receiver: Receiver, at_ms: u64) {
        let message = Arc::clone(&delivery.message);
        self.post(BusItem::Local(Signal::Expired(Expired {
            message,
            qos: delivery.qos,
            receiver,
            at_ms,
            rendered: RenderedOnce::default(),
        })));
    }

    /// A message matched no subscription.
    pub fn dead(&self, message: &Arc<Message>, at_ms: u64) {
        self.post(BusItem::Local(Signal::Dead(Dead { message: Arc::clone(message), at_ms })));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{Origin, QoS};

    /// Keeps nothing; says that so many wait.
    struct Deaf(usize);

    impl BusListener for Deaf {
        fn post(&self, _: BusItem) {}

        fn pending(&self) -> usize {
            self.0
        }
    }

    fn message(bytes: usize) -> Arc<Message> {
        Arc::new(Message {
            topic: "t".into(),
            payload: vec![0; bytes].into(),
            qos: QoS::AtMostOnce,
            retain: false,
            payload_format_indicator: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
            message_expiry_interval: None,
            received_at_ms: 0,
            origin: Origin::Broker,
        })
    }

    fn bus(waiting: usize) -> SignalBus {
        let bus = SignalBus::default();
        bus.connect(Box::new(Deaf(waiting)));
        bus
    }

    #[test]
    fn signals_keep_a_bounded_number_of_bytes() {
        let message = message(PENDING_BYTES_MAX / 4);
        let bus = bus(0);
        for _ in 0..6 {
            bus.dead(&message, 0);
        }
        assert_eq!(bus.overflowed(), 2);
        bus.handled(&Signal::Dead(Dead { message: Arc::clone(&message), at_ms: 0 }));
        bus.dead(&message, 0);
        assert_eq!(bus.overflowed(), 2);
    }

    #[test]
    fn signals_beyond_the_number_that_may_wait_are_counted_and_given_up() {
        let message = message(0);
        let bus = bus(0);
        for _ in 0..PENDING_MAX + 7 {
            bus.dead(&message, 0);
        }
        assert_eq!(bus.overflowed(), 7);
        // Taken out of the inbox is not handled: what is made of it must be stored first.
        bus.handled(&Signal::Dead(Dead { message: Arc::clone(&message), at_ms: 0 }));
        bus.dead(&message, 0);
        bus.dead(&message, 0);
        assert_eq!(bus.overflowed(), 8);
    }

    #[test]
    fn local_signals_give_way_to_those_that_stand_in_a_log() {
        assert!(!bus(PENDING_MAX - 1).is_pressed());
        let full = bus(PENDING_MAX);
        assert!(full.is_pressed(), "clients wait");
        full.dead(&message(0), 0);
        assert_eq!(full.overflowed(), 1);
    }
}
