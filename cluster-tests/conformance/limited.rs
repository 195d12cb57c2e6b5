//! A node that serves as little as its configuration can make it.

use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::connect::{connect, refusal, text};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const PACKET_SIZE_MAX: u32 = 4096;

pub fn config() -> Config {
    let mqtt = format!(
        "<packets><max-packet-size>{PACKET_SIZE_MAX}</max-packet-size></packets><quality-of-service><max-qos>1</max-qos></quality-of-service>\
         <retained-messages><enabled>false</enabled></retained-messages><wildcard-subscriptions><enabled>false</enabled></wildcard-subscriptions>\
         <shared-subscriptions><enabled>false</enabled></shared-subscriptions>\
         <subscription-identifier><enabled>false</enabled></subscription-identifier><topic-alias><enabled>false</enabled></topic-alias>"
    );
    Config { mqtt, ..Config::default() }
}

/// [MQTT-3.2.2-9] and the other properties of CONNACK that restrict.
#[tokio::test]
async fn connack_tells_what_is_not_served() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(config());
    let client = Client::connect(node.mqtt(), &Options::v5("c")).await;
    let told = client.connack.expect("connected").properties;
    assert_eq!(told.maximum_qos, Some(QoS::AtLeastOnce));
    assert_eq!(told.maximum_packet_size, Some(PACKET_SIZE_MAX));
    assert_eq!(told.topic_alias_maximum.unwrap_or(0), 0);
    let flags = [
        told.retain_available,
        told.wildcard_subscription_available,
        told.shared_subscription_available,
        told.subscription_identifiers_available,
    ];
    assert_eq!(flags, [Some(false); 4]);
}

/// [MQTT-3.2.2-10]
#[tokio::test]
async fn every_requested_qos_is_taken_where_the_maximum_is_lower() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(config());
    for options in [Options::v5("five"), Options::v3("three")] {
        let mut client = Client::connect(node.mqtt(), &options).await;
        for (qos, granted) in [
            (QoS::AtMostOnce, ReasonCode::Success),
            (QoS::AtLeastOnce, ReasonCode::GrantedQoS1),
            (QoS::ExactlyOnce, ReasonCode::GrantedQoS1),
        ] {
            assert_eq!(client.subscribe("t", qos).await, granted, "{} {qos:?}", options.client_id());
            client.publish("t", b"x", QoS::AtLeastOnce).await;
            let message = client.message().await;
            assert_eq!(message.qos, qos.min(QoS::AtLeastOnce));
        }
    }
}

/// [MQTT-3.8.3-2] of MQTT 3.1.1: no such subscription is made. The connection ends too, as with HiveMQ.
#[tokio::test]
async fn wildcard_filters_are_refused_where_there_are_none() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(config());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for filter in ["#", "+", "a/#", "a/+/b"] {
        for (options, code) in
            [(Options::v5("five"), Some(ReasonCode::WildcardSubscriptionsNotSupported)), (Options::v3("three"), None)]
        {
            let options = options.persistent();
            let mut client = Client::connect(node.mqtt(), &options).await;
            assert!(client.try_subscribe(filter, QoS::AtLeastOnce).await.is_err(), "{filter} is not granted");
            assert_eq!(client.closed().await, code);
            let mut client = Client::connect(node.mqtt(), &options).await;
            assert!(client.session_present());
            publisher.publish("a/x/b", b"x", QoS::AtLeastOnce).await;
            client.nothing().await;
        }
    }
}

/// [MQTT-3.1.4-2], [MQTT-3.2.2-12], [MQTT-3.2.2-13]
#[tokio::test]
async fn a_connect_beyond_what_is_served_is_closed() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(config());
    for (version, properties) in [(ProtocolVersion::V3_1_1, &[][..]), (ProtocolVersion::V5, &[0][..])] {
        let payload = [&text("c")[..], properties, &text("w"), &text("gone")].concat();
        for (what, flags, code) in [
            ("a will of QoS 2", 0b0001_0110, ReasonCode::QoSNotSupported),
            ("a retained will", 0b0010_0110, ReasonCode::RetainNotSupported),
        ] {
            let got = refusal(&node, version, &connect(version, flags, &payload)).await;
            // MQTT 3.1.1 has no code that fits better than 5, not authorised.
            let wanted = if version == ProtocolVersion::V5 { code } else { ReasonCode::NotAuthorized };
            assert_eq!(got, Some(wanted), "{version:?}: {what}");
        }
    }
}

/// [MQTT-4.3.3-9]
#[tokio::test]
async fn an_identifier_refused_in_pubrec_is_free() {
    let _permit = acquire(Weight::Node);
    let more = "<security><payload-format-validation><enabled>true</enabled></payload-format-validation></security>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber")).await;
    subscriber.subscribe("t", QoS::ExactlyOnce).await;
    for options in [Options::v5("clean"), Options::v5("kept").persistent()] {
        let mut publisher = Client::connect(node.mqtt(), &options).await;
        let id = publisher.session.next_id();
        let properties = PublishProperties { payload_format_indicator: Some(true), ..PublishProperties::default() };
        let good = Publish { packet_id: Some(id), properties, ..publish("t", b"text", QoS::ExactlyOnce) };
        let bad = Publish { payload: b"\xFF\xFE".as_slice().into(), ..good.clone() };
        for (packet, code) in
            [(&bad, ReasonCode::PayloadFormatInvalid), (&bad, ReasonCode::PayloadFormatInvalid), (&good, ReasonCode::Success)]
        {
            publisher.send(&Packet::Publish(Box::new(packet.clone()))).await.expect("sent");
            match publisher.next_packet(crate::harness::SOON).await.expect("an answer") {
                Packet::Pubrec(ack) => assert_eq!((ack.packet_id, ack.reason_code), (id, code)),
                other => panic!("the answer is {other:?}"),
            }
        }
        assert_eq!(subscriber.text().await, "text");
        subscriber.nothing().await;
    }
}
