//! How large a run is.
//!
//! Environment: `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_SCENES=storm,dropped,expired` some scenes only;
//! `TROUPEMQ_BENCH_NODES=1,3` the clusters; `TROUPEMQ_BENCH_BROKER` the program under test; `SEED`; `TROUPEMQ_BENCH_KEEP=1` leaves the
//! nodes' configuration, data and logs in `target/bench`; and the numbers `TROUPEMQ_BENCH_ROUNDS`, `_MEASURE_S`, `_CLIENTS` of the storm,
//! `_SUBSCRIBERS` over their limits, `_QUEUE` what a queue may hold there, `_PUBLISHERS`, `_WINDOW`, `_MESSAGES` that expire, `_SESSIONS` that they
//! are queued for, `_EXPIRY_FROM_S`, `_EXPIRY_TO_S`.

use std::time::Duration;

use crate::common::environment::{self, Program, Scenes, number, text};
use crate::common::{Failure, proc};

/// Files a process needs beside its connections.
const SPARE_FILES: usize = 200;

pub struct Settings {
    pub quick: bool,
    pub seed: u64,
    pub scenes: Scenes,
    pub program: Program,
    /// Sizes of the clusters.
    pub nodes: Vec<usize>,
    pub rounds: usize,
    pub warm_up: Duration,
    pub measure: Duration,
    /// Connections of the storm.
    pub clients: usize,
    pub handshakes: usize,
    pub threads: usize,
    /// Sessions with full queues.
    pub subscribers: usize,
    /// Messages that a queue may hold in that scene, the analyst's too.
    pub queue: usize,
    pub publishers: usize,
    /// Messages of one publisher that are not acknowledged.
    pub window: usize,
    /// At least 16.
    pub payload_bytes: usize,
    /// Messages that expire.
    pub messages: usize,
    pub sessions: usize,
    /// Seconds until they expire: between these.
    pub expiry_s: (u32, u32),
}

impl Settings {
    pub fn read() -> Result<Self, Failure> {
        let quick = environment::is_quick();
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let nodes = text("TROUPEMQ_BENCH_NODES").unwrap_or_else(|| "1,3".to_owned());
        let nodes: Vec<usize> = nodes.split(',').map(|count| count.trim().parse()).collect::<Result<_, _>>()?;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let settings = Self {
            quick,
            seed: number("SEED", rand::random::<u32>().into())?,
            scenes: Scenes::read(),
            program: Program::under_test()?,
            nodes,
            rounds: number("TROUPEMQ_BENCH_ROUNDS", pick(3, 1))?,
            warm_up: Duration::from_millis(if quick { 200 } else { 1_500 }),
            measure: Duration::from_secs(number("TROUPEMQ_BENCH_MEASURE_S", if quick { 1 } else { 8 })?),
            clients: number("TROUPEMQ_BENCH_CLIENTS", pick(10_000, 300))?,
            handshakes: 96,
            threads: cores.min(4),
            subscribers: number("TROUPEMQ_BENCH_SUBSCRIBERS", pick(1_000, 50))?,
            queue: number("TROUPEMQ_BENCH_QUEUE", 1_000)?,
            publishers: number("TROUPEMQ_BENCH_PUBLISHERS", 20)?,
            window: number("TROUPEMQ_BENCH_WINDOW", 32)?,
            payload_bytes: 64,
            messages: number("TROUPEMQ_BENCH_MESSAGES", pick(100_000, 2_000))?,
            sessions: number("TROUPEMQ_BENCH_SESSIONS", pick(1_000, 50))?,
            expiry_s: (
                number("TROUPEMQ_BENCH_EXPIRY_FROM_S", if quick { 2 } else { 15 })?,
                number("TROUPEMQ_BENCH_EXPIRY_TO_S", if quick { 5 } else { 45 })?,
            ),
        };
        settings.check()?;
        Ok(settings)
    }

    /// How this run can be repeated.
    pub fn command(&self) -> String {
        environment::command("bench-addons", self.seed, &[])
    }

    fn check(&self) -> Result<(), Failure> {
        let (files, needed) = (proc::open_files_max()?, self.clients + SPARE_FILES);
        if needed > files {
            let remedy = "raise `ulimit -n` or lower TROUPEMQ_BENCH_CLIENTS";
            return Err(format!("{needed} open files are needed and {files} allowed: {remedy}").into());
        }
        let numbers = [self.rounds, self.clients, self.subscribers, self.queue, self.publishers, self.window, self.messages];
        if numbers.contains(&0) || self.sessions == 0 || self.nodes.contains(&0) || self.expiry_s.0 > self.expiry_s.1 {
            return Err("a number of the bench is 0, or the expiry ends before it begins".into());
        }
        Ok(())
    }
}

/// The section that switches one add-on on or off.
pub fn addon(element: &str, on: bool) -> String {
    format!("    <mqtt-addons><{element}><enabled>{on}</enabled></{element}></mqtt-addons>\n")
}

/// The one in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
