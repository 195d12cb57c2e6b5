//! What a session brings along that its client may not have any more: subscriptions made under other rights, and what they put into its queue.
//!
//! Rights are judged when a client comes in and when it authenticates again. Subscriptions that are not allowed then are removed before
//! anything more is delivered; messages that no other subscription of the session matches are dropped as an extension of HiveMQ would prevent them.

use std::sync::Arc;
use std::time::Duration;

use actix::Context;
use bytestring::ByteString;

use super::{Client, Identity};
use crate::actor::node::Node;
use crate::actor::shared_subscription;
use crate::auth::Principal;
use crate::cluster::SubmitError;
use crate::mqtt::{Delivery, GroupId, QoS, ReasonCode, Source, SubscriptionFilter, topic_filter};
use crate::replica::command::QueueStep;
use crate::replica::{Command, ConnectionRef, State};
use crate::signal::DropReason;
use crate::telemetry::RateLimited;
use crate::telemetry::event_log::{Event, Who};

static WITHDRAWN: RateLimited = RateLimited::new(Duration::from_secs(5));

/// Subscriptions of the session that are gone because its client may not have them.
#[derive(Debug, Default)]
pub(super) struct Withdrawn(Vec<SubscriptionFilter>);

/// Finds the subscriptions of a stored session that its client may not have now.
pub(super) fn look(node: &Node, identity: &Identity, principal: &Principal) -> Vec<SubscriptionFilter> {
    if principal.may_everything() {
        return Vec::new();
    }
    let forbidden = |state: &State| {
        let Some(session) = state.session(identity.client()) else { return Vec::new() };
        let records = session.subscriptions.values();
        records.filter(|record| !principal.may_subscribe(&record.filter, record.options.qos)).map(|r| r.filter.clone()).collect()
    };
    node.cluster().and_then(|cluster| cluster.read(identity.shard, forbidden)).unwrap_or_default()
}

/// Removes subscriptions on all nodes; `Ok` also where the connection is the session's no more, which is told by others.
pub(super) async fn withdraw(
    node: Arc<Node>,
    identity: Identity,
    connection: ConnectionRef,
    filters: Vec<SubscriptionFilter>,
) -> Result<Vec<SubscriptionFilter>, SubmitError> {
    if filters.is_empty() {
        return Ok(filters);
    }
    let command = Command::Unsubscribe { client: identity.client().clone(), connection, filters: filters.clone() };
    let submitted = node.cluster().ok_or(SubmitError::Unavailable)?.submit_everywhere(identity.shard, command);
    submitted.await?;
    node.metrics.own.subscriptions_withdrawn_total.inc_by(u64::try_from(filters.len()).unwrap_or(u64::MAX));
    let names: Vec<String> = filters.iter().take(TOLD_MAX).map(|filter| filter.full().to_string()).collect();
    let who = Who { client_id: Some(identity.client()), ip: identity.facts.client_ip.as_deref() };
    node.events.tell(&Event::SubscriptionsWithdrawn { who, filters: &names, more: filters.len() - names.len() });
    crate::warn_limited!(
        WITHDRAWN,
        subscriptions = filters.len(),
        "a session had subscriptions that its client may not have any more"
    );
    Ok(filters)
}

/// Filters that a line of the event log names.
const TOLD_MAX: usize = 20;

/// Filters of subscriptions taken away from one connection that are remembered; a client that has more taken away by authenticating again and
/// again is sent off.
const WITHDRAWN_MAX: usize = 1_000;

impl Withdrawn {
    fn add(&mut self, filters: Vec<SubscriptionFilter>) {
        let new: Vec<_> = filters.into_iter().filter(|filter| !self.0.contains(filter)).collect();
        self.0.extend(new);
    }

    fn has_group(&self, group: &GroupId) -> bool {
        self.0.iter().any(|filter| filter.share.as_ref() == Some(&group.share) && filter.filter == group.filter)
    }

    fn matches(&self, topic: &str) -> bool {
        self.0.iter().any(|filter| filter.share.is_none() && topic_filter::matches(&filter.filter, topic))
    }
}

impl Client {
    /// Nothing of these subscriptions is delivered from now on, nor of what waits already.
    pub(super) fn take_away(&mut self, filters: Vec<SubscriptionFilter>) {
        if filters.is_empty() {
            return;
        }
        self.withdrawn.get_or_insert_default().add(filters);
        for delivery in self.held.take() {
            let allowed = self.allowed(delivery);
            self.held.get_mut().extend(allowed);
        }
    }

