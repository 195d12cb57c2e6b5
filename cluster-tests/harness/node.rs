//! One node: a process of the program under test, its configuration, data and logs.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::config::Config;
use super::script::{Finished, run};
use super::{http, program, wait};

/// A node is ready within this after its start, also where the machine is busy.
const START: Duration = Duration::from_secs(60);
/// A node ends within this after SIGTERM.
const STOP: Duration = Duration::from_secs(20);
/// A command of an operator comes to its end within this.
const ADMIN: Duration = Duration::from_secs(90);
/// Starts after which a port that is in use is no accident.
const BIND_TRIES: usize = 5;
const LOG_LINES_SHOWN: usize = 150;

/// Where a node that is ready listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    pub mqtt: SocketAddr,
    pub websocket: SocketAddr,
    pub http: SocketAddr,
}

/// How a process that was to refuse its start ended.
#[derive(Debug)]
pub struct Refusal {
    pub status: ExitStatus,
    pub stderr: String,
}

pub struct Node {
    pub name: String,
    pub config: Config,
    /// Another program than the one under test.
    pub program: Option<PathBuf>,
    /// More variables of the environment.
    pub env: Vec<(String, String)>,
    /// What to log, where that is not `TROUPEMQ_TEST_LOG`'s to say.
    pub log: Option<&'static str>,
    /// Takes the place of `/etc/hosts` for the process; see `private_hosts`.
    pub hosts: Option<PathBuf>,
    /// A command and its arguments that start the program in a world of its own, such as a network namespace, and become it.
    pub within: Vec<String>,
    home: PathBuf,
    /// The directory, removed with the node, where it owns it.
    owned: Option<TempDir>,
    process: Option<Child>,
    addresses: Option<Addresses>,
    starts: usize,
}

impl Node {
    /// A node with a directory of its own; not started.
    pub fn new(config: Config) -> Self {
        let directory = tempfile::Builder::new().prefix("troupemq-").tempdir().expect("a temporary directory");
        let home = directory.path().to_owned();
        let mut node = Self::within(&home, "node", config);
        node.owned = Some(directory);
        node
    }

    /// A node in a directory that somebody else keeps.
    pub fn within(home: &Path, name: &str, config: Config) -> Self {
        fs::create_dir_all(home).expect("a directory for the node");
        Self {
            name: name.to_owned(),
            config,
            program: None,
            env: Vec::new(),
            log: None,
            hosts: None,
            within: Vec::new(),
            home: home.to_owned(),
            owned: None,
            process: None,
            addresses: None,
            starts: 0,
        }
    }

    /// A single node, started and ready.
    pub fn ready(config: Config) -> Self {
        let mut node = Self::new(config);
        node.start();
        node
    }

    /// Starts the process and waits until the node is ready. Another process may have taken a port meanwhile: tries again.
    pub fn start(&mut self) {
        for _ in 0..BIND_TRIES {
            self.launch();
            match wait::until(&format!("{} is ready", self.name), START, || self.announced_or_ended()) {
                Some(addresses) => {
                    self.addresses = Some(addresses);
                    return;
                }
                None if self.stderr().contains("is another program using the port") => self.process = None,
                None => panic!("{} ended instead of starting: {}", self.name, self.stderr()),
            }
        }
        panic!("{} finds its ports in use: {}", self.name, self.stderr());
    }

    /// Starts the process and does not wait.
    pub fn launch(&mut self) {
        assert!(self.process.is_none(), "{} runs already", self.name);
        self.starts += 1;
        self.addresses = None;
        fs::write(self.home.join("config.xml"), self.config.xml()).expect("config.xml");
        let declared = self.home.join("declared-shared-subscriptions.xml");
        match self.config.declared_xml() {
            Some(xml) => fs::write(declared, xml).expect("declared-shared-subscriptions.xml"),
            None => _ = fs::remove_file(declared),
        }
        let child = self
            .command()
            .stdout(File::create(self.stdout_path()).expect("a file for the output"))
            .stderr(File::create(self.stderr_path()).expect("a file for the log"))
            .spawn()
            .expect("the program starts");
        self.process = Some(child);
    }

    /// Starts a process that must refuse to go on, and tells how it ended.
    pub fn refused(&mut self) -> Refusal {
        self.launch();
        let what = format!("{} refuses its start", self.name);
        let status = wait::until(&what, START, || self.child().try_wait().expect("the process can be asked"));
        self.process = None;
        Refusal { status, stderr: self.stderr() }
    }

    /// Waits until a node that was only launched is ready.
    pub fn wait_ready(&mut self) {
        let addresses = wait::until(&format!("{} is ready", self.name), START, || self.announced_or_ended());
        self.addresses = Some(addresses.unwrap_or_else(|| panic!("{} ended: {}", self.name, self.stderr())));
    }

    /// `Some(None)` where the process has ended.
    fn announced_or_ended(&mut self) -> Option<Option<Addresses>> {
        if let Some(addresses) = announced(&self.stdout()) {
            return Some(Some(addresses));
        }
        let ended = self.child().try_wait().expect("the process can be asked").is_some();
        ended.then_some(None)
    }

