//! What is known of one peer, and the two links that are dialed to it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cluster::clock::monotonic_ms;
use crate::replica::NodeId;

use super::PeerView;
use super::frame::Class;
use super::hello::Introduction;
use super::link::Link;

/// Addresses remembered for one peer; the least recently learned goes.
const ADDRESSES_MAX: usize = 4;

pub(super) struct Peer {
    pub id: NodeId,
    pub name: String,
    /// Newest first.
    addresses: Mutex<Vec<String>>,
    who: Mutex<Option<Introduction>>,
    heard_ms: AtomicU64,
    /// Connections it has dialed to this node.
    pub dialed_in: AtomicUsize,
    pub consensus: Link,
    pub messages: Link,
}

impl Peer {
    pub fn new(id: NodeId, name: &str, address: &str) -> Self {
        Self {
            id,
            name: name.to_owned(),
            addresses: Mutex::new(vec![address.to_owned()]),
            who: Mutex::default(),
            heard_ms: AtomicU64::new(0),
            dialed_in: AtomicUsize::new(0),
            consensus: Link::default(),
            messages: Link::default(),
        }
    }

    pub fn add_address(&self, address: &str) {
        let mut addresses = self.addresses.lock();
        if !addresses.iter().any(|known| known == address) {
            addresses.insert(0, address.to_owned());
            addresses.truncate(ADDRESSES_MAX);
        }
    }

    /// The address for the n-th attempt.
    pub fn address(&self, attempt: usize) -> String {
        let addresses = self.addresses.lock();
        addresses[attempt % addresses.len()].clone()
    }

    pub fn link(&self, class: Class) -> &Link {
        match class {
            Class::Consensus => &self.consensus,
            Class::Messages => &self.messages,
        }
    }

    pub fn met(&self, who: Introduction) {
        *self.who.lock() = Some(who);
        self.heard();
    }

    pub fn who(&self) -> Option<Introduction> {
        self.who.lock().clone()
    }

    pub fn heard(&self) {
        self.heard_ms.store(monotonic_ms(), Ordering::Relaxed);
    }

    pub fn silent_ms(&self) -> Option<u64> {
        match self.heard_ms.load(Ordering::Relaxed) {
            0 => None,
            heard => Some(monotonic_ms().saturating_sub(heard)),
        }
    }

    pub fn view(&self) -> PeerView {
        let who = self.who();
        PeerView {
            id: self.id,
            name: self.name.clone(),
            address: self.address(0),
            incarnation: who.as_ref().map(|who| who.incarnation),
            cluster_id: who.and_then(|who| who.cluster_id),
            connected: self.messages.is_up(),
            refused: !self.messages.is_up()
                && !self.consensus.is_up()
                && self.dialed_in.load(Ordering::Relaxed) == 0
                && (self.messages.is_refused() || self.consensus.is_refused()),
            silent_ms: self.silent_ms(),
        }
    }
}
