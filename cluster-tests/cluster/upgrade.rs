//! From the release before to this one: its data directories are served, and a cluster is rolled node by node.
//!
//! `fixtures/format-2` holds what the first release with persistent sessions wrote (revision 2e829bd; protocol version 2, format 1 of all that
//! is stored). It stays as it is: a format that was released is read for ever. `make_the_fixture` is how it came to be.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use troupemq::mqtt::packet::{Publish, PublishAck};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::roamer::Roamer;
use crate::harness::script::{self, Finished};
use crate::harness::trio::Trio;
use crate::harness::{SOON, program, repository, wait};

/// A Will Delay Interval in seconds: longer than making the fixture takes, shorter than it is old when it is used.
const WILL_DELAY_S: u32 = 20;
const LARGE_BYTES: usize = 1_500_000;
const QUEUED: usize = 20;
const WORK: usize = 10;
const TOOL: Duration = Duration::from_secs(60);
const VOTES_AGAIN: Duration = Duration::from_secs(60);

fn fixture() -> PathBuf {
    repository().join("cluster-tests/fixtures/format-2")
}

/// A session that outlives the fixture.
fn lasting(client_id: &str) -> Options {
    Options::v5(client_id).clean_start(false).expiry(u32::MAX)
}

/// Compresses to little, and no part of it can be missing unnoticed.
fn large() -> Vec<u8> {
    (0..LARGE_BYTES).map(|at| u8::try_from(at / 1_000 % 251).unwrap()).collect()
}

/// What `served` expects, but for what the other half puts on top.
async fn fill_first_half(trio: &Trio) {
    for (node, filter, options) in [
        (0, "kept/#", lasting("keeper")),
        (1, "kept/#", Options::v3("keeper-3").clean_start(false)),
        (2, "$share/crew/work/#", lasting("worker")),
        (0, "wills/#", lasting("watcher")),
        (1, "half/#", lasting("half")),
        (2, "released/#", lasting("released")),
    ] {
        let mut client = Client::connect(trio.mqtt(node), &options).await;
        client.subscribe(filter, QoS::ExactlyOnce).await;
        client.disconnect().await;
    }
    let mut publisher = Client::connect(trio.mqtt(2), &Options::v5("publisher")).await;
    publisher.publish_retained("retained/1", b"before", QoS::AtLeastOnce).await;
    publisher.publish_retained("retained/gone", b"before", QoS::AtLeastOnce).await;
    publisher.publish("kept/first", b"first", QoS::AtLeastOnce).await;
    publisher.disconnect().await;
}

