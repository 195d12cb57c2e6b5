//! What whoever sees all inputs and effects of a machine can hold it to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::BytesMut;
use bytestring::ByteString;

use super::login::{Login, Step as LoginStep, may_have_asked};
use super::{identifier_is_of_its_source, is_of_a_server, queue_packet_id};
use crate::auth::Verdict;
use crate::mqtt::codec::{MAX_PACKET_SIZE, decode, disconnect_code_from_client, encode, encoded_len, frame};
use crate::mqtt::packet::{Connect, Packet, PacketId, Publish};
use crate::mqtt::{Delivery, ProtocolVersion, QoS, ReasonCode, Source, UserProperties};
use crate::session::{AckOutcome, Effect, Registered, SessionSettings, Ticket};
use crate::signal::Initiator;

/// Questions that may be open to a caller that obeys `wants_input`: those at which it stops, and the one that the last packet added.
const OPEN_QUESTIONS_MAX: usize = 256;

/// A question of the machine.
#[derive(Debug, Clone, Copy)]
pub(super) enum Question {
    Publish(QoS),
    Release,
    Subscribe(usize),
    Unsubscribe(usize),
}

/// A message under way to the client.
#[derive(Debug)]
struct InFlight {
    source: Source,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Sent,
    /// PUBREC came; where it is to be stored, it is not yet.
    Received,
    /// PUBREL may go.
    Stored,
}

#[derive(Debug)]
pub(super) struct Observer {
    settings: SessionSettings,
    obedient: bool,
    /// The CONNECT that was taken.
    connect: Option<Box<Connect>>,
    /// Questions without an answer.
    pub(super) open: Vec<(Ticket, Question)>,
    last_ticket: u64,
    in_flight: BTreeMap<PacketId, InFlight>,
    /// What the client's last acknowledgement is of.
    acknowledged: Option<PacketId>,
    /// PUBREC reported, and not confirmed.
    pub(super) storing: Vec<Source>,
    /// Publishes of the client in their order that have no acknowledgement.
    arrived: VecDeque<(PacketId, QoS)>,
    /// QoS 2 identifiers that the shard knows.
    received: BTreeSet<PacketId>,
    /// The queue's entry whose PUBREL is asked for again.
    resuming: Option<u64>,
    login: Login,
    /// Topic Aliases towards the client.
    aliases: BTreeMap<u16, ByteString>,
    connacks: usize,
    ends: usize,
    closed: bool,
    /// The shard knows of the end already.
    silent: bool,
}

