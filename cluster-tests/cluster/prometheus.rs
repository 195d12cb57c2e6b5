//! A real Prometheus watches three nodes.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::permit::Weight;
use crate::harness::script::{Running, interop_skipped, run, start};
use crate::harness::trio::{Trio, leaders};
use crate::harness::{SOON, http, ports, repository, wait};
use crate::node::monitoring::{FILES, read, series, unknown};

/// Prometheus looks for its targets when it has run for 5 s.
const SCRAPED: Duration = Duration::from_secs(30);
const MESSAGES: u32 = 7;

struct Prometheus {
    address: SocketAddr,
    /// Ends with this.
    _running: Running,
}

impl Prometheus {
    /// Scrapes these every second and evaluates the alert rules.
    fn start(folder: &Path, targets: &[SocketAddr]) -> Self {
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let alerts = repository().join("config/monitoring/alerts.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
             scrape_configs: [{{job_name: troupemq, metrics_path: /broker, static_configs: [{{targets: [{}]}}]}}]\n",
            alerts.display(),
            targets.join(", ")
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).expect("a file");
        let address = SocketAddr::from(([127, 0, 0, 1], ports::reserve()));
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={address}")).arg("--log.level=error");
        let running = start(&mut command);
        Self { address, _running: running }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let (status, body) = http::get(self.address, path)?;
        (status == 200).then(|| serde_json::from_str(&body).expect("JSON"))
    }

    /// Value and labels of each result; none where Prometheus does not answer yet.
    fn query(&self, query: &str) -> Vec<(f64, Value)> {
        let encoded: String = query
            .bytes()
            .map(|b| if b.is_ascii_alphanumeric() || b == b'_' { char::from(b).to_string() } else { format!("%{b:02X}") })
            .collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        let results = answer.as_ref().and_then(|answer| answer["data"]["result"].as_array());
        let value = |result: &Value| {
            (result["value"][1].as_str().and_then(|n| n.parse().ok()).expect("a number"), result["metric"].clone())
        };
        results.into_iter().flatten().map(value).collect()
    }

    /// Waits until a query has one result, and that is this.
    fn wait_for(&self, query: &str, expected: f64) {
        wait::until(&format!("{query} is {expected}"), SCRAPED, || {
            matches!(self.query(query)[..], [(value, _)] if value == expected).then_some(())
        });
    }
}

/// What promtool says, given this on its standard input; nothing where it finds no fault.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts: run `make test-needs` (or set TROUPEMQ_SKIP_INTEROP=1)");
    // It reads all before it says a word.
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}

