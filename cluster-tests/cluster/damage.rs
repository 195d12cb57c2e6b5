//! Storage that fails: damage of every kind to one node of three, and disks that fill up, refuse or lie. What each comes to is in
//! `docs/reliability.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use troupemq::mqtt::QoS;
use troupemq::replica::ShardId;
use troupemq::storage::{Mode, Storage};

use super::disks::payload;
use super::upgrade::{storage, votes_again};
use crate::harness::client::{Client, Options};
use crate::harness::config::{Config, SHARDS};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::trio::Trio;
use crate::harness::{QUIET, SOON, wait};

/// The node that is damaged.
const VICTIM: usize = 2;
/// Messages of 200 kB.
const BULK: usize = 100;
/// Times the bulk is published again to make a table.
const GROWS_MAX: usize = 5;

fn holder() -> Options {
    Options::v5("holder").persistent()
}

/// Queues `count` messages more for the holder.
async fn queue(trio: &Trio, node: usize, numbers: std::ops::Range<usize>) {
    let mut publisher = Client::connect(trio.mqtt(node), &Options::v5("publisher")).await;
    for number in numbers {
        publisher.publish("held", format!("{number}").as_bytes(), QoS::AtLeastOnce).await;
        publisher.publish_retained(&format!("retained/{}", number % 50), format!("{number}").as_bytes(), QoS::AtLeastOnce).await;
    }
    publisher.disconnect().await;
}

/// Retains the bulk, the same each time.
async fn retain(trio: &Trio, topics: &[String]) {
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for (number, topic) in topics.iter().enumerate() {
        publisher.publish_retained(topic, &payload(number), QoS::AtLeastOnce).await;
    }
    publisher.disconnect().await;
}

/// The holder finds all there must be, once and in order, and the retained messages.
async fn finds_all(trio: &Trio, node: usize, count: usize) {
    let mut late = Client::connect(trio.mqtt(node), &Options::v5("late")).await;
    late.subscribe("retained/#", QoS::AtLeastOnce).await;
    let mut retained = BTreeMap::new();
    for _ in 0..count.min(50) {
        let message = late.message().await;
        retained.insert(message.topic.to_string(), String::from_utf8_lossy(&message.payload).parse::<usize>().unwrap());
    }
    assert_eq!(retained.len(), count.min(50));
    assert!(retained.values().all(|number| number + 50 >= count), "{retained:?}");
    let mut holder = Client::connect(trio.mqtt(node), &holder()).await;
    assert!(holder.session_present());
    for number in 0..count {
        assert_eq!(holder.text().await, number.to_string());
    }
    holder.nothing().await;
    holder.disconnect().await;
}

/// The files of a class below a data directory, the largest last.
fn files(data: &Path, belongs: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.file_name().unwrap().to_string_lossy().starts_with("set-aside") {
                collect(&path, found);
            } else if path.is_file() {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    collect(data, &mut found);
    found.retain(|path| belongs(&path.strip_prefix(data).unwrap().to_string_lossy()));
    // The engine of a running node may remove one meanwhile.
    found.sort_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()));
    found
}

/// Flips one bit in the middle of what a file holds.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let len = bytes.iter().rposition(|byte| *byte != 0).expect("something in it") + 1;
    bytes[len / 2] ^= 0x04;
    fs::write(path, bytes).unwrap();
}

/// Cuts one KiB off the end of what a file holds (or half of it).
fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    let len = bytes.iter().rposition(|byte| *byte != 0).expect("something in it") + 1;
    let keep = if len > 2048 { len - 1024 } else { len / 2 };
    fs::write(path, &bytes[..keep]).unwrap();
}

fn delete(path: &Path) {
    fs::remove_file(path).unwrap();
}

struct Fault {
    what: &'static str,
    belongs: fn(&str) -> bool,
    damage: fn(&Path),
    /// The node was killed before, else it was stopped.
    killed: bool,
}

