//! Nodes started as the chart's pods would be: its `config.xml`, its environment, names that resolve as the headless Service would have them. Each
//! node has an address of its own, as a pod has.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::cluster::disks::leave_out;
use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::{Config, Files};
use crate::harness::node::{Node, private_hosts};
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, http, ports, wait};
use crate::transports::pki::Pki;
use crate::transports::relay::Way;

use super::manifest::{Manifest, list, number, text};
use super::pod::{Pod, contents};
use super::sets::{CERT_MANAGER, CLUSTER_TLS, MONITORING};
use super::tools::{succeeded, tools};

/// A replica joins and is made a voter within this, on a busy machine.
const JOINED: Duration = Duration::from_secs(60);
/// A node that left and is started again by the kubelet ends so.
const WRONG_CONFIGURATION: i32 = 2;

/// The pods of one release.
struct Pods {
    manifest: Manifest,
    nodes: Vec<Node>,
    hosts: PathBuf,
    pki: Pki,
    /// Last, so that nodes go before their files.
    home: tempfile::TempDir,
}

/// `None`, with the reason printed, where the chart cannot be rendered or processes cannot have names of their own.
fn pods(test: &str, values: &str) -> Option<Pods> {
    let tools = tools(test)?;
    if !private_hosts() {
        leave_out("a mount namespace is not permitted here");
        return None;
    }
    let free: Vec<u16> = (0..8).map(|_| ports::reserve()).collect();
    let own_ports = format!(
        "--set=listeners.mqtt.port={},listeners.websocket.port={},tls.mqttPort={},tls.websocketPort={},cluster.port={},http.port={},health.port={},prometheus.port={}",
        free[0], free[1], free[2], free[3], free[4], free[5], free[6], free[7]
    );
    let rendered = succeeded(test, tools.template(values, &[&own_ports]));
    let manifest = tools.objects(&[rendered]).remove(0);
    let home = tempfile::Builder::new().prefix("troupemq-").tempdir().expect("a directory");
    let hosts = home.path().join("hosts");
    let pods = Pods { manifest, nodes: Vec::new(), hosts, pki: Pki::new(), home };
    pods.resolve(0);
    Some(pods)
}

/// Addresses that no other test listens on.
fn ip(ordinal: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 101 + ordinal as u8)
}

impl Pods {
    /// Names of so many pods, and the one of all, as the headless Service would publish them.
    fn resolve(&self, count: usize) {
        let set = self.manifest.stateful_set();
        let (pod, peers) = (text(&set["metadata"]["name"]), text(&set["spec"]["serviceName"]));
        let names = (0..count).map(|ordinal| format!("{0} {pod}-{ordinal}.{peers}\n{0} {peers}\n", ip(ordinal)));
        let text: String = std::iter::once("127.0.0.1 localhost\n".to_owned()).chain(names).collect();
        // In place: the file is mounted.
        fs::write(&self.hosts, text).expect("a file");
    }

    /// The next pod; started and not waited for.
    fn launch(&mut self, expected_nodes: usize) {
        let ordinal = self.nodes.len();
        let root = self.home.path().join(ordinal.to_string());
        let pod = Pod::new(&self.manifest, ordinal, &root, &self.pki);
        let config = pod.config.replace("0.0.0.0", &ip(ordinal).to_string());
        let files = Files { config, declared: None };
        let mut node = Node::within(&root.join("home"), &pod.name, Config { files: Some(files), ..Config::default() });
        node.hosts = Some(self.hosts.clone());
        node.env = pod.env;
        let founders = node.env.iter_mut().find(|(name, _)| name == "EXPECTED_NODES").expect("the number of founders");
        founders.1 = expected_nodes.to_string();
        self.nodes.push(node);
        self.resolve(self.nodes.len());
        self.nodes[ordinal].launch();
    }

    fn at(&self, ordinal: usize, port: &str) -> SocketAddr {
        SocketAddr::from((ip(ordinal), self.manifest.port(port).unwrap_or_else(|| panic!("no port {port}"))))
    }