    fn command(&self) -> Command {
        let program = self.program.clone().unwrap_or_else(program);
        let mut command = match (&self.hosts, self.within.split_first()) {
            (Some(hosts), _) => with_hosts(hosts),
            (None, Some((first, more))) => {
                let mut command = Command::new(first);
                command.args(more).arg(program);
                command
            }
            (None, None) => Command::new(program),
        };
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.arg("start").arg("--config").arg(self.home.join("config.xml")).arg("--data").arg(self.data());
        let wanted = || std::env::var("TROUPEMQ_TEST_LOG").unwrap_or_else(|_| "info".to_owned());
        command.args(["--log", &self.log.map_or_else(wanted, str::to_owned)]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `troupemq config check` on the node's configuration.
    pub fn config_check(&self) -> Finished {
        let mut command = Command::new(program());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        run(command.args(["config", "check"]).arg(self.home.join("config.xml")), ADMIN)
    }

    /// Runs `troupemq cluster` with these arguments for this node.
    pub fn admin(&self, arguments: &[&str]) -> Finished {
        run(Command::new(program()).arg("cluster").args(arguments).arg("--data").arg(self.data()), ADMIN)
    }

    /// What `troupemq cluster status --json` prints; `None` where the node does not answer.
    pub fn status(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.admin(&["status", "--json"]).stdout).ok()
    }

    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses.unwrap_or_else(|| panic!("{} is not ready", self.name))
    }

    pub fn mqtt(&self) -> SocketAddr {
        match self.config.mqtt_port {
            0 => self.addresses().mqtt,
            port => SocketAddr::from((self.config.address(), port)),
        }
    }

    pub fn http(&self) -> SocketAddr {
        match self.config.http_port {
            0 => self.addresses().http,
            port => SocketAddr::from((self.config.address(), port)),
        }
    }

    /// Whether the health API says that clients may come.
    pub fn is_up(&self) -> bool {
        http::get(self.http(), "/api/v1/health/readiness").is_some_and(|(status, _)| status == 200)
    }

    pub fn metrics(&self) -> std::collections::HashMap<String, f64> {
        let (status, page) = http::get(self.http(), "/metrics").expect("the node serves metrics");
        assert_eq!(status, 200);
        http::samples(&page)
    }

    /// One number of `/metrics`; 0 where it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics().get(name).copied().unwrap_or(0.0)
    }

    /// SIGKILL, at once.
    pub fn kill(&mut self) {
        let mut child = self.process.take().unwrap_or_else(|| panic!("{} does not run", self.name));
        child.kill().expect("the process can be killed");
        child.wait().expect("the process ends");
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.wait_ended()
    }

    /// SIGTERM.
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
    }

    pub fn wait_ended(&mut self) -> ExitStatus {
        let what = format!("{} ends after SIGTERM", self.name);
        let status = wait::until(&what, STOP, || self.child().try_wait().expect("the process can be asked"));
        self.process = None;
        status
    }

    /// Whether the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child().try_wait().expect("the process can be asked").is_some()
    }

    pub fn signal(&mut self, signal: Signal) {
        let pid = Pid::from_child(self.child());
        kill_process(pid, signal).expect("the process can be signalled");
    }

    /// The most memory the process ever held, and what it holds now, in bytes.
    pub fn memory_bytes(&self) -> (usize, usize) {
        let pid = self.process.as_ref().unwrap_or_else(|| panic!("{} does not run", self.name)).id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
        let of = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the status");
            line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
        };
        (of("VmHWM:"), of("VmRSS:"))
    }

    /// Resident memory of the process, bytes.
    pub fn resident_bytes(&self) -> usize {
        self.memory_bytes().1
    }

    fn child(&mut self) -> &mut Child {
        self.process.as_mut().unwrap_or_else(|| panic!("{} does not run", self.name))
    }

    pub fn stdout(&self) -> String {
        read(&self.stdout_path())
    }

    /// The log.
    pub fn stderr(&self) -> String {
        read(&self.stderr_path())
    }

    fn stdout_path(&self) -> PathBuf {
        self.home.join(format!("stdout-{}", self.starts))
    }

    fn stderr_path(&self) -> PathBuf {
        self.home.join(format!("stderr-{}", self.starts))
    }
}

/// Whether processes may have an `/etc/hosts` of their own: in a mount namespace, so for root only.
pub fn private_hosts() -> bool {
    let mut command = Command::new("unshare");
    command.args(["-m", "mount", "--bind", "/etc/hosts", "/etc/hosts"]).stderr(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The program, behind a shell that gives it another `/etc/hosts` and becomes it.
fn with_hosts(hosts: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    command.args(["-m", "sh", "-c", script]).arg(hosts).arg(program());
    command
}

fn read(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The addresses that a node prints when it is ready; the last line means that all are printed. A kind of listener that it has not has port 0.
fn announced(stdout: &str) -> Option<Addresses> {
    let (list, _) = stdout.split_once("\nTry: ")?;
    let after = |kind: &str| {
        let address = |line: &str| {
            line.trim_start().strip_prefix(kind)?.trim().trim_start_matches("http://").trim_end_matches('/').parse().ok()
        };
        list.lines().find_map(address)
    };
    let none = SocketAddr::from(([0, 0, 0, 0], 0));
    let websocket = after("Websocket Listener").unwrap_or(none);
    Some(Addresses { mqtt: after("TCP Listener")?, websocket, http: after("Status and metrics")? })
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.process.take() {
            _ = child.kill();
            _ = child.wait();
        }
        if !std::thread::panicking() {
            return;
        }
        for start in 1..=self.starts {
            for kind in ["stdout", "stderr"] {
                let text = read(&self.home.join(format!("{kind}-{start}")));
                let lines: Vec<&str> = text.lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                eprintln!("---- {} start {start} {kind}, last {} of {} lines", self.name, shown.len(), lines.len());
                shown.iter().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}
