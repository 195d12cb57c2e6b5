//! What the cluster tells this node, turned into routing changes and items for hubs, takers and the signal bus.

use std::sync::Arc;

use crate::cluster::{Hooks, PeerMessage};
use crate::mqtt::{Delivery, ReasonCode, Source};
use crate::replica::{ConnectionRef, Event, NodeId, ShardId, State};
use crate::routing::RouteState;
use crate::telemetry::event_log::Event as Recorded;

use super::hub::HubItem;
use super::node::Node;
use super::outbox_taker::TakerItem;
use super::parting;
use super::publish;
use super::settle;
use super::shared_subscription::{self, GroupItem};
use super::signal_bus::BusItem;

/// The node's ears.
pub struct NodeHooks(pub Arc<Node>);

impl Hooks for NodeHooks {
    fn shard_loaded(&self, shard: ShardId, state: &State) {
        let routing = &self.0.routing;
        // Changed in place, never emptied: publishers match while a snapshot replaces a running replica.
        for session in state.sessions() {
            for (filter, _, _) in routing.subscriptions_of(&session.client) {
                if !session.subscriptions.contains_key(&filter) {
                    routing.unsubscribe(&session.client, &filter);
                }
            }
            for record in session.subscriptions.values() {
                routing.subscribe(shard.0, &session.client, &record.filter, record.options, record.identifier);
            }
            let state = RouteState { connection: session.connection.map(triple), persistent: session.is_persistent() };
            routing.set_state(shard.0, &session.client, state);
        }
        for client in routing.clients_of(shard.0) {
            if state.session(&client).is_none() {
                routing.remove_client(&client);
            }
        }
        for (group, _) in state.declared() {
            routing.set_declared(group, true);
        }
        routing.for_each_group(|group| {
            if self.0.shard_of(&group.full()) == shard && routing.is_declared(group) && !state.is_declared(group) {
                routing.set_declared(group, false);
            }
        });
        // Events of what a snapshot skipped are not told: connections find out by themselves.
        for hub in self.0.hubs() {
            hub.post(HubItem::Reconcile { shard });
        }
        self.0.groups.poke_all();
    }

    fn pressed(&self) -> bool {
        self.0.is_pressed()
    }

    fn applied(&self, shard: ShardId, events: &[Event], leads: bool) {
        let mut outbox = false;
        for event in events {
            outbox |= matches!(event, Event::Outbox { .. });
            self.event(shard, event, leads);
        }
        if outbox {
            for taker in self.0.takers() {
                taker.post(TakerItem::Look);
            }
        }
    }

    fn leadership(&self, shard: ShardId, leads: bool) {
        if let Some(taker) = self.0.takers().get(usize::from(shard.0)) {
            taker.post(TakerItem::Leads(leads));
        }
        shared_subscription::leadership(&self.0, shard, leads);
    }

    fn peer_message(&self, from: NodeId, message: PeerMessage) {
        match message {
            PeerMessage::Publish { message } => {
                publish::deliver_local(&self.0, &message);
            }
            PeerMessage::DeliverShared { message, group, client, qos, retain, subscription_ids } => {
                let connection = self.0.routing.client(&client).and_then(|route| route.state().connection);
                match connection.filter(|c| self.0.is_local(*c)) {
                    Some(c) => {
                        let given = publish::delivery(&message, qos, retain, subscription_ids);
                        publish::enqueue_local(&self.0, c.2, Delivery { source: Source::Member { group }, ..given });
                    }
                    None => tracing::trace!(%client, "the chosen member of a shared subscription is gone"),
                }
            }
            PeerMessage::Dispatch { group, seq, message, qos, retain, subscription_ids, dup, connection, .. } => {
                if !self.0.is_local(triple(connection)) {
                    return; // an earlier incarnation's: its end reaches the dispatcher through the routing table
                }
                let source = Source::Share { group, seq };
                let delivery = Box::new(Delivery { message, qos, retain, subscription_ids, dup, source });
                if let Some(hub) = self.0.hub_of(connection.connection) {
                    hub.post(HubItem::Dispatch { connection: connection.connection, delivery });
                }
            }
            PeerMessage::DispatchStored { group, seq, qos, retain, subscription_ids, dup, connection, .. } => {
                if !self.0.is_local(triple(connection)) {
                    return;
                }
                let delivery = move |message, source| Delivery { message, qos, retain, subscription_ids, dup, source };
                let taking = shared_subscription::take_stored(Arc::clone(&self.0), connection.connection, (group, seq), delivery);
                tokio::spawn(taking);
            }
            PeerMessage::Settle { ticket, shard, client, connection } => {
                settle::for_peer(&self.0, from, ticket, shard, client, connection);
            }
            PeerMessage::Settled { ticket } => self.0.settling.remove(ticket),
            PeerMessage::DispatchRefused { group, seq, connection } => {
                shared_subscription::refused(&self.0, &group, seq, connection);
            }
            PeerMessage::DispatchDone { group, entries } => {
                let seqs = entries.into_iter().filter(|(_, completed)| *completed).map(|(seq, _)| seq).collect();
                shared_subscription::done(&self.0, &group, seqs);
            }
            other => tracing::warn!(from, ?other, "a peer message the cluster room should have taken"),
        }
    }

