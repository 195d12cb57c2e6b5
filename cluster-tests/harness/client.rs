//! An MQTT client under full control: it does nothing by itself between two calls, and says exactly what it received.

mod options;
mod session;
mod tap;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use troupemq::mqtt::codec::{self, MAX_PACKET_SIZE};
use troupemq::mqtt::packet::{
    Connack, Disconnect, DisconnectProperties, PacketId, Publish, PublishAck, PublishProperties, RetainHandling, Subscribe,
    SubscriptionOptions, SubscriptionRequest, Unsubscribe,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::{QUIET, SOON, wait};
pub use options::Options;
pub use session::Session;
pub use tap::{Seen, Tap};

/// Why nothing was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gone {
    Timeout,
    Closed(String),
}

/// Why there is no connection.
#[derive(Debug, Clone)]
pub enum ConnectError {
    /// Nobody listens, or the socket was closed before a CONNACK came.
    Socket(String),
    /// The broker refused.
    Refused(Box<Connack>),
}

pub struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    pub version: ProtocolVersion,
    pub connack: Option<Connack>,
    pub session: Session,
    /// Acknowledge what is received as it is received.
    pub auto_ack: bool,
    /// How long to wait for a packet to be taken, an acknowledgement or a message.
    pub patience: Duration,
    byte_by_byte: bool,
    tap: Option<Tap>,
    /// SUBACKs, UNSUBACKs and what nobody waited for.
    answers: Vec<Packet>,
    /// The DISCONNECT that the broker sent.
    pub disconnect: Option<Disconnect>,
}

impl Client {
    /// A socket without CONNECT.
    pub async fn raw(address: SocketAddr, version: ProtocolVersion) -> Result<Self, Gone> {
        let connecting = TcpStream::connect(address);
        let stream = match tokio::time::timeout(SOON, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(Gone::Closed(error.to_string())),
            Err(_) => return Err(Gone::Timeout),
        };
        _ = stream.set_nodelay(true);
        Ok(Self {
            stream,
            buffer: BytesMut::new(),
            version,
            connack: None,
            session: Session::default(),
            auto_ack: true,
            patience: SOON,
            byte_by_byte: false,
            tap: None,
            answers: Vec::new(),
            disconnect: None,
        })
    }

    /// Connects or panics.
    #[track_caller]
    pub fn connect(address: SocketAddr, options: &Options) -> impl Future<Output = Self> {
        let caller = std::panic::Location::caller();
        async move {
            match Self::try_connect(address, options).await {
                Ok(client) => client,
                Err(error) => panic!("{} is not connected at {caller}: {error:?}", options.client_id()),
            }
        }
    }

    pub async fn try_connect(address: SocketAddr, options: &Options) -> Result<Self, ConnectError> {
        Self::try_resume(address, options, Session::default()).await.map_err(|(error, _)| error)
    }

    /// Connects with the client's side of a session: what is unacknowledged is sent again where the broker has the session still,
    /// forgotten where it does not. A failure gives the session back.
    pub async fn try_resume(address: SocketAddr, options: &Options, session: Session) -> Result<Self, (ConnectError, Session)> {
        let socket = |gone: Gone| ConnectError::Socket(format!("{gone:?}"));
        let mut client = match tokio::time::timeout(options.connack_within, Self::raw(address, options.version())).await {
            Ok(Ok(client)) => client,
            Ok(Err(gone)) => return Err((socket(gone), session)),
            Err(_) => return Err((socket(Gone::Timeout), session)),
        };
        client.auto_ack = options.auto_ack;
        client.byte_by_byte = options.byte_by_byte;
        client.tap.clone_from(&options.tap);
        if let Err(gone) = client.send(&options.packet()).await {
            return Err((socket(gone), session));
        }
        let connack = match client.next_packet(options.connack_within).await {
            Ok(Packet::Connack(connack)) => *connack,
            Ok(other) => panic!("the answer to CONNECT is {other:?}"),
            Err(gone) => return Err((socket(gone), session)),
        };
        if connack.reason_code != ReasonCode::Success {
            return Err((ConnectError::Refused(Box::new(connack)), session));
        }
        client.session = session;
        if connack.session_present {
            for packet in client.session.to_resend() {
                if let Err(gone) = client.send(&packet).await {
                    return Err((socket(gone), std::mem::take(&mut client.session)));
                }
            }
        } else {
            client.session.forget();
        }
        client.connack = Some(connack);
        Ok(client)
    }

