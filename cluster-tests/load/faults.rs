//! What the load tool says when something is wrong: with the server, with the machine, with the command line.

use std::process::Command;

use tempfile::TempDir;

use super::{SHORT, WITHIN, bench, figure, fine, mosquitto, play};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{interop_skipped, run};
use crate::harness::{ports, program};

const REFUSED: &str = "troupemq_connects_refused_total";

#[test]
fn a_server_that_loses_what_it_acknowledged_gives_1() {
    let _permit = acquire(Weight::Node);
    let queues = "<queued-messages><max-queue-size>10</max-queue-size><strategy>discard</strategy></queued-messages>";
    let node = Node::ready(Config { mqtt: queues.to_owned(), ..Config::default() });
    for version in ["3.1.1", "5"] {
        let (code, json) =
            play(node.mqtt(), &format!("offline --sessions 3 --messages 25 --publishers 1 --drain 1 --mqtt {version}"));
        assert_eq!((code, figure(&json, "lost")), (Some(1), 45.0), "{}", json["figures"]);
        assert_eq!((&json["ok"], json["faults"][0].as_str()), (&false.into(), Some("45 acknowledged messages lost")));
        // What the server keeps it may have.
        let (code, json) = play(node.mqtt(), &format!("offline --sessions 3 --messages 10 --publishers 1 --mqtt {version}"));
        assert_eq!((code, figure(&json, "lost")), (Some(0), 0.0), "{}", json["faults"]);
    }
}

#[test]
fn a_server_that_ends_gives_1_and_says_so() {
    if interop_skipped("load") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let home = TempDir::new().expect("a directory");
    let (running, address) = mosquitto(&home, "allow_anonymous true");
    let scene = std::thread::spawn(move || play(address, "connect --clients 10 --hold 1m"));
    let clients =
        || crate::harness::wait::until("all are connected", WITHIN, || (connections_to(address.port()) >= 10).then_some(()));
    clients();
    running.kill();
    let (code, json) = scene.join().expect("the scene");
    assert_eq!((code, figure(&json, "lost")), (Some(1), 10.0), "{}", json["faults"]);
    let told = json["faults"].to_string();
    assert!(told.contains("10 clients: lost: the server closed the connection"), "{told}");
}

/// As a fleet does.
#[test]
fn clients_that_are_turned_away_come_back_until_they_are_in() {
    let _permit = acquire(Weight::Node);
    let port = ports::reserve();
    let listeners = format!(
        "<tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address><connect-overload-protection>\
         <connect-rate>4</connect-rate><connect-burst-size>4</connect-burst-size></connect-overload-protection></tcp-listener>"
    );
    let node = Node::ready(Config { listeners, ..Config::default() });
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    // Connections wait five seconds at most: some twenty get in, MQTT 3 is closed on and MQTT 5 told.
    for version in ["3.1.1", "5"] {
        let before = node.metric(REFUSED);
        let json = fine(address, &format!("connect --clients 60 --burst --hold 0 --retry 100ms --mqtt {version}"));
        assert_eq!((figure(&json, "connected"), figure(&json, "not_connected")), (60.0, 0.0), "{version}");
        let turned_away = figure(&json, "turned_away");
        assert!(turned_away > 0.0, "{version}: nobody was turned away, which shows nothing");
        assert_eq!(node.metric(REFUSED) - before, turned_away, "{version}");
    }
    // Without it whoever is turned away has failed.
    let (code, json) = play(address, "connect --clients 60 --burst --hold 0");
    assert!(code == Some(1) && figure(&json, "not_connected") > 0.0, "{json}");
}

/// Established connections to a port of this machine, as the kernel lists them.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let remote = format!("0100007F:{port:04X}");
    table
        .lines()
        .filter(|line| line.split_whitespace().nth(2) == Some(&remote) && line.split_whitespace().nth(3) == Some("01"))
        .count()
}

#[test]
fn a_refusal_is_told_by_its_name() {
    if interop_skipped("load") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let home = TempDir::new().expect("a directory");
    let (_running, address) = mosquitto(&home, "allow_anonymous false");
    for (version, name) in [("3.1.1", "Not authorized"), ("5", "Not authorized")] {
        let (code, json) = play(address, &format!("connect --clients 2 --hold 0 --mqtt {version}"));
        let told = json["faults"].to_string();
        assert!(code == Some(1) && told.contains(&format!("2 clients: {address} refused the client: {name}")), "{code:?} {told}");
        let (code, json) = play(address, &format!("pubsub --pairs 1 {SHORT} --mqtt {version}"));
        let told = json["faults"].to_string();
        assert!(code == Some(1) && told.contains(name), "{code:?} {told}");
    }
}

#[test]
fn nobody_there_gives_1_with_the_address() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], ports::reserve()));
    for scene in ["connect --clients 1 --hold 0", "pubsub", "retained", "offline"] {
        let (code, json) = play(address, scene);
        let told = json["faults"].to_string();
        assert!(
            code == Some(1) && told.contains(&format!("cannot connect to {address}")) && told.contains("refused"),
            "{scene}: {told}"
        );
    }
}

#[test]
fn a_wrong_command_line_gives_2() {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 9));
    let table = [
        ("nonsense", "unrecognized subcommand"),
        ("pubsub --qos 4", "0, 1 or 2"),
        ("pubsub --payload 10", "24 bytes or more"),
        ("connect --burst --rate 5", "cannot be used with"),
        ("connect --source here", "no IP address"),
        ("connect --tls --ca-file /nowhere.pem", "/nowhere.pem"),
        ("offline --qos 0", "--qos 1 or 2"),
    ];
    for (arguments, says) in table {
        let finished = run(&mut bench(address, arguments), WITHIN);
        assert!(finished.code == Some(2) && finished.stderr.contains(says), "{arguments}: {finished:?}");
    }
}

#[test]
fn too_few_files_are_raised_where_they_may_and_told_where_not() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let limited = |limit: &str| {
        let script = format!("ulimit {limit} && exec \"$0\" bench connect {} --clients 150 --hold 0 -q", node.mqtt());
        run(Command::new("bash").arg("-c").arg(script).arg(program()), WITHIN)
    };
    let raised = limited("-Sn 100");
    assert_eq!(raised.code, Some(0), "{raised:?}");
    let refused = limited("-n 100");
    assert!(
        refused.code == Some(1)
            && refused.stderr.contains("250 open files are needed")
            && refused.stderr.contains("ulimit -n 250"),
        "{refused:?}"
    );
}
