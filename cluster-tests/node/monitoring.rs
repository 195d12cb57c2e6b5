//! What is watched: every series that an alert, a dashboard or the guide of monitoring names is served by a node that has just started, the alert
//! rules for Kubernetes are the others, and metrics have a listener of their own where the configuration says so.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, http, repository, wait};

const ALERTS: &str = "config/monitoring/alerts.yml";
/// With the labels that series have there, and what stands around what Prometheus is to replace in a text.
const KUBERNETES: [(&str, &str, [&str; 2]); 2] = [
    ("k8s/components/monitoring/prometheusrule.yaml", "{namespace=\"mqtt\",service=\"troupemq-peers\"}", ["", ""]),
    ("k8s/helm/troupemq/templates/monitoring.yaml", "{{ $of }}", ["{{ `", "` }}"]),
];
pub const FILES: [&str; 5] = [ALERTS, "config/monitoring/dashboard.json", "docs/monitoring.md", KUBERNETES[0].0, KUBERNETES[1].0];

/// Written instead of compared: `make alert-rules`.
const WRITE: &str = "TROUPEMQ_WRITE_ALERT_RULES";

pub fn read(file: &str) -> String {
    std::fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Names of series in a text.
pub fn series(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // A name that ends so stands for several.
    words.filter(|word| is_series(word) && !word.ends_with('_')).collect()
}

/// Which of these names are not among those that are served; a histogram has series of longer names.
pub fn unknown<'a>(named: &BTreeSet<&'a str>, served: &BTreeSet<&str>) -> Vec<&'a str> {
    let is_served = |name: &str| served.contains(name) || served.contains(format!("{name}_bucket").as_str());
    named.iter().copied().filter(|name| !is_served(name)).collect()
}

fn is_series(word: &str) -> bool {
    word.starts_with("com_hivemq_") || word.starts_with("troupemq_")
}

#[test]
fn every_series_that_is_watched_is_there_from_the_start() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let samples = node.metrics();
    let served: BTreeSet<&str> = samples.keys().map(|key| key.split('{').next().unwrap_or(key)).collect();
    for file in FILES {
        let text = read(file);
        let named = series(&text);
        assert!(named.len() > 5, "{file} names {named:?}");
        // A node alone has no links; `cluster::prometheus` looks for those.
        let missing: Vec<_> =
            unknown(&named, &served).into_iter().filter(|name| !name.starts_with("troupemq_peer_link_")).collect();
        assert!(missing.is_empty(), "{file} names what is not served: {missing:?}");
    }
}

#[test]
fn the_dashboard_is_one_and_the_guide_has_every_alert() {
    let dashboard: serde_json::Value = serde_json::from_str(&read("config/monitoring/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.iter().all(|panel| panel["targets"].as_array().is_some_and(|targets| !targets.is_empty())), "{panels:?}");
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.len(), panels.len(), "panels share an id");
    let (alerts, guide) = (read(ALERTS), read("docs/monitoring.md"));
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 5, "{names:?}");
    let undocumented: Vec<_> = names.iter().filter(|name| !guide.contains(&format!("| `{name}` |"))).collect();
    assert!(undocumented.is_empty(), "not in docs/monitoring.md: {undocumented:?}");
    let told: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("| `TroupeMQ")?.split('`').next()).collect();
    assert_eq!(told.len(), names.len(), "the guide has alerts that are not there: {told:?}");
}

/// The rules with the labels that the Prometheus operator gives, and its indentation.
fn for_kubernetes(rules: &str, labels: &str, [open, close]: [&str; 2]) -> String {
    let mut made = String::new();
    for line in rules.lines() {
        let of_pod = line.replace("$labels.instance", "$labels.pod");
        let line = match of_pod.split_once("expr: ") {
            Some((indent, expression)) => format!("{indent}expr: {}", selected(expression, labels)),
            None => of_pod.replace("{{ $", &format!("{open}{{{{ $")).replace(" }}", &format!(" }}}}{close}")),
        };
        made += &format!("  {line}\n");
    }
    made
}

/// An expression whose series have these labels.
fn selected(expression: &str, labels: &str) -> String {
    // Where Prometheus finds a node: the operator's labels say it.
    let expression = expression.replace("up{job=\"troupemq\"}", "up");
    let mut made = String::new();
    let mut rest = expression.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len()).max(1);
        let (word, behind) = rest.split_at(end);
        made += word;
        if is_series(word) || word == "up" {
            assert!(!behind.starts_with('{'), "labels are not merged: {expression}");
            made += labels;
        }
        rest = behind;
    }
    made
}

#[test]
fn the_alert_rules_for_kubernetes_are_the_same() {
    let alerts = read(ALERTS);
    let (_, rules) = alerts.split_once("    rules:\n").expect("rules");
    for (file, labels, around) in KUBERNETES {
        let text = read(file);
        let start = text.find("        - alert: ").unwrap_or_else(|| panic!("{file} has no rules"));
        let (before, found) = text.split_at(start);
        let tail = if around[0].is_empty() { "" } else { "{{- end }}\n" };
        let expected = for_kubernetes(rules, labels, around) + tail;
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(repository().join(file), format!("{before}{expected}")).expect("the file can be written");
            continue;
        }
        assert!(found == expected, "{file} is not what {ALERTS} makes: run `make alert-rules`; it should go on\n{expected}");
    }
}

