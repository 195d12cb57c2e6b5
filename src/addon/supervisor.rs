//! The add-on Supervisor actor: hears every signal of its node, has it rendered and publishes what comes out.
//!
//! Signals of this node alone (drops of queues in memory, dead messages) are published to the cluster. Outbox events stand in every
//! node's log: each node hands them to its own clients that no replicated queue serves, and the takers of the shards do the rest
//! (actor::outbox_taker); so every receiver gets them once.

use std::sync::Arc;

use actix::{Actor, Context};
use bytestring::ByteString;

use super::settings::AddonSettings;
use super::{AddonCounter, dead::record_unheard, lifecycle, on_enqueued, record, record_made, render};
use crate::actor::essential::Essential;
use crate::actor::inbox::{Attends, Inbox, Mail, attend};
use crate::actor::publish::Stored;
use crate::actor::render::Renderer;
use crate::actor::signal_bus::{BusItem, BusListener};
use crate::internal_client::InternalClient;
use crate::mqtt::Message;
use crate::replica::OutboxEvent;
use crate::signal::{Lifecycle, Signal};
use crate::telemetry::event_log::Event;
use crate::telemetry::{EventLog, Metrics};

/// The add-ons as the actors see them.
pub struct AddonRenderer {
    settings: AddonSettings,
    metrics: Arc<Metrics>,
    events: EventLog,
}

impl AddonRenderer {
    pub fn new(settings: AddonSettings, metrics: Arc<Metrics>) -> Self {
        Self { settings, metrics, events: EventLog::default() }
    }

    /// Has dropped messages written.
    #[must_use]
    pub fn with_events(mut self, events: EventLog) -> Self {
        self.events = events;
        self
    }

    fn write(&self, signal: &Signal) {
        if let Signal::Dropped(dropped) = signal {
            let (topic, qos) = (&*dropped.message.topic, dropped.qos as u8);
            self.events.tell(&Event::Dropped { receiver: &dropped.receiver, topic, qos, reason: dropped.reason });
        }
    }
}

impl Renderer for AddonRenderer {
    fn render(&self, signal: &Signal, now_ms: u64, count: bool) -> Option<Arc<Message>> {
        let rendered = render(signal, &self.settings, now_ms);
        if count {
            record(&self.metrics, signal, &rendered);
            self.write(signal);
        }
        rendered.message.map(Arc::new)
    }

    /// The takers of all shards and the supervisor ask: rendered for the first of them.
    fn render_outbox(&self, event: &OutboxEvent, now_ms: u64) -> Option<Arc<Message>> {
        let make = || self.render(&signal_of(event)?, now_ms, false);
        match event {
            OutboxEvent::Publish { message, .. } => Some(Arc::clone(message)),
            OutboxEvent::Dropped(dropped) => dropped.rendered.get_or_make(make),
            OutboxEvent::Expired(expired) => expired.rendered.get_or_make(make),
            OutboxEvent::Lifecycle(lifecycle) => lifecycle.rendered.get_or_make(make),
            // Stands in the member's replicated queue.
            OutboxEvent::Assigned { .. } | OutboxEvent::AssignedFrom { .. } | OutboxEvent::Returned { .. } => None,
        }
    }

    fn count(&self, signal: &Signal, made: bool, now_ms: u64) {
        if made {
            record_made(&self.metrics, signal);
            self.write(signal);
        } else {
            self.render(signal, now_ms, true);
        }
    }

    fn count_outbox(&self, event: &OutboxEvent, now_ms: u64) {
        let made = match event {
            OutboxEvent::Dropped(dropped) => dropped.rendered.is_made(),
            OutboxEvent::Expired(expired) => expired.rendered.is_made(),
            OutboxEvent::Lifecycle(lifecycle) => lifecycle.rendered.is_made(),
            _ => false,
        };
        if made && let OutboxEvent::Lifecycle(_) = event {
            self.metrics.addon(AddonCounter::LifecyclePublished, 1);
        } else if event.is_will() {
            self.metrics.hivemq.wills_published_total.inc();
        } else if let Some(signal) = signal_of(event) {
            self.count(&signal, made, now_ms);
        }
    }

    fn pass_over(&self, event: &Lifecycle) -> Option<ByteString> {
        let topic = lifecycle::topic_to_publish(event, &self.settings)?;
        event.rendered.pass_over();
        Some(topic)
    }

