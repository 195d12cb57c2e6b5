//! Reads a history and tells what the broker must not have done. Each rule is a file; [`judge`] asks them all.
//!
//! A client that was not told the outcome of something (a CONNECT without CONNACK, a PUBLISH without acknowledgement) proves nothing
//! either way: it may have happened once, and no more than once.

mod delivery;
mod identifiers;
#[cfg(test)]
mod judge_test;
mod life;
mod lifecycle;
mod order;
mod sessions;
mod wills;

use std::fmt;

use super::history::Record;
pub use life::Lives;
pub use lifecycle::ATTEMPT;

/// A broken promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    pub rule: Rule,
    pub what: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// What was acknowledged has not come (yet).
    Lost,
    Twice,
    Order,
    PacketIdentifier,
    Dup,
    SessionPresent,
    OneConnection,
    Lifecycle,
    /// An event that has not come (yet).
    LifecycleMissing,
    Will,
    /// A Will that has not come (yet).
    WillMissing,
}

impl Rule {
    /// Time may still cure it.
    pub fn is_missing(self) -> bool {
        matches!(self, Self::Lost | Self::LifecycleMissing | Self::WillMissing)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}

/// What the clients of a history are there for.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Reads `$client-events/#` and `wills/#` with QoS 2 and a session that lasts.
    pub watcher: Option<&'static str>,
    /// What is sent on a connection later than this after it was taken over, on another node too, is not answered.
    pub stale_connection_ms: u64,
}

/// All that is wrong.
pub fn judge(records: &[Record], setting: &Setting) -> Vec<Fault> {
    let lives = Lives::of(records);
    let mut faults = Vec::new();
    delivery::check(&lives, &mut faults);
    order::check(&lives, &mut faults);
    identifiers::check(&lives, &mut faults);
    sessions::check(&lives, setting, &mut faults);
    if let Some(watcher) = setting.watcher {
        lifecycle::check(&lives, watcher, &mut faults);
        wills::check(&lives, watcher, &mut faults);
    }
    faults
}
