//! What a node still knows after it has stopped or was killed.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

#[tokio::test]
async fn a_stopped_node_comes_back_with_sessions_queues_and_retained_messages() {
    let end = |node: &mut Node| {
        assert!(node.stop().success(), "SIGTERM is a clean end");
        let identity = std::fs::read_to_string(node.data().join("identity")).expect("the file identity");
        assert!(!identity.contains("\"closed_at\": null"), "it is written down how far the data went: {identity}");
    };
    survives(false, end).await;
}

#[tokio::test]
async fn a_killed_node_comes_back_with_sessions_queues_and_retained_messages() {
    survives(true, Node::kill).await;
}

async fn survives(killed: bool, end: impl Fn(&mut Node)) {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let v5 = Options::v5("kept-5").persistent();
    let v3 = Options::v3("kept-3").clean_start(false);
    for options in [&v5, &v3] {
        let mut client = Client::connect(node.mqtt(), options).await;
        assert!(!client.session_present());
        client.subscribe("kept/+", QoS::ExactlyOnce).await;
        client.subscribe("gone/+", QoS::ExactlyOnce).await;
        client.unsubscribe("gone/+").await;
        client.disconnect().await;
    }
    // Connected while the node ends.
    let online_options = Options::v5("kept-online").persistent();
    let mut online = Client::connect(node.mqtt(), &online_options).await;
    online.subscribe("kept/+", QoS::AtLeastOnce).await;
    let mut volatile = Client::connect(node.mqtt(), &Options::v5("volatile")).await;
    volatile.subscribe("volatile", QoS::AtLeastOnce).await;

    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for (payload, qos) in [(b"1", QoS::AtLeastOnce), (b"2", QoS::ExactlyOnce), (b"3", QoS::AtLeastOnce)] {
        publisher.publish("kept/a", payload, qos).await;
    }
    publisher.publish("gone/a", b"gone", QoS::AtLeastOnce).await;
    publisher.publish_retained("retained/0", b"retained 0", QoS::AtMostOnce).await;
    publisher.publish_retained("retained/1", b"retained 1", QoS::AtLeastOnce).await;
    publisher.publish_retained("retained/2", b"soon deleted", QoS::AtLeastOnce).await;
    publisher.publish_retained("retained/2", b"", QoS::AtLeastOnce).await;

    for expected in ["1", "2", "3"] {
        assert_eq!(online.text().await, expected);
    }
    online.ping().await;

    end(&mut node);
    node.start();

    for options in [&v5, &v3] {
        let mut client = Client::connect(node.mqtt(), options).await;
        assert!(client.session_present(), "{}", options.client_id());
        for (payload, qos) in [("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce), ("3", QoS::AtLeastOnce)] {
            let message = client.message().await;
            assert_eq!((&*message.payload, message.qos, &*message.topic), (payload.as_bytes(), qos, "kept/a"));
        }
        client.nothing().await;
        client.disconnect().await;
    }
    let mut online = Client::connect(node.mqtt(), &online_options).await;
    assert!(online.session_present());
    let mut volatile = Client::connect(node.mqtt(), &Options::v5("volatile").clean_start(false)).await;
    assert!(!volatile.session_present(), "a session without expiry ends with its connection");

    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    publisher.publish("volatile", b"nobody", QoS::AtLeastOnce).await;
    publisher.publish("kept/b", b"after", QoS::AtLeastOnce).await;
    let mut message = online.message().await;
    // An acknowledgement that was not yet on disk may be lost with the process: then the message comes again, with DUP.
    while killed && message.dup && *message.topic == *"kept/a" {
        message = online.message().await;
    }
    assert_eq!(&*message.payload, b"after", "subscriptions work, and nothing acknowledged before comes again");
    volatile.nothing().await;
    volatile.subscribe("retained/+", QoS::AtLeastOnce).await;
    let mut retained = vec![volatile.text().await, volatile.text().await];
    retained.sort();
    assert_eq!(retained, ["retained 0", "retained 1"]);
    volatile.nothing().await;
}

#[tokio::test]
async fn an_exchange_begun_before_the_kill_ends_after_it() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let options = Options::v5("unacknowledged").persistent().manual_ack();
    let mut client = Client::connect(node.mqtt(), &options).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    client.publish("t", b"first", QoS::AtLeastOnce).await;
    let first = client.message().await;
    assert!(!first.dup);
    let session = client.into_session();

    node.kill();
    node.start();

    let mut client = Client::try_resume(node.mqtt(), &options, session).await.map_err(|(error, _)| error).expect("connected");
    assert!(client.session_present());
    let again = client.message().await;
    assert_eq!((&again.payload, again.packet_id, again.dup), (&first.payload, first.packet_id, true));
    client.puback(&again).await;
    client.disconnect().await;
    let mut client = Client::connect(node.mqtt(), &options).await;
    client.nothing().await;
}

#[tokio::test]
async fn a_will_is_published_when_its_node_was_killed() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let watcher_options = Options::v5("watcher").persistent();
    let mut watcher = Client::connect(node.mqtt(), &watcher_options).await;
    watcher.subscribe("wills/#", QoS::AtLeastOnce).await;
    let _mortal = Client::connect(node.mqtt(), &Options::v5("mortal").will("wills/mortal", "gone", 0)).await;

    node.kill();
    node.start();

    let mut watcher = Client::connect(node.mqtt(), &watcher_options).await;
    assert_eq!(watcher.text().await, "gone");
    watcher.nothing().await;
}
