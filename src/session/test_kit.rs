//! Helpers of the session tests: packets in few words, and a machine that is driven by them.

use std::cell::Cell;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use super::alias_memory::AliasMemory;
use super::authenticate::Evidence;
use super::effect::{Effect, End, Registered, Registration, Ticket};
use super::machine::{Machine, Now};
use super::settings::{KeepAlivePolicy, SessionSettings};
use crate::auth::Verdict;
use crate::mqtt::packet::{
    Connack, Connect, ConnectProperties, Disconnect, DisconnectProperties, PacketId, Publish, PublishAck, PublishProperties,
    Subscribe, SubscriptionOptions, SubscriptionRequest, Unsubscribe, Will, WillProperties,
};
use crate::mqtt::{Delivery, Message, Origin, Packet, ProtocolVersion, QoS, ReasonCode, Source, SubscriptionIds};
use crate::signal::Initiator;

pub(super) const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
pub(super) const V5: ProtocolVersion = ProtocolVersion::V5;
pub(super) const V3: ProtocolVersion = ProtocolVersion::V3_1_1;
pub(super) const Q0: QoS = QoS::AtMostOnce;
pub(super) const Q1: QoS = QoS::AtLeastOnce;
pub(super) const Q2: QoS = QoS::ExactlyOnce;
/// The wall clock of the tests starts here.
pub(super) const WALL_MS: u64 = 1_700_000_000_000;

/// The defaults of `config.xml`.
pub(super) fn settings() -> SessionSettings {
    SessionSettings {
        session_expiry_max_s: u32::MAX,
        message_expiry_max_s: None,
        max_packet_size_bytes: 268_435_460,
        server_receive_maximum: 10,
        keep_alive_policy: KeepAlivePolicy::HiveMq { max_s: 65_535, allow_unlimited: true },
        keep_alive_multiplier_milli: 1500,
        topic_alias_max: 5,
        sent_topic_alias_max: 16,
        alias_memory: AliasMemory::default(),
        response_information: None,
        server_reference: None,
        subscription_identifiers: true,
        wildcard_subscriptions: true,
        shared_subscriptions: true,
        max_qos: QoS::ExactlyOnce,
        retained_messages: true,
        allow_empty_client_id: true,
        payload_format_validation: false,
        utf8_validation: true,
        allow_request_problem_information: true,
        max_client_id_length: 65_535,
        max_topic_length: 65_535,
        no_connect_idle_timeout_ms: 10_000,
        max_inflight: 50,
    }
}

pub(super) fn id(value: u16) -> PacketId {
    PacketId::new(value).unwrap()
}

pub(super) fn connect(protocol: ProtocolVersion) -> Connect {
    Connect {
        protocol,
        clean_start: true,
        keep_alive: 60,
        client_id: ByteString::from_static("client"),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }
}

/// A CONNECT whose session outlives the connection.
pub(super) fn persistent(protocol: ProtocolVersion) -> Connect {
    let mut connect = connect(protocol);
    connect.clean_start = false;
    if protocol.is_v5() {
        connect.properties.session_expiry_interval = Some(600);
    }
    connect
}

pub(super) fn will() -> Will {
    Will {
        topic: ByteString::from_static("will"),
        payload: Bytes::from_static(b"gone"),
        qos: Q1,
        retain: false,
        properties: WillProperties::default(),
    }
}

pub(super) fn publish(topic: &str, qos: QoS, packet_id: u16) -> Publish {
    Publish {
        dup: false,
        qos,
        retain: false,
        topic: ByteString::from(topic),
        packet_id: PacketId::new(packet_id),
        properties: PublishProperties::default(),
        payload: Bytes::from_static(b"payload"),
    }
}

pub(super) fn subscribe(packet_id: u16, filters: &[(&str, QoS)]) -> Subscribe {
    let request = |(filter, qos): &(&str, QoS)| SubscriptionRequest {
        filter: ByteString::from(*filter),
        options: SubscriptionOptions { qos: *qos, no_local: false, retain_as_published: false, retain_handling: <_>::default() },
    };
    Subscribe {
        packet_id: id(packet_id),
        subscription_identifier: None,
        user_properties: Vec::new(),
        filters: filters.iter().map(request).collect(),
    }
}

pub(super) fn unsubscribe(packet_id: u16, filters: &[&str]) -> Unsubscribe {
    let filters = filters.iter().map(|f| ByteString::from(*f)).collect();
    Unsubscribe { packet_id: id(packet_id), user_properties: Vec::new(), filters }
}

pub(super) fn disconnect(reason_code: ReasonCode, session_expiry_interval: Option<u32>) -> Disconnect {
    let properties = DisconnectProperties { session_expiry_interval, ..DisconnectProperties::default() };
    Disconnect { reason_code, properties }
}

