//! Time as the actors hand it to the pure cores.

use crate::cluster::clock::monotonic_ms;
pub use crate::cluster::clock::wall_ms;
use crate::session::machine::Now;

/// Monotonic ms since some moment early in this process, and wall clock ms since the epoch.
pub fn now() -> Now {
    Now { mono_ms: monotonic_ms(), wall_ms: wall_ms() }
}
