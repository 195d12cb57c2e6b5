//! What operators tell a cluster, and nodes that come back otherwise than they went: with an empty disk, elsewhere, under a name that is taken,
//! with other settings.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use troupemq::mqtt::{QoS, ReasonCode};

use super::disks::leave_out;
use crate::harness::client::{Client, Options};
use crate::harness::config::{Config, SECRET, SHARDS};
use crate::harness::node::{Node, private_hosts};
use crate::harness::permit::{Weight, acquire};
use crate::harness::trio::{Trio, alive};
use crate::harness::{SOON, ports, wait};

/// A replica is filled and votes again within this, on a busy machine.
const FILLED: Duration = Duration::from_secs(60);

/// Until every group has three voters and no learner.
fn wait_three_vote(node: &Node) {
    wait::until("three voters in every group", FILLED, || {
        let status = node.status()?;
        let groups = status["groups"].as_array()?;
        let count = |group: &serde_json::Value, role: &str| group[role].as_array().map(Vec::len);
        let all = groups
            .iter()
            .all(|group| count(group, "voters") == Some(3) && count(group, "learners") == Some(0) && group["changing"] == false);
        (all && !groups.is_empty()).then_some(())
    });
}

fn address_of(node: &Node, member: &str) -> Option<String> {
    let status = node.status()?;
    let members = status["members"].as_array()?;
    let found = members.iter().find(|known| known["name"] == member && known["alive"] == true && known["connected"] == true)?;
    Some(found["address"].as_str()?.to_owned())
}

