//! How large a run is.
//!
//! Environment: `KILLS` and `STOPS` how often a node is killed or stopped; `SESSIONS` stored sessions of the restart; `SEED`; `TROUPEMQ_BENCH_SCENES=kill,silence,restart,replicated,calm`
//! some scenes only; `TROUPEMQ_BENCH_BROKER` the program under test; `TROUPEMQ_BENCH_BASE` a program to compare with;
//! `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_KEEP=1` leaves the nodes' configuration, data and logs in `target/bench`; and the
//! numbers `TROUPEMQ_BENCH_ROUNDS`, `_MEASURE_S`, `_PUBLISHERS`, `_WINDOW`, `_OFFERED`.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::Failure;

/// What is started as a node.
#[derive(Debug, Clone)]
pub struct Program {
    /// How the report names it.
    pub name: &'static str,
    pub path: PathBuf,
}

pub struct Settings {
    pub quick: bool,
    pub seed: u64,
    scenes: Option<Vec<String>>,
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
        let quick = env::args().any(|argument| argument == "--quick") || text("TROUPEMQ_BENCH_QUICK").is_some_and(|v| v == "1");
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let under_test = text("TROUPEMQ_BENCH_BROKER")
            .map_or_else(|| Ok(profile_directory()?.join("troupemq")), |path| Ok::<_, Failure>(path.into()))?;
        let mut programs = vec![Program { name: "TroupeMQ", path: under_test }];
        if let Some(base) = text("TROUPEMQ_BENCH_BASE") {
            programs.insert(0, Program { name: "before", path: base.into() });
        }
        if let Some(missing) = programs.iter().find(|program| !program.path.is_file()) {
            return Err(format!("{} not found; build it first: cargo build --release", missing.path.display()).into());
        }
        Ok(Self {
            quick,
            seed: number("SEED", rand::random::<u32>().into())?,
            scenes: text("TROUPEMQ_BENCH_SCENES").map(|names| names.split(',').map(|name| name.trim().to_owned()).collect()),
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

    /// Whether the scene of this name is to run.
    pub fn wants(&self, scene: &str) -> bool {
        self.scenes.as_ref().is_none_or(|names| names.iter().any(|name| name == scene))
    }

    /// How this run can be repeated.
    pub fn command(&self) -> String {
        let mut variables: Vec<String> = env::vars()
            .filter(|(name, _)| name.starts_with("TROUPEMQ_BENCH_") || ["KILLS", "STOPS", "SESSIONS"].contains(&name.as_str()))
            .filter(|(name, _)| !name.ends_with("_BROKER") && !name.ends_with("_BASE"))
            .map(|(name, value)| format!("{name}={value} "))
            .collect();
        variables.sort();
        format!("SEED={} {}make bench-cluster", self.seed, variables.concat())
    }
}

/// The directory that the nodes' data go to: `target/bench`, on the same disk as the build.
pub fn bench_directory() -> Result<PathBuf, Failure> {
    let target = profile_directory()?.parent().ok_or("the bench lies outside of a target directory")?.join("bench");
    std::fs::create_dir_all(&target)?;
    Ok(target)
}

/// Whether directories of nodes stay when they have ended.
pub fn keeps_directories() -> bool {
    text("TROUPEMQ_BENCH_KEEP").is_some_and(|value| value == "1")
}

/// `target/release`, found from `target/release/deps/cluster-…`.
pub fn profile_directory() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    let directory = program.parent().and_then(Path::parent);
    Ok(directory.ok_or("the bench lies outside of a target directory")?.to_owned())
}

pub fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn number<T: FromStr>(name: &str, default: T) -> Result<T, Failure> {
    match text(name) {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| format!("{name} is {value:?}, not a number that fits").into()),
    }
}
