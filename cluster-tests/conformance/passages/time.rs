//! Intervals that run on: expiry of messages and sessions, delays of wills.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{QoS, ReasonCode};

use super::scenario::{Stage, seconds_since};
use crate::harness::client::{Session, publish};

/// [MQTT-3.3.2-5]
pub async fn an_expired_message_does_not_come(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    for (text, expiry, qos) in [
        ("short 1", Some(2), QoS::AtLeastOnce),
        ("for ever", None, QoS::AtLeastOnce),
        ("short 2", Some(2), QoS::ExactlyOnce),
        ("long", Some(3600), QoS::ExactlyOnce),
    ] {
        let properties = PublishProperties { message_expiry_interval: expiry, ..PublishProperties::default() };
        let packet = Publish { properties, ..publish(&stage.topic("t"), text.as_bytes(), qos) };
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    let over = Instant::now() + Duration::from_millis(3_100);
    stage.turn().await;
    sleep_until(over).await;
    let mut client = stage.connect(&options, Session::default()).await;
    for text in ["for ever", "long"] {
        assert_eq!(client.text().await, text);
    }
    client.nothing().await;
}

/// [MQTT-3.3.2-6], for a queued and for a retained message
pub async fn an_expiry_counts_on(mut stage: Stage) {
    const INTERVAL: u32 = 1000;
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("queued"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    let before = Instant::now();
    for name in ["queued", "retained"] {
        let properties = PublishProperties { message_expiry_interval: Some(INTERVAL), ..PublishProperties::default() };
        let retain = name == "retained";
        let packet = Publish { properties, retain, ..publish(&stage.topic(name), name.as_bytes(), QoS::AtLeastOnce) };
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    let stored = Instant::now();
    stage.turn().await;
    sleep_until(stored + Duration::from_millis(2_500)).await;
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("retained"), QoS::AtLeastOnce).await;
    for name in ["queued", "retained"] {
        let waited_at_least = seconds_since(stored);
        let message = client.message().await;
        assert_eq!(&*message.payload, name.as_bytes());
        let left = message.properties.message_expiry_interval.expect("still told");
        let waited_at_most = seconds_since(before) + 1;
        // Rounding may go either way, not further.
        let allowed = INTERVAL - waited_at_most - 1..=INTERVAL - waited_at_least + 1;
        assert!(allowed.contains(&left) && left < INTERVAL, "{name}: {left} is not in {allowed:?}");
    }
}

/// [MQTT-4.1.0-2]
pub async fn a_session_ends_with_its_expiry(mut stage: Stage) {
    let options = stage.kept("subscriber").expiry(2);
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let over = Instant::now() + Duration::from_millis(3_100);
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"gone", QoS::AtLeastOnce).await;
    stage.turn().await;
    sleep_until(over).await;
    let mut client = stage.connect(&options, Session::default()).await;
    assert!(!client.session_present());
    client.nothing().await;
}

/// [MQTT-3.1.2-7], [MQTT-3.1.2-8]
pub async fn a_delayed_will_is_published(mut stage: Stage) {
    let watching = stage.kept("watcher");
    let mut watcher = stage.connect(&watching, Session::default()).await;
    watcher.subscribe(&stage.topic("will"), QoS::AtLeastOnce).await;
    watcher.disconnect().await;
    let client = stage.connect(&stage.kept("client").will(&stage.topic("will"), "gone", 2), Session::default()).await;
    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    let left = Instant::now();
    stage.turn().await;
    let mut watcher = stage.connect(&watching, Session::default()).await;
    assert_eq!(watcher.text().await, "gone");
    if !stage.is_killed() {
        assert!(left.elapsed() > Duration::from_millis(1_500), "not before its delay");
    }
    watcher.nothing().await;
}

/// [MQTT-3.1.3-9]
pub async fn a_delayed_will_is_cancelled_by_resuming(mut stage: Stage) {
    let delay_s = if stage.is_killed() { 12 } else { 6 };
    let watching = stage.kept("watcher");
    let mut watcher = stage.connect(&watching, Session::default()).await;
    watcher.subscribe(&stage.topic("will"), QoS::AtLeastOnce).await;
    watcher.disconnect().await;
    // Its next connection has the same will, as that of most clients.
    let options = stage.kept("client").will(&stage.topic("will"), "gone", delay_s);
    let client = stage.connect(&options, Session::default()).await;
    client.disconnect_with(ReasonCode::DisconnectWithWillMessage).await;
    let due = Instant::now() + Duration::from_secs(delay_s.into());
    stage.turn().await;
    let resumed = stage.connect(&options, Session::default()).await;
    let in_time = Instant::now() + Duration::from_secs(1) < due;
    assert!(resumed.session_present());
    sleep_until(due + Duration::from_millis(1_200)).await;
    let mut watcher = stage.connect(&watching, Session::default()).await;
    // A machine too busy to come back in time shows nothing.
    if in_time {
        watcher.nothing().await;
    }
}
