//! Subscriptions of sessions.

use bytestring::ByteString;

use super::apply::{Scope, superseded};
use super::command::SubscriptionRecord;
use super::event::{Event, Outcome};
use super::ids::ConnectionRef;
use super::record_key::RecordKey;
use super::state::State;
use crate::mqtt::SubscriptionFilter;

impl State {
    /// Adds or replaces subscriptions [MQTT-3.8.4-3].
    pub(super) fn subscribe(
        &mut self,
        scope: &mut Scope,
        client: &ByteString,
        connection: ConnectionRef,
        subscriptions: &[SubscriptionRecord],
    ) -> Outcome {
        let Some(session) = self.sessions.current_mut(client, connection) else { return superseded() };
        let mut existed = Vec::with_capacity(subscriptions.len());
        for subscription in subscriptions {
            let former = session.subscriptions.insert(subscription.filter.clone(), subscription.clone());
            existed.push(former.is_some());
            self.subscription_count += usize::from(former.is_none());
            if former.as_ref() != Some(subscription) {
                let key = RecordKey::Subscription(client.clone(), subscription.filter.clone());
                if former.is_some() {
                    self.dirty.mark(key)
                } else {
                    self.dirty.created(key)
                }
                scope.tell(Event::Subscribed { client: client.clone(), subscription: subscription.clone() });
            }
        }
        Outcome::Subscribed(existed)
    }

    /// Removes subscriptions; what is queued already stays [MQTT-3.10.4-3].
    pub(super) fn unsubscribe(
        &mut self,
        scope: &mut Scope,
        client: &ByteString,
        connection: ConnectionRef,
        filters: &[SubscriptionFilter],
    ) -> Outcome {
        let Some(session) = self.sessions.current_mut(client, connection) else { return superseded() };
        let mut existed = Vec::with_capacity(filters.len());
        for filter in filters {
            let found = session.subscriptions.remove(filter).is_some();
            existed.push(found);
            if found {
                self.subscription_count -= 1;
                self.dirty.gone(RecordKey::Subscription(client.clone(), filter.clone()));
                scope.tell(Event::Unsubscribed { client: client.clone(), filter: filter.clone() });
            }
        }
        Outcome::Unsubscribed(existed)
    }
}