pub(super) fn message(topic: &str, qos: QoS) -> Message {
    Message {
        topic: ByteString::from(topic),
        payload: Bytes::from_static(b"payload"),
        qos,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval: None,
        received_at_ms: WALL_MS,
        origin: Origin::Client(ByteString::from_static("publisher")),
    }
}

pub(super) fn delivery(qos: QoS, source: Source) -> Delivery {
    let message = Arc::new(message("t", qos));
    Delivery { message, qos, retain: false, subscription_ids: SubscriptionIds::new(), dup: false, source }
}

/// One packet of a kind, by its identifier.
pub(super) fn puback(packet_id: u16) -> Packet {
    Packet::Puback(PublishAck::new(id(packet_id), ReasonCode::Success))
}
pub(super) fn pubrec(packet_id: u16) -> Packet {
    Packet::Pubrec(PublishAck::new(id(packet_id), ReasonCode::Success))
}
pub(super) fn pubrel(packet_id: u16) -> Packet {
    Packet::Pubrel(PublishAck::new(id(packet_id), ReasonCode::Success))
}
pub(super) fn pubcomp(packet_id: u16) -> Packet {
    Packet::Pubcomp(PublishAck::new(id(packet_id), ReasonCode::Success))
}

/// An effect in few words, to compare by.
pub(super) fn brief(effect: &Effect) -> String {
    match effect {
        Effect::Send(packet) => brief_packet(packet),
        Effect::Authenticate(evidence) => {
            let data = evidence.data.as_deref().map_or("-".into(), String::from_utf8_lossy);
            format!("authenticate {:?} {data}", evidence.stage)
        }
        Effect::Register(r) => format!("register {}", r.client_id),
        Effect::Publish { ticket, message, receive: None } => format!("publish {} as {}", message.topic, ticket.0),
        Effect::Publish { ticket, message, receive: Some(id) } => {
            format!("publish {} as {} storing {id}", message.topic, ticket.0)
        }
        Effect::Release { ticket, packet_id } => format!("release {packet_id} as {}", ticket.0),
        Effect::Subscribe { ticket, subscriptions } => {
            let filters: Vec<_> = subscriptions.iter().map(|s| format!("{}:{}", s.filter.full(), s.options.qos as u8)).collect();
            format!("subscribe {} as {}", filters.join(","), ticket.0)
        }
        Effect::Unsubscribe { ticket, filters } => {
            let filters: Vec<_> = filters.iter().map(|f| f.full().to_string()).collect();
            format!("unsubscribe {} as {}", filters.join(","), ticket.0)
        }
        Effect::Acknowledge { source, outcome } => format!("{source:?} {outcome:?}"),
        Effect::Dropped { reason, .. } => format!("dropped {reason:?}"),
        Effect::NotSent(packet) => format!("{} not sent", packet.packet),
        Effect::Expired { .. } => "expired".to_owned(),
        Effect::End(End { initiator, reason_code, will, session_expiry_interval_s }) => {
            let code = reason_code.map_or("-".to_owned(), |c| format!("{:#04x}", c.byte()));
            let will = if *will { " with will" } else { "" };
            let expiry = session_expiry_interval_s.map_or(String::new(), |s| format!(" expiry {s}"));
            format!("end {} {code}{will}{expiry}", initiator.text())
        }
        Effect::Close => "close".to_owned(),
    }
}

fn brief_packet(packet: &Packet) -> String {
    let codes = |codes: &[ReasonCode]| codes.iter().map(|c| format!("{:02x}", c.byte())).collect::<Vec<_>>().join(" ");
    let ack = |name: &str, p: &PublishAck| format!("{name} {} {:02x}", p.packet_id, p.reason_code.byte());
    match packet {
        Packet::Connack(p) => {
            let present = if p.session_present { " present" } else { "" };
            format!("CONNACK {:02x}{present}", p.reason_code.byte())
        }
        Packet::Publish(p) => {
            let packet_id = p.packet_id.map_or(String::new(), |id| format!(" {id}"));
            format!("PUBLISH {} q{}{packet_id}{}", p.topic, p.qos as u8, if p.dup { " dup" } else { "" })
        }
        Packet::Puback(p) => ack("PUBACK", p),
        Packet::Pubrec(p) => ack("PUBREC", p),
        Packet::Pubrel(p) => ack("PUBREL", p),
        Packet::Pubcomp(p) => ack("PUBCOMP", p),
        Packet::Suback(p) => format!("SUBACK {} {}", p.packet_id, codes(&p.reason_codes)),
        Packet::Unsuback(p) => format!("UNSUBACK {} {}", p.packet_id, codes(&p.reason_codes)),
        Packet::Auth(p) => {
            let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
            let data = p.properties.authentication_data.as_ref().map_or("-".to_owned(), text);
            format!("AUTH {:02x} {} {data}", p.reason_code.byte(), p.properties.authentication_method.as_deref().unwrap_or("-"))
        }
        Packet::Pingresp => "PINGRESP".to_owned(),
        Packet::Disconnect(p) => format!("DISCONNECT {:02x}", p.reason_code.byte()),
        other => format!("{other:?}"),
    }
}

