//! A session machine whose client, shard, queue and clock do whatever they like. `observer` knows what it promises all the same.

mod input;
mod login;
mod observer;

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;

use super::Draw;
use crate::auth::Verdict;
use crate::broker::settings;
use crate::config::embedded_default;
use crate::mqtt::codec::{DecodeError, Frame, connect_version, decode};
use crate::mqtt::packet::{Packet, PacketId};
use crate::mqtt::{Delivery, QoS, ReasonCode, Source};
use crate::session::{
    AliasMemory, Effect, KeepAlivePolicy, Machine, Now, RefuseConnections, Registered, ServerReference, SessionSettings,
};
use observer::{Observer, Question};

const STEPS_MAX: usize = 400;
/// spec/hivemq.md 9.1
const AUTHENTICATION_MS_MAX: u64 = 30_000;
/// What the outside answers a PUBLISH and a SUBSCRIBE with.
const PUBLISH_CODES: [ReasonCode; 5] = [
    ReasonCode::Success,
    ReasonCode::Success,
    ReasonCode::NoMatchingSubscribers,
    ReasonCode::QuotaExceeded,
    ReasonCode::NotAuthorized,
];
const SUBSCRIBE_CODES: [ReasonCode; 5] =
    [ReasonCode::Success, ReasonCode::GrantedQoS1, ReasonCode::GrantedQoS2, ReasonCode::QuotaExceeded, ReasonCode::NotAuthorized];

pub fn session(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut run = Run::new(&mut draw);
    for _ in 0..STEPS_MAX {
        if draw.is_done() {
            break;
        }
        run.step(&mut draw);
    }
    run.comes_to_its_end();
}

/// A machine with its surroundings.
struct Run {
    machine: Machine,
    now: Now,
    observer: Observer,
    /// Packets are handed in only while they are wanted, as the machine asks its caller to.
    obedient: bool,
    assigned: Cell<u32>,
}

impl Run {
    fn new(draw: &mut Draw<'_>) -> Self {
        let (settings, obedient) = (settings_of(draw), draw.flag());
        let now = Now { mono_ms: 5_000, wall_ms: 1_700_000_000_000 };
        let observer = Observer::new(settings.clone(), obedient);
        Self { machine: Machine::new(Arc::new(settings), now), now, observer, obedient, assigned: Cell::new(0) }
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        let choice = draw.byte();
        match choice {
            232..=247 => return self.judge(&login::verdict(draw, self.now.wall_ms)),
            248..=252 => {
                if let Some(packet) = input::auth(draw, &self.observer) {
                    self.hand_in(packet);
                }
                return;
            }
            253.. => return self.do_not_read(draw),
            _ => {}
        }
        match choice % 24 {
            // Whatever packet the decoder makes of bytes.
            0..=2 => {
                let bytes = draw.bytes();
                self.hand_in(Bytes::copy_from_slice(bytes));
            }
            3..=12 => {
                if let Some(packet) = input::packet(draw, self.machine.protocol(), &self.observer) {
                    self.hand_in(packet);
                }
            }
            13..=15 => self.answer(draw),
            16 => self.register(draw),
            17 | 18 => self.deliver(draw),
            19 => self.stored(draw),
            20 => {
                let seq = draw.pick(&[1, 2, 3, 32_768, 32_769, u64::MAX]);
                // Asked for once.
                if !self.observer.is_in_flight(&Source::Queue { seq }) {
                    self.observer.will_resume(Some(seq));
                    let effects = self.run(|machine, now, out| machine.resume_release(seq, now, out));
                    assert!(effects.iter().all(|effect| matches!(effect, Effect::Send(Packet::Pubrel(_)))) && effects.len() <= 1);
                    self.observer.will_resume(None);
                }
            }
            21 => self.pass_time(draw),
            22 => self.wrong_answers(draw),
            _ => match draw.below(4) {
                0 => _ = self.run(Machine::handle_closed),
                1 => {
                    let tell_shard = draw.flag();
                    self.observer.will_end_by_server(tell_shard);
                    let code = draw.pick(&[
                        ReasonCode::AdministrativeAction,
                        ReasonCode::SessionTakenOver,
                        ReasonCode::ServerShuttingDown,
                    ]);
                    self.run(|machine, now, out| machine.disconnect(code, "reason", tell_shard, now, out));
                }
                2 => self.machine.handle_bytes(self.now),
                _ => {
                    let error = draw.pick(&[0, 1, 2]);
                    let error = match error {
                        0 => DecodeError::RemainingLength,
                        1 => DecodeError::PacketTooLarge { size: 1 << 20, max: 1 << 10 },
                        _ => DecodeError::UnsupportedProtocolVersion { name: draw.text(), level: draw.byte() },
                    };
                    if !self.obedient || self.machine.wants_input() {
                        self.run(|machine, now, out| machine.handle_decode_error(&error, None, now, out));
                    }
                }
            },
        }
    }