const FAULTS: [Fault; 13] = [
    Fault {
        what: "bit of the log's journal",
        belongs: |f| f.starts_with("raft/") && f.ends_with(".jnl"),
        damage: flip,
        killed: true,
    },
    Fault {
        what: "tail of the log's journal",
        belongs: |f| f.starts_with("raft/") && f.ends_with(".jnl"),
        damage: cut,
        killed: true,
    },
    Fault {
        what: "tail of the state's journal",
        belongs: |f| f.starts_with("state/") && f.ends_with(".jnl"),
        damage: cut,
        killed: false,
    },
    Fault {
        what: "bit of the state's journal",
        belongs: |f| f.starts_with("state/") && f.ends_with(".jnl"),
        damage: flip,
        killed: false,
    },
    Fault {
        what: "bit of a table of the log",
        belongs: |f| f.starts_with("raft/keyspaces/1/tables/"),
        damage: flip,
        killed: false,
    },
    Fault { what: "bit of a table of the state", belongs: is_state_table, damage: flip, killed: true },
    Fault { what: "tail of a table of the state", belongs: is_state_table, damage: cut, killed: false },
    Fault { what: "a deleted table of the state", belongs: is_state_table, damage: delete, killed: true },
    Fault { what: "a deleted `current` of the state", belongs: is_state_current, damage: delete, killed: false },
    Fault {
        what: "a deleted journal of the log",
        belongs: |f| f.starts_with("raft/") && f.ends_with(".jnl"),
        damage: delete,
        killed: true,
    },
    Fault { what: "bit of `flushed`", belongs: |f| f == "flushed", damage: flip, killed: true },
    Fault { what: "tail of `identity`", belongs: |f| f == "identity", damage: cut, killed: false },
    Fault { what: "a deleted `identity`", belongs: |f| f == "identity", damage: delete, killed: true },
];

fn is_state_table(file: &str) -> bool {
    file.starts_with("state/keyspaces/") && file.contains("/tables/") && !file.starts_with("state/keyspaces/0/")
}

fn is_state_current(file: &str) -> bool {
    file.starts_with("state/keyspaces/") && file.ends_with("/current") && !file.starts_with("state/keyspaces/0/")
}

