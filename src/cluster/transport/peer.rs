//! What is known of one peer, and the two links that are dialed to it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::cluster::clock::monotonic_ms;
use crate::replica::NodeId;

use super::PeerView;
use super::frame::Class;
use super::hello::Introduction;
use super::link::Link;

/// Addresses remembered for one peer; the oldest goes that did not work last.
const ADDRESSES_MAX: usize = 4;

/// A connection for messages among those that a peer dialed: its process (`Introduction::process`), and the number it says.
pub(super) type Turn = (u64, u64);

pub(super) struct Peer {
    pub id: NodeId,
    pub name: String,
    /// The one that worked last comes first.
    addresses: Mutex<Vec<String>>,
    who: Mutex<Option<Introduction>>,
    heard_ms: AtomicU64,
    known_since_ms: u64,
    /// Ends its links for good.
    pub cancel: CancellationToken,
    /// Connections it has dialed to this node.
    pub dialed_in: AtomicUsize,
    /// The newest connection that brought messages.
    turn: Mutex<Option<Turn>>,
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
            known_since_ms: monotonic_ms(),
            cancel: CancellationToken::new(),
            dialed_in: AtomicUsize::new(0),
            turn: Mutex::default(),
            consensus: Link::default(),
            messages: Link::default(),
        }
    }

    pub fn add_address(&self, address: &str) {
        let mut addresses = self.addresses.lock();
        if !addresses.iter().any(|known| known == address) {
            addresses.push(address.to_owned());
            if addresses.len() > ADDRESSES_MAX {
                addresses.remove(1);
            }
        }
    }

    /// The address for the n-th attempt, and whether it is the one that worked last.
    pub fn address(&self, attempt: usize) -> (String, bool) {
        let addresses = self.addresses.lock();
        let at = attempt % addresses.len();
        (addresses[at].clone(), at == 0)
    }

    pub fn address_worked(&self, address: &str) {
        let mut addresses = self.addresses.lock();
        if let Some(at) = addresses.iter().position(|known| known == address) {
            addresses[..=at].rotate_right(1);
        }
    }

    pub fn link(&self, class: Class) -> &Link {
        match class {
            Class::Consensus => &self.consensus,
            Class::Messages | Class::Relay => &self.messages,
        }
    }

    pub fn met(&self, who: Introduction) {
        *self.who.lock() = Some(who);
        self.heard();
    }

    /// A connection begins to bring messages; false where a newer one did before.
    pub fn takes_over(&self, turn: Turn) -> bool {
        let mut newest = self.turn.lock();
        let is_newer = match *newest {
            Some((process, number)) if process == turn.0 => turn.1 > number,
            // Of two processes the one that was met last is the one that lives.
            _ => self.who().is_none_or(|who| who.process == turn.0),
        };
        if is_newer {
            *newest = Some(turn);
        }
        is_newer
    }

    /// Whether no newer connection brought messages.
    pub fn is_newest(&self, turn: Turn) -> bool {
        *self.turn.lock() == Some(turn)
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

    /// Nothing connects it with this node, and nothing was heard of it for so long.
    pub fn is_gone(&self, for_ms: u64) -> bool {
        let connected = self.messages.is_up() || self.consensus.is_up() || self.dialed_in.load(Ordering::Relaxed) > 0;
        let since_ms = self.heard_ms.load(Ordering::Relaxed).max(self.known_since_ms);
        !connected && monotonic_ms().saturating_sub(since_ms) > for_ms
    }

    /// A process of it is there and answers: it was heard within `ms`.
    pub fn is_there(&self, ms: u64) -> bool {
        let connected = self.messages.is_up() || self.consensus.is_up() || self.dialed_in.load(Ordering::Relaxed) > 0;
        connected && self.silent_ms().is_some_and(|silent| silent < ms)
    }

    pub fn view(&self) -> PeerView {
        let who = self.who();
        PeerView {
            id: self.id,
            name: self.name.clone(),
            // Its own word is good for others too; a seed's address may be good for this node only.
            address: who.as_ref().map_or_else(|| self.address(0).0, |who| who.address.clone()),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_worked_is_tried_first_and_kept() {
        let peer = Peer::new(1, "a", "a:0");
        (1..3).for_each(|i| peer.add_address(&format!("a:{i}")));
        peer.address_worked("a:2");
        assert_eq!(peer.address(0), ("a:2".to_owned(), true));
        assert_eq!(peer.address(1), ("a:0".to_owned(), false));
        assert_eq!(peer.address(3), ("a:2".to_owned(), true));
        (3..9).for_each(|i| peer.add_address(&format!("a:{i}")));
        assert_eq!(peer.addresses.lock().len(), ADDRESSES_MAX);
        assert_eq!(peer.address(0).0, "a:2");
        assert_eq!(peer.address(ADDRESSES_MAX - 1).0, "a:8");
    }

    #[test]
    fn a_connection_that_another_followed_is_over() {
        let peer = Peer::new(1, "a", "a:0");
        assert!(peer.takes_over((10, 2)) && peer.is_newest((10, 2)));
        assert!(!peer.takes_over((10, 1)), "it was dialed before");
        assert!(peer.takes_over((10, 3)) && !peer.is_newest((10, 2)));
        let who = Introduction {
            name: "a".to_owned(),
            address: "a:0".to_owned(),
            incarnation: 7,
            cluster_id: None,
            process: 9,
            shards: 1,
            version: 3,
        };
        peer.met(who);
        assert!(peer.takes_over((9, 1)) && !peer.is_newest((10, 3)), "the process began anew");
        assert!(!peer.takes_over((10, 4)), "that process has ended");
    }
}