impl Observer {
    pub(super) fn new(settings: SessionSettings, obedient: bool) -> Self {
        Self {
            settings,
            obedient,
            connect: None,
            open: Vec::new(),
            last_ticket: 0,
            in_flight: BTreeMap::new(),
            acknowledged: None,
            storing: Vec::new(),
            arrived: VecDeque::new(),
            received: BTreeSet::new(),
            resuming: None,
            login: Login::new(),
            aliases: BTreeMap::new(),
            connacks: 0,
            ends: 0,
            closed: false,
            silent: false,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether what the client sends waits until it is let in.
    pub(super) fn is_held_back(&self) -> bool {
        let in_between = matches!(self.login.step, LoginStep::Judging | LoginStep::Accepted | LoginStep::Registering);
        in_between && !self.closed && !self.has_method()
    }

    /// Whether an Authentication Method is in use.
    fn has_method(&self) -> bool {
        self.connect.as_ref().is_some_and(|connect| connect.properties.authentication_method.is_some())
    }

    /// Whether a verdict is awaited.
    pub(super) fn is_judging(&self) -> bool {
        self.login.is_asked() && !self.closed
    }

    pub(super) fn is_authenticating(&self) -> bool {
        self.login.is_under_way() && !self.closed
    }

    pub(super) fn has_expired(&self, wall_ms: u64) -> bool {
        self.login.has_expired(wall_ms)
    }

    /// The Authentication Method that a client is to name.
    pub(super) fn method(&self) -> Option<ByteString> {
        self.connect.as_ref()?.properties.authentication_method.clone()
    }

    pub(super) fn identifiers_in_flight(&self) -> Vec<PacketId> {
        self.in_flight.keys().copied().collect()
    }

    pub(super) fn is_in_flight(&self, source: &Source) -> bool {
        self.in_flight.values().any(|message| message.source == *source)
    }

    pub(super) fn a_ticket_not_open(&self, from: u64) -> Ticket {
        let is_open = |ticket: &u64| self.open.iter().any(|(open, _)| open.0 == *ticket);
        Ticket((from..).find(|ticket| !is_open(ticket)).unwrap_or(0))
    }

    /// What `send_quota` must say.
    pub(super) fn quota_left(&self) -> usize {
        if self.login.step != LoginStep::Granted {
            return 0;
        }
        self.window().saturating_sub(self.in_flight.len())
    }

    fn window(&self) -> usize {
        let of_client = self.connect.as_ref().and_then(|connect| connect.properties.receive_maximum).unwrap_or(u16::MAX);
        usize::from(of_client.min(self.settings.max_inflight))
    }

    pub(super) fn hand_in(&mut self, packet: &Packet, closed: bool) {
        match packet {
            Packet::Connect(connect) if self.login.step == LoginStep::Stranger && !closed => self.connect = Some(connect.clone()),
            Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubcomp(ack) => self.acknowledged = Some(ack.packet_id),
            Packet::Publish(publish) if !closed => {
                if let Some(packet_id) = publish.packet_id {
                    self.arrived.push_back((packet_id, publish.qos));
                }
            }
            _ => {}
        }
    }

    /// A verdict about who the client is, before the machine is told.
    pub(super) fn see_verdict(&mut self, verdict: &Verdict) {
        if self.is_judging() {
            self.login.judge(verdict);
        }
    }

    /// After a verdict: what it asks for was done, or it was the end.
    pub(super) fn verdict_was_followed(&self) {
        assert!(self.closed || self.login.is_settled(), "{:?}", self.login);
    }

    /// The shard's answer, before the machine is told.
    pub(super) fn see_registered(&mut self, verdict: &Result<Registered, ReasonCode>) {
        if self.login.step != LoginStep::Registering || self.closed {
            return;
        }
        match verdict {
            Ok(registered) => {
                self.login.step = LoginStep::Granted;
                if registered.session_present {
                    self.received.extend(&registered.received_packet_ids);
                }
            }
            Err(_) => self.login.step = LoginStep::Refused,
        }
    }

    pub(super) fn will_end_by_server(&mut self, tell_shard: bool) {
        self.silent |= !tell_shard && !self.closed;
    }

    pub(super) fn note_stored(&mut self, source: &Source) {
        for message in self.in_flight.values_mut().filter(|message| message.source == *source) {
            if message.step == Step::Received {
                message.step = Step::Stored;
            }
        }
    }

    /// Of the effects that come next, PUBREL is for this entry.
    pub(super) fn will_resume(&mut self, seq: Option<u64>) {
        self.resuming = seq;
    }

    /// What a delivery came to; before `see`.
    pub(super) fn see_delivery(&mut self, delivery: &Delivery, effects: &[Effect], wall_ms: u64) {
        for effect in effects {
            match effect {
                Effect::Send(Packet::Publish(publish)) => self.see_publish(delivery, publish, wall_ms),
                Effect::Acknowledge { source, outcome: AckOutcome::Sent } => {
                    assert!(*source == delivery.source && delivery.qos == QoS::AtMostOnce);
                }
                Effect::Dropped { delivery: dropped, .. } => {
                    assert!(**dropped == *delivery && self.max_packet_size() < MAX_PACKET_SIZE);
                }
                Effect::Expired { delivery: expired } => {
                    assert!(**expired == *delivery && delivery.message.is_expired(wall_ms));
                }
                other => panic!("{other:?} for a delivery"),
            }
        }
    }

    fn see_publish(&mut self, delivery: &Delivery, publish: &Publish, wall_ms: u64) {
        let message = &delivery.message;
        assert_eq!((publish.qos, publish.retain, &publish.payload), (delivery.qos, delivery.retain, &message.payload));
        self.names_its_topic(publish, &message.topic);
        let begun = delivery.dup && delivery.qos == QoS::ExactlyOnce;
        assert!(begun || !message.is_expired(wall_ms));
        assert!(!publish.dup || (delivery.dup && delivery.qos != QoS::AtMostOnce));
        assert_eq!(publish.packet_id.is_some(), delivery.qos != QoS::AtMostOnce);
        let Some(packet_id) = publish.packet_id else { return };
        assert!(identifier_is_of_its_source(delivery, packet_id));
        let sent = InFlight { source: delivery.source.clone(), step: Step::Sent };
        assert!(self.in_flight.insert(packet_id, sent).is_none(), "{packet_id} is in use");
        assert!(self.in_flight.len() <= self.window());
    }

    /// [MQTT-3.1.2-26] [MQTT-3.1.2-27] and MQTT 5 section 3.3.2.3.4
    fn names_its_topic(&mut self, publish: &Publish, topic: &ByteString) {
        let Some(alias) = publish.properties.topic_alias else { return assert_eq!(publish.topic, *topic) };
        let of_client = self.connect.as_ref().and_then(|connect| connect.properties.topic_alias_maximum).unwrap_or(0);
        assert!((1..=of_client.min(self.settings.sent_topic_alias_max)).contains(&alias), "{alias} of {of_client}");
        if publish.topic.is_empty() {
            assert_eq!(self.aliases.get(&alias), Some(topic), "{alias}");
        } else {
            assert_eq!(publish.topic, *topic);
            self.aliases.insert(alias, topic.clone());
        }
    }

    pub(super) fn see(&mut self, version: Option<ProtocolVersion>, effects: &[Effect]) {
        for effect in effects {
            assert!(!self.closed, "{effect:?} after Close");
            assert!(
                self.ends == 0 || matches!(effect, Effect::Send(Packet::Connack(_) | Packet::Disconnect(_)) | Effect::Close),
                "{effect:?} after End"
            );
            match effect {
                Effect::Send(packet) => self.see_packet(version, packet),
                Effect::Authenticate(evidence) => {
                    self.login.see_question(evidence, self.connect.as_ref().expect("CONNECT"));
                }
                Effect::Register(registration) => {
                    self.login.see_registration(registration, self.connect.as_ref().expect("CONNECT"));
                    assert!(registration.session_expiry_interval_s <= self.settings.session_expiry_max_s);
                }
                Effect::Publish { ticket, message, receive } => {
                    assert!(message.qos <= self.settings.max_qos && !message.topic.is_empty() && !message.topic.starts_with('$'));
                    assert!(!message.retain || self.settings.retained_messages);
                    assert!(self.login.principal.may_publish(&message.topic, message.qos, message.retain));
                    if let Some(packet_id) = receive {
                        assert_eq!(message.qos, QoS::ExactlyOnce);
                        assert!(self.received.insert(*packet_id), "{packet_id} is routed twice");
                    }
                    self.ask(*ticket, Question::Publish(message.qos));
                }
                Effect::Release { ticket, packet_id } => {
                    assert!(self.received.contains(packet_id));
                    self.ask(*ticket, Question::Release);
                }
                Effect::Subscribe { ticket, subscriptions } => {
                    for one in subscriptions {
                        assert!(self.settings.wildcard_subscriptions || !one.filter.has_wildcard());
                        assert!(self.settings.shared_subscriptions || one.filter.share.is_none());
                        assert!(one.options.qos <= self.settings.max_qos);
                        assert!(may_have_asked(&self.login.principal, &one.filter, one.options.qos));
                    }
                    self.ask(*ticket, Question::Subscribe(subscriptions.len()));
                }
                Effect::Unsubscribe { ticket, filters } => self.ask(*ticket, Question::Unsubscribe(filters.len())),
                Effect::Acknowledge { source, outcome } => self.see_outcome(source, *outcome),
                Effect::End(end) => {
                    let code = end.reason_code.filter(|_| end.initiator == Initiator::Client);
                    assert!(code.is_none_or(disconnect_code_from_client), "{code:?} is not for a client to send");
                    self.ends += 1;
                    assert_eq!(self.ends, 1);
                }
                Effect::Close => self.closed = true,
                // Seen with the delivery.
                _ => {}
            }
        }
        if self.closed {
            self.is_content();
        }
        self.keeps_its_limits();
    }

    /// At the end the shard learned of it, once, if it knew the connection and does not know of its end.
    pub(super) fn is_content(&self) {
        assert!(self.closed);
        let expected = match self.login.step {
            LoginStep::Registering | LoginStep::Granted => usize::from(!self.silent),
            _ => 0,
        };
        assert_eq!(self.ends, expected, "{:?}", self.login);
    }

    fn keeps_its_limits(&self) {
        if !self.obedient {
            return;
        }
        // QoS 0 needs no answer, so nothing waits for one.
        let awaited = self.open.iter().filter(|(_, question)| !matches!(question, Question::Publish(QoS::AtMostOnce))).count();
        assert!(awaited <= OPEN_QUESTIONS_MAX);
        let is_v5 = self.connect.as_ref().is_some_and(|connect| connect.protocol.is_v5());
        let publishes =
            self.open.iter().filter(|(_, question)| matches!(question, Question::Publish(qos) if *qos != QoS::AtMostOnce));
        // [MQTT-3.3.4-7]
        assert!(!is_v5 || publishes.count() <= usize::from(self.settings.server_receive_maximum));
    }

    fn ask(&mut self, ticket: Ticket, question: Question) {
        assert!(ticket.0 > self.last_ticket, "tickets are unique");
        self.last_ticket = ticket.0;
        self.open.push((ticket, question));
    }

    fn see_outcome(&mut self, source: &Source, outcome: AckOutcome) {
        if outcome == AckOutcome::Sent {
            return;
        }
        // Acknowledgements are never held back, so it is about the last one.
        let packet_id = self.acknowledged.expect("an acknowledgement");
        let message = self.in_flight.get_mut(&packet_id).expect("of what is under way");
        assert_eq!(message.source, *source);
        match outcome {
            AckOutcome::Received if matches!(source, Source::Queue { .. }) => {
                assert_eq!(message.step, Step::Sent);
                message.step = Step::Received;
                self.storing.push(source.clone());
            }
            AckOutcome::Received => {
                assert_eq!(message.step, Step::Sent);
                message.step = Step::Stored;
            }
            AckOutcome::Completed(_) | AckOutcome::Sent => _ = self.in_flight.remove(&packet_id),
        }
    }

    fn see_packet(&mut self, version: Option<ProtocolVersion>, packet: &Packet) {
        let version = version.expect("a packet needs a version");
        assert!(is_of_a_server(packet), "{packet:?}");
        self.fits_the_client(version, packet);
        if let Packet::Connack(connack) = packet {
            self.connacks += 1;
            assert_eq!(self.connacks, 1);
            let granted = self.login.step == LoginStep::Granted;
            assert_eq!(connack.reason_code == ReasonCode::Success, granted);
            // [MQTT-3.2.2-6]
            assert!(!connack.session_present || granted);
            let properties = &connack.properties;
            if let (true, Some(connect)) = (granted, &self.connect) {
                let told = (properties.authentication_method.clone(), properties.authentication_data.clone());
                assert_eq!(told, self.login.told(connect));
            }
            // [MQTT-3.1.2-28]
            let asked = self.connect.as_ref().and_then(|connect| connect.properties.request_response_information);
            assert!(properties.response_information.is_none() || asked == Some(true));
            return;
        }
        if let Packet::Auth(auth) = packet {
            assert!(version.is_v5());
            return self.login.see_auth(auth, self.connect.as_ref().expect("CONNECT"));
        }
        assert!(self.connacks == 1 && self.login.step == LoginStep::Granted, "{packet:?} before CONNACK");
        match packet {
            Packet::Puback(ack) => self.acknowledges(ack.packet_id, QoS::AtLeastOnce),
            Packet::Pubrec(ack) => {
                self.acknowledges(ack.packet_id, QoS::ExactlyOnce);
                if ack.reason_code.is_error() {
                    self.received.remove(&ack.packet_id);
                }
            }
            Packet::Pubcomp(ack) => {
                let known = self.received.remove(&ack.packet_id);
                assert!(!known || ack.reason_code == ReasonCode::Success);
            }
            Packet::Pubrel(ack) => match self.in_flight.get(&ack.packet_id) {
                Some(message) => assert!(message.step == Step::Stored && ack.reason_code == ReasonCode::Success, "{message:?}"),
                // A message of an earlier connection is completed, or nothing was sent under that identifier.
                None if ack.reason_code == ReasonCode::Success => {
                    let seq = self.resuming.expect("PUBREL for an entry of the queue");
                    assert_eq!(u64::from(ack.packet_id.get()), queue_packet_id(seq));
                    self.in_flight.insert(ack.packet_id, InFlight { source: Source::Queue { seq }, step: Step::Stored });
                }
                None => assert_eq!(ack.reason_code, ReasonCode::PacketIdentifierNotFound),
            },
            Packet::Disconnect(disconnect) => {
                assert!(version.is_v5());
                // A caller that obeys never fills the backlog.
                assert!(!self.obedient || disconnect.reason_code != ReasonCode::QuotaExceeded);
            }
            _ => {}
        }
    }

    /// [MQTT-4.6.0-2] [MQTT-4.6.0-3]
    fn acknowledges(&mut self, packet_id: PacketId, qos: QoS) {
        assert_eq!(self.arrived.pop_front(), Some((packet_id, qos)), "acknowledged out of order");
    }

    fn max_packet_size(&self) -> usize {
        let of_client = self.connect.as_ref().and_then(|connect| connect.properties.maximum_packet_size);
        of_client.map_or(MAX_PACKET_SIZE, |bytes| bytes as usize)
    }

    /// The client is sent nothing that its version lacks, that is too large for it, or that it did not ask for.
    fn fits_the_client(&self, version: ProtocolVersion, packet: &Packet) {
        let len = encoded_len(packet, version);
        assert!(len > 0, "{version:?} has no {packet:?}");
        assert!(len <= self.max_packet_size(), "{len} bytes of {packet:?}");
        let mut bytes = BytesMut::new();
        encode(packet, version, &mut bytes);
        assert_eq!(bytes.len(), len);
        let framed = frame(&bytes, MAX_PACKET_SIZE).ok().flatten().expect("a frame");
        let read = decode(framed, bytes.freeze(), Some(version));
        if version.is_v5() {
            assert_eq!(read.as_ref(), Ok(packet));
        } else {
            assert!(read.is_ok(), "{packet:?}: {read:?}");
        }
        // [MQTT-3.1.2-29]
        let silent = self.connect.as_ref().is_some_and(|connect| connect.properties.request_problem_information == Some(false));
        if silent && let Some((explained, user_properties)) = explanation(packet) {
            assert!(!explained && user_properties.is_empty(), "{packet:?}");
        }
    }
}

/// Whether there is a Reason String, and the User Properties, of packets that have them only for who asked for them.
fn explanation(packet: &Packet) -> Option<(bool, &UserProperties)> {
    match packet {
        Packet::Puback(p) | Packet::Pubrec(p) | Packet::Pubrel(p) | Packet::Pubcomp(p) => {
            Some((p.reason_string.is_some(), &p.user_properties))
        }
        Packet::Suback(p) => Some((p.reason_string.is_some(), &p.user_properties)),
        Packet::Unsuback(p) => Some((p.reason_string.is_some(), &p.user_properties)),
        Packet::Auth(p) => Some((p.properties.reason_string.is_some(), &p.properties.user_properties)),
        _ => None,
    }
}
