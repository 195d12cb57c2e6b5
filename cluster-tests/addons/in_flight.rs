//! Messages that were sent and are not acknowledged when they expire.

use std::time::Duration;

use troupemq::mqtt::QoS;
use troupemq::mqtt::packet::Publish;

use super::ear;
use crate::harness::client::{Client, Options, Session, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const EXPIRY_S: u32 = 3;
const EXPIRED: &str = "com_hivemq_messages_expired_messages";

/// QoS 1 is told once its client is away; a QoS 2 message once sent goes to its end [MQTT-4.3.3-7].
#[tokio::test]
async fn a_message_in_flight_expires_where_it_is_not_acknowledged_before_its_client_goes() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$expired/t"]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let kept = |id: &str| Options::v5(id).persistent();
    let mut clients = Vec::new();
    for id in ["goes", "stays"] {
        let mut client = Client::connect(node.mqtt(), &kept(id).manual_ack()).await;
        client.subscribe("t", QoS::ExactlyOnce).await;
        clients.push(client);
    }
    for (payload, qos) in [("one", QoS::AtLeastOnce), ("two", QoS::ExactlyOnce)] {
        let mut packet = publish("t", payload.as_bytes(), qos);
        packet.properties.message_expiry_interval = Some(EXPIRY_S);
        publisher.try_publish(packet).await.expect("acknowledged");
        for client in &mut clients {
            assert_eq!(client.text().await, payload);
        }
    }
    let stays = clients.pop().expect("two of them");
    clients.pop().expect("two of them").reset();
    let message = told.message().await;
    assert_eq!((&*message.payload, user_property(&message, "hmq-exp-client")), (&b"one"[..], Some("goes")));
    // The other one may still acknowledge it.
    assert!(told.try_message(Duration::from_millis(1_500)).await.is_err());
    stays.reset();
    let message = told.message().await;
    assert_eq!((&*message.payload, user_property(&message, "hmq-exp-client")), (&b"one"[..], Some("stays")));
    told.nothing().await;
    for id in ["goes", "stays"] {
        let mut client =
            Client::try_resume(node.mqtt(), &kept(id), Session::default()).await.map_err(|(error, _)| error).expect("connected");
        let message = client.message().await;
        assert_eq!((&*message.payload, message.dup, message.qos), (&b"two"[..], true, QoS::ExactlyOnce), "{id}");
        client.nothing().await;
    }
}

/// Whoever finds it: the shard, the dispatcher, or the member it was handed to.
#[tokio::test]
async fn a_message_of_a_shared_subscription_that_expires_behind_the_windows_of_its_members_is_told_once() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$expired/#"]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut members = Vec::new();
    for id in ["m-1", "m-2"] {
        let narrow = Options::v5(id).manual_ack().with(|connect| connect.properties.receive_maximum = Some(1));
        let mut member = Client::connect(node.mqtt(), &narrow).await;
        for filter in ["$share/g/t", "own"] {
            member.subscribe(filter, QoS::AtLeastOnce).await;
        }
        members.push(member);
    }
    // Their windows are full.
    publisher.publish("own", b"own", QoS::AtLeastOnce).await;
    let mut first = Vec::new();
    for member in &mut members {
        first.push(member.message().await);
    }
    const EXPIRING: usize = 5;
    for _ in 0..EXPIRING {
        let mut packet = publish("t", b"expires", QoS::AtLeastOnce);
        packet.properties.message_expiry_interval = Some(1);
        publisher.try_publish(packet).await.expect("acknowledged");
    }
    publisher.publish("t", b"stays", QoS::AtLeastOnce).await;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    for (member, message) in members.iter_mut().zip(&first) {
        member.puback(message).await;
    }
    for _ in 0..EXPIRING {
        let message = told.message().await;
        assert_eq!(message.payload, "expires");
        assert_eq!(user_property(&message, "hmq-exp-shared-subscription"), Some("$share/g/t"));
    }
    told.nothing().await;
    let [one, other] = &mut members[..] else { unreachable!("two of them") };
    let message = tokio::select! {
        message = one.message() => message,
        message = other.message() => message,
    };
    assert_eq!(message.payload, "stays");
}

/// What a member acknowledges, however late, did not expire. What no member has expires in its time, whether the shard finds it or the dispatcher,
/// and what a member parts with unacknowledged expires then.
#[tokio::test]
async fn a_message_of_a_shared_subscription_that_a_member_has_in_flight_does_not_expire() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut told = ear(&node, "told", &["$expired/#"]).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut members = Vec::new();
    for (id, filter) in [("acknowledges", "t"), ("dies", "t"), ("busy", "t/#"), ("away", "t")] {
        let slow = Options::v5(id).persistent().manual_ack().with(|connect| connect.properties.receive_maximum = Some(1));
        let mut member = Client::connect(node.mqtt(), &slow).await;
        member.subscribe(&format!("$share/{id}/{filter}"), QoS::AtLeastOnce).await;
        members.push(member);
    }
    let expired = node.metric(EXPIRED);
    // What is published next waits behind it, lent to the dispatcher.
    publisher.publish("t/busy", b"first", QoS::AtLeastOnce).await;
    assert_eq!(members[2].text().await, "first");
    members.pop().expect("four of them").disconnect().await;
    let mut packet = publish("t", b"expires", QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(1);
    publisher.try_publish(packet).await.expect("acknowledged");
    let held = members[0].message().await;
    assert_eq!((&held.payload[..], members[1].text().await.as_str()), (&b"expires"[..], "expires"));
    let mut groups = Vec::new();
    for _ in 0..2 {
        groups.push(of_group(&told.message().await));
    }
    groups.sort_unstable();
    assert_eq!(groups, ["$share/away/t", "$share/busy/t/#"]);
    told.nothing().await;
    members[0].puback(&held).await;
    members.remove(1).reset();
    assert_eq!(of_group(&told.message().await), "$share/dies/t");
    told.nothing().await;
    wait::until("they are counted", SOON, || (node.metric(EXPIRED) >= expired + 3.0).then_some(()));
    // Nothing is left for anybody.
    for id in ["dies", "away"] {
        let mut member = Client::connect(node.mqtt(), &Options::v5(id).persistent()).await;
        member.nothing().await;
    }
    assert_eq!(node.metric(EXPIRED), expired + 3.0);
}

fn of_group(message: &Publish) -> String {
    assert_eq!(user_property(message, "hmq-exp-origin"), Some("shared subscription"));
    user_property(message, "hmq-exp-shared-subscription").unwrap_or_default().to_owned()
}
