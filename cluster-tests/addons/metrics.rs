//! Every counter of the add-ons moves with what it counts, by exactly the number, and no other does.

use troupemq::mqtt::QoS;

use super::counters::{Counters, Moves, NAMES, moves};
use super::{ear, keeper};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{QUIET, http};

/// Room in every queue.
const ROOM: usize = 2;

fn node(more: &str, retained: usize) -> Node {
    let mqtt = format!(
        "<queued-messages><max-queue-size>{ROOM}</max-queue-size></queued-messages>\
         <retained-messages><max-messages>{retained}</max-messages></retained-messages>{more}"
    );
    Node::ready(Config { mqtt, ..Config::default() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_dead_dropped_and_lifecycle_topics_move_by_what_happens() {
    const CREATED_CLIENT: &str = "dropped.topic.message-created.client.count";
    let _permit = acquire(Weight::Node);
    let node = node("", 1);
    let _events = ear(&node, "events", &[events::FILTER]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    keeper(&node, "keeper of dead", "$dead/heard").await;
    keeper(&node, "keeper of dropped", "$dropped/full").await;
    keeper(&node, "sleeper", "full").await;
    keeper(&node, "member", "$share/g/shared").await;
    let _ear = ear(&node, "ear", &["$dead/heard", "$dropped/full"]).await;
    let mut counters = Counters::of(&[&node]);

    let client = Client::connect(node.mqtt(), &Options::v5("comes and goes")).await;
    counters.moved("a client comes", &moves(&[("client-lifecycle-topic.published.count", 1)]));
    client.disconnect().await;
    counters.moved("a client goes", &moves(&[("client-lifecycle-topic.published.count", 1)]));
    // Three bytes for each of its characters: the topic would have more than 65,535.
    let client = Client::connect(node.mqtt(), &Options::v5(&"/".repeat(21_836))).await;
    client.disconnect().await;
    counters.moved("a client whose topic is too long", &moves(&[("client-lifecycle-topic.skipped.count", 2)]));

    publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
    counters
        .moved("a message that is dead, and so is what tells of it", &moves(&[("dead.count", 2), ("dead.topic.dead.count", 1)]));
    for _ in 0..ROOM {
        publisher.publish("heard", b"", QoS::AtLeastOnce).await;
        counters.moved("a dead message that two hear of", &moves(&[("dead.count", 1), ("dead.topic.enqueued.count", 2)]));
    }
    publisher.publish("heard", b"", QoS::AtLeastOnce).await;
    counters.moved(
        "a dead message for which one of two has no room; nobody hears of that",
        &moves(&[
            ("dead.count", 2),
            ("dead.topic.enqueued.count", 2),
            ("dropped.count", 1),
            ("dead.topic.dropped.count", 1),
            (CREATED_CLIENT, 1),
            ("dropped.topic.dead.count", 1),
            ("dead.topic.dead.count", 1),
        ]),
    );

    for _ in 0..ROOM {
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
    }
    counters.moved("messages that are queued", &Moves::new());
    for _ in 0..ROOM {
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
        counters.moved(
            "a message for a full queue that two hear of",
            &moves(&[("dropped.count", 1), (CREATED_CLIENT, 1), ("dropped.topic.enqueued.count", 2)]),
        );
    }
    publisher.publish("full", b"", QoS::AtLeastOnce).await;
    counters.moved(
        "a dropped message that is dropped again, which is not told",
        &moves(&[
            ("dropped.count", 2),
            (CREATED_CLIENT, 1),
            ("dropped.topic.enqueued.count", 2),
            ("dropped.topic.dropped.count", 1),
        ]),
    );

    for _ in 0..=ROOM {
        publisher.publish("shared", b"", QoS::AtLeastOnce).await;
    }
    let unheard = [("dropped.count", 1), ("dead.count", 2), ("dropped.topic.dead.count", 1), ("dead.topic.dead.count", 1)];
    let created = ("dropped.topic.message-created.shared.count", 1);
    counters.moved("a message for the full queue of a shared subscription", &moves(&[&unheard[..], &[created]].concat()));

    let mut reader = Client::connect(node.mqtt(), &Options::v5("reader")).await;
    reader.subscribe("kept/#", QoS::AtMostOnce).await;
    counters.moved("another client comes", &moves(&[("client-lifecycle-topic.published.count", 1)]));
    for topic in ["kept/1", "kept/2"] {
        publisher.publish_retained(topic, b"", QoS::AtMostOnce).await;
        publisher.publish_retained(topic, b"x", QoS::AtMostOnce).await;
    }
    let created = ("dropped.topic.message-created.consumer.count", 1);
    counters.moved("a message for which there is no room among the retained", &moves(&[&unheard[..], &[created]].concat()));
}

/// With three more sessions than the analyst's queue has room for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counters_of_expired_messages_move_by_what_happens() {
    let _permit = acquire(Weight::Node);
    // Also the messages of the add-ons expire, within two seconds.
    let node = node("<message-expiry><max-interval>2</max-interval></message-expiry>", 100);
    let _events = ear(&node, "events", &[events::FILTER]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for topic in ["told", "untold"] {
        keeper(&node, topic, topic).await;
    }
    for n in 0..=ROOM {
        keeper(&node, &format!("many-{n}"), "many").await;
    }
    keeper(&node, "keeper of dead", "$dead/gone").await;
    keeper(&node, "keeper of told", "$expired/told").await;
    keeper(&node, "keeper of many", "$expired/many").await;
    let _ear = ear(&node, "ear", &["$expired/told"]).await;
    let mut counters = Counters::of(&[&node]);

    let told = [
        ("expired-messages", 1),
        ("expired.topic.enqueued.count", 2),
        // In the queue of the one that is away.
        ("expired-messages", 1),
        ("expired.topic.expired.count", 1),
    ];
    let untold = [("expired-messages", 1), ("dead.count", 2), ("expired.topic.dead.count", 1), ("dead.topic.dead.count", 1)];
    let gone = [
        ("dead.count", 1),
        ("dead.topic.enqueued.count", 1),
        ("expired-messages", 1),
        ("dead.topic.expired.count", 1),
        // Nobody hears that it expired; that it is dead was told before.
        ("dead.count", 1),
        ("expired.topic.dead.count", 1),
        ("dead.topic.dead.count", 1),
    ];
    let all = i64::try_from(ROOM + 1).expect("a small number");
    let many = [
        ("expired-messages", all),
        ("expired.topic.enqueued.count", all),
        ("dropped.count", 1),
        ("expired.topic.dropped.count", 1),
        ("dropped.topic.message-created.client.count", 1),
        ("dead.count", 2),
        ("dropped.topic.dead.count", 1),
        ("dead.topic.dead.count", 1),
        ("expired-messages", all - 1),
        ("expired.topic.expired.count", all - 1),
    ];
    for topic in ["told", "untold", "gone", "many"] {
        let mut packet = publish(topic, b"", QoS::AtLeastOnce);
        packet.properties.message_expiry_interval = (topic != "gone").then_some(1);
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    counters.moved("all that expires", &moves(&[&told[..], &untold, &gone, &many].concat()));
}

/// The names are HiveMQ's; dots and dashes are underscores for Prometheus, and HELP has the name as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_counter_of_the_add_ons_is_exposed_under_its_name() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { addons: false, ..Config::default() });
    let (_, page) = http::get(node.http(), "/metrics").expect("metrics");
    for name in NAMES {
        let exposed = format!("com_hivemq_messages_{}", name.replace(['.', '-'], "_"));
        assert!(page.lines().any(|line| line == format!("{exposed} 0")), "{exposed}");
        let help = format!("(metric=com.hivemq.messages.{name}, type=com.codahale.metrics.Counter)");
        assert!(page.lines().any(|line| line.starts_with(&format!("# HELP {exposed} ")) && line.ends_with(&help)), "{help}");
    }
    // An add-on that is off counts nothing in its topic.
    let mut counters = Counters::of(&[&node]);
    let mut client = Client::connect(node.mqtt(), &Options::v5("client")).await;
    client.publish("nobody", b"", QoS::AtLeastOnce).await;
    client.disconnect().await;
    tokio::time::sleep(QUIET).await;
    counters.moved("a dead message", &moves(&[("dead.count", 1)]));
}
