//! Our broker and Debian's mosquitto side by side in one run, with the load tool of `troupemq bench`: connects, pairs, fan-out and fan-in, a
//! shared subscription, retained messages, offline sessions and what is left of them after kill -9; and three nodes of ours.
//!
//! Builds nothing: `target/release/troupemq` must be there (`cargo build --release`). Each scene gets a fresh broker, the brokers take
//! turns (A B A B), the table shows the median of the rounds. A whole run writes `benches/RESULTS.md` and `benches/storm.svg`; `--quick` or
//! `TROUPEMQ_BENCH_QUICK=1`, or a run of some scenes, writes them to `target/bench`. See `settings.rs` for all environment variables.

// A program for people, like a test: it prints, and a broken assumption may end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// What is measured lasts a stated time, and a foreign process is ready when it answers: it gives no condition to wait on.
#![allow(clippy::disallowed_methods)]

mod broker;
#[path = "../common/mod.rs"]
mod common;
mod goals;
mod plot;
mod report;
mod scene;
mod settings;
mod watch;

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use broker::Kind;
use report::Report;
use settings::Settings;

/// What went wrong, in words for the person who started the bench.
type Failure = Box<dyn Error + Send + Sync>;

const EXIT_CANNOT_RUN: u8 = 2;

fn main() -> ExitCode {
    broker::kill_all_on_signal();
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(error) => return cannot_run(&error),
    };
    match run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cannot_run(&error),
    }
}

fn run(settings: &Settings) -> Result<(), Failure> {
    let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|kind| settings.only.is_none_or(|only| only == *kind)).collect();
    for kind in &kinds {
        kind.check_installed()?;
    }
    let began = Instant::now();
    let mut report = Report::new(settings, &kinds)?;
    for scene in scene::SCENES.iter().filter(|scene| settings.wants(scene.name)) {
        for round in 1..=settings.rounds {
            for kind in kinds.iter().filter(|kind| scene.nodes == 1 || **kind == Kind::Troupemq) {
                eprintln!("{} · round {round} of {} · {}", scene.title, settings.rounds, kind.name());
                let (outcome, watched) = watch::play(scene, *kind, settings)
                    .map_err(|error| format!("{} with {}: {error}", scene.title, kind.name()))?;
                report.add(scene, *kind, round, &outcome, &watched)?;
            }
        }
    }
    report.finish(began.elapsed())
}

fn cannot_run(error: &Failure) -> ExitCode {
    eprintln!("side_by_side: {error}");
    broker::kill_all();
    ExitCode::from(EXIT_CANNOT_RUN)
}
