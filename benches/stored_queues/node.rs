//! The node that is measured.

use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;

const READY_WITHIN: Duration = Duration::from_secs(120);

pub struct Node {
    pub address: SocketAddr,
    process: Child,
    /// On the disk of the build, not in memory.
    home: TempDir,
}

impl Node {
    pub fn start() -> Self {
        let home = tempfile::Builder::new().prefix("stored-queues-").tempdir_in(target()).expect("a directory");
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let port = free();
        fs::write(home.path().join("config.xml"), config(port, free())).unwrap();
        let process = launch(&home);
        let node = Self { address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)), process, home };
        node.await_ready();
        node
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Returns when a client is let in.
    pub fn start_again(&mut self) {
        self.process = launch(&self.home);
        self.await_ready();
    }

    /// Bytes of resident memory.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most it was since the start.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("the node runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("memory in /proc/PID/status");
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    fn await_ready(&self) {
        let began = Instant::now();
        while !Client::is_served(self.address) {
            let log = || fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
            assert!(began.elapsed() < READY_WITHIN, "the node is not ready; its log: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `target/release/troupemq`, found from `target/release/deps/stored_queues-..`, or what the environment says.
pub fn program() -> PathBuf {
    env::var_os("TROUPEMQ_BENCH_BROKER").map_or_else(|| target().join("release/troupemq"), PathBuf::from)
}

fn target() -> PathBuf {
    env::current_exe().unwrap().ancestors().nth(3).expect("the bench lies in a target directory").to_owned()
}

fn launch(home: &TempDir) -> Child {
    let path = |name: &str| home.path().join(name);
    let log = File::options().create(true).append(true).open(path("log")).unwrap();
    let mut command = Command::new(program());
    command.args(["start", "--log", "warn", "--config"]).arg(path("config.xml")).arg("--data").arg(path("data"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("the program starts")
}

fn config(port: u16, http_port: u16) -> String {
    format!(
        "<hivemq>
    <listeners>
        <tcp-listener>
            <port>{port}</port><bind-address>127.0.0.1</bind-address>
            <connect-overload-protection><enabled>false</enabled></connect-overload-protection>
        </tcp-listener>
    </listeners>
    <http><port>{http_port}</port><bind-address>127.0.0.1</bind-address></http>
    <mqtt>
        <receive-maximum><server-receive-maximum>1000</server-receive-maximum></receive-maximum>
        <queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>
    </mqtt>
    <persistence><mode>file</mode></persistence>
</hivemq>
"
    )
}
