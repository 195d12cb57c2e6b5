//! Payloads up to the largest legal packet, on every way through a node.

use bytes::Bytes;
use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::SOON;
use crate::harness::client::{Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::large::{Bystander, LONG, MIB, assert_bounded, connect, expect, largest, payload, publish_large};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::wait;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_packet_reaches_an_offline_subscriber_across_kill_and_restart() {
    let _permit = acquire(Weight::Whole);
    let mut node = Node::ready(Config::default());
    let sleeper = Options::v5("sleeper").persistent();
    let mut subscriber = connect(node.mqtt(), &sleeper).await;
    subscriber.subscribe("large", QoS::AtLeastOnce).await;
    subscriber.disconnect().await;
    let payload = largest("large", QoS::AtLeastOnce);
    let bystander = Bystander::beside(node.mqtt(), "sleeper").await;
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher").keep_alive(5)).await;
    assert_eq!(publish_large(&mut publisher, "large", &payload, QoS::AtLeastOnce, false).await, ReasonCode::Success);
    bystander.was_served().await;
    publisher.disconnect().await;
    assert_bounded(&mut node, &payload);

    node.kill();
    node.start();
    let bystander = Bystander::beside(node.mqtt(), "sleeper").await;
    let mut subscriber = connect(node.mqtt(), &sleeper).await;
    assert!(subscriber.session_present());
    expect(&mut subscriber, "large", &payload).await;
    bystander.was_served().await;
    assert_bounded(&mut node, &payload);
    subscriber.disconnect().await;
    let given_back = || (node.memory_bytes().1 < payload.len() / 2).then_some(());
    wait::until("the memory is given back", LONG, given_back);
}

/// By the outbox of the publisher's shard to the subscriber's queue; a kill may come anywhere, so nothing is lost and nothing doubled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qos_2_between_persistent_sessions_survives_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let (sender, sleeper) = (Options::v5("sender").persistent(), Options::v5("sleeper").persistent());
    let mut subscriber = connect(node.mqtt(), &sleeper).await;
    subscriber.subscribe("large", QoS::ExactlyOnce).await;
    subscriber.disconnect().await;
    let payload = payload(64 * MIB);
    let mut publisher = connect(node.mqtt(), &sender).await;
    assert_eq!(publish_large(&mut publisher, "large", &payload, QoS::ExactlyOnce, false).await, ReasonCode::Success);
    node.kill();
    node.start();
    let mut publisher = connect(node.mqtt(), &sender).await;
    publisher.publish("large", b"small", QoS::ExactlyOnce).await;
    let mut subscriber = connect(node.mqtt(), &sleeper).await;
    expect(&mut subscriber, "large", &payload).await;
    expect(&mut subscriber, "large", &Bytes::from_static(b"small")).await;
    subscriber.nothing().await;
    assert_bounded(&mut node, &payload);
}

