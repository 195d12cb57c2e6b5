//! The deterministic simulator: the broker as it is, on simulated machines, in one thread and in simulated time, against an oracle of what
//! clients were told.
//!
//! A node is a tokio runtime of its own with one thread and a clock that stands still between its turns. On it run the Client, Queue,
//! SharedSubscription, Hub and OutboxTaker actors, the cluster room with openraft, its log and state machine adapters, the peer links with
//! their frames, founding, joining, failure detection and submission: all of the program but listeners, HTTP, the files of `storage`, and
//! TCP. In their place are `disk` (what is not synced may be lost), `network` (streams that stall, lag and break) and `pipe`.
//!
//! All chance comes from the seed, so a seed gives the same run, event for event; `trace` holds it as a hash.

mod client;
mod coverage;
mod disk;
mod faults;
mod network;
mod node;
mod oracle;
mod pipe;
mod trace;
mod world;

use std::fmt;

use crate::config::{self, Settings};
use crate::plant::Plant;

pub use coverage::Coverage;
pub use world::run;

/// How a seed is simulated.
#[derive(Debug, Clone)]
pub struct Options {
    pub nodes: usize,
    /// Things go wrong for so long, simulated; what comes before and after takes a minute or so.
    pub chaos_ms: u64,
    pub plant: Option<Plant>,
    /// Every event goes to standard error.
    pub aloud: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 3, chaos_ms: 120_000, plant: None, aloud: false }
    }
}

/// What came of a seed.
pub struct Outcome {
    pub seed: u64,
    pub failure: Option<String>,
    /// Of every event of the run.
    pub hash: u64,
    pub simulated_ms: u64,
    pub coverage: Coverage,
    /// The last events.
    pub trace: Vec<String>,
}

/// A failure with what led to it, and how to see it again.
pub struct Report<'a> {
    pub outcome: &'a Outcome,
    pub options: &'a Options,
    pub lines: usize,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(failure) = &self.outcome.failure else { return Ok(()) };
        for line in self.outcome.trace.iter().skip(self.outcome.trace.len().saturating_sub(self.lines)) {
            writeln!(f, "{line}")?;
        }
        let Options { nodes, chaos_ms, plant, .. } = self.options;
        writeln!(f, "seed {} fails after {} s: {failure}", self.outcome.seed, self.outcome.simulated_ms / 1000)?;
        write!(f, "again: make sim ARGS='--replay {} --nodes {nodes} --chaos-s {}", self.outcome.seed, chaos_ms / 1000)?;
        match plant {
            Some(plant) => writeln!(f, " --plant {plant:?}'"),
            None => writeln!(f, "'"),
        }
    }
}

/// The built-in configuration, with all add-ons.
fn settings() -> Settings {
    let mut settings = config::embedded_default().map(|loaded| loaded.settings).expect("the built-in configuration");
    let lifecycle = &mut settings.addons.lifecycle;
    (lifecycle.enabled, lifecycle.connected, lifecycle.client, lifecycle.server) = (true, true, true, true);
    (lifecycle.session_taken_over, lifecycle.unspecified) = (true, true);
    settings
}

#[cfg(test)]
mod sim_test;