/// `../shared/cases.md`, row 8.
#[tokio::test]
async fn a_damaged_node_says_so_does_not_vote_on_it_and_is_filled_again_by_its_peers() {
    let mut trio = Trio::ready(Weight::Whole);
    let mut client = Client::connect(trio.mqtt(0), &holder()).await;
    client.subscribe("held", QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut count = 100;
    queue(&trio, 0, 0..count).await;
    // More than the engine keeps in memory, in the log and in one state: so there are tables.
    let bulk: Vec<String> =
        (0..).map(|n| format!("bulk/{n}")).filter(|topic| ShardId::of(topic, SHARDS) == ShardId(0)).take(BULK).collect();
    retain(&trio, &bulk).await;
    for fault in &FAULTS {
        // A start moves what the journals hold to tables.
        assert!(trio.nodes[VICTIM].stop().success());
        trio.nodes[VICTIM].launch();
        trio.wait_ready_one(VICTIM);
        queue(&trio, VICTIM, count..count + 10).await;
        count += 10;
        // A log that was filled from a snapshot is short: it has no table before it has grown.
        for _ in 0..GROWS_MAX {
            if !files(&trio.nodes[VICTIM].data(), &fault.belongs).is_empty() {
                break;
            }
            retain(&trio, &bulk).await;
        }
        if fault.killed {
            trio.nodes[VICTIM].kill();
        } else {
            assert!(trio.nodes[VICTIM].stop().success());
        }
        let node = &mut trio.nodes[VICTIM];
        let target = files(&node.data(), &fault.belongs).pop().unwrap_or_else(|| panic!("no file for {}", fault.what));
        (fault.damage)(&target);
        println!("{}: {}", fault.what, target.strip_prefix(node.data()).unwrap().display());

        let checked = storage(&["check"], node);
        assert!(checked.code == Some(1) && checked.stdout.contains("damaged: "), "{}: {checked:?}", fault.what);
        // What a start does not read is found by the check only.
        if !fault.what.contains("table of the log") {
            let refusal = node.refused();
            assert!(!refusal.status.success(), "{}", fault.what);
            assert!(
                refusal.stderr.contains("damaged") && refusal.stderr.contains("storage recover"),
                "{}: {}",
                fault.what,
                refusal.stderr
            );
        }
        let asked = storage(&["recover"], node);
        assert!(asked.code == Some(1) && asked.stdout.contains("--yes"), "{asked:?}");
        let recovered = storage(&["recover", "--yes"], node);
        assert_eq!(recovered.code, Some(0), "{recovered:?}");
        assert!(!target.exists() || fault.what.contains("identity"), "it is set aside");
        node.launch();
        // While it is away the cluster goes on.
        queue(&trio, 0, count..count + 10).await;
        count += 10;
        trio.wait_ready_one(VICTIM);
    }
    // Those who were never damaged are not needed any more.
    wait::until("the node votes again", SOON, || trio.nodes[VICTIM].stderr().contains("has its votes").then_some(()));
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let copies = same_states(&mut trio);
    println!("{copies} records on each node");
    trio.start_all();
    votes_again(&trio.nodes[0], &trio.nodes[VICTIM].name);
    trio.nodes[0].kill();
    wait::until("two nodes serve", SOON, || trio.nodes[1..].iter().all(Node::is_up).then_some(()));
    finds_all(&trio, VICTIM, count).await;
    let mut late = Client::connect(trio.mqtt(VICTIM), &Options::v5("late")).await;
    for (number, topic) in bulk.iter().enumerate() {
        late.subscribe(topic, QoS::AtLeastOnce).await;
        assert!(late.message().await.payload == payload(number), "{topic}");
    }
}

/// Kills all nodes at once and compares what they have stored of the shards. Returns the number of records.
fn same_states(trio: &mut Trio) -> usize {
    // What was applied a moment ago is in the log, and may not be in the state yet when the node is killed: then it is after another start. What
    // differs for another reason differs then, too.
    let mut differs = String::new();
    for _ in 0..3 {
        trio.nodes.iter_mut().for_each(Node::kill);
        let states: Vec<Vec<_>> = trio.nodes.iter().map(|node| records(&node.data(), &node.name)).collect();
        let Some((state, node)) = states.iter().zip(&trio.nodes).find(|(state, _)| *state != &states[0]) else {
            return states[0].len();
        };
        let first = state.iter().zip(&states[0]).find(|(here, there)| here != there);
        differs = format!("{} has {} records, not {}; {first:?}", node.name, state.len(), states[0].len());
        println!("killed too soon? {differs}");
        trio.start_all();
        std::thread::sleep(QUIET * 5);
    }
    panic!("states differ: {differs}");
}

fn records(data: &Path, name: &str) -> Vec<(u16, Vec<u8>, Vec<u8>)> {
    let storage = Storage::open(data, Mode::File, name, SHARDS, 0).unwrap();
    let mut records = Vec::new();
    for group in 1..=SHARDS {
        let state = storage.state(group).unwrap();
        state
            .load(&mut |key, value| {
                records.push((group, key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
    }
    records
}

/// Nobody could fill it again.
#[tokio::test]
async fn a_cluster_of_one_gives_up_its_data_only_when_told_so_and_begins_anew_then() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let holder = Options::v5("holder").persistent();
    Client::connect(node.mqtt(), &holder).await.disconnect().await;
    assert!(node.stop().success());
    let refused = storage(&["recover", "--yes"], &node);
    assert!(refused.code == Some(1) && refused.stderr.contains("--lose-all"), "{refused:?}");
    node.start();
    let client = Client::connect(node.mqtt(), &holder).await;
    assert!(client.session_present(), "nothing was done");
    client.disconnect().await;
    assert!(node.stop().success());
    let given_up = storage(&["recover", "--yes", "--lose-all"], &node);
    assert_eq!(given_up.code, Some(0), "{given_up:?}");
    node.start();
    assert!(!Client::connect(node.mqtt(), &holder).await.session_present());
    node.kill();
}