    /// Does as a connection does with a packet, given its first byte and its body.
    fn hand_in(&mut self, bytes: Bytes) {
        if bytes.is_empty() || (self.obedient && !self.machine.wants_input()) {
            return;
        }
        let (frame, bytes) = framed(&bytes);
        match decode(frame, bytes.clone(), self.machine.protocol()) {
            // Nothing is in flight then. An observer cannot tell for what it counts once its turn has come.
            Ok(Packet::Puback(_) | Packet::Pubrec(_) | Packet::Pubcomp(_)) if self.observer.is_held_back() => {}
            Ok(packet) => {
                self.observer.hand_in(&packet, self.machine.is_closed());
                let number = self.assigned.get();
                let assigned_id = || {
                    self.assigned.set(self.assigned.get() + 1);
                    format!("assigned-{}", self.assigned.get())
                };
                let mut out = Vec::new();
                self.machine.handle_packet(packet, &assigned_id, self.now, &mut out);
                assert!(self.assigned.get() - number <= 1);
                self.look_at(&out);
            }
            Err(error) => {
                let version = connect_version(&bytes);
                self.run(|machine, now, out| machine.handle_decode_error(&error, version, now, out));
            }
        }
    }

    fn answer(&mut self, draw: &mut Draw<'_>) {
        let open = self.observer.open.len();
        if open == 0 {
            return;
        }
        let (ticket, question) = self.observer.open.remove(draw.below(open.min(256)));
        let choice = draw.byte();
        let code = Draw::new(&[choice]).pick(&PUBLISH_CODES);
        match question {
            Question::Publish(_) => self.run(|machine, now, out| machine.handle_published(ticket, code, now, out)),
            Question::Release => self.run(|machine, now, out| machine.handle_released(ticket, now, out)),
            Question::Subscribe(len) => {
                // Fewer than asked for, too.
                let code = Draw::new(&[choice]).pick(&SUBSCRIBE_CODES);
                let codes = vec![code; len - usize::from(draw.byte() == 7)];
                self.run(|machine, now, out| machine.handle_subscribed(ticket, &codes, now, out))
            }
            Question::Unsubscribe(len) => {
                let existed = vec![!code.is_error(); len];
                self.run(|machine, now, out| machine.handle_unsubscribed(ticket, &existed, now, out))
            }
        };
    }

    /// Answers that nobody asked for change nothing.
    fn wrong_answers(&mut self, draw: &mut Draw<'_>) {
        let ticket = self.observer.a_ticket_not_open(u64::from(draw.byte()));
        let mut out = Vec::new();
        let now = self.now;
        self.machine.handle_published(ticket, ReasonCode::Success, now, &mut out);
        self.machine.handle_released(ticket, now, &mut out);
        self.machine.handle_subscribed(ticket, &[ReasonCode::Success], now, &mut out);
        self.machine.handle_unsubscribed(ticket, &[true], now, &mut out);
        assert!(out.is_empty(), "{out:?}");
    }

    /// Hands in a verdict, asked for or not.
    fn judge(&mut self, verdict: &Verdict) {
        let asked = self.observer.is_judging();
        self.observer.see_verdict(verdict);
        let effects = self.run(|machine, now, out| machine.handle_authenticated(verdict.clone(), now, out));
        assert_eq!(effects.is_empty(), !asked);
        self.observer.verdict_was_followed();
    }

    /// The broker turns away from the client for a while, which is given no less time for that.
    fn do_not_read(&mut self, draw: &mut Draw<'_>) {
        let before = self.machine.next_timeout();
        let ms = u64::from(draw.byte()) * 200;
        self.advance(ms);
        if draw.flag() {
            self.machine.handle_unheard(self.now);
        } else {
            self.machine.handle_pause(ms);
        }
        let after = self.machine.next_timeout();
        assert!(after.is_some() == before.is_some() && after >= before);
        self.time_is_up();
    }

