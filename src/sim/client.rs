//! A simulated MQTT client: speaks real packets, keeps its side of the session, and tells the oracle what it was told.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use rand::Rng;
use rand::rngs::StdRng;

use crate::mqtt::packet::{
    Connect, ConnectProperties, Disconnect, Packet, Publish, PublishAck, PublishProperties, RetainHandling, Subscribe,
    SubscriptionOptions, SubscriptionRequest, Will, WillProperties,
};
use crate::mqtt::{ProtocolVersion, QoS, ReasonCode, codec};

use super::oracle::{Ending, Oracle};
use super::pipe::Pipe;

const VERSION: ProtocolVersion = ProtocolVersion::V5;
/// Without an answer for so long a client tries another node, ms.
const PATIENCE_MS: u64 = 20_000;
/// Out of so many messages a publisher sends one and is gone before it is answered.
const HASTY_ONE_IN: u32 = 25;
/// Session Expiry Interval of persistent sessions, seconds.
const EXPIRY_S: u32 = 7_200;

/// What a client is for.
#[derive(Debug, Clone)]
pub struct Profile {
    pub id: String,
    pub persistent: bool,
    pub filters: Vec<(String, QoS)>,
    /// Topics it publishes to, and messages per simulated second; `retain` for all.
    pub topics: Vec<String>,
    pub rate: f64,
    pub window: usize,
    pub retain: bool,
    pub will: bool,
    /// Leaves a while after its SUBACK and comes again elsewhere.
    pub visitor: bool,
    /// How long it takes to acknowledge at most, ms.
    pub ack_delay_ms: u64,
}

/// A message the client has to see through.
struct Outgoing {
    message: usize,
    packet_id: u16,
    sent: bool,
    /// PUBREC came: PUBREL is to be sent.
    received: bool,
    sent_ms: u64,
}

pub struct SimClient {
    pub index: usize,
    pub profile: Profile,
    pub connection: Option<Connection>,
    /// Connections whose end the client does not care about: taken over, but still open.
    pub left_open: Vec<(usize, Rc<RefCell<Pipe>>)>,
    pub next_connect_ms: u64,
    outgoing: VecDeque<Outgoing>,
    next_packet_id: u16,
    next_message_ms: u64,
    /// QoS 2 messages received and not released.
    incoming: BTreeSet<u16>,
    /// The broker has confirmed the subscriptions of the session.
    pub subscribed: bool,
    /// Makes no new messages.
    pub quiet: bool,
    pub had_session: bool,
}

pub struct Connection {
    pub node: usize,
    pipe: Rc<RefCell<Pipe>>,
    read: BytesMut,
    pub online: bool,
    pub opened_ms: u64,
    heard_ms: u64,
    acks: VecDeque<(u64, Packet)>,
    subscribe_sent: bool,
    pub suback_ms: Option<u64>,
    will: Option<usize>,
    pub leave_ms: Option<u64>,
    /// Is gone then without a word, and there again at once.
    pub hasty_ms: Option<u64>,
}

impl Connection {
    fn send(&self, packet: &Packet) {
        let mut bytes = BytesMut::new();
        codec::encode(packet, VERSION, &mut bytes);
        self.pipe.borrow_mut().send(&bytes);
    }
}

impl SimClient {
    pub fn new(index: usize, profile: Profile) -> Self {
        Self {
            index,
            profile,
            connection: None,
            left_open: Vec::new(),
            next_connect_ms: u64::MAX,
            outgoing: VecDeque::new(),
            next_packet_id: 0,
            next_message_ms: 0,
            incoming: BTreeSet::new(),
            subscribed: false,
            quiet: false,
            had_session: false,
        }
    }

