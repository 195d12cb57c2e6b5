//! A history from the clients' side: connections, what each published, what each was delivered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use troupemq::mqtt::packet::{Connect, PacketId, Publish};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use crate::faults::history::{Record, What};

/// All clients of a history by id.
pub struct Lives {
    pub clients: BTreeMap<Arc<str>, Life>,
    /// When something was done to nodes or links.
    pub faults_at_ms: Vec<u64>,
}

/// One client.
#[derive(Default)]
pub struct Life {
    /// In the order of their CONNECTs.
    pub connections: Vec<Connection>,
    pub published: Vec<Published>,
    pub delivered: Vec<Delivered>,
    pub subscribed: Vec<Subscribed>,
}

pub struct Connection {
    pub connect: Connect,
    pub connect_at_ms: u64,
    pub outcome: Outcome,
    pub outcome_at_ms: u64,
    /// When the client saw it end, or ended it.
    pub ended_at_ms: Option<u64>,
    /// The client sent DISCONNECT with this code.
    pub said_goodbye: Option<ReasonCode>,
    /// What went over it, in order.
    pub records: Vec<(u64, Passed)>,
}

pub enum Passed {
    Sent(Packet),
    Received(Packet),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// CONNACK with success, and its Session Present.
    Accepted(bool),
    Refused,
    /// The CONNECT was sent, and no CONNACK came.
    Unknown,
}

/// A message of a client, however often it was sent.
#[derive(Debug, Clone)]
pub struct Published {
    pub message: Publish,
    pub first_sent_ms: u64,
    pub sent: usize,
    /// PUBACK or PUBREC with success.
    pub acknowledged: bool,
}

/// A message as the client's application sees it: with QoS 2, what came again under an identifier that is not released is none.
#[derive(Debug, Clone)]
pub struct Delivered {
    pub at_ms: u64,
    pub message: Publish,
    /// The same message under the same Packet Identifier with DUP: sent again, not another one.
    pub again: bool,
}

#[derive(Debug, Clone)]
pub struct Subscribed {
    pub filter: String,
    pub granted: QoS,
    pub from_ms: u64,
    /// Its session ended, or the client unsubscribed.
    pub until_ms: Option<u64>,
    /// The session outlives its connections.
    pub lasts: bool,
}

impl Subscribed {
    /// Name of the group and its filter.
    pub fn shared(&self) -> Option<(&str, &str)> {
        self.filter.strip_prefix("$share/")?.split_once('/')
    }

    pub fn matches(&self, topic: &str) -> bool {
        let filter = self.shared().map_or(self.filter.as_str(), |(_, filter)| filter);
        match filter.strip_suffix("/#") {
            Some(above) => topic.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            None => filter == topic || filter == "#" && !topic.starts_with('$'),
        }
    }

    /// It was in force when the message was sent, and is still.
    pub fn covers(&self, published: &Published) -> bool {
        self.from_ms < published.first_sent_ms && self.until_ms.is_none() && self.matches(&published.message.topic)
    }
}

impl Connection {
    pub fn accepted(&self) -> bool {
        matches!(self.outcome, Outcome::Accepted(_))
    }

    /// Its session outlives it.
    pub fn lasts(&self) -> bool {
        match self.connect.protocol.is_v5() {
            true => self.connect.properties.session_expiry_interval.is_some_and(|seconds| seconds > 0),
            false => !self.connect.clean_start,
        }
    }
}

impl Lives {
    pub fn of(records: &[Record]) -> Self {
        let mut lives = Self { clients: BTreeMap::new(), faults_at_ms: Vec::new() };
        let mut builders: BTreeMap<Arc<str>, Builder> = BTreeMap::new();
        for record in records {
            if let What::Fault(_) = record.what {
                lives.faults_at_ms.push(record.at_ms);
            } else {
                builders.entry(Arc::clone(&record.client)).or_default().take(record);
            }
        }
        lives.clients = builders.into_iter().map(|(id, builder)| (id, builder.life)).collect();
        lives
    }

    /// Whether something was done to nodes or links within so long of a moment.
    pub fn fault_near(&self, at_ms: u64, within_ms: u64) -> bool {
        self.faults_at_ms.iter().any(|fault| fault.abs_diff(at_ms) <= within_ms)
    }
}

#[derive(Default)]
struct Builder {
    life: Life,
    /// Number of a connection in the history -> its index here.
    index: HashMap<u32, usize>,
    /// Exchanges of the client as a publisher that are open: index of what it published.
    open: HashMap<PacketId, usize>,
    by_payload: HashMap<Vec<u8>, usize>,
    unreleased: HashSet<PacketId>,
    /// What came last under an identifier.
    last_under: HashMap<PacketId, Vec<u8>>,
    subscribing: HashMap<PacketId, Vec<(String, QoS)>>,
    /// The connection accepted last. What is read from an older one is not for the application any more.
    current: usize,
}

