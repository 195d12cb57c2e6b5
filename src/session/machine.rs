//! The machine: its states, named by what they await, and its interface.

use std::collections::VecDeque;
use std::sync::Arc;

use super::authenticate::{Authentication, Exchanged};
use super::connect::{self, Terms};
use super::connected::{Connected, Next};
use super::effect::{Effect, End, Registered, Ticket};
use super::end;
use super::error::Offence;
use super::lifetime::Lifetime;
use super::peer::Peer;
use super::seldom::Seldom;
use super::settings::SessionSettings;
use crate::auth::{Refusal, Verdict};
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::Connect;
use crate::mqtt::{Delivery, Packet, ProtocolVersion, ReasonCode, Source};

/// Inputs that wait for their turn: for the registration, or for the answer to a SUBSCRIBE before a PUBLISH. A caller that obeys
/// `wants_input` never comes near it.
const BACKLOG_LEN_MAX: usize = 64;

/// The largest CONNECT, bytes: a stranger's memory is not a client's. All fields of their largest size together have less than 0.7 MB; the
/// rest is for User Properties, which have no size of their own.
const CONNECT_SIZE_MAX_BYTES: usize = 1024 * 1024;

/// Time as handed to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, milliseconds, any origin: for timers.
    pub mono_ms: u64,
    /// Wall clock, milliseconds since the epoch: to stamp messages.
    pub wall_ms: u64,
}

/// One connection's protocol state. After [`Effect::Close`] nothing more comes out of it.
#[derive(Debug)]
pub struct Machine {
    settings: Arc<SessionSettings>,
    /// Kept beside the state: what leaves last is encoded after the state is gone.
    protocol: Option<ProtocolVersion>,
    state: State,
    /// What came before its turn, in order.
    backlog: Seldom<VecDeque<Input>>,
}

#[derive(Debug)]
enum State {
    /// Monotonic ms; `None` waits for ever.
    AwaitConnect {
        deadline_ms: Option<u64>,
    },
    /// It is not known yet who the client is; its shard knows nothing of it.
    Authenticating(Box<Authentication>),
    AwaitRegistration(Box<Terms>),
    Connected(Box<Connected>),
    Closed,
}

/// What the peer did, in the order in which it did it.
#[derive(Debug)]
enum Input {
    Packet(Packet),
    Broken(DecodeError),
    StreamEnded,
}

impl Machine {
    /// A machine that awaits CONNECT.
    pub fn new(settings: Arc<SessionSettings>, now: Now) -> Self {
        let timeout_ms = settings.no_connect_idle_timeout_ms;
        let deadline_ms = (timeout_ms > 0).then(|| now.mono_ms.saturating_add(timeout_ms));
        Self { settings, protocol: None, state: State::AwaitConnect { deadline_ms }, backlog: Seldom::default() }
    }

    /// The version to encode and decode with, once CONNECT said it; stays after the end.
    pub fn protocol(&self) -> Option<ProtocolVersion> {
        self.protocol
    }

    /// The largest packet accepted from the peer now, bytes.
    pub fn max_packet_size_bytes(&self) -> usize {
        let max = self.settings.max_packet_size_bytes as usize;
        if matches!(self.state, State::AwaitConnect { .. }) { max.min(CONNECT_SIZE_MAX_BYTES) } else { max }
    }

    /// Whether `Effect::Close` was emitted.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether the next packet may be decoded and handed in, and the socket read. False while a plain login or the registration is awaited, while
    /// too many questions are open, while a PUBLISH waits for the SUBACK before it, and after the end. It changes with each
    /// packet and with each answer. While it is false the Keep Alive clock stands still, since the client is not heard.
    pub fn wants_input(&self) -> bool {
        match &self.state {
            State::AwaitConnect { .. } => true,
            // A client that may not speak is heard, or it would go unnoticed [MQTT-3.1.2-30].
            State::Authenticating(authentication) => authentication.is_exchange(),
            State::AwaitRegistration(terms) => terms.method.is_some() && self.backlog.is_empty(),
            State::Closed => false,
            State::Connected(connected) => self.backlog.is_empty() && connected.has_room(),
        }
    }

    /// Takes one packet. `assigned_id` makes the client id for a CONNECT with an empty one (the caller brings uniqueness; the machine
    /// has no randomness).
    pub fn handle_packet(&mut self, packet: Packet, assigned_id: &dyn Fn() -> String, now: Now, out: &mut Vec<Effect>) {
        if !matches!(self.state, State::AwaitConnect { .. }) {
            return self.handle_input(Input::Packet(packet), now, out);
        }
        match packet {
            Packet::Connect(connect) => self.handle_connect(*connect, assigned_id, now, out),
            // [MQTT-3.1.0-1]
            _ => self.close(out),
        }
    }

