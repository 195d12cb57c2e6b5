//! What the environment and the command line tell a bench, and where its files are.
//!
//! `TROUPEMQ_BENCH_BROKER` the program under test; `TROUPEMQ_BENCH_SCENES=a,b` some scenes only; `TROUPEMQ_BENCH_QUICK=1` (or `--quick`) small
//! numbers; `TROUPEMQ_BENCH_KEEP=1` leaves the nodes' configuration, data and logs in `target/bench`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::Failure;

/// What is started as a node.
#[derive(Debug, Clone)]
pub struct Program {
    /// How the report names it.
    pub name: &'static str,
    pub path: PathBuf,
}

impl Program {
    /// `target/release/troupemq`, or what the environment says.
    pub fn under_test() -> Result<Self, Failure> {
        let path = match text("TROUPEMQ_BENCH_BROKER") {
            Some(path) => path.into(),
            None => profile_directory()?.join("troupemq"),
        };
        Self::at("TroupeMQ", path)
    }

    /// Refuses a program that is not there.
    pub fn at(name: &'static str, path: PathBuf) -> Result<Self, Failure> {
        if !path.is_file() {
            return Err(format!("{} not found; build it first: cargo build --release", path.display()).into());
        }
        Ok(Self { name, path })
    }
}

/// The scenes that are to run.
#[derive(Debug, Clone)]
pub struct Scenes(Option<Vec<String>>);

impl Scenes {
    pub fn read() -> Self {
        Self(text("TROUPEMQ_BENCH_SCENES").map(|names| names.split(',').map(|name| name.trim().to_owned()).collect()))
    }

    pub fn wants(&self, scene: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.iter().any(|name| name == scene))
    }
}

pub fn is_quick() -> bool {
    env::args().any(|argument| argument == "--quick") || is_set("TROUPEMQ_BENCH_QUICK")
}

/// How a run can be repeated: `make TARGET` with the seed and the variables that were set, the bench's own and those named `others`. Programs are
/// left out.
pub fn command(target: &str, seed: u64, others: &[&str]) -> String {
    format!("SEED={seed} {}make {target}", variables(others).concat())
}

/// The variables that were set, as the shell has them before a command: those of all benches and those named `others`. Programs are left out.
pub fn variables(others: &[&str]) -> Vec<String> {
    let mut variables: Vec<String> = env::vars()
        .filter(|(name, _)| name.starts_with("TROUPEMQ_BENCH_") || others.contains(&name.as_str()))
        .filter(|(name, _)| !name.ends_with("_BROKER") && !name.ends_with("_BASE"))
        .map(|(name, value)| format!("{name}={value} "))
        .collect();
    variables.sort();
    variables
}

/// The directory that the nodes' data go to: `target/bench`, on the same disk as the build.
pub fn bench_directory() -> Result<PathBuf, Failure> {
    let target = profile_directory()?.parent().ok_or("the bench lies outside of a target directory")?.join("bench");
    fs::create_dir_all(&target)?;
    Ok(target)
}

/// Whether directories of nodes stay when they have ended.
pub fn keeps_directories() -> bool {
    is_set("TROUPEMQ_BENCH_KEEP")
}

/// `target/release`, found from `target/release/deps/cluster-…`.
pub fn profile_directory() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    let directory = program.parent().and_then(Path::parent);
    Ok(directory.ok_or("the bench lies outside of a target directory")?.to_owned())
}

fn is_set(name: &str) -> bool {
    text(name).is_some_and(|value| value == "1")
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
