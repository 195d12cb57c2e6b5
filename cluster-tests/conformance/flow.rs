//! The order of acknowledgements, and the first sending of a message.

use bytes::BytesMut;
use troupemq::mqtt::codec;
use troupemq::mqtt::packet::{PacketId, Publish, PublishAck};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const MESSAGES: u16 = 200;
/// Within the broker's default Receive Maximum of 10 unfinished messages.
const AT_A_TIME: u16 = 9;

/// Messages for receivers of every kind, some slower to take over than others, are acknowledged in their order all the same
/// [MQTT-4.6.0-2], [MQTT-4.6.0-3].
#[tokio::test]
async fn acknowledgements_come_in_the_order_of_the_messages() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut receivers = Vec::new();
    for (name, options) in [("clean", Options::v5("clean")), ("kept", Options::v5("kept").persistent())] {
        let mut receiver = Client::connect(node.mqtt(), &options).await;
        receiver.subscribe(&format!("{name}/#"), QoS::ExactlyOnce).await;
        receivers.push(receiver);
    }
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        for options in [Options::of(version, "publisher"), Options::of(version, "publisher").persistent()] {
            let mut publisher = Client::connect(node.mqtt(), &options).await;
            let mut next = 1;
            while next <= MESSAGES {
                let ids: Vec<u16> = (next..next + AT_A_TIME).collect();
                next += AT_A_TIME;
                let mut bytes = BytesMut::new();
                for id in &ids {
                    codec::encode(&Packet::Publish(Box::new(message(*id))), version, &mut bytes);
                }
                publisher.send_bytes(&bytes).await.expect("sent");
                let (mut pubacks, mut pubrecs) = (Vec::new(), Vec::new());
                while pubacks.len() + pubrecs.len() < ids.len() {
                    match publisher.next_packet(SOON).await.expect("an acknowledgement") {
                        Packet::Puback(ack) => pubacks.push(ack.packet_id.get()),
                        Packet::Pubrec(ack) => pubrecs.push(ack.packet_id.get()),
                        other => panic!("unexpected {other:?}"),
                    }
                }
                let of = |qos| ids.iter().copied().filter(|id| message(*id).qos == qos).collect::<Vec<_>>();
                assert_eq!((pubacks, pubrecs), (of(QoS::AtLeastOnce), of(QoS::ExactlyOnce)), "{version:?}");
                for id in of(QoS::ExactlyOnce) {
                    let id = PacketId::new(id).expect("not 0");
                    publisher.send(&Packet::Pubrel(PublishAck::new(id, ReasonCode::Success))).await.expect("sent");
                }
                for id in of(QoS::ExactlyOnce) {
                    match publisher.next_packet(SOON).await.expect("PUBCOMP") {
                        Packet::Pubcomp(ack) => assert_eq!(ack.packet_id.get(), id, "{version:?}"),
                        other => panic!("unexpected {other:?}"),
                    }
                }
            }
            for receiver in &mut receivers {
                receiver.ping().await;
                receiver.session.inbox.clear();
            }
        }
    }
}

/// Each with another mix of topic, QoS and RETAIN, so of the ways into the broker.
fn message(id: u16) -> Publish {
    let topic = ["clean/t", "kept/t", "nobody/t", "kept/retained"][usize::from(id / 2 % 4)];
    let qos = if id.is_multiple_of(2) { QoS::AtLeastOnce } else { QoS::ExactlyOnce };
    let retain = topic.ends_with("retained");
    Publish { packet_id: PacketId::new(id), retain, ..publish(topic, &id.to_be_bytes(), qos) }
}

/// [MQTT-4.3.3-2]
#[tokio::test]
async fn a_qos_2_message_is_first_sent_without_dup() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for options in
        [Options::v5("clean-5"), Options::v3("clean-3"), Options::v5("kept-5").persistent(), Options::v3("kept-3").persistent()]
    {
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("t", QoS::ExactlyOnce).await;
        for text in ["one", "two"] {
            publisher.publish("t", text.as_bytes(), QoS::ExactlyOnce).await;
            let message = client.message().await;
            assert_eq!(
                (message.qos, message.dup, &*message.payload),
                (QoS::ExactlyOnce, false, text.as_bytes()),
                "{}",
                options.client_id()
            );
            assert!(message.packet_id.is_some());
        }
    }
}
