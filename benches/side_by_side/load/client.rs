//! One client: the way to an accepted connection, and a subscription.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use troupemq::mqtt::packet::{
    Connack, Connect, ConnectProperties, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, UserProperties, codec};

use super::inbox::Inbox;
use crate::Failure;

/// Longer than any scene, so that nobody has to ping; set, so that the server does keep its timer.
const KEEP_ALIVE_S: u16 = 600;

/// A connection the server has accepted.
pub struct Client {
    pub stream: TcpStream,
    pub inbox: Inbox,
    pub version: ProtocolVersion,
    /// PUBLISH packets above QoS 0 the server takes unacknowledged.
    pub receive_maximum: u16,
}

/// Connects with a clean session and waits for the CONNACK.
///
/// # Errors
/// Of the socket; or the server's refusal, in words.
pub async fn open(server: SocketAddr, source: Ipv4Addr, client_id: &str, version: ProtocolVersion) -> Result<Client, Failure> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((source, 0)))?;
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    // Closing resets: no port of ours is left in TIME_WAIT for the next round.
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    let mut client = Client { stream, inbox: Inbox::for_handshake(), version, receive_maximum: u16::MAX };
    client.send(&connect(client_id, version)).await?;
    match client.next_packet().await? {
        Packet::Connack(connack) => client.settle(&connack)?,
        other => return Err(format!("expected CONNACK, got {other:?}").into()),
    }
    Ok(client)
}

impl Client {
    /// Subscribes to one filter and waits for the SUBACK.
    pub async fn subscribe(&mut self, filter: &str, qos: QoS) -> Result<(), Failure> {
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::DoNotSend };
        let subscribe = Subscribe {
            packet_id: std::num::NonZeroU16::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::new(),
            filters: vec![SubscriptionRequest { filter: filter.into(), options }],
        };
        self.send(&Packet::Subscribe(Box::new(subscribe))).await?;
        match self.next_packet().await? {
            Packet::Suback(suback) if suback.reason_codes.iter().all(|code| (*code as u8) < 0x80) => Ok(()),
            other => Err(format!("expected a granting SUBACK, got {other:?}").into()),
        }
    }

    async fn send(&mut self, packet: &Packet) -> Result<(), Failure> {
        let mut out = BytesMut::new();
        codec::encode(packet, self.version, &mut out);
        self.stream.write_all(&out).await?;
        Ok(())
    }

    async fn next_packet(&mut self) -> Result<Packet, Failure> {
        loop {
            if let Some((frame, bytes)) = self.inbox.next()? {
                return Ok(codec::decode(frame, Bytes::copy_from_slice(bytes), Some(self.version))?);
            }
            self.inbox.fill(&mut self.stream).await?;
        }
    }

    fn settle(&mut self, connack: &Connack) -> Result<(), Failure> {
        if connack.reason_code != ReasonCode::Success {
            return Err(format!("refused: {}", connack.reason_code.name()).into());
        }
        self.receive_maximum = connack.properties.receive_maximum.unwrap_or(u16::MAX);
        Ok(())
    }
}

fn connect(client_id: &str, version: ProtocolVersion) -> Packet {
    Packet::Connect(Box::new(Connect {
        protocol: version,
        clean_start: true,
        keep_alive: KEEP_ALIVE_S,
        client_id: client_id.into(),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }))
}
