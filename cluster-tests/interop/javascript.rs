//! MQTT.js in Node.js and in a real browser. The scripts check by themselves and end with a reason when something is wrong.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::repository;
use crate::harness::script::{interop_skipped, run};
use crate::harness::trio::Trio;
use crate::transports::address;
use crate::transports::pki::Pki;

const WITHIN: Duration = Duration::from_secs(120);
/// 3.1, 3.1.1 and 5.0 as protocol levels.
const VERSIONS: [&str; 3] = ["3", "4", "5"];

fn passes(script: &str, arguments: &[String]) {
    let directory = repository().join("cluster-tests/interop/javascript");
    let mut command = Command::new("node");
    command.env("NODE_PATH", modules()).env("NODE_TLS_REJECT_UNAUTHORIZED", "0");
    command.arg(directory.join(script)).args(arguments);
    let finished = run(&mut command, WITHIN);
    assert_eq!(finished.code, Some(0), "{script} {arguments:?}:\n{}\n{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.lines().filter(|line| line.starts_with("ok ")).count() >= 5, "{}", finished.stdout);
}

/// Where MQTT.js and the browser's driver are: `TROUPEMQ_NODE_MODULES`, or those that `make test-needs` installed.
fn modules() -> PathBuf {
    let path = std::env::var_os("TROUPEMQ_NODE_MODULES").map_or_else(|| repository().join(".node/node_modules"), PathBuf::from);
    assert!(
        path.join("mqtt").exists(),
        "no MQTT.js in {}: run `make test-needs` (or set TROUPEMQ_SKIP_INTEROP=1)",
        path.display()
    );
    path
}

/// The browser: `TROUPEMQ_CHROMIUM`, or Debian's.
fn browser() -> String {
    std::env::var("TROUPEMQ_CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned())
}

#[test]
fn mqtt_js_over_tcp_and_websocket_in_every_version() {
    if interop_skipped("MQTT.js") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let addresses = node.addresses();
    for url in [format!("mqtt://{}", addresses.mqtt), format!("ws://{}/mqtt", addresses.websocket)] {
        for version in VERSIONS {
            passes("node_checks.js", &[version.to_owned(), url.clone()]);
        }
    }
}

#[test]
fn mqtt_js_across_three_nodes() {
    if interop_skipped("MQTT.js") {
        return;
    }
    let trio = Trio::ready(Weight::Cluster);
    let urls: Vec<String> = trio.all_mqtt().iter().map(|address| format!("mqtt://{address}")).collect();
    for version in ["4", "5"] {
        passes("node_checks.js", &[&[version.to_owned()][..], &urls[..]].concat());
    }
}

#[test]
fn mqtt_js_in_a_browser_over_websocket_and_secure_websocket() {
    if interop_skipped("a browser") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let secure = format!(
        "<tls-websocket-listener><port>0</port><bind-address>127.0.0.1</bind-address><tls><keystore><path>{}</path></keystore>\
         </tls></tls-websocket-listener>",
        pki.path().join("server.pem").display()
    );
    let node = Node::ready(Config { listeners: secure, ..Config::default() });
    let plain = format!("ws://{}/mqtt", node.addresses().websocket);
    let secure = format!("wss://{}/mqtt", address(&node, "Websocket Listener with TLS"));
    for (version, url) in [("4", &plain), ("5", &plain), ("5", &secure)] {
        passes("browser_checks.js", &[browser(), version.to_owned(), url.clone()]);
    }
}
