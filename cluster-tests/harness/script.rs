//! Programs that others wrote, run with a deadline.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::repository;

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Whether the tests with other people's clients are to be left out.
pub fn interop_skipped(test: &str) -> bool {
    let skipped = std::env::var("TROUPEMQ_SKIP_INTEROP").is_ok_and(|value| value == "1");
    if skipped {
        eprintln!("{test}: left out, as TROUPEMQ_SKIP_INTEROP=1 says");
    }
    skipped
}

/// The interpreter with the clients' packages: `TROUPEMQ_PYTHON`, or that of `.venv`.
pub fn python() -> PathBuf {
    let path = std::env::var_os("TROUPEMQ_PYTHON").map_or_else(|| repository().join(".venv/bin/python"), PathBuf::from);
    assert!(
        path.exists(),
        "no Python with the MQTT clients at {}: run `make test-needs` (or set TROUPEMQ_SKIP_INTEROP=1)",
        path.display()
    );
    path
}

/// Starts a program; it ends with the guard.
pub fn start(command: &mut Command) -> Running {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|error| {
        panic!("{program} does not start: {error}; run `make test-needs` (or set TROUPEMQ_SKIP_INTEROP=1)")
    });
    Running { child: Some(child), program }
}

/// Runs a program to its end.
pub fn run(command: &mut Command, within: Duration) -> Finished {
    start(command).finish(within)
}

pub struct Running {
    child: Option<Child>,
    program: String,
}

impl Running {
    /// SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    /// Waits for the end and takes what was printed. Neither output may fill its pipe before: small outputs only, or read elsewhere.
    pub fn finish(mut self, within: Duration) -> Finished {
        let mut child = self.child.take().expect("a running program");
        let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let stdout = std::thread::spawn(move || read_all(&mut out));
        let stderr = std::thread::spawn(move || read_all(&mut err));
        let deadline = Instant::now() + within;
        let status = loop {
            match child.try_wait().expect("the process can be asked") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    _ = child.kill();
                    _ = child.wait();
                    let (stdout, stderr) = (stdout.join().expect("reader"), stderr.join().expect("reader"));
                    panic!("{} has not ended within {within:?}; it said: {stdout}\n{stderr}", self.program);
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Finished { code: status.code(), stdout: stdout.join().expect("reader"), stderr: stderr.join().expect("reader") }
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn read_all(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
