//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5 sections 3.8 to 3.11, spec/hivemq.md 2.6, 9.8).
//!
//! A filter that is no filter, or asks for what is switched off, ends the connection as HiveMQ does; so a SUBACK holds only what the
//! outside said, and that the client may not subscribe to a filter.

use bytestring::ByteString;

use super::connected::{Connected, Question};
use super::effect::{Effect, Subscription, Ticket};
use super::error::Offence;
use super::peer::failure_text;
use crate::mqtt::packet::{PacketId, Suback, Subscribe, SubscriptionOptions, SubscriptionRequest, Unsuback, Unsubscribe};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode, SubscriptionFilter, UserProperties};

/// Reason Codes of a SUBACK or UNSUBACK to come; `None` where the outside decides.
pub(super) type Answers = Vec<Option<ReasonCode>>;

/// Filters of one SUBSCRIBE that its Reason String names, and bytes of each.
const EXPLAINED_MAX: usize = 8;
const EXPLAINED_BYTES_MAX: usize = 128;

/// The filters of a SUBSCRIBE that the client may not subscribe to, for the Reason String.
#[derive(Debug, Default)]
pub(super) struct Denied {
    text: String,
    count: usize,
}

impl Denied {
    /// HiveMQ's words (spec/hivemq.md 7.5).
    fn add(&mut self, request: &SubscriptionRequest) {
        self.count += 1;
        if self.count > EXPLAINED_MAX {
            return;
        }
        let filter = &request.filter;
        let shown = filter.get(..filter.floor_char_boundary(EXPLAINED_BYTES_MAX)).unwrap_or_default();
        let cut = if shown.len() < filter.len() { ".." } else { "" };
        let separator = if self.text.is_empty() { "" } else { " " };
        let qos = request.options.qos as u8;
        self.text += &format!("{separator}Not authorized to subscribe to topic '{shown}{cut}' with QoS '{qos}'.");
    }

    fn reason_string(&self) -> Option<ByteString> {
        match self.count {
            0 => None,
            1..=EXPLAINED_MAX => Some(self.text.as_str().into()),
            count => Some(format!("{} And {} more.", self.text, count - EXPLAINED_MAX).into()),
        }
    }
}

impl Connected {
    pub(super) fn subscribe(&mut self, subscribe: Subscribe, out: &mut Vec<Effect>) -> Result<(), Offence> {
        if subscribe.subscription_identifier.is_some() && !self.settings.subscription_identifiers {
            return Err(Offence::SubscriptionIdentifier);
        }
        let mut subscriptions = Vec::with_capacity(subscribe.filters.len());
        let mut answers = Answers::with_capacity(subscribe.filters.len());
        let mut denied = Denied::default();
        for request in &subscribe.filters {
            let (filter, options) = self.check_request(request)?;
            // With the QoS that was asked for, whatever is granted (spec/hivemq.md 7.5).
            if !self.principal.may_subscribe(&filter, request.options.qos) {
                answers.push(Some(ReasonCode::NotAuthorized));
                denied.add(request);
                continue;
            }
            subscriptions.push(Subscription { filter, options, identifier: subscribe.subscription_identifier });
            answers.push(None);
        }
        if subscriptions.is_empty() {
            return self.send_suback(subscribe.packet_id, (answers, denied.reason_string()), &[], out);
        }
        let ticket = self.ask(Question::Subscribe(subscribe.packet_id, answers, denied.reason_string()));
        out.push(Effect::Subscribe { ticket, subscriptions });
        Ok(())
    }

    /// The filter, and the options with the QoS that is granted [MQTT-3.8.4-7].
    fn check_request(&self, request: &SubscriptionRequest) -> Result<(SubscriptionFilter, SubscriptionOptions), Offence> {
        self.settings.check_text(&request.filter, "topic filter")?;
        let filter = self.parse_filter(&request.filter)?;
        if filter.has_wildcard() && !self.settings.wildcard_subscriptions {
            return Err(Offence::WildcardSubscription);
        }
        let qos = request.options.qos.min(self.settings.max_qos);
        if filter.share.is_some() {
            if !self.settings.shared_subscriptions {
                return Err(Offence::SharedSubscription);
            }
            // [MQTT-3.8.3-4]
            if request.options.no_local {
                return Err(Offence::NoLocalShared);
            }
        }
        Ok((filter, SubscriptionOptions { qos, ..request.options }))
    }