    /// Subscriptions that are made anew, since they are allowed again.
    pub(super) fn give_again<'a>(&mut self, filters: impl Iterator<Item = &'a SubscriptionFilter>) {
        let Some(withdrawn) = &mut self.withdrawn else { return };
        filters.for_each(|filter| withdrawn.0.retain(|gone| gone != filter));
        if withdrawn.0.is_empty() {
            self.withdrawn = None;
        }
    }

    /// The rights are others than before: looks at the subscriptions of the running session again.
    pub(super) fn recheck(&mut self, principal: &Principal) {
        let Some(identity) = self.identity.clone() else { return };
        let filters = look(self.local.node(), &identity, principal);
        self.take_away(filters);
        // Those too that the client has asked for already, which were judged by the former rights.
        self.defer(std::future::ready(identity), |identity, client, ctx| client.withdraw_forbidden(identity, ctx));
    }

    fn withdraw_forbidden(&mut self, identity: Identity, ctx: &mut Context<Self>) {
        let node = Arc::clone(self.local.node());
        let filters = look(&node, &identity, &self.principal);
        if filters.is_empty() {
            return;
        }
        if self.withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.0.len() > WITHDRAWN_MAX) {
            let reason = "too many subscriptions were taken away";
            self.machine.disconnect(ReasonCode::QuotaExceeded, reason, true, self.now, &mut self.effects);
            return self.run_effects(ctx);
        }
        self.take_away(filters.clone());
        let withdrawn = withdraw(node, identity, self.connection, filters);
        self.defer_first(withdrawn, |withdrawn, client, ctx| {
            if withdrawn.is_err() {
                client.unavailable();
            }
            client.part_with_assigned();
            client.run_effects(ctx);
        });
    }

    /// Takes a delivery out that only subscriptions brought which are gone for lack of rights; gives the others back.
    pub(super) fn allowed(&mut self, delivery: Delivery) -> Option<Delivery> {
        if matches!(delivery.source, Source::Queue { .. }) && self.part_with_assigned() {
            return None;
        }
        let (Some(withdrawn), Some(identity)) = (&self.withdrawn, &self.identity) else { return Some(delivery) };
        if let Source::Share { group, seq } = &delivery.source {
            if !withdrawn.has_group(group) {
                return Some(delivery);
            }
            if delivery.qos != QoS::AtMostOnce {
                shared_subscription::refuse(self.local.node(), group, *seq, self.connection);
                if let Some(rare) = self.rare.existing() {
                    rare.shared.retain(|(known, at)| at != seq || known != group);
                }
                return None;
            }
        } else {
            let topic = &delivery.message.topic;
            if !withdrawn.matches(topic) || self.still_subscribed(withdrawn, identity.client(), topic) {
                return Some(delivery);
            }
        }
        if let Source::Queue { seq } = delivery.source {
            self.sent_seq = self.sent_seq.max(seq);
        }
        self.not_delivered(&delivery, QueueStep::Dropped(DropReason::ExtensionPreventedOutbound));
        None
    }

    /// Sends the client off where a group that it is no member of any more has chosen it for messages that were not sent yet: the group has them
    /// back at the end of the connection, and nothing less does that.
    pub(super) fn part_with_assigned(&mut self) -> bool {
        let (Some(withdrawn), Some(identity)) = (&self.withdrawn, &self.identity) else { return false };
        let unsent =
            |state: &State| state.assigned_after(identity.client(), self.sent_seq).any(|group| withdrawn.has_group(group));
        let parts = self.local.node().cluster().and_then(|cluster| cluster.read(identity.shard, unsent)).unwrap_or_default();
        if parts {
            let reason = "a shared subscription is not allowed any more";
            self.machine.disconnect(ReasonCode::ServerBusy, reason, true, self.now, &mut self.effects);
        }
        parts
    }

    /// Whether a subscription that is not withdrawn matches; the routing table may still have those that are.
    fn still_subscribed(&self, withdrawn: &Withdrawn, client: &ByteString, topic: &str) -> bool {
        let subscriptions = self.local.node().routing.subscriptions_of(client);
        let mut subscriptions = subscriptions.iter().map(|(filter, ..)| filter).filter(|filter| filter.share.is_none());
        subscriptions.any(|filter| topic_filter::matches(&filter.filter, topic) && !withdrawn.0.contains(filter))
    }
}
