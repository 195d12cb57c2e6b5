//! Python's paho-mqtt, gmqtt and aiomqtt. The scripts check by themselves and end with a reason when something is wrong.

use std::process::Command;
use std::time::Duration;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::repository;
use crate::harness::script::{interop_skipped, python, run};
use crate::harness::trio::Trio;

const WITHIN: Duration = Duration::from_secs(90);

fn passes(script: &str, arguments: &[String]) {
    let mut command = Command::new(python());
    command.arg("-B").arg(repository().join("cluster-tests/interop").join(script)).args(arguments);
    let finished = run(&mut command, WITHIN);
    assert_eq!(finished.code, Some(0), "{script} {arguments:?}:\n{}\n{}", finished.stdout, finished.stderr);
}

#[test]
fn paho_over_tcp_and_websocket_in_both_versions() {
    if interop_skipped("paho-mqtt") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for (transport, address) in [("tcp", node.addresses().mqtt), ("websockets", node.addresses().websocket)] {
        for version in ["3.1.1", "5"] {
            passes("paho_checks.py", &[transport.to_owned(), version.to_owned(), address.port().to_string()]);
        }
    }
}

#[test]
fn gmqtt_in_both_versions() {
    if interop_skipped("gmqtt") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in ["3.1.1", "5"] {
        passes("gmqtt_checks.py", &[node.mqtt().port().to_string(), version.to_owned()]);
    }
}

#[test]
fn paho_across_three_nodes() {
    if interop_skipped("paho-mqtt") {
        return;
    }
    let trio = Trio::ready(Weight::Cluster);
    let ports: Vec<String> = trio.all_mqtt().iter().map(|address| address.port().to_string()).collect();
    for version in ["3.1.1", "5"] {
        passes("paho_checks.py", &[&["tcp".to_owned(), version.to_owned()][..], &ports[..]].concat());
    }
}

#[test]
fn aiomqtt_in_both_versions() {
    if interop_skipped("aiomqtt") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in ["3.1.1", "5"] {
        passes("aiomqtt_checks.py", &[version.to_owned(), node.mqtt().port().to_string()]);
    }
}
