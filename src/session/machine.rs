//! The machine: skeleton of its interface.

use std::sync::Arc;

use crate::mqtt::codec::DecodeError;
use crate::mqtt::{Delivery, Packet, ProtocolVersion, ReasonCode, Source};

use super::effect::{Effect, Registered, Ticket};
use super::settings::SessionSettings;

/// Time as handed to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, milliseconds, any origin: for timers.
    pub mono_ms: u64,
    /// Wall clock, milliseconds since the epoch: to stamp messages.
    pub wall_ms: u64,
}

/// One connection's protocol state.
#[derive(Debug)]
pub struct Machine {
    _settings: Arc<SessionSettings>,
}

impl Machine {
    /// A machine that awaits CONNECT. `assigned_id` makes the client id where the client sends none (the caller brings
    /// uniqueness; the machine has no randomness).
    pub fn new(settings: Arc<SessionSettings>, _now: Now) -> Self {
        Self { _settings: settings }
    }

    /// The version once CONNECT said it.
    pub fn protocol(&self) -> Option<ProtocolVersion> {
        None
    }

    /// The largest packet accepted from the peer now, bytes.
    pub fn max_packet_size_bytes(&self) -> usize {
        0
    }

    /// Takes one packet. `assigned_id` is used only for a CONNECT with an empty client id.
    pub fn handle_packet(&mut self, _packet: Packet, _assigned_id: &dyn Fn() -> String, _now: Now, _out: &mut Vec<Effect>) {}

    /// Any bytes arrived, also a part of a packet: restarts the keep-alive clock (spec/hivemq.md 9.4).
    pub fn handle_bytes(&mut self, _now: Now) {}

    /// The peer sent what is no packet.
    pub fn handle_decode_error(&mut self, _error: &DecodeError, _now: Now, _out: &mut Vec<Effect>) {}

    /// The peer closed, or the socket failed.
    pub fn handle_closed(&mut self, _now: Now, _out: &mut Vec<Effect>) {}

    /// The broker ends the connection: takeover (0x8E), administrative (0x98), shutdown (0x8B), lost shard (0x88) and so on.
    /// For a takeover and a lost incarnation the shard already knows: then no `Effect::End` is emitted (`tell_shard` false).
    pub fn disconnect(&mut self, _code: ReasonCode, _reason: &str, _tell_shard: bool, _now: Now, _out: &mut Vec<Effect>) {}

    /// Answer to `Effect::Register`: the session, or the code CONNACK refuses with.
    pub fn handle_registered(&mut self, _verdict: Result<Registered, ReasonCode>, _now: Now, _out: &mut Vec<Effect>) {}

    /// Answer to `Effect::Publish`: Success, NoMatchingSubscribers, or a failure. Acknowledgements leave in the order the
    /// messages came [MQTT-4.6.0-2].
    pub fn handle_published(&mut self, _ticket: Ticket, _code: ReasonCode, _now: Now, _out: &mut Vec<Effect>) {}

    /// Answer to `Effect::Release`.
    pub fn handle_released(&mut self, _ticket: Ticket, _now: Now, _out: &mut Vec<Effect>) {}

    /// Answer to `Effect::Subscribe`: one code for each subscription of the effect (a granted QoS or a failure).
    pub fn handle_subscribed(&mut self, _ticket: Ticket, _codes: &[ReasonCode], _now: Now, _out: &mut Vec<Effect>) {}

    /// Answer to `Effect::Unsubscribe`: whether each filter had a subscription.
    pub fn handle_unsubscribed(&mut self, _ticket: Ticket, _existed: &[bool], _now: Now, _out: &mut Vec<Effect>) {}

    /// The step `Received` of a delivery is stored: PUBREL may go.
    pub fn handle_acknowledged(&mut self, _source: &Source, _now: Now, _out: &mut Vec<Effect>) {}

    /// Messages of QoS above 0 that may be sent now (send quota, MQTT 5 section 4.9, and `max_inflight`); 0 unless connected.
    pub fn send_quota(&self) -> usize {
        0
    }

    /// Sends a message; the caller asked `send_quota` for QoS above 0. False, with nothing emitted, where the Packet Identifier
    /// of a `Source::Queue` is still in use: try again after an acknowledgement.
    #[must_use]
    pub fn deliver(&mut self, _delivery: Delivery, _now: Now, _out: &mut Vec<Effect>) -> bool {
        false
    }

    /// A resumed session's queue entry whose PUBREC is stored: sends PUBREL again [MQTT-4.4.0-1].
    pub fn resume_release(&mut self, _seq: u64, _now: Now, _out: &mut Vec<Effect>) {}

    /// When `handle_timeout` is due next, monotonic ms; `None` never.
    pub fn next_timeout(&self) -> Option<u64> {
        None
    }

    /// A timer ran out: no CONNECT in time, keep alive.
    pub fn handle_timeout(&mut self, _now: Now, _out: &mut Vec<Effect>) {}
}
