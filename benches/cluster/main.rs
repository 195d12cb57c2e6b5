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
mod failover;
#[path = "../side_by_side/machine.rs"]
mod machine;
mod nodes;
#[path = "../side_by_side/proc.rs"]
#[allow(dead_code)]
mod proc;
mod replicated;
mod report;
mod restart;
mod settings;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use report::Report;
use settings::Settings;

/// What went wrong, in words for the person who started the bench.
type Failure = Box<dyn Error + Send + Sync>;

/// Measures with all programs, and reports.
type Scene = fn(&Settings, &mut Report) -> Result<(), Failure>;

const EXIT_MISSED: u8 = 1;
const EXIT_CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    nodes::kill_all_on_signal();
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(error) => return cannot_run(&error),
    };
    match run(&settings) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_MISSED),
        Err(error) => cannot_run(&error),
    }
}

/// False where a goal was missed.
fn run(settings: &Settings) -> Result<bool, Failure> {
    let began = Instant::now();
    let mut report = Report::new(settings);
    let scenes: [(&str, Scene); 5] = [
        ("kill", failover::kill),
        ("silence", failover::silence),
        ("restart", restart::run),
        ("replicated", replicated::run),
        ("calm", calm::run),
    ];
    for (name, scene) in scenes.into_iter().filter(|(name, _)| settings.wants(name)) {
        eprintln!("{name} ({} s)", began.elapsed().as_secs());
        scene(settings, &mut report).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(report.finish(began.elapsed()))
}

fn cannot_run(error: &Failure) -> ExitCode {
    eprintln!("cluster: {error}");
    nodes::kill_all();
    ExitCode::from(EXIT_CANNOT_RUN)
}
