//! Where a client is, as its subscriptions see it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytestring::ByteString;
use parking_lot::Mutex;

/// Where a client is, shared by all its subscriptions and swapped as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteState {
    /// (node, incarnation, connection) of its connection, while there is one. Numbers, since routing does not know `replica`.
    pub connection: Option<(u64, u64, u64)>,
    /// Whether the session outlives its connection: then QoS 1/2 goes to its replicated queue.
    pub persistent: bool,
}

/// A client of the cluster as the routing table knows it. One object for the life of a session: a route kept from an earlier match
/// shows the empty state once the session is gone.
#[derive(Debug)]
pub struct ClientRoute {
    pub client: ByteString,
    pub shard: u16,
    state: Mutex<Packed>,
}

/// A `RouteState` in a word less: there are as many as clients.
#[derive(Debug, Clone, Copy)]
struct Packed {
    connection: (u64, u64, u64),
    is_connected: bool,
    persistent: bool,
}

impl From<RouteState> for Packed {
    fn from(state: RouteState) -> Self {
        let RouteState { connection, persistent } = state;
        Self { connection: connection.unwrap_or_default(), is_connected: connection.is_some(), persistent }
    }
}

impl ClientRoute {
    pub fn new(client: ByteString, shard: u16, state: RouteState) -> Self {
        Self { client, shard, state: Mutex::new(state.into()) }
    }

    pub fn state(&self) -> RouteState {
        let Packed { connection, is_connected, persistent } = *self.state.lock();
        RouteState { connection: is_connected.then_some(connection), persistent }
    }

    pub(super) fn set_state(&self, state: RouteState) {
        *self.state.lock() = state.into();
    }
}

/// A route compared by identity: a client has one route object at a time, so no strings need comparing.
#[derive(Debug, Clone)]
pub(super) struct RouteKey(pub(super) Arc<ClientRoute>);

impl RouteKey {
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl PartialEq for RouteKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for RouteKey {}

impl Hash for RouteKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}
