//! Starts that are refused, each with one clear message.

use std::fs;
use std::net::TcpListener;

use crate::harness::config::{ClusterConfig, Config, SECRET, SHARDS};
use crate::harness::node::{Node, Refusal};
use crate::harness::permit::{Weight, acquire};
use crate::harness::ports;

#[track_caller]
fn assert_refused(refusal: &Refusal, words: &[&str]) {
    assert_eq!(refusal.status.code(), Some(2), "{refusal:?}");
    assert!(!refusal.stderr.contains("panicked"), "{}", refusal.stderr);
    for word in words {
        assert!(refusal.stderr.contains(word), "no {word:?} in: {}", refusal.stderr);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let _permit = acquire(Weight::Node);
    for kind in ["mqtt", "websocket", "http"] {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        let mut config = Config::default();
        match kind {
            "mqtt" => config.mqtt_port = port,
            "websocket" => config.websocket_port = port,
            _ => config.http_port = port,
        }
        let refusal = Node::new(config).refused();
        assert_refused(&refusal, &[&port.to_string()]);
        let errors = refusal.stderr.lines().filter(|line| line.contains(&port.to_string())).count();
        assert_eq!(errors, 1, "one message: {}", refusal.stderr);
    }
}

#[test]
fn a_cluster_port_in_use_is_named() {
    let _permit = acquire(Weight::Node);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let refusal = Node::new(clustered("node1", port)).refused();
    assert_refused(&refusal, &[&port.to_string()]);
}

#[test]
fn a_mistake_in_the_configuration_is_told_with_its_line() {
    let _permit = acquire(Weight::Node);
    let config = Config { mqtt: "<packets><max-packet-size>many</max-packet-size></packets>".to_owned(), ..Config::default() };
    let refusal = Node::new(config).refused();
    assert_refused(&refusal, &["config.xml:", "max-packet-size", "many"]);
    assert_eq!(refusal.stderr.trim().lines().count(), 1, "one message: {}", refusal.stderr);
}

#[test]
fn data_of_another_node_is_refused() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    assert!(node.stop().success());
    let port = ports::reserve();
    node.config = clustered("another-name", port);
    assert_refused(&node.refused(), &["another-name", "node1", "data"]);
}

#[test]
fn data_in_use_by_a_running_node_is_refused() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let home = node.data().parent().expect("a home").to_owned();
    let mut second = Node::within(&home.join("second"), "second", Config::default());
    std::os::unix::fs::symlink(node.data(), second.data()).expect("a link");
    assert_refused(&second.refused(), &["data"]);
    assert!(node.is_up());
}

#[test]
fn data_of_a_newer_format_is_refused() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    assert!(node.stop().success());
    let identity = node.data().join("identity");
    let text = fs::read_to_string(&identity).expect("the identity of the data directory");
    let (first_line, rest) = text.split_once('\n').expect("a line with the format");
    let (magic, _) = first_line.split_once(' ').expect("magic word and version");
    fs::write(&identity, format!("{magic} 999 00000000\n{rest}")).expect("written");
    assert_refused(&node.refused(), &["newer", "999"]);
}

fn clustered(name: &str, port: u16) -> Config {
    let cluster = ClusterConfig {
        node_name: name.to_owned(),
        port,
        all_ports: vec![port],
        secret: SECRET.to_owned(),
        shards: SHARDS,
        external_port: None,
        transport: String::new(),
        more: String::new(),
    };
    Config { cluster: Some(cluster), ..Config::default() }
}