pub(super) fn briefs(effects: &[Effect]) -> Vec<String> {
    effects.iter().map(brief).collect()
}

/// The brief of a server-side end: what an offence must lead to.
pub(super) fn ended_by_server(version: ProtocolVersion, code: ReasonCode) -> Vec<String> {
    let byte = code.byte();
    let mut all = Vec::new();
    if version.is_v5() {
        all.push(format!("DISCONNECT {byte:02x}"));
    }
    all.push(format!("end {} {byte:#04x} with will", Initiator::Server.text()));
    all.push("close".to_owned());
    all
}

/// A machine, its clock, and the ids it was lent.
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) now: Now,
    ids: Cell<u32>,
}

impl Rig {
    pub(super) fn new(settings: SessionSettings) -> Self {
        let now = Now { mono_ms: 5_000, wall_ms: WALL_MS };
        Self { machine: Machine::new(Arc::new(settings), now), now, ids: Cell::new(0) }
    }

    /// Connected without a stored session.
    pub(super) fn connected(settings: SessionSettings, connect: Connect) -> Self {
        Self::resumed(settings, connect, Registered::default())
    }

    pub(super) fn resumed(settings: SessionSettings, connect: Connect, registered: Registered) -> Self {
        let mut rig = Self::new(settings);
        rig.connect(connect);
        let effects = rig.register(Ok(registered));
        assert!(matches!(&effects[..], [Effect::Send(Packet::Connack(c))] if c.reason_code == ReasonCode::Success));
        rig
    }

    /// Connected by the defaults.
    pub(super) fn of(version: ProtocolVersion) -> Self {
        Self::connected(settings(), connect(version))
    }

    /// A CONNECT that is let in.
    pub(super) fn connect(&mut self, connect: Connect) -> Registration {
        self.ask(connect);
        let effects = self.judge(Verdict::Accept { principal: Arc::default(), data: None });
        match &effects[..] {
            [Effect::Register(registration)] => (**registration).clone(),
            other => panic!("no registration: {other:?}"),
        }
    }

    /// A CONNECT that is to be judged.
    pub(super) fn ask(&mut self, connect: Connect) -> Evidence {
        match &self.packet(Packet::Connect(Box::new(connect)))[..] {
            [Effect::Authenticate(evidence)] => (**evidence).clone(),
            other => panic!("no evidence: {other:?}"),
        }
    }

    pub(super) fn judge(&mut self, verdict: Verdict) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_authenticated(verdict, now, out))
    }

    pub(super) fn register(&mut self, verdict: Result<Registered, ReasonCode>) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_registered(verdict, now, out))
    }

    pub(super) fn connack(&mut self, verdict: Result<Registered, ReasonCode>) -> Connack {
        match self.register(verdict).into_iter().next() {
            Some(Effect::Send(Packet::Connack(connack))) => *connack,
            other => panic!("no CONNACK: {other:?}"),
        }
    }

    pub(super) fn packet(&mut self, packet: Packet) -> Vec<Effect> {
        let mut out = Vec::new();
        let assigned_id = || {
            self.ids.set(self.ids.get() + 1);
            format!("assigned-{}", self.ids.get())
        };
        self.machine.handle_packet(packet, &assigned_id, self.now, &mut out);
        out
    }

    pub(super) fn publish(&mut self, publish: Publish) -> Vec<Effect> {
        self.packet(Packet::Publish(Box::new(publish)))
    }

    pub(super) fn published(&mut self, ticket: u64, code: ReasonCode) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_published(Ticket(ticket), code, now, out))
    }

    pub(super) fn released(&mut self, ticket: u64) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_released(Ticket(ticket), now, out))
    }

    pub(super) fn subscribed(&mut self, ticket: u64, codes: &[ReasonCode]) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_subscribed(Ticket(ticket), codes, now, out))
    }

    pub(super) fn unsubscribed(&mut self, ticket: u64, existed: &[bool]) -> Vec<Effect> {
        self.run(|m, now, out| m.handle_unsubscribed(Ticket(ticket), existed, now, out))
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) -> (bool, Vec<Effect>) {
        let mut out = Vec::new();
        let taken = self.machine.deliver(delivery, self.now, &mut out);
        (taken, out)
    }

    pub(super) fn run(&mut self, act: impl FnOnce(&mut Machine, Now, &mut Vec<Effect>)) -> Vec<Effect> {
        let mut out = Vec::new();
        act(&mut self.machine, self.now, &mut out);
        out
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
    }
}
