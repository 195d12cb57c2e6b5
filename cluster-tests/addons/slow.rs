//! An analyst that does not keep up: its queue's limit applies, and what it misses is counted, not told again.

use troupemq::mqtt::QoS;

use super::counters::{Counters, moves};
use super::{ear, keeper};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const ROOM: usize = 10;
const DROPS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_analyst_gets_what_its_queue_holds_and_the_rest_is_counted() {
    let _permit = acquire(Weight::Node);
    let mqtt = format!("<queued-messages><max-queue-size>{ROOM}</max-queue-size></queued-messages>");
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let _events = ear(&node, "events", &[events::FILTER]).await;
    let mut never = ear(&node, "never", &["$dropped/$dropped/#", "$dead/$dropped/#"]).await;
    keeper(&node, "analyst", "$dropped/#").await;
    keeper(&node, "full", "full").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut counters = Counters::of(&[&node]);
    for n in 0..ROOM + DROPS {
        publisher.publish("full", n.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let (drops, missed) = (DROPS as i64, (DROPS - ROOM) as i64);
    counters.moved(
        "all drops, and those of the analyst",
        &moves(&[
            ("dropped.count", drops + missed),
            ("dropped.topic.message-created.client.count", drops),
            ("dropped.topic.enqueued.count", drops),
            ("dropped.topic.dropped.count", missed),
        ]),
    );
    assert_eq!(node.metric("com_hivemq_messages_queued_count"), (2 * ROOM) as f64, "nothing grows");
    assert_eq!(node.metric("troupemq_addon_signals_lost_total"), 0.0);
    assert_eq!(node.metric("troupemq_addon_messages_not_stored_total"), 0.0);
    never.nothing().await;
    let mut analyst = Client::connect(node.mqtt(), &Options::v5("analyst").persistent()).await;
    for n in ROOM..2 * ROOM {
        assert_eq!(analyst.text().await, n.to_string());
    }
    analyst.nothing().await;
}
