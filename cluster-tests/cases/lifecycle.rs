//! Lifecycle events.

use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{self, subscriber, wait_metric};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 114: the ends that one node without administration knows; the node's own end is in `cluster::node_loss`.
#[tokio::test]
async fn each_end_has_one_event_with_a_reason_of_its_own() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), events::FILTER).await;
    for version in kit::BOTH {
        for kept in [false, true] {
            let named = |name: &str| {
                let options = Options::of(version, &format!("x-{name}"));
                if kept { options.persistent() } else { options }
            };
            let connect = async |name: &str| Client::connect(node.mqtt(), &named(name)).await;
            connect("normal").await.disconnect().await;
            if version == kit::BOTH[0] {
                connect("will").await.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
            }
            connect("closed").await;
            connect("reset").await.reset();
            Client::connect(node.mqtt(), &named("silent").keep_alive(1)).await.closed().await;
            let mut offender = connect("offender").await;
            offender.send_bytes(&[0x00, 0x00]).await.expect("sent");
            offender.closed().await;
            let mut first = connect("taken").await;
            let second = connect("taken").await;
            first.closed().await;
            second.disconnect().await;

            let mut expected = vec![
                "x-normal:+",
                "x-normal:-CLIENT/0",
                "x-closed:+",
                "x-closed:-UNSPECIFIED",
                "x-reset:+",
                "x-reset:-UNSPECIFIED",
                "x-silent:+",
                "x-silent:-SERVER/141",
                "x-offender:+",
                "x-offender:-SERVER/129",
                "x-taken:+",
                "x-taken:-SESSION_TAKEN_OVER/142",
                "x-taken:+",
                "x-taken:-CLIENT/0",
            ];
            if version == kit::BOTH[0] {
                expected.extend(["x-will:+", "x-will:-CLIENT/4"]);
            }
            let mut seen = events::expect(&mut watcher, "x-", expected.len()).await;
            // Events of different clients may pass each other.
            seen.sort();
            expected.sort_unstable();
            assert_eq!(seen, expected, "{version:?}, kept: {kept}");
        }
    }
    watcher.nothing().await;
}

/// Row 115: a disconnect is one event, and no other follows for the session or its subscriptions, however they end; subscriptions go with
/// their session.
#[tokio::test]
async fn the_end_of_a_session_adds_no_event_and_takes_its_subscriptions() {
    const FILTERS: [&str; 5] = ["a", "b/+", "c/#", "$share/g/d", "e"];
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), events::FILTER).await;
    let subscribe = async |options: &Options| {
        let mut client = Client::connect(node.mqtt(), options).await;
        for filter in FILTERS {
            client.subscribe(filter, QoS::AtLeastOnce).await;
        }
        client
    };
    let own = 1.0;
    let with_session = own + FILTERS.len() as f64;
    // With the connection.
    let ends_at_once = Options::v5("x").expiry(0);
    subscribe(&ends_at_once).await.disconnect().await;
    wait_metric(&node, kit::SUBSCRIPTIONS, |count| count == own);
    wait_metric(&node, kit::SESSIONS, |count| count == own);
    // A second later.
    subscribe(&Options::v5("x").expiry(1)).await.disconnect().await;
    wait_metric(&node, kit::SUBSCRIPTIONS, |count| count == own);
    wait_metric(&node, kit::SESSIONS, |count| count == own);
    // By a clean start over an old session, whether connected or not.
    subscribe(&Options::v5("x").persistent()).await.disconnect().await;
    wait_metric(&node, kit::SUBSCRIPTIONS, |count| count == with_session);
    let third = Client::connect(node.mqtt(), &Options::v5("x").expiry(0)).await;
    assert!(!third.session_present());
    wait_metric(&node, kit::SUBSCRIPTIONS, |count| count == own);
    third.disconnect().await;
    let connected = subscribe(&Options::v5("x").persistent()).await;
    let last = Client::connect(node.mqtt(), &Options::v5("x").expiry(0)).await;
    wait_metric(&node, kit::SUBSCRIPTIONS, |count| count == own);
    drop(connected);
    last.disconnect().await;
    let expected = ["+", "-CLIENT/0"].repeat(4);
    let mut expected: Vec<String> = expected.iter().map(|event| format!("x:{event}")).collect();
    expected.extend(["x:+", "x:-SESSION_TAKEN_OVER/142", "x:+", "x:-CLIENT/0"].map(str::to_owned));
    assert_eq!(events::expect(&mut watcher, "x", expected.len()).await, expected);
    watcher.nothing().await;
    wait_metric(&node, kit::SESSIONS, |count| count == own);
}