/// Issue 7: three nodes are watched, one is killed, and that is seen.
#[tokio::test]
async fn prometheus_watches_three_nodes_and_sees_one_fail() {
    if interop_skipped("prometheus") {
        return;
    }
    let metrics: Vec<SocketAddr> = (0..3).map(|_| SocketAddr::from(([127, 0, 0, 1], ports::reserve()))).collect();
    let mut trio = Trio::ready_with(Weight::Cluster, |config| {
        let name = config.cluster.as_ref().map(|cluster| cluster.node_name.clone()).unwrap_or_default();
        let number: usize = name.trim_start_matches("node").parse().expect("a node's number");
        let port = metrics[number - 1].port();
        config.more += &format!("<prometheus><port>{port}</port><metric-path>/broker</metric-path></prometheus>");
    });
    let folder = tempfile::tempdir().expect("a folder");
    let prometheus = Prometheus::start(folder.path(), &metrics);

    // While it starts: persistent sessions, messages for one that is away.
    for number in 0..3 {
        let options = Options::v5(&format!("sleeper-{number}")).persistent();
        let mut sleeper = Client::connect(trio.mqtt(number), &options).await;
        sleeper.subscribe("sleepers", QoS::AtLeastOnce).await;
        sleeper.disconnect().await;
    }
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for _ in 0..MESSAGES {
        publisher.publish("sleepers", b"x", QoS::AtLeastOnce).await;
    }

    for (address, path) in [(metrics[0], "/broker"), (trio.nodes[0].http(), "/metrics")] {
        let (_, page) = http::get(address, path).expect("metrics");
        assert_eq!(promtool(&["check", "metrics"], &page), "", "{path}");
    }
    let files = ["config/monitoring/alerts.yml", "config/monitoring/prometheus.yml"];
    for (kind, file) in ["rules", "config"].into_iter().zip(files) {
        let file = repository().join(file).display().to_string();
        let finished = run(Command::new("promtool").args(["check", kind, &file]), SOON);
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }

    prometheus.wait_for("sum(up)", 3.0);
    prometheus.wait_for("sum(troupemq_ready)", 3.0);
    // What is replicated is told by the leader: nodes added up give the cluster's number.
    prometheus.wait_for("sum(com_hivemq_sessions_persistent_active)", 3.0);
    prometheus.wait_for("sum(com_hivemq_messages_queued_count)", f64::from(3 * MESSAGES));
    prometheus.wait_for("sum(com_hivemq_messages_incoming_publish_count)", f64::from(MESSAGES));
    prometheus.wait_for("sum(com_hivemq_messages_incoming_publish_bytes_count)", f64::from(MESSAGES));
    prometheus.wait_for("max(com_hivemq_networking_connections_mean_count) > bool 0", 1.0);
    prometheus.wait_for("min(com_hivemq_system_os_global_memory_available) > bool 0", 1.0);
    prometheus.wait_for("min(com_hivemq_jvm_memory_heap_used) > bool 0", 1.0);
    let shorter = "sum(troupemq_queue_messages_bucket{queue=\"session\",le=\"1\"})";
    prometheus.wait_for(shorter, 0.0);
    prometheus.wait_for("sum(troupemq_queue_messages_bucket{queue=\"session\",le=\"10\"})", 3.0);
    // Two classes of links to two others each.
    prometheus.wait_for("sum(troupemq_peer_link_up)", 12.0);
    prometheus.wait_for("sum(troupemq_peer_link_encrypted)", 0.0);
    for moves in [
        "min(troupemq_peer_link_sent_bytes_total) > bool 0",
        "min(troupemq_storage_flush_duration_seconds_count) > bool 0",
        "min(troupemq_storage_log_bytes) > bool 0",
        "min(troupemq_event_loop_lag_seconds_count) > bool 0",
    ] {
        prometheus.wait_for(moves, 1.0);
    }
    let names = prometheus.get("/api/v1/label/__name__/values").expect("names");
    let known: BTreeSet<&str> = names["data"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for file in FILES {
        let text = read(file);
        let missing = unknown(&series(&text), &known);
        assert!(missing.is_empty(), "{file} names what Prometheus does not know: {missing:?}");
    }

    // One that leads something.
    let leads_meta = |(group, leader): (String, usize)| (group == "meta").then_some(leader);
    let dead = leaders(&trio.nodes[0]).and_then(|all| all.into_iter().find_map(leads_meta)).expect("meta has a leader");
    let of_others = |series: &str| format!("sum({series}{{instance!=\"{}\"}})", metrics[dead]);
    let counted = ["troupemq_raft_failover_seconds_count", "troupemq_raft_leader_changes_total"].map(of_others);
    let before: Vec<f64> = counted.iter().filter_map(|query| prometheus.query(query).first().map(|(value, _)| *value)).collect();
    trio.nodes[dead].kill();
    prometheus.wait_for("sum(up)", 2.0);
    prometheus.wait_for(&format!("sum(troupemq_peer_link_up{{peer=\"node{}\"}})", dead + 1), 0.0);
    let alert = |answer: Value| {
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let of_node = |alert: &&Value| {
            alert["labels"]["alertname"] == "TroupeMQDown" && alert["labels"]["instance"] == metrics[dead].to_string()
        };
        alerts.iter().find(of_node).map(|_| ())
    };
    wait::until("the alert is on its way", SCRAPED, || prometheus.get("/api/v1/alerts").and_then(alert));
    // Each group has a leader again, and that this took some time was counted where the dead node led.
    prometheus.wait_for("min(com_hivemq_cluster_topology_change_time_count) > bool 0", 1.0);
    prometheus.wait_for("min(max by (group) (troupemq_raft_has_leader))", 1.0);
    assert_eq!(before.len(), counted.len(), "{before:?}");
    for (query, before) in counted.iter().zip(before) {
        prometheus.wait_for(&format!("{query} > bool {before}"), 1.0);
    }
}
