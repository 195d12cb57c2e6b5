//! A broker under test as a process of its own, on a free port, ended when its handle goes.

pub mod config;

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use troupemq::load::{Client, Session, Target, TargetPlan};

use crate::Failure;
use crate::common::{nodes, proc};
use crate::settings::{bench_directory, keeps_directories, profile_directory};

const READY_WITHIN: Duration = Duration::from_secs(30);
const LOG: &str = "broker.log";
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

    pub fn program(self) -> Result<PathBuf, Failure> {
        let (variable, default) = match self {
            Self::Troupemq => ("TROUPEMQ_BENCH_BROKER", profile_directory()?.join("troupemq")),
            Self::Mosquitto => ("TROUPEMQ_BENCH_MOSQUITTO", PathBuf::from(MOSQUITTO_PROGRAM)),
        };
        Ok(env::var_os(variable).filter(|value| !value.is_empty()).map_or(default, PathBuf::from))
    }
}

/// A running broker.
pub struct Broker {
    pub address: SocketAddr,
    pub pid: u32,
    kind: Kind,
    child: Arc<Mutex<Child>>,
    /// Configuration, data and log; removed with the handle unless they are to be kept.
    directory: TempDir,
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
        match kind {
            Kind::Troupemq => fs::write(directory.path().join("config.xml"), config::troupemq(port, free_port()?))?,
            Kind::Mosquitto => fs::write(directory.path().join("mosquitto.conf"), config::mosquitto(port))?,
        }
        let child = launch(kind, &directory)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let pid = child.lock().unwrap().id();
        let broker = Self { address, pid, kind, child, directory };
        broker.wait_until_ready()?;
        Ok(broker)
    }

    /// SIGKILL, and a new start with the same data.
    pub fn kill_and_start(&mut self) -> Result<(), Failure> {
        self.end();
        self.child = launch(self.kind, &self.directory)?;
        self.pid = self.child.lock().unwrap().id();
        self.wait_until_ready()
    }

    pub fn cpu_time(&self) -> Result<Duration, Failure> {
        proc::cpu_time(self.pid)
    }

    pub fn user_bytes(&self) -> Result<u64, Failure> {
        proc::user_bytes(self.pid)
    }

    fn end(&self) {
        end(&self.child);
        RUNNING.lock().unwrap().retain(|(child, _)| !Arc::ptr_eq(child, &self.child));
    }

    fn wait_until_ready(&self) -> Result<(), Failure> {
        let began = Instant::now();
        let log = || fs::read_to_string(self.directory.path().join(LOG)).unwrap_or_default().trim().to_owned();
        let plan = TargetPlan {
            servers: vec![self.address.to_string()],
            connect_timeout: Duration::from_secs(2),
            ..TargetPlan::default()
        };
        let target = Target::find(&plan)?;
        loop {
            if let Some(status) = self.child.lock().unwrap().try_wait()? {
                return Err(format!("the broker ended at once ({status}); its log: {}", log()).into());
            }
            match probe(&target) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > READY_WITHIN => {
                    return Err(format!("not ready within {} s: {error}; its log: {}", READY_WITHIN.as_secs(), log()).into());
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Connects once; in a thread of its own, as a scene that looks after its broker has a runtime in this one.
fn probe(target: &Target) -> Result<(), Failure> {
    let connect = || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Client::open(target, 0, "bench-probe", &Session::CLEAN))?;
        Ok(())
    };
    thread::scope(|scope| scope.spawn(connect).join()).map_err(|_| "the probe panicked")?
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends all brokers that this bench started.
pub fn kill_all() {
    nodes::kill_all();
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

/// A process that has ended already is as good as ended.
fn end(child: &Mutex<Child>) {
    let mut child = child.lock().unwrap();
    let _ = child.kill();
    let _ = child.wait();
}

fn launch(kind: Kind, directory: &TempDir) -> Result<Arc<Mutex<Child>>, Failure> {
    let path = directory.path();
    let log = File::options().create(true).append(true).open(path.join(LOG))?;
    let mut command = Command::new(kind.program()?);
    match kind {
        Kind::Troupemq => {
            command.args(["start", "--log", "warn", "--config"]).arg(path.join("config.xml")).arg("--data").arg(path.join("data"))
        }
        Kind::Mosquitto => command.arg("-c").arg(path.join("mosquitto.conf")),
    };
    let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    let child = Arc::new(Mutex::new(child));
    RUNNING.lock().unwrap().push((Arc::clone(&child), path.to_owned()));
    Ok(child)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