    /// Any bytes arrived, also a part of a packet: restarts the keep-alive clock (spec/hivemq.md 9.4).
    pub fn handle_bytes(&mut self, now: Now) {
        if let State::Connected(connected) = &mut self.state {
            connected.keep_alive.restart(now.mono_ms);
        }
    }

    /// The broker does not read for the moment, for a reason of its own, and the peer may have spoken: restarts the keep-alive clock.
    pub fn handle_unheard(&mut self, now: Now) {
        self.handle_bytes(now);
    }

    /// The broker did not read for so long, by its own choice: the Keep Alive clock stood still (spec/hivemq.md 9.10).
    pub fn handle_pause(&mut self, paused_ms: u64) {
        if let State::Connected(connected) = &mut self.state {
            connected.keep_alive.pause(paused_ms);
        }
    }

    /// The peer sent what is no packet. `connect_version` is the version of a broken CONNECT as far as it could be read; it is
    /// not looked at once a CONNECT was taken. What a refusal is to be encoded in is then `protocol`.
    pub fn handle_decode_error(
        &mut self,
        error: &DecodeError,
        connect_version: Option<ProtocolVersion>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        if !matches!(self.state, State::AwaitConnect { .. }) {
            return self.handle_input(Input::Broken(error.clone()), now, out);
        }
        match (connect::version_to_refuse_in(error, connect_version), error.reason_code()) {
            (Some(version), Some(code)) => {
                self.protocol = Some(version);
                self.state = State::Closed;
                connect::refuse(&Peer::unknown(version), code, &error.to_string(), out);
            }
            _ => self.close(out),
        }
    }

    /// The peer closed, or the socket failed, and everything decodable was handed in. What waits for its turn keeps it: the end
    /// may come only with a later answer, so the machine is kept until `Effect::Close`.
    pub fn handle_closed(&mut self, now: Now, out: &mut Vec<Effect>) {
        match self.state {
            State::AwaitConnect { .. } => self.close(out),
            _ => self.handle_input(Input::StreamEnded, now, out),
        }
    }

