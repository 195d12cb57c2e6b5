//! The add-on Supervisor actor: hears every signal of its node, has it rendered and publishes what comes out.
//!
//! Signals of this node alone (drops of queues in memory, dead messages) are published to the cluster. Outbox events stand in every
//! node's log: each node hands them to its own clients that no replicated queue serves, and the takers of the shards do the rest
//! (actor::outbox_taker); so every receiver gets them once.

use std::sync::Arc;

use actix::{Actor, Context, Handler};

use super::settings::AddonSettings;
use super::{on_enqueued, record, render};
use crate::actor::essential::Essential;
use crate::actor::inbox::{Inbox, Mail, Wake};
use crate::actor::render::Renderer;
use crate::actor::signal_bus::{BusItem, BusListener};
use crate::internal_client::InternalClient;
use crate::mqtt::Message;
use crate::replica::OutboxEvent;
use crate::signal::{RenderedOnce, Signal};
use crate::telemetry::Metrics;

/// The add-ons as the actors see them.
pub struct AddonRenderer {
    settings: AddonSettings,
    metrics: Arc<Metrics>,
}

impl AddonRenderer {
    pub fn new(settings: AddonSettings, metrics: Arc<Metrics>) -> Self {
        Self { settings, metrics }
    }
}

impl Renderer for AddonRenderer {
    fn render(&self, signal: &Signal, now_ms: u64, count: bool) -> Option<Arc<Message>> {
        let rendered = render(signal, &self.settings, now_ms);
        if count {
            record(&self.metrics, signal, &rendered);
        }
        rendered.message.map(Arc::new)
    }

    fn render_outbox(&self, event: &OutboxEvent, now_ms: u64, count: bool) -> Option<Arc<Message>> {
        match event {
            OutboxEvent::Publish { message, .. } => Some(Arc::clone(message)),
            OutboxEvent::Assigned { .. } | OutboxEvent::AssignedFrom { .. } | OutboxEvent::Returned { .. } => None, // stands in the member's replicated queue
            OutboxEvent::Dropped(dropped) => self.once(&dropped.rendered, || Signal::Dropped(dropped.clone()), now_ms, count),
            OutboxEvent::Expired(expired) => self.once(&expired.rendered, || Signal::Expired(expired.clone()), now_ms, count),
            OutboxEvent::Lifecycle(lifecycle) => {
                self.once(&lifecycle.rendered, || Signal::Lifecycle(Box::new(lifecycle.clone())), now_ms, count)
            }
        }
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

impl AddonRenderer {
    /// The takers of all shards and the supervisor ask: rendered for the first of them, and for who counts.
    fn once(&self, rendered: &RenderedOnce, signal: impl Fn() -> Signal, now_ms: u64, count: bool) -> Option<Arc<Message>> {
        let make = || self.render(&signal(), now_ms, count);
        if count {
            let message = make();
            return rendered.get_or_make(|| message);
        }
        rendered.get_or_make(make)
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
pub struct SupervisorMail(Mail<BusItem, Supervisor>);

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
        SupervisorMail(Mail::new(inbox, supervisor.start()))
    }

    fn handle_item(&self, item: BusItem) {
        let now_ms = crate::actor::clock::wall_ms();
        match item {
            BusItem::Local(signal) => {
                if let Some(message) = self.renderer.render(&signal, now_ms, true) {
                    self.publish(&message);
                }
                self.client.signal_handled(&signal);
            }
            BusItem::Outbox { event, count } => {
                if let Some(message) = self.renderer.render_outbox(&event, now_ms, count) {
                    self.client.deliver_local(&message);
                }
            }
        }
    }

    fn publish(&self, message: &Arc<Message>) {
        let stored = self.client.publish(message);
        actix_rt::spawn(async move {
            if let Err(error) = stored.await {
                tracing::debug!(%error, "an add-on message was not stored for its persistent receivers");
            }
        });
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;
}

impl Handler<Wake> for Supervisor {
    type Result = ();

    fn handle(&mut self, _: Wake, _: &mut Self::Context) {
        let mut batch = std::mem::take(&mut self.batch);
        self.inbox.take(&mut batch);
        for item in batch.drain(..) {
            self.handle_item(item);
        }
        self.batch = batch;
    }
}