#[test]
fn status_shows_the_cluster_and_says_by_its_exit_status_whether_the_node_is_ready() {
    let mut trio = Trio::ready(Weight::Cluster);
    wait_three_vote(&trio.nodes[0]);
    let socket = trio.nodes[0].data().join("admin.sock");
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    let table = trio.nodes[0].admin(&["status"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    for word in ["ready    yes", "node1", "node2", "node3", "alive", "MEMBER", "VOTERS (LEARNERS)", "\nmeta ", "\n5 "] {
        assert!(table.stdout.contains(word), "no {word:?} in {}", table.stdout);
    }
    let json = trio.nodes[1].status().expect("JSON");
    assert_eq!((json["node"].as_str(), json["ready"].as_bool()), (Some("node2"), Some(true)));
    assert_eq!(json["groups"].as_array().map(Vec::len), Some(usize::from(SHARDS) + 1));

    trio.nodes[1].kill();
    trio.nodes[2].kill();
    let alone = wait::until("the last one is not ready", SOON, || {
        let status = trio.nodes[0].admin(&["status"]);
        (status.code == Some(1)).then_some(status)
    });
    assert!(alone.stdout.contains("ready    no, for ") && alone.stdout.contains("waits for"), "{alone:?}");
    let forgotten = trio.nodes[0].admin(&["transfer-leadership", "--to", "node2"]);
    assert_eq!(forgotten.code, Some(1), "{forgotten:?}");
    assert!(trio.nodes[0].stop().success());
    assert!(!socket.exists(), "a node that stops leaves no socket behind");
    let gone = trio.nodes[0].admin(&["status"]);
    assert_eq!(gone.code, Some(2), "{gone:?}");
    assert!(gone.stderr.contains("no node runs with the data directory"), "{gone:?}");
}

#[tokio::test]
async fn a_node_leaves_and_a_dead_one_is_forgotten() {
    let mut trio = Trio::ready(Weight::Cluster);
    wait_three_vote(&trio.nodes[0]);
    let mut client = Client::connect(trio.mqtt(2), &Options::v5("kept").persistent()).await;
    client.subscribe("kept", QoS::AtLeastOnce).await;

    let refused = trio.nodes[0].admin(&["forget", "node3"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("the node is alive: stop it first"), "{refused:?}");
    let left = trio.nodes[2].admin(&["leave"]);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(
        left.stdout.contains("node3 left the cluster") && left.stdout.contains("2 members are left, none of which"),
        "{left:?}"
    );
    assert!(left.stderr.contains("hands leadership over"), "{left:?}");
    assert_eq!(client.closed().await, Some(ReasonCode::ServerShuttingDown));
    assert!(trio.nodes[2].wait_ended().success());
    assert_eq!(alive(&trio.nodes[0]), 2);
    let again = trio.nodes[2].refused();
    assert!(!again.status.success());
    assert!(again.stderr.contains("node node3 left cluster") && again.stderr.contains("empty --data directory"), "{again:?}");
    // Its clients are served by the others.
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    assert_eq!(publisher.publish("kept", b"while away", QoS::AtLeastOnce).await, ReasonCode::Success);
    let mut client = Client::connect(trio.mqtt(1), &Options::v5("kept").persistent()).await;
    assert!(client.session_present());
    assert_eq!(client.text().await, "while away");

    // With an empty directory it joins anew.
    fs::remove_dir_all(trio.nodes[2].data()).expect("the directory of the node that left");
    trio.nodes[2].launch();
    trio.wait_ready();
    wait_three_vote(&trio.nodes[0]);

    trio.nodes[1].kill();
    let noticed = |node: &Node| alive(node) == 2 && node.is_up();
    wait::until("the death is noticed", SOON, || (noticed(&trio.nodes[0]) && noticed(&trio.nodes[2])).then_some(()));
    let needed = trio.nodes[2].admin(&["leave"]);
    assert_eq!(needed.code, Some(1), "{needed:?}");
    assert!(needed.stderr.contains("no majority, so the cluster would stop"), "{needed:?}");
    assert!(trio.nodes[2].is_up(), "a refusal changes nothing");
    let forgotten = trio.nodes[2].admin(&["forget", "node2"]);
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    let twice = trio.nodes[0].admin(&["forget", "node2"]);
    assert_eq!(twice.code, Some(1), "a wrong name must be seen: {twice:?}");
    assert!(twice.stderr.contains("node2 is not a member"), "{twice:?}");
}

#[tokio::test]
async fn leadership_is_handed_over_on_request_without_a_lost_message() {
    let trio = Trio::ready(Weight::Cluster);
    wait_three_vote(&trio.nodes[0]);
    let mut subscriber = Client::connect(trio.mqtt(1), &Options::v5("subscriber").persistent()).await;
    subscriber.subscribe("moved/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for (round, to) in ["node1", "node3", "node2"].into_iter().enumerate() {
        for group in ["meta", "0", "1", "2", "3", "4", "5"] {
            let moved = trio.nodes[0].admin(&["transfer-leadership", "--to", to, "--group", group]);
            assert_eq!(
                (moved.code, moved.stdout.trim()),
                (Some(0), format!("leaders now: group {group}: {to}").as_str()),
                "{moved:?}"
            );
            let text = format!("{round} {group}");
            assert_eq!(publisher.publish("moved/x", text.as_bytes(), QoS::AtLeastOnce).await, ReasonCode::Success);
            assert_eq!(subscriber.text().await, text);
        }
    }
    let wrong = trio.nodes[0].admin(&["transfer-leadership", "--to", "node9"]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("there is no member node9; there are: "), "{wrong:?}");
    let led = trio.nodes[1].admin(&["transfer-leadership"]);
    assert!(led.code == Some(0) && !led.stdout.contains("node2"), "{led:?}");
}

#[tokio::test]
async fn a_node_that_lost_its_disk_joins_again_under_its_name_and_counts_again() {
    let mut trio = Trio::ready(Weight::Cluster);
    wait_three_vote(&trio.nodes[0]);
    let mut client = Client::connect(trio.mqtt(2), &Options::v5("kept").persistent()).await;
    client.subscribe("kept", QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for message in 0..50 {
        let reason = publisher.publish("kept", message.to_string().as_bytes(), QoS::ExactlyOnce).await;
        assert_eq!(reason, ReasonCode::Success);
    }
    trio.nodes[2].kill();
    fs::remove_dir_all(trio.nodes[2].data()).expect("the lost disk");
    trio.nodes[2].launch();
    trio.wait_ready();
    let filled = |node: &Node| node.stderr().contains("this node has its votes").then_some(());
    wait::until("the empty node has its votes", FILLED, || filled(&trio.nodes[2]));
    // On each: a change that only the leader knows to be through would be lost with it.
    trio.nodes.iter().for_each(wait_three_vote);
    let demoted = trio.nodes.iter().any(|node| node.stderr().contains("a voter came back without data"));
    assert!(demoted, "its vote was taken away first");
    trio.nodes[0].kill();
    wait::until("the others go on", SOON, || {
        (trio.nodes[1].is_up() && trio.nodes[2].is_up() && alive(&trio.nodes[2]) == 2).then_some(())
    });
    let mut client = Client::connect(trio.mqtt(2), &Options::v5("kept").persistent()).await;
    assert!(client.session_present());
    for message in 0..50 {
        assert_eq!(client.text().await, message.to_string());
    }
}

#[test]
fn two_nodes_with_one_name_are_told_in_both_logs_and_the_first_is_not_disturbed() {
    let trio = Trio::ready(Weight::Cluster);
    let home = tempfile::tempdir().expect("a directory");
    let mut config = Config { cluster: trio.nodes[1].config.cluster.clone(), ..Config::default() };
    let cluster = config.cluster.as_mut().expect("a cluster");
    cluster.port = ports::reserve();
    cluster.all_ports.push(cluster.port);
    let mut second = Node::within(home.path(), "node2-again", config);
    second.launch();
    let told = |node: &Node| node.stderr().contains("the name node2 is used by another running node").then_some(());
    wait::until("the log of the second says so", SOON, || told(&second));
    wait::until("the log of the first says so", SOON, || told(&trio.nodes[1]));
    assert_eq!(second.admin(&["status"]).code, Some(1), "it is not ready");
    std::thread::sleep(Duration::from_secs(3));
    for node in &trio.nodes {
        assert_eq!(alive(node), 3, "{}", node.name);
        assert!(!node.stderr().contains("incarnation ended"), "{}", node.stderr());
    }
}

#[test]
fn settings_that_differ_are_told_in_both_logs_and_by_status() {
    let mut trio = Trio::new(Weight::Cluster, |_| {});
    trio.nodes[2].config.addons = false;
    trio.start_all();
    for node in [&trio.nodes[0], &trio.nodes[2]] {
        wait::until("the log says so", SOON, || {
            let log = node.stderr();
            (log.contains("a setting differs between nodes") && log.contains("mqtt-addons/dropped-messages-topic/enabled"))
                .then_some(())
        });
    }
    let status = wait::until("status says so", SOON, || {
        let status = trio.nodes[0].admin(&["status"]).stdout;
        status.contains("warning  setting ").then_some(status)
    });
    let line = "setting mqtt-addons/dropped-messages-topic/enabled is true on node1 and false on node3: give all nodes the same";
    assert!(status.contains(line), "{status}");
    assert!(!trio.nodes[0].stderr().contains("peer=\"node2\" a setting"), "node2 has the same");
}

/// The names are in a file that takes the place of `/etc/hosts`, since the C library's resolver takes no other server without one.
struct Names {
    file: std::path::PathBuf,
}

impl Names {
    fn write(&self, names: &[(&str, &str)]) {
        let lines: Vec<String> = names.iter().map(|(address, name)| format!("{address} {name}\n")).collect();
        // In place: the processes have this very file.
        fs::write(&self.file, format!("127.0.0.1 localhost\n{}", lines.concat())).expect("the names");
    }
}

fn found_by_dns(name: &str, address: &str, port: u16, inside: &str, more: &str) -> Config {
    let cluster_xml = format!(
        "<cluster><enabled>true</enabled><node-name>{name}</node-name><secret>{SECRET}</secret>\
         <transport><tcp><bind-address>{address}</bind-address><bind-port>{port}</bind-port>{more}</tcp></transport>\
         <discovery><extension>{inside}</extension></discovery><expected-nodes>3</expected-nodes></cluster>"
    );
    let (mqtt_port, http_port) = (ports::reserve(), ports::reserve());
    Config { mqtt_port, http_port, websocket_port: ports::reserve(), cluster_xml: Some(cluster_xml), ..Config::default() }
}

#[test]
fn nodes_find_each_other_by_a_name_with_several_addresses_and_follow_it() {
    if !private_hosts() {
        leave_out("a mount namespace is not permitted here");
        return;
    }
    let _permit = acquire(Weight::Cluster);
    let home = tempfile::tempdir().expect("a directory");
    let names = Names { file: home.path().join("hosts") };
    let port = ports::reserve();
    names.write(&[("127.0.0.9", "nodes.test"), ("127.0.0.2", "two.test")]);
    let inside = "<address>nodes.test</address><reload-interval>1</reload-interval>";
    // The second is told to the others by a name of its own; the third has the address of the name from the environment.
    let external = "<external-address>two.test</external-address>";
    let configs = [
        found_by_dns("node1", "127.0.0.1", port, inside, ""),
        found_by_dns("node2", "127.0.0.2", port, inside, external),
        found_by_dns("node3", "127.0.0.3", port, "", ""),
    ];
    let mut nodes: Vec<Node> = configs
        .into_iter()
        .enumerate()
        .map(|(index, config)| {
            let name = format!("node{}", index + 1);
            let mut node = Node::within(&home.path().join(&name), &name, config);
            node.hosts = Some(names.file.clone());
            node
        })
        .collect();
    nodes[2].env = [("HIVEMQ_DNS_DISCOVERY_ADDRESS", "nodes.test"), ("HIVEMQ_DNS_RELOAD_INTERVAL", "1")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    nodes.iter_mut().for_each(Node::launch);
    wait::until("the first node answers", SOON, || nodes[0].status());
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(nodes[0].admin(&["status"]).code, Some(1), "nobody is at the one address of the name: no majority is in sight");

    let all = [("127.0.0.1", "nodes.test"), ("127.0.0.2", "nodes.test"), ("127.0.0.3", "nodes.test"), ("127.0.0.2", "two.test")];
    names.write(&all);
    nodes.iter_mut().for_each(Node::wait_ready);
    wait_three_vote(&nodes[0]);
    assert_eq!(address_of(&nodes[0], "node2"), Some(format!("two.test:{port}")));

    // Two nodes come back at other addresses: one behind the same name, one with another address that it tells.
    for (index, from, to) in [(1, "127.0.0.2", "127.0.0.5"), (2, "127.0.0.3", "127.0.0.6")] {
        assert!(nodes[index].stop().success());
        let xml = nodes[index].config.cluster_xml.take().expect("a cluster");
        nodes[index].config.cluster_xml = Some(xml.replace(from, to));
    }
    names.write(&[
        ("127.0.0.1", "nodes.test"),
        ("127.0.0.5", "nodes.test"),
        ("127.0.0.6", "nodes.test"),
        ("127.0.0.5", "two.test"),
    ]);
    nodes[1].launch();
    nodes[2].launch();
    nodes[1].wait_ready();
    nodes[2].wait_ready();
    for (member, address) in [("node2", "two.test"), ("node3", "127.0.0.6")] {
        let expected = format!("{address}:{port}");
        let known = || (address_of(&nodes[0], member)? == expected).then_some(());
        wait::until(&format!("{member} is reached at {expected}"), SOON, known);
    }
    wait_three_vote(&nodes[0]);
}

/// A node that may found alone looks around for others for so long.
const ALONE_WAIT: Duration = Duration::from_secs(5);
/// Less than that.
const AT_ONCE_S: f64 = 4.0;

/// Of a line of the log, that begins with its time.
fn seconds_of_day(line: &str) -> f64 {
    let time = line.split_once('T').and_then(|(_, rest)| rest.split_once('Z')).map(|(time, _)| time).expect("a time");
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().expect("a number"))
}

/// A node that may found alone, and what its name service tells; not started.
fn may_found_alone(home: &Path, name: &str, address: &str, port: u16, known: &[(&str, &str)]) -> (Node, Names) {
    let names = Names { file: home.join(format!("{name}-hosts")) };
    names.write(known);
    let mut config = found_by_dns(name, address, port, "<address>nodes.test</address>", "");
    config.cluster_xml = config.cluster_xml.map(|xml| xml.replace("<expected-nodes>3<", "<expected-nodes>1<"));
    let mut node = Node::within(&home.join(name), name, config);
    node.hosts = Some(names.file.clone());
    (node, names)
}

/// `expected-nodes` 1: who found itself behind each address of the name founds at once; an address that does not answer may be somebody.
#[test]
fn a_node_whose_name_has_nobody_else_founds_at_once_and_else_looks_around_first() {
    if !private_hosts() {
        leave_out("a mount namespace is not permitted here");
        return;
    }
    let _permit = acquire(Weight::Node);
    let home = tempfile::tempdir().expect("a directory");
    let port = ports::reserve();
    let launched = |name: &str, address: &str, known: &[(&str, &str)]| {
        let (mut node, names) = may_found_alone(home.path(), name, address, port, known);
        node.launch();
        (node, names)
    };
    // By its log, from when it had an address to when it had a cluster: how long the process took to start is another matter.
    let founded_after = |node: &Node| {
        let log = node.stderr();
        let at = |what: &str| {
            let line = log.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no line {what:?} in {log}"));
            seconds_of_day(line)
        };
        (at("founded the cluster") - at("the name of the cluster has an address")).rem_euclid(86_400.0)
    };
    let (mut alone, _) = launched("node1", "127.0.0.1", &[("127.0.0.1", "nodes.test")]);
    let begun = Instant::now();
    let (mut deserted, _) = launched("node2", "127.0.0.2", &[("127.0.0.2", "nodes.test"), ("127.0.0.9", "nodes.test")]);
    // Its own name comes up late.
    let (mut unnamed, names) = launched("node3", "127.0.0.3", &[]);
    alone.wait_ready();
    assert!(founded_after(&alone) < AT_ONCE_S, "{}", alone.stderr());
    wait::until("the node without a name answers", SOON, || unnamed.status());
    names.write(&[("127.0.0.3", "nodes.test")]);
    unnamed.wait_ready();
    assert!(unnamed.stderr().contains("founded the cluster"), "{}", unnamed.stderr());
    deserted.wait_ready();
    // Never sooner, however fast the machine is.
    assert!(begun.elapsed() >= ALONE_WAIT, "{:?}: {}", begun.elapsed(), deserted.stderr());
    assert!(founded_after(&deserted) > AT_ONCE_S, "it waited for the other address: {}", deserted.stderr());
    let ids: std::collections::BTreeSet<_> =
        [&alone, &deserted, &unnamed].into_iter().map(crate::harness::trio::cluster_id).collect();
    assert!(ids.len() == 3 && !ids.contains(&None), "{ids:?}");
}

#[test]
fn the_only_node_a_name_has_founds_without_waiting_for_others_and_one_that_is_named_beside_it_joins() {
    if !private_hosts() {
        leave_out("a mount namespace is not permitted here");
        return;
    }
    let _permit = acquire(Weight::Cluster);
    let home = tempfile::tempdir().expect("a directory");
    let port = ports::reserve();
    let (mut first, names) = may_found_alone(home.path(), "node1", "127.0.0.1", port, &[("127.0.0.1", "nodes.test")]);
    let begun = Instant::now();
    first.launch();
    first.wait_ready();
    let took = begun.elapsed();
    println!("alone: ready {took:?} after its start");
    assert!(took < ALONE_WAIT, "{took:?}: {}", first.stderr());

    // It may found alone as well, has no data, and finds the first one's cluster by its name.
    let both = [("127.0.0.2", "nodes.test"), ("127.0.0.1", "nodes.test")];
    names.write(&both);
    let (mut second, _) = may_found_alone(home.path(), "node2", "127.0.0.2", port, &both);
    second.launch();
    second.wait_ready();
    let cluster = |node: &Node| Some(node.status()?["cluster_id"].as_str()?.to_owned());
    assert!(cluster(&first).is_some(), "{:?}", first.status());
    assert_eq!(cluster(&first), cluster(&second));
}

#[test]
fn without_a_number_of_founders_a_node_found_by_dns_founds_nothing_and_says_so() {
    let _permit = acquire(Weight::Node);
    let mut config = found_by_dns("node1", "127.0.0.1", ports::reserve(), "<address>localhost</address>", "");
    config.cluster_xml = config.cluster_xml.map(|xml| xml.replace("<expected-nodes>3</expected-nodes>", ""));
    let mut node = Node::new(config);
    node.launch();
    wait::until("the node answers", SOON, || node.status());
    std::thread::sleep(Duration::from_secs(7));
    let status = node.admin(&["status"]);
    assert_eq!(status.code, Some(1), "{status:?}");
    assert!(status.stdout.contains("waits for a cluster to join: without <expected-nodes> this node founds none"), "{status:?}");
    assert!(node.stderr().contains("nobody says how many nodes found the cluster"), "{}", node.stderr());
}