    fn rebalance(&self) {
        tokio::spawn(parting::rebalance(Arc::clone(&self.0)));
    }

    fn incarnation_lost(&self) {
        for hub in self.0.hubs() {
            hub.post(HubItem::CloseAll { reason_code: ReasonCode::ServerBusy, tell_shard: false });
        }
    }
}

impl NodeHooks {
    fn event(&self, shard: ShardId, event: &Event, leads: bool) {
        let node = &self.0;
        match event {
            Event::Connected { client, connection, persistent, took_over, facts, at_ms } => {
                node.guard.connected(node, facts, *connection, *took_over, *at_ms, leads);
                let state = RouteState { connection: Some(triple(*connection)), persistent: *persistent };
                node.routing.set_state(shard.0, client, state);
                node.groups.member_changed(node, client);
            }
            Event::Disconnected { client, .. } => {
                node.routing.set_state(shard.0, client, RouteState { connection: None, persistent: true });
                node.groups.member_changed(node, client);
            }
            Event::SessionRemoved { client, expired_at_ms } => {
                if let Some(at_ms) = expired_at_ms.filter(|_| leads) {
                    node.events.tell(&Recorded::SessionExpired { client_id: client, at_ms });
                }
                let groups = node.groups.of_client(node, client);
                node.routing.remove_client(client);
                node.groups.poke(&groups);
            }
            Event::Close { connection, reason_code, .. } => {
                if node.is_local(triple(*connection))
                    && let Some(hub) = node.hub_of(connection.connection)
                {
                    hub.post(HubItem::Close { connection: connection.connection, reason_code: *reason_code });
                }
            }
            Event::Subscribed { client, subscription } => {
                let record = subscription;
                node.routing.subscribe(shard.0, client, &record.filter, record.options, record.identifier);
                if record.filter.share.is_some() {
                    node.groups.member_changed(node, client);
                }
            }
            Event::Unsubscribed { client, filter } => {
                let groups = node.groups.of_client(node, client);
                node.routing.unsubscribe(client, filter);
                node.groups.poke(&groups);
            }
            Event::Queued { client } => self.queued(client),
            Event::GroupQueued { group } => {
                if leads {
                    node.groups.ensure(node, group).post(GroupItem::Look);
                }
            }
            Event::GroupRemoved { group } => node.groups.remove(group),
            Event::GroupDeclared { group, declared } => {
                node.routing.set_declared(group, *declared);
                if leads {
                    node.groups.ensure(node, group).post(GroupItem::Look);
                }
            }
            Event::Outbox { event, .. } => node.signals.post(BusItem::Outbox { event: Arc::clone(event) }),
        }
    }

    fn queued(&self, client: &str) {
        let connection = self.0.routing.client(client).and_then(|route| route.state().connection);
        if let Some(connection) = connection.filter(|c| self.0.is_local(*c))
            && let Some(hub) = self.0.hub_of(connection.2)
        {
            hub.post(HubItem::Queued { connection: connection.2 });
        }
    }
}

fn triple(connection: ConnectionRef) -> (u64, u64, u64) {
    (connection.node, connection.incarnation, connection.connection)
}