    fn parse_filter(&self, text: &ByteString) -> Result<SubscriptionFilter, Offence> {
        if text.len() > usize::from(self.settings.max_topic_length) {
            return Err(Offence::FilterTooLong);
        }
        SubscriptionFilter::parse(text).map_err(|_| Offence::FilterInvalid)
    }

    /// The outside's answer to a SUBSCRIBE.
    pub(super) fn subscribe_answered(
        &mut self,
        ticket: Ticket,
        codes: &[ReasonCode],
        out: &mut Vec<Effect>,
    ) -> Result<(), Offence> {
        match self.answered(ticket, |q| matches!(q, Question::Subscribe(..))) {
            Some(Question::Subscribe(packet_id, answers, denied)) => self.send_suback(packet_id, (answers, denied), codes, out),
            _ => Ok(()),
        }
    }

    fn send_suback(
        &self,
        packet_id: PacketId,
        (answers, denied): (Answers, Option<ByteString>),
        codes: &[ReasonCode],
        out: &mut Vec<Effect>,
    ) -> Result<(), Offence> {
        let mut codes = codes.iter().copied();
        let mut decided = || codes.next().unwrap_or(ReasonCode::UnspecifiedError);
        // [MQTT-3.8.4-6] [MQTT-3.9.3-1]
        let reason_codes: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_or_else(&mut decided)).collect();
        let failure = reason_codes.iter().copied().find(|c| c.is_error());
        if let (Some(code), ProtocolVersion::V3_1) = (failure, self.peer.protocol) {
            // MQTT 3.1 has no failure in SUBACK (spec/hivemq.md 9.11).
            return Err(Offence::Refused(code));
        }
        let reason_string = denied.or_else(|| failure.and_then(failure_text));
        let suback = Suback { packet_id, reason_codes, reason_string, user_properties: UserProperties::new() };
        self.peer.send(Packet::Suback(Box::new(suback)), out);
        Ok(())
    }

    /// What is no Topic Filter cannot have been subscribed to, so it is answered here.
    pub(super) fn unsubscribe(&mut self, unsubscribe: &Unsubscribe, out: &mut Vec<Effect>) -> Result<(), Offence> {
        let mut filters = Vec::with_capacity(unsubscribe.filters.len());
        let mut answers = Answers::with_capacity(unsubscribe.filters.len());
        for text in &unsubscribe.filters {
            self.settings.check_text(text, "topic filter")?;
            match self.parse_filter(text) {
                Ok(filter) => {
                    filters.push(filter);
                    answers.push(None);
                }
                Err(_) if self.peer.protocol.is_v5() => answers.push(Some(ReasonCode::TopicFilterInvalid)),
                // UNSUBACK of MQTT 3 has nothing to say it with (spec/hivemq.md 9.8).
                Err(offence) => return Err(offence),
            }
        }
        if filters.is_empty() {
            self.send_unsuback(unsubscribe.packet_id, answers, &[], out);
            return Ok(());
        }
        let ticket = self.ask(Question::Unsubscribe(unsubscribe.packet_id, answers));
        out.push(Effect::Unsubscribe { ticket, filters });
        Ok(())
    }

    /// The outside's answer to an UNSUBSCRIBE.
    pub(super) fn unsubscribe_answered(&mut self, ticket: Ticket, existed: &[bool], out: &mut Vec<Effect>) {
        let question = self.answered(ticket, |q| matches!(q, Question::Unsubscribe(..)));
        if let Some(Question::Unsubscribe(packet_id, answers)) = question {
            self.send_unsuback(packet_id, answers, existed, out);
        }
    }

    fn send_unsuback(&self, packet_id: PacketId, answers: Answers, existed: &[bool], out: &mut Vec<Effect>) {
        let mut existed = existed.iter();
        let mut decided = || match existed.next() {
            Some(true) => ReasonCode::Success,
            // HiveMQ always says Success; the specification has a code for it (MQTT 5 section 3.11.3).
            Some(false) => ReasonCode::NoSubscriptionExisted,
            None => ReasonCode::UnspecifiedError,
        };
        // [MQTT-3.11.3-1] [MQTT-3.11.3-2]
        let reason_codes: Vec<_> = answers.into_iter().map(|answer| answer.unwrap_or_else(&mut decided)).collect();
        let reason_string = reason_codes.iter().copied().find_map(failure_text);
        let unsuback = Unsuback { packet_id, reason_codes, reason_string, user_properties: UserProperties::new() };
        self.peer.send(Packet::Unsuback(Box::new(unsuback)), out);
    }
}
