//! A client with a persistent session that goes to another node whenever its connection is lost.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use troupemq::mqtt::QoS;
use troupemq::mqtt::packet::{PacketId, Publish};

use super::client::{Client, Gone, Options, Session};

/// A cluster that lost a node serves every session again within this, on a busy machine.
const CONNECT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);

pub struct Roamer {
    addresses: Vec<SocketAddr>,
    options: Options,
    next: usize,
    client: Option<Client>,
    session: Session,
    /// QoS 1 messages received, and the connection they came on last: what may come again with DUP.
    received: HashMap<(PacketId, Bytes), u64>,
    pub connects: u64,
    /// QoS 1 messages that came again, as the protocol allows after a lost connection.
    pub redelivered: u64,
    /// What came again as it must not: on the same connection, or without DUP [MQTT-3.3.1-1].
    pub wrongly_redelivered: Vec<String>,
}

impl Roamer {
    /// Connects first to the node `start`.
    pub async fn connect(addresses: Vec<SocketAddr>, start: usize, options: Options) -> Self {
        let mut roamer = Self {
            addresses,
            options,
            next: start,
            client: None,
            session: Session::default(),
            received: HashMap::new(),
            connects: 0,
            redelivered: 0,
            wrongly_redelivered: Vec::new(),
        };
        roamer.client().await;
        roamer
    }

    /// The connected client; connects where there is none. The broker must still have the session.
    pub async fn client(&mut self) -> &mut Client {
        let deadline = Instant::now() + CONNECT;
        while self.client.is_none() {
            let address = self.addresses[self.next % self.addresses.len()];
            match Client::try_resume(address, &self.options, std::mem::take(&mut self.session)).await {
                Ok(client) => {
                    self.connects += 1;
                    assert!(
                        self.connects == 1 || client.session_present(),
                        "the session of {} is gone",
                        self.options.client_id()
                    );
                    self.client = Some(client);
                }
                Err((error, session)) => {
                    self.session = session;
                    self.next += 1;
                    let id = self.options.client_id();
                    assert!(Instant::now() < deadline, "{id} finds no node within {CONNECT:?}: {error:?}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        self.client.as_mut().expect("connected just now")
    }

    /// The connection is gone; the next call goes to the next node.
    pub fn lost(&mut self) {
        if let Some(client) = self.client.take() {
            self.session = client.into_session();
        }
        self.next += 1;
    }

    /// The next Application Message, each once; `None` when none came. What a QoS 1 subscriber is sent again after a lost connection
    /// is recognised by its Packet Identifier and content.
    pub async fn message(&mut self, within: Duration) -> Option<Publish> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.client().await.try_message(left).await {
                Ok(message) => {
                    let Some(id) = message.packet_id.filter(|_| message.qos == QoS::AtLeastOnce) else {
                        return Some(message);
                    };
                    let Some(earlier) = self.received.insert((id, message.payload.clone()), self.connects) else {
                        return Some(message);
                    };
                    if !message.dup || earlier == self.connects {
                        let what = format!("first on connection {earlier}, again on {}: {message:?}", self.connects);
                        self.wrongly_redelivered.push(what);
                    }
                    self.redelivered += 1;
                }
                Err(Gone::Timeout) => return None,
                Err(Gone::Closed(_)) => self.lost(),
            }
            if self.client.as_ref().is_some_and(|client| client.disconnect.is_some()) {
                self.lost();
            }
        }
    }
}