/// Messages of one publisher keep their order, whatever their sizes [MQTT-4.6.0-6].
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_messages_do_not_overtake_the_large_ones_of_their_publisher() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut subscribers = Vec::new();
    for (name, qos) in [("one", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce)] {
        let mut subscriber = connect(node.mqtt(), &Options::v5(name).persistent()).await;
        subscriber.subscribe("t", qos).await;
        subscribers.push(subscriber);
    }
    let (large, small) = (payload(20 * MIB), Bytes::from_static(b"small"));
    for (name, qos) in [("clean", QoS::AtLeastOnce), ("clean2", QoS::ExactlyOnce)] {
        let mut publisher = connect(node.mqtt(), &Options::v5(name)).await;
        let order = [&large, &small, &small, &large, &small];
        for payload in order {
            let packet = Publish { payload: payload.clone(), ..publish("t", b"", qos) };
            publisher.start_publish(packet).await.expect("the broker takes it");
        }
        for subscriber in &mut subscribers {
            for payload in order {
                expect(subscriber, "t", payload).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_retained_message_is_stored_sent_replaced_and_removed() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let payload = payload(64 * MIB);
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher")).await;
    publish_large(&mut publisher, "kept", &payload, QoS::AtLeastOnce, true).await;
    node.kill();
    node.start();
    for (name, persistent) in [("clean", false), ("persistent", true)] {
        let options = if persistent { Options::v5(name).persistent() } else { Options::v5(name) };
        let mut subscriber = connect(node.mqtt(), &options).await;
        subscriber.subscribe("+", QoS::AtLeastOnce).await;
        expect(&mut subscriber, "kept", &payload).await;
    }
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish_retained("kept", b"small", QoS::AtLeastOnce).await;
    let mut subscriber = connect(node.mqtt(), &Options::v5("later")).await;
    subscriber.subscribe("kept", QoS::AtLeastOnce).await;
    expect(&mut subscriber, "kept", &Bytes::from_static(b"small")).await;
    assert_bounded(&mut node, &payload);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_are_dead_and_dropped_as_small_ones_are() {
    let _permit = acquire(Weight::Node);
    let mqtt = "<queued-messages><max-queue-size>1</max-queue-size><strategy>discard</strategy></queued-messages>".to_owned();
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let mut sleeper = connect(node.mqtt(), &Options::v5("sleeper").persistent()).await;
    sleeper.subscribe("full", QoS::AtLeastOnce).await;
    sleeper.disconnect().await;
    // One watcher has a replicated queue, the other none.
    let mut watchers = Vec::new();
    for options in [Options::v5("persistent").persistent(), Options::v5("clean")] {
        let mut watcher = connect(node.mqtt(), &options).await;
        watcher.subscribe("$dead/nobody", QoS::AtLeastOnce).await;
        watcher.subscribe("$dropped/full", QoS::AtLeastOnce).await;
        watchers.push(watcher);
    }
    let payload = payload(16 * MIB);
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher").persistent()).await;
    for (topic, qos) in [("nobody", QoS::AtLeastOnce), ("nobody", QoS::ExactlyOnce)] {
        publish_large(&mut publisher, topic, &payload, qos, false).await;
        for watcher in &mut watchers {
            expect(watcher, "$dead/nobody", &payload).await;
        }
    }
    publisher.publish("full", b"fills it", QoS::AtLeastOnce).await;
    publish_large(&mut publisher, "full", &payload, QoS::AtLeastOnce, false).await;
    for watcher in &mut watchers {
        let message = watcher.message().await;
        assert_eq!((&*message.topic, message.payload == payload), ("$dropped/full", true));
        assert_eq!(user_property(&message, "hmq-drop-client"), Some("sleeper"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_shared_subscriptions_get_large_messages() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut member = connect(node.mqtt(), &Options::v5("member").persistent()).await;
    member.subscribe("$share/g/large", QoS::ExactlyOnce).await;
    let payload = payload(16 * MIB);
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher").persistent()).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        publish_large(&mut publisher, "large", &payload, qos, false).await;
        expect(&mut member, "large", &payload).await;
    }
}

/// It is dropped for the client that does not take it [MQTT-3.1.2-25] and holds up nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_takes_no_large_packets_gets_the_others() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let options = Options::v5("modest").persistent().maximum_packet_size(1000);
    let mut modest = connect(node.mqtt(), &options).await;
    modest.subscribe("t", QoS::ExactlyOnce).await;
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher").persistent()).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        publish_large(&mut publisher, "t", &payload(8 * MIB), qos, false).await;
        publisher.publish("t", b"small", qos).await;
        assert_eq!(tokio::time::timeout(SOON, modest.text()).await.as_deref(), Ok("small"), "{qos:?}");
    }
}

/// Only the payload travels in parts; what a message may have besides, 5 MiB of user properties, goes with the command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_message_keeps_all_its_properties() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut subscriber = connect(node.mqtt(), &Options::v5("subscriber").persistent()).await;
    subscriber.subscribe("t", QoS::AtLeastOnce).await;
    let mut publisher = connect(node.mqtt(), &Options::v5("publisher")).await;
    let properties = PublishProperties {
        user_properties: vec![("k".into(), "v".repeat(65_000).into()); 79],
        correlation_data: Some(payload(65_535)),
        response_topic: Some("r".repeat(65_535).into()),
        content_type: Some("c".repeat(65_535).into()),
        ..PublishProperties::default()
    };
    let packet = Publish { properties: properties.clone(), payload: payload(4 * MIB), ..publish("t", b"", QoS::AtLeastOnce) };
    assert_eq!(publisher.try_publish(packet).await, Ok(ReasonCode::Success));
    let message = subscriber.message().await;
    assert!(message.properties == properties && message.payload == payload(4 * MIB));
}
