//! The figures of a cluster of three on this machine: fail-over after a kill and after silence, a restart of all nodes, replicated
//! acknowledgements, and that leadership is calm under load.
//!
//! Builds nothing but itself and `target/release/troupemq`, which cargo builds with it. `settings.rs` lists the environment variables. With
//! `TROUPEMQ_BENCH_BASE` a second program, of an earlier commit say, takes turns with the one under test. Every draw comes from the seed
//! that the head of the report names, with the command that runs the same again.

// A program for people, like a test: it prints, and a broken assumption may end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// What is measured lasts a stated time, and a foreign process is ready when it answers: it gives no condition to wait on.
#![allow(clippy::disallowed_methods)]

mod calm;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod failover;
mod replicated;
mod restart;
mod settings;

use std::process::ExitCode;
use std::time::Instant;

use common::Failure;
use common::report::Report;
use settings::Settings;

/// Measures with all programs, and reports.
type Scene = fn(&Settings, &mut Report) -> Result<(), Failure>;

fn main() -> ExitCode {
    common::exit("cluster", || run(&Settings::read()?))
}

/// False where a goal was missed.
fn run(settings: &Settings) -> Result<bool, Failure> {
    let began = Instant::now();
    let mut report = Report::new(&settings.command(), settings.quick);
    let scenes: [(&str, Scene); 5] = [
        ("kill", failover::kill),
        ("silence", failover::silence),
        ("restart", restart::run),
        ("replicated", replicated::run),
        ("calm", calm::run),
    ];
    for (name, scene) in scenes.into_iter().filter(|(name, _)| settings.scenes.wants(name)) {
        eprintln!("{name} ({} s)", began.elapsed().as_secs());
        scene(settings, &mut report).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(report.finish(began.elapsed()))
}