    /// What a probe of the StatefulSet is answered; `None` where nobody answers.
    fn probe(&self, ordinal: usize, kind: &str) -> Option<u16> {
        let get = &self.manifest.container()[format!("{kind}Probe")]["httpGet"];
        Some(http::get(self.at(ordinal, text(&get["port"])), text(&get["path"]))?.0)
    }

    fn wait_ready(&self, ordinal: usize) {
        wait::until("the readiness probe is content", JOINED, || (self.probe(ordinal, "readiness") == Some(200)).then_some(()));
    }

    /// Members by name, and whether each is alive, as the first pod sees it.
    fn members(&self) -> Option<Vec<(String, bool)>> {
        let status = self.nodes[0].status()?;
        let member = |known: &Value| Some((known["name"].as_str()?.to_owned(), known["alive"].as_bool()?));
        let mut members: Vec<(String, bool)> = list(&status["members"]).iter().map(member).collect::<Option<_>>()?;
        members.sort();
        Some(members)
    }

    fn wait_members(&self, what: &str, expected: &[(&str, bool)]) {
        wait::until(what, JOINED, || {
            let members = self.members()?;
            members.iter().map(|(name, alive)| (name.as_str(), *alive)).eq(expected.iter().copied()).then_some(())
        });
    }

    /// Until so many vote in every group.
    fn wait_voters(&self, count: usize) {
        wait::until(&format!("{count} voters in every group"), JOINED, || {
            let status = self.nodes[0].status()?;
            let groups = list(&status["groups"]);
            let all = groups.iter().all(|group| list(&group["voters"]).len() == count && group["changing"] == false);
            (all && !groups.is_empty()).then_some(())
        });
    }

    fn user(&self) -> Options {
        let users = contents(self.manifest.get("Secret", "troupemq-users"));
        Options::v5("visitor").username(&users["user"]).password(&users["password"])
    }
}