/// The address behind what a node prints of its listener for metrics.
fn metrics_address(node: &Node) -> (SocketAddr, String) {
    let stdout = node.stdout();
    let url = stdout.lines().find_map(|line| line.trim_start().strip_prefix("Metrics ")).expect("a line for metrics").trim();
    let (address, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    (address.parse().expect("an address"), format!("/{path}"))
}

/// HiveMQ's Prometheus extension: port 9399 and a path (`../shared/spec/hivemq.md` 5.3); here any free port.
#[test]
fn metrics_have_a_listener_of_their_own_where_the_file_says_so() {
    let _permit = acquire(Weight::Node);
    let listeners = "<prometheus><port>0</port><metric-path>/broker</metric-path></prometheus>\
                     <health-api><enabled>true</enabled><listeners><http><port>0</port></http></listeners></health-api>";
    let node = Node::ready(Config { more: listeners.to_owned(), ..Config::default() });
    let (address, path) = metrics_address(&node);
    assert_eq!(path, "/broker");
    assert!(address != node.http() && address.port() != 0);
    let name = "com_hivemq_networking_connections_current";
    for path in ["/broker", "/metrics", "/"] {
        let (status, page) = http::get(address, path).expect("an answer");
        assert!(status == 200 && http::samples(&page).contains_key(name), "{path}: {status}");
    }
    assert_eq!(http::get(address, "/api/v1/health/liveness").map(|(status, _)| status), Some(404));
    let stdout = node.stdout();
    let health = stdout.lines().find_map(|line| line.trim_start().strip_prefix("Health ")?.trim().strip_prefix("http://"));
    let health: SocketAddr = health.and_then(|url| url.split('/').next()?.parse().ok()).expect("an address for health");
    assert_eq!(http::get(health, "/api/v1/health/readiness").map(|(status, _)| status), Some(200));
    assert_eq!(http::get(health, "/metrics").map(|(status, _)| status), Some(404));
    assert_eq!(http::get(health, "/").map(|(status, _)| status), Some(404));
}

#[test]
fn a_port_for_metrics_that_is_taken_is_told_with_the_element() {
    let _permit = acquire(Weight::Node);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let more = format!("<prometheus><port>{port}</port></prometheus>");
    let refusal = Node::new(Config { more, ..Config::default() }).refused();
    assert_eq!(refusal.status.code(), Some(2), "{refusal:?}");
    let told: Vec<&str> = refusal.stderr.lines().filter(|line| line.contains(&port.to_string())).collect();
    assert!(told.len() == 1 && told[0].contains("<prometheus>") && told[0].contains("another port"), "{}", refusal.stderr);
    // Two elements with one port are found before anything is bound.
    let more = format!("<prometheus><port>{port}</port></prometheus>");
    let refusal = Node::new(Config { more, http_port: port, ..Config::default() }).refused();
    assert!(refusal.status.code() == Some(2) && refusal.stderr.contains("<prometheus>: found port "), "{refusal:?}");
}

/// Most of a message of 15 MB. Its buffer grows by copies, both of which count: nowhere more than 29 MB.
const MOST_BYTES: usize = 14_000_000;

#[test]
fn the_overload_level_is_told_with_its_cause_and_falls_when_that_is_over() {
    let _permit = acquire(Weight::Node);
    let memory = 30_000_000;
    let more = format!("<restrictions><max-incomplete-packet-memory>{memory}</max-incomplete-packet-memory></restrictions>");
    let node = Node::ready(Config { more, ..Config::default() });
    let level = || node.metric("com_hivemq_overload_protection_level");
    let mut client = TcpStream::connect(node.mqtt()).expect("a connection");
    client.write_all(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01x").expect("CONNECT");
    let mut connack = [0; 4];
    client.read_exact(&mut connack).expect("CONNACK");
    assert_eq!(connack, *b"\x20\x02\x00\x00");
    // PUBLISH of 15,000,000 bytes, of which not all comes.
    client.write_all(b"\x30\xc0\xc3\x93\x07\x00\x01t").expect("PUBLISH");
    client.write_all(&vec![b'x'; MOST_BYTES]).expect("most of its payload");
    let details = wait::until("the overload level is told", SOON, || {
        let (status, body) = http::get(node.http(), "/api/v1/health/overload-protection")?;
        let component: serde_json::Value = serde_json::from_str(&body).ok()?;
        assert!(status == 200 && component["status"] == "UP", "{component}");
        let details = &component["details"];
        // While its bytes come in the level is lower.
        let is_told = details["cause"] == "memory for incomplete packets" && details["level"].as_u64() >= Some(4);
        is_told.then(|| details.clone())
    });
    assert!(details["since-ms"].as_u64() > Some(0), "{details}");
    assert!(level() >= 4.0 && node.is_up(), "it is ready all the same");
    assert!(node.stderr().contains("the overload level rises"), "{}", node.stderr());
    drop(client);
    wait::until("the overload level falls", SOON, || (level() == 0.0).then_some(()));
    assert!(node.stderr().contains("the overload level falls"), "{}", node.stderr());
}
