//! What a session is subscribed to, and what is retained.

use troupemq::mqtt::packet::{Publish, PublishProperties, RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::scenario::{Stage, full_properties, settle, subscription};
use crate::harness::client::{Session, publish};

/// [MQTT-3.1.2-5], [MQTT-3.1.2-23], [MQTT-3.2.2-3], [MQTT-4.1.0-1]
pub async fn a_subscription_lasts(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    assert!(!client.session_present());
    client.subscribe(&stage.topic("one"), QoS::AtLeastOnce).await;
    client.subscribe(&stage.topic("two/#"), QoS::ExactlyOnce).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    for (name, qos) in [("one", QoS::AtLeastOnce), ("two/x", QoS::ExactlyOnce)] {
        publisher.publish(&stage.topic(name), name.as_bytes(), QoS::ExactlyOnce).await;
        let message = client.message().await;
        assert_eq!((&*message.topic, message.qos, message.dup), (stage.topic(name).as_str(), qos, false));
    }
    client.nothing().await;
}

/// [MQTT-3.10.4-1]
pub async fn an_unsubscribed_filter_stays_unsubscribed(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("a"), QoS::AtLeastOnce).await;
    client.subscribe(&stage.topic("+"), QoS::AtLeastOnce).await;
    client.unsubscribe(&stage.topic("+")).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("b"), b"b", QoS::AtLeastOnce).await;
    publisher.publish(&stage.topic("a"), b"a", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "a");
    client.nothing().await;
}

/// [MQTT-3.3.1-12], [MQTT-3.3.1-13], [MQTT-3.3.4-3], [MQTT-3.8.3-3]
pub async fn subscription_options_last(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    let published = SubscriptionOptions { retain_as_published: true, ..subscription(QoS::AtLeastOnce) };
    let no_local = SubscriptionOptions { no_local: true, ..published };
    client.subscribe_as(&stage.topic("published"), published, Some(1)).await;
    client.subscribe_as(&stage.topic("plain"), subscription(QoS::AtLeastOnce), Some(268_435_455)).await;
    client.subscribe_as(&stage.topic("no-local"), no_local, None).await;
    let mut client = stage.pass(client, &options).await;
    let mut publisher = stage.helper("publisher").await;
    for (name, retain, identifiers) in
        [("published", true, vec![1]), ("plain", false, vec![268_435_455]), ("no-local", true, Vec::new())]
    {
        publisher.publish_retained(&stage.topic(name), b"x", QoS::AtLeastOnce).await;
        let message = client.message().await;
        assert_eq!((message.retain, message.properties.subscription_identifiers.to_vec()), (retain, identifiers), "{name}");
    }
    client.publish(&stage.topic("no-local"), b"own", QoS::AtLeastOnce).await;
    client.nothing().await;
}

/// [MQTT-3.3.1-10]
pub async fn retain_handling_knows_an_existing_subscription(mut stage: Stage) {
    let mut publisher = stage.helper("publisher").await;
    publisher.publish_retained(&stage.topic("t"), b"kept", QoS::AtLeastOnce).await;
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    let if_new = SubscriptionOptions { retain_handling: RetainHandling::SendIfNew, ..subscription(QoS::AtLeastOnce) };
    client.subscribe_as(&stage.topic("+"), if_new, None).await;
    assert_eq!(client.text().await, "kept");
    // Its PUBACK is taken in.
    client.ping().await;
    settle().await;
    let mut client = stage.pass(client, &options).await;
    client.subscribe_as(&stage.topic("+"), if_new, None).await;
    client.nothing().await;
    client.unsubscribe(&stage.topic("+")).await;
    client.subscribe_as(&stage.topic("+"), if_new, None).await;
    assert_eq!(client.text().await, "kept");
}

/// [MQTT-3.3.1-5]
pub async fn a_retained_message_lasts(mut stage: Stage) {
    // The session that published it is gone by then (3.1.1: [MQTT-3.1.2-7]).
    let mut publisher = stage.helper("publisher").await;
    let properties = full_properties();
    for (name, qos) in [("0", QoS::AtMostOnce), ("1", QoS::AtLeastOnce), ("2", QoS::ExactlyOnce)] {
        for text in ["replaced", "kept"] {
            let packet =
                Publish { properties: properties.clone(), retain: true, ..publish(&stage.topic(name), text.as_bytes(), qos) };
            publisher.try_publish(packet).await.expect("acknowledged");
        }
    }
    publisher.ping().await;
    publisher.disconnect().await;
    settle().await;
    stage.turn().await;
    let mut client = stage.helper("subscriber").await;
    client.subscribe(&stage.topic("+"), QoS::ExactlyOnce).await;
    let mut levels = Vec::new();
    for _ in 0..3 {
        let message = client.message().await;
        assert_eq!((message.retain, &*message.payload), (true, b"kept".as_slice()));
        if stage.version == ProtocolVersion::V5 {
            assert_eq!(PublishProperties { message_expiry_interval: None, ..message.properties }, properties);
        }
        levels.push(message.qos);
    }
    levels.sort();
    assert_eq!(levels, [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce]);
    client.nothing().await;
}

/// [MQTT-3.3.1-6]
pub async fn a_removed_retained_message_stays_removed(mut stage: Stage) {
    let mut publisher = stage.helper("publisher").await;
    for text in ["there", ""] {
        publisher.publish_retained(&stage.topic("t"), text.as_bytes(), QoS::AtLeastOnce).await;
    }
    stage.turn().await;
    let mut client = stage.helper("subscriber").await;
    client.subscribe(&stage.topic("#"), QoS::AtLeastOnce).await;
    client.nothing().await;
}

/// [MQTT-3.1.2-4]
pub async fn clean_start_leaves_nothing(mut stage: Stage) {
    let options = stage.kept("subscriber");
    let mut client = stage.connect(&options, Session::default()).await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    client.disconnect().await;
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"waiting", QoS::AtLeastOnce).await;
    stage.turn().await;
    let mut client = stage.connect(&options.clone().clean_start(true), Session::default()).await;
    assert!(!client.session_present());
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"later", QoS::AtLeastOnce).await;
    client.nothing().await;
    client.subscribe(&stage.topic("t"), QoS::AtLeastOnce).await;
    publisher.publish(&stage.topic("t"), b"new", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "new");
}
