//! Messages from the client: PUBLISH in, PUBACK, PUBREC and PUBCOMP out (MQTT 5 sections 3.3 to 3.7, 4.3, 4.6, 4.9).
//!
//! Acknowledgements leave in the order in which the messages came, whatever the order of the verdicts: each PUBLISH above QoS 0
//! takes a place in a line, and the line moves while its head has a verdict.
//!
//! A QoS 2 Packet Identifier is in use from its PUBLISH to the PUBCOMP (or the failing PUBREC). For a session that outlives its
//! connection the shard stores the identifier with the message, else it lives here only.

use std::collections::{BTreeMap, VecDeque};

use super::connected::{Connected, Question};
use super::effect::{Effect, Ticket};
use super::error::Offence;
use super::machine::Now;
use super::peer::ack;
use super::seldom::Seldom;
use super::settings::SessionSettings;
use super::topic_alias::TopicAliases;
use crate::mqtt::packet::{PacketId, Publish};
use crate::mqtt::{Message, Origin, Packet, QoS, ReasonCode, topic_name};

/// Places that an idle connection's line may keep memory for.
const IDLE_LINE_CAPACITY: usize = 16;

/// The inbound side of a connection.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    line: Seldom<VecDeque<Place>>,
    /// QoS 2 identifiers in use.
    exchanges: Seldom<BTreeMap<PacketId, Exchange>>,
    aliases: TopicAliases,
    /// Messages that count against the server's Receive Maximum.
    unacknowledged: usize,
}

/// One acknowledgement to come.
#[derive(Debug)]
struct Place {
    packet_id: PacketId,
    kind: Kind,
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Puback,
    /// Of the PUBLISH that opened the exchange.
    Pubrec,
    /// Of a repeated PUBLISH.
    PubrecAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Awaited(Ticket),
    /// The same as that of the PUBLISH that opened the exchange.
    AsTheFirst,
    Known(ReasonCode),
}

/// A QoS 2 exchange.
#[derive(Debug)]
struct Exchange {
    step: Step,
    /// The shard holds the identifier.
    stored: bool,
    /// Began on this connection, so it counts against the Receive Maximum [MQTT-4.9.0-1].
    counted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// PUBREC has not left. A client that sends PUBREL without waiting for it is served afterwards.
    AwaitVerdict { released: bool },
    /// PUBREC left.
    AwaitPubrel,
    /// PUBREL is being stored.
    Releasing,
}

impl Inbound {
    /// The inbound side of a session that already received these identifiers.
    pub(super) fn resume(received: Vec<PacketId>, aliases: TopicAliases) -> Self {
        let exchange = |id| (id, Exchange { step: Step::AwaitPubrel, stored: true, counted: false });
        let mut inbound = Self { aliases, ..Self::default() };
        if !received.is_empty() {
            inbound.exchanges.get_mut().extend(received.into_iter().map(exchange));
        }
        inbound
    }

    fn exchange(&mut self, packet_id: PacketId) -> Option<&mut Exchange> {
        self.exchanges.existing()?.get_mut(&packet_id)
    }

    /// Acknowledgements that wait.
    pub(super) fn awaited_len(&self) -> usize {
        self.line.len()
    }

    fn wait_in_line(&mut self, packet_id: PacketId, kind: Kind, verdict: Verdict) {
        self.line.push_back(Place { packet_id, kind, verdict });
    }

    /// The verdict of the exchange's first PUBLISH, for a repeated one.
    fn verdict_of_first(&self, packet_id: PacketId, step: Step) -> Verdict {
        match step {
            Step::AwaitPubrel | Step::Releasing => Verdict::Known(ReasonCode::Success),
            Step::AwaitVerdict { .. } => {
                let first = self.line.iter().find(|p| p.packet_id == packet_id && p.kind == Kind::Pubrec);
                match first.map(|p| p.verdict) {
                    Some(Verdict::Known(code)) => Verdict::Known(code),
                    Some(Verdict::Awaited(_) | Verdict::AsTheFirst) | None => Verdict::AsTheFirst,
                }
            }
        }
    }

