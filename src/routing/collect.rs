//! From the filters that matched to one copy for each client.

use std::collections::HashMap;
use std::sync::Arc;

use ahash::RandomState;
use bytestring::ByteString;
use smallvec::SmallVec;

use super::filter_node::{FilterNode, Subscriber};
use super::route::{ClientRoute, RouteKey};
use crate::mqtt::{GroupId, QoS, SubscriptionIds};

/// One client that is to receive one copy, whatever number of its subscriptions overlap: the highest QoS, all identifiers.
#[derive(Debug, Clone)]
pub struct ClientMatch {
    pub route: Arc<ClientRoute>,
    pub qos: QoS,
    pub retain_as_published: bool,
    pub subscription_ids: SubscriptionIds,
}

/// A shared subscription that is to receive one copy.
#[derive(Debug, Clone)]
pub struct GroupMatch {
    pub group: GroupId,
    /// Highest QoS granted to any member.
    pub qos: QoS,
}

/// The result of a match.
#[derive(Debug, Clone, Default)]
pub struct Matches {
    pub clients: Vec<ClientMatch>,
    pub groups: Vec<GroupMatch>,
    /// Whether any filter matched, counted before No Local: a message without is dead (spec/hivemq.md 4.4).
    pub any: bool,
}

/// Filters that match a topic; eight fit without allocation.
pub(super) type MatchedNodes<'a> = SmallVec<[&'a FilterNode; 8]>;

/// Makes one `ClientMatch` of all subscriptions of a client. Nodes are never empty, so one of them is a match.
///
/// Small nodes go first and only they are indexed: the one large node of a popular topic costs a look into a small index for each
/// subscriber, and nothing where no other filter matched.
pub(super) fn collect(mut nodes: MatchedNodes<'_>, publisher: Option<&ByteString>) -> Matches {
    let mut matches = Matches { any: !nodes.is_empty(), ..Matches::default() };
    for group in nodes.iter().flat_map(|node| node.groups()) {
        matches.groups.push(GroupMatch { group: group.id().clone(), qos: group.highest_qos() });
    }
    nodes.retain(|node| node.subscriber_count() > 0);
    nodes.sort_unstable_by_key(|node| node.subscriber_count());
    let Some((largest, smaller)) = nodes.split_last() else { return matches };

    let wanted = |subscriber: &&Subscriber| {
        // [MQTT-3.8.3-3]
        !subscriber.options.no_local || publisher.is_none_or(|publisher| *publisher != subscriber.route.0.client)
    };
    let clients = &mut matches.clients;
    clients.reserve_exact(smaller.iter().map(|node| node.subscriber_count()).sum::<usize>() + largest.subscriber_count());
    let mut index = Index::default();
    for subscriber in smaller.iter().flat_map(|node| node.subscribers()).filter(wanted) {
        match index.find(clients, &subscriber.route) {
            Some(known) => known.merge(subscriber),
            None => {
                clients.push(ClientMatch::new(subscriber));
                index.extend(clients);
            }
        }
    }
    for subscriber in largest.subscribers().filter(wanted) {
        match index.find(clients, &subscriber.route) {
            Some(known) => known.merge(subscriber),
            None => clients.push(ClientMatch::new(subscriber)),
        }
    }
    matches
}

impl ClientMatch {
    fn new(subscriber: &Subscriber) -> Self {
        Self {
            route: Arc::clone(&subscriber.route.0),
            qos: subscriber.options.qos,
            retain_as_published: subscriber.options.retain_as_published,
            subscription_ids: subscriber.identifier.iter().map(|id| id.get()).collect(),
        }
    }

    /// Adds an overlapping subscription: the maximum QoS [MQTT-3.3.4-2] and all identifiers [MQTT-3.3.4-4], one that several
    /// subscriptions share as often as they do (MQTT 5 section 3.3.4).
    fn merge(&mut self, subscriber: &Subscriber) {
        self.qos = self.qos.max(subscriber.options.qos);
        self.retain_as_published |= subscriber.options.retain_as_published;
        self.subscription_ids.extend(subscriber.identifier.map(|id| id.get()));
    }
}

/// Finds a client among the first `indexed` matches: by search while they are few, then by hash.
#[derive(Default)]
struct Index {
    indexed: usize,
    by_address: HashMap<usize, usize, RandomState>,
}

impl Index {
    const SEARCHED_MAX: usize = 8;

    fn find<'a>(&self, clients: &'a mut [ClientMatch], route: &RouteKey) -> Option<&'a mut ClientMatch> {
        if self.indexed <= Self::SEARCHED_MAX {
            return clients.get_mut(..self.indexed)?.iter_mut().find(|known| Arc::ptr_eq(&known.route, &route.0));
        }
        clients.get_mut(*self.by_address.get(&route.address())?)
    }

    /// Takes in the last of `clients`.
    fn extend(&mut self, clients: &[ClientMatch]) {
        self.indexed = clients.len();
        if self.indexed <= Self::SEARCHED_MAX {
            return;
        }
        let known = self.by_address.len();
        for (at, client) in clients.iter().enumerate().skip(known) {
            self.by_address.insert(Arc::as_ptr(&client.route).addr(), at);
        }
    }
}
