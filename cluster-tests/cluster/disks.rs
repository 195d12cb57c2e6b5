//! Disks that fill up, fail, refuse or are not ours, and snapshots that are interrupted.
//!
//! Those that need file systems of their own run as root only, and say so where they are left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use troupemq::mqtt::QoS;
use troupemq::replica::ShardId;

use super::upgrade::{storage, votes_again};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::{Config, SHARDS};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::trio::Trio;
use crate::harness::{SOON, program, repository, script, wait};

pub(super) const MIB: usize = 1024 * 1024;
pub(super) const TOOL: Duration = Duration::from_secs(60);
/// A disk fills up, and the node ends, within this.
const FILLS: Duration = Duration::from_secs(120);

/// A mounted file system; unmounted when dropped.
pub(super) struct Mount(PathBuf);

/// Leaves a line for the summary of `make test`, as the fault tests do: what a passing test prints nobody sees.
pub(crate) fn leave_out(reason: &str) {
    let test = std::thread::current().name().map_or_else(|| "cluster.disks".to_owned(), |name| name.replace("::", "."));
    let folder = repository().join("target/faults");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{test}.skipped")), format!("{test}: {reason}\n")).unwrap();
    println!("SKIPPED {test}: {reason}");
}

impl Mount {
    /// `None`, with the reason printed, where mounting is not permitted.
    pub(super) fn new(arguments: &[&str], at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        if !rustix::process::geteuid().is_root() {
            leave_out("mounting a file system needs root");
            return None;
        }
        let finished = script::run(Command::new("mount").args(arguments).arg(at), TOOL);
        if finished.code != Some(0) {
            leave_out(&format!("mount {arguments:?}: {}", finished.stderr.trim()));
            return None;
        }
        Some(Self(at.to_owned()))
    }

    fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        let finished = script::run(Command::new("mount").args(["-o", &options]).arg(&self.0), TOOL);
        assert_eq!(finished.code, Some(0), "{finished:?}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn holder() -> Options {
    Options::v5("holder").persistent()
}

/// Text that does not compress, and tells its number.
pub(super) fn payload(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut bytes = format!("{number:08} ").into_bytes();
    while bytes.len() < 200_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

async fn hold(address: std::net::SocketAddr) {
    let mut client = Client::connect(address, &holder()).await;
    client.subscribe("held", QoS::AtLeastOnce).await;
    client.disconnect().await;
}

/// Publishes until the node's process has ended; returns how many were acknowledged.
async fn fill(node: &mut Node) -> usize {
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let began = Instant::now();
    let mut acknowledged = 0;
    while let Ok(code) = publisher.try_publish(publish("held", &payload(acknowledged), QoS::AtLeastOnce)).await {
        if code.is_error() {
            break;
        }
        acknowledged += 1;
        assert!(began.elapsed() < FILLS, "{acknowledged} messages and the disk is not full");
    }
    acknowledged
}

async fn holds(address: std::net::SocketAddr, count: usize) {
    let mut client = Client::connect(address, &holder()).await;
    assert!(client.session_present());
    for number in 0..count {
        let message = client.message().await;
        assert!(message.payload == payload(number), "message {number} of {count}");
    }
}

/// Which write finds out first is a matter of chance; one of the engine's in the background says less.
fn tells_of_a_full_disk(said: &str) -> bool {
    said.contains("No space left on device") || (said.contains("is there room on the disk?") && said.contains("KiB are free"))
}

#[tokio::test]
async fn a_full_disk_ends_the_node_with_the_reason_and_with_room_it_has_all_it_acknowledged() {
    let _permit = acquire(Weight::Whole);
    let mut node = Node::new(Config::default());
    let Some(disk) = Mount::new(&["-t", "tmpfs", "-o", "size=24m", "tmpfs"], &node.data()) else { return };
    node.start();
    hold(node.mqtt()).await;
    let acknowledged = fill(&mut node).await;
    let status = node.wait_ended();
    assert_eq!(status.code(), Some(1), "{}", node.stderr());
    assert!(tells_of_a_full_disk(&node.stderr()), "{}", node.stderr());
    assert!(acknowledged > 10, "{acknowledged}");
    // Full as it is, a start says so. The last blocks may still be enough for one: then it is ready, and ends at the next write.
    fs::write(node.data().join("filler"), vec![1; 24 * MIB]).unwrap_err();
    let refusal = node.refused();
    assert!(!refusal.status.success() && tells_of_a_full_disk(&refusal.stderr), "{}", refusal.stderr);
    fs::remove_file(node.data().join("filler")).unwrap();
    disk.resize("200m");
    node.start();
    println!("{acknowledged} messages of 200 kB were acknowledged before the disk was full");
    holds(node.mqtt(), acknowledged).await;
    node.kill();
}

#[tokio::test]
async fn a_full_disk_of_one_node_of_three_costs_nothing_acknowledged_and_the_others_go_on() {
    let mut trio = Trio::new(Weight::Whole, |_| {});
    let Some(disk) = Mount::new(&["-t", "tmpfs", "-o", "size=24m", "tmpfs"], &trio.nodes[2].data()) else { return };
    trio.start_all();
    hold(trio.mqtt(0)).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    let began = Instant::now();
    let mut acknowledged = 0;
    while !trio.nodes[2].has_ended() {
        publisher.publish("held", &payload(acknowledged), QoS::AtLeastOnce).await;
        acknowledged += 1;
        assert!(began.elapsed() < FILLS, "{acknowledged} messages and the disk is not full");
    }
    assert_eq!(trio.nodes[2].wait_ended().code(), Some(1));
    assert!(tells_of_a_full_disk(&trio.nodes[2].stderr()), "{}", trio.nodes[2].stderr());
    for _ in 0..10 {
        publisher.publish("held", &payload(acknowledged), QoS::AtLeastOnce).await;
        acknowledged += 1;
    }
    disk.resize("400m");
    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    holds(trio.mqtt(2), acknowledged).await;
    trio.nodes[2].kill();
}

/// A file system on a disk that has less room than it says: writes are taken, and the flush fails.
#[tokio::test]
async fn a_failed_flush_ends_the_node_and_nothing_acknowledged_is_lost() {
    let _permit = acquire(Weight::Whole);
    let mut node = Node::new(Config::default());
    let home = node.data().parent().unwrap().to_owned();
    let Some(disk) = Mount::new(&["-t", "tmpfs", "-o", "size=24m", "tmpfs"], &home.join("disk")) else { return };
    let image = home.join("disk/image");
    fs::File::create(&image).unwrap().set_len(512 * MIB as u64).unwrap();
    let made = script::run(Command::new("mkfs.ext4").args(["-q", "-F", "-E", "lazy_itable_init=1"]).arg(&image), TOOL);
    if made.code != Some(0) {
        leave_out(&format!("mkfs.ext4: {}", made.stderr.trim()));
        return;
    }
    let image = image.to_string_lossy().into_owned();
    let Some(mounted) = Mount::new(&["-o", "loop", &image], &node.data()) else { return };
    node.start();
    hold(node.mqtt()).await;
    let acknowledged = fill(&mut node).await;
    let status = node.wait_ended();
    assert_eq!(status.code(), Some(1), "{}", node.stderr());
    assert!(node.stderr().contains("Input/output error") || node.stderr().contains("Read-only file system"), "{}", node.stderr());
    assert!(acknowledged > 10, "{acknowledged}");
    drop(mounted);
    disk.resize("700m");
    wait::until("the file system is unmounted", SOON, || {
        script::run(Command::new("e2fsck").args(["-p", &image]), TOOL).code.filter(|code| *code < 4)
    });
    let Some(_mounted) = Mount::new(&["-o", "loop", &image], &node.data()) else { panic!("it was mounted before") };
    node.start();
    println!("{acknowledged} messages of 200 kB were acknowledged before a flush failed");
    holds(node.mqtt(), acknowledged).await;
    node.kill();
}

#[tokio::test]
async fn a_directory_that_may_not_be_used_is_named_with_the_reason_and_left_as_it_is() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    // In use.
    let home = node.data().parent().unwrap().to_owned();
    let mut second = Node::within(&home, "second", Config::default());
    let refusal = second.refused();
    assert!(refusal.stderr.contains("is used by process"), "{}", refusal.stderr);
    for command in [&["check"][..], &["recover", "--yes"]] {
        let finished = storage(command, &node);
        assert!(finished.code == Some(2) && finished.stderr.contains("is used by process"), "{finished:?}");
    }
    assert!(node.stop().success());
    // Of another node.
    let identity = node.data().join("identity");
    let own = fs::read(&identity).unwrap();
    let mut other = Node::within(
        &home,
        "other",
        Config { more: "<cluster><node-name>other</node-name></cluster>".to_owned(), ..Config::default() },
    );
    let refusal = other.refused();
    assert!(refusal.stderr.contains("belongs to node") && refusal.stderr.contains("not to node other"), "{}", refusal.stderr);
    // Of a newer version.
    fs::write(&identity, "troupemq-data 99 00000000\n{}").unwrap();
    let refusal = node.refused();
    assert!(
        refusal.stderr.contains("format version 99") && refusal.stderr.contains("start the newer program"),
        "{}",
        refusal.stderr
    );
    let finished = storage(&["recover", "--yes"], &node);
    assert!(finished.code == Some(2) && finished.stderr.contains("format version 99"), "{finished:?}");
    fs::write(&identity, own).unwrap();
    // Of another user.
    if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program());
        let finished = script::run(command.args(["start", "--data"]).arg(node.data()), TOOL);
        assert!(finished.code != Some(0), "{finished:?}");
        let reason = format!("{}{}", finished.stdout, finished.stderr);
        assert!(reason.to_lowercase().contains("permission denied"), "{finished:?}");
    } else {
        leave_out("the directory of another user needs root");
    }
    // Read-only.
    let data = node.data().to_string_lossy().into_owned();
    if let Some(_mounted) = Mount::new(&["-o", "bind,ro", &data], &node.data()) {
        let refusal = node.refused();
        assert!(refusal.stderr.contains("Read-only file system"), "{}", refusal.stderr);
        let checked = storage(&["check"], &node);
        assert!(checked.code == Some(0) && checked.stdout.contains("nothing is damaged"), "{checked:?}");
    }
    node.start();
}