    /// Notes a verdict; false where no place waits for the ticket.
    fn judge(&mut self, ticket: Ticket, code: ReasonCode) -> bool {
        let Some(index) = self.line.iter().position(|p| p.verdict == Verdict::Awaited(ticket)) else {
            return false;
        };
        let mut judged = self.line.get_mut().iter_mut().skip(index);
        if let Some(place) = judged.next() {
            place.verdict = Verdict::Known(code);
            let packet_id = place.packet_id;
            for again in judged.filter(|p| p.packet_id == packet_id && p.verdict == Verdict::AsTheFirst) {
                again.verdict = Verdict::Known(code);
            }
        }
        true
    }

    fn give_memory_back(&mut self) {
        if self.line.get().is_some_and(|line| line.is_empty() && line.capacity() > IDLE_LINE_CAPACITY) {
            self.line.clear();
        }
    }

    /// The head of the line, if its turn has come.
    fn pop(&mut self) -> Option<(PacketId, Kind, ReasonCode)> {
        let Verdict::Known(code) = self.line.front()?.verdict else { return None };
        self.line.existing()?.pop_front().map(|p| (p.packet_id, p.kind, code))
    }
}

impl Connected {
    /// PUBLISH from the client.
    pub(super) fn published(&mut self, publish: Publish, now: Now, out: &mut Vec<Effect>) -> Result<(), Offence> {
        let Publish { qos, packet_id, .. } = publish;
        let message = self.check(publish, now)?;
        match (qos, packet_id) {
            (QoS::AtMostOnce, _) | (_, None) => {
                if self.breaks_payload_format(&message) {
                    return Err(Offence::PayloadFormatInvalid);
                }
                // QoS 0 has no acknowledgement to carry the refusal (spec/hivemq.md 7.5).
                if !self.may_publish(&message) {
                    return Err(Offence::Refused(ReasonCode::NotAuthorized));
                }
                let ticket = self.next_ticket();
                out.push(Effect::Publish { ticket, message: Box::new(message), receive: None });
                Ok(())
            }
            (QoS::AtLeastOnce, Some(packet_id)) => {
                self.count_one()?;
                let verdict = self.route(message, None, out);
                self.inbound.wait_in_line(packet_id, Kind::Puback, verdict);
                self.advance_line(out)
            }
            (QoS::ExactlyOnce, Some(packet_id)) => self.published_once(packet_id, message, out),
        }
    }

    /// PUBLISH of QoS 2: routed unless its identifier is in use [MQTT-4.3.3-10].
    fn published_once(&mut self, packet_id: PacketId, message: Message, out: &mut Vec<Effect>) -> Result<(), Offence> {
        let known = self.inbound.exchanges.get().and_then(|known| known.get(&packet_id)).map(|e| (e.step, e.counted));
        if let Some((step, counted)) = known {
            if !counted {
                self.count_one()?;
            }
            if let Some(exchange) = self.inbound.exchange(packet_id) {
                exchange.counted = true;
            }
            let verdict = self.inbound.verdict_of_first(packet_id, step);
            self.inbound.wait_in_line(packet_id, Kind::PubrecAgain, verdict);
            return self.advance_line(out);
        }
        self.count_one()?;
        let stored = self.session_expiry_interval_s > 0;
        let verdict = self.route(message, stored.then_some(packet_id), out);
        let exchange = Exchange { step: Step::AwaitVerdict { released: false }, stored, counted: true };
        self.inbound.exchanges.get_mut().insert(packet_id, exchange);
        self.inbound.wait_in_line(packet_id, Kind::Pubrec, verdict);
        self.advance_line(out)
    }

    /// Asks for the message to be routed, unless it is refused here already.
    fn route(&mut self, message: Message, receive: Option<PacketId>, out: &mut Vec<Effect>) -> Verdict {
        if self.breaks_payload_format(&message) {
            return Verdict::Known(ReasonCode::PayloadFormatInvalid);
        }
        if !self.may_publish(&message) {
            return Verdict::Known(ReasonCode::NotAuthorized);
        }
        let ticket = self.next_ticket();
        out.push(Effect::Publish { ticket, message: Box::new(message), receive });
        Verdict::Awaited(ticket)
    }