    /// The broker ends the connection at once: takeover (0x8E), administrative (0x98), shutdown (0x8B), lost shard (0x88) and so on.
    /// For a takeover and a lost incarnation the shard already knows: then no `Effect::End` is emitted (`tell_shard` false), nor is one of a
    /// client that was not let in yet.
    /// While the registration is awaited, `Effect::End` follows a `Register` that may still be refused.
    pub fn disconnect(&mut self, code: ReasonCode, reason: &str, tell_shard: bool, _now: Now, out: &mut Vec<Effect>) {
        self.backlog.clear();
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => {}
            State::AwaitConnect { .. } => out.push(Effect::Close),
            State::Authenticating(authentication) => self.refuse(&authentication.terms.peer, code, reason, out),
            State::AwaitRegistration(terms) => {
                if tell_shard {
                    out.push(Effect::End(end::by_server(code)));
                }
                // No DISCONNECT before CONNACK [MQTT-3.14.0-1].
                connect::refuse_towards(&terms.peer, self.settings.redirect_connect(code), reason, out);
            }
            State::Connected(connected) => {
                end::send_disconnect(&connected.peer, self.settings.redirect_disconnect(code), reason, out);
                if tell_shard {
                    out.push(Effect::End(end::by_server(code)));
                }
                out.push(Effect::Close);
            }
        }
    }

    /// Answer to `Effect::Authenticate`; one that nobody waits for changes nothing.
    pub fn handle_authenticated(&mut self, verdict: Verdict, now: Now, out: &mut Vec<Effect>) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Authenticating(authentication) if authentication.is_asking() => {
                self.judged(*authentication, verdict, now, out);
            }
            other => {
                self.state = other;
                self.answer(now, out, |connected, out| connected.authenticated(verdict, now, out));
            }
        }
    }

    /// Answer to `Effect::Register`: the session, or the code CONNACK refuses with.
    pub fn handle_registered(&mut self, verdict: Result<Registered, ReasonCode>, now: Now, out: &mut Vec<Effect>) {
        let mut terms = match std::mem::replace(&mut self.state, State::Closed) {
            State::AwaitRegistration(terms) => terms,
            other => {
                self.state = other;
                return;
            }
        };
        let registered = match verdict {
            Ok(registered) => registered,
            Err(code) => {
                self.backlog.clear();
                // [MQTT-3.1.4-6]
                return connect::refuse_towards(&terms.peer, self.settings.redirect_connect(code), code.name(), out);
            }
        };
        let connack = std::mem::take(&mut terms.connack);
        if !connect::accept(&terms.peer, registered.session_present, connack, out) {
            // Whatever the client was to be told does not fit what it takes: it would never know that it is connected.
            return self.finish(end::by_server(ReasonCode::PacketTooLarge), out);
        }
        // [MQTT-3.2.2-4]: without a session there is nothing to resume.
        let received = if registered.session_present { registered.received_packet_ids } else { Vec::new() };
        let connected = Connected::new(Arc::clone(&self.settings), *terms, received, now);
        self.state = State::Connected(Box::new(connected));
        self.drain_backlog(now, out);
    }

    /// The registration that is awaited may have taken effect or not: the client is told nothing, as if the broker had failed.
    pub fn registration_unknown(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.state, State::AwaitRegistration(_)) {
            self.close(out);
        }
    }

    /// Answer to `Effect::Publish`: Success, NoMatchingSubscribers, or a failure. Acknowledgements leave in the order the
    /// messages came [MQTT-4.6.0-2]. A failure ends a connection of MQTT 3, and NotAuthorized that of any version.
    pub fn handle_published(&mut self, ticket: Ticket, code: ReasonCode, now: Now, out: &mut Vec<Effect>) {
        self.answer(now, out, |connected, out| connected.publish_answered(ticket, code, out));
    }

    /// Answer to `Effect::Release`.
    pub fn handle_released(&mut self, ticket: Ticket, now: Now, out: &mut Vec<Effect>) {
        self.answer(now, out, |connected, out| {
            connected.release_answered(ticket, out);
            Ok(())
        });
    }

    /// Answer to `Effect::Subscribe`: one code for each subscription of the effect (a granted QoS or a failure).
    pub fn handle_subscribed(&mut self, ticket: Ticket, codes: &[ReasonCode], now: Now, out: &mut Vec<Effect>) {
        self.answer(now, out, |connected, out| connected.subscribe_answered(ticket, codes, out));
    }

    /// Answer to `Effect::Unsubscribe`: whether each filter had a subscription.
    pub fn handle_unsubscribed(&mut self, ticket: Ticket, existed: &[bool], now: Now, out: &mut Vec<Effect>) {
        self.answer(now, out, |connected, out| {
            connected.unsubscribe_answered(ticket, existed, out);
            Ok(())
        });
    }

    /// The step `Received` of a delivery is stored: PUBREL may go.
    pub fn handle_acknowledged(&mut self, source: &Source, _now: Now, out: &mut Vec<Effect>) {
        if let State::Connected(connected) = &mut self.state {
            connected.outbound.received_stored(source, &connected.peer, out);
        }
    }

    /// Messages of QoS above 0 that may be sent now (send quota, MQTT 5 section 4.9, and `max_inflight`); 0 unless connected.
    pub fn send_quota(&self) -> usize {
        match &self.state {
            State::Connected(connected) => connected.outbound.send_quota(),
            State::AwaitConnect { .. } | State::Authenticating(_) | State::AwaitRegistration(_) | State::Closed => 0,
        }
    }

    /// Sends a message; the caller asked `send_quota` for QoS above 0. False, with nothing emitted, where the Packet Identifier
    /// of a `Source::Queue` is still in use, or the quota is 0: try again after an acknowledgement. False also unless connected.
    #[must_use]
    pub fn deliver(&mut self, delivery: Delivery, now: Now, out: &mut Vec<Effect>) -> bool {
        match &mut self.state {
            State::Connected(connected) => connected.outbound.deliver(delivery, &connected.peer, now, out),
            State::AwaitConnect { .. } | State::Authenticating(_) | State::AwaitRegistration(_) | State::Closed => false,
        }
    }

    /// A resumed session's queue entry whose PUBREC is stored: sends PUBREL again [MQTT-4.4.0-1]. It takes its place in the
    /// window like a message.
    pub fn resume_release(&mut self, seq: u64, _now: Now, out: &mut Vec<Effect>) {
        if let State::Connected(connected) = &mut self.state {
            connected.outbound.resume_release(seq, &connected.peer, out);
        }
    }

    /// When `handle_timeout` is due next, monotonic ms; `None` never.
    pub fn next_timeout(&self) -> Option<u64> {
        match &self.state {
            State::AwaitConnect { deadline_ms } => *deadline_ms,
            State::Authenticating(authentication) => Some(authentication.deadline_ms),
            State::Connected(connected) => {
                let keep_alive = if self.wants_input() { connected.keep_alive.deadline_ms() } else { None };
                let authentication = connected.enhanced.as_ref().and_then(|enhanced| enhanced.deadline_ms());
                let lifetime = connected.lifetime.as_deref().copied().map(Lifetime::deadline_ms);
                keep_alive.into_iter().chain(authentication).chain(lifetime).min()
            }
            State::AwaitRegistration(_) | State::Closed => None,
        }
    }

    /// A timer ran out: no CONNECT in time, authentication, keep alive, expiry. Nothing happens before `next_timeout`.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.next_timeout().is_none_or(|due| now.mono_ms < due) {
            return;
        }
        let hears = self.wants_input();
        match &mut self.state {
            State::Authenticating(_) => self.offend(Offence::AuthenticationTimeout, now, out),
            State::Connected(connected) => {
                let authentication = connected.enhanced.as_ref().and_then(|enhanced| enhanced.deadline_ms());
                let is_due = |due: Option<u64>| due.is_some_and(|due| due <= now.mono_ms);
                let offence = if is_due(authentication) {
                    Offence::AuthenticationTimeout
                } else if hears && is_due(connected.keep_alive.deadline_ms()) {
                    Offence::KeepAliveTimeout
                } else if connected.lifetime.as_ref().is_some_and(|lifetime| lifetime.is_over(now)) {
                    Offence::ProofExpired
                } else {
                    if let Some(lifetime) = &mut connected.lifetime {
                        **lifetime = lifetime.looked_at(now);
                    }
                    return;
                };
                self.offend(offence, now, out);
            }
            State::AwaitConnect { .. } | State::AwaitRegistration(_) | State::Closed => self.close(out),
        }
    }

    fn handle_connect(&mut self, mut connect: Connect, assigned_id: &dyn Fn() -> String, now: Now, out: &mut Vec<Effect>) {
        self.protocol = Some(connect.protocol);
        let peer = Peer::new(&connect, &self.settings);
        let (password, data) = (connect.password.take(), connect.properties.authentication_data.take());
        match connect::negotiate(connect, peer, &self.settings, assigned_id, now.wall_ms) {
            Ok((terms, registration)) => {
                let authentication = Authentication::begin(terms, registration, password, data, now, out);
                self.state = State::Authenticating(Box::new(authentication));
            }
            Err(offence) => {
                self.state = State::Closed;
                let refusal = self.settings.redirect_connect(offence.reason_code());
                connect::refuse_towards(&peer, refusal, &offence.to_string(), out);
            }
        }
    }

    /// The outside's answer about a CONNECT.
    fn judged(&mut self, mut authentication: Authentication, verdict: Verdict, now: Now, out: &mut Vec<Effect>) {
        let peer = authentication.terms.peer;
        match verdict {
            Verdict::Accept { principal, data } => match authentication.accept(principal, data) {
                Ok((terms, registration)) => {
                    self.state = State::AwaitRegistration(Box::new(terms));
                    out.push(Effect::Register(Box::new(registration)));
                }
                Err(offence) => self.refuse(&peer, offence.reason_code(), &offence.to_string(), out),
            },
            // [MQTT-4.12.0-4]
            Verdict::Refuse(Refusal { code, reason }) => self.refuse(&peer, code, reason, out),
            Verdict::Continue { data } => {
                let challenged = authentication.challenge(data, out);
                self.state = State::Authenticating(Box::new(authentication));
                if let Err(offence) = challenged {
                    self.offend(offence, now, out);
                }
            }
        }
    }

    /// Refuses a CONNECT, and what came behind it [MQTT-3.1.4-6].
    fn refuse(&mut self, peer: &Peer, code: ReasonCode, reason: &str, out: &mut Vec<Effect>) {
        self.backlog.clear();
        self.state = State::Closed;
        connect::refuse_towards(peer, self.settings.redirect_connect(code), reason, out);
    }

    /// Takes what a client with an Authentication Method did before CONNACK.
    fn handle_exchange(&mut self, input: Input, now: Now, out: &mut Vec<Effect>) {
        let State::Authenticating(authentication) = &mut self.state else { return };
        match input {
            Input::Packet(packet) => match authentication.handle(packet, out) {
                Ok(Exchanged::GoOn) => {}
                Ok(Exchanged::Left) => self.close(out),
                Err(offence) => self.offend(offence, now, out),
            },
            Input::Broken(error) => match error.reason_code() {
                Some(code) => self.disconnect(code, &error.to_string(), false, now, out),
                None => self.close(out),
            },
            Input::StreamEnded => self.close(out),
        }
    }

    /// Takes what the peer did after CONNECT, now or when its turn comes.
    fn handle_input(&mut self, input: Input, now: Now, out: &mut Vec<Effect>) {
        let waits = match &self.state {
            State::AwaitConnect { .. } | State::Closed => return,
            State::Authenticating(authentication) if authentication.is_exchange() => {
                return self.handle_exchange(input, now, out);
            }
            State::Authenticating(_) => true,
            State::AwaitRegistration(terms) if terms.method.is_some() => match &input {
                Input::Packet(Packet::Disconnect(_)) | Input::Broken(_) | Input::StreamEnded => true,
                // [MQTT-3.1.2-30]
                Input::Packet(_) => return self.offend(Offence::PacketBeforeConnack, now, out),
            },
            State::AwaitRegistration(_) => true,
            State::Connected(connected) => match &input {
                // The client's side of deliveries stands apart from what it asks for.
                Input::Packet(Packet::Puback(_) | Packet::Pubrec(_) | Packet::Pubcomp(_) | Packet::Pingreq) => false,
                Input::Packet(Packet::Publish(_)) if connected.subscriptions_are_changing() => true,
                Input::Packet(_) | Input::Broken(_) | Input::StreamEnded => !self.backlog.is_empty(),
            },
        };
        if !waits {
            return self.process(input, now, out);
        }
        if self.backlog.len() >= BACKLOG_LEN_MAX && matches!(input, Input::Packet(_)) {
            return self.offend(Offence::BacklogFull, now, out);
        }
        self.backlog.push_back(input);
    }

    /// Takes what waited, as far as its turn has come.
    fn drain_backlog(&mut self, now: Now, out: &mut Vec<Effect>) {
        loop {
            let State::Connected(connected) = &self.state else {
                self.backlog.clear();
                return;
            };
            let publish_is_next = matches!(self.backlog.front(), Some(Input::Packet(Packet::Publish(_))));
            if publish_is_next && connected.subscriptions_are_changing() {
                return;
            }
            let Some(input) = self.backlog.existing().and_then(VecDeque::pop_front) else {
                self.backlog.clear();
                return;
            };
            self.process(input, now, out);
        }
    }

    fn process(&mut self, input: Input, now: Now, out: &mut Vec<Effect>) {
        let State::Connected(connected) = &mut self.state else { return };
        match input {
            Input::Packet(packet) => match connected.handle(packet, now, out) {
                Ok(Next::GoOn) => {}
                Ok(Next::End(end)) => self.finish(end, out),
                Err(offence) => self.offend(offence, now, out),
            },
            Input::StreamEnded => self.finish(end::lost(), out),
            // A CONNECT too, the second one [MQTT-3.1.0-2]; and DISCONNECT has no code for a version.
            Input::Broken(DecodeError::UnsupportedProtocolVersion { .. }) => self.offend(Offence::SecondConnect, now, out),
            Input::Broken(error) => match error.reason_code() {
                Some(code) => self.disconnect(code, &error.to_string(), true, now, out),
                // Closed without DISCONNECT (spec/hivemq.md 9.8), recorded all the same.
                None => self.finish(end::by_server(ReasonCode::MalformedPacket), out),
            },
        }
    }

    /// Takes an answer from the outside, and what waited for it.
    fn answer(
        &mut self,
        now: Now,
        out: &mut Vec<Effect>,
        take: impl FnOnce(&mut Connected, &mut Vec<Effect>) -> Result<(), Offence>,
    ) {
        let wanted_input = self.wants_input();
        let State::Connected(connected) = &mut self.state else { return };
        match take(connected, out) {
            Ok(()) => self.drain_backlog(now, out),
            Err(offence) => self.offend(offence, now, out),
        }
        if !wanted_input && self.wants_input() {
            // The client was not heard because nobody listened (spec/hivemq.md 9.10).
            self.handle_bytes(now);
        }
    }

    fn offend(&mut self, offence: Offence, now: Now, out: &mut Vec<Effect>) {
        self.disconnect(offence.reason_code(), &offence.to_string(), true, now, out);
    }

    fn finish(&mut self, end: End, out: &mut Vec<Effect>) {
        out.push(Effect::End(end));
        self.close(out);
    }

    /// Called once, by what ends the connection.
    fn close(&mut self, out: &mut Vec<Effect>) {
        self.backlog.clear();
        self.state = State::Closed;
        out.push(Effect::Close);
    }
}
