//! The routing table: skeleton of its interface.

use std::sync::Arc;

use bytestring::ByteString;

use crate::mqtt::packet::SubscriptionOptions;
use crate::mqtt::{GroupId, QoS, SubscriptionFilter, SubscriptionIds};

/// Where a client is, shared by all its subscriptions and swapped as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteState {
    /// (node, incarnation, connection) of its connection, while there is one. Numbers, since routing does not know `replica`.
    pub connection: Option<(u64, u64, u64)>,
    /// Whether the session outlives its connection: then QoS 1/2 goes to its replicated queue.
    pub persistent: bool,
}

/// A client of the cluster as the routing table knows it.
#[derive(Debug)]
pub struct ClientRoute {
    pub client: ByteString,
    pub shard: u16,
}

impl ClientRoute {
    pub fn state(&self) -> RouteState {
        RouteState::default()
    }
}

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

/// A member of a shared subscription.
#[derive(Debug, Clone)]
pub struct Member {
    pub route: Arc<ClientRoute>,
    pub options: SubscriptionOptions,
    pub identifier: Option<u32>,
}

/// All subscriptions of the cluster.
#[derive(Debug, Default)]
pub struct Table {}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a subscription [MQTT-3.8.4-3].
    pub fn subscribe(
        &self,
        _shard: u16,
        _client: &ByteString,
        _filter: &SubscriptionFilter,
        _options: SubscriptionOptions,
        _identifier: Option<u32>,
    ) {
    }

    pub fn unsubscribe(&self, _client: &ByteString, _filter: &SubscriptionFilter) {}

    /// Notes where the client is (creates it where unknown).
    pub fn set_state(&self, _shard: u16, _client: &ByteString, _state: RouteState) {}

    /// The session is gone with all its subscriptions.
    pub fn remove_client(&self, _client: &ByteString) {}

    /// Forgets everything of one shard, before it is filled again from a snapshot.
    pub fn clear_shard(&self, _shard: u16) {}

    pub fn client(&self, _client: &str) -> Option<Arc<ClientRoute>> {
        None
    }

    /// Matches a topic. `publisher` leaves out that client's own No Local subscriptions [MQTT-3.8.3-3].
    pub fn matches(&self, _topic: &str, _publisher: Option<&ByteString>) -> Matches {
        Matches::default()
    }

    /// Members of a shared subscription, all of them, connected or not, in a stable order.
    pub fn members(&self, _group: &GroupId) -> Vec<Member> {
        Vec::new()
    }

    pub fn subscription_count(&self) -> usize {
        0
    }
}
