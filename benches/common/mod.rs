//! What the benches that start nodes of their own share: their nodes, what the environment tells them, the report, and how they end.

// No bench uses all of it.
#![allow(dead_code)]

pub mod environment;
#[path = "../side_by_side/machine.rs"]
pub mod machine;
pub mod nodes;
#[path = "../side_by_side/proc.rs"]
pub mod proc;
pub mod report;

use std::error::Error;
use std::process::ExitCode;

/// What went wrong, in words for the person who started the bench.
pub type Failure = Box<dyn Error + Send + Sync>;

const EXIT_MISSED: u8 = 1;
const EXIT_CANNOT_RUN: u8 = 2;

/// Runs a bench, which tells whether all goals were reached: ends with 1 where one was missed, with 2 where it could not run. No node outlives it.
pub fn exit(name: &str, run: impl FnOnce() -> Result<bool, Failure>) -> ExitCode {
    nodes::kill_all_on_signal();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_MISSED),
        Err(error) => {
            eprintln!("{name}: {error}");
            nodes::kill_all();
            ExitCode::from(EXIT_CANNOT_RUN)
        }
    }
}
