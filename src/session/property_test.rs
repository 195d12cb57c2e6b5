//! Whatever comes in whatever order: the machine keeps its promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::effect::{AckOutcome, Effect, Registered, Ticket};
use super::settings::SessionSettings;
use super::test_kit::*;
use crate::auth::{Refusal, Verdict};
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Auth, AuthProperties, PublishAck};
use crate::mqtt::{Delivery, GroupId, Packet, ProtocolVersion, QoS, ReasonCode, Source};

const WINDOW: u16 = 4;

#[derive(Debug, Clone)]
enum Op {
    Publish { qos: QoS, packet_id: u16, topic: &'static str, alias: Option<u16> },
    Ack { kind: u8, nth: usize, code: ReasonCode },
    StrayAck { kind: u8, packet_id: u16 },
    Subscribe(&'static str),
    Unsubscribe(&'static str),
    Other(Packet),
    Answer { nth: usize, code: ReasonCode },
    WrongAnswer(u64),
    Judged(Verdict),
    Registered(Result<Registered, ReasonCode>),
    Deliver { qos: QoS, source: Source, dup: bool },
    Stored { nth: usize },
    ResumeRelease(u64),
    Wait(u64),
    Timeout,
    Bytes,
    Broken,
    StreamEnded,
    ServerEnds { tell_shard: bool },
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(Q0), Just(Q1), Just(Q2)]
}

fn code() -> impl Strategy<Value = ReasonCode> {
    prop_oneof![
        6 => Just(ReasonCode::Success),
        2 => Just(ReasonCode::NoMatchingSubscribers),
        1 => Just(ReasonCode::QuotaExceeded),
        1 => Just(ReasonCode::NotAuthorized)
    ]
}

fn source() -> impl Strategy<Value = Source> {
    // Positions that share identifiers.
    let seq = prop_oneof![1..6_u64, 32_768..32_773_u64];
    let group = || GroupId { share: "g".into(), filter: "t".into() };
    prop_oneof![
        2 => Just(Source::Local),
        4 => seq.prop_map(|seq| Source::Queue { seq }),
        1 => (1..4_u64).prop_map(move |seq| Source::Share { group: group(), seq })
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let topic = prop_oneof![9 => Just("t"), 1 => Just(""), 1 => Just("$x")];
    let alias = prop_oneof![8 => Just(None), 1 => (0..7_u16).prop_map(Some)];
    let filter = || prop_oneof![8 => Just("t"), 2 => Just("$share/g/t"), 1 => Just("a+")];
    let other = prop_oneof![
        6 => Just(Packet::Pingreq),
        1 => Just(Packet::Pingresp),
        1 => Just(Packet::Connect(Box::new(connect(V5)))),
        1 => Just(Packet::Disconnect(Box::new(disconnect(ReasonCode::Success, Some(1))))),
    ];
    let auth = prop_oneof![
        6 => Just((ReasonCode::ContinueAuthentication, "M")),
        4 => Just((ReasonCode::ReAuthenticate, "M")),
        1 => Just((ReasonCode::Success, "M")),
        1 => Just((ReasonCode::ReAuthenticate, "N")),
    ];
    let auth = auth.prop_map(|(reason_code, method)| {
        let properties = AuthProperties { authentication_method: Some(method.into()), ..AuthProperties::default() };
        Op::Other(Packet::Auth(Box::new(Auth { reason_code, properties })))
    });
    let verdict = prop_oneof![
        4 => Just(Verdict::Accept { principal: Arc::default(), data: None }),
        2 => Just(Verdict::Continue { data: None }),
        1 => Just(Verdict::Refuse(Refusal::CREDENTIALS))
    ];
    let registered = prop_oneof![
        3 => Just(Ok(Registered { session_present: true, received_packet_ids: vec![id(1), id(7)] })),
        1 => Just(Err(ReasonCode::ServerUnavailable))
    ];
    prop_oneof![
        20 => (qos(), 1..8_u16, topic, alias)
            .prop_map(|(qos, packet_id, topic, alias)| Op::Publish { qos, packet_id, topic, alias }),
        20 => (0..3_u8, any::<usize>(), code()).prop_map(|(kind, nth, code)| Op::Ack { kind, nth, code }),
        6 => (0..4_u8, 1..8_u16).prop_map(|(kind, packet_id)| Op::StrayAck { kind, packet_id }),
        4 => filter().prop_map(Op::Subscribe),
        3 => filter().prop_map(Op::Unsubscribe),
        3 => other.prop_map(Op::Other),
        30 => (any::<usize>(), code()).prop_map(|(nth, code)| Op::Answer { nth, code }),
        1 => (0..40_u64).prop_map(Op::WrongAnswer),
        3 => auth,
        8 => verdict.prop_map(Op::Judged),
        4 => registered.prop_map(Op::Registered),
        30 => (qos(), source(), any::<bool>()).prop_map(|(qos, source, dup)| Op::Deliver { qos, source, dup }),
        10 => any::<usize>().prop_map(|nth| Op::Stored { nth }),
        2 => (1..9_u64).prop_map(Op::ResumeRelease),
        3 => (0..40_000_u64).prop_map(Op::Wait),
        2 => Just(Op::Timeout),
        2 => Just(Op::Bytes),
        1 => Just(Op::Broken),
        1 => Just(Op::StreamEnded),
        1 => any::<bool>().prop_map(|tell_shard| Op::ServerEnds { tell_shard })
    ]
}

/// What an observer of the effects knows.
#[derive(Default)]
struct Observer {
    /// Questions without an answer.
    open: Vec<(Ticket, Kind)>,
    last_ticket: u64,
    /// Identifiers under way to the client.
    in_flight: BTreeMap<u16, Source>,
    /// PUBREC reported and not yet confirmed.
    storing: Vec<Source>,
    /// Whether a verdict is awaited.
    asked: bool,
    /// Whether an Authentication Method is in use.
    enhanced: bool,
    connacks: usize,
    ends: usize,
    closed: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Publish,
    Release,
    Subscribe(usize),
    Unsubscribe(usize),
}

impl Observer {
    fn see(&mut self, version: ProtocolVersion, effects: &[Effect]) {
        for effect in effects {
            assert!(!self.closed, "{effect:?} after Close");
            match effect {
                Effect::Send(packet) => self.see_packet(version, packet),
                Effect::Authenticate(_) => {
                    assert!(!self.asked, "one question at a time");
                    self.asked = true;
                }
                Effect::Register(_) => assert!(!self.asked && self.connacks == 0),
                Effect::Publish { ticket, .. } => self.ask(*ticket, Kind::Publish),
                Effect::Release { ticket, .. } => self.ask(*ticket, Kind::Release),
                Effect::Subscribe { ticket, subscriptions } => self.ask(*ticket, Kind::Subscribe(subscriptions.len())),
                Effect::Unsubscribe { ticket, filters } => self.ask(*ticket, Kind::Unsubscribe(filters.len())),
                Effect::Acknowledge { source, outcome: AckOutcome::Completed(_) } => {
                    let packet_id = self.in_flight.iter().find(|(_, s)| *s == source).map(|(id, _)| *id);
                    self.in_flight.remove(&packet_id.expect("completes what is under way"));
                }
                Effect::Acknowledge { source, outcome: AckOutcome::Received } => {
                    assert!(self.in_flight.values().any(|s| s == source));
                    if matches!(source, Source::Queue { .. }) {
                        self.storing.push(source.clone());
                    }
                }
                Effect::Acknowledge { outcome: AckOutcome::Sent, .. } | Effect::Expired { .. } => {}
                Effect::Dropped { .. } | Effect::NotSent(_) => panic!("no limit was set"),
                Effect::End(_) => {
                    self.ends += 1;
                    assert_eq!(self.ends, 1);
                }
                Effect::Close => self.closed = true,
            }
        }
    }

    fn ask(&mut self, ticket: Ticket, kind: Kind) {
        assert!(ticket.0 > self.last_ticket, "tickets are unique");
        self.last_ticket = ticket.0;
        self.open.push((ticket, kind));
    }

    fn see_packet(&mut self, version: ProtocolVersion, packet: &Packet) {
        match packet {
            Packet::Connack(_) => {
                self.connacks += 1;
                assert_eq!(self.connacks, 1);
                return;
            }
            Packet::Disconnect(_) => assert!(version.is_v5()),
            Packet::Auth(_) => return assert!(self.enhanced),
            _ => {}
        }
        assert_eq!(self.connacks, 1, "{packet:?} before CONNACK");
    }

    /// Notes a message that was sent.
    fn see_sent(&mut self, source: &Source, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Send(Packet::Publish(publish)) = effect
                && let Some(packet_id) = publish.packet_id
            {
                let packet_id = packet_id.get();
                assert!(self.in_flight.insert(packet_id, source.clone()).is_none(), "{packet_id} is in use");
                assert!(self.in_flight.len() <= usize::from(WINDOW));
                assert_eq!(matches!(source, Source::Queue { .. }), packet_id < 32_768);
            }
        }
    }
}

fn ack(kind: u8, packet_id: u16, code: ReasonCode) -> Packet {
    let ack = PublishAck::new(id(packet_id), code);
    match kind {
        0 => Packet::Puback(ack),
        1 => Packet::Pubrec(ack),
        2 => Packet::Pubcomp(ack),
        _ => Packet::Pubrel(ack),
    }
}

fn perform(rig: &mut Rig, observer: &mut Observer, op: Op) -> Vec<Effect> {
    match op {
        Op::Publish { qos, packet_id, topic, alias } => {
            let mut packet = publish(topic, qos, if qos == Q0 { 0 } else { packet_id });
            packet.properties.topic_alias = alias;
            rig.publish(packet)
        }
        Op::Ack { kind, nth, code } => {
            let Some(index) = nth.checked_rem(observer.in_flight.len()) else { return vec![] };
            let packet_id = *observer.in_flight.keys().nth(index).unwrap();
            rig.packet(ack(kind, packet_id, code))
        }
        Op::StrayAck { kind, packet_id } => rig.packet(ack(kind, packet_id, ReasonCode::Success)),
        Op::Subscribe(filter) => rig.packet(Packet::Subscribe(Box::new(subscribe(9, &[(filter, Q2), ("u", Q0)])))),
        Op::Unsubscribe(filter) => rig.packet(Packet::Unsubscribe(Box::new(unsubscribe(9, &[filter, "u"])))),
        Op::Other(packet) => rig.packet(packet),
        Op::Answer { nth, code } => {
            let Some(index) = nth.checked_rem(observer.open.len()) else { return vec![] };
            let (ticket, kind) = observer.open.remove(index);
            match kind {
                Kind::Publish => rig.published(ticket.0, code),
                Kind::Release => rig.released(ticket.0),
                Kind::Subscribe(len) => rig.subscribed(ticket.0, &vec![code; len]),
                Kind::Unsubscribe(len) => rig.unsubscribed(ticket.0, &vec![!code.is_error(); len]),
            }
        }
        Op::WrongAnswer(ticket) => {
            if observer.open.iter().any(|(t, _)| t.0 == ticket) {
                return vec![];
            }
            let mut all = rig.published(ticket, ReasonCode::Success);
            all.extend(rig.released(ticket));
            all.extend(rig.subscribed(ticket, &[ReasonCode::Success]));
            all.extend(rig.unsubscribed(ticket, &[true]));
            assert!(all.is_empty());
            all
        }
        Op::Judged(verdict) => {
            if !std::mem::take(&mut observer.asked) {
                return vec![];
            }
            rig.judge(verdict)
        }
        Op::Registered(verdict) => rig.register(verdict),
        Op::Deliver { qos, source, dup } => {
            // A caller hands an entry out once.
            if observer.in_flight.values().any(|s| *s == source && source != Source::Local) {
                return vec![];
            }
            let quota = rig.machine.send_quota();
            let (taken, effects) = rig.deliver(Delivery { dup, ..delivery(qos, source.clone()) });
            assert_eq!(taken, !effects.is_empty());
            assert!(qos == Q0 || quota > 0 || !taken);
            observer.see_sent(&source, &effects);
            effects
        }
        Op::Stored { nth } => {
            let Some(index) = nth.checked_rem(observer.storing.len()) else { return vec![] };
            let source = observer.storing.remove(index);
            rig.run(|m, now, out| m.handle_acknowledged(&source, now, out))
        }
        Op::ResumeRelease(seq) => {
            let effects = rig.run(|m, now, out| m.resume_release(seq, now, out));
            if let [Effect::Send(Packet::Pubrel(ack))] = &effects[..] {
                assert!(observer.in_flight.insert(ack.packet_id.get(), Source::Queue { seq }).is_none());
            }
            effects
        }
        Op::Wait(ms) => {
            rig.advance(ms);
            vec![]
        }
        Op::Timeout => rig.run(super::Machine::handle_timeout),
        Op::Bytes => {
            rig.machine.handle_bytes(rig.now);
            vec![]
        }
        Op::Broken => rig.run(|m, now, out| m.handle_decode_error(&DecodeError::Malformed("x"), None, now, out)),
        Op::StreamEnded => rig.run(super::Machine::handle_closed),
        Op::ServerEnds { tell_shard } => {
            rig.run(|m, now, out| m.disconnect(ReasonCode::AdministrativeAction, "", tell_shard, now, out))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_keeps_the_promises(
        version in prop_oneof![Just(ProtocolVersion::V3_1), Just(V3), Just(V5)],
        outlives in any::<bool>(),
        enhanced in any::<bool>(),
        before in prop::collection::vec(op(), 0..3),
        early in prop::collection::vec(op(), 0..3),
        ops in prop::collection::vec(op(), 0..150),
    ) {
        let mut rig = Rig::new(SessionSettings { max_inflight: WINDOW, ..settings() });
        let mut observer = Observer::default();
        let mut wanted = if outlives { persistent(version) } else { connect(version) };
        if enhanced && version.is_v5() {
            wanted.properties.authentication_method = Some("M".into());
            observer.enhanced = true;
        }
        rig.ask(wanted);
        observer.asked = true;
        let judged = Op::Judged(Verdict::Accept { principal: Arc::default(), data: None });
        let registered = Op::Registered(Ok(Registered::default()));
        for op in before.into_iter().chain([judged]).chain(early).chain([registered]).chain(ops) {
            let effects = perform(&mut rig, &mut observer, op);
            observer.see(version, &effects);
            prop_assert_eq!(rig.machine.is_closed(), observer.closed);
            prop_assert!(!observer.closed || !rig.machine.wants_input());
            if !observer.closed && observer.connacks == 1 {
                let free = usize::from(WINDOW).saturating_sub(observer.in_flight.len());
                prop_assert_eq!(rig.machine.send_quota(), free);
            }
        }
    }

    #[test]
    fn acknowledgements_leave_in_order_whatever_the_order_of_the_verdicts(
        publishes in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..60),
    ) {
        let mut rig = Rig::of(V3);
        let mut open = Vec::new();
        let mut got = Vec::new();
        for (i, (twice, _)) in publishes.iter().enumerate() {
            rig.publish(publish("t", if *twice { Q2 } else { Q1 }, i as u16 + 1));
            open.push(i as u64 + 1);
        }
        for (_, pick) in &publishes {
            let ticket = open.remove(pick.index(open.len()));
            for effect in rig.published(ticket, ReasonCode::Success) {
                match effect {
                    Effect::Send(Packet::Puback(p) | Packet::Pubrec(p)) => got.push(p.packet_id.get()),
                    other => panic!("{other:?}"),
                }
            }
        }
        prop_assert_eq!(got, (1..=publishes.len() as u16).collect::<Vec<_>>());
    }
}
