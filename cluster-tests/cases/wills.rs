//! Will messages.

use std::time::{Duration, Instant};

use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{BOTH, before_marker, persistent, publisher, subscriber};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

/// Row 59.
#[tokio::test]
async fn a_takeover_publishes_the_will_of_the_old_connection_once() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "w").await;
    let mut publisher = publisher(node.mqtt()).await;
    for version in BOTH {
        for new_version in BOTH {
            let options = Options::of(version, "x").persistent();
            let mut first = Client::connect(node.mqtt(), &options.clone().will("w", "gone", 0)).await;
            let second = Client::connect(node.mqtt(), &Options::of(new_version, "x").persistent()).await;
            assert!(second.session_present());
            let code = first.closed().await;
            let expected = (version == BOTH[0]).then_some(ReasonCode::SessionTakenOver);
            assert_eq!(code, expected, "{version:?} by {new_version:?}");
            assert_eq!(watcher.text().await, "gone", "{version:?} by {new_version:?}");
            second.disconnect().await;
            assert_eq!(before_marker(&mut publisher, &mut watcher, "w").await, [""; 0], "{version:?} by {new_version:?}");
        }
    }
}

/// Row 60: the session ends with its connection, so the takeover finds none, and the Will Delay does not hold.
#[tokio::test]
async fn a_takeover_of_a_session_without_expiry_inherits_nothing_and_its_will_comes_at_once() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "w").await;
    let mut publisher = publisher(node.mqtt()).await;
    for clean_start in [false, true] {
        let options = Options::v5("x").expiry(0).will("w", "gone", 3600);
        let mut first = subscriber(node.mqtt(), &options, "t").await;
        let mut second = Client::connect(node.mqtt(), &Options::v5("x").clean_start(clean_start)).await;
        assert!(!second.session_present());
        assert_eq!(first.closed().await, Some(ReasonCode::SessionTakenOver));
        assert_eq!(watcher.text().await, "gone");
        publisher.publish("t", b"inherited?", QoS::AtLeastOnce).await;
        second.subscribe("marker", QoS::ExactlyOnce).await;
        assert_eq!(before_marker(&mut publisher, &mut second, "marker").await, [""; 0]);
        second.disconnect().await;
    }
}

/// Row 62.
#[tokio::test]
async fn a_will_comes_after_anything_but_disconnect_0_and_not_before_its_delay() {
    const DELAY: Duration = Duration::from_secs(2);
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "w").await;
    let mut publisher = publisher(node.mqtt()).await;
    let client = Client::connect(node.mqtt(), &Options::v5("a").will("w", "DISCONNECT 4", 0)).await;
    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    assert_eq!(watcher.text().await, "DISCONNECT 4");
    for version in BOTH {
        let client = Client::connect(node.mqtt(), &Options::of(version, "b").will("w", "reset", 0)).await;
        client.reset();
        assert_eq!(watcher.text().await, "reset", "{version:?}");
        // The same for a session that stays.
        let client = Client::connect(node.mqtt(), &persistent("b", version).will("w", "reset", 0)).await;
        client.reset();
        assert_eq!(watcher.text().await, "reset", "{version:?}");
        let client = Client::connect(node.mqtt(), &Options::of(version, "d").will("w", "DISCONNECT 0", 0)).await;
        client.disconnect().await;
        assert_eq!(before_marker(&mut publisher, &mut watcher, "w").await, [""; 0], "{version:?}");
    }
    let delayed = Options::v5("c").persistent().expiry(60).will("w", "delayed", DELAY.as_secs() as u32);
    let client = Client::connect(node.mqtt(), &delayed).await;
    let reset = Instant::now();
    client.reset();
    assert_eq!(watcher.text().await, "delayed");
    let after = reset.elapsed();
    assert!((DELAY..DELAY + SOON / 2).contains(&after), "after {after:?}");
    // DISCONNECT 0 removes a delayed one too.
    Client::connect(node.mqtt(), &delayed).await.disconnect().await;
    let mut clock = super::kit::BrokerClock::new(node.mqtt()).await;
    clock.pass(3).await;
    assert_eq!(before_marker(&mut publisher, &mut watcher, "w").await, [""; 0]);
    // Each that came was counted, and nothing else that was published.
    let counted = || (node.metric("com_hivemq_messages_will_published_count_total") == 6.0).then_some(());
    wait::until("the wills are counted", SOON, counted);
}

/// Row 64.
#[tokio::test]
async fn quick_reconnects_with_a_delayed_will_leave_a_working_subscription() {
    const LOOPS: usize = 50;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), "w").await;
    let mut publisher = publisher(node.mqtt()).await;
    let options = Options::v5("x").expiry(0).will("w", "gone", 10);
    for _ in 0..LOOPS {
        subscriber(node.mqtt(), &options, "#").await.disconnect().await;
    }
    let mut client = subscriber(node.mqtt(), &options, "#").await;
    for number in 0..20 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, number.to_string());
    }
    assert_eq!(before_marker(&mut publisher, &mut watcher, "w").await, [""; 0], "a will of an ended session");
    let wills = node.metric("com_hivemq_messages_will_count_current");
    assert_eq!(wills, 1.0, "wills that are kept");
}
