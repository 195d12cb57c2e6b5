//! What the add-on topics cost and how soon they tell: a connect storm with `$client-events` off and on, queues that overflow with
//! `$dropped` off and on, and the delay from expiry to `$expired` with many queued messages of mixed expiry.
//!
//! Builds nothing but itself and `target/release/troupemq`, which cargo builds with it. `settings.rs` lists the environment variables. What
//! is compared is measured in turns, in one run. Ends with 1 where a goal is missed.

// A program for people, like a test: it prints, and a broken assumption may end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// What is measured lasts a stated time, and a foreign process is ready when it answers: it gives no condition to wait on.
#![allow(clippy::disallowed_methods)]

mod analyst;
#[path = "../cluster/client.rs"]
#[allow(dead_code)]
mod client;
#[path = "../common/mod.rs"]
mod common;
mod dropped;
mod expired;
mod publishers;
mod settings;
mod storm;

use std::process::ExitCode;
use std::time::Instant;

use common::Failure;
use common::report::Report;
use settings::Settings;

/// Measures with so many nodes, and reports.
type Scene = fn(&Settings, usize, &mut Report) -> Result<(), Failure>;

fn main() -> ExitCode {
    common::exit("addons", || run(&Settings::read()?))
}

/// False where a goal was missed.
fn run(settings: &Settings) -> Result<bool, Failure> {
    let began = Instant::now();
    let mut report = Report::new(&settings.command(), settings.quick);
    let scenes: [(&str, Scene); 3] = [("storm", storm::run), ("dropped", dropped::run), ("expired", expired::run)];
    for nodes in settings.nodes.iter().copied() {
        for (name, scene) in scenes.into_iter().filter(|(name, _)| settings.scenes.wants(name)) {
            eprintln!("{name}, {nodes} node(s) ({} s)", began.elapsed().as_secs());
            scene(settings, nodes, &mut report).map_err(|error| format!("{name}: {error}"))?;
        }
    }
    Ok(report.finish(began.elapsed()))
}
