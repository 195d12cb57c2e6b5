//! A node that stops answering and comes back (SIGSTOP, SIGCONT): to the others it is as dead as one that was killed.

use rustix::process::Signal;
use troupemq::mqtt::QoS;

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
