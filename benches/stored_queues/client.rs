//! A client that blocks: one thread each, packets read in place.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use troupemq::mqtt::packet::{
    Connect, ConnectProperties, Disconnect, Publish, PublishProperties, RetainHandling, Subscribe, SubscriptionOptions,
    SubscriptionRequest,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, UserProperties, codec};

const VERSION: ProtocolVersion = ProtocolVersion::V5;
const PATIENCE: Duration = Duration::from_secs(60);
const SESSION_EXPIRY_S: u32 = 100_000;

pub struct Client {
    stream: TcpStream,
    inbox: BytesMut,
    out: Vec<u8>,
    in_flight: usize,
    /// PUBLISH packets that may be unacknowledged.
    pub window: usize,
    packet_id: u16,
}

impl Client {
    /// Connects; a persistent session is resumed or made.
    pub fn connect(server: SocketAddr, id: &str, persistent: bool) -> Self {
        let stream = TcpStream::connect(server).expect("a connection");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self { stream, inbox: BytesMut::new(), out: Vec::new(), in_flight: 0, window: 1, packet_id: 0 };
        client.send(&Packet::Connect(Box::new(Connect {
            protocol: VERSION,
            clean_start: !persistent,
            keep_alive: 0,
            client_id: id.into(),
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: persistent.then_some(SESSION_EXPIRY_S),
                ..ConnectProperties::default()
            },
        })));
        match client.next() {
            Packet::Connack(connack) if connack.reason_code == ReasonCode::Success => {
                client.window = connack.properties.receive_maximum.map_or(65_535, usize::from);
            }
            other => panic!("{other:?} instead of CONNACK"),
        }
        client
    }

    /// Whether somebody lets a client in.
    pub fn is_served(server: SocketAddr) -> bool {
        let Ok(mut stream) = TcpStream::connect(server) else { return false };
        // MQTT 3.1.1, clean session, no client id.
        let connect = [0x10, 12, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 0, 0, 0];
        let mut connack = [0; 4];
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&connect).is_ok() && stream.read_exact(&mut connack).is_ok() && connack[3] == 0
    }

    pub fn subscribe(&mut self, filter: &str) {
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::DoNotSend,
        };
        self.send(&Packet::Subscribe(Box::new(Subscribe {
            packet_id: std::num::NonZeroU16::MIN,
            subscription_identifier: None,
            user_properties: UserProperties::new(),
            filters: vec![SubscriptionRequest { filter: filter.into(), options }],
        })));
        assert!(matches!(self.next(), Packet::Suback(_)));
    }

    /// Sends a QoS 1 message as soon as the window has room.
    pub fn publish(&mut self, topic: &str, payload: &[u8]) {
        if self.in_flight >= self.window {
            self.flush();
            self.take_acknowledgement();
        }
        self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
        let packet = Packet::Publish(Box::new(Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: topic.into(),
            packet_id: std::num::NonZeroU16::new(self.packet_id),
            properties: PublishProperties::default(),
            payload: Bytes::copy_from_slice(payload),
        }));
        let mut bytes = BytesMut::new();
        codec::encode(&packet, VERSION, &mut bytes);
        self.out.extend_from_slice(&bytes);
        self.in_flight += 1;
    }

    pub fn await_acknowledgements(&mut self) {
        self.flush();
        while self.in_flight > 0 {
            self.take_acknowledgement();
        }
    }

    /// Receives and acknowledges so many messages; `visit` gets topic and payload.
    pub fn receive(&mut self, count: usize, mut visit: impl FnMut(&[u8], &[u8])) {
        let mut received = 0;
        while received < count {
            let publish = self.next_publish();
            visit(publish.topic.as_bytes(), &publish.payload);
            received += 1;
        }
        self.flush();
    }

    /// Receives one message, and goes without a word, nothing acknowledged.
    pub fn glance(mut self, visit: impl FnOnce(&[u8], &[u8])) {
        let publish = self.next_publish();
        visit(publish.topic.as_bytes(), &publish.payload);
        self.out.clear();
    }

    /// Receives and acknowledges until a message says `end`.
    pub fn receive_all(&mut self, mut visit: impl FnMut(&[u8])) {
        loop {
            let publish = self.next_publish();
            if &publish.payload[..] == b"end" {
                return self.flush();
            }
            visit(&publish.payload);
        }
    }

    pub fn disconnect(mut self) {
        self.send(&Packet::Disconnect(Box::new(Disconnect { reason_code: ReasonCode::Success, properties: Default::default() })));
        // To its end: whatever was sent before is handled then.
        while self.stream.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
    }

    fn next_publish(&mut self) -> Publish {
        match self.next() {
            Packet::Publish(publish) => {
                let id = publish.packet_id.expect("QoS 1").get().to_be_bytes();
                self.out.extend_from_slice(&[0x40, 2, id[0], id[1]]);
                *publish
            }
            other => panic!("{other:?} instead of PUBLISH"),
        }
    }

    fn take_acknowledgement(&mut self) {
        match self.next() {
            Packet::Puback(ack) => assert!((ack.reason_code as u8) < 0x80, "{:?}", ack.reason_code),
            other => panic!("{other:?} instead of PUBACK"),
        }
        self.in_flight -= 1;
    }

    fn send(&mut self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        codec::encode(packet, VERSION, &mut bytes);
        self.out.extend_from_slice(&bytes);
        self.flush();
    }

    fn flush(&mut self) {
        self.stream.write_all(&self.out).expect("sent");
        self.out.clear();
    }

    /// The next packet; what is to be said is said before it is waited for.
    fn next(&mut self) -> Packet {
        loop {
            if let Some(frame) = codec::frame(&self.inbox, codec::MAX_PACKET_SIZE).expect("a packet")
                && frame.total_len() <= self.inbox.len()
            {
                let packet = self.inbox.split_to(frame.total_len()).freeze();
                return codec::decode(frame, packet, Some(VERSION)).expect("a packet");
            }
            self.flush();
            let mut buffer = [0; 65_536];
            let count = self.stream.read(&mut buffer).expect("something in time");
            assert!(count > 0, "the node closed the connection");
            self.inbox.extend_from_slice(&buffer[..count]);
        }
    }
}