/// The steps of docs/kubernetes.md: a pod that is alone, three, one more, one that leaves, one that is only stopped.
#[tokio::test]
async fn pods_found_a_cluster_grow_and_shrink_as_the_guide_says() {
    let _permit = acquire(Weight::Cluster);
    let Some(mut pods) = pods("pods of the chart", MONITORING) else { return };
    let founders = number(&pods.manifest.stateful_set()["spec"]["replicas"]) as usize;
    assert_eq!(founders, 3);
    pods.launch(founders);
    for kind in ["startup", "liveness"] {
        wait::until("a pod alone answers", SOON, || (pods.probe(0, kind) == Some(200)).then_some(()));
    }
    assert_eq!(pods.probe(0, "readiness"), Some(503), "a pod alone is alive and not ready");
    let (_, told) = http::get(pods.at(0, "health"), "/api/v1/health/readiness").expect("an answer");
    assert!(told.contains("waiting-for"), "{told}");
    pods.launch(founders);
    pods.launch(founders);
    (0..3).for_each(|ordinal| pods.wait_ready(ordinal));
    let three = [("troupemq-0", true), ("troupemq-1", true), ("troupemq-2", true)];
    pods.wait_members("three members", &three);
    pods.wait_voters(3);
    let shown = pods.nodes[0].admin(&["status"]);
    let address = format!("troupemq-2.troupemq-peers:{}", pods.at(2, "cluster").port());
    assert!(shown.stdout.contains(&address), "{}", shown.stdout);

    scraped(&pods);
    // The one user of the Secret may read what happens; nobody else comes in.
    let mut user = Client::connect(pods.at(1, "mqtt"), &pods.user()).await;
    assert_eq!(user.subscribe("$client-events/#", QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
    let stranger = Client::try_connect(pods.at(2, "mqtt"), &Options::v5("stranger")).await;
    assert!(matches!(stranger, Err(ConnectError::Refused(_))), "without a password");
    user.disconnect().await;

    // Up: the number of founders first, then a pod.
    pods.launch(founders + 1);
    pods.wait_ready(3);
    pods.wait_voters(4);
    // Down: it leaves. The kubelet starts it again, and it stays out until it is scaled away.
    let left = pods.nodes[3].admin(&["leave"]);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(pods.nodes[3].wait_ended().success());
    let refused = pods.nodes[3].refused();
    assert_eq!(refused.status.code(), Some(WRONG_CONFIGURATION), "{}", refused.stderr);
    assert!(refused.stderr.contains("left cluster"), "{}", refused.stderr);
    pods.wait_members("three members again", &three);

    // SIGTERM alone changes no membership, and the pod comes back to its volume.
    assert!(pods.nodes[2].stop().success());
    pods.wait_members("a member that is away", &[three[0], three[1], ("troupemq-2", false)]);
    pods.nodes[2].launch();
    pods.wait_ready(2);
    pods.wait_members("all are back", &three);
}

/// What the ServiceMonitor has scraped holds every series that an alert asks for.
fn scraped(pods: &Pods) {
    let endpoint = &pods.manifest.get("ServiceMonitor", "troupemq")["spec"]["endpoints"][0];
    let (status, page) = http::get(pods.at(0, text(&endpoint["port"])), text(&endpoint["path"])).expect("metrics");
    assert_eq!(status, 200);
    let there: BTreeSet<&str> = page.lines().filter_map(|line| line.split([' ', '{']).next()).collect();
    let groups = list(&pods.manifest.get("PrometheusRule", "troupemq")["spec"]["groups"]);
    let mut asked = BTreeSet::new();
    for rule in groups.iter().flat_map(|group| list(&group["rules"])) {
        let words = text(&rule["expr"]).split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let series: Vec<&str> =
            words.filter(|word| ["troupemq_", "com_hivemq_"].iter().any(|prefix| word.starts_with(prefix))).collect();
        // `up` is of Prometheus itself.
        assert!(!series.is_empty() || text(&rule["expr"]).starts_with("up{"), "{rule}");
        asked.extend(series);
    }
    let missing: Vec<&&str> = asked.iter().filter(|series| !there.contains(**series)).collect();
    assert!(missing.is_empty() && asked.len() >= 8, "{missing:?} of {asked:?}");
}

/// As pods whose Secret cert-manager made: one certificate for all, by the name that they call each other by.
#[tokio::test]
async fn pods_with_tls_between_them_find_each_other() {
    let _permit = acquire(Weight::Cluster);
    let Some(mut pods) = pods("pods with TLS between them", CLUSTER_TLS) else { return };
    (0..3).for_each(|_| pods.launch(3));
    (0..3).for_each(|ordinal| pods.wait_ready(ordinal));
    pods.wait_members("three members", &[("troupemq-0", true), ("troupemq-1", true), ("troupemq-2", true)]);
    for (ordinal, node) in pods.nodes.iter().enumerate() {
        let log = node.stderr();
        let up = || log.lines().filter(|line| line.contains("peer link is up"));
        assert!(up().count() >= 4 && up().all(|line| line.contains("encrypted=true")), "{log}");
        let (_, page) = http::get(pods.at(ordinal, "metrics"), "/metrics").expect("metrics");
        let metrics = http::samples(&page);
        let encrypted =
            metrics.iter().filter(|(name, value)| name.starts_with("troupemq_peer_link_encrypted{") && **value == 1.0);
        assert_eq!(encrypted.count(), 4, "two links to each of two");
    }
}

#[tokio::test]
async fn with_tls_clients_come_by_the_certificate_and_no_other_way() {
    let _permit = acquire(Weight::Node);
    let values = format!("replicas: 1\n{CERT_MANAGER}");
    let Some(mut pods) = pods("pod with TLS", &values) else { return };
    pods.launch(1);
    pods.wait_ready(0);
    assert_eq!(pods.manifest.port("mqtt"), None);
    let services = pods.manifest.of_kind("Service").flat_map(|service| list(&service["spec"]["ports"]));
    let names: BTreeSet<&str> = services.map(|port| text(&port["name"])).collect();
    assert_eq!(names, ["cluster", "http", "metrics", "mqtts", "wss"].into());
    for (port, fragment) in [("mqtts", None), ("wss", Some(1000))] {
        let way = Way { tls: Some(pods.pki.client(None)), fragment, ..Way::default() };
        let relay = way.relay(pods.at(0, port)).await;
        let mut client = Client::connect(relay, &pods.user()).await;
        client.subscribe("a", QoS::AtLeastOnce).await;
        client.publish("a", port.as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, port);
    }
}
