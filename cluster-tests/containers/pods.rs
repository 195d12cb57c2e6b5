//! Containers that stand in for the pods of a StatefulSet.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::engine::{Engine, IMAGE};
use crate::harness::permit::{Permit, Weight, acquire};
use crate::harness::script::Finished;
use crate::harness::{http, wait};

/// As in the chart: longer than `shutdown/timeout`.
const GRACE_S: &str = "30";
/// What the issue asks of a new cluster, and of one that was killed, is 10 s; the debug build, and a machine that is busy with other tests,
/// take longer.
pub const READY: Duration = Duration::from_secs(45);
const HTTP_PORT: u16 = 8080;
pub const MQTT_PORT: u16 = 1883;

/// Where the pods are that run, by number; shared with whoever sends clients to them.
pub type Places = Arc<Mutex<BTreeMap<usize, Ipv4Addr>>>;

pub struct Pods {
    pub engine: &'static Engine,
    /// What all their names begin with, and the name that stands for all their addresses, as that of a headless service.
    pub name: String,
    prefix: String,
    next_address: AtomicU8,
    pub places: Places,
    /// What `start` starts.
    pub image: String,
    /// The name whose addresses the pods take for the nodes.
    pub discovery: String,
    /// A name server for what the engine does not know.
    pub name_server: Option<Ipv4Addr>,
    _permit: Permit,
}

impl Pods {
    /// None yet. `None`: skipped.
    pub fn new(test: &str, name: &str, weight: Weight) -> Option<Self> {
        let permit = acquire(weight);
        let engine = super::engine::engine(test)?;
        let prefix = engine.network(name);
        Some(Self {
            engine,
            name: name.to_owned(),
            prefix,
            next_address: AtomicU8::new(10),
            places: Places::default(),
            image: IMAGE.to_owned(),
            discovery: name.to_owned(),
            name_server: None,
            _permit: permit,
        })
    }

    /// As many, started at the same moment with empty volumes, all ready.
    pub fn ready(test: &str, name: &str, weight: Weight, count: usize) -> Option<Self> {
        let pods = Self::new(test, name, weight)?;
        pods.start_all(0..count, count);
        pods.wait_ready(0..count);
        Some(pods)
    }

