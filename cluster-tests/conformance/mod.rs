//! The checks of the specification's normative statements, against one node with default limits.

use std::process::Command;
use std::time::Duration;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{PASS_ON, Rbac, User};
use crate::harness::repository;
use crate::harness::script::{Finished, run};

const WITHIN: Duration = Duration::from_secs(300);
/// Its two variants, for 3.1.1 and 5.0, use the same client ids, and so take each other over when they run at the same time.
const ALONE: &str = "*/client-id-1-to-23";

/// Checks named in `known_failures.txt` may fail; it ought to be empty.
#[test]
fn normative_statements_hold() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    check(&node, &["--skip", ALONE, "--jobs", "8"]);
    check(&node, &["--only", ALONE, "--jobs", "1"]);
    assert!(node.is_up(), "the node has lived through it");
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
}

/// Those of enhanced authentication need a method that the broker serves; the others are clients without credentials.
#[test]
fn normative_statements_of_enhanced_authentication_hold() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&[User::scram("user", "pencil", "all")], &[("all", &["#"])], PASS_ON);
    let more =
        format!("<security>{}{}</security>", files.element(), "<allow-anonymous><enabled>true</enabled></allow-anonymous>");
    let node = Node::ready(Config { more, ..Config::default() });
    let only = "*MQTT-4.12.*,*MQTT-3.15.*,*MQTT-3.1.2-30*,*MQTT-3.1.4-*,*/connect-*";
    let data = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    let enhanced = ["--only", only, "--auth-method", "SCRAM-SHA-256", "--auth-data", data];
    let finished = normative(&node, &[&enhanced[..], &["--jobs", "4"]].concat());
    println!("{}", finished.stdout);
    assert_eq!(finished.code, Some(0), "{}\n{}", finished.stdout, finished.stderr);
    assert!(!finished.stdout.contains("no --auth-method"), "{}", finished.stdout);
    let served = r#"troupemq_login_failures_total{cause="not-authorized"}"#;
    assert!(node.metric(served) > 0.0, "the checks have tried a wrong proof");
    assert!(node.is_up() && !node.stderr().contains("panicked"), "{}", node.stderr());
}

/// Runs checks, and those that failed once more, one at a time: several of them allow the broker a few hundred milliseconds, which it does not
/// always have while eight run at once beside other tests. A check that fails alone too has found a fault.
fn check(node: &Node, arguments: &[&str]) {
    let finished = normative(node, arguments);
    println!("{}", finished.stdout);
    let failed: Vec<&str> =
        finished.stdout.lines().filter_map(|line| line.strip_prefix("FAIL ")?.split_whitespace().next()).collect();
    assert!(finished.code == Some(0) || !failed.is_empty(), "{}\n{}", finished.stdout, finished.stderr);
    for name in failed {
        println!("once more, alone: {name}");
        let alone = normative(node, &["--only", name, "--jobs", "1"]);
        assert_eq!(alone.code, Some(0), "{}\n{}", alone.stdout, alone.stderr);
    }
}

fn normative(node: &Node, arguments: &[&str]) -> Finished {
    let directory = repository().join("cluster-tests/conformance");
    let addresses = node.addresses();
    let mut command = Command::new("python3");
    command.arg(directory.join("normative/normative.py"));
    command.args([addresses.mqtt.ip().to_string(), addresses.mqtt.port().to_string()]);
    command.args(["--ws", &addresses.websocket.port().to_string(), "--failures"]).args(arguments);
    command.arg("--known").arg(directory.join("known_failures.txt"));
    // More than on a quiet machine: other tests run beside.
    command.args(["--wait", "6", "--slack", "5"]);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut command, WITHIN)
}
