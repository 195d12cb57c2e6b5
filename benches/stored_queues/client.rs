//! A client of the load tool that blocks: one thread each.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{self, Runtime};
use tokio::time::timeout;
use troupemq::load::{self, Session, Target, TargetPlan, encode};
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{Packet, QoS, codec};

const PATIENCE: Duration = Duration::from_secs(60);
const SESSION_EXPIRY_S: u32 = 100_000;
const INBOX_BYTES: usize = 64 * 1024;

pub struct Client {
    runtime: Runtime,
    client: load::Client,
    out: Vec<u8>,
    in_flight: usize,
    /// PUBLISH packets that may be unacknowledged.
    pub window: usize,
    packet_id: u16,
}

impl Client {
    /// Connects; a persistent session is resumed or made.
    pub fn connect(server: SocketAddr, id: &str, persistent: bool) -> Self {
        let session = if persistent { Session::kept(SESSION_EXPIRY_S) } else { Session::CLEAN };
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut client = runtime.block_on(load::Client::open(&target(server), 0, id, &session)).expect("a connection");
        client.inbox.grow_to(INBOX_BYTES);
        let window = usize::from(client.receive_maximum);
        Self { runtime, client, out: Vec::new(), in_flight: 0, window, packet_id: 0 }
    }

    /// Whether somebody lets a client in.
    pub fn is_served(server: SocketAddr) -> bool {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(load::Client::open(&target(server), 0, "", &Session::CLEAN)).is_ok()
    }

    pub fn subscribe(&mut self, filter: &str) {
        self.runtime.block_on(self.client.subscribe(filter, QoS::AtLeastOnce)).expect("a subscription");
    }

    /// Sends a QoS 1 message as soon as the window has room.
    pub fn publish(&mut self, topic: &str, payload: &[u8]) {
        if self.in_flight >= self.window {
            self.flush();
            self.take_acknowledgement();
        }
        self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
        let id = NonZeroU16::new(self.packet_id).expect("not 0");
        let packet = load::publish(topic, QoS::AtLeastOnce, id, payload);
        self.out.extend_from_slice(&encode(&packet, self.client.version));
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
        for _ in 0..count {
            let publish = self.next_publish();
            visit(publish.topic.as_bytes(), &publish.payload);
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

    /// To its end: whatever was sent before is handled then.
    pub fn disconnect(self) {
        self.runtime.block_on(self.client.disconnect()).expect("sent");
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

    fn flush(&mut self) {
        self.runtime.block_on(self.client.stream.write_all(&self.out)).expect("sent");
        self.out.clear();
    }

    /// The next packet; what is to be said is said before it is waited for.
    fn next(&mut self) -> Packet {
        loop {
            if let Some((frame, bytes)) = self.client.inbox.take().expect("a packet") {
                let packet = Bytes::copy_from_slice(bytes);
                return codec::decode(frame, packet, Some(self.client.version)).expect("a packet");
            }
            self.flush();
            let load::Client { inbox, stream, .. } = &mut self.client;
            let filled = self.runtime.block_on(async { timeout(PATIENCE, inbox.fill(stream)).await });
            filled.expect("something in time").expect("an open connection");
        }
    }
}

fn target(server: SocketAddr) -> Target {
    let plan =
        TargetPlan { servers: vec![server.to_string()], keep_alive: 0, connect_timeout: PATIENCE, ..TargetPlan::default() };
    Target::find(&plan).expect("a server")
}
