//! The nodes of a cluster, or one that is none, as processes of their own, on free ports of this machine.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::environment::{Program, bench_directory, keeps_directories};
use super::{Failure, proc};

pub use troupemq::config::settings::SHARDS;

const READY_WITHIN: Duration = Duration::from_secs(60);
const HTTP_TIMEOUT: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(20);

/// All processes that run, for the way out that no destructor sees.
static RUNNING: Mutex<Vec<Arc<Mutex<Child>>>> = Mutex::new(Vec::new());

/// Three nodes, unless its shape says one.
pub struct Trio {
    pub nodes: Vec<Node>,
    _directory: TempDir,
}

/// What differs between benches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shape<'a> {
    /// 1: a node that is no cluster.
    pub nodes: usize,
    /// Messages an offline session may have queued.
    pub queue_max: usize,
    /// More sections of the configuration.
    pub more: &'a str,
    /// How the TCP listener protects the node from connects; empty: not at all.
    pub protection: &'a str,
    /// More listeners.
    pub listeners: &'a str,
}

const UNPROTECTED: &str = "<connect-overload-protection><enabled>false</enabled></connect-overload-protection>";

pub struct Node {
    pub mqtt: SocketAddr,
    http: SocketAddr,
    program: PathBuf,
    home: PathBuf,
    child: Option<Arc<Mutex<Child>>>,
}

impl Trio {
    /// Starts three nodes and waits until all serve. `queue_max`: messages an offline session may have queued.
    pub fn start(program: &Program, queue_max: usize) -> Result<Self, Failure> {
        Self::start_as(program, &Shape { nodes: 3, queue_max, more: "", ..Shape::default() })
    }

    /// Starts the nodes and waits until all serve.
    pub fn start_as(program: &Program, shape: &Shape<'_>) -> Result<Self, Failure> {
        let directory =
            tempfile::Builder::new().prefix("nodes-").disable_cleanup(keeps_directories()).tempdir_in(bench_directory()?)?;
        // Held until all are drawn, so that no port is drawn twice.
        let listeners: Vec<TcpListener> =
            (0..3 * shape.nodes).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
        let ports: Vec<u16> =
            listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<_, Failure>>()?;
        drop(listeners);
        let mut nodes = Vec::new();
        for index in 0..shape.nodes {
            let home = directory.path().join(format!("node{}", index + 1));
            fs::create_dir_all(&home)?;
            fs::write(home.join("config.xml"), config(index, &ports, shape))?;
            nodes.push(Node {
                mqtt: SocketAddr::from((Ipv4Addr::LOCALHOST, ports[index])),
                http: SocketAddr::from((Ipv4Addr::LOCALHOST, ports[shape.nodes + index])),
                program: program.path.clone(),
                home,
                child: None,
            });
        }
        let mut trio = Self { nodes, _directory: directory };
        trio.start_all()?;
        trio.wait_ready()?;
        Ok(trio)
    }

    pub fn start_all(&mut self) -> Result<(), Failure> {
        self.nodes.iter_mut().try_for_each(Node::launch)
    }

    /// Waits until all nodes are ready and see all alive.
    pub fn wait_ready(&self) -> Result<(), Failure> {
        let began = Instant::now();
        for node in &self.nodes {
            loop {
                let samples = node.samples();
                if samples.get("troupemq_ready") == Some(&1.0)
                    && samples.get("com_hivemq_cluster_nodes_count") == Some(&(self.nodes.len() as f64))
                {
                    break;
                }
                if began.elapsed() > READY_WITHIN {
                    return Err(format!("{} is not ready; its log: {}", node.home.display(), node.log_tail()).into());
                }
                thread::sleep(POLL);
            }
        }
        Ok(())
    }

    /// Waits until leadership is spread evenly, as it is some time after a start.
    pub fn wait_spread(&self) -> Result<(), Failure> {
        if self.nodes.len() != 3 {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            let mut led = [0; 3];
            self.leaders().into_values().for_each(|node| led[node] += 1);
            // The nodes spread all groups, `meta` with the shards.
            let share = (usize::from(SHARDS) + 1).div_ceil(3);
            if led.iter().sum::<usize>() == usize::from(SHARDS) && led.iter().all(|led| *led <= share) {
                return Ok(());
            }
            if began.elapsed() > READY_WITHIN {
                return Err(format!("leadership is not spread: {led:?}").into());
            }
            thread::sleep(POLL * 10);
        }
    }