/// Generations of states: folders of the database.
fn keyspaces(node: &Node) -> usize {
    fs::read_dir(node.data().join("state/keyspaces")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_snapshot_interrupted_at_either_end_begins_anew_and_leaves_nothing() {
    // In one shard, so that its log is cut by its size and a log alone does not fill the node.
    const MESSAGES: usize = 100;
    const ROUNDS: usize = 4;
    let topics: Vec<String> =
        (0..).map(|n| format!("retained/{n}")).filter(|topic| ShardId::of(topic, SHARDS) == ShardId(0)).take(MESSAGES).collect();
    let mut trio = Trio::ready(Weight::Whole);
    let clean = keyspaces(&trio.nodes[2]);
    assert!(trio.nodes[2].stop().success());
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for _ in 0..ROUNDS {
        for (number, topic) in topics.iter().enumerate() {
            publisher.publish_retained(topic, &payload(number), QoS::AtLeastOnce).await;
        }
    }
    let recovered = storage(&["recover", "--yes"], &trio.nodes[2]);
    assert_eq!(recovered.code, Some(0), "{recovered:?}");
    // The receiver is killed while chunks come, a little later each time.
    let mut interrupted = 0;
    for round in 0..4 {
        let node = &mut trio.nodes[2];
        node.launch();
        let deadline = Instant::now() + SOON;
        while keyspaces(node) <= clean && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tokio::time::sleep(Duration::from_millis(40 * round)).await;
        interrupted += usize::from(keyspaces(node) > clean);
        node.kill();
    }
    println!("killed {interrupted} times with a snapshot half received");
    assert!(interrupted > 0);
    // Then a sender: whoever leads most.
    trio.nodes[2].launch();
    let deadline = Instant::now() + SOON;
    while keyspaces(&trio.nodes[2]) <= clean && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    trio.nodes[0].kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    trio.nodes[0].launch();
    wait::until("all serve", FILLS, || trio.nodes.iter().all(Node::is_up).then_some(()));
    // What the killed sender began is given up when nobody continued it for a minute.
    wait::until("what was interrupted is deleted", FILLS, || (keyspaces(&trio.nodes[2]) == clean).then_some(()));
    votes_again(&trio.nodes[0], &trio.nodes[2].name);
    trio.nodes[1].kill();
    let mut late =
        wait::until_async("the node serves", SOON, async || Client::try_connect(trio.mqtt(2), &Options::v5("late")).await.ok())
            .await;
    late.subscribe("retained/#", QoS::AtLeastOnce).await;
    let mut seen = [false; MESSAGES];
    for _ in 0..MESSAGES {
        let message = late.message().await;
        let number = topics.iter().position(|topic| *topic == *message.topic).expect("a topic");
        assert!(message.payload == payload(number) && !seen[number], "{number}");
        seen[number] = true;
    }
}
