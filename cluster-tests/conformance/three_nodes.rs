//! The checks of `normative.py` over three nodes: each connection that a check makes goes to the next node.

use std::fs;

use super::checks::{self, Target, Which};
use crate::harness::permit::Weight;
use crate::harness::repository;
use crate::harness::spread::Spread;
use crate::harness::trio::Trio;

const LEFT_OUT: &str = "cluster-tests/conformance/three_nodes_left_out.txt";

#[test]
fn normative_statements_hold_over_three_nodes() {
    let trio = Trio::ready(Weight::Cluster);
    let mqtt = Spread::over(trio.all_mqtt());
    let websocket = Spread::over(trio.nodes.iter().map(|node| node.addresses().websocket).collect());
    let left_out = left_out();
    let names: Vec<&str> = left_out.iter().map(|(name, _)| name.as_str()).collect();
    let target = Target { mqtt: mqtt.address, websocket: websocket.address, arguments: &[] };
    let except = names.join(",");
    let outcome = checks::run_checks(target, if except.is_empty() { Which::All } else { Which::Except(&except) });
    for node in &trio.nodes {
        assert!(node.is_up(), "{} has lived through it", node.name);
        assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
        // Neither node was spared.
        assert!(node.metric("com_hivemq_messages_incoming_connect_count") > 100.0, "{}", node.name);
    }
    checks::report(
        "2-three-nodes.txt",
        &format!(
            "three nodes, connections in turn: {} checks of normative.py passed, {} are of one node\n",
            outcome.passed.len(),
            names.len()
        ),
    );
}

/// Checks that three nodes cannot pass or that say nothing more there, with the reason.
fn left_out() -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join(LEFT_OUT)).expect("the list is in the repository");
    let entries = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    entries
        .map(|line| {
            let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("{LEFT_OUT}: no reason: {line}"));
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}

#[test]
fn what_is_left_out_exists_and_has_a_reason() {
    let listed = checks::listed();
    for (name, reason) in left_out() {
        assert!(listed.contains(&name), "{LEFT_OUT}: there is no check {name}");
        assert!(!reason.is_empty(), "{name}");
    }
}
