//! What a simulated node is given in the place of the machine's clocks, chance, threads and sockets. Everything of a simulated node runs on one
//! thread; `sim` puts this there before each turn of a node and takes it away afterwards.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::transport::socket::{Listener, Stream};

/// Entries after which a snapshot is due, and entries kept behind it: few, so that snapshots are sent in minutes.
pub(super) const LOG_ENTRIES: (u64, u64) = (200, 50);

/// The network as a node sees it.
pub trait Net {
    /// Begins to listen at an address of the node whose turn it is.
    fn listen(&self, address: SocketAddr) -> io::Result<Listener>;
    /// Connects from the node whose turn it is.
    fn connect(&self, address: &str) -> Box<dyn Future<Output = io::Result<Stream>> + Send + Unpin>;
}

/// A node while its turn lasts.
pub struct Turn {
    /// When its process started, by its own monotonic clock.
    pub origin: Instant,
    /// Its wall clock then, ms since 1970; a jump changes it.
    pub wall_ms_at_origin: u64,
    pub rng: StdRng,
    pub net: Rc<dyn Net>,
}

impl Turn {
    pub fn new(origin: Instant, wall_ms: u64, seed: u64, net: Rc<dyn Net>) -> Self {
        Self { origin, wall_ms_at_origin: wall_ms, rng: StdRng::seed_from_u64(seed), net }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Puts a node's turn in place, or none; returns the one before.
pub fn swap(turn: Option<Turn>) -> Option<Turn> {
    TURN.replace(turn)
}

pub fn is_on() -> bool {
    TURN.with_borrow(Option::is_some)
}

pub(super) fn wall_ms() -> Option<u64> {
    TURN.with_borrow(|turn| turn.as_ref().map(|turn| turn.wall_ms_at_origin.saturating_add(turn.elapsed_ms())))
}

/// At least 1, as `clock::monotonic_ms` promises.
pub(super) fn monotonic_ms() -> Option<u64> {
    TURN.with_borrow(|turn| turn.as_ref().map(|turn| turn.elapsed_ms() + 1))
}

pub(super) fn with_rng<T>(draw: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    TURN.with_borrow_mut(|turn| turn.as_mut().map(|turn| draw(&mut turn.rng)))
}

pub(super) fn net() -> Option<Rc<dyn Net>> {
    TURN.with_borrow(|turn| turn.as_ref().map(|turn| Rc::clone(&turn.net)))
}
