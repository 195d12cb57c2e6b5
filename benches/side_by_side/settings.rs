//! How large a run is.
//!
//! Environment: `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_BROKER` and `TROUPEMQ_BENCH_MOSQUITTO` programs to run;
//! `TROUPEMQ_BENCH_ONLY=troupemq|mosquitto` one broker only; `TROUPEMQ_BENCH_SCENES=connect,pairs-1` some scenes only (names in `scene.rs`);
//! `TROUPEMQ_BENCH_MQTT=3|5`; `TROUPEMQ_BENCH_KEEP=1` leaves each broker's configuration, data and log in `target/bench`; and the numbers
//! `TROUPEMQ_BENCH_ROUNDS`, `_CLIENTS` and `_HANDSHAKES` of the storm, `_BURST` clients at once, `_PAIRS`, `_WINDOW`, `_RATE`, `_FAN` subscribers or
//! publishers, `_SHARED` publishers to a group of ten, `_RETAINED` messages, `_SESSIONS` offline with `_MESSAGES` each, `_MEASURE_S`,
//! `_LOAD_THREADS`.

use std::env;
use std::net::IpAddr;
use std::time::Duration;

use troupemq::load::{make_room, parse_sources};
use troupemq::mqtt::ProtocolVersion;

use crate::Failure;
use crate::broker::Kind;
use crate::common::environment::text;
pub use crate::common::environment::{Program, bench_directory, keeps_directories, profile_directory};

/// Files of a broker beside its connections.
const BROKER_FILES: usize = 200;

pub struct Settings {
    pub quick: bool,
    pub only: Option<Kind>,
    scenes: Option<Vec<String>>,
    pub version: ProtocolVersion,
    pub rounds: usize,
    /// Connections of the connect scenes.
    pub clients: usize,
    /// Handshakes under way at any time, over all load threads.
    pub handshakes: usize,
    /// Clients that connect at once.
    pub burst: usize,
    /// Loopback addresses that the clients connect from.
    pub sources: Vec<IpAddr>,
    pub pairs: usize,
    /// Messages of one publisher under way.
    pub window: u16,
    /// Messages a second where the rate is given.
    pub rate: f64,
    /// Subscribers of the fan-out, publishers of the fan-in.
    pub fan: usize,
    pub shared_publishers: usize,
    pub retained: usize,
    /// Offline sessions, and messages for each.
    pub sessions: usize,
    pub messages: usize,
    pub payload_bytes: usize,
    pub warm_up: Duration,
    pub measure: Duration,
    /// Before memory is read.
    pub settle: Duration,
    pub load_threads: usize,
}

impl Settings {
    pub fn read() -> Result<Self, Failure> {
        let quick = env::args().any(|argument| argument == "--quick") || setting("QUICK").is_some_and(|value| value == "1");
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let settings = Self {
            quick,
            only: match setting("ONLY").as_deref() {
                None => None,
                Some("troupemq") => Some(Kind::Troupemq),
                Some("mosquitto") => Some(Kind::Mosquitto),
                Some(other) => return Err(format!("TROUPEMQ_BENCH_ONLY is {other:?}; allowed: troupemq, mosquitto").into()),
            },
            scenes: setting("SCENES").map(|names| names.split(',').map(|name| name.trim().to_owned()).collect()),
            version: match setting("MQTT").as_deref() {
                None | Some("5") => ProtocolVersion::V5,
                Some("3") => ProtocolVersion::V3_1_1,
                Some(other) => return Err(format!("TROUPEMQ_BENCH_MQTT is {other:?}; allowed: 3, 5").into()),
            },
            rounds: number("ROUNDS", pick(3, 1))?,
            clients: number("CLIENTS", pick(19_000, 300))?,
            handshakes: number("HANDSHAKES", 96)?,
            burst: number("BURST", pick(2_000, 200))?,
            sources: parse_sources("127.0.0.1..127.0.0.8")?,
            pairs: number("PAIRS", pick(500, 20))?,
            window: u16::try_from(number("WINDOW", 16)?)?,
            rate: number("RATE", pick(5_000, 500))? as f64,
            fan: number("FAN", pick(1_000, 50))?,
            shared_publishers: number("SHARED", pick(100, 10))?,
            retained: number("RETAINED", pick(100_000, 2_000))?,
            sessions: number("SESSIONS", pick(100, 10))?,
            messages: number("MESSAGES", pick(1_000, 200))?,
            payload_bytes: 64,
            warm_up: Duration::from_millis(if quick { 300 } else { 1_500 }),
            measure: Duration::from_secs(u64::try_from(number("MEASURE_S", pick(8, 1))?)?),
            settle: Duration::from_millis(if quick { 300 } else { 3_000 }),
            load_threads: number("LOAD_THREADS", cores.min(4))?,
        };
        if settings.rounds == 0 {
            return Err("TROUPEMQ_BENCH_ROUNDS is 0".into());
        }
        // Before any broker starts: it needs as many files as this process.
        make_room(settings.clients.max(2 * settings.pairs).max(settings.burst) + BROKER_FILES)?;
        Ok(settings)
    }

    /// Whether the scene of this name is to run.
    pub fn wants(&self, scene: &str) -> bool {
        self.scenes.as_ref().is_none_or(|names| names.iter().any(|name| name == scene))
    }

    /// Whether everything of the table runs, so that the table is worth keeping.
    pub fn is_whole(&self) -> bool {
        !self.quick && self.only.is_none() && self.scenes.is_none()
    }
}

fn setting(name: &str) -> Option<String> {
    text(&format!("TROUPEMQ_BENCH_{name}"))
}

fn number(name: &str, default: usize) -> Result<usize, Failure> {
    crate::common::environment::number(&format!("TROUPEMQ_BENCH_{name}"), default)
}
