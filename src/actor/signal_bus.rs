//! Signals of this node on their way to the add-on supervisor, in order. Never blocks who raises one; bounded, overflow counted.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::mqtt::{Delivery, Message};
use crate::replica::OutboxEvent;
use crate::signal::{Dead, DropReason, Dropped, Expired, Receiver, RenderedOnce, Signal};

/// Signals waiting for the supervisor, at most.
const PENDING_MAX: usize = 100_000;
/// Bytes of their messages, at most.
const PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the supervisor is told.
#[derive(Debug, Clone)]
pub enum BusItem {
    /// Happened on this node alone: publish it to the cluster.
    Local(Signal),
    /// Stands in a shard's outbox: hand it to this node's own clients that no replicated queue serves. `count` = this node leads the
    /// shard and counts it.
    Outbox { event: Arc<OutboxEvent>, count: bool },
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
    /// Of the local signals that were posted and not handled.
    pending_bytes: AtomicUsize,
}

impl SignalBus {
    /// Connects the supervisor, once.
    pub fn connect(&self, listener: Box<dyn BusListener>) {
        if self.listener.set(listener).is_err() {
            tracing::error!("the signal bus has a listener already");
        }
    }

    /// Signals lost because too many were waiting.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    pub fn post(&self, item: BusItem) {
        let Some(listener) = self.listener.get() else { return };
        // Outbox items are bounded by the log's own pace and must reach local clients; local signals give way first.
        if let BusItem::Local(signal) = &item {
            let bytes = self.pending_bytes.load(Ordering::Relaxed);
            if listener.pending() >= PENDING_MAX || bytes >= PENDING_BYTES_MAX {
                self.overflowed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            self.pending_bytes.fetch_add(signal.size_bytes(), Ordering::Relaxed);
        }
        listener.post(item);
    }

    /// The supervisor is done with a local signal.
    pub fn handled(&self, signal: &Signal) {
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

    struct Deaf;

    impl BusListener for Deaf {
        fn post(&self, _: BusItem) {}

        fn pending(&self) -> usize {
            0
        }
    }

    #[test]
    fn signals_keep_a_bounded_number_of_bytes() {
        let message = Arc::new(Message {
            topic: "t".into(),
            payload: vec![0; PENDING_BYTES_MAX / 4].into(),
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
        });
        let bus = SignalBus::default();
        bus.connect(Box::new(Deaf));
        for _ in 0..6 {
            bus.dead(&message, 0);
        }
        assert_eq!(bus.overflowed(), 2);
        bus.handled(&Signal::Dead(Dead { message: Arc::clone(&message), at_ms: 0 }));
        bus.dead(&message, 0);
        assert_eq!(bus.overflowed(), 2);
    }
}
