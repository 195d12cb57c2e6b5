//! `restrictions/prevented-messages`, TroupeMQ's own: messages that the operator keeps back are told as what an extension prevented.

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use super::ear;
use crate::harness::client::{Client, Options, user_property};
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const RULES: &str = "<restrictions><prevented-messages>\
    <inbound><topic-filter>in/#</topic-filter></inbound>\
    <inbound><topic-filter>#</topic-filter><client-id>mute</client-id></inbound>\
    <outbound><topic-filter>out/#</topic-filter><client-id>barred</client-id></outbound>\
    <outbound><topic-filter>out/#</topic-filter><client-id>member</client-id></outbound>\
    </prevented-messages></restrictions>";
const ALL_QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

#[track_caller]
fn assert_told(message: &Publish, topic: &str, reason: &str, origin: (&str, &str, &str)) {
    assert_eq!(&*message.topic, topic);
    assert_eq!(user_property(message, "hmq-drop-reason"), Some(reason));
    assert_eq!(user_property(message, "hmq-drop-origin"), Some(origin.0));
    assert_eq!(user_property(message, origin.1), Some(origin.2));
}

fn node() -> Node {
    Node::ready(Config { more: RULES.to_owned(), ..Config::default() })
}

#[tokio::test]
async fn what_is_prevented_inbound_is_acknowledged_and_goes_to_nobody() {
    let _permit = acquire(Weight::Node);
    let node = node();
    let mut told = ear(&node, "told", &["$dropped/#", "$dead/in/#", "$dead/other"]).await;
    let mut heard = ear(&node, "heard", &["in/#"]).await;
    let mut events = ear(&node, "events", &[events::FILTER]).await;
    for (id, topic) in [("publisher", "in/t"), ("mute", "other")] {
        for options in [Options::v5(id), Options::v5(id).persistent(), Options::v3(id)] {
            let mut publisher = Client::connect(node.mqtt(), &options).await;
            // Nothing inbound is done with events, though `#` is prevented for this client.
            assert_eq!(&*events.message().await.topic, format!("$client-events/all/client-id/{id}"));
            for qos in ALL_QOS {
                assert_eq!(publisher.publish(topic, b"kept back", qos).await, ReasonCode::Success);
                let message = told.message().await;
                let origin = ("client", "hmq-drop-client", id);
                assert_told(&message, &format!("$dropped/{topic}"), "Extension Prevented (inbound)", origin);
                assert_eq!(message.payload, "kept back");
            }
            publisher.disconnect().await;
            events.message().await;
        }
    }
    heard.nothing().await;
    told.nothing().await;
    assert_eq!(node.metric("com_hivemq_messages_dropped_publish_inbound_intercepted_count"), 18.0);
}

#[tokio::test]
async fn what_is_prevented_outbound_goes_to_all_others_and_holds_up_nothing() {
    let _permit = acquire(Weight::Node);
    let node = node();
    let mut told = ear(&node, "told", &["$dropped/#"]).await;
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.subscribe("out/#", QoS::ExactlyOnce).await;
    let mut member = Client::connect(node.mqtt(), &Options::v5("member")).await;
    member.subscribe("$share/g/out/shared", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for options in [Options::v5("barred"), Options::v5("barred").persistent(), Options::v3("barred")] {
        // A window of one: were it used up, nothing would follow.
        let options = options.with(|connect| connect.properties.receive_maximum = Some(1));
        let mut barred = Client::connect(node.mqtt(), &options).await;
        for filter in ["out/t", "free"] {
            barred.subscribe(filter, QoS::ExactlyOnce).await;
        }
        for qos in ALL_QOS {
            publisher.publish("out/t", b"not for all", qos).await;
            let message = told.message().await;
            let origin = ("client", "hmq-drop-client", "barred");
            assert_told(&message, "$dropped/out/t", "Extension Prevented (outbound)", origin);
            assert_eq!(message.payload, "not for all");
            assert_eq!(other.text().await, "not for all");
            publisher.publish("free", b"for all", qos).await;
            assert_eq!(barred.text().await, "for all");
        }
        barred.disconnect().await;
    }
    publisher.publish("out/shared", b"", QoS::AtLeastOnce).await;
    let origin = ("shared subscription", "hmq-drop-shared-subscription", "$share/g/out/shared");
    assert_told(&told.message().await, "$dropped/out/shared", "Extension Prevented (outbound)", origin);
    told.nothing().await;
    member.nothing().await;
    assert_eq!(node.metric("com_hivemq_messages_dropped_count"), 10.0);
}
