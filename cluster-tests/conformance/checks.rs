//! Runs `normative.py` against a broker and reads what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use crate::harness::repository;
use crate::harness::script::{Finished, run};

const WITHIN: Duration = Duration::from_secs(300);
/// Two checks, for 3.1.1 and 5.0, use the same client ids, and so take each other over when they run at the same time.
const ALONE: &str = "*/client-id-1-to-23";

/// Where a broker, or something in front of several, listens.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub mqtt: SocketAddr,
    pub websocket: SocketAddr,
    /// Further arguments of the script.
    pub arguments: &'static [&'static str],
}

/// What became of each check, by name.
#[derive(Debug, Default)]
pub struct Outcome {
    pub passed: BTreeSet<String>,
    /// With the reason that the script gives.
    pub skipped: BTreeMap<String, String>,
}

/// Which checks run.
#[derive(Debug, Clone, Copy)]
pub enum Which<'a> {
    All,
    Only(&'a str),
    /// All but these.
    Except(&'a str),
}

/// The names of all checks.
pub fn listed() -> Vec<String> {
    static LISTED: LazyLock<Vec<String>> = LazyLock::new(|| {
        let finished = run(script().arg("--list"), WITHIN);
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        names(&finished.stdout)
    });
    LISTED.clone()
}

fn names(stdout: &str) -> Vec<String> {
    let checks = stdout.lines().filter(|line| line.contains("/MQ"));
    checks.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// Runs checks, and those that failed once more, one at a time: several of them allow the broker a few hundred
/// milliseconds, which it does not always have while eight run at once beside other tests. A check that fails alone too has found a fault.
pub fn run_checks(target: Target, which: Which<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    match which {
        Which::All => {
            take(&mut outcome, target, &["--skip", ALONE, "--jobs", "8"]);
            take(&mut outcome, target, &["--only", ALONE, "--jobs", "1"]);
        }
        Which::Only(names) => take(&mut outcome, target, &["--only", names, "--jobs", "8"]),
        Which::Except(names) => {
            take(&mut outcome, target, &["--skip", &format!("{ALONE},{names}"), "--jobs", "8"]);
            take(&mut outcome, target, &["--only", ALONE, "--jobs", "1"]);
        }
    }
    outcome
}

fn take(outcome: &mut Outcome, target: Target, arguments: &[&str]) {
    let finished = normative(target, arguments);
    let mut failed = Vec::new();
    for line in finished.stdout.lines() {
        let Some((verdict, rest)) = line.split_once(' ') else { continue };
        let (name, why) = rest.split_once(' ').unwrap_or((rest, ""));
        match verdict {
            "PASS" => _ = outcome.passed.insert(name.to_owned()),
            "SKIP" => _ = outcome.skipped.insert(name.to_owned(), why.trim().to_owned()),
            "FAIL" => {
                println!("{line}");
                failed.push(name.to_owned());
            }
            _ => {}
        }
    }
    println!("{}", finished.stdout.lines().last().unwrap_or_default());
    assert!(finished.code == Some(0) || !failed.is_empty(), "{}\n{}", finished.stdout, finished.stderr);
    for name in failed {
        assert!(!name.ends_with("/observed"), "a packet of any check broke {name}:\n{}", finished.stdout);
        println!("once more, alone: {name}");
        let alone = normative(target, &["--only", &name, "--jobs", "1", "--quiet", "1.5"]);
        assert_eq!(alone.code, Some(0), "{}\n{}", alone.stdout, alone.stderr);
        outcome.passed.insert(name);
    }
}

fn normative(target: Target, arguments: &[&str]) -> Finished {
    let mut command = script();
    command.args([target.mqtt.ip().to_string(), target.mqtt.port().to_string()]);
    command.args(["--ws", &target.websocket.port().to_string()]).args(target.arguments).args(arguments);
    command.arg("--known").arg(repository().join("cluster-tests/conformance/known_failures.txt"));
    // More than on a quiet machine: other tests run beside.
    command.args(["--wait", "6", "--slack", "5"]);
    run(&mut command, WITHIN)
}

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(repository().join("cluster-tests/conformance/normative/normative.py"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Leaves lines for `make test` to print at its end.
pub fn report(name: &str, text: &str) {
    println!("{text}");
    let directory = repository().join("target/conformance");
    fs::create_dir_all(&directory).expect("a directory for the report");
    fs::write(directory.join(name), text).expect("the report is written");
}
