//! How large a run is.
//!
//! Environment: `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_BROKER` and `TROUPEMQ_BENCH_MOSQUITTO` programs to run;
//! `TROUPEMQ_BENCH_ONLY=troupemq|mosquitto` one broker only; `TROUPEMQ_BENCH_SCENES=connect,qos0,qos1` some scenes only;
//! `TROUPEMQ_BENCH_MQTT=3|5`; `TROUPEMQ_BENCH_KEEP=1` leaves each broker's configuration, data and log in `target/bench`; and the numbers `TROUPEMQ_BENCH_ROUNDS`, `_CLIENTS`, `_HANDSHAKES`, `_PAIRS`, `_WINDOW`, `_MEASURE_S`,
//! `_LOAD_THREADS`.

use std::env;
use std::time::Duration;

use troupemq::mqtt::ProtocolVersion;

use crate::broker::Kind;
use crate::{Failure, proc};

/// Files a process needs beside its connections.
const SPARE_FILES: usize = 200;

pub struct Settings {
    pub quick: bool,
    pub only: Option<Kind>,
    scenes: Option<Vec<String>>,
    pub version: ProtocolVersion,
    pub rounds: usize,
    /// Connections of the connect scene.
    pub clients: usize,
    /// Handshakes under way at any time, over all load threads.
    pub handshakes: usize,
    /// Loopback addresses that the clients connect from: 127.0.0.1 and following.
    pub sources: u8,
    pub pairs: usize,
    /// Messages of one pair under way: not acknowledged (QoS 1) or not received (QoS 0).
    pub window: u16,
    /// At least 8: a sequence number.
    pub payload_bytes: usize,
    pub warm_up: Duration,
    pub measure: Duration,
    /// Between the last CONNACK and the reading of the memory.
    pub settle: Duration,
    pub load_threads: usize,
}

impl Settings {
    pub fn read() -> Result<Self, Failure> {
        let quick = env::args().any(|argument| argument == "--quick") || env::var("TROUPEMQ_BENCH_QUICK").is_ok_and(|v| v == "1");
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let settings = Self {
            quick,
            only: match text("ONLY").as_deref() {
                None => None,
                Some("troupemq") => Some(Kind::Troupemq),
                Some("mosquitto") => Some(Kind::Mosquitto),
                Some(other) => return Err(format!("TROUPEMQ_BENCH_ONLY is {other:?}; allowed: troupemq, mosquitto").into()),
            },
            scenes: text("SCENES").map(|names| names.split(',').map(|name| name.trim().to_owned()).collect()),
            version: match text("MQTT").as_deref() {
                None | Some("5") => ProtocolVersion::V5,
                Some("3") => ProtocolVersion::V3_1_1,
                Some(other) => return Err(format!("TROUPEMQ_BENCH_MQTT is {other:?}; allowed: 3, 5").into()),
            },
            rounds: number("ROUNDS", pick(3, 1))?,
            clients: number("CLIENTS", pick(10_000, 500))?,
            handshakes: number("HANDSHAKES", 96)?,
            sources: 8,
            pairs: number("PAIRS", pick(100, 20))?,
            window: u16::try_from(number("WINDOW", 16)?)?,
            payload_bytes: 64,
            warm_up: Duration::from_millis(if quick { 300 } else { 1_500 }),
            measure: Duration::from_secs(u64::try_from(number("MEASURE_S", pick(8, 1))?)?),
            settle: Duration::from_millis(if quick { 300 } else { 3_000 }),
            load_threads: number("LOAD_THREADS", cores.min(4))?,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether the scene of this name is to run.
    pub fn wants(&self, scene: &str) -> bool {
        self.scenes.as_ref().is_none_or(|names| names.iter().any(|name| name == scene))
    }

    fn check(&self) -> Result<(), Failure> {
        let files = proc::open_files_max()?;
        let needed = self.clients.max(2 * self.pairs) + SPARE_FILES;
        if needed > files {
            return Err(format!(
                "{needed} open files are needed and {files} allowed: raise `ulimit -n` or lower TROUPEMQ_BENCH_CLIENTS"
            )
            .into());
        }
        if self.rounds * self.clients * self.handshakes * self.pairs * self.load_threads * usize::from(self.window) == 0 {
            return Err("a number of the bench is 0".into());
        }
        Ok(())
    }
}

fn text(name: &str) -> Option<String> {
    env::var(format!("TROUPEMQ_BENCH_{name}")).ok().filter(|value| !value.is_empty())
}

fn number(name: &str, default: usize) -> Result<usize, Failure> {
    match text(name) {
        None => Ok(default),
        Some(value) => value.parse().map_err(|_| format!("TROUPEMQ_BENCH_{name} is {value:?}, not a number").into()),
    }
}