    fn count_unheard(&self, topic: &ByteString) {
        record_unheard(&self.metrics, topic, &self.settings);
    }

    fn enqueued(&self, message: &Message, receivers: usize) {
        if let Some(count) = on_enqueued(message, receivers) {
            self.metrics.addon(count.counter, count.by);
        }
    }

    fn lifecycle_wanted(&self) -> bool {
        self.settings.lifecycle.enabled
    }
}

/// What an event tells the add-ons.
fn signal_of(event: &OutboxEvent) -> Option<Signal> {
    match event {
        OutboxEvent::Dropped(dropped) => Some(Signal::Dropped(dropped.clone())),
        OutboxEvent::Expired(expired) => Some(Signal::Expired(expired.clone())),
        OutboxEvent::Lifecycle(lifecycle) => Some(Signal::Lifecycle(Box::new(lifecycle.clone()))),
        // A message, or one that stands in a member's replicated queue.
        OutboxEvent::Publish { .. }
        | OutboxEvent::Assigned { .. }
        | OutboxEvent::AssignedFrom { .. }
        | OutboxEvent::Returned { .. } => None,
    }
}

/// The actor.
pub struct Supervisor {
    _essential: Essential,
    client: InternalClient,
    renderer: Arc<dyn Renderer>,
    inbox: Arc<Inbox<BusItem>>,
    batch: Vec<BusItem>,
}

/// The way to the supervisor.
pub struct SupervisorMail(Mail<BusItem>);

impl BusListener for SupervisorMail {
    fn post(&self, item: BusItem) {
        self.0.post(item);
    }

    fn pending(&self) -> usize {
        self.0.len()
    }
}

impl Supervisor {
    /// Starts the supervisor on the arbiter it is called on.
    pub fn start_for(client: InternalClient, renderer: Arc<dyn Renderer>) -> SupervisorMail {
        let inbox = Arc::new(Inbox::default());
        let supervisor = Self {
            _essential: Essential("the add-on supervisor"),
            client,
            renderer,
            inbox: Arc::clone(&inbox),
            batch: Vec::new(),
        };
        supervisor.start();
        SupervisorMail(Mail::new(inbox))
    }

    fn handle_item(&self, item: BusItem) {
        let now_ms = crate::actor::clock::wall_ms();
        match item {
            BusItem::Local(signal) => {
                let stored = self.renderer.render(&signal, now_ms, true).and_then(|message| self.client.publish(&message));
                match stored {
                    Some(stored) => self.wait(stored, signal),
                    None => self.client.signal_handled(&signal),
                }
            }
            BusItem::Outbox { event } => {
                // A Will is for any topic, the rest for those of add-ons.
                let may_be_heard = matches!(*event, OutboxEvent::Publish { .. }) || self.client.is_heard();
                if may_be_heard && let Some(message) = self.renderer.render_outbox(&event, now_ms) {
                    self.client.deliver_local(&message);
                }
            }
        }
    }

    /// The signal counts as waiting until its message is stored: a shard that is slow bounds what waits for it.
    fn wait(&self, stored: Stored, signal: Signal) {
        let client = self.client.clone();
        actix_rt::spawn(async move {
            if let Err(error) = stored.await {
                client.not_stored();
                tracing::debug!(%error, "an add-on message was not stored for its persistent receivers");
            }
            client.signal_handled(&signal);
        });
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        attend(ctx);
    }
}

impl Attends for Supervisor {
    type Item = BusItem;

    fn inbox(&self) -> &Arc<Inbox<BusItem>> {
        &self.inbox
    }

    fn on_mail(&mut self, _: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            self.handle_item(item);
        }
        self.batch = batch;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addon::fixture::{all_on, message};
    use crate::mqtt::Origin;

    #[test]
    fn of_what_a_shard_publishes_wills_are_counted() {
        let metrics = Arc::new(Metrics::new().unwrap());
        let renderer = AddonRenderer::new(all_on(), Arc::clone(&metrics));
        let (by_client, republished) =
            (Arc::new(message("t")), Arc::new(Message { origin: Origin::Extension, ..message("$dead/t") }));
        for (message, dead_known, counted) in [(&by_client, true, 0), (&republished, false, 0), (&by_client, false, 1)] {
            renderer.count_outbox(&OutboxEvent::Publish { message: Arc::clone(message), dead_known }, 0);
            assert_eq!(metrics.hivemq.wills_published_total.get(), counted, "{message:?}");
        }
    }
}
