//! Time as the actors hand it to the pure cores.

use std::sync::OnceLock;
use std::time::Instant;

use crate::session::machine::Now;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Monotonic ms since the first call, and wall clock ms since the epoch.
pub fn now() -> Now {
    let origin = ORIGIN.get_or_init(Instant::now);
    Now { mono_ms: millis(origin.elapsed().as_millis()), wall_ms: wall_ms() }
}

pub use crate::cluster::clock::wall_ms;

fn millis(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
