//! `troupemq bench`: every scene against one node and against mosquitto, in both versions, over TLS and WebSocket; and that it tells the truth when
//! a server loses something.

mod faults;
mod transports;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{Running, interop_skipped, run, start};
use crate::harness::trio::Trio;
use crate::harness::{SOON, ports, program, repository, wait};

/// A short scene ends within this, also where the machine is busy.
const WITHIN: Duration = Duration::from_secs(60);
/// Options of scenes that flow, for a test.
const SHORT: &str = "--warm-up 50ms --duration 200ms";

/// The arguments in one line.
fn bench(server: SocketAddr, arguments: &str) -> Command {
    let mut command = Command::new(program());
    command.arg("bench").args(arguments.split_whitespace()).arg(server.to_string()).args(["--quiet", "--json", "-"]);
    command
}

/// Plays a scene; exit status and JSON.
fn play(server: SocketAddr, arguments: &str) -> (Option<i32>, Value) {
    let finished = run(&mut bench(server, arguments), WITHIN);
    let json = serde_json::from_str(&finished.stdout);
    (finished.code, json.unwrap_or_else(|error| panic!("{arguments}: {error} in {finished:?}")))
}

/// Plays a scene that must be fine.
#[track_caller]
fn fine(server: SocketAddr, arguments: &str) -> Value {
    let (code, json) = play(server, arguments);
    assert_eq!(code, Some(0), "{arguments}: {:?} {:?}", json["faults"], json["figures"]);
    assert_eq!(json["ok"], true, "{arguments}");
    json
}

#[track_caller]
fn figure(json: &Value, key: &str) -> f64 {
    json["figures"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {}", json["figures"]))
}

/// Mosquitto, on a port of its own.
fn mosquitto(home: &TempDir, more: &str) -> (Running, SocketAddr) {
    let port = ports::reserve();
    let file = home.path().join("mosquitto.conf");
    std::fs::write(&file, format!("listener {port} 127.0.0.1\nuser root\nset_tcp_nodelay true\nlog_dest none\n{more}\n"))
        .expect("a file");
    let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
    let running = start(Command::new("mosquitto").arg("-c").arg(file).env("PATH", path));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    wait::until("mosquitto listens", SOON, || std::net::TcpStream::connect(address).ok());
    (running, address)
}

/// Scenes whose messages are counted, with how many get each. Where no rate is given, messages are in flight until they are received: a queue that
/// overflows would be the truth, and not what is tested here.
fn flows() -> [(String, f64); 6] {
    [
        (format!("pubsub --pairs 4 --qos 0 {SHORT}"), 1.0),
        (format!("pubsub --pairs 4 --qos 1 --rate 200 {SHORT}"), 1.0),
        (format!("pubsub --pairs 4 --qos 2 --until-received {SHORT}"), 1.0),
        (format!("fanout --subscribers 5 --qos 1 --until-received {SHORT}"), 5.0),
        (format!("fanin --publishers 5 --in-flight 2 --qos 1 --until-received {SHORT}"), 1.0),
        (format!("shared --publishers 4 --members 3 --qos 2 --in-flight 4 --until-received {SHORT}"), 1.0),
    ]
}

/// Every scene, with the sums its JSON must have.
fn every_scene(server: SocketAddr, version: &str) {
    for (scene, copies) in flows() {
        let json = fine(server, &format!("{scene} --mqtt {version}"));
        let sent = figure(&json, "sent");
        assert!(sent > 0.0 && figure(&json, "received") == sent * copies, "{scene}: {}", json["figures"]);
        let counted = json["times_ms"]["latency"]["count"].as_f64().unwrap();
        assert!(counted > 0.0 && counted <= sent * copies, "{scene}: {counted} of {sent}");
        if !scene.contains("--qos 0") {
            assert_eq!(figure(&json, "acknowledged"), sent, "{scene}");
        }
        let p99 = json["times_ms"]["latency"]["p99"].as_f64().unwrap();
        assert!(p99 > 0.0 && p99 <= json["times_ms"]["latency"]["max"].as_f64().unwrap(), "{scene}");
        for key in ["lost", "doubled", "out_of_order"] {
            assert_eq!(figure(&json, key), 0.0, "{scene}: {key}");
        }
    }
    let json = fine(server, &format!("connect --clients 40 --hold 100ms --interval 50 --mqtt {version}"));
    assert_eq!((figure(&json, "connected"), figure(&json, "not_connected"), figure(&json, "lost")), (40.0, 0.0, 0.0));
    assert_eq!(json["times_ms"]["connect"]["count"], 40);
    assert!(json["load_tool"]["busiest_thread"].as_f64().is_some_and(|busy| busy > 0.0), "{}", json["load_tool"]);
    let per_second = |slice: &Value| slice["connects_per_s"].as_f64().unwrap();
    assert!(json["series"].as_array().unwrap().iter().any(|slice| per_second(slice) > 0.0), "{}", json["series"]);
    for pace in ["--rate 200", "--burst --session-expiry 60"] {
        let json = fine(server, &format!("connect --clients 20 --hold 0 {pace} --source 127.0.0.1..127.0.0.3 --mqtt {version}"));
        assert_eq!(figure(&json, "connected"), 20.0, "{pace}");
    }
    let json = fine(server, &format!("retained --messages 300 --publishers 3 --subscribers 2 --mqtt {version}"));
    assert_eq!((figure(&json, "retained"), figure(&json, "received")), (300.0, 600.0));
    let json = fine(server, &format!("offline --sessions 5 --messages 60 --publishers 2 --qos 2 --mqtt {version}"));
    assert_eq!((figure(&json, "acknowledged"), figure(&json, "received")), (300.0, 300.0));
    assert!(figure(&json, "fill_per_s") > 0.0 && figure(&json, "drain_per_s") > 0.0, "{}", json["figures"]);
}

#[test]
fn every_scene_is_fine_with_a_node_and_leaves_nothing_behind() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in ["3.1.1", "5"] {
        every_scene(node.mqtt(), version);
    }
    let left = || node.metric("com_hivemq_messages_retained_current") + node.metric("com_hivemq_sessions_persistent_active");
    wait::until("retained messages and sessions are gone", SOON, || (left() == 0.0).then_some(()));
    fine(node.mqtt(), "retained --messages 7 --publishers 2 --topic stays --keep");
    assert_eq!(node.metric("com_hivemq_messages_retained_current"), 7.0);
}