    pub fn pod(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    fn volume(&self, index: usize) -> String {
        format!("{}-data-{index}", self.name)
    }

    /// What the addresses of the network begin with, such as `10.176.3.`.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Starts a pod at an address that no pod has had. `expected`: how many nodes it is told to found a cluster with.
    pub fn start(&self, index: usize, expected: usize) {
        self.start_image(index, expected, &self.image);
    }

    pub fn start_image(&self, index: usize, expected: usize, image: &str) {
        let (pod, address) = (self.pod(index), self.unused_address());
        let (data, expected) =
            (format!("{}:/opt/hivemq/data", self.volume(index)), format!("TROUPEMQ_EXPECTED_NODES={expected}"));
        let (ip, discovery) = (address.to_string(), format!("HIVEMQ_DNS_DISCOVERY_ADDRESS={}", self.discovery));
        let mut arguments = vec!["run", "--detach", "--name", &pod, "--hostname", &pod, "--network", &self.name, "--ip", &ip];
        arguments.extend(["--network-alias", &self.name, "--volume", &data, "--read-only", "--cap-drop", "ALL"]);
        for variable in ["TROUPEMQ_CLUSTER=true", "TROUPEMQ_CLUSTER_SECRET=a-secret-of-the-tests", &discovery, &expected] {
            arguments.extend(["--env", variable]);
        }
        let name_server = self.name_server.map(|address| address.to_string());
        if let Some(address) = &name_server {
            arguments.extend(["--dns", address]);
        }
        arguments.push(image);
        self.engine.docker(&arguments);
        self.places.lock().expect("no panic").insert(index, address);
    }

    pub fn start_all(&self, indices: impl IntoIterator<Item = usize>, expected: usize) {
        std::thread::scope(|scope| {
            for index in indices {
                scope.spawn(move || self.start(index, expected));
            }
        });
    }

    pub fn unused_address(&self) -> Ipv4Addr {
        let last = self.next_address.fetch_add(1, Ordering::Relaxed);
        format!("{}{last}", self.prefix).parse().expect("an address")
    }

    /// SIGTERM, the grace period, and the pod is gone; its exit status.
    pub fn terminate(&self, index: usize) -> i32 {
        let pod = self.pod(index);
        self.engine.docker(&["stop", "--time", GRACE_S, &pod]);
        let status = self.engine.docker(&["inspect", "--format", "{{.State.ExitCode}}", &pod]);
        self.remove(index);
        status.parse().expect("a number")
    }

    /// SIGKILL to all of these at once, and the pods are gone.
    pub fn kill(&self, indices: impl IntoIterator<Item = usize>) {
        let indices: Vec<usize> = indices.into_iter().collect();
        let names: Vec<String> = indices.iter().map(|index| self.pod(*index)).collect();
        let mut arguments = vec!["kill"];
        arguments.extend(names.iter().map(String::as_str));
        self.engine.docker(&arguments);
        indices.into_iter().for_each(|index| self.remove(index));
    }

    fn remove(&self, index: usize) {
        self.engine.docker(&["rm", "--force", "--volumes", &self.pod(index)]);
        self.places.lock().expect("no panic").remove(&index);
    }

    /// Of a pod that is gone.
    pub fn lose_volume(&self, index: usize) {
        self.engine.docker(&["volume", "rm", &self.volume(index)]);
    }

    pub fn address(&self, index: usize) -> Ipv4Addr {
        let places = self.places.lock().expect("no panic");
        *places.get(&index).unwrap_or_else(|| panic!("{} does not run", self.pod(index)))
    }

    pub fn mqtt(&self, index: usize) -> SocketAddr {
        (self.address(index), MQTT_PORT).into()
    }

    /// `troupemq` with these arguments, in the pod.
    pub fn exec(&self, index: usize, arguments: &[&str]) -> Finished {
        let pod = self.pod(index);
        self.engine.try_docker(&[&["exec", &pod, "troupemq"][..], arguments].concat())
    }

    pub fn is_ready(&self, index: usize) -> bool {
        probe(self.address(index), "readiness").is_some_and(|(status, _)| status == 200)
    }

    pub fn is_alive(&self, index: usize) -> bool {
        probe(self.address(index), "liveness").is_some_and(|(status, _)| status == 200)
    }

    /// Waits until these are ready; how long that took.
    #[track_caller]
    pub fn wait_ready(&self, indices: impl IntoIterator<Item = usize>) -> Duration {
        let began = Instant::now();
        for index in indices {
            let deadline = began + READY;
            while !self.is_ready(index) {
                assert!(
                    Instant::now() < deadline,
                    "{} is not ready within {READY:?}: {:?}\n{}",
                    self.pod(index),
                    probe(self.address(index), "readiness"),
                    self.engine.logs(&self.pod(index))
                );
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        began.elapsed()
    }

    /// Waits until a pod counts so many members alive.
    #[track_caller]
    pub fn wait_members(&self, index: usize, count: u64) {
        wait::until(&format!("{} sees {count} nodes alive", self.pod(index)), READY, || {
            let (_, body) = probe(self.address(index), "cluster")?;
            let body: serde_json::Value = serde_json::from_str(&body).ok()?;
            (body["details"]["cluster-size"].as_u64() == Some(count)).then_some(())
        });
    }

    /// The id of the cluster that a pod is in.
    pub fn cluster_id(&self, index: usize) -> Option<String> {
        let (_, body) = probe(self.address(index), "cluster")?;
        let body: serde_json::Value = serde_json::from_str(&body).ok()?;
        body["details"]["cluster-id"].as_str().map(str::to_owned)
    }

    /// What a pod that is not ready waits for.
    pub fn waits_for(&self, index: usize) -> Option<String> {
        let (_, body) = probe(self.address(index), "cluster")?;
        let body: serde_json::Value = serde_json::from_str(&body).ok()?;
        body["details"]["waiting-for"].as_str().map(str::to_owned)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        let all = std::mem::take(&mut *self.places.lock().expect("no panic"));
        let names: Vec<String> = all.keys().map(|index| self.pod(*index)).collect();
        if std::thread::panicking() {
            for name in &names {
                let log = self.engine.logs(name);
                let from = log.lines().count().saturating_sub(60);
                eprintln!("--- {name}\n{}", log.lines().skip(from).collect::<Vec<_>>().join("\n"));
            }
        }
        let mut arguments = vec!["rm", "--force", "--volumes"];
        arguments.extend(names.iter().map(String::as_str));
        _ = self.engine.try_docker(&arguments);
        _ = self.engine.try_docker(&["network", "rm", &self.name]);
        for index in 0..=4 {
            _ = self.engine.try_docker(&["volume", "rm", "--force", &self.volume(index)]);
        }
    }
}

/// What the kubelet asks; status code and body.
pub fn probe(address: Ipv4Addr, path: &str) -> Option<(u16, String)> {
    http::get((address, HTTP_PORT).into(), &format!("/api/v1/health/{path}"))
}
