//! The one place where the actors read clocks.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::session::machine::Now;

static ORIGIN: OnceLock<Instant> = OnceLock::new();

/// Monotonic ms since the first call, and wall clock ms since the epoch.
pub fn now() -> Now {
    let origin = ORIGIN.get_or_init(Instant::now);
    Now { mono_ms: millis(origin.elapsed().as_millis()), wall_ms: wall_ms() }
}

/// Wall clock, ms since the epoch.
pub fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| millis(d.as_millis()))
}

fn millis(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
