//! One client: the way to an accepted connection, and what it says before the load begins and after it ends.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::Failure;
use super::inbox::Inbox;
use super::stream::{Socket, Stream};
use super::target::{Server, Target};
use super::websocket::WebSocket;
use crate::mqtt::packet::{
    Connack, Connect, ConnectProperties, Disconnect, DisconnectProperties, Publish, PublishProperties, RetainHandling, Subscribe,
    SubscriptionOptions, SubscriptionRequest,
};
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, UserProperties, codec};

/// A server that does not answer SUBSCRIBE for so long is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const PORTS: &str = "; one local address has some 28,000 ports for each server: give more with --source";
/// For a server to close the connection after a DISCONNECT.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// What a client asks for in its CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub clean_start: bool,
    /// Seconds that the session outlives the connection; MQTT 3 only knows 0 (ends with it) and more.
    pub expiry_s: u32,
    pub receive_maximum: Option<u16>,
}

impl Session {
    /// Begins and ends with the connection.
    pub const CLEAN: Self = Self { clean_start: true, expiry_s: 0, receive_maximum: None };

    pub fn kept(expiry_s: u32) -> Self {
        Self { clean_start: false, expiry_s, receive_maximum: None }
    }
}

/// A connection the server has accepted.
pub struct Client {
    pub stream: Stream,
    pub inbox: Inbox,
    pub version: ProtocolVersion,
    /// Whether the server had a session for it.
    pub session_present: bool,
    /// PUBLISH packets above QoS 0 the server takes unacknowledged.
    pub receive_maximum: u16,
}

impl Client {
    /// Connects the client of this number and waits for the CONNACK, as long as the target says.
    ///
    /// # Errors
    /// `Unreachable`, `Refused`, `Timeout`; or of the connection.
    pub async fn open(target: &Target, number: usize, id: &str, session: &Session) -> Result<Self, Failure> {
        Self::open_within(target.connect_timeout, target, number, id, session).await
    }

    pub(super) async fn open_within(
        within: Duration,
        target: &Target,
        number: usize,
        id: &str,
        session: &Session,
    ) -> Result<Self, Failure> {
        let opened = timeout(within, Self::opened(target, number, id, session)).await;
        opened.map_err(|_| Failure::Timeout { what: "CONNACK", ms: within.as_millis() })?
    }