    /// The outside's answer to a PUBLISH. For QoS 0 only a refusal matters, and no answer need come.
    pub(super) fn publish_answered(&mut self, ticket: Ticket, code: ReasonCode, out: &mut Vec<Effect>) -> Result<(), Offence> {
        if self.inbound.judge(ticket, code) {
            return self.advance_line(out);
        }
        // QoS 0 has no acknowledgement to carry the refusal (spec/hivemq.md 7.5).
        if code == ReasonCode::NotAuthorized && self.has_issued(ticket) {
            return Err(Offence::Refused(code));
        }
        Ok(())
    }

    /// Sends the acknowledgements whose turn has come [MQTT-4.6.0-2] [MQTT-4.6.0-3].
    fn advance_line(&mut self, out: &mut Vec<Effect>) -> Result<(), Offence> {
        while let Some((packet_id, kind, code)) = self.inbound.pop() {
            if code.is_error() && !self.peer.protocol.is_v5() {
                // MQTT 3 cannot say no.
                return Err(Offence::Refused(code));
            }
            match kind {
                Kind::Puback => {
                    self.inbound.unacknowledged = self.inbound.unacknowledged.saturating_sub(1);
                    self.peer.send(Packet::Puback(ack(packet_id, code)), out);
                }
                Kind::Pubrec | Kind::PubrecAgain => {
                    self.peer.send(Packet::Pubrec(ack(packet_id, code)), out);
                }
            }
            if kind == Kind::Pubrec {
                self.pubrec_left(packet_id, code, out);
            }
            if code == ReasonCode::NotAuthorized {
                // spec/hivemq.md 7.5, 9.8: the acknowledgement says it, then the connection ends.
                return Err(Offence::Refused(code));
            }
        }
        self.inbound.give_memory_back();
        Ok(())
    }

    fn pubrec_left(&mut self, packet_id: PacketId, code: ReasonCode, out: &mut Vec<Effect>) {
        if code.is_error() {
            // [MQTT-4.3.3-9]: the identifier is free for a new message.
            self.finish_exchange(packet_id);
            return;
        }
        let Some(exchange) = self.inbound.exchange(packet_id) else { return };
        let released = exchange.step == Step::AwaitVerdict { released: true };
        exchange.step = Step::AwaitPubrel;
        if released {
            self.pubrel(packet_id, out);
        }
    }

    /// PUBREL from the client.
    pub(super) fn pubrel(&mut self, packet_id: PacketId, out: &mut Vec<Effect>) {
        let Some(exchange) = self.inbound.exchange(packet_id) else {
            // Never seen, or forgotten after a crash: the client is done with it too (MQTT 5 section 4.13.2). MQTT 3 says the same
            // without a code.
            self.peer.send(Packet::Pubcomp(ack(packet_id, ReasonCode::PacketIdentifierNotFound)), out);
            return;
        };
        match exchange.step {
            Step::AwaitVerdict { .. } => exchange.step = Step::AwaitVerdict { released: true },
            Step::AwaitPubrel if exchange.stored => {
                exchange.step = Step::Releasing;
                let ticket = self.ask(Question::Release(packet_id));
                out.push(Effect::Release { ticket, packet_id });
            }
            Step::AwaitPubrel => self.complete(packet_id, out),
            // The PUBCOMP to come answers both.
            Step::Releasing => {}
        }
    }

    /// The shard forgot the identifier.
    pub(super) fn release_answered(&mut self, ticket: Ticket, out: &mut Vec<Effect>) {
        if let Some(Question::Release(packet_id)) = self.answered(ticket, |q| matches!(q, Question::Release(_))) {
            self.complete(packet_id, out);
        }
    }

    fn complete(&mut self, packet_id: PacketId, out: &mut Vec<Effect>) {
        self.finish_exchange(packet_id);
        self.peer.send(Packet::Pubcomp(ack(packet_id, ReasonCode::Success)), out);
    }

