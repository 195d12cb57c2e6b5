//! The clocks of this room: wall clock only to stamp, monotonic milliseconds for durations.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Wall clock, milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the one place where it is read")]
pub fn wall_ms() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(ms) = super::simulated::wall_ms() {
        return ms;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since some moment early in this process; at least 1, so 0 can mean never.
pub fn monotonic_ms() -> u64 {
    #[cfg(any(test, feature = "sim"))]
    if let Some(ms) = super::simulated::monotonic_ms() {
        return ms;
    }
    static START: OnceLock<Instant> = OnceLock::new();
    let since = START.get_or_init(Instant::now).elapsed();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).saturating_add(1)
}
