//! One client: connects, subscribes, publishes, receives.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use troupemq::mqtt::packet::{
    Connect, ConnectProperties, Publish, PublishProperties, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, UserProperties, codec};

use crate::Failure;
use crate::inbox::Inbox;

pub const VERSION: ProtocolVersion = ProtocolVersion::V5;
/// A node that does not answer a CONNECT for so long is given up.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Longer than any scene.
const KEEP_ALIVE_S: u16 = 600;

pub struct Client {
    pub stream: TcpStream,
    pub inbox: Inbox,
    /// Whether the node had a session for it.
    pub session_present: bool,
}

impl Client {
    /// Connects; `session_s`: how long the session outlives the connection.
    pub async fn connect(server: SocketAddr, id: &str, clean_start: bool, session_s: u32) -> Result<Self, Failure> {
        timeout(CONNECT_WITHIN, Self::connected(server, id, clean_start, session_s)).await.map_err(|_| "no CONNACK in time")?
    }

    async fn connected(server: SocketAddr, id: &str, clean_start: bool, session_s: u32) -> Result<Self, Failure> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        // Closing resets: no port of ours is left in TIME_WAIT.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        let mut client = Self { stream, inbox: Inbox::for_handshake(), session_present: false };
        client
            .send(&Packet::Connect(Box::new(Connect {
                protocol: VERSION,
                clean_start,
                keep_alive: KEEP_ALIVE_S,
                client_id: id.into(),
                will: None,
                username: None,
                password: None,
                properties: ConnectProperties {
                    session_expiry_interval: Some(session_s),
                    receive_maximum: Some(1000),
                    ..ConnectProperties::default()
                },
            })))
            .await?;
        match client.next_packet().await? {
            Packet::Connack(connack) if connack.reason_code == ReasonCode::Success => {
                client.session_present = connack.session_present;
                Ok(client)
            }
            other => Err(format!("not let in: {other:?}").into()),
        }
    }

    pub async fn subscribe(&mut self, filter: &str, qos: QoS) -> Result<(), Failure> {
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::DoNotSend };
        let subscribe = Subscribe {
            packet_id: NonZeroU16::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::new(),
            filters: vec![SubscriptionRequest { filter: filter.into(), options }],
        };
        self.send(&Packet::Subscribe(Box::new(subscribe))).await?;
        match timeout(ANSWER_WITHIN, self.next_packet()).await.map_err(|_| "no SUBACK in time")?? {
            Packet::Suback(suback) if suback.reason_codes.iter().all(|code| (*code as u8) < 0x80) => Ok(()),
            other => Err(format!("expected a granting SUBACK, got {other:?}").into()),
        }
    }

    /// Sends a PUBLISH of QoS 1; does not wait.
    pub async fn publish(&mut self, topic: &str, packet_id: NonZeroU16, payload: &[u8]) -> Result<(), Failure> {
        self.send(&publish(topic, QoS::AtLeastOnce, packet_id, payload)).await
    }

    /// The next message, acknowledged where it asks for it (QoS 1); other packets are passed over.
    pub async fn message(&mut self) -> Result<Bytes, Failure> {
        loop {
            if let Packet::Publish(publish) = self.next_packet().await? {
                if let Some(id) = publish.packet_id {
                    let [high, low] = id.get().to_be_bytes();
                    self.stream.write_all(&[0x40, 2, high, low]).await?;
                }
                return Ok(publish.payload);
            }
        }
    }

    pub async fn disconnect(mut self) -> Result<(), Failure> {
        // DISCONNECT, Normal disconnection.
        self.stream.write_all(&[0xE0, 0]).await?;
        // Taken in once the node has closed.
        while self.next_packet().await.is_ok() {}
        Ok(())
    }

    pub async fn send(&mut self, packet: &Packet) -> Result<(), Failure> {
        self.stream.write_all(&encode(packet)).await?;
        Ok(())
    }

    pub async fn next_packet(&mut self) -> Result<Packet, Failure> {
        loop {
            if let Some((frame, bytes)) = self.inbox.next()? {
                return Ok(codec::decode(frame, Bytes::copy_from_slice(bytes), Some(VERSION))?);
            }
            self.inbox.fill(&mut self.stream).await?;
        }
    }
}

pub fn publish(topic: &str, qos: QoS, packet_id: NonZeroU16, payload: &[u8]) -> Packet {
    Packet::Publish(Box::new(Publish {
        dup: false,
        qos,
        retain: false,
        topic: topic.into(),
        packet_id: (qos != QoS::AtMostOnce).then_some(packet_id),
        properties: PublishProperties::default(),
        payload: Bytes::copy_from_slice(payload),
    }))
}

pub fn encode(packet: &Packet) -> BytesMut {
    let mut out = BytesMut::new();
    codec::encode(packet, VERSION, &mut out);
    out
}