    pub fn is_online(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.online)
    }

    pub fn is_publisher(&self) -> bool {
        !self.profile.topics.is_empty()
    }

    /// Where it is online.
    pub fn node(&self) -> Option<usize> {
        self.connection.as_ref().filter(|connection| connection.online).map(|connection| connection.node)
    }

    /// Nothing of its own is under way.
    pub fn is_at_rest(&self) -> bool {
        self.is_online()
            && self.outgoing.is_empty()
            && self.incoming.is_empty()
            && (self.subscribed || self.profile.filters.is_empty())
            && self.connection.as_ref().is_some_and(|connection| connection.acks.is_empty())
    }

    /// Sends CONNECT on a fresh connection.
    pub fn open(&mut self, node: usize, pipe: Rc<RefCell<Pipe>>, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        let will = self.profile.will.then(|| {
            let delay_s = [0, 0, 2, 5][rng.random_range(0..4)];
            (oracle.will_made(self.index, delay_s, now_ms), delay_s)
        });
        let connect = Connect {
            protocol: VERSION,
            clean_start: !self.profile.persistent,
            keep_alive: 0,
            client_id: self.profile.id.as_str().into(),
            will: will.map(|(id, delay_s)| Will {
                topic: format!("w/{}", self.profile.id).into(),
                payload: format!("w{id}").into(),
                qos: QoS::AtLeastOnce,
                retain: false,
                properties: WillProperties { will_delay_interval: Some(delay_s), ..WillProperties::default() },
            }),
            username: None,
            password: None,
            properties: ConnectProperties {
                session_expiry_interval: self.profile.persistent.then_some(EXPIRY_S),
                ..ConnectProperties::default()
            },
        };
        let connection = Connection {
            node,
            pipe,
            read: BytesMut::new(),
            online: false,
            opened_ms: now_ms,
            heard_ms: now_ms,
            acks: VecDeque::new(),
            subscribe_sent: false,
            suback_ms: None,
            will: will.map(|(id, _)| id),
            leave_ms: None,
            hasty_ms: None,
        };
        connection.send(&Packet::Connect(Box::new(connect)));
        oracle.trace.say(now_ms, format_args!("{} connects to node {node}", self.profile.id));
        oracle.connect_sent(self.index);
        self.connection = Some(connection);
    }

    /// Ends the connection: with DISCONNECT, without a word, or leaves it as it is and connects elsewhere.
    pub fn leave(&mut self, how: Ending, now_ms: u64, oracle: &mut Oracle) {
        let Some(connection) = self.connection.take() else { return };
        oracle.trace.say(now_ms, format_args!("{} leaves node {}: {how:?}", self.profile.id, connection.node));
        match how {
            Ending::Disconnect => {
                let disconnect = Disconnect { reason_code: ReasonCode::Success, properties: Default::default() };
                connection.send(&Packet::Disconnect(Box::new(disconnect)));
                connection.pipe.borrow_mut().close();
            }
            Ending::Abort => connection.pipe.borrow_mut().close(),
            Ending::Takeover => self.left_open.push((connection.node, Rc::clone(&connection.pipe))),
            Ending::ByNode => {}
        }
        oracle.ended(self.index, connection.will, how, now_ms);
        self.over();
    }

    fn over(&mut self) {
        if !self.profile.persistent {
            self.subscribed = false;
            self.incoming.clear();
        }
    }

    pub fn step(&mut self, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        self.left_open.retain(|(_, pipe)| !pipe.borrow().node_closed);
        let Some(connection) = &mut self.connection else { return };
        let (bytes, closed) = {
            let mut pipe = connection.pipe.borrow_mut();
            (pipe.take(), pipe.node_closed)
        };
        if !bytes.is_empty() {
            connection.heard_ms = now_ms;
            connection.read.extend_from_slice(&bytes);
        }
        while let Some(packet) = self.next_packet(oracle) {
            self.receive(packet, now_ms, rng, oracle);
            if self.connection.is_none() {
                return;
            }
        }
        if closed {
            self.leave(Ending::ByNode, now_ms, oracle);
            self.next_connect_ms = now_ms + rng.random_range(20..=500);
            return;
        }
        self.go_on(now_ms, rng, oracle);
    }

    fn next_packet(&mut self, oracle: &mut Oracle) -> Option<Packet> {
        let read = &mut self.connection.as_mut()?.read;
        match codec::frame(read, codec::MAX_PACKET_SIZE) {
            Ok(Some(frame)) if read.len() >= frame.total_len() => {
                let bytes = read.split_to(frame.total_len()).freeze();
                match codec::decode(frame, bytes, Some(VERSION)) {
                    Ok(packet) => Some(packet),
                    Err(error) => {
                        oracle.fail(format!("{} was sent what is no packet: {error}", self.profile.id));
                        None
                    }
                }
            }
            Ok(_) => None,
            Err(error) => {
                oracle.fail(format!("{} was sent what is no packet: {error}", self.profile.id));
                None
            }
        }
    }

    fn receive(&mut self, packet: Packet, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        let Some(connection) = &mut self.connection else { return };
        match packet {
            Packet::Connack(connack) => {
                if connack.reason_code != ReasonCode::Success {
                    oracle.trace.say(now_ms, format_args!("{} is refused: {:?}", self.profile.id, connack.reason_code));
                    oracle.coverage.hit("connections refused");
                    connection.pipe.borrow_mut().close();
                    oracle.ended(self.index, None, Ending::ByNode, now_ms);
                    self.connection = None;
                    self.next_connect_ms = now_ms + rng.random_range(100..=1_000);
                    return;
                }
                connection.online = true;
                let (node, present) = (connection.node, connack.session_present);
                oracle.trace.say(now_ms, format_args!("{} is online at node {node}, session present {present}", self.profile.id));
                oracle.connected(self.index, connection.will, present, self.had_session && self.profile.persistent, now_ms);
                self.had_session |= self.profile.persistent;
                self.resume();
            }
            Packet::Suback(suback) => {
                if suback.reason_codes.iter().any(|code| (*code as u8) >= 0x80) {
                    oracle.trace.say(now_ms, format_args!("{} may not subscribe: {:?}", self.profile.id, suback.reason_codes));
                    connection.subscribe_sent = false;
                    return;
                }
                connection.suback_ms = Some(now_ms);
                if self.profile.visitor {
                    connection.leave_ms = Some(now_ms + 3_000);
                }
                self.subscribed = true;
                oracle.trace.say(now_ms, format_args!("{} has SUBACK", self.profile.id));
                oracle.subscribed(self.index, now_ms);
            }
            Packet::Publish(publish) => self.delivered(&publish, now_ms, rng, oracle),
            Packet::Pubrel(ack) => {
                self.incoming.remove(&ack.packet_id.get());
                let due_ms = now_ms + rng.random_range(0..=self.profile.ack_delay_ms);
                connection.acks.push_back((due_ms, Packet::Pubcomp(self::ack(ack.packet_id.get()))));
            }
            Packet::Puback(ack) => self.acknowledged(&ack, false, now_ms, oracle),
            Packet::Pubrec(ack) => self.acknowledged(&ack, true, now_ms, oracle),
            Packet::Pubcomp(ack) => {
                let id = ack.packet_id.get();
                self.outgoing.retain(|out| !(out.packet_id == id && out.received));
            }
            Packet::Disconnect(disconnect) => {
                oracle.trace.say(now_ms, format_args!("{} is told {:?}", self.profile.id, disconnect.reason_code));
            }
            other => oracle.fail(format!("{} was sent {other:?}", self.profile.id)),
        }
    }

    fn delivered(&mut self, publish: &Publish, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        let Some(connection) = &mut self.connection else { return };
        let due_ms = now_ms + rng.random_range(0..=self.profile.ack_delay_ms);
        let id = publish.packet_id.map_or(0, NonZeroU16::get);
        let mut is_new = true;
        match publish.qos {
            QoS::AtMostOnce => {}
            QoS::AtLeastOnce => connection.acks.push_back((due_ms, Packet::Puback(ack(id)))),
            QoS::ExactlyOnce => {
                is_new = self.incoming.insert(id);
                connection.acks.push_back((due_ms, Packet::Pubrec(ack(id))));
            }
        }
        let text = String::from_utf8_lossy(&publish.payload);
        let qos = publish.qos as u8;
        let line = if text.len() > 40 { "event" } else { &text };
        oracle.trace.say(
            now_ms,
            format_args!(
                "{} gets {line} on {} (QoS {qos}, id {id}, dup {}, retain {})",
                self.profile.id, publish.topic, publish.dup, publish.retain
            ),
        );
        if is_new {
            oracle.delivered(self.index, connection.node, publish, id, now_ms);
        }
    }

    /// PUBACK or PUBREC.
    fn acknowledged(&mut self, ack: &PublishAck, exactly_once: bool, now_ms: u64, oracle: &mut Oracle) {
        let id = ack.packet_id.get();
        let Some(at) = self.outgoing.iter().position(|out| out.packet_id == id && out.sent && !out.received) else { return };
        let message = self.outgoing[at].message;
        let code = ack.reason_code;
        oracle.trace.say(now_ms, format_args!("{} has {code:?} for m{message}", self.profile.id));
        let refused = (code as u8) >= 0x80;
        oracle.acknowledged(message, code, now_ms);
        if exactly_once && !refused {
            self.outgoing[at].received = true;
            if let Some(connection) = &self.connection {
                connection.send(&Packet::Pubrel(self::ack(id)));
            }
        } else {
            self.outgoing.remove(at);
        }
    }

    /// Sends again what the session has under way [MQTT-4.4.0-1].
    fn resume(&mut self) {
        let Some(connection) = &self.connection else { return };
        for out in &mut self.outgoing {
            if out.received {
                connection.send(&Packet::Pubrel(ack(out.packet_id)));
            } else {
                // `dup` tells `go_on` that it was sent before.
                out.sent_ms = 0;
            }
        }
    }

    fn go_on(&mut self, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        let Some(connection) = &mut self.connection else { return };
        let waits_since = connection.heard_ms.max(connection.opened_ms);
        let waits = !connection.online
            || self.outgoing.iter().any(|out| out.sent && out.sent_ms != 0)
            || (connection.subscribe_sent && !self.subscribed);
        if waits && now_ms.saturating_sub(waits_since) > PATIENCE_MS {
            self.leave(Ending::Abort, now_ms, oracle);
            self.next_connect_ms = now_ms + rng.random_range(20..=500);
            return;
        }
        if !connection.online {
            return;
        }
        if connection.leave_ms.is_some_and(|at| now_ms >= at) {
            oracle.visited(self.index, connection.node, now_ms);
            self.leave(Ending::Disconnect, now_ms, oracle);
            self.next_connect_ms = now_ms + rng.random_range(100..=2_000);
            return;
        }
        if connection.hasty_ms.is_some_and(|at| now_ms >= at) {
            oracle.coverage.hit("publishers gone before they were answered");
            let how = if rng.random_ratio(1, 2) { Ending::Abort } else { Ending::Takeover };
            self.leave(how, now_ms, oracle);
            self.next_connect_ms = now_ms + rng.random_range(1..=30);
            return;
        }
        while connection.acks.front().is_some_and(|(due_ms, _)| *due_ms <= now_ms) {
            if let Some((_, packet)) = connection.acks.pop_front() {
                connection.send(&packet);
            }
        }
        if !self.subscribed && !connection.subscribe_sent && !self.profile.filters.is_empty() {
            connection.subscribe_sent = true;
            connection.send(&Packet::Subscribe(Box::new(subscribe(&self.profile))));
            oracle.subscribing(self.index, connection.node, now_ms);
        }
        if !self.profile.topics.is_empty() {
            self.publish(now_ms, rng, oracle);
        }
    }

    fn publish(&mut self, now_ms: u64, rng: &mut StdRng, oracle: &mut Oracle) {
        let Some(connection) = &mut self.connection else { return };
        for out in self.outgoing.iter_mut().filter(|out| !out.received && out.sent_ms == 0) {
            let dup = out.sent;
            out.sent = true;
            out.sent_ms = now_ms;
            let message = oracle.message_sent(out.message, now_ms);
            let (qos, expiry_s) = (message.qos as u8, message.expiry_s);
            oracle.trace.say(
                now_ms,
                format_args!("{} sends m{}, QoS {qos}, expiry {expiry_s:?}, again: {dup}", self.profile.id, out.message),
            );
            connection.send(&Packet::Publish(Box::new(Publish {
                dup,
                qos: message.qos,
                retain: self.profile.retain,
                topic: message.topic.as_str().into(),
                packet_id: NonZeroU16::new(out.packet_id),
                properties: PublishProperties { message_expiry_interval: message.expiry_s, ..PublishProperties::default() },
                payload: Bytes::from(format!("m{}", out.message)),
            })));
            if !self.quiet && rng.random_ratio(1, HASTY_ONE_IN) {
                connection.hasty_ms = Some(now_ms + rng.random_range(1..=80));
            }
        }
        if self.quiet || now_ms < self.next_message_ms || self.outgoing.len() >= self.profile.window {
            return;
        }
        let pause = 1_000.0 / self.profile.rate;
        self.next_message_ms = now_ms + rng.random_range(1.0..pause * 2.0) as u64;
        let topic = self.profile.topics[rng.random_range(0..self.profile.topics.len())].clone();
        let qos = if self.profile.retain {
            QoS::AtLeastOnce
        } else {
            [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::AtLeastOnce, QoS::ExactlyOnce, QoS::ExactlyOnce][rng.random_range(0..5)]
        };
        let expiry_s = (!self.profile.retain && rng.random_ratio(1, 12)).then(|| rng.random_range(1..=4));
        let message = oracle.message_made(self.index, topic.clone(), qos, expiry_s, self.profile.retain);
        if qos == QoS::AtMostOnce {
            oracle.message_sent(message, now_ms);
            connection.send(&Packet::Publish(Box::new(Publish {
                dup: false,
                qos,
                retain: false,
                topic: topic.into(),
                packet_id: None,
                properties: PublishProperties { message_expiry_interval: expiry_s, ..PublishProperties::default() },
                payload: Bytes::from(format!("m{message}")),
            })));
            return;
        }
        self.next_packet_id = self.next_packet_id % 60_000 + 1;
        self.outgoing.push_back(Outgoing { message, packet_id: self.next_packet_id, sent: false, received: false, sent_ms: 0 });
    }
}

fn ack(packet_id: u16) -> PublishAck {
    PublishAck {
        packet_id: NonZeroU16::new(packet_id).unwrap_or(NonZeroU16::MIN),
        reason_code: ReasonCode::Success,
        reason_string: None,
        user_properties: Default::default(),
    }
}

fn subscribe(profile: &Profile) -> Subscribe {
    let options =
        |qos| SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
    Subscribe {
        packet_id: NonZeroU16::MAX,
        subscription_identifier: None,
        user_properties: Default::default(),
        filters: profile
            .filters
            .iter()
            .map(|(filter, qos)| SubscriptionRequest { filter: filter.as_str().into(), options: options(*qos) })
            .collect(),
    }
}