async fn fill_second_half(trio: &Trio) {
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    for number in 0..QUEUED {
        let qos = if number % 2 == 0 { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
        publisher.publish("kept/queued", format!("queued {number}").as_bytes(), qos).await;
    }
    publisher.publish("kept/large", &large(), QoS::AtLeastOnce).await;
    for number in 0..WORK {
        publisher.publish("work/x", format!("work {number}").as_bytes(), QoS::AtLeastOnce).await;
    }
    publisher.publish_retained("retained/1", b"retained 1", QoS::AtLeastOnce).await;
    publisher.publish_retained("retained/2", b"retained 2", QoS::ExactlyOnce).await;
    publisher.publish_retained("retained/gone", b"", QoS::AtLeastOnce).await;
    publisher.publish("half/x", b"unacknowledged", QoS::AtLeastOnce).await;
    publisher.publish("released/x", b"released", QoS::ExactlyOnce).await;
    publisher.disconnect().await;

    // Delivered and not acknowledged.
    let mut half = Client::connect(trio.mqtt(2), &lasting("half").manual_ack()).await;
    assert_eq!(half.message().await.packet_id.map(|id| id.get()), Some(1));
    // Received by the client up to PUBREC; it does not answer PUBREL.
    let mut released = Client::connect(trio.mqtt(0), &lasting("released").manual_ack()).await;
    let id = released.message().await.packet_id.expect("QoS 2");
    assert_eq!(id.get(), 1);
    released.send(&Packet::Pubrec(PublishAck::new(id, ReasonCode::Success))).await.unwrap();
    assert!(matches!(released.next_packet(SOON).await, Ok(Packet::Pubrel(_))));
    // Received from the client up to PUBREC; it has sent no PUBREL.
    let mut sender = Client::connect(trio.mqtt(0), &lasting("sender")).await;
    sender.start_publish(publish("kept/once", b"once", QoS::ExactlyOnce)).await.unwrap();
    assert!(matches!(sender.next_packet(SOON).await, Ok(Packet::Pubrec(_))));
    // A Will that waits.
    let mortal = Client::connect(trio.mqtt(1), &lasting("mortal").will("wills/mortal", "died", WILL_DELAY_S)).await;
    for client in [half, released, sender, mortal] {
        client.reset();
    }
    // Until the nodes have seen the resets.
    Client::connect(trio.mqtt(0), &Options::v5("last")).await.ping().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}

/// All that was filled in is there, once, and in order. Uses it up.
async fn served(trio: &Trio) {
    for (node, options) in [(1, lasting("keeper")), (2, Options::v3("keeper-3").clean_start(false))] {
        let mut client = Client::connect(trio.mqtt(node), &options).await;
        assert!(client.session_present(), "{}", options.client_id());
        let mut expected: Vec<(String, Vec<u8>)> = vec![("kept/first".to_owned(), b"first".to_vec())];
        expected.extend((0..QUEUED).map(|number| ("kept/queued".to_owned(), format!("queued {number}").into_bytes())));
        expected.push(("kept/large".to_owned(), large()));
        expected.push(("kept/once".to_owned(), b"once".to_vec()));
        for (topic, payload) in expected {
            let message = client.message().await;
            assert!(
                (&*message.topic, &*message.payload) == (&topic, &payload),
                "{topic}: {} bytes of {}",
                message.payload.len(),
                message.topic
            );
        }
        client.nothing().await;
        client.disconnect().await;
    }
    let mut worker = Client::connect(trio.mqtt(0), &lasting("worker")).await;
    let mut work = Vec::new();
    for _ in 0..WORK {
        work.push(worker.text().await);
    }
    assert_eq!(work, (0..WORK).map(|number| format!("work {number}")).collect::<Vec<_>>());
    worker.disconnect().await;

    let mut late = Client::connect(trio.mqtt(1), &Options::v5("late")).await;
    late.subscribe("retained/#", QoS::ExactlyOnce).await;
    let mut retained = vec![late.text().await, late.text().await];
    retained.sort();
    assert_eq!(retained, ["retained 1", "retained 2"]);
    late.nothing().await;

    let mut half = Client::connect(trio.mqtt(0), &lasting("half")).await;
    let again = half.message().await;
    assert_eq!((&*again.payload, again.packet_id.map(|id| id.get()), again.dup), (&b"unacknowledged"[..], Some(1), true));
    half.disconnect().await;

    let mut released = Client::connect(trio.mqtt(2), &lasting("released").manual_ack()).await;
    match released.next_packet(SOON).await {
        Ok(Packet::Pubrel(release)) => assert_eq!(release.packet_id.get(), 1),
        other => panic!("not the PUBREL that was not answered: {other:?}"),
    }
    released.disconnect().await;

    let mut watcher = Client::connect(trio.mqtt(2), &lasting("watcher")).await;
    assert_eq!(watcher.text().await, "died");
    watcher.nothing().await;

    // The message is known: a resend of it is acknowledged and goes to nobody.
    let mut sender = Client::connect(trio.mqtt(2), &lasting("sender")).await;
    assert!(sender.session_present());
    let packet = sender.session.start(publish("kept/once", b"once", QoS::ExactlyOnce));
    let id = packet.packet_id.expect("QoS 2");
    assert_eq!(id.get(), 1);
    sender.send(&Packet::Publish(Box::new(Publish { dup: true, ..packet }))).await.unwrap();
    assert!(matches!(sender.next_packet(SOON).await, Ok(Packet::Pubrec(_))));
    sender.send(&Packet::Pubrel(PublishAck::new(id, ReasonCode::Success))).await.unwrap();
    assert!(matches!(sender.next_packet(SOON).await, Ok(Packet::Pubcomp(_))));
    let mut keeper = Client::connect(trio.mqtt(0), &lasting("keeper")).await;
    keeper.nothing().await;
    keeper.disconnect().await;
}

/// `../shared/cases.md`, row 26: what a node of the version before has written is that of a node of this one.
#[tokio::test]
async fn directories_of_the_release_before_are_served() {
    let mut trio = Trio::new(Weight::Cluster, |_| {});
    for node in &trio.nodes {
        unpack(node);
        let checked = storage(&["check"], node);
        assert!(checked.code == Some(0) && checked.stdout.contains("nothing is damaged"), "{checked:?}");
    }
    trio.start_all();
    served(&trio).await;
}

fn unpack(node: &Node) {
    let archive = fixture().join(format!("{}.tar.gz", node.name));
    fs::create_dir_all(node.data()).unwrap();
    tool(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(node.data()));
}

/// `troupemq storage ..` for a node that is stopped.
pub(super) fn storage(arguments: &[&str], node: &Node) -> Finished {
    script::run(Command::new(program()).arg("storage").args(arguments).arg("--data").arg(node.data()), TOOL)
}

/// Waits until a node that was filled again is a voter of every group: until then the others alone make the majorities.
pub(super) fn votes_again(asked: &Node, name: &str) {
    wait::until(&format!("{name} votes again"), VOTES_AGAIN, || {
        let finished =
            script::run(Command::new(program()).args(["cluster", "status", "--json", "--data"]).arg(asked.data()), TOOL);
        let status: serde_json::Value = serde_json::from_str(&finished.stdout).ok()?;
        let groups = status["groups"].as_array()?;
        let votes =
            |group: &serde_json::Value| group["voters"].as_array().is_some_and(|all| all.iter().any(|voter| voter == name));
        (!groups.is_empty() && groups.iter().all(votes)).then_some(())
    });
}

#[track_caller]
fn tool(command: &mut Command) {
    let finished = script::run(command, TOOL);
    assert_eq!(finished.code, Some(0), "{finished:?}");
}

/// Three nodes of the release before, filled, all killed at the same moment; of the last node the power took what its state had not flushed since
/// the first half, so that log entries stand behind it.
///
/// To be run once for each release, with its program in `TROUPEMQ_OLD_BIN`.
#[tokio::test]
#[ignore = "makes cluster-tests/fixtures"]
async fn make_the_fixture() {
    let Some(old) = old_program() else { panic!("TROUPEMQ_OLD_BIN does not name the program of the release before") };
    let mut trio = Trio::new(Weight::Whole, |_| {});
    trio.nodes.iter_mut().for_each(|node| node.program = Some(old.clone()));
    trio.start_all();
    fill_first_half(&trio).await;
    assert!(trio.nodes[2].stop().success());
    let (state, earlier) = (trio.nodes[2].data().join("state"), trio.nodes[2].data().join("../state-earlier"));
    tool(Command::new("cp").arg("-r").arg(&state).arg(&earlier));
    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    fill_second_half(&trio).await;
    trio.nodes.iter_mut().for_each(Node::kill);
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&earlier, &state).unwrap();
    fs::create_dir_all(fixture()).unwrap();
    for node in &trio.nodes {
        fs::remove_file(node.data().join("lock")).unwrap();
        let archive = fixture().join(format!("{}.tar.gz", node.name));
        tool(Command::new("tar").arg("-I").arg("gzip -9n").arg("-cSf").arg(&archive).arg("-C").arg(node.data()).arg("."));
    }
}

