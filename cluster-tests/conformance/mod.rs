//! The specification's normative statements: the list of them all with what proves each (`manifest`), the checks of `normative.py` against one
//! node, a node that serves little, and three nodes, and checks of our own for what those leave out.

mod checks;
mod connect;
mod flow;
mod limited;
pub mod manifest;
mod passages;
mod subscribe;
mod three_nodes;

use std::collections::BTreeSet;
use std::fmt::Write;

use checks::{Outcome, Target, Which};
use manifest::VERSIONS;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{PASS_ON, Rbac, User};

/// Checks that need a broker that does not serve everything.
const LIMITED: &str = "*/will-qos-above-maximum,*/will-retain-not-available,*/features-not-available,*/client-packet-too-large,\
                       */maximum-qos-sent,*/all-requested-qos-accepted";

/// Checks of enhanced authentication, which need a method that the broker serves, and others with such a broker.
const ENHANCED: &str = "*MQTT-4.12.*,*MQTT-3.15.*,*MQTT-3.1.2-30*,*MQTT-3.1.4-*,*/connect-*";
const METHOD: &[&str] = &["--auth-method", "SCRAM-SHA-256", "--auth-data", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"];

/// Checks named in `known_failures.txt` may fail; it ought to be empty. Afterwards every check that the manifest calls a proof has passed.
#[test]
fn normative_statements_hold() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let Outcome { mut passed, skipped } = checks::run_checks(target(&node), Which::All);
    let limited = Node::ready(limited::config());
    passed.extend(checks::run_checks(target(&limited), Which::Only(LIMITED)).passed);
    let files = Rbac::new(&[User::scram("user", "pencil", "all")], &[("all", &["#"])], PASS_ON);
    // The checks without a method are clients without credentials.
    let anonymous = "<allow-anonymous><enabled>true</enabled></allow-anonymous>";
    let more = format!("<security>{}{anonymous}</security>", files.element());
    let enhanced = Node::ready(Config { more, ..Config::default() });
    passed.extend(checks::run_checks(Target { arguments: METHOD, ..target(&enhanced) }, Which::Only(ENHANCED)).passed);
    for node in [&node, &limited, &enhanced] {
        assert!(node.is_up(), "the node has lived through it");
        assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
    }

    let mut wrong = Vec::new();
    for version in &VERSIONS {
        for statement in version.statements() {
            for check in statement.normative.iter().filter(|check| !passed.contains(*check)) {
                wrong.push(format!("{check} is called a proof and did not run: {:?}", skipped.get(check)));
            }
            let own = format!("{}/{}/", version.prefix, statement.id);
            let shows = passed.iter().filter(|check| check.starts_with(&own) && !statement.normative.contains(check));
            wrong.extend(shows.map(|check| format!("{check} passed and is not in the manifest")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    checks::report("1-statements.txt", &summary(&passed));
}

/// How many statements are proved: what the manifest says, which all the other tests have held to the truth when they pass.
fn summary(passed: &BTreeSet<String>) -> String {
    let mut text = String::new();
    for version in &VERSIONS {
        let counts = version.counts();
        _ = writeln!(
            text,
            "{}: {} normative statements: {} of the server proved, {} not provable, {} of clients only",
            version.name, counts.total, counts.proved, counts.unprovable, counts.clients
        );
    }
    _ = writeln!(text, "one node: {} checks of normative.py passed", passed.len());
    text
}

fn target(node: &Node) -> Target {
    let addresses = node.addresses();
    Target { mqtt: addresses.mqtt, websocket: addresses.websocket, arguments: &[] }
}
