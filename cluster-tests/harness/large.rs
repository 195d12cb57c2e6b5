//! Large payloads, and somebody who must not notice them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};
use troupemq::replica::ShardId;

use super::client::{Client, Options, publish};
use super::config::SHARDS;
use super::node::Node;

pub const MIB: usize = 1024 * 1024;
/// A message of hundreds of megabytes is through within this, in a dev build on a busy machine.
pub const LONG: Duration = Duration::from_secs(120);
/// A small client's round trip beside it takes no longer: a hundred times what it does on a quiet machine.
pub const STALL_MAX: Duration = Duration::from_secs(10);

/// A node holds so many copies of a message at most, for a moment: the publisher's packet, the body in the state, one packet being sent.
const COPIES_MAX: usize = 4;
/// And so much besides, mostly what the storage engine has not written out.
const BESIDES_BYTES: usize = 256 * MIB;

/// The node never held more memory than a few times the payload.
pub fn assert_bounded(node: &mut Node, payload: &Bytes) {
    let (peak, now) = node.memory_bytes();
    eprintln!("memory: {} MiB at most, {} MiB now, for a payload of {} MiB", peak / MIB, now / MIB, payload.len() / MIB);
    assert!(peak < payload.len() * COPIES_MAX + BESIDES_BYTES, "{peak} bytes for a payload of {}", payload.len());
}

/// A payload in which no eight bytes are like others.
pub fn payload(bytes: usize) -> Bytes {
    let words = bytes.div_ceil(8) as u64;
    let mut payload: Vec<u8> = (0..words).flat_map(u64::to_le_bytes).collect();
    payload.truncate(bytes);
    payload.into()
}

/// The payload of the largest packet there may be: 268,435,455 bytes of Remaining Length, of which a topic, a Packet Identifier where there
/// is one, and the length of no properties are not payload.
pub fn largest(topic: &str, qos: QoS) -> Bytes {
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { 2 };
    payload(268_435_455 - 2 - topic.len() - packet_id - 1)
}

/// A client with the patience that large messages take.
pub async fn connect(address: SocketAddr, options: &Options) -> Client {
    let mut client = Client::connect(address, options).await;
    client.patience = LONG;
    client
}

/// Publishes without a copy of the payload, and pings while it is not acknowledged.
pub async fn publish_large(client: &mut Client, topic: &str, payload: &Bytes, qos: QoS, retain: bool) -> ReasonCode {
    let packet = Publish { payload: payload.clone(), retain, ..publish(topic, b"", qos) };
    let deadline = Instant::now() + LONG;
    let Some(id) = client.start_publish(packet).await.expect("the broker takes it") else { return ReasonCode::Success };
    loop {
        if let Some(reason_code) = client.session.acknowledged.remove(&id) {
            return reason_code;
        }
        assert!(Instant::now() < deadline, "{topic} is not acknowledged");
        client.ping().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Receives the next message and compares it.
#[track_caller]
pub fn expect(client: &mut Client, topic: &str, payload: &Bytes) -> impl Future<Output = ()> {
    let message = client.message();
    async move {
        let message = message.await;
        assert_eq!((&*message.topic, message.payload.len()), (topic, payload.len()));
        assert!(message.payload == *payload, "the bytes of {topic} are not those that were sent");
    }
}

/// A client with a short Keep Alive that publishes to itself, over a replicated queue and live, again and again.
pub struct Bystander {
    stop: oneshot::Sender<()>,
    task: JoinHandle<(Client, Duration, u32)>,
}

impl Bystander {
    /// With a session in the same shard as another's.
    pub async fn beside(address: SocketAddr, other: &str) -> Self {
        let shard = |name: &str| ShardId::of(name, SHARDS);
        let mut names = (0..).map(|number| format!("bystander-{number}"));
        let name = names.find(|name| shard(name) == shard(other)).expect("endless");
        Self::start(address, &name).await
    }

    pub async fn start(address: SocketAddr, name: &str) -> Self {
        let mut client = Client::connect(address, &Options::v5(name).persistent().keep_alive(5)).await;
        client.subscribe(&format!("{name}/#"), QoS::AtLeastOnce).await;
        let (stop, mut stopped) = oneshot::channel();
        let topics = [(format!("{name}/queued"), QoS::AtLeastOnce), (format!("{name}/live"), QoS::AtMostOnce)];
        let task = tokio::spawn(async move {
            let (mut longest, mut trips) = (Duration::ZERO, 0);
            while stopped.try_recv().is_err() {
                for (topic, qos) in &topics {
                    let begun = Instant::now();
                    client.publish(topic, b"small", *qos).await;
                    assert_eq!(&*client.message().await.topic, topic);
                    longest = longest.max(begun.elapsed());
                    trips += 1;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (client, longest, trips)
        });
        Self { stop, task }
    }

    /// Stops it; fails where it had to wait.
    pub async fn was_served(self) {
        _ = self.stop.send(());
        let (mut client, longest, trips) = self.task.await.expect("a bystander that is served");
        eprintln!("a bystander made {trips} round trips, the longest of {longest:?}");
        assert!(longest < STALL_MAX, "a small client waited {longest:?}");
        client.ping().await;
    }
}
