//! Clocks that do not agree. A time namespace gives a process another monotonic clock; the wall clock cannot be moved for one process, so its
//! steps are left to the simulator.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;
use troupemq::mqtt::QoS;

use super::campaign::shape;
use super::islands::Islands;
use super::kit::{everybody_hears_everybody, messages_within, resume};
use crate::cluster::disks::leave_out;
use crate::harness::client::{Client, Options, Session, publish};
use crate::harness::node::Node;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const DELAY_S: u32 = 2;

/// From the next start on, the node's monotonic clock is so many seconds ahead.
fn set_ahead(trio: &mut Trio, node: usize, seconds: u32) {
    let within = &mut trio.nodes[node].within;
    within.truncate(2);
    for argument in
        ["unshare", "--time", &format!("--monotonic={seconds}"), &format!("--boottime={seconds}"), "--fork", "--kill-child=KILL"]
    {
        within.push(argument.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_times_hold_though_the_monotonic_clocks_of_nodes_are_days_apart() {
    let permitted = std::process::Command::new("unshare").args(["--time", "--monotonic=5", "--fork", "true"]).status();
    if !permitted.is_ok_and(|status| status.success()) {
        leave_out("time namespaces are not permitted here");
        return;
    }
    let Some(mut islands) = tokio::task::block_in_place(|| Islands::new("clocks", 7, shape)) else { return };
    set_ahead(&mut islands.trio, 1, 100_000);
    set_ahead(&mut islands.trio, 2, 1_000_000);
    tokio::task::block_in_place(|| islands.trio.start_all());
    let trio = &islands.trio;
    let mut watcher = resume(trio, &[0], &Options::v5("watcher").persistent(), Session::default()).await;
    watcher.subscribe("wills/#", QoS::AtLeastOnce).await;
    watcher.subscribe("t", QoS::AtLeastOnce).await;
    wills_are_on_time(trio, &mut watcher, 0).await;
    let session = watcher.disconnect().await;
    let mut publisher = resume(trio, &[1], &Options::v5("publisher"), Session::default()).await;
    let mut message = publish("t", b"queued", QoS::AtLeastOnce);
    message.properties.message_expiry_interval = Some(3_600);
    publisher.try_publish(message).await.expect("acknowledged");
    publisher.disconnect().await;
    // Two of them come back with other clocks, one of them with an earlier one.
    tokio::task::block_in_place(|| {
        for (node, seconds) in [(1, 3_000_000), (2, 50_000)] {
            kill(&mut islands.trio.nodes[node]);
            set_ahead(&mut islands.trio, node, seconds);
            islands.trio.nodes[node].launch();
            islands.trio.wait_ready();
        }
    });
    let trio = &islands.trio;
    let mut watcher = resume(trio, &[2], &Options::v5("watcher").persistent(), session).await;
    assert!(watcher.session_present());
    let messages = messages_within(&mut watcher, Duration::from_secs(1)).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let left = messages[0].properties.message_expiry_interval.expect("still told");
    assert!((3_400..=3_600).contains(&left), "{left} seconds are left");
    wills_are_on_time(trio, &mut watcher, 1).await;
    everybody_hears_everybody(trio, "clocks").await;
}

/// Kills `unshare`, and with it its child, the node, which takes a moment more to end.
fn kill(node: &mut Node) {
    let lock = std::fs::read_to_string(node.data().join("lock")).expect("a node that runs has written its process id");
    node.kill();
    wait::until("the child of unshare has ended", SOON, || (!Path::new("/proc").join(lock.trim()).exists()).then_some(()));
}

/// Clients of all nodes, of all shards.
async fn wills_are_on_time(trio: &Trio, watcher: &mut Client, round: usize) {
    const CLIENTS: usize = 18;
    for number in 0..CLIENTS {
        let id = format!("mourned-{round}-{number}");
        let options = Options::v5(&id).persistent().will(&format!("wills/{id}"), &id, DELAY_S);
        drop(resume(trio, &[number % 3], &options, Session::default()).await);
    }
    let last_gone = Instant::now();
    let mut came = Vec::new();
    while came.len() < CLIENTS {
        came.push(watcher.text().await);
    }
    assert!(last_gone.elapsed() < SOON, "late: {:?}", last_gone.elapsed());
    assert!(last_gone.elapsed() > Duration::from_secs(u64::from(DELAY_S) - 1), "the last came after {:?}", last_gone.elapsed());
    came.sort();
    came.dedup();
    assert_eq!(came.len(), CLIENTS, "each once");
}
