//! Large payloads between nodes, and to nodes that were away.

use bytes::Bytes;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options};
use crate::harness::large::{Bystander, LONG, MIB, assert_bounded, connect, expect, largest, payload, publish_large};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_reach_the_clients_of_all_nodes() {
    let trio = Trio::ready(Weight::Whole);
    let payload = payload(16 * MIB);
    let mut receivers = Vec::new();
    for node in 0..3 {
        for options in [Options::v5(&format!("clean-{node}")), Options::v5(&format!("kept-{node}")).persistent()] {
            let mut receiver = connect(trio.mqtt(node), &options).await;
            receiver.subscribe("large", QoS::ExactlyOnce).await;
            receivers.push(receiver);
        }
    }
    let mut member = connect(trio.mqtt(2), &Options::v5("member")).await;
    member.subscribe("$share/g/large", QoS::AtLeastOnce).await;
    let mut publisher = connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for receiver in receivers.iter_mut().chain([&mut member]) {
        publisher.reaches(receiver, "large").await;
        receiver.ping().await;
    }
    // What reached the others while one of them was waited for.
    for receiver in receivers.iter_mut().chain([&mut member]) {
        receiver.subscribe("again", QoS::AtLeastOnce).await;
        receiver.ping().await;
        receiver.session.inbox.clear();
    }
    let bystander = Bystander::beside(trio.mqtt(1), "kept-1").await;
    let mut missed = 0.0;
    for qos in LEVELS {
        publish_large(&mut publisher, "large", &payload, qos, false).await;
        publisher.publish("large", b"small", qos).await;
        for receiver in receivers.iter_mut().chain([&mut member]) {
            expect(receiver, "large", &payload).await;
        }
        // Behind what is larger than may wait for a socket a message of QoS 0 can be dropped, but not without being counted.
        if qos == QoS::AtMostOnce {
            publisher.publish("large", b"end", qos).await;
        }
        for receiver in receivers.iter_mut().chain([&mut member]) {
            let next = receiver.message().await;
            if qos == QoS::AtMostOnce && next.payload == Bytes::from_static(b"end") {
                missed += 1.0;
                continue;
            }
            assert_eq!((&*next.topic, &*next.payload), ("large", &b"small"[..]), "{qos:?}");
            if qos == QoS::AtMostOnce {
                expect(receiver, "large", &Bytes::from_static(b"end")).await;
            }
        }
        let dropped = || trio.nodes.iter().map(|node| node.metric("com_hivemq_messages_dropped_count")).sum::<f64>();
        wait::until("what is missing is counted", SOON, || (dropped() == missed).then_some(()));
    }
    bystander.was_served().await;
}

/// The largest packet of all, live to another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_packet_reaches_a_client_of_another_node() {
    let mut trio = Trio::ready(Weight::Whole);
    let mut receiver = connect(trio.mqtt(2), &Options::v5("receiver")).await;
    receiver.subscribe("large", QoS::AtMostOnce).await;
    let mut publisher = connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publisher.reaches(&mut receiver, "large").await;
    let payload = largest("large", QoS::AtMostOnce);
    let bystander = Bystander::start(trio.mqtt(2), "bystander").await;
    publish_large(&mut publisher, "large", &payload, QoS::AtMostOnce, false).await;
    publisher.publish("large", b"small", QoS::AtMostOnce).await;
    expect(&mut receiver, "large", &payload).await;
    expect(&mut receiver, "large", &Bytes::from_static(b"small")).await;
    bystander.was_served().await;
    trio.nodes.iter_mut().for_each(|node| assert_bounded(node, &payload));
}

/// A node that was killed while parts of a message were on their way, and one that missed all of it, have it whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_has_the_large_message_when_it_is_back() {
    let mut trio = Trio::ready(Weight::Whole);
    let (sleeper, payload) = (Options::v5("sleeper").persistent(), payload(32 * MIB));
    let mut subscriber = connect(trio.mqtt(2), &sleeper).await;
    subscriber.subscribe("large", QoS::AtLeastOnce).await;
    subscriber.subscribe("again", QoS::AtLeastOnce).await;
    subscriber.disconnect().await;
    let mut publisher = connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publish_large(&mut publisher, "kept", &payload, QoS::AtLeastOnce, true).await;
    let publishing = async {
        let acknowledged = publish_large(&mut publisher, "large", &payload, QoS::AtLeastOnce, false).await;
        assert_eq!(acknowledged, ReasonCode::Success);
    };
    let killing = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        trio.nodes[2].kill();
    };
    tokio::join!(publishing, killing);
    publish_large(&mut publisher, "again", &payload, QoS::AtLeastOnce, false).await;
    trio.nodes[2].launch();
    trio.wait_ready();
    // It takes clients when it has caught up.
    let resumed = async || Client::try_connect(trio.mqtt(2), &sleeper).await.ok();
    let mut subscriber = wait::until_async("the node that was away takes clients", LONG, resumed).await;
    subscriber.patience = LONG;
    assert!(subscriber.session_present());
    expect(&mut subscriber, "large", &payload).await;
    expect(&mut subscriber, "again", &payload).await;
    let mut late = connect(trio.mqtt(2), &Options::v5("late")).await;
    late.subscribe("kept", QoS::AtMostOnce).await;
    expect(&mut late, "kept", &payload).await;
}
