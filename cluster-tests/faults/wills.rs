//! Wills come exactly once: when the leader dies at about the moment they are due, when all nodes are down at that moment, and for all clients
//! of a node that is lost or stopped.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use troupemq::mqtt::QoS;

use super::kit::{Leaders, resume};
use super::random::{Random, from_environment};
use crate::harness::SOON;
use crate::harness::client::{Client, Gone, Options, Session};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;

const CLIENTS: usize = 24;
const DELAY_S: u32 = 2;
/// After the last Will: what comes now comes twice.
const REST: Duration = Duration::from_secs(2);

async fn watcher(trio: &Trio) -> Client {
    let mut watcher = Client::connect(trio.mqtt(0), &Options::v5("watcher").persistent()).await;
    watcher.subscribe("wills/#", QoS::ExactlyOnce).await;
    watcher
}

/// How often each Will came: waits for so many, and then for more.
async fn wills(watcher: &mut Client, count: usize) -> BTreeMap<String, usize> {
    let mut wills = BTreeMap::new();
    let mut total = 0;
    loop {
        let within = if total < count { 2 * SOON } else { REST };
        match watcher.try_message(within).await {
            Ok(message) => *wills.entry(String::from_utf8_lossy(&message.payload).into_owned()).or_default() += 1,
            Err(Gone::Timeout) => return wills,
            Err(gone) => panic!("the watcher lost its connection: {gone:?}"),
        }
        total += 1;
    }
}

#[track_caller]
fn assert_once(came: &BTreeMap<String, usize>, expected: &[String], what: &str) {
    let missing: Vec<&String> = expected.iter().filter(|name| !came.contains_key(*name)).collect();
    let twice: Vec<_> = came.iter().filter(|(name, count)| **count != 1 || !expected.contains(name)).collect();
    assert!(missing.is_empty() && twice.is_empty(), "{what}: missing {missing:?}, too often {twice:?}");
}

/// `TROUPEMQ_WILL_ROUNDS` asks for more rounds, `TROUPEMQ_FAULTS_SEED` for other moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wills_come_once_when_their_leader_dies_at_about_the_moment_they_are_due() {
    let seed = from_environment("TROUPEMQ_FAULTS_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let mut trio = Trio::ready(Weight::Whole);
    let mut watcher = watcher(&trio).await;
    for round in 0..from_environment("TROUPEMQ_WILL_ROUNDS").unwrap_or(2) {
        let victim = 1 + random.index(2);
        let elsewhere = 3 - victim;
        let leaders = tokio::task::block_in_place(|| Leaders::of(&trio, 0));
        let mut expected = Vec::new();
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let id = leaders.client_of(victim, &format!("mourned-{round}-{number}"));
            expected.push(id.clone());
            // Some are due because their session ends, before their delay.
            let (delay_s, expiry_s) = if number % 3 == 0 { (60, DELAY_S) } else { (DELAY_S, 3600) };
            let options = Options::v5(&id).expiry(expiry_s).will(&format!("wills/{id}"), &id, delay_s);
            clients.push(Client::connect(trio.mqtt(elsewhere), &options).await);
        }
        let due = Instant::now() + Duration::from_secs(DELAY_S.into());
        drop(clients);
        // From well before to well after: a due Will is proposed within a few hundred milliseconds.
        let offset_ms = random.below(1_200);
        sleep_until(due + Duration::from_millis(offset_ms) - Duration::from_millis(500)).await;
        trio.nodes[victim].kill();
        let came = wills(&mut watcher, expected.len()).await;
        assert_once(&came, &expected, &format!("seed {seed}, round {round}, killed {offset_ms} - 500 ms after they were due"));
        tokio::task::block_in_place(|| {
            trio.nodes[victim].launch();
            trio.wait_ready();
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wills_due_while_all_nodes_are_down_come_once_when_they_are_back() {
    let mut trio = Trio::ready(Weight::Whole);
    let session = watcher(&trio).await.disconnect().await;
    let (mut expected, mut connected) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let id = format!("mourned-{number}");
        let options = Options::v5(&id).persistent().will(&format!("wills/{id}"), &id, DELAY_S);
        let client = Client::connect(trio.mqtt(number % 3), &options).await;
        // Half of them are gone before the nodes are, half lose their connection with them.
        if number % 2 == 0 {
            drop(client);
        } else {
            connected.push(client);
        }
        expected.push(id);
    }
    // One that comes back before its Will is due.
    let returning = Options::v5("returning").persistent().will("wills/returning", "returning", 120);
    drop(Client::connect(trio.mqtt(0), &returning).await);
    trio.nodes.iter_mut().for_each(crate::harness::node::Node::kill);
    sleep(Duration::from_secs(u64::from(DELAY_S) + 1)).await;
    tokio::task::block_in_place(|| trio.start_all());
    drop(connected);
    let back = resume(&trio, &[1], &returning, Session::default()).await;
    assert!(back.session_present());
    back.disconnect().await;
    let mut watcher = resume(&trio, &[0, 1, 2], &Options::v5("watcher").persistent(), session).await;
    assert!(watcher.session_present());
    let came = wills(&mut watcher, expected.len()).await;
    assert_once(&came, &expected, "after all were down");
}

/// `../shared/cases.md`, row 63.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_wills_of_a_node_that_is_killed_or_stopped_come_once() {
    const OF_NODE: usize = 100;
    let mut trio = Trio::ready(Weight::Whole);
    let mut watcher = watcher(&trio).await;
    for kill in [true, false] {
        let options = |number: usize| {
            let id = format!("mourned-{kill}-{number}");
            // Those of whom the number is divisible by 10 come back in time.
            let delay_s = if number.is_multiple_of(10) { 60 } else { u32::from(number.is_multiple_of(2)) };
            Options::v5(&id).persistent().will(&format!("wills/{id}"), &id, delay_s)
        };
        let mut clients = Vec::new();
        for number in 0..OF_NODE {
            clients.push(Client::connect(trio.mqtt(1), &options(number)).await);
        }
        tokio::task::block_in_place(|| if kill { trio.nodes[1].kill() } else { assert!(trio.nodes[1].stop().success()) });
        drop(clients);
        for number in (0..OF_NODE).step_by(10) {
            let back = resume(&trio, &[2, 0], &options(number), Session::default()).await;
            assert!(back.session_present(), "{number}");
            back.disconnect().await;
        }
        let expected: Vec<String> = (0..OF_NODE)
            .filter(|number| !number.is_multiple_of(10))
            .map(|number| options(number).client_id().to_owned())
            .collect();
        let came = wills(&mut watcher, expected.len()).await;
        assert_once(&came, &expected, if kill { "killed" } else { "stopped" });
        tokio::task::block_in_place(|| {
            trio.nodes[1].launch();
            trio.wait_ready();
        });
    }
}
