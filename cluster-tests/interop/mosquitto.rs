//! `mosquitto_pub` and `mosquitto_sub`.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{Finished, Running, interop_skipped, run, start};
use crate::harness::{SOON, wait};

const VERSIONS: [&str; 3] = ["mqttv31", "mqttv311", "5"];
/// A client of mosquitto ends by itself within this; longer than its own `-W`.
const WITHIN: Duration = Duration::from_secs(30);

fn command(program: &str, address: SocketAddr, version: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string(), "-V", version]).args(arguments);
    command
}

fn publish(address: SocketAddr, version: &str, arguments: &[&str]) {
    let finished = run(&mut command("mosquitto_pub", address, version, arguments), WITHIN);
    assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
}

/// A subscriber that prints `%t %q %r %p` of `count` messages, started; waits until its subscription is there.
fn subscribe(node: &Node, version: &str, count: usize, arguments: &[&str]) -> Running {
    let subacks = "com_hivemq_messages_outgoing_suback_count";
    let before = node.metric(subacks);
    let count = count.to_string();
    let mut command = command("mosquitto_sub", node.mqtt(), version, &["-C", &count, "-W", "20", "-F", "%t %q %r %p"]);
    let running = start(command.args(arguments));
    wait::until("mosquitto_sub has subscribed", SOON, || (node.metric(subacks) > before).then_some(()));
    running
}

fn lines(finished: &Finished) -> Vec<&str> {
    assert_eq!(finished.code, Some(0), "{finished:?}");
    finished.stdout.lines().collect()
}

#[test]
fn messages_of_every_qos_in_every_version() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in VERSIONS {
        let topic = format!("qos/{version}");
        let subscriber = subscribe(&node, version, 3, &["-t", &format!("{topic}/#"), "-q", "2"]);
        for qos in ["0", "1", "2"] {
            publish(node.mqtt(), version, &["-t", &format!("{topic}/{qos}"), "-q", qos, "-m", &format!("payload {qos}")]);
        }
        let expected: Vec<String> = (0..3).map(|qos| format!("{topic}/{qos} {qos} 0 payload {qos}")).collect();
        assert_eq!(lines(&subscriber.finish(WITHIN)), expected);
    }
}

#[test]
fn retained_messages_are_kept_and_cleared() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in VERSIONS {
        let topic = format!("kept/{version}");
        publish(node.mqtt(), version, &["-t", &topic, "-q", "1", "-r", "-m", "there"]);
        let mut late =
            command("mosquitto_sub", node.mqtt(), version, &["-t", &topic, "-q", "1", "-C", "1", "-W", "10", "-F", "%r %p"]);
        assert_eq!(lines(&run(&mut late, WITHIN)), ["1 there"]);
        publish(node.mqtt(), version, &["-t", &topic, "-q", "1", "-r", "-n"]);
        let mut later = command("mosquitto_sub", node.mqtt(), version, &["-t", &topic, "-q", "1", "-C", "1", "-W", "1"]);
        let finished = run(&mut later, WITHIN);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(27), ""), "nothing within -W: {finished:?}");
    }
}

#[test]
fn a_will_is_published_when_its_client_is_killed() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in VERSIONS {
        let topic = format!("wills/{version}");
        let subscriber = subscribe(&node, version, 1, &["-t", &topic, "-q", "1"]);
        let will = ["-t", "x", "--will-topic", &topic, "--will-payload", "killed", "--will-qos", "1"];
        subscribe(&node, version, 1, &will).kill();
        assert_eq!(lines(&subscriber.finish(WITHIN)), [format!("{topic} 1 0 killed")]);
    }
}

#[test]
fn properties_pass_through_in_their_order() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let subscriber = subscribe(&node, "5", 1, &["-t", "t/#", "-q", "1", "-F", "%P | %C | %R | %D | %F | %E"]);
    let arguments = "-t t/1 -q 1 -m hello -D publish user-property dup first -D publish user-property other mid \
        -D publish user-property dup second -D publish content-type text/plain -D publish response-topic answer/to \
        -D publish correlation-data xyz -D publish payload-format-indicator 1 -D publish message-expiry-interval 120";
    publish(node.mqtt(), "5", &arguments.split_whitespace().collect::<Vec<_>>());
    let finished = subscriber.finish(WITHIN);
    let line = lines(&finished)[0];
    let (kept, expiry) = line.rsplit_once(" | ").expect("fields");
    assert_eq!(kept, "dup:first other:mid dup:second | text/plain | answer/to | xyz | 1");
    assert!(["119", "120"].contains(&expiry), "{expiry}");
}

#[tokio::test]
async fn a_persistent_session_keeps_messages_in_order() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in ["mqttv311", "5"] {
        let id = format!("kept-{version}");
        let topic = format!("queue/{version}");
        // With version 5, `-c` also asks for a session that never expires.
        let common = ["-i", id.as_str(), "-c", "-t", topic.as_str(), "-q", "1"];
        let mut first = command("mosquitto_sub", node.mqtt(), version, &["-E"]);
        assert_eq!(run(first.args(common), WITHIN).code, Some(0));
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        for number in 0..200 {
            publisher.publish(&topic, number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        }
        let mut again = command("mosquitto_sub", node.mqtt(), version, &["-C", "200", "-W", "20"]);
        let finished = run(again.args(common), WITHIN);
        let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        assert_eq!(lines(&finished), expected);
    }
}

#[tokio::test]
async fn members_of_a_shared_subscription_get_each_message_once() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    const MESSAGES: usize = 40;
    // A member ends with the last message, which goes to everybody.
    let member = || subscribe(&node, "5", MESSAGES + 1, &["-t", "$share/g/jobs/#", "-t", "end", "-q", "1", "-F", "%p"]);
    let members = [member(), member()];
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 0..MESSAGES {
        publisher.publish(&format!("jobs/{number}"), number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let mut done = Vec::new();
    for _ in 0..=MESSAGES {
        publisher.publish("end", b"end", QoS::AtLeastOnce).await;
    }
    for member in members {
        let finished = member.finish(WITHIN);
        let jobs: Vec<usize> = lines(&finished).into_iter().filter_map(|line| line.parse().ok()).collect();
        assert!(!jobs.is_empty(), "both members work");
        done.extend(jobs);
    }
    done.sort_unstable();
    assert_eq!(done, (0..MESSAGES).collect::<Vec<_>>());
}

#[test]
fn lifecycle_events_are_read_by_mosquitto_sub() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let subscriber = subscribe(&node, "mqttv311", 2, &["-t", "$client-events/#", "-q", "1", "-F", "%t %p"]);
    publish(node.mqtt(), "5", &["-i", "someone", "-t", "t", "-m", "x"]);
    let finished = subscriber.finish(WITHIN);
    let lines = lines(&finished);
    for (line, kind) in lines.iter().zip(["CONNECTED", "DISCONNECTED"]) {
        let (topic, json) = line.split_once(' ').expect("topic and payload");
        assert_eq!(topic, "$client-events/all/client-id/someone");
        let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(json["Event type"].as_str(), Some(kind));
    }
}
