//! The same client id again, and the lifecycle of one client.

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options, user_property};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

#[tokio::test]
async fn a_second_connection_takes_over() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;

    let options = Options::v5("twice").persistent();
    let mut first = Client::connect(node.mqtt(), &options).await;
    let second = Client::connect(node.mqtt(), &options).await;
    assert_eq!(first.closed().await, Some(ReasonCode::SessionTakenOver));
    assert!(second.session_present());
    let mut third = Client::connect(node.mqtt(), &Options::v3("twice")).await;
    assert!(!third.session_present());
    third.ping().await;
    third.disconnect().await;

    let expected =
        ["twice:+", "twice:-SESSION_TAKEN_OVER/142", "twice:+", "twice:-SESSION_TAKEN_OVER/142", "twice:+", "twice:-CLIENT/0"];
    assert_eq!(events::expect(&mut watcher, "twice", 6).await, expected);
    watcher.nothing().await;
}

#[tokio::test]
async fn lifecycle_events_have_the_fields_of_their_connection() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    let options = Options::v5("a/b+c#d%").username("someone").user_property("z", "1").user_property("a", "2");
    let client = Client::connect(node.mqtt(), &options).await;
    let message = watcher.message().await;
    assert_eq!(&*message.topic, "$client-events/all/client-id/a%2Fb%2Bc%23d%25");
    assert_eq!((message.qos, message.retain), (QoS::AtLeastOnce, false));
    let properties: Vec<_> = message.properties.user_properties.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(properties, [("z", "1"), ("a", "2")]);
    let json = Event::of(&message).json;
    for (key, value) in [
        ("Event type", "CONNECTED"),
        ("Client ID", "a/b+c#d%"),
        ("Client IP address", "127.0.0.1"),
        ("Node IP address", "127.0.0.1"),
        ("MQTT protocol version", "MQTTv5"),
        ("MQTT username", "someone"),
    ] {
        assert_eq!(json[key].as_str(), Some(value), "{key} in {json}");
    }
    assert_eq!(json["Listener port"].as_u64(), Some(u64::from(node.mqtt().port())));
    assert_eq!(json["Is secure connection?"].as_bool(), Some(false));
    assert_eq!(json["Was client ID broker-assigned?"].as_bool(), Some(false));
    assert!(json["Timestamp"].as_u64().is_some_and(|ms| ms > 1_700_000_000_000), "{json}");
    let connected_at = json["Timestamp"].as_u64();

    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    let message = watcher.message().await;
    assert!(message.properties.user_properties.is_empty());
    let event = Event::of(&message);
    assert_eq!(event.short(), "-CLIENT/4");
    assert!(event.json["Time elapsed since connect"].as_u64().is_some(), "{}", event.json);
    assert!(event.json["Timestamp"].as_u64() >= connected_at);
}

/// `../shared/cases.md`, row 114.
#[tokio::test]
async fn every_way_to_go_has_its_event() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;

    let dropped = Client::connect(node.mqtt(), &Options::v5("x-closed")).await;
    drop(dropped);
    assert_eq!(events::expect(&mut watcher, "x-", 2).await, ["x-closed:+", "x-closed:-UNSPECIFIED"]);

    let graceful = Client::connect(node.mqtt(), &Options::v3("x-v3")).await;
    graceful.disconnect().await;
    assert_eq!(events::expect(&mut watcher, "x-", 2).await, ["x-v3:+", "x-v3:-CLIENT/0"]);

    let mut silent = Client::connect(node.mqtt(), &Options::v5("x-silent").keep_alive(1)).await;
    assert_eq!(silent.closed().await, Some(ReasonCode::KeepAliveTimeout));
    assert_eq!(events::expect(&mut watcher, "x-", 2).await, ["x-silent:+", "x-silent:-SERVER/141"]);

    let mut offender = Client::connect(node.mqtt(), &Options::v5("x-bad")).await;
    offender.send_bytes(&[0x00, 0x00]).await.expect("sent");
    offender.closed().await;
    assert_eq!(events::expect(&mut watcher, "x-", 2).await, ["x-bad:+", "x-bad:-SERVER/129"]);

    let mut assigned = Client::connect(node.mqtt(), &Options::v5("")).await;
    assigned.ping().await;
    let event = Event::of(&watcher.message().await);
    let id = assigned.connack.as_ref().and_then(|connack| connack.properties.assigned_client_identifier.clone());
    assert_eq!(Some(event.client_id.as_str()), id.as_deref());
    assert_eq!(event.json["Was client ID broker-assigned?"].as_bool(), Some(true));
    watcher.nothing().await;
}

#[tokio::test]
async fn a_subscriber_reads_its_own_end_and_return() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let options = Options::v5("self").persistent().user_property("seen", "yes");
    let mut client = Client::connect(node.mqtt(), &options).await;
    client.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    drop(client);
    let gone = || (node.metric("com_hivemq_networking_connections_current") == 0.0).then_some(());
    wait::until("the broker has noticed the end", SOON, gone);
    let mut client = Client::connect(node.mqtt(), &options).await;
    let ended = Event::of(&client.message().await);
    assert_eq!((ended.client_id.as_str(), ended.short().as_str()), ("self", "-UNSPECIFIED"));
    let message = client.message().await;
    assert_eq!(Event::of(&message).short(), "+");
    assert_eq!(user_property(&message, "seen"), Some("yes"));
    client.nothing().await;
}
