//! Declared shared subscriptions (spec/hivemq.md 1.9).

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const QUEUED: &str = "com_hivemq_messages_queued_count";

fn declared(config: &mut Config, groups: &[(&'static str, &'static str)]) {
    config.declared = groups.to_vec();
    config.mqtt = "<queued-messages><max-queue-size>20</max-queue-size></queued-messages>".to_owned();
}

fn queued(trio: &Trio) -> f64 {
    trio.nodes.iter().map(|node| node.metric(QUEUED)).sum()
}

async fn texts(client: &mut Client, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(client.text().await);
    }
    texts
}

/// The nodes' files differ: what one declares holds for all.
#[tokio::test]
async fn a_declared_group_queues_without_members_on_every_node_and_over_restarts() {
    let mut trio = Trio::new(Weight::Cluster, |config| {
        let first = config.cluster.as_ref().is_some_and(|cluster| cluster.node_name == "node1");
        declared(config, if first { &[("orders", "shop/+")] } else { &[("audit", "audit/#")] });
    });
    trio.start_all();
    let mut dead = Client::connect(trio.mqtt(0), &Options::v5("dead")).await;
    dead.subscribe("$dead/+", QoS::AtLeastOnce).await;
    let mut dropped = Client::connect(trio.mqtt(1), &Options::v5("dropped")).await;
    dropped.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    for node in 0..3 {
        let mut publisher = Client::connect(trio.mqtt(node), &Options::v5(&format!("publisher-{node}"))).await;
        for topic in ["shop/a", "audit/x/y"] {
            assert_eq!(publisher.publish(topic, node.to_string().as_bytes(), QoS::AtLeastOnce).await, ReasonCode::Success);
        }
        assert_eq!(publisher.publish("elsewhere", b"", QoS::AtLeastOnce).await, ReasonCode::NoMatchingSubscribers);
        assert_eq!(&*dead.message().await.topic, "$dead/elsewhere", "and nothing before it");
    }
    wait::until("both groups have what came from each node", SOON, || (queued(&trio) == 6.0).then_some(()));
    wait::until("a difference is told", SOON, || trio.nodes[0].stderr().contains("declared by other nodes").then_some(()));
    trio.nodes.iter_mut().for_each(Node::kill);
    trio.start_all();
    wait::until("the queues are back", SOON, || (queued(&trio) == 6.0).then_some(()));

    // The limit holds, and drops are told under the group's name.
    let mut dropped = Client::connect(trio.mqtt(1), &Options::v5("dropped")).await;
    dropped.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(trio.mqtt(2), &Options::v5("publisher")).await;
    for number in 3..21 {
        publisher.publish("shop/b", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let drop = dropped.message().await;
    assert_eq!((&*drop.topic, &*drop.payload), ("$dropped/shop/b", &b"20"[..]));
    assert_eq!(user_property(&drop, "hmq-drop-shared-subscription"), Some("$share/orders/shop/+"));

    // A member takes all of it in order, and the group stays when it goes.
    let mut member = Client::connect(trio.mqtt(1), &Options::v5("member")).await;
    member.subscribe("$share/orders/shop/+", QoS::AtLeastOnce).await;
    assert_eq!(texts(&mut member, 20).await, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    member.ping().await;
    member.disconnect().await;
    wait::until("the other group's are left", SOON, || (queued(&trio) == 3.0).then_some(()));
    assert_eq!(publisher.publish("shop/c", b"later", QoS::ExactlyOnce).await, ReasonCode::Success);
    let mut member = Client::connect(trio.mqtt(0), &Options::v5("member")).await;
    member.subscribe("$share/orders/shop/+", QoS::ExactlyOnce).await;
    assert_eq!(member.text().await, "later");
}

#[tokio::test]
async fn a_group_that_no_node_declares_any_more_goes_with_a_warning_and_not_before() {
    let mut trio = Trio::new(Weight::Cluster, |config| declared(config, &[("g", "t")]));
    trio.start_all();
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publisher.publish("t", b"kept", QoS::AtLeastOnce).await;
    for node in 0..3 {
        wait::until("the message is there", SOON, || (queued(&trio) == 1.0).then_some(()));
        trio.nodes[node].config.declared.clear();
        assert!(trio.nodes[node].stop().success());
        trio.nodes[node].launch();
        trio.wait_ready();
    }
    wait::until("the queue is gone", SOON, || (queued(&trio) == 0.0).then_some(()));
    wait::until("somebody says so", SOON, || {
        trio.nodes.iter().any(|node| node.stderr().contains("declared no more and has no member")).then_some(())
    });
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    assert_eq!(publisher.publish("t", b"dead", QoS::AtLeastOnce).await, ReasonCode::NoMatchingSubscribers);
}

#[tokio::test]
async fn one_node_declares_and_a_mistake_refuses_its_start() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::new(Config { declared: vec![("g", "t/#")], ..Config::default() });
    node.start();
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    assert_eq!(publisher.publish("t/1", b"1", QoS::AtLeastOnce).await, ReasonCode::Success);
    assert_eq!(publisher.publish("t/1", b"2", QoS::AtMostOnce).await, ReasonCode::Success);
    node.kill();
    node.start();
    let mut member = Client::connect(node.mqtt(), &Options::v5("member")).await;
    member.subscribe("$share/g/t/#", QoS::AtLeastOnce).await;
    assert_eq!(member.text().await, "1");
    member.nothing().await;
    assert!(node.stop().success());
    node.config.declared = vec![("g", "t/#/u")];
    let refusal = node.refused();
    assert!(!refusal.status.success());
    let expected =
        "declared-shared-subscriptions.xml:2: <declared-shared-subscriptions/subscription/topic-filter>: found \"t/#/u\"";
    assert!(refusal.stderr.contains(expected), "{}", refusal.stderr);
}
