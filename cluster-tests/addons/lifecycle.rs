//! `$client-events` with its options, and what its messages hold.

use serde_json::json;
use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use super::ear;
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

async fn watcher(node: &Node) -> Client {
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::ExactlyOnce).await;
    watcher
}

/// Every field of the seed's table 10 that a plain connection has, and no other.
#[tokio::test]
async fn an_event_has_every_field_that_is_known_and_no_other() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = watcher(&node).await;
    for (version, name) in
        [(ProtocolVersion::V3_1, "MQTTv3_1"), (ProtocolVersion::V3_1_1, "MQTTv3_1_1"), (ProtocolVersion::V5, "MQTTv5")]
    {
        for (id, username) in [("a/b+c#d%é", None), ("plain", Some("user/1")), ("", None)] {
            if id.is_empty() && version == ProtocolVersion::V3_1 {
                continue; // which has no assigned identifiers
            }
            let mut options = Options::of(version, id).user_property("site", "1").user_property("site", "2");
            if let Some(username) = username {
                options = options.username(username);
            }
            Client::connect(node.mqtt(), &options).await.disconnect().await;
            for connected in [true, false] {
                let message = watcher.message().await;
                let mut event = Event::of(&message).json;
                let object = event.as_object_mut().expect("an object");
                let timestamp = object.remove("Timestamp").expect("a time").as_u64().expect("a number");
                assert!(timestamp > 1_700_000_000_000, "milliseconds: {timestamp}");
                if !connected {
                    let elapsed = object.remove("Time elapsed since connect").expect("a duration");
                    assert!(elapsed.as_u64().is_some_and(|ms| ms < 60_000), "{elapsed}");
                }
                let client_id = event["Client ID"].as_str().expect("always there").to_owned();
                let mut expected = json!({
                    "Event type": if connected { "CONNECTED" } else { "DISCONNECTED" },
                    "Client IP address": "127.0.0.1",
                    "Client ID": if id.is_empty() { &client_id } else { id },
                    "Was client ID broker-assigned?": id.is_empty(),
                    "Node IP address": "127.0.0.1",
                    "Listener port": node.mqtt().port(),
                    "Is secure connection?": false,
                    "MQTT protocol version": name,
                });
                if !connected {
                    expected["Disconnect initiator"] = json!("CLIENT");
                    expected["Disconnect reason code"] = json!(0);
                }
                if let Some(username) = username {
                    expected["MQTT username"] = json!(username);
                }
                assert_eq!(event, expected);
                // Only these four characters are encoded.
                let encoded = if id.starts_with("a/") { "a%2Fb%2Bc%23d%25é" } else { &client_id };
                assert_eq!(&*message.topic, format!("$client-events/all/client-id/{encoded}"));
                assert!(!client_id.is_empty());
                assert_eq!((message.qos, message.retain), (QoS::AtLeastOnce, false));
                assert_eq!(message.properties.message_expiry_interval, None);
                let properties: Vec<(&str, &str)> =
                    message.properties.user_properties.iter().map(|(name, value)| (&**name, &**value)).collect();
                let sent: &[(&str, &str)] =
                    if connected && version == ProtocolVersion::V5 { &[("site", "1"), ("site", "2")] } else { &[] };
                assert_eq!(properties, sent);
            }
        }
    }
    // There is no history.
    watcher.disconnect().await;
    ear(&node, "late", &["$client-events/all/client-id/plain", "$client-events/all/client-id/watcher"]).await.nothing().await;
}

#[tokio::test]
async fn user_names_identify_clients_where_so_configured_and_chosen_triggers_alone_tell() {
    let _permit = acquire(Weight::Node);
    let config = |lifecycle: &str| Config {
        lifecycle: lifecycle.to_owned(),
        mqtt: "<message-expiry><max-interval>300</max-interval></message-expiry>".to_owned(),
        ..Config::default()
    };
    {
        let triggers = "<triggers><client-disconnected><session-taken-over/><server/></client-disconnected></triggers>";
        let node = Node::ready(config(&format!("<identifier><username/></identifier>{triggers}")));
        let mut watcher = watcher(&node).await;
        for (username, topic) in [(Some("me/too"), "username/me%2Ftoo"), (None, "client-id/x")] {
            let options = match username {
                Some(username) => Options::v5("x").username(username),
                None => Options::v5("x"),
            };
            // Ends that are not chosen, and those that are.
            Client::connect(node.mqtt(), &options).await.disconnect().await;
            Client::connect(node.mqtt(), &options).await.reset();
            let mut first = Client::connect(node.mqtt(), &options).await;
            let mut second = Client::connect(node.mqtt(), &options).await;
            first.closed().await;
            second.send_bytes(&[0, 0]).await.expect("sent");
            second.closed().await;
            for expected in ["-SESSION_TAKEN_OVER/142", "-SERVER/129"] {
                let message = watcher.message().await;
                assert_eq!(Event::of(&message).short(), expected);
                assert_eq!(&*message.topic, format!("$client-events/all/{topic}"));
                // No interval of its own: the broker's.
                let left = message.properties.message_expiry_interval.expect("the maximum");
                assert!((290..=300).contains(&left), "{left}");
            }
        }
        watcher.nothing().await;
    }
    for (triggers, expected) in [
        ("<client-connected/>", &["x:+"][..]),
        ("<client-disconnected/>", &["x:-CLIENT/4"]),
        ("<client-connected/><client-disconnected><unspecified/></client-disconnected>", &["x:+"]),
    ] {
        let node = Node::ready(config(&format!("<triggers>{triggers}</triggers>")));
        let mut watcher = watcher(&node).await;
        Client::connect(node.mqtt(), &Options::v5("x")).await.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
        assert_eq!(events::expect(&mut watcher, "x", 1).await, expected, "{triggers}");
        watcher.nothing().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_of_triggers_refuses_the_start_also_of_an_add_on_that_is_off() {
    let _permit = acquire(Weight::Node);
    for addons in [false, true] {
        let mut node = Node::new(Config { addons, lifecycle: "<triggers/>".to_owned(), ..Config::default() });
        let refusal = tokio::task::block_in_place(|| node.refused());
        assert!(!refusal.status.success());
        assert!(refusal.stderr.contains("client-lifecycle-topic/triggers>: found no trigger"), "{}", refusal.stderr);
    }
}