    pub fn mqtt(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.mqtt).collect()
    }

    /// The leader of each shard once each has one: between the old one and the new none says that it leads.
    pub fn wait_leaders(&self) -> Result<HashMap<u16, usize>, Failure> {
        let began = Instant::now();
        loop {
            let leaders = self.leaders();
            if leaders.len() == usize::from(SHARDS) {
                return Ok(leaders);
            }
            if began.elapsed() > READY_WITHIN {
                return Err(format!("not every shard has a leader: {leaders:?}").into());
            }
            thread::sleep(POLL * 10);
        }
    }

    /// The node that leads each shard, as the leaders themselves say.
    pub fn leaders(&self) -> HashMap<u16, usize> {
        let mut leaders = HashMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let samples = node.samples();
            for shard in 0..SHARDS {
                if samples.get(&format!("troupemq_raft_is_leader{{group=\"{shard}\"}}")) == Some(&1.0) {
                    leaders.insert(shard, index);
                }
            }
        }
        leaders
    }

    /// The terms of all groups added up: grows with each election.
    pub fn terms(&self) -> f64 {
        let groups = |node: &Node| {
            let samples = node.samples().into_iter();
            samples.filter(|(name, _)| name.starts_with("troupemq_raft_term{")).map(|(_, term)| term).sum::<f64>()
        };
        self.nodes.iter().map(groups).fold(0.0, f64::max)
    }

    /// Sums over the nodes of what a scrape says under a name, all labels.
    pub fn sum(&self, name: &str) -> f64 {
        let of = |node: &Node| {
            let samples = node.samples().into_iter();
            samples.filter(|(key, _)| key.split('{').next() == Some(name)).map(|(_, value)| value).sum::<f64>()
        };
        self.nodes.iter().map(of).sum()
    }

    pub fn cpu_time(&self) -> Duration {
        let pids = self.nodes.iter().filter_map(Node::pid);
        pids.filter_map(|pid| proc::cpu_time(pid).ok()).sum()
    }

    pub fn resident_bytes(&self) -> Vec<u64> {
        self.nodes.iter().filter_map(Node::pid).filter_map(|pid| proc::resident_bytes(pid).ok()).collect()
    }
}

impl Node {
    pub fn launch(&mut self) -> Result<(), Failure> {
        let log = File::options().create(true).append(true).open(self.home.join("log"))?;
        let child = Command::new(&self.program)
            .args(["start", "--log", "info", "--config"])
            .arg(self.home.join("config.xml"))
            .arg("--data")
            .arg(self.home.join("data"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let child = Arc::new(Mutex::new(child));
        RUNNING.lock().unwrap().push(Arc::clone(&child));
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL; returns when it was sent. The process is reaped later.
    pub fn kill(&mut self) -> Instant {
        if let Some(child) = &self.child {
            let _ = child.lock().unwrap().kill();
        }
        Instant::now()
    }

    /// Waits until a killed process is gone.
    pub fn reap(&mut self) {
        if let Some(child) = self.child.take() {
            end(&child);
            RUNNING.lock().unwrap().retain(|running| !Arc::ptr_eq(running, &child));
        }
    }

    /// SIGSTOP or SIGCONT.
    pub fn signal(&self, name: &str) -> Result<Instant, Failure> {
        let pid = self.pid().ok_or("the node does not run")?;
        let status = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status()?;
        if status.success() { Ok(Instant::now()) } else { Err(format!("kill -{name} failed").into()) }
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(|child| child.lock().unwrap().id())
    }

    /// The metrics page by name with labels; empty where nobody answers.
    pub fn samples(&self) -> HashMap<String, f64> {
        let page = get(self.http, "/metrics").unwrap_or_default();
        let lines = page.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' ').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?))))
            .collect()
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for Trio {
    fn drop(&mut self) {
        self.nodes.iter_mut().for_each(Node::reap);
    }
}

/// Ends all nodes that this bench started.
pub fn kill_all() {
    RUNNING.lock().unwrap().drain(..).for_each(|child| end(&child));
}

/// Makes SIGINT and SIGTERM end the nodes too.
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

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

/// Ports: MQTT of all nodes, then HTTP, then peers.
fn config(index: usize, ports: &[u16], shape: &Shape<'_>) -> String {
    let Shape { nodes, queue_max, more, protection, listeners } = *shape;
    let protection = if protection.is_empty() { UNPROTECTED } else { protection };
    let mut cluster = String::new();
    if nodes > 1 {
        let mut peers = String::new();
        for port in &ports[2 * nodes..] {
            _ = write!(peers, "<node><host>127.0.0.1</host><port>{port}</port></node>");
        }
        cluster = format!(
            "    <cluster><enabled>true</enabled><node-name>node{}</node-name><secret>only-for-the-bench-on-loopback</secret>
        <transport><tcp><bind-address>127.0.0.1</bind-address><bind-port>{}</bind-port></tcp></transport>
        <discovery><static>{peers}</static></discovery><shards>{SHARDS}</shards></cluster>\n",
            index + 1,
            ports[2 * nodes + index],
        );
    }
    format!(
        "<hivemq>
    <listeners><tcp-listener><port>{}</port><bind-address>127.0.0.1</bind-address>
        {protection}</tcp-listener>{listeners}</listeners>
    <http><port>{}</port><bind-address>127.0.0.1</bind-address></http>
    <mqtt>
        <receive-maximum><server-receive-maximum>1000</server-receive-maximum></receive-maximum>
        <queued-messages><max-queue-size>{queue_max}</max-queue-size></queued-messages>
    </mqtt>
{cluster}    <persistence><mode>file</mode></persistence>
{more}</hivemq>
",
        ports[index],
        ports[nodes + index],
    )
}
