//! Overlapping subscriptions.

use troupemq::mqtt::{ProtocolVersion, QoS};

use super::kit::{before_marker, publisher};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

/// Row 80: one copy with the highest QoS, live and queued; the retained message once for each SUBSCRIBE of a filter [MQTT-3.8.4-4].
#[tokio::test]
async fn overlapping_filters_give_one_copy_in_every_version_live_and_queued() {
    const FILTERS: [(&str, QoS); 3] = [("a/b", QoS::AtMostOnce), ("a/+", QoS::AtLeastOnce), ("#", QoS::AtMostOnce)];
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = publisher(node.mqtt()).await;
    publisher.publish_retained("a/b", b"retained", QoS::ExactlyOnce).await;
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        for kept in [false, true] {
            let options = Options::of(version, "overlap");
            let options = if kept { options.persistent() } else { options };
            let case = format!("{version:?}, kept: {kept}");
            let mut client = Client::connect(node.mqtt(), &options).await;
            for (filter, qos) in FILTERS {
                client.subscribe(filter, qos).await;
                let message = client.message().await;
                assert_eq!((&*message.payload, message.qos), (&b"retained"[..], qos), "{case}, {filter}");
            }
            publisher.publish("a/b", b"live", QoS::ExactlyOnce).await;
            let message = client.message().await;
            assert_eq!((&*message.payload, message.qos), (&b"live"[..], QoS::AtLeastOnce), "{case}");
            assert_eq!(before_marker(&mut publisher, &mut client, "a/b").await, [""; 0], "{case}");
            client.ping().await;
            if kept {
                client.disconnect().await;
                publisher.publish("a/b", b"queued", QoS::ExactlyOnce).await;
                client = Client::connect(node.mqtt(), &options).await;
                let message = client.message().await;
                assert_eq!((&*message.payload, message.qos), (&b"queued"[..], QoS::AtLeastOnce), "{case}");
                assert_eq!(before_marker(&mut publisher, &mut client, "a/b").await, [""; 0], "{case}");
            }
            client.disconnect().await;
            Client::connect(node.mqtt(), &Options::v5("overlap")).await.disconnect().await;
        }
    }
}
