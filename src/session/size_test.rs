//! The client's Maximum Packet Size and its wish for problem information.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use super::effect::{Effect, Registered, TooLarge};
use super::peer::Peer;
use super::settings::SessionSettings;
use super::test_kit::*;
use crate::auth::{Refusal, Verdict};
use crate::mqtt::codec::encoded_len;
use crate::mqtt::packet::{
    Auth, AuthProperties, Connack, ConnackProperties, Connect, Disconnect, DisconnectProperties, PublishAck, Suback, Unsuback,
};
use crate::mqtt::{Delivery, Message, Packet, ReasonCode, Source};
use crate::signal::DropReason;

/// A client that takes packets of this size.
fn taking(max: u32) -> Connect {
    let mut wanted = connect(V5);
    wanted.properties.maximum_packet_size = Some(max);
    wanted
}

fn packets(effects: &[Effect]) -> Vec<&Packet> {
    effects.iter().filter_map(|e| if let Effect::Send(packet) = e { Some(packet) } else { None }).collect()
}

fn reason_string(packet: &Packet) -> Option<&str> {
    match packet {
        Packet::Puback(p) | Packet::Pubrec(p) | Packet::Pubrel(p) | Packet::Pubcomp(p) => p.reason_string.as_deref(),
        Packet::Suback(p) => p.reason_string.as_deref(),
        Packet::Unsuback(p) => p.reason_string.as_deref(),
        Packet::Connack(p) => p.properties.reason_string.as_deref(),
        Packet::Disconnect(p) => p.properties.reason_string.as_deref(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delivery_as_large_as_the_limit_is_sent_and_one_byte_more_is_not() {
    // cases.md 83, 84
    for (qos, source) in [(Q0, Source::Local), (Q1, Source::Queue { seq: 1 }), (Q2, Source::Local)] {
        let mut sizes = Vec::new();
        for payload_len in 80..100 {
            let mut rig = Rig::connected(settings(), taking(99));
            let payload = Bytes::from(vec![0; payload_len]);
            let message = Arc::new(Message { payload, ..message("a", qos) });
            let delivery = Delivery { message, ..delivery(qos, source.clone()) };
            let (taken, effects) = rig.deliver(delivery.clone());
            assert!(taken);
            match &effects[..] {
                [Effect::Send(packet)] => sizes.push(encoded_len(packet, V5)),
                [Effect::Dropped { delivery: dropped, reason: DropReason::MaximumPacketSizeExceeded }] => {
                    assert_eq!(**dropped, delivery);
                    assert_eq!(rig.machine.send_quota(), 50, "counts as completed");
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sizes.last(), Some(&99), "{qos:?}");
        assert!(sizes.len() < 20);
    }
}

#[test]
fn a_delivery_too_large_does_not_hold_up_the_next() {
    let mut wanted = taking(50);
    wanted.properties.receive_maximum = Some(1);
    let mut rig = Rig::connected(settings(), wanted);
    let large = Arc::new(Message { payload: Bytes::from(vec![0; 60]), ..message("t", Q2) });
    for (seq, is_large) in [(1, true), (2, false)] {
        let mut delivery = delivery(Q2, Source::Queue { seq });
        if is_large {
            delivery.message = Arc::clone(&large);
        }
        let (taken, effects) = rig.deliver(delivery);
        assert!(taken);
        assert_eq!(matches!(effects[..], [Effect::Dropped { .. }]), is_large);
    }
}

#[test]
fn mqtt_3_has_no_maximum_packet_size() {
    let payload = Bytes::from(vec![0; 1 << 20]);
    let delivery = Delivery { message: Arc::new(Message { payload, ..message("t", Q0) }), ..delivery(Q0, Source::Local) };
    assert!(matches!(Rig::of(V3).deliver(delivery).1[..], [Effect::Send(_)]));
}

#[test]
fn what_no_packet_can_hold_is_dropped_for_every_version() {
    for version in VERSIONS {
        let payload = Bytes::from(vec![0; 268_435_455]);
        let message = Arc::new(Message { payload, ..message("t", Q1) });
        let (taken, effects) = Rig::of(version).deliver(Delivery { message, ..delivery(Q1, Source::Local) });
        assert!(taken);
        assert_eq!(briefs(&effects), ["dropped MaximumPacketSizeExceeded"]);
    }
}

/// Each failing packet a running connection may send: what the client does, and what comes.
fn failures(wanted: &Connect, settings: &SessionSettings) -> Vec<(&'static str, Vec<Effect>)> {
    let rig = || Rig::connected(settings.clone(), wanted.clone());
    let mut all = Vec::new();
    for qos in [Q1, Q2] {
        let mut rig = rig();
        rig.publish(publish("t", qos, 1));
        all.push(("publish", rig.published(1, ReasonCode::ImplementationSpecificError)));
    }
    all.push(("pubrel", rig().packet(pubrel(1))));
    all.push(("pubrec", rig().packet(pubrec(1))));
    let mut subscriber = rig();
    subscriber.packet(Packet::Subscribe(Box::new(subscribe(1, &[("t", Q0)]))));
    all.push(("subscribe", subscriber.subscribed(1, &[ReasonCode::ImplementationSpecificError])));
    all.push(("unsubscribe", rig().packet(Packet::Unsubscribe(Box::new(unsubscribe(1, &["a+"]))))));
    all
}

#[test]
fn failures_are_explained_where_the_client_wants_it_and_it_fits() {
    let unwanted = {
        let mut wanted = connect(V5);
        wanted.properties.request_problem_information = Some(false);
        wanted
    };
    let off = SessionSettings { allow_request_problem_information: false, ..settings() };
    let table = [
        (connect(V5), settings(), true),
        (taking(64), settings(), true),
        (taking(12), settings(), false),
        (unwanted, settings(), false),
        (connect(V5), off, false),
    ];
    for (i, (wanted, settings, explained)) in table.into_iter().enumerate() {
        // Too small a client never gets its CONNACK; let it have one without properties.
        let bare = SessionSettings { server_receive_maximum: 65_535, topic_alias_max: 0, ..settings };
        for (what, effects) in failures(&wanted, &bare) {
            let packets = packets(&effects);
            assert_eq!(packets.len(), 1, "row {i} {what}");
            assert_eq!(reason_string(packets[0]).is_some(), explained, "row {i} {what}");
            if let Some(max) = wanted.properties.maximum_packet_size {
                assert!(encoded_len(packets[0], V5) <= max as usize, "row {i} {what}");
            }
        }
    }
}

#[test]
fn disconnect_is_explained_whatever_was_asked_but_only_if_it_fits() {
    // MQTT 5 section 3.1.2.11.7 leaves it to the server for DISCONNECT and CONNACK.
    let mut unwanted = connect(V5);
    unwanted.properties.request_problem_information = Some(false);
    for (wanted, want) in [(connect(V5), Some("second CONNECT")), (unwanted, Some("second CONNECT")), (taking(20), None)] {
        let bare = SessionSettings { server_receive_maximum: 65_535, topic_alias_max: 0, ..settings() };
        let effects = Rig::connected(bare, wanted.clone()).packet(Packet::Connect(Box::new(wanted)));
        assert_eq!(reason_string(packets(&effects)[0]), want);
    }
}

#[test]
fn a_refusing_connack_stays_within_the_limit() {
    let mut wanted = taking(20);
    wanted.properties.authentication_method = Some("no-such-method".into());
    let mut rig = Rig::new(settings());
    rig.ask(wanted);
    let effects = rig.judge(Verdict::Refuse(Refusal::METHOD));
    assert_eq!(briefs(&effects), ["CONNACK 8c", "close"]);
    assert!(encoded_len(packets(&effects)[0], V5) <= 20);
}

#[test]
fn a_client_too_small_for_its_connack_is_let_go() {
    let mut rig = Rig::new(settings());
    rig.connect(taking(5));
    rig.packet(Packet::Pingreq);
    assert_eq!(briefs(&rig.register(Ok(Registered::default()))), ["end SERVER 0x95 with will", "close"]);
}

#[test]
fn a_packet_that_cannot_be_made_small_enough_is_not_sent() {
    let bare = SessionSettings { server_receive_maximum: 65_535, topic_alias_max: 0, ..settings() };
    let mut rig = Rig::connected(bare, taking(8));
    rig.packet(Packet::Subscribe(Box::new(subscribe(1, &[("t", Q0); 20]))));
    assert_eq!(briefs(&rig.subscribed(1, &[ReasonCode::Success; 20])), ["SUBACK not sent"]);
    assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["PINGRESP"]);
}

#[test]
fn the_reason_string_goes_before_the_user_properties() {
    let full = PublishAck {
        reason_string: Some("why".into()),
        user_properties: vec![("k".into(), "v".into())],
        ..PublishAck::new(id(1), ReasonCode::QuotaExceeded)
    };
    let without_reason = PublishAck { reason_string: None, ..full.clone() };
    let bare = PublishAck::new(id(1), ReasonCode::QuotaExceeded);
    let size = |ack: &PublishAck| encoded_len(&Packet::Puback(ack.clone()), V5) as u32;
    let table = [
        (size(&full), Some(&full)),
        (size(&full) - 1, Some(&without_reason)),
        (size(&without_reason) - 1, Some(&bare)),
        (size(&bare), Some(&bare)),
        (size(&bare) - 1, None),
    ];
    for (max, want) in table {
        let mut out = Vec::new();
        let is_sent = Peer::new(&taking(max), &settings()).send(Packet::Puback(full.clone()), &mut out);
        assert_eq!(is_sent, want.is_some());
        let too_large = TooLarge { packet: "PUBACK", size_bytes: size(&bare) as usize, max_bytes: max };
        let want = want.map_or(Effect::NotSent(too_large), |ack| Effect::Send(Packet::Puback(ack.clone())));
        assert_eq!(out, [want], "{max}");
    }
}

#[test]
fn a_success_is_not_explained() {
    let mut rig = Rig::of(V5);
    rig.publish(publish("t", Q1, 1));
    let effects = rig.published(1, ReasonCode::NoMatchingSubscribers);
    let want = PublishAck::new(id(1), ReasonCode::NoMatchingSubscribers);
    assert_eq!(effects, [Effect::Send(Packet::Puback(want))]);
}

/// [MQTT-3.2.2-20] [MQTT-3.4.2-3] [MQTT-3.5.2-3] [MQTT-3.6.2-3] [MQTT-3.7.2-3] [MQTT-3.9.2-2] [MQTT-3.11.2-2] [MQTT-3.14.2-4] [MQTT-3.15.2-3],
/// and the same of the reason strings.
#[test]
fn reason_strings_and_then_user_properties_give_way_to_the_maximum_packet_size() {
    let words = || Some(ByteString::from_static("a reason of some length"));
    let pairs = || vec![("name".into(), "value".into())];
    let ack =
        || PublishAck { reason_string: words(), user_properties: pairs(), ..PublishAck::new(id(1), ReasonCode::QuotaExceeded) };
    let codes = || vec![ReasonCode::UnspecifiedError];
    let connack = ConnackProperties { reason_string: words(), user_properties: pairs(), ..ConnackProperties::default() };
    let disconnect = DisconnectProperties { reason_string: words(), user_properties: pairs(), ..DisconnectProperties::default() };
    let auth = AuthProperties { reason_string: words(), user_properties: pairs(), ..AuthProperties::default() };
    let all = [
        Packet::Connack(Box::new(Connack {
            session_present: false,
            reason_code: ReasonCode::QuotaExceeded,
            properties: connack,
        })),
        Packet::Puback(ack()),
        Packet::Pubrec(ack()),
        Packet::Pubrel(ack()),
        Packet::Pubcomp(ack()),
        Packet::Suback(Box::new(Suback {
            packet_id: id(1),
            reason_codes: codes(),
            reason_string: words(),
            user_properties: pairs(),
        })),
        Packet::Unsuback(Box::new(Unsuback {
            packet_id: id(1),
            reason_codes: codes(),
            reason_string: words(),
            user_properties: pairs(),
        })),
        Packet::Disconnect(Box::new(Disconnect { reason_code: ReasonCode::QuotaExceeded, properties: disconnect })),
        Packet::Auth(Box::new(Auth { reason_code: ReasonCode::ContinueAuthentication, properties: auth })),
    ];
    for whole in all {
        let full = encoded_len(&whole, V5);
        let sent = |max: usize| {
            let mut out = Vec::new();
            let fits = Peer::new(&taking(u32::try_from(max).unwrap()), &settings()).send(whole.clone(), &mut out);
            assert_eq!(fits, matches!(out[..], [Effect::Send(_)]));
            out.retain(|effect| matches!(effect, Effect::Send(_)));
            out.pop().map(|effect| match effect {
                Effect::Send(packet) => (encoded_len(&packet, V5), packet),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(sent(full), Some((full, whole.clone())));
        let (without_words, packet) = sent(full - 1).unwrap();
        // Identifier, length and text of the reason string; lengths of the packet and its properties may shrink, too.
        assert!((full - 29..=full - 26).contains(&without_words), "{packet:?}");
        let (bare, packet) = sent(without_words - 1).unwrap();
        assert!(bare <= without_words - 14, "{packet:?}");
        assert_eq!(sent(bare - 1), None);
    }
}
