//! What queues and logs took, they give back: memory and disk do not grow from one rush to the next.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::wait;

const MIB: usize = 1024 * 1024;
const ROUNDS: usize = 3;
const RECEIVERS: usize = 6;
const MESSAGES: usize = 100;
const PAYLOAD_BYTES: usize = 64 * 1024;
/// Of one round, on each node: once in the log and once in the queues.
const ROUND_BYTES: usize = RECEIVERS * MESSAGES * PAYLOAD_BYTES;
/// Logs are cut and tables compacted some intervals after the last message.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(120);
/// Of logs and queues that are empty: what is too little to be cut (1 MiB of each log) or compacted (4 MiB of logs, 1 MiB of each shard). It is
/// less than two thirds of what one round brings.
const TABLES_MAX: usize = 24 * MIB;
/// Of each of the two databases the engine keeps the journal it writes to (64 MiB), and as much in closed ones.
const JOURNALS_MAX: usize = 2 * (64 + 64 + 16) * MIB;
/// What memory may differ by after the last round from what it was after the first, allocator and the engine's caches: about half of what the rounds
/// between bring, so what kept its messages would be found.
const MEMORY_SLACK: usize = 40 * MIB;

#[tokio::test]
async fn memory_and_disk_are_given_back_when_queues_are_drained() {
    let queues = format!("<queued-messages><max-queue-size>{MESSAGES}</max-queue-size></queued-messages>");
    let trio = Trio::ready_with(Weight::Cluster, |config| config.mqtt = queues.clone());
    let mut resident_after_first = Vec::new();
    for round in 1..=ROUNDS {
        for number in 0..RECEIVERS {
            let mut receiver = Client::connect(trio.mqtt(number % 3), &receiver(number)).await;
            receiver.subscribe(&topic(number), QoS::AtLeastOnce).await;
            receiver.disconnect().await;
        }
        let filling: JoinSet<()> = (0..RECEIVERS).map(|number| fill(trio.mqtt((number + 1) % 3), number)).collect();
        filling.join_all().await;
        for node in &trio.nodes {
            let queued = wait_tables_above(node, ROUND_BYTES / 2).await;
            println!(
                "round {round}, filled, {}: {} MiB on disk, {} MiB resident",
                node.name,
                queued / MIB,
                node.resident_bytes() / MIB
            );
        }
        let draining: JoinSet<()> = (0..RECEIVERS).map(|number| drain(trio.mqtt(number % 3), number)).collect();
        draining.join_all().await;
        for (number, node) in trio.nodes.iter().enumerate() {
            let tables = wait::until_async(&format!("{} gives its disk back", node.name), GIVEN_BACK_WITHIN, async || {
                let Disk { tables, journals } = disk(&node.data());
                (tables <= TABLES_MAX && journals <= JOURNALS_MAX).then_some(tables)
            })
            .await;
            let most = resident_after_first.get(number).map_or(usize::MAX, |first| first + MEMORY_SLACK);
            let resident = wait::until_async(&format!("{} gives its memory back", node.name), GIVEN_BACK_WITHIN, async || {
                Some(node.resident_bytes()).filter(|resident| *resident <= most)
            })
            .await;
            println!("round {round}, drained, {}: {} KiB of tables, {} MiB resident", node.name, tables / 1024, resident / MIB);
            if round == 1 {
                resident_after_first.push(resident);
            }
        }
    }
}

async fn fill(address: SocketAddr, number: usize) {
    let mut publisher = Client::connect(address, &Options::v5(&format!("publisher-{number}"))).await;
    let mut payload = vec![0; PAYLOAD_BYTES];
    let mut state = number as u64 + 1;
    for message in 0..MESSAGES {
        // Nothing that compression would make small.
        for word in payload.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&state.to_le_bytes());
        }
        payload[..8].copy_from_slice(&(message as u64).to_be_bytes());
        publisher.publish(&topic(number), &payload, QoS::AtLeastOnce).await;
    }
}

async fn drain(address: SocketAddr, number: usize) {
    let mut receiver = Client::connect(address, &receiver(number)).await;
    assert!(receiver.session_present());
    for message in 0..MESSAGES {
        assert_eq!(receiver.message().await.payload[..8], (message as u64).to_be_bytes());
    }
    receiver.ping().await;
    receiver.disconnect().await;
}

fn receiver(number: usize) -> Options {
    Options::v5(&format!("receiver-{number}")).clean_start(false).expiry(3600)
}

fn topic(number: usize) -> String {
    format!("rush/{number}")
}

/// Bytes on the disk, journals and tables together, once there are as many as the round must have brought.
async fn wait_tables_above(node: &Node, bytes: usize) -> usize {
    wait::until_async(&format!("{} holds what is queued", node.name), GIVEN_BACK_WITHIN, async || {
        let Disk { tables, journals } = disk(&node.data());
        Some(tables + journals).filter(|held| *held >= bytes)
    })
    .await
}

struct Disk {
    tables: usize,
    journals: usize,
}

/// What files take; journals are made larger than what is in them, and take only that.
fn disk(path: &Path) -> Disk {
    let mut disk = Disk { tables: 0, journals: 0 };
    // A file that goes meanwhile takes nothing.
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            let below = self::disk(&entry.path());
            disk.tables += below.tables;
            disk.journals += below.journals;
            continue;
        }
        let bytes = usize::try_from(metadata.blocks() * 512).expect("fits");
        let is_journal = entry.path().extension().is_some_and(|extension| extension == "jnl");
        *(if is_journal { &mut disk.journals } else { &mut disk.tables }) += bytes;
    }
    disk
}