/// More than sockets and the limits of waiting QoS 0 messages take: they come all at once, and a subscriber can read no faster.
#[test]
fn retained_messages_of_qos_0_all_come_however_many_there_are() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let json = fine(node.mqtt(), "retained --messages 3000 --payload 4096 --publishers 4 --subscribers 3 --qos 0");
    assert_eq!((figure(&json, "retained"), figure(&json, "received")), (3_000.0, 9_000.0));
    assert_eq!(node.metric("com_hivemq_messages_dropped_count"), 0.0);
}

#[test]
fn every_scene_is_fine_with_mosquitto() {
    if interop_skipped("load") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let home = TempDir::new().expect("a directory");
    let (_running, address) = mosquitto(&home, "allow_anonymous true\nmax_queued_messages 100000");
    for version in ["3.1.1", "5"] {
        every_scene(address, version);
    }
}

#[test]
fn an_interrupt_ends_a_scene_with_what_there_is() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let child =
        bench(node.mqtt(), "pubsub --pairs 2 --rate 100 --warm-up 0 --duration 10m").stdout(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("the program starts");
    let published = || node.metric("com_hivemq_messages_incoming_publish_count") > 20.0;
    wait::until("messages flow", SOON, || published().then_some(()));
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process can be signalled");
    wait::until("it ends", SOON, || child.try_wait().expect("the process can be asked"));
    let output = child.wait_with_output().expect("its output");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &json["interrupted"]), (Some(0), &Value::Bool(true)), "{}", json["faults"]);
    assert!(figure(&json, "sent") > 20.0 && figure(&json, "received") == figure(&json, "sent"), "{}", json["figures"]);
}

#[test]
fn clients_go_on_at_the_next_node_and_nothing_acknowledged_is_lost() {
    let mut trio = Trio::ready(Weight::Cluster);
    let servers: Vec<String> = trio.all_mqtt().iter().map(ToString::to_string).collect();
    let arguments = "failover --pairs 6 --rate 200 --qos 2 --warm-up 500ms --duration 10m --drain 15s";
    let mut command = Command::new(program());
    command.arg("bench").args(arguments.split(' ')).args(servers).args(["--quiet", "--json", "-"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("the program starts");
    let incoming = |node: usize| trio.nodes[node].metric("com_hivemq_messages_incoming_publish_count");
    wait::until("messages flow on each node", SOON, || (0..3).all(|node| incoming(node) > 50.0).then_some(()));
    trio.nodes[2].kill();
    let connections = |node: usize| trio.nodes[node].metric("com_hivemq_networking_connections_current");
    wait::until("all are at the others", WITHIN, || (connections(0) + connections(1) == 12.0).then_some(()));
    // Another second of each publisher: what flows anew is part of what is counted.
    let after = [0, 1].map(|node| trio.nodes[node].metric("com_hivemq_messages_incoming_publish_count"));
    let flows = || [0, 1].map(|node| trio.nodes[node].metric("com_hivemq_messages_incoming_publish_count"));
    wait::until("messages flow again", WITHIN, || {
        (flows().iter().sum::<f64>() > after.iter().sum::<f64>() + 200.0).then_some(())
    });
    kill_process(Pid::from_child(&child), Signal::INT).expect("the process can be signalled");
    wait::until("it ends", WITHIN, || child.try_wait().expect("the process can be asked"));
    let output = child.wait_with_output().expect("its output");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(0), "{} {}", json["faults"], json["figures"]);
    assert!(figure(&json, "connections_lost") >= 4.0, "{}", json["figures"]);
    assert_eq!(json["times_ms"]["reconnect"]["count"], figure(&json, "connections_lost"));
    assert!(json["times_ms"]["publisher_gap"]["max"].as_f64().unwrap() > 50.0, "{}", json["times_ms"]);
}

/// The table is for people.
#[test]
fn without_json_it_prints_a_table() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut command = Command::new(program());
    let file = TempDir::new().expect("a directory");
    let json = file.path().join("result.json");
    command.args(["bench", "connect", &node.mqtt().to_string(), "--clients", "5", "--hold", "1500ms", "--json"]).arg(&json);
    let finished = run(command.current_dir(repository()), WITHIN);
    assert_eq!(finished.code, Some(0), "{finished:?}");
    for part in ["connects", "SYN to CONNACK", "per second", "p99"] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    assert!(finished.stderr.contains("holding: 5 connected"), "{finished:?}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("a file")).expect("JSON");
    assert_eq!(figure(&json, "connected"), 5.0);
}