    fn register(&mut self, draw: &mut Draw<'_>) {
        if self.observer.is_held_back() && self.observer.is_judging() {
            self.judge(&login::accepted());
        }
        let verdict = match draw.byte() {
            0..=39 => Err(draw.pick(&[ReasonCode::ServerUnavailable, ReasonCode::NotAuthorized, ReasonCode::QuotaExceeded])),
            byte => {
                let ids = (0..byte & 3).filter_map(|_| PacketId::new(u16::from(draw.byte()) % 8));
                Ok(Registered { session_present: byte & 4 != 0, received_packet_ids: ids.collect() })
            }
        };
        self.observer.see_registered(&verdict);
        self.run(|machine, now, out| machine.handle_registered(verdict, now, out));
    }

    fn deliver(&mut self, draw: &mut Draw<'_>) {
        let delivery = input::delivery(draw, self.now.wall_ms);
        // A caller hands an entry out once.
        if delivery.source != Source::Local && self.observer.is_in_flight(&delivery.source) {
            return;
        }
        let quota = self.machine.send_quota();
        let mut out = Vec::new();
        let taken = self.machine.deliver(delivery.clone(), self.now, &mut out);
        assert_eq!(taken, !out.is_empty());
        assert!(delivery.qos == QoS::AtMostOnce || quota > 0 || !taken || is_over(&out));
        self.observer.see_delivery(&delivery, &out, self.now.wall_ms);
        self.look_at(&out);
    }

    /// A step is stored that was reported, or one that was not.
    fn stored(&mut self, draw: &mut Draw<'_>) {
        let source = match self.observer.storing.len() {
            0 => Source::Queue { seq: u64::from(draw.byte()) },
            len => self.observer.storing.remove(draw.below(len)),
        };
        self.observer.note_stored(&source);
        self.run(|machine, now, out| machine.handle_acknowledged(&source, now, out));
    }

    fn pass_time(&mut self, draw: &mut Draw<'_>) {
        let ms = match draw.byte() {
            few @ 0..=99 => u64::from(few) * 500,
            _ => u64::from(draw.u16()),
        };
        self.advance(ms);
        self.time_is_up();
    }

    fn advance(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms;
    }

    fn time_is_up(&mut self) {
        let is_due = self.machine.next_timeout().is_some_and(|due_ms| due_ms <= self.now.mono_ms);
        let effects = self.run(Machine::handle_timeout);
        assert_eq!(effects.is_empty(), !is_due);
        assert!(!is_due || self.machine.is_closed());
        assert!(self.machine.is_closed() || !self.observer.has_expired(self.now.wall_ms));
    }

    fn run(&mut self, act: impl FnOnce(&mut Machine, Now, &mut Vec<Effect>)) -> Vec<Effect> {
        let mut out = Vec::new();
        act(&mut self.machine, self.now, &mut out);
        self.look_at(&out);
        out
    }

    fn look_at(&mut self, effects: &[Effect]) {
        let (machine, observer) = (&self.machine, &mut self.observer);
        observer.see(machine.protocol(), effects);
        assert_eq!(machine.is_closed(), observer.is_closed());
        if machine.is_closed() {
            assert!(!machine.wants_input() && machine.next_timeout().is_none() && machine.send_quota() == 0);
        } else {
            assert_eq!(machine.send_quota(), observer.quota_left());
            // Who logs in is done in time, or out.
            let latest_ms = self.now.mono_ms + AUTHENTICATION_MS_MAX;
            assert!(!observer.is_authenticating() || machine.next_timeout().is_some_and(|due_ms| due_ms <= latest_ms));
        }
    }

    /// A caller that answers everything sees the end.
    fn comes_to_its_end(&mut self) {
        self.run(Machine::handle_closed);
        if self.observer.is_judging() {
            self.judge(&login::accepted());
        }
        let verdict = Ok(Registered::default());
        if !self.machine.is_closed() {
            self.observer.see_registered(&verdict);
            self.run(|machine, now, out| machine.handle_registered(verdict, now, out));
        }
        // Each answer may let through what asks again.
        let mut answers = Draw::new(&[]);
        for _ in 0..10 * STEPS_MAX {
            if self.machine.is_closed() {
                break;
            }
            assert!(!self.observer.open.is_empty(), "it waits for nothing");
            self.answer(&mut answers);
        }
        assert!(self.machine.is_closed());
        self.observer.is_content();
    }
}