    async fn opened(target: &Target, number: usize, id: &str, session: &Session) -> Result<Self, Failure> {
        let server = target.server(number).ok_or_else(|| Failure::Plan("no server is named".into()))?;
        let address = server.address;
        let unreachable = |error: std::io::Error| {
            let hint = if error.kind() == ErrorKind::AddrNotAvailable { PORTS } else { "" };
            Failure::Unreachable { address: address.to_string(), reason: format!("{error}{hint}") }
        };
        let socket =
            if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(Failure::local("open a socket"))?;
        if let Some(source) = target.source(number) {
            socket.bind(SocketAddr::from((source, 0))).map_err(Failure::local("take a local address"))?;
        }
        let stream = socket.connect(address).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        // Closing resets: no port of ours is left in TIME_WAIT for the next round.
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).map_err(unreachable)?;
        let stream = dress(target, server, stream).await?;
        let mut client = Self {
            stream,
            inbox: Inbox::for_handshake(),
            version: target.version,
            session_present: false,
            receive_maximum: u16::MAX,
        };
        client.send(&connect(target, id, session)).await?;
        match client.next_packet().await? {
            Packet::Connack(connack) => client.settle(&connack, address)?,
            other => return Err(unexpected("CONNACK", &other)),
        }
        Ok(client)
    }

    /// Subscribes to one filter, without its retained messages, and waits for the SUBACK.
    pub async fn subscribe(&mut self, filter: &str, qos: QoS) -> Result<(), Failure> {
        let answered = timeout(ANSWER_WITHIN, async {
            self.ask_to_subscribe(filter, qos, RetainHandling::DoNotSend).await?;
            self.next_packet().await
        });
        match answered.await.map_err(|_| no_suback())?? {
            Packet::Suback(suback) => match suback.reason_codes.iter().find(|code| (**code as u8) >= 0x80) {
                None => Ok(()),
                Some(code) => Err(Failure::Protocol(format!("the subscription to {filter} was refused: {}", code.name()))),
            },
            other => Err(unexpected("SUBACK", &other)),
        }
    }

    /// Sends a SUBSCRIBE, and leaves the SUBACK to whoever reads.
    pub(super) async fn ask_to_subscribe(
        &mut self,
        filter: &str,
        qos: QoS,
        retain_handling: RetainHandling,
    ) -> Result<(), Failure> {
        let options = SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling };
        let subscribe = Subscribe {
            packet_id: NonZeroU16::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::new(),
            filters: vec![SubscriptionRequest { filter: filter.into(), options }],
        };
        self.send(&Packet::Subscribe(Box::new(subscribe))).await
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

    /// Says good-bye and waits until the server has closed: what was sent before is taken in then.
    pub async fn disconnect(self) -> Result<(), Failure> {
        self.part(None).await
    }

    /// Says good-bye; `expiry_s` says anew how long the session is kept (MQTT 5).
    pub(super) async fn part(mut self, expiry_s: Option<u32>) -> Result<(), Failure> {
        let properties =
            DisconnectProperties { session_expiry_interval: expiry_s.filter(|_| self.version.is_v5()), ..Default::default() };
        let disconnect = Packet::Disconnect(Box::new(Disconnect { reason_code: ReasonCode::Success, properties }));
        let parted = timeout(CLOSE_WITHIN, async {
            self.send(&disconnect).await?;
            while self.next_packet().await.is_ok() {}
            Ok(())
        });
        // A server that leaves it to us to close is none the worse for it.
        parted.await.unwrap_or(Ok(()))
    }

    /// Whether TLS went on with an earlier session: no full handshake.
    pub(super) fn is_resumed(&self) -> bool {
        self.stream.is_resumed()
    }

    pub async fn send(&mut self, packet: &Packet) -> Result<(), Failure> {
        self.stream.write_all(&encode(packet, self.version)).await?;
        Ok(())
    }

    pub async fn next_packet(&mut self) -> Result<Packet, Failure> {
        loop {
            if let Some((frame, bytes)) = self.inbox.take()? {
                let packet = codec::decode(frame, Bytes::copy_from_slice(bytes), Some(self.version))?;
                if let Packet::Disconnect(disconnect) = packet {
                    return Err(Failure::Closed(Some(disconnect.reason_code.name().to_owned())));
                }
                return Ok(packet);
            }
            self.inbox.fill(&mut self.stream).await?;
        }
    }

    fn settle(&mut self, connack: &Connack, address: SocketAddr) -> Result<(), Failure> {
        if connack.reason_code != ReasonCode::Success {
            let reason = connack.properties.reason_string.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
            return Err(Failure::Refused { address: address.to_string(), code: connack.reason_code, reason });
        }
        self.session_present = connack.session_present;
        self.receive_maximum = connack.properties.receive_maximum.unwrap_or(u16::MAX);
        Ok(())
    }
}

/// TLS and WebSocket over the connection, where they are wanted.
async fn dress(target: &Target, server: &Server, stream: TcpStream) -> Result<Stream, Failure> {
    let socket = match &target.tls {
        None => Socket::Plain(stream),
        Some(tls) => {
            let failed = |error: std::io::Error| Failure::Unreachable {
                address: server.address.to_string(),
                reason: format!("TLS handshake: {error}"),
            };
            Socket::Tls(Box::new(tls.connector.connect(tls.server_name(&server.host)?, stream).await.map_err(failed)?))
        }
    };
    Ok(match &target.websocket {
        None => Stream::Direct(socket),
        Some(path) => {
            let host = format!("{}:{}", server.host, server.address.port());
            Stream::WebSocket(Box::new(WebSocket::upgrade(socket, &host, path).await?))
        }
    })
}

fn connect(target: &Target, id: &str, session: &Session) -> Packet {
    let kept = session.expiry_s > 0;
    Packet::Connect(Box::new(Connect {
        protocol: target.version,
        clean_start: if target.version.is_v5() { session.clean_start } else { !kept },
        keep_alive: target.keep_alive,
        client_id: id.into(),
        will: None,
        username: target.username.as_deref().map(Into::into),
        password: target.password.as_ref().map(|password| Bytes::copy_from_slice(password.as_bytes())),
        properties: ConnectProperties {
            session_expiry_interval: kept.then_some(session.expiry_s),
            receive_maximum: session.receive_maximum,
            ..ConnectProperties::default()
        },
    }))
}

/// A PUBLISH as packets go.
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

pub fn encode(packet: &Packet, version: ProtocolVersion) -> BytesMut {
    let mut out = BytesMut::new();
    codec::encode(packet, version, &mut out);
    out
}

fn no_suback() -> Failure {
    Failure::Timeout { what: "SUBACK", ms: ANSWER_WITHIN.as_millis() }
}

fn unexpected(expected: &str, packet: &Packet) -> Failure {
    let text = format!("{packet:?}");
    Failure::Protocol(format!("expected {expected}, got {}", text.chars().take(200).collect::<String>()))
}