impl Builder {
    fn take(&mut self, record: &Record) {
        let at_ms = record.at_ms;
        if let What::Sent(Packet::Connect(connect)) = &record.what {
            self.index.insert(record.connection, self.life.connections.len());
            self.life.connections.push(Connection {
                connect: (**connect).clone(),
                connect_at_ms: at_ms,
                outcome: Outcome::Unknown,
                outcome_at_ms: at_ms,
                ended_at_ms: None,
                said_goodbye: None,
                records: Vec::new(),
            });
            return;
        }
        // A socket that ended before its CONNECT was sent.
        let Some(&index) = self.index.get(&record.connection) else { return };
        match &record.what {
            What::Sent(packet) => {
                self.sent(index, at_ms, packet);
                self.life.connections[index].records.push((at_ms, Passed::Sent(packet.clone())));
            }
            What::Received(packet) => {
                self.received(index, at_ms, packet);
                self.life.connections[index].records.push((at_ms, Passed::Received(packet.clone())));
            }
            What::Dropped | What::Closed(_) => _ = self.life.connections[index].ended_at_ms.get_or_insert(at_ms),
            What::Fault(_) => {}
        }
    }

    fn sent(&mut self, index: usize, at_ms: u64, packet: &Packet) {
        match packet {
            Packet::Publish(publish) => self.published(at_ms, publish),
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.filters.iter().map(|one| (one.filter.to_string(), one.options.qos)).collect();
                self.subscribing.insert(subscribe.packet_id, filters);
            }
            Packet::Disconnect(disconnect) => {
                let connection = &mut self.life.connections[index];
                connection.said_goodbye = Some(disconnect.reason_code);
                connection.ended_at_ms.get_or_insert(at_ms);
            }
            _ => {}
        }
    }

    fn published(&mut self, at_ms: u64, publish: &Publish) {
        let known = self.by_payload.get(&publish.payload[..]).copied();
        let index = known.unwrap_or_else(|| {
            let index = self.life.published.len();
            self.by_payload.insert(publish.payload.to_vec(), index);
            let message = publish.clone();
            self.life.published.push(Published { message, first_sent_ms: at_ms, sent: 0, acknowledged: false });
            index
        });
        self.life.published[index].sent += 1;
        if let Some(id) = publish.packet_id {
            self.open.insert(id, index);
        }
    }

    fn received(&mut self, index: usize, at_ms: u64, packet: &Packet) {
        match packet {
            Packet::Connack(connack) => {
                let connection = &mut self.life.connections[index];
                connection.outcome_at_ms = at_ms;
                match connack.reason_code {
                    ReasonCode::Success => {}
                    _ => {
                        connection.outcome = Outcome::Refused;
                        return;
                    }
                }
                connection.outcome = Outcome::Accepted(connack.session_present);
                self.current = index;
                if !connack.session_present {
                    self.unreleased.clear();
                    self.open.clear();
                    let ended = self.life.subscribed.iter_mut().filter(|one| one.until_ms.is_none());
                    ended.for_each(|one| one.until_ms = Some(at_ms));
                }
            }
            Packet::Puback(ack) | Packet::Pubrec(ack) => {
                // A refused message is not acknowledged in the sense of this.
                if let Some(published) = self.open.get(&ack.packet_id).filter(|_| !ack.reason_code.is_error()) {
                    self.life.published[*published].acknowledged = true;
                }
            }
            Packet::Suback(suback) => {
                let lasts = self.life.connections[index].lasts();
                let asked = self.subscribing.remove(&suback.packet_id).unwrap_or_default();
                for ((filter, asked), code) in asked.into_iter().zip(&suback.reason_codes) {
                    if code.is_error() {
                        continue;
                    }
                    let granted = match code {
                        ReasonCode::Success => QoS::AtMostOnce,
                        ReasonCode::GrantedQoS1 => QoS::AtLeastOnce,
                        _ => asked,
                    };
                    self.life.subscribed.push(Subscribed { filter, granted, from_ms: at_ms, until_ms: None, lasts });
                }
            }
            Packet::Publish(_) | Packet::Pubrel(_) if index < self.current => {}
            Packet::Publish(publish) => {
                let first = publish.qos != QoS::ExactlyOnce || publish.packet_id.is_none_or(|id| self.unreleased.insert(id));
                if first {
                    let known = publish.packet_id.and_then(|id| self.last_under.insert(id, publish.payload.to_vec()));
                    let again = publish.dup && known.is_some_and(|payload| payload == publish.payload);
                    self.life.delivered.push(Delivered { at_ms, message: (**publish).clone(), again });
                }
            }
            Packet::Pubrel(ack) => _ = self.unreleased.remove(&ack.packet_id),
            _ => {}
        }
    }
}
