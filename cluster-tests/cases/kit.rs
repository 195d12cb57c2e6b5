//! What the cases share.

use std::net::SocketAddr;
use std::time::Duration;

use troupemq::mqtt::packet::{Publish, PublishAck, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::{SOON, wait};

/// The versions that most cases are tried with.
pub const BOTH: [ProtocolVersion; 2] = [ProtocolVersion::V5, ProtocolVersion::V3_1_1];

/// A node with these elements inside `<mqtt>`.
pub fn node_with(mqtt: &str) -> Node {
    Node::ready(Config { mqtt: mqtt.to_owned(), ..Config::default() })
}

/// `<queued-messages>` with room for so many.
pub fn queue_of(size: usize) -> String {
    format!("<queued-messages><max-queue-size>{size}</max-queue-size></queued-messages>")
}

/// A client id for a version.
pub fn id(prefix: &str, version: ProtocolVersion) -> String {
    format!("{prefix}-{version:?}")
}

/// A session that outlives its connection, in either version.
pub fn persistent(prefix: &str, version: ProtocolVersion) -> Options {
    Options::of(version, &id(prefix, version)).persistent()
}

pub async fn publisher(address: SocketAddr) -> Client {
    Client::connect(address, &Options::v5("publisher")).await
}

/// A client that has subscribed to a filter with QoS 2.
pub async fn subscriber(address: SocketAddr, options: &Options, filter: &str) -> Client {
    let mut client = Client::connect(address, options).await;
    client.subscribe(filter, QoS::ExactlyOnce).await;
    client
}

/// A PUBLISH that expires.
pub fn expiring(topic: &str, payload: &[u8], qos: QoS, seconds: u32) -> Publish {
    let mut packet = publish(topic, payload, qos);
    packet.properties.message_expiry_interval = Some(seconds);
    packet
}

/// Subscribes with a Subscription Identifier, or none; gives the Reason Code.
pub async fn subscribe_as(client: &mut Client, filter: &str, qos: QoS, identifier: Option<u32>) -> ReasonCode {
    let options = SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
    let packet_id = client.session.next_id();
    let filters = vec![SubscriptionRequest { filter: filter.into(), options }];
    let packet = Subscribe { packet_id, subscription_identifier: identifier, user_properties: Vec::new(), filters };
    client.send(&Packet::Subscribe(Box::new(packet))).await.expect("sent");
    match client.answer(packet_id).await.expect("SUBACK") {
        Packet::Suback(suback) => suback.reason_codes[0],
        other => panic!("the answer to SUBSCRIBE is {other:?}"),
    }
}

/// The next messages as text.
pub async fn texts(client: &mut Client, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(client.text().await);
    }
    texts
}

/// Publishes a marker and tells what the subscriber received before it; all of it was there before, as messages of one topic keep their order.
pub async fn before_marker(publisher: &mut Client, subscriber: &mut Client, topic: &str) -> Vec<String> {
    const MARKER: &str = "marker";
    publisher.publish(topic, MARKER.as_bytes(), QoS::ExactlyOnce).await;
    let mut before = Vec::new();
    loop {
        match subscriber.text().await {
            text if text == MARKER => return before,
            text => before.push(text),
        }
    }
}

/// PUBREC, PUBREL or PUBCOMP as an answer of the test's own.
pub async fn send_ack(client: &mut Client, packet: fn(PublishAck) -> Packet, id: u16) {
    let id = std::num::NonZeroU16::new(id).expect("a Packet Identifier");
    client.send(&packet(PublishAck::new(id, ReasonCode::Success))).await.expect("sent");
}

/// Tells by a message's expiry when the broker's clock has passed a time.
pub struct BrokerClock {
    publisher: Client,
    watcher: Client,
}

impl BrokerClock {
    pub async fn new(address: SocketAddr) -> Self {
        let mut sleeper = Client::connect(address, &Options::v5("clock sleeper").persistent()).await;
        sleeper.subscribe("clock", QoS::AtLeastOnce).await;
        sleeper.disconnect().await;
        let mut watcher = Client::connect(address, &Options::v5("clock watcher")).await;
        watcher.subscribe("$expired/clock", QoS::AtLeastOnce).await;
        Self { publisher: Client::connect(address, &Options::v5("clock publisher")).await, watcher }
    }

    /// Returns when a message published now with that Message Expiry Interval has expired; so have all that were published before.
    pub async fn pass(&mut self, seconds: u32) {
        let packet = expiring("clock", b"", QoS::AtLeastOnce, seconds);
        self.publisher.try_publish(packet).await.expect("acknowledged");
        self.watcher.message().await;
    }
}

/// Waits for a number of `/metrics`.
#[track_caller]
pub fn wait_metric(node: &Node, name: &str, what: impl Fn(f64) -> bool) {
    let mut last = 0.0;
    let deadline = std::time::Instant::now() + SOON;
    while std::time::Instant::now() < deadline {
        last = node.metric(name);
        if what(last) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{name} stays at {last}");
}

pub const BYTES_READ: &str = "com_hivemq_networking_bytes_read_total";
pub const CONNECTIONS: &str = "com_hivemq_networking_connections_current";
pub const SESSIONS: &str = "com_hivemq_sessions_overall_current";
pub const SUBSCRIPTIONS: &str = "com_hivemq_subscriptions_overall_current";
pub const QUEUED: &str = "com_hivemq_messages_queued_count";
pub const RETAINED: &str = "com_hivemq_messages_retained_current";
pub const DROPPED: &str = "com_hivemq_messages_dropped_count";
pub const MEMORY: &str = "process_resident_memory_bytes";

/// Resident memory of a node, MiB.
#[expect(clippy::cast_sign_loss, reason = "above 0")]
pub fn memory_mib(node: &Node) -> u64 {
    wait::until("the node tells its memory", SOON, || {
        let bytes = node.metric(MEMORY);
        (bytes > 0.0).then_some(bytes as u64 / (1024 * 1024))
    })
}
