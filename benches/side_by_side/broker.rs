//! A broker under test as a process of its own, on a free port, ended when its handle goes.

mod config;

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use troupemq::mqtt::ProtocolVersion;

use crate::load::client;
use crate::{Failure, proc};

const READY_WITHIN: Duration = Duration::from_secs(30);
const MOSQUITTO_PROGRAM: &str = "/usr/sbin/mosquitto";

/// All processes that run now with their directories, for the way out that no destructor sees.
static RUNNING: Mutex<Vec<(Arc<Mutex<Child>>, PathBuf)>> = Mutex::new(Vec::new());

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Troupemq,
    Mosquitto,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Troupemq, Self::Mosquitto];

    pub fn name(self) -> &'static str {
        match self {
            Self::Troupemq => "TroupeMQ",
            Self::Mosquitto => "mosquitto",
        }
    }

    /// What a reader must know to read the figures.
    pub fn mode(self) -> &'static str {
        match self {
            Self::Troupemq => {
                "persistence mode `file` (every connection registered through the Raft log), all four add-on topics on, lifecycle events with them"
            }
            Self::Mosquitto => "`persistence false`, nothing written to disk, no lifecycle events",
        }
    }

    /// # Errors
    /// When the program is not there, with what to do about it.
    pub fn check_installed(self) -> Result<(), Failure> {
        let program = self.program()?;
        if program.is_file() {
            return Ok(());
        }
        let remedy = match self {
            Self::Troupemq => "build it first: cargo build --release (or name a program in TROUPEMQ_BENCH_BROKER)",
            Self::Mosquitto => "install it first: apt-get install mosquitto (or name a program in TROUPEMQ_BENCH_MOSQUITTO)",
        };
        Err(format!("{} not found at {}; {remedy}", self.name(), program.display()).into())
    }

    /// Name and version as the program says it.
    pub fn version(self) -> Result<String, Failure> {
        let argument = match self {
            Self::Troupemq => "version",
            Self::Mosquitto => "-h",
        };
        let output = Command::new(self.program()?).arg(argument).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next().unwrap_or_default().replace(" version ", " ");
        Ok(if line.is_empty() { self.name().to_owned() } else { line })
    }

    fn program(self) -> Result<PathBuf, Failure> {
        let (variable, default) = match self {
            Self::Troupemq => ("TROUPEMQ_BENCH_BROKER", profile_directory()?.join("troupemq")),
            Self::Mosquitto => ("TROUPEMQ_BENCH_MOSQUITTO", PathBuf::from(MOSQUITTO_PROGRAM)),
        };
        Ok(env::var_os(variable).filter(|value| !value.is_empty()).map_or(default, PathBuf::from))
    }
}

/// The directory that results and the brokers' data go to: `target/bench`, on the same disk as the build.
pub fn bench_directory() -> Result<PathBuf, Failure> {
    let target = profile_directory()?.parent().ok_or("the bench lies outside of a target directory")?.join("bench");
    fs::create_dir_all(&target)?;
    Ok(target)
}

/// `target/release`, found from `target/release/deps/side_by_side-…`.
fn profile_directory() -> Result<PathBuf, Failure> {
    let program = env::current_exe()?;
    let directory = program.parent().and_then(Path::parent);
    Ok(directory.ok_or("the bench lies outside of a target directory")?.to_owned())
}

/// A running broker.
pub struct Broker {
    pub address: SocketAddr,
    pub pid: u32,
    child: Arc<Mutex<Child>>,
    /// Configuration, data and log; removed with the handle unless they are to be kept.
    _directory: TempDir,
}

impl Broker {
    /// Starts the broker and waits until it accepts an MQTT client.
    ///
    /// # Errors
    /// When it ends at once or does not answer in time; its log is in the message.
    pub fn start(kind: Kind) -> Result<Self, Failure> {
        let directory =
            tempfile::Builder::new().prefix("broker-").disable_cleanup(keeps_directories()).tempdir_in(bench_directory()?)?;
        let port = free_port()?;
        let log_file = directory.path().join("broker.log");
        let log = File::create(&log_file)?;
        let child = command(kind, directory.path(), port)?.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let pid = child.id();
        let child = Arc::new(Mutex::new(child));
        RUNNING.lock().unwrap().push((Arc::clone(&child), directory.path().to_owned()));
        let broker = Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), pid, child, _directory: directory };
        match broker.wait_until_ready() {
            Ok(()) => Ok(broker),
            Err(error) => Err(format!("{error}; its log: {}", fs::read_to_string(&log_file).unwrap_or_default().trim()).into()),
        }
    }

    pub fn cpu_time(&self) -> Result<Duration, Failure> {
        proc::cpu_time(self.pid)
    }

    pub fn resident_bytes(&self) -> Result<u64, Failure> {
        proc::resident_bytes(self.pid)
    }

    fn wait_until_ready(&self) -> Result<(), Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.lock().unwrap().try_wait()? {
                return Err(format!("the broker ended at once ({status})").into());
            }
            let probe = client::open(self.address, Ipv4Addr::LOCALHOST, "bench-probe", ProtocolVersion::V3_1_1);
            let error: Failure = match runtime.block_on(async { tokio::time::timeout(Duration::from_secs(2), probe).await }) {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => "no CONNACK within 2 s".into(),
            };
            if began.elapsed() > READY_WITHIN {
                return Err(format!("not ready within {} s: {error}", READY_WITHIN.as_secs()).into());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        end(&self.child);
        RUNNING.lock().unwrap().retain(|(child, _)| !Arc::ptr_eq(child, &self.child));
    }
}

/// Ends all brokers that this bench started.
pub fn kill_all() {
    for (child, directory) in RUNNING.lock().unwrap().drain(..) {
        end(&child);
        if !keeps_directories() {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// Makes SIGINT and SIGTERM end the brokers too.
pub fn kill_all_on_signal() {
    thread::spawn(|| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt()).unwrap();
            let mut terminate = signal(SignalKind::terminate()).unwrap();
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
        });
        kill_all();
        process::exit(130);
    });
}

/// Whether configuration, data and log of each broker stay in `target/bench` when it has ended.
fn keeps_directories() -> bool {
    env::var("TROUPEMQ_BENCH_KEEP").is_ok_and(|value| value == "1")
}

/// A process that has ended already is as good as ended.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap();
    let _ = child.kill();
    let _ = child.wait();
}

fn command(kind: Kind, directory: &Path, port: u16) -> Result<Command, Failure> {
    let mut command = Command::new(kind.program()?);
    match kind {
        Kind::Troupemq => {
            let file = directory.join("config.xml");
            fs::write(&file, config::troupemq(port, free_port()?))?;
            command.args(["start", "--log", "warn", "--config"]).arg(file).arg("--data").arg(directory.join("data"));
        }
        Kind::Mosquitto => {
            let file = directory.join("mosquitto.conf");
            fs::write(&file, config::mosquitto(port))?;
            command.arg("-c").arg(file);
        }
    }
    Ok(command)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
