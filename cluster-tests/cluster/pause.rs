//! A node that stops answering and comes back (SIGSTOP, SIGCONT): to the others it is as dead as one that was killed.

use std::collections::BTreeMap;

use rustix::process::Signal;
use tokio::time::Instant;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::node_loss::connect_soon;
use crate::harness::client::{Client, Options};
use crate::harness::events;
use crate::harness::permit::Weight;
use crate::harness::trio::{Trio, alive};
use crate::harness::{QUIET, SOON, wait};

#[tokio::test]
async fn clients_of_a_paused_node_end_once_and_the_node_rejoins() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut watcher = Client::connect(trio.mqtt(1), &Options::v5("watcher").persistent()).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    events::effective(&mut watcher, &trio.all_mqtt()).await;
    let stays = Options::v5("p-stays").persistent();
    let moves = Options::v5("p-moves").persistent();
    let mut stayed = Client::connect(trio.mqtt(0), &stays).await;
    let mut moved = Client::connect(trio.mqtt(0), &moves).await;
    moved.subscribe("t", QoS::AtLeastOnce).await;
    // Two clients of different shards: their events come in any order.
    let mut came = events::expect(&mut watcher, "p-", 2).await;
    came.sort();
    assert_eq!(came, ["p-moves:+", "p-stays:+"]);

    trio.nodes[0].signal(Signal::STOP);
    let other = &trio.nodes[1];
    wait::until("the others see two nodes", SOON, || (alive(other) == 2 && other.is_up()).then_some(()));
    let mut ended = events::expect(&mut watcher, "p-", 2).await;
    ended.sort();
    assert_eq!(ended, ["p-moves:-UNSPECIFIED", "p-stays:-UNSPECIFIED"]);
    let mut now = connect_soon(&trio, 2, &moves).await;
    assert!(now.session_present());
    assert_eq!(events::expect(&mut watcher, "p-", 1).await, ["p-moves:+"]);

    trio.nodes[0].signal(Signal::CONT);
    trio.wait_ready();
    stayed.closed().await;
    moved.closed().await;
    now.publish("t", b"still here", QoS::AtLeastOnce).await;
    assert_eq!(now.text().await, "still here");
    let back = connect_soon(&trio, 0, &stays).await;
    assert!(back.session_present());
    back.disconnect().await;
    assert_eq!(events::expect(&mut watcher, "p-", 2).await, ["p-stays:+", "p-stays:-CLIENT/0"]);
    assert_eq!(events::rest(&mut watcher, "p-", QUIET).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_client_that_goes_while_its_connect_is_agreed_on_leaves_nothing_behind() {
    const CLIENTS: usize = 20;
    let mut trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("watcher").persistent();
    let mut watcher = Client::connect(trio.mqtt(0), &options).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    events::effective(&mut watcher, &trio.all_mqtt()).await;
    let connects = |trio: &Trio| trio.nodes[0].metric("com_hivemq_messages_incoming_connect_count");
    let before = connects(&trio);

    // Nothing can be agreed on, and nobody knows it yet.
    trio.nodes[1].signal(Signal::STOP);
    trio.nodes[2].signal(Signal::STOP);
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = Client::raw(trio.mqtt(0), ProtocolVersion::V5).await.expect("a connection");
        client.send(&Options::v5(&format!("gone-{number}")).packet()).await.expect("sent");
        clients.push(client);
    }
    wait::until("their CONNECTs are read", SOON, || (connects(&trio) >= before + CLIENTS as f64).then_some(()));
    clients.into_iter().for_each(|client| drop(client.reset()));
    trio.nodes[1].signal(Signal::CONT);
    trio.nodes[2].signal(Signal::CONT);
    trio.wait_ready();

    // What was agreed on after all has an end as well.
    let mut watcher = match watcher.try_ping().await {
        Ok(()) => watcher,
        Err(_) => connect_soon(&trio, 0, &options).await,
    };
    let until = Instant::now() + SOON;
    let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..CLIENTS {
        // Behind them, in every shard.
        connect_soon(&trio, 0, &Options::v5(&format!("behind-{number}"))).await.disconnect().await;
    }
    loop {
        for event in events::rest(&mut watcher, "", QUIET).await {
            let (client, event) = event.split_once(':').expect("a client and what it did");
            told.entry(client.to_owned()).or_default().push(event.to_owned());
        }
        let behind = told.iter().filter(|(client, events)| client.starts_with("behind-") && events.len() == 2).count();
        let open: Vec<_> = told.iter().filter(|(client, events)| client.starts_with("gone-") && events.len() % 2 == 1).collect();
        if behind == CLIENTS && open.is_empty() {
            break;
        }
        assert!(Instant::now() < until, "{behind} of {CLIENTS} behind them; still connected: {open:?}");
    }
    for (client, events) in told.iter().filter(|(client, _)| client.starts_with("gone-")) {
        assert!(events.len() == 2 && events[0] == "+" && events[1].starts_with('-'), "{client}: {events:?}");
    }
    assert!(told.keys().any(|client| client.starts_with("gone-")), "no CONNECT was agreed on: the test shows nothing");
}
