//! The state of a running connection: what is shared by its roles, and which role a packet belongs to.

use std::collections::VecDeque;
use std::sync::Arc;

use bytestring::ByteString;

use super::authenticate::Enhanced;
use super::connect::Terms;
use super::effect::{Effect, End, Ticket};
use super::error::Offence;
use super::inbound::Inbound;
use super::keep_alive::KeepAlive;
use super::lifetime::Lifetime;
use super::machine::Now;
use super::outbound::Outbound;
use super::peer::Peer;
use super::seldom::Seldom;
use super::sent_alias::SentAliases;
use super::settings::SessionSettings;
use super::subscribe::Answers;
use super::topic_alias::TopicAliases;
use crate::auth::Principal;
use crate::mqtt::Packet;
use crate::mqtt::packet::PacketId;

/// Questions that may be open at once before reading stops. Enough to fill a replicated batch, small enough to bound what one
/// client can make the broker hold.
const OPEN_QUESTIONS_MAX: usize = 256;

/// A connection whose CONNACK said Success.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) settings: Arc<SessionSettings>,
    pub(super) peer: Peer,
    pub(super) client_id: ByteString,
    pub(super) principal: Arc<Principal>,
    /// `None`: the principal may stay.
    pub(super) lifetime: Option<Box<Lifetime>>,
    /// `None` without an Authentication Method.
    pub(super) enhanced: Option<Box<Enhanced>>,
    /// As CONNECT settled it; 0 ends the session with the connection.
    pub(super) session_expiry_interval_s: u32,
    pub(super) keep_alive: KeepAlive,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// Open questions other than publishes, oldest first.
    pub(super) questions: Seldom<VecDeque<(Ticket, Question)>>,
    last_ticket: u64,
}

/// What an open ticket was for.
#[derive(Debug)]
pub(super) enum Question {
    Release(PacketId),
    /// With the Reason String for what the client may not subscribe to.
    Subscribe(PacketId, Answers, Option<ByteString>),
    Unsubscribe(PacketId, Answers),
}

/// Whether the connection goes on after a packet.
#[derive(Debug)]
pub(super) enum Next {
    GoOn,
    /// The client said DISCONNECT.
    End(End),
}

impl Connected {
    pub(super) fn new(settings: Arc<SessionSettings>, terms: Terms, received: Vec<PacketId>, now: Now) -> Self {
        Self {
            peer: terms.peer,
            client_id: terms.client_id,
            lifetime: Lifetime::of(&terms.principal, now).map(Box::new),
            principal: terms.principal,
            enhanced: terms.method.map(|method| Box::new(Enhanced::new(method, terms.claimed_name))),
            session_expiry_interval_s: terms.session_expiry_interval_s,
            keep_alive: KeepAlive::new(terms.keep_alive_s, settings.keep_alive_multiplier_milli, now.mono_ms),
            inbound: Inbound::resume(received, TopicAliases::new(terms.topic_alias_max, &settings.alias_memory)),
            outbound: Outbound::new(terms.send_window, SentAliases::new(terms.sent_topic_alias_max, &settings.alias_memory)),
            questions: Seldom::default(),
            last_ticket: 0,
            settings,
        }
    }

    /// Whether few enough questions are open to take more packets.
    pub(super) fn has_room(&self) -> bool {
        self.inbound.awaited_len() + self.questions.len() < OPEN_QUESTIONS_MAX
    }

    /// Whether a PUBLISH must wait: a client that subscribes and then publishes finds its own message under its subscription, and
    /// none under what it unsubscribed from, also where it did not await the answer.
    pub(super) fn subscriptions_are_changing(&self) -> bool {
        self.questions.iter().any(|(_, q)| matches!(q, Question::Subscribe(..) | Question::Unsubscribe(..)))
    }

    /// Takes one packet.
    ///
    /// # Errors
    /// What the connection ends for.
    pub(super) fn handle(&mut self, packet: Packet, now: Now, out: &mut Vec<Effect>) -> Result<Next, Offence> {
        match packet {
            Packet::Publish(publish) => self.published(*publish, now, out)?,
            Packet::Pubrel(ack) => self.pubrel(ack.packet_id, out),
            Packet::Puback(ack) => self.outbound.puback(&ack, out),
            Packet::Pubrec(ack) => self.outbound.pubrec(&ack, &self.peer, out),
            Packet::Pubcomp(ack) => self.outbound.pubcomp(&ack, out),
            Packet::Subscribe(subscribe) => self.subscribe(*subscribe, out)?,
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(&unsubscribe, out)?,
            // [MQTT-3.12.4-1]
            Packet::Pingreq => _ = self.peer.send(Packet::Pingresp, out),
            Packet::Disconnect(disconnect) => return self.disconnected(&disconnect).map(Next::End),
            Packet::Auth(auth) => self.auth(*auth, now, out)?,
            // [MQTT-3.1.0-2]
            Packet::Connect(_) => return Err(Offence::SecondConnect),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => return Err(Offence::ServerPacket),
        }
        Ok(Next::GoOn)
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    /// Whether this connection ever asked with that ticket.
    pub(super) fn has_issued(&self, ticket: Ticket) -> bool {
        (1..=self.last_ticket).contains(&ticket.0)
    }

    pub(super) fn ask(&mut self, question: Question) -> Ticket {
        let ticket = self.next_ticket();
        self.questions.push_back((ticket, question));
        ticket
    }

    /// Takes the question of an answer out; `None` where none of that kind is open.
    pub(super) fn answered(&mut self, ticket: Ticket, kind: impl Fn(&Question) -> bool) -> Option<Question> {
        let questions = self.questions.existing()?;
        let index = questions.iter().position(|(t, q)| *t == ticket && kind(q))?;
        questions.remove(index).map(|(_, question)| question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        // A size that the allocator has; the next is 256.
        assert!(size_of::<Connected>() <= 224, "{}", size_of::<Connected>());
    }
}