fn old_program() -> Option<PathBuf> {
    std::env::var_os("TROUPEMQ_OLD_BIN").map(PathBuf::from).filter(|path| Path::exists(path))
}

/// A real roll under load. The old program is not in the tree: without it, `mixed versions` in the library's cluster tests stand for it.
#[tokio::test]
#[ignore = "needs the program of the release before in TROUPEMQ_OLD_BIN"]
async fn a_cluster_of_the_release_before_is_rolled_under_load() {
    let Some(old) = old_program() else { panic!("TROUPEMQ_OLD_BIN does not name the program of the release before") };
    let mut trio = Trio::new(Weight::Whole, |_| {});
    trio.nodes.iter_mut().for_each(|node| node.program = Some(old.clone()));
    trio.start_all();
    fill_first_half(&trio).await;
    fill_second_half(&trio).await;
    let mut subscriber = Roamer::connect(trio.all_mqtt(), 0, lasting("roamer")).await;
    subscriber.client().await.subscribe("load", QoS::AtLeastOnce).await;
    let addresses = trio.all_mqtt();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let load = tokio::spawn(async move { keep_publishing(addresses, stopped).await });
    let received = tokio::spawn(async move {
        let mut numbers: Vec<u64> = Vec::new();
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < SOON {
            let Some(message) = subscriber.message(Duration::from_secs(1)).await else { continue };
            quiet_since = Instant::now();
            let number = String::from_utf8_lossy(&message.payload).parse().expect("a number");
            if number == u64::MAX {
                break;
            }
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        (numbers, subscriber.wrongly_redelivered)
    });
    for index in [1, 2, 0] {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let node = &mut trio.nodes[index];
        assert!(node.stop().success());
        node.program = None;
        node.launch();
        trio.wait_ready_one(index);
        println!("node {index} rolled");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    _ = stop.send(());
    let acknowledged = load.await.unwrap();
    let mut last = Client::connect(trio.mqtt(1), &Options::v5("last")).await;
    last.publish("load", u64::MAX.to_string().as_bytes(), QoS::AtLeastOnce).await;
    let (numbers, wrong) = received.await.unwrap();
    println!("{} messages acknowledged, {} received", acknowledged.len(), numbers.len());
    assert_eq!(wrong, Vec::<String>::new());
    let missing: Vec<u64> = acknowledged.iter().copied().filter(|number| !numbers.contains(number)).collect();
    assert_eq!(missing, Vec::<u64>::new());
    assert!(numbers.is_sorted(), "in order of their first arrival");
    served(&trio).await;
}

/// Publishes numbers, each until it is acknowledged by some node; returns those that were.
async fn keep_publishing(addresses: Vec<std::net::SocketAddr>, mut stopped: tokio::sync::oneshot::Receiver<()>) -> Vec<u64> {
    let options = Options::v5("load").clean_start(true);
    let (mut acknowledged, mut next, mut client) = (Vec::new(), 0, None);
    for number in 0.. {
        loop {
            if client.is_none() {
                next += 1;
                client = Client::try_connect(addresses[next % addresses.len()], &options).await.ok();
            }
            let Some(connected) = &mut client else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let message = publish("load", number.to_string().as_bytes(), QoS::AtLeastOnce);
            match connected.try_publish(message).await {
                Ok(code) if !code.is_error() => break,
                _ => client = None,
            }
        }
        acknowledged.push(number);
        if stopped.try_recv().is_ok() {
            break;
        }
    }
    acknowledged
}
