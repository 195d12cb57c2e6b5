//! The sessions by client id.
//!
//! The one place of this room that hashes: a command finds its session among very many, and comparing names down an ordered tree took
//! nearly half the time of applying it. Hashing is seeded at random, since clients choose the names, so the order of the table must never
//! show: whoever goes through all sessions gets them sorted.

use std::collections::{HashMap, HashSet};

use ahash::RandomState;
use bytestring::ByteString;

use super::ids::ConnectionRef;
use super::session::Session;

/// Names of clients, without order.
pub(super) type ClientSet = HashSet<ByteString, RandomState>;

/// All sessions of a shard.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Sessions {
    by_client: HashMap<ByteString, Box<Session>, RandomState>,
}

impl Sessions {
    pub(super) fn get(&self, client: &str) -> Option<&Session> {
        self.by_client.get(client).map(|session| &**session)
    }

    pub(super) fn get_mut(&mut self, client: &str) -> Option<&mut Session> {
        self.by_client.get_mut(client).map(|session| &mut **session)
    }

    /// The client's session, if `connection` is its current one.
    pub(super) fn current_mut(&mut self, client: &str, connection: ConnectionRef) -> Option<&mut Session> {
        self.get_mut(client).filter(|session| session.connection == Some(connection))
    }

    pub(super) fn insert(&mut self, session: Session) {
        self.by_client.insert(session.client.clone(), Box::new(session));
    }

    pub(super) fn remove(&mut self, client: &str) -> Option<Box<Session>> {
        self.by_client.remove(client)
    }

    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// All sessions in client id order.
    pub(super) fn in_order(&self) -> Vec<&Session> {
        let mut sessions: Vec<&Session> = self.by_client.values().map(|session| &**session).collect();
        sessions.sort_unstable_by(|one, other| one.client.cmp(&other.client));
        sessions
    }

    /// All sessions in no order: for what does not depend on it.
    pub(super) fn in_no_order(&self) -> impl Iterator<Item = &Session> {
        self.by_client.values().map(|session| &**session)
    }

    /// Visits all sessions in no order: for what does not depend on it.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Session)) {
        self.by_client.values_mut().for_each(|session| visit(session));
    }
}