    fn finish_exchange(&mut self, packet_id: PacketId) {
        if self.inbound.exchanges.existing().and_then(|known| known.remove(&packet_id)).is_some_and(|e| e.counted) {
            self.inbound.unacknowledged = self.inbound.unacknowledged.saturating_sub(1);
        }
    }

    /// Counts a message against the Receive Maximum that CONNACK announced; MQTT 3 was announced none [MQTT-3.3.4-7].
    fn count_one(&mut self) -> Result<(), Offence> {
        let full = self.inbound.unacknowledged >= usize::from(self.settings.server_receive_maximum);
        if full && self.peer.protocol.is_v5() {
            return Err(Offence::ReceiveMaximumExceeded);
        }
        self.inbound.unacknowledged += 1;
        Ok(())
    }

    /// Checks a PUBLISH (spec/hivemq.md 9.8) and makes a message of it.
    fn check(&mut self, publish: Publish, now: Now) -> Result<Message, Offence> {
        let settings = &self.settings;
        let properties = publish.properties;
        // [MQTT-3.3.4-6]
        if !properties.subscription_identifiers.is_empty() {
            return Err(Offence::SubscriptionIdentifierInPublish);
        }
        let alias = properties.topic_alias;
        // Checked before an alias can stand for it. [MQTT-3.3.2-2]
        if !publish.topic.is_empty() {
            check_topic(&publish.topic, settings)?;
        }
        settings.check_text(properties.response_topic.as_deref().unwrap_or_default(), "response topic")?;
        let topic = self.inbound.aliases.resolve(publish.topic, alias)?;
        // [MQTT-3.2.2-11]
        if publish.qos > settings.max_qos {
            return Err(Offence::QoSNotSupported);
        }
        // [MQTT-3.2.2-14]
        if publish.retain && !settings.retained_messages {
            return Err(Offence::RetainNotSupported);
        }
        Ok(Message {
            topic,
            payload: publish.payload,
            qos: publish.qos,
            retain: publish.retain,
            payload_format_indicator: properties.payload_format_indicator,
            content_type: properties.content_type,
            response_topic: properties.response_topic,
            correlation_data: properties.correlation_data,
            user_properties: properties.user_properties,
            message_expiry_interval: capped_expiry(properties.message_expiry_interval, settings),
            received_at_ms: now.wall_ms,
            origin: Origin::Client(self.client_id.clone()),
        })
    }

    fn may_publish(&self, message: &Message) -> bool {
        self.principal.may_publish(&message.topic, message.qos, message.retain)
    }

    fn breaks_payload_format(&self, message: &Message) -> bool {
        breaks_payload_format(message.payload_format_indicator, &message.payload, &self.settings)
    }
}

fn check_topic(topic: &str, settings: &SessionSettings) -> Result<(), Offence> {
    if !topic_name::is_valid(topic) {
        return Err(Offence::TopicInvalid);
    }
    if topic.len() > usize::from(settings.max_topic_length) {
        return Err(Offence::TopicTooLong);
    }
    settings.check_text(topic, "topic name")?;
    // spec/hivemq.md 4.7
    if topic_name::is_reserved(topic) {
        return Err(Offence::TopicReserved);
    }
    Ok(())
}

/// The Message Expiry Interval in force, seconds: the publisher's, but not above the configured maximum; `None` never expires.
pub(super) fn capped_expiry(requested_s: Option<u32>, settings: &SessionSettings) -> Option<u32> {
    match (requested_s, settings.message_expiry_max_s) {
        (Some(requested), Some(max)) => Some(requested.min(max)),
        (requested, max) => requested.or(max),
    }
}

/// Whether the payload is not the UTF-8 it is said to be, where that is checked.
pub(super) fn breaks_payload_format(indicator: Option<bool>, payload: &[u8], settings: &SessionSettings) -> bool {
    settings.payload_format_validation && indicator == Some(true) && std::str::from_utf8(payload).is_err()
}
