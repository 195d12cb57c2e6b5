//! The sessions by client id.
//!
//! The one place of this room that hashes: a command finds its session among very many, and comparing names down an ordered tree took
//! nearly half the time of applying it. Hashing is seeded at random, since clients choose the names, so the order of the table must never
//! show: whoever goes through all sessions gets them sorted. The id is in the session alone.

use ahash::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::ids::ConnectionRef;
use super::session::Session;

/// All sessions of a shard.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    hasher: RandomState,
    by_client: HashTable<Box<Session>>,
}

impl PartialEq for Sessions {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.in_no_order().all(|session| other.get(&session.client) == Some(session))
    }
}

impl Sessions {
    pub(super) fn get(&self, client: &str) -> Option<&Session> {
        self.by_client.find(self.hasher.hash_one(client), |session| session.client == client).map(|session| &**session)
    }

    pub(super) fn get_mut(&mut self, client: &str) -> Option<&mut Session> {
        let hash = self.hasher.hash_one(client);
        self.by_client.find_mut(hash, |session| session.client == client).map(|session| &mut **session)
    }

    /// The client's session, if `connection` is its current one.
    pub(super) fn current_mut(&mut self, client: &str, connection: ConnectionRef) -> Option<&mut Session> {
        self.get_mut(client).filter(|session| session.connection == Some(connection))
    }

    /// Takes the place of a session that the client has.
    pub(super) fn insert(&mut self, session: Session) {
        let hash = self.hasher.hash_one(&*session.client);
        let place =
            self.by_client.entry(hash, |known| known.client == session.client, |known| self.hasher.hash_one(&*known.client));
        match place {
            Entry::Occupied(mut known) => **known.get_mut() = session,
            Entry::Vacant(place) => {
                place.insert(Box::new(session));
            }
        }
    }

    pub(super) fn remove(&mut self, client: &str) -> Option<Box<Session>> {
        let hash = self.hasher.hash_one(client);
        let known = self.by_client.find_entry(hash, |session| session.client == client).ok()?;
        Some(known.remove().0)
    }

    pub(super) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// All sessions in client id order.
    pub(super) fn in_order(&self) -> Vec<&Session> {
        let mut sessions: Vec<&Session> = self.in_no_order().collect();
        sessions.sort_unstable_by(|one, other| one.client.cmp(&other.client));
        sessions
    }

    /// All sessions in no order: for what does not depend on it.
    pub(super) fn in_no_order(&self) -> impl Iterator<Item = &Session> {
        self.by_client.iter().map(|session| &**session)
    }

    /// Visits all sessions in no order: for what does not depend on it.
    pub(super) fn for_each_mut(&mut self, mut visit: impl FnMut(&mut Session)) {
        self.by_client.iter_mut().for_each(|session| visit(session));
    }
}
