//! What a scenario has at hand.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};
use troupemq::mqtt::packet::{Publish, PublishAck, PublishProperties, RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::Passage;
use crate::harness::SOON;
use crate::harness::client::{Client, Options, Session};

/// A second half is given this long to begin.
const PASSAGE_WITHIN: Duration = Duration::from_secs(90);
const RETRY: Duration = Duration::from_millis(50);

pub type Run = fn(Stage) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// One scenario and where it makes sense.
pub struct Scenario {
    pub name: &'static str,
    /// MQTT 3.1.1 has no such thing.
    pub only_v5: bool,
    /// Its client is not connected during the passage.
    pub absent: bool,
    pub run: Run,
}

impl Scenario {
    pub fn runs_over(&self, passage: Passage) -> bool {
        !self.absent || passage != Passage::SameConnection
    }
}

/// Where the second half takes place.
#[derive(Debug, Clone, Copy)]
pub struct After {
    pub address: SocketAddr,
}

pub struct Stage {
    pub passage: Passage,
    pub version: ProtocolVersion,
    /// Begins the names of topics and clients, so that no scenario sees another.
    prefix: String,
    /// The node of the half that is on.
    address: SocketAddr,
    arrived: Option<oneshot::Sender<()>>,
    go: watch::Receiver<Option<After>>,
}

impl Stage {
    pub fn new(
        scenario: &str,
        passage: Passage,
        version: ProtocolVersion,
        address: SocketAddr,
        arrived: oneshot::Sender<()>,
        go: watch::Receiver<Option<After>>,
    ) -> Self {
        let prefix = format!("{passage:?}/{version:?}/{scenario}");
        Self { passage, version, prefix, address, arrived: Some(arrived), go }
    }

    pub fn topic(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// A session that outlives its connection.
    pub fn kept(&self, role: &str) -> Options {
        Options::of(self.version, &self.topic(role)).persistent()
    }

    /// A client whose connection is nobody's concern.
    pub async fn helper(&self, role: &str) -> Client {
        self.connect(&Options::of(self.version, &self.topic(role)), Session::default()).await
    }

    /// Connects to the node of this half. A cluster that just lost a node refuses for a moment.
    pub async fn connect(&self, options: &Options, mut session: Session) -> Client {
        let deadline = Instant::now() + SOON;
        loop {
            match Client::try_resume(self.address, options, session).await {
                Ok(client) => return client,
                Err((error, kept)) => {
                    assert!(Instant::now() < deadline, "{} is not connected: {error:?}", options.client_id());
                    session = kept;
                    sleep(RETRY).await;
                }
            }
        }
    }

    /// The passage of a client that stays connected where it can: the same client, or the next connection of its session.
    pub async fn pass(&mut self, client: Client, options: &Options) -> Client {
        if self.passage == Passage::SameConnection {
            self.turn().await;
            return client;
        }
        // Cut before, but where the takeover and the death of a node are to cut it.
        let (client, session) = match self.passage {
            Passage::Reconnect => (None, Some(client.into_session())),
            _ => (Some(client), None),
        };
        self.turn().await;
        let session = session.unwrap_or_default();
        let resumed = self.connect(options, session).await;
        drop(client);
        assert!(resumed.session_present(), "{} has its session", options.client_id());
        resumed
    }

    /// The end of the first half and, when it returns, the beginning of the second.
    pub async fn turn(&mut self) {
        if let Some(arrived) = self.arrived.take() {
            _ = arrived.send(());
        }
        let waiting = tokio::time::timeout(PASSAGE_WITHIN, self.go.wait_for(Option::is_some)).await;
        let after = waiting.expect("the passage takes place").expect("the conductor lives");
        self.address = after.expect("waited for").address;
    }

    /// Whether the node, and with it what was only on its way, was killed.
    pub fn is_killed(&self) -> bool {
        matches!(self.passage, Passage::NodeKilled | Passage::AllKilled)
    }
}

/// The next packet, whatever it is.
pub async fn packet(client: &mut Client) -> Packet {
    client.next_packet(SOON).await.unwrap_or_else(|gone| panic!("no packet: {gone:?}, {:?}", client.disconnect))
}

/// Sends PUBACK, PUBREC, PUBREL or PUBCOMP.
pub async fn send_ack(client: &mut Client, kind: fn(PublishAck) -> Packet, id: u16, code: ReasonCode) {
    let id = id.try_into().expect("not 0");
    client.send(&kind(PublishAck::new(id, code))).await.expect("the connection is open");
}

/// Options of a subscription; tests change one of them.
pub fn subscription(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send }
}

/// Seconds since then, as a Message Expiry Interval counts them.
pub fn seconds_since(then: Instant) -> u32 {
    u32::try_from(then.elapsed().as_secs()).expect("not that long")
}

/// Everything that a publisher can say about a message and that is passed on as it is.
pub fn full_properties() -> PublishProperties {
    PublishProperties {
        payload_format_indicator: Some(true),
        response_topic: Some("answers/here".into()),
        correlation_data: Some(b"\x00\xFF\x01".as_slice().into()),
        user_properties: vec![
            ("b".into(), "2".into()),
            ("a".into(), "1".into()),
            ("b".into(), "2".into()),
            ("".into(), "".into()),
        ],
        content_type: Some("text/plain".into()),
        ..PublishProperties::default()
    }
}

/// Acknowledges a message to the end.
pub async fn finish(client: &mut Client, message: &Publish) {
    let id = message.packet_id.expect("above QoS 0").get();
    if message.qos == QoS::AtLeastOnce {
        send_ack(client, Packet::Puback, id, ReasonCode::Success).await;
        return;
    }
    send_ack(client, Packet::Pubrec, id, ReasonCode::Success).await;
    assert!(matches!(packet(client).await, Packet::Pubrel(ack) if ack.packet_id.get() == id), "PUBREC frees no quota");
    send_ack(client, Packet::Pubcomp, id, ReasonCode::Success).await;
}

/// Acknowledgements and messages of QoS 0 are confirmed by nobody: what the client sent last has this long to be stored.
pub async fn settle() {
    sleep(Duration::from_millis(300)).await;
}
