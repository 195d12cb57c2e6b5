//! README's fail-over to watch: `make cluster` and the blocks marked `sh fail-over` as they stand there, but for the ports, and what they print is held
//! against what README says they print.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use troupemq::config::settings::SHARDS;

use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{interop_skipped, run};
use crate::harness::{SOON, http, ports, program, repository, wait};
use crate::kubernetes::guide::blocks_of;

const README: &str = "README.md";
const MARK: &str = "sh fail-over";
/// What the files of `config/cluster` and the blocks have; each node has one of each kind.
const PORTS: [[u16; 3]; 4] = [[1883, 1884, 1885], [8000, 8001, 8002], [8080, 8081, 8082], [7001, 7002, 7003]];
const HTTP: [u16; 3] = PORTS[2];
const START: Duration = Duration::from_secs(60);
/// `meta` and the shards.
const GROUPS: usize = SHARDS as usize + 1;
/// Printed behind what a block prints.
const DONE: &str = "-- the block is done --";

/// The files of `make cluster` in a folder of their own, with other ports.
struct Cluster {
    folder: tempfile::TempDir,
    ports: HashMap<u16, u16>,
    make: Child,
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("fail-over-").tempdir().expect("a directory");
        let path = folder.path();
        let ports: HashMap<u16, u16> = PORTS.iter().flatten().map(|port| (*port, ports::reserve())).collect();
        fs::create_dir_all(path.join("target/release")).expect("a directory");
        symlink(program(), path.join("target/release/troupemq")).expect("a link");
        symlink(repository().join("Makefile"), path.join("Makefile")).expect("a link");
        let to = path.join("config/cluster");
        fs::create_dir_all(&to).expect("a directory");
        let files = ["node1.xml", "node2.xml", "node3.xml"];
        for file in files {
            let text = fs::read_to_string(repository().join("config/cluster").join(file)).expect("a file");
            fs::write(to.join(file), with_ports(&text, &ports)).expect("a file");
        }
        fs::copy(repository().join("config/cluster/run.sh"), to.join("run.sh")).expect("a file");
        // The program is built already.
        let mut make = Command::new("make");
        make.args(["-s", "-o", "build", "cluster"]).current_dir(path).stdin(Stdio::null());
        let log = fs::File::create(path.join("make.log")).expect("a file");
        let make = make.stdout(log.try_clone().expect("a file")).stderr(log).spawn().expect("make starts");
        Self { folder, ports, make }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn http(&self, index: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[&HTTP[index]]))
    }

    fn samples(&self, index: usize) -> Option<HashMap<String, f64>> {
        let (status, page) = http::get(self.http(index), "/metrics")?;
        (status == 200).then(|| http::samples(&page))
    }

    fn wait_ready(&self, nodes: &[usize]) {
        for index in nodes {
            wait::until("a node is ready, and so are the others", START, || {
                let (status, _) = http::get(self.http(*index), "/api/v1/health/readiness")?;
                let alive = self.samples(*index)?.get("com_hivemq_cluster_nodes_count").copied();
                (status == 200 && alive == Some(nodes.len() as f64)).then_some(())
            });
        }
    }

    /// The founder leads everything, but where the machine was so busy that others stood in.
    fn lead(&self, name: &str) {
        wait::until("the first node leads all groups", SOON, || {
            if by_group(&self.samples(0)?, "is_leader").iter().filter(|value| **value == 1.0).count() == GROUPS {
                return Some(());
            }
            let mut command = Command::new(program());
            command.args(["cluster", "transfer-leadership", "--to", name, "--data", "data-cluster/node2"]);
            run(command.current_dir(self.path()), SOON);
            None
        });
    }

    /// Subscriptions in the whole cluster.
    fn wait_subscriptions(&self, count: usize) {
        wait::until(&format!("{count} subscriptions"), SOON, || {
            let of = |index| self.samples(index)?.get("com_hivemq_subscriptions_overall_current").copied();
            let sum: f64 = (0..3).map(of).sum::<Option<f64>>()?;
            (sum == count as f64).then_some(())
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path().join("make.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for name in ["node1", "node2", "node3"] {
            let pid = fs::read_to_string(self.path().join(format!("data-cluster/{name}.pid"))).unwrap_or_default();
            if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
                _ = kill_process(pid, Signal::KILL);
            }
        }
        // It ends when no node is left.
        _ = self.make.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A terminal: what is typed into it is done one after the other, by one shell.
struct Terminal {
    shell: Child,
    input: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Terminal {
    fn open(folder: &Path) -> Self {
        let mut shell = Command::new("bash");
        shell.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("bash starts");
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(shell.stdout.take().expect("piped"));
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let input = shell.stdin.take().expect("piped");
        Self { shell, input, lines }
    }

    /// Types, and waits until the shell wants more. Returns what was printed.
    fn run(&mut self, text: &str) -> Vec<String> {
        writeln!(self.input, "{text}echo '{DONE}'").expect("bash reads");
        let mut printed = Vec::new();
        loop {
            let line = self.lines.recv_timeout(SOON).unwrap_or_else(|_| panic!("{text} does not end; it printed {printed:?}"));
            if line == DONE {
                return printed;
            }
            printed.push(line);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The clients that it left in the background.
        _ = self.input.write_all(b"kill $(jobs -p)\nexit\n");
        _ = self.shell.wait();
    }
}

/// The text with each port that is in the map replaced.
fn with_ports(text: &str, ports: &HashMap<u16, u16>) -> String {
    let mut made = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let number = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        match number.parse().ok().and_then(|port: u16| ports.get(&port)) {
            Some(port) => made += &part.replacen(number, &port.to_string(), 1),
            None => made += part,
        }
    }
    made
}

/// The values of a metric of all Raft groups.
fn by_group(samples: &HashMap<String, f64>, name: &str) -> Vec<f64> {
    let prefix = format!("troupemq_raft_{name}{{");
    samples.iter().filter(|(series, _)| series.starts_with(&prefix)).map(|(_, value)| *value).collect()
}

/// Not the watcher's own connection, which it sees if it subscribes before that is told.
fn is_told(event: &str) -> bool {
    !event.contains("/client-id/watcher ")
}

/// Whether a line is what README has, in which `…` stands for anything, and so does a time.
fn is_like(line: &str, told: &str) -> bool {
    let mut pieces = told.split('…').flat_map(without_time);
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else { return false };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.is_empty()
}

/// What stands around a time, where there is one.
fn without_time(piece: &str) -> Vec<&str> {
    let name = "\"Timestamp\":";
    match piece.find(name) {
        Some(at) => {
            let (before, time) = piece.split_at(at + name.len());
            vec![before, time.trim_start_matches(|c: char| c.is_ascii_digit())]
        }
        None => vec![piece],
    }
}

#[test]
fn what_readme_tells_of_a_fail_over_happens() {
    if interop_skipped("README's fail-over") {
        return;
    }
    let _permit = acquire(Weight::Cluster);
    let all = blocks_of(README);
    let typed: Vec<String> = all.iter().filter(|block| block.info == MARK).map(|block| block.text.clone()).collect();
    // What a block prints stands behind it.
    let printed: Vec<&str> =
        all.windows(2).filter(|pair| pair[0].info == MARK && pair[1].info == "text").map(|pair| pair[1].text.as_str()).collect();
    let [watcher, pump, kill, publish, events, metrics] = &typed[..] else { panic!("{} blocks", typed.len()) };
    let [message, told_events, told_metrics] = printed[..] else { panic!("{} outputs", printed.len()) };

    let cluster = Cluster::start();
    cluster.wait_ready(&[0, 1, 2]);
    cluster.lead("node1");
    let mut terminal = Terminal::open(cluster.path());
    let mut run = |block: &str| terminal.run(&with_ports(block, &cluster.ports));
    assert!(run(watcher).is_empty());
    cluster.wait_subscriptions(1);
    assert!(run(pump).is_empty());
    cluster.wait_subscriptions(2);
    let lines = |count: usize| {
        wait::until(&format!("{count} events"), SOON, || {
            let text = fs::read_to_string(cluster.path().join("events.txt")).ok()?;
            (text.lines().filter(|line| is_told(line)).count() >= count).then_some(())
        });
    };
    lines(1);
    assert!(run(kill).is_empty());
    // Whoever types takes as long.
    cluster.wait_ready(&[1, 2]);
    assert_eq!(run(publish), message.lines().collect::<Vec<_>>());

    let told: Vec<String> = told_events.lines().map(|line| with_ports(line, &cluster.ports)).collect();
    lines(told.len());
    let seen: Vec<String> = run(events).into_iter().filter(|line| is_told(line)).collect();
    assert_eq!(seen.len(), told.len(), "each event once: {seen:?}");
    for client in ["client-id/pump ", "client-id/sensor "] {
        // In order for each client; events of two may come in any order.
        let of = |lines: &[String]| lines.iter().filter(|line| line.contains(client)).cloned().collect::<Vec<_>>();
        let (seen, told) = (of(&seen), of(&told));
        assert_eq!(seen.len(), told.len(), "{client}: {seen:?}");
        for (seen, told) in seen.iter().zip(&told) {
            assert!(is_like(seen, told), "{seen}\nis not what README says:\n{told}");
        }
    }

    let counted = run(metrics);
    let (seen, told) = (http::samples(&counted.join("\n")), http::samples(told_metrics));
    let unknown: Vec<&String> = told.keys().filter(|name| !seen.contains_key(*name)).collect();
    assert!(unknown.is_empty() && told.len() >= 6, "README has {unknown:?}, which is not in {counted:?}");
    for same in ["com_hivemq_cluster_nodes_count", "troupemq_raft_failover_seconds_count"] {
        assert_eq!(seen[same], told[same], "{same}");
    }
    let leads = by_group(&seen, "is_leader");
    assert_eq!(leads.len(), GROUPS, "{counted:?}");
    let seconds = seen["troupemq_raft_failover_seconds_sum"];
    assert!(seconds > 0.0, "nobody led for a while");
    let log = cluster.log();
    let again = "target/release/troupemq start --config";
    assert!(log.contains("node1 was killed (signal 9)") && log.contains(again), "how to start it again is said: {log}");
}

#[test]
fn ports_are_replaced_and_nothing_else() {
    let ports = HashMap::from([(1883, 20_001), (8080, 20_002)]);
    assert_eq!(with_ports("-p 1883 :8080/x 18830 21883 1883", &ports), "-p 20001 :20002/x 18830 21883 20001");
    let told = r#"a {"Timestamp":1796091418980,…,"port":1883,…}"#;
    assert!(is_like(r#"a {"Timestamp":1700000000000,"x":1,"port":1883,"y":2}"#, told));
    assert!(!is_like(r#"a {"Timestamp":1700000000000,"x":1,"port":1884,"y":2}"#, told));
    assert!(!is_like(r#"b {"Timestamp":1700000000000,"x":1,"port":1883,"y":2}"#, told));
}