    pub fn session_present(&self) -> bool {
        self.connack.as_ref().is_some_and(|connack| connack.session_present)
    }

    /// Drops the socket and keeps the client's side of the session.
    pub fn into_session(self) -> Session {
        self.session
    }

    pub async fn send(&mut self, packet: &Packet) -> Result<(), Gone> {
        let mut bytes = BytesMut::new();
        codec::encode(packet, self.version, &mut bytes);
        if let Some(tap) = &self.tap {
            tap.see(Seen::Sent(packet));
        }
        self.send_bytes(&bytes).await
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        for chunk in bytes.chunks(if self.byte_by_byte { 1 } else { usize::MAX }) {
            match tokio::time::timeout(self.patience, self.stream.write_all(chunk)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(Gone::Closed(error.to_string())),
                Err(_) => return Err(Gone::Timeout),
            }
            if self.byte_by_byte {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// The next packet as it comes, without any reaction to it.
    pub async fn next_packet(&mut self, within: Duration) -> Result<Packet, Gone> {
        let deadline = Instant::now() + within;
        loop {
            let frame = codec::frame(&self.buffer, MAX_PACKET_SIZE).expect("the broker sends well-formed lengths");
            if let Some(frame) = frame.filter(|frame| self.buffer.len() >= frame.total_len()) {
                let bytes: Bytes = self.buffer.split_to(frame.total_len()).freeze();
                let decoded = codec::decode(frame, bytes.clone(), Some(self.version));
                let packet = decoded.unwrap_or_else(|error| panic!("the broker sends a wrong packet: {error}: {bytes:02X?}"));
                if let Some(tap) = &self.tap {
                    tap.see(Seen::Received(&packet));
                }
                return Ok(packet);
            }
            match timeout_at(deadline, self.stream.read_buf(&mut self.buffer)).await {
                Ok(Ok(0)) => return Err(self.ended("end of stream")),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(self.ended(&error.to_string())),
                Err(_) => return Err(Gone::Timeout),
            }
        }
    }

    fn ended(&self, how: &str) -> Gone {
        if let Some(tap) = &self.tap {
            tap.see(Seen::Closed(how));
        }
        Gone::Closed(how.to_owned())
    }

    /// Some bytes as they come.
    pub async fn read_bytes(&mut self, within: Duration) -> Result<Vec<u8>, Gone> {
        self.read_some(4096, within).await
    }

    /// Some bytes as they come, at most so many.
    pub async fn read_some(&mut self, at_most: usize, within: Duration) -> Result<Vec<u8>, Gone> {
        let mut bytes = vec![0; at_most];
        match tokio::time::timeout(within, self.stream.read(&mut bytes)).await {
            Ok(Ok(0)) => Err(Gone::Closed("end of stream".to_owned())),
            Ok(Ok(count)) => {
                bytes.truncate(count);
                Ok(bytes)
            }
            Ok(Err(error)) => Err(Gone::Closed(error.to_string())),
            Err(_) => Err(Gone::Timeout),
        }
    }

    /// Receives one packet and reacts to it as a client does.
    pub async fn step(&mut self, within: Duration) -> Result<(), Gone> {
        let packet = self.next_packet(within).await?;
        if let Packet::Disconnect(disconnect) = packet {
            self.disconnect = Some(*disconnect);
            return Ok(());
        }
        if matches!(packet, Packet::Suback(_) | Packet::Unsuback(_)) {
            self.answers.push(packet);
            return Ok(());
        }
        let reply = self.session.handle(packet, self.auto_ack);
        match reply {
            Some(reply) => self.send(&reply).await,
            None => Ok(()),
        }
    }

    /// The next Application Message.
    pub async fn try_message(&mut self, within: Duration) -> Result<Publish, Gone> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(message) = self.session.inbox.pop_front() {
                return Ok(message);
            }
            self.step(deadline.saturating_duration_since(Instant::now())).await?;
        }
    }

    /// The next Application Message, or panics.
    #[track_caller]
    pub fn message(&mut self) -> impl Future<Output = Publish> {
        let caller = std::panic::Location::caller();
        async move {
            match self.try_message(self.patience).await {
                Ok(message) => message,
                Err(gone) => panic!("no message at {caller}: {gone:?}, broker said {:?}", self.disconnect),
            }
        }
    }

    /// The payload of the next Application Message as text.
    #[track_caller]
    pub fn text(&mut self) -> impl Future<Output = String> {
        let message = self.message();
        async move { String::from_utf8_lossy(&message.await.payload).into_owned() }
    }

    /// Waits a moment in which no message may come.
    #[track_caller]
    pub fn nothing(&mut self) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let outcome = self.try_message(QUIET).await;
            assert!(outcome == Err(Gone::Timeout), "something at {caller}: {outcome:?}");
        }
    }

    /// Waits until the broker closes; tells the Reason Code it sent before, if any.
    pub async fn closed(&mut self) -> Option<ReasonCode> {
        let deadline = Instant::now() + SOON;
        loop {
            match self.step(deadline.saturating_duration_since(Instant::now())).await {
                Ok(()) => {}
                Err(Gone::Closed(_)) => return self.disconnect.as_ref().map(|disconnect| disconnect.reason_code),
                Err(Gone::Timeout) => panic!("the broker does not close"),
            }
        }
    }

    /// Subscribes and returns the Reason Code of the SUBACK.
    pub async fn subscribe(&mut self, filter: &str, qos: QoS) -> ReasonCode {
        self.try_subscribe(filter, qos).await.unwrap_or_else(|gone| panic!("no SUBACK for {filter}: {gone:?}"))
    }

    pub async fn try_subscribe(&mut self, filter: &str, qos: QoS) -> Result<ReasonCode, Gone> {
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
        self.try_subscribe_as(filter, options, None).await
    }

    /// Subscribes with options and a Subscription Identifier; the Reason Code of the SUBACK.
    pub async fn subscribe_as(&mut self, filter: &str, options: SubscriptionOptions, identifier: Option<u32>) -> ReasonCode {
        let outcome = self.try_subscribe_as(filter, options, identifier).await;
        outcome.unwrap_or_else(|gone| panic!("no SUBACK for {filter}: {gone:?}"))
    }

    async fn try_subscribe_as(
        &mut self,
        filter: &str,
        options: SubscriptionOptions,
        subscription_identifier: Option<u32>,
    ) -> Result<ReasonCode, Gone> {
        let packet_id = self.session.next_id();
        let request = SubscriptionRequest { filter: filter.into(), options };
        let packet = Subscribe { packet_id, subscription_identifier, user_properties: Vec::new(), filters: vec![request] };
        self.send(&Packet::Subscribe(Box::new(packet))).await?;
        match self.answer(packet_id).await? {
            Packet::Suback(suback) => Ok(suback.reason_codes[0]),
            other => panic!("the answer to SUBSCRIBE is {other:?}"),
        }
    }

    pub async fn unsubscribe(&mut self, filter: &str) {
        let packet_id = self.session.next_id();
        let packet = Unsubscribe { packet_id, user_properties: Vec::new(), filters: vec![filter.into()] };
        self.send(&Packet::Unsubscribe(Box::new(packet))).await.expect("the connection is open");
        self.answer(packet_id).await.expect("UNSUBACK");
    }

    /// The SUBACK or UNSUBACK with that Packet Identifier.
    pub async fn answer(&mut self, packet_id: PacketId) -> Result<Packet, Gone> {
        let deadline = Instant::now() + SOON;
        let is_it = |packet: &Packet| match packet {
            Packet::Suback(suback) => suback.packet_id == packet_id,
            Packet::Unsuback(unsuback) => unsuback.packet_id == packet_id,
            _ => false,
        };
        loop {
            if let Some(index) = self.answers.iter().position(is_it) {
                return Ok(self.answers.remove(index));
            }
            self.step(deadline.saturating_duration_since(Instant::now())).await?;
        }
    }

    /// Publishes, and waits for the acknowledgement where there is one.
    pub async fn publish(&mut self, topic: &str, payload: &[u8], qos: QoS) -> ReasonCode {
        self.try_publish(publish(topic, payload, qos))
            .await
            .unwrap_or_else(|gone| panic!("{topic} is not acknowledged: {gone:?}"))
    }

    pub async fn publish_retained(&mut self, topic: &str, payload: &[u8], qos: QoS) -> ReasonCode {
        let packet = Publish { retain: true, ..publish(topic, payload, qos) };
        self.try_publish(packet).await.unwrap_or_else(|gone| panic!("{topic} is not acknowledged: {gone:?}"))
    }

    pub async fn try_publish(&mut self, packet: Publish) -> Result<ReasonCode, Gone> {
        let Some(id) = self.start_publish(packet).await? else {
            return Ok(ReasonCode::Success);
        };
        let deadline = Instant::now() + self.patience;
        loop {
            if let Some(reason_code) = self.session.acknowledged.remove(&id) {
                return Ok(reason_code);
            }
            self.step(deadline.saturating_duration_since(Instant::now())).await?;
        }
    }

    /// Waits until what this client publishes to the topic reaches the subscriber: a subscription is effective on its own node when it
    /// is acknowledged, on the others a moment later.
    pub async fn reaches(&mut self, subscriber: &mut Self, topic: &str) {
        wait::until_async("the subscription is effective on another node", SOON, async || {
            self.publish(topic, b"probe", QoS::AtLeastOnce).await;
            subscriber.try_message(Duration::from_millis(100)).await.ok()
        })
        .await;
        self.publish(topic, b"end of probes", QoS::AtLeastOnce).await;
        while &*subscriber.message().await.payload != b"end of probes" {}
    }

    /// Sends a PUBLISH without waiting for its acknowledgement; its Packet Identifier where it has one.
    pub async fn start_publish(&mut self, packet: Publish) -> Result<Option<PacketId>, Gone> {
        let packet = self.session.start(packet);
        let id = packet.packet_id;
        self.send(&Packet::Publish(Box::new(packet))).await?;
        Ok(id)
    }

    /// PUBACK for a message received with `auto_ack` off.
    pub async fn puback(&mut self, message: &Publish) {
        let id = message.packet_id.expect("a message with a Packet Identifier");
        let packet = Packet::Puback(PublishAck::new(id, ReasonCode::Success));
        self.send(&packet).await.expect("the connection is open");
    }

    /// A round trip, so that everything sent before has been handled by the connection.
    pub async fn ping(&mut self) {
        self.try_ping().await.expect("PINGRESP");
    }

    pub async fn try_ping(&mut self) -> Result<(), Gone> {
        self.session.pinged = false;
        self.send(&Packet::Pingreq).await?;
        let deadline = Instant::now() + SOON;
        while !self.session.pinged {
            self.step(deadline.saturating_duration_since(Instant::now())).await?;
        }
        Ok(())
    }

    /// DISCONNECT with a Reason Code, and waits for the broker to close.
    pub async fn disconnect_with(mut self, reason_code: ReasonCode) -> Session {
        let packet = Disconnect { reason_code, properties: DisconnectProperties::default() };
        _ = self.send(&Packet::Disconnect(Box::new(packet))).await;
        _ = self.stream.shutdown().await;
        let mut rest = [0; 1024];
        while matches!(tokio::time::timeout(SOON, self.stream.read(&mut rest)).await, Ok(Ok(n)) if n > 0) {}
        self.session
    }

    pub async fn disconnect(self) -> Session {
        self.disconnect_with(ReasonCode::Success).await
    }

    /// Ends the connection with a TCP reset.
    pub fn reset(self) -> Session {
        self.stream.set_zero_linger().expect("a socket");
        self.session
    }
}

/// A PUBLISH without properties.
pub fn publish(topic: &str, payload: &[u8], qos: QoS) -> Publish {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: topic.into(),
        packet_id: None,
        properties: PublishProperties::default(),
        payload: Bytes::copy_from_slice(payload),
    }
}

/// The value of a message's first user property of that name.
pub fn user_property<'a>(message: &'a Publish, name: &str) -> Option<&'a str> {
    message.properties.user_properties.iter().find(|(key, _)| &**key == name).map(|(_, value)| &**value)
}
