//! How large a run is.
//!
//! Environment: `KILLS` and `STOPS` how often a node is killed or stopped; `SESSIONS` stored sessions of the restart; `SEED`; `TROUPEMQ_BENCH_SCENES=kill,silence,restart,replicated,calm`
//! some scenes only; `TROUPEMQ_BENCH_BROKER` the program under test; `TROUPEMQ_BENCH_BASE` a program to compare with;
//! `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_KEEP=1` leaves the nodes' configuration, data and logs in `target/bench`; and the
//! numbers `TROUPEMQ_BENCH_ROUNDS`, `_MEASURE_S`, `_PUBLISHERS`, `_WINDOW`, `_OFFERED`.

use std::time::Duration;

use crate::common::Failure;
use crate::common::environment::{self, Program, Scenes, number, text};

pub struct Settings {
    pub quick: bool,
    pub seed: u64,
    pub scenes: Scenes,
    /// The one under test comes last.
    pub programs: Vec<Program>,
    pub kills: usize,
    pub stops: usize,
    pub rounds: usize,
    pub measure: Duration,
    /// Stored sessions of the second restart.
    pub sessions: usize,
    pub publishers: usize,
    /// Messages of one publisher that are not acknowledged.
    pub window: u16,
    pub payload_bytes: usize,
    /// Messages a second of all publishers where the rate is given.
    pub offered: usize,
}

impl Settings {
    pub fn read() -> Result<Self, Failure> {
        let quick = environment::is_quick();
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let mut programs = vec![Program::under_test()?];
        if let Some(base) = text("TROUPEMQ_BENCH_BASE") {
            programs.insert(0, Program::at("before", base.into())?);
        }
        Ok(Self {
            quick,
            seed: number("SEED", rand::random::<u32>().into())?,
            scenes: Scenes::read(),
            programs,
            kills: number("KILLS", pick(10, 2))?,
            stops: number("STOPS", pick(5, 1))?,
            rounds: number("TROUPEMQ_BENCH_ROUNDS", pick(2, 1))?,
            measure: Duration::from_secs(number("TROUPEMQ_BENCH_MEASURE_S", if quick { 1 } else { 5 })?),
            sessions: number("SESSIONS", pick(100_000, 2_000))?,
            publishers: number("TROUPEMQ_BENCH_PUBLISHERS", 100)?,
            window: number("TROUPEMQ_BENCH_WINDOW", 32)?,
            payload_bytes: 64,
            offered: number("TROUPEMQ_BENCH_OFFERED", 10_000)?,
        })
    }

    /// How this run can be repeated.
    pub fn command(&self) -> String {
        environment::command("bench-cluster", self.seed, &["KILLS", "STOPS", "SESSIONS"])
    }
}
