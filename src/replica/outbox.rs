//! The outbox: what the cluster must learn exactly once. Every shard takes its part in order and remembers how far it came.

use std::sync::Arc;

use super::apply::Scope;
use super::command::TakeCommand;
use super::event::{Event, OutboxEvent, Position};
use super::record_key::RecordKey;
use super::state::State;
use crate::mqtt::Origin;
use crate::plant::{Plant, is_planted};
use crate::signal::{ConnectionFacts, Lifecycle, LifecycleEvent, RenderedOnce};

impl State {
    /// Puts an event at the end.
    pub(super) fn append_outbox(&mut self, scope: &mut Scope, event: OutboxEvent) {
        scope.ordinal += 1;
        let position = Position { index: scope.index, ordinal: scope.ordinal };
        let event = Arc::new(event);
        self.head.outbox_last = position;
        self.push_outbox(position, event.clone());
        self.dirty.created(RecordKey::Outbox(position));
        scope.tell(Event::Outbox { position, event });
    }

    /// Puts an event at the end, as it is stored.
    pub(super) fn push_outbox(&mut self, position: Position, event: Arc<OutboxEvent>) {
        if let OutboxEvent::Publish { message, .. } = &*event
            && message.retain
            && matches!(message.origin, Origin::Client(_))
        {
            self.to_retain.push_back((position, message.clone()));
        }
        self.outbox.push_back((position, event));
    }

    pub(super) fn raise_lifecycle(&mut self, scope: &mut Scope, event: LifecycleEvent, facts: Arc<ConnectionFacts>) {
        let lifecycle = Lifecycle { event, at_ms: scope.now_ms, facts, rendered: RenderedOnce::default() };
        self.append_outbox(scope, OutboxEvent::Lifecycle(lifecycle));
    }

    /// Queues, retains and re-publishes what matched of a part of an outbox, unless that part, or some of it, was taken before.
    pub(super) fn take(&mut self, scope: &mut Scope, take: &TakeCommand) {
        if (take.from != self.taken(take.source) && !is_planted(Plant::TakePositionNotChecked)) || take.to < take.from {
            return;
        }
        for (message, targets) in &take.enqueue {
            self.enqueue(scope, message, targets);
        }
        for message in &take.retain {
            self.retain(scope.now_ms, message);
        }
        for message in &take.republish {
            self.append_outbox(scope, OutboxEvent::Publish { message: message.clone(), dead_known: false });
        }
        self.head.taken.insert(take.source, take.to);
    }

    /// Cuts what all shards have taken.
    pub(super) fn trim_outbox(&mut self, through: Position) {
        while let Some((position, _)) = self.outbox.pop_front_if(|(position, _)| *position <= through) {
            self.head.outbox_trimmed = position;
            self.dirty.gone(RecordKey::Outbox(position));
        }
        while self.to_retain.pop_front_if(|(position, _)| *position <= through).is_some() {}
    }
}