/// The bytes with a length that fits.
fn framed(bytes: &[u8]) -> (Frame, Bytes) {
    let (first, body) = bytes.split_at(1);
    let (low, high) = ((body.len() & 0x7F) as u8, (body.len() >> 7) as u8);
    let length = if high == 0 { vec![low] } else { vec![low | 0x80, high] };
    let header_len = 1 + length.len();
    (Frame { first_byte: first[0], header_len, remaining_len: body.len() }, [first, &length, body].concat().into())
}

/// A delivery that ended without being sent needs no quota.
fn is_over(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Expired { .. }])
}

/// The defaults, or narrow limits.
fn settings_of(draw: &mut Draw<'_>) -> SessionSettings {
    static DEFAULTS: LazyLock<SessionSettings> = LazyLock::new(|| {
        embedded_default().map(|loaded| settings::session(&loaded.settings)).expect("the built-in configuration")
    });
    // The account of memory is this run's.
    let memory = |soft_limit_bytes| AliasMemory::new(soft_limit_bytes, usize::MAX);
    let defaults = SessionSettings { alias_memory: memory(usize::MAX), ..DEFAULTS.clone() };
    let flags = draw.byte();
    if flags == 0 {
        return defaults;
    }
    let mut narrow = SessionSettings {
        session_expiry_max_s: draw.pick(&[u32::MAX, 0, 60]),
        message_expiry_max_s: draw.pick(&[None, Some(0), Some(10)]),
        server_receive_maximum: draw.pick(&[10, 1, 3, u16::MAX]),
        topic_alias_max: draw.pick(&[5, 0, u16::MAX]),
        subscription_identifiers: flags & 1 == 0,
        wildcard_subscriptions: flags & 2 == 0,
        shared_subscriptions: flags & 4 == 0,
        retained_messages: flags & 8 == 0,
        allow_empty_client_id: flags & 16 == 0,
        payload_format_validation: flags & 32 != 0,
        allow_request_problem_information: flags & 64 == 0,
        max_qos: if flags & 128 == 0 { QoS::ExactlyOnce } else { QoS::AtMostOnce },
        max_client_id_length: draw.pick(&[65_535, 1, 23]),
        max_topic_length: draw.pick(&[65_535, 1, 8]),
        ..defaults
    };
    let more = draw.byte();
    narrow.max_inflight = [50, 1, 4][usize::from(more % 3)];
    match more / 3 {
        0..=9 => {}
        more @ 10..=39 => {
            narrow.sent_topic_alias_max = [0, 1, 2, u16::MAX][usize::from(more & 3)];
            narrow.alias_memory = memory(if more & 4 == 0 { 200 } else { usize::MAX });
        }
        more @ 40..=63 => {
            narrow.keep_alive_policy = match more & 7 {
                0 => KeepAlivePolicy::HiveMq { max_s: 10, allow_unlimited: false },
                1..=3 => KeepAlivePolicy::Mosquitto { max_s: Some(10) },
                _ => KeepAlivePolicy::Emqx { server_s: Some(10) },
            };
            narrow.utf8_validation = more & 8 != 0;
        }
        more => {
            let refuse = match more & 3 {
                0 => RefuseConnections::Always,
                1 => RefuseConnections::Never,
                _ => RefuseConnections::WhenUnavailable,
            };
            narrow.server_reference =
                Some(ServerReference { reference: "other:1883".into(), at_shutdown: more & 4 != 0, refuse });
            narrow.response_information = Some("r/${{clientid}}".into());
        }
    }
    narrow
}

/// Identifiers of the lower half belong to the session's queue, by position.
fn identifier_is_of_its_source(delivery: &Delivery, packet_id: PacketId) -> bool {
    match delivery.source {
        Source::Queue { seq } => u64::from(packet_id.get()) == queue_packet_id(seq),
        Source::Local | Source::Share { .. } | Source::Member { .. } => packet_id.get() >= 32_768,
    }
}

fn queue_packet_id(seq: u64) -> u64 {
    1 + seq.saturating_sub(1) % 32_767
}

/// Whether a client may be sent the packet at all.
fn is_of_a_server(packet: &Packet) -> bool {
    !matches!(packet, Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::Pingreq)
}
