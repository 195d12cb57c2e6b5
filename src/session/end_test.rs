//! How connections end.

use super::Machine;
use super::effect::{Effect, Registered, Ticket};
use super::settings::{KeepAlivePolicy, SessionSettings};
use super::test_kit::*;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Auth, AuthProperties, Connack, ConnackProperties, Suback, Unsuback};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode, Source};

fn bye(rig: &mut Rig, code: ReasonCode, expiry: Option<u32>) -> Vec<String> {
    briefs(&rig.packet(Packet::Disconnect(Box::new(disconnect(code, expiry)))))
}

#[test]
fn the_clients_disconnect_ends_with_its_code_and_keeps_the_will_unless_normal() {
    use ReasonCode as C;
    let table = [
        (V5, C::Success, "end CLIENT 0x00"),
        (V5, C::DisconnectWithWillMessage, "end CLIENT 0x04 with will"),
        (V5, C::UnspecifiedError, "end CLIENT 0x80 with will"),
        (V5, C::AdministrativeAction, "end CLIENT 0x98 with will"),
        (V3, C::Success, "end CLIENT 0x00"),
        (ProtocolVersion::V3_1, C::Success, "end CLIENT 0x00"),
    ];
    for (version, code, want) in table {
        assert_eq!(bye(&mut Rig::of(version), code, None), [want, "close"]);
    }
}

#[test]
fn a_disconnect_with_a_code_that_only_a_server_sends_is_a_protocol_error() {
    for code in [ReasonCode::ServerShuttingDown, ReasonCode::SessionTakenOver, ReasonCode::KeepAliveTimeout] {
        assert_eq!(bye(&mut Rig::of(V5), code, None), ended_by_server(V5, ReasonCode::ProtocolError), "{code:?}");
    }
    // [MQTT-3.1.0-2]: also where it asks for a version that nobody knows, for which DISCONNECT has no code.
    let error = DecodeError::UnsupportedProtocolVersion { name: "MQTT".to_owned(), level: 6 };
    for version in VERSIONS {
        let got = Rig::of(version).run(|m, now, out| m.handle_decode_error(&error, None, now, out));
        assert_eq!(briefs(&got), ended_by_server(version, ReasonCode::ProtocolError));
    }
}

#[test]
fn disconnect_may_change_the_session_expiry_but_not_from_0() {
    let table = [
        // CONNECT, DISCONNECT, maximum, result
        (Some(600), Some(10), 1000, Some("end CLIENT 0x00 expiry 10")),
        (Some(600), Some(0), 1000, Some("end CLIENT 0x00 expiry 0")),
        (Some(600), Some(5000), 1000, Some("end CLIENT 0x00 expiry 1000")),
        (Some(600), None, 1000, Some("end CLIENT 0x00")),
        (Some(0), Some(0), 1000, Some("end CLIENT 0x00 expiry 0")),
        (None, Some(1), 1000, None),
        (Some(0), Some(u32::MAX), 1000, None),
        // The maximum made it 0, not the client.
        (Some(600), Some(600), 0, Some("end CLIENT 0x00 expiry 0")),
    ];
    for (at_connect, at_end, max, want) in table {
        let mut wanted = connect(V5);
        wanted.properties.session_expiry_interval = at_connect;
        let mut rig = Rig::connected(SessionSettings { session_expiry_max_s: max, ..settings() }, wanted);
        let got = bye(&mut rig, ReasonCode::Success, at_end);
        match want {
            Some(end) => assert_eq!(got, [end, "close"]),
            None => assert_eq!(got, ended_by_server(V5, ReasonCode::ProtocolError)),
        }
    }
}

#[test]
fn a_lost_stream_ends_unspecified_with_the_will() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&rig.run(Machine::handle_closed)), ["end UNSPECIFIED - with will", "close"]);
    }
    assert_eq!(briefs(&Rig::new(settings()).run(Machine::handle_closed)), ["close"]);
}

#[test]
fn a_silent_client_is_ended_after_one_and_a_half_keep_alives() {
    // cases.md 90
    for version in VERSIONS {
        let mut wanted = connect(version);
        wanted.keep_alive = 5;
        let mut rig = Rig::connected(settings(), wanted);
        rig.advance(7_000);
        rig.machine.handle_bytes(rig.now);
        let due = rig.now.mono_ms + 7_501;
        assert_eq!(rig.machine.next_timeout(), Some(due));
        rig.advance(7_500);
        assert!(rig.run(Machine::handle_timeout).is_empty());
        rig.advance(1);
        assert_eq!(briefs(&rig.run(Machine::handle_timeout)), ended_by_server(version, ReasonCode::KeepAliveTimeout));
    }
    let mut wanted = connect(V5);
    wanted.keep_alive = 0;
    assert_eq!(Rig::connected(settings(), wanted).machine.next_timeout(), None);
}

/// spec/hivemq.md 9.10
#[test]
fn the_clock_stands_still_while_the_broker_does_not_read() {
    let mut wanted = connect(V5);
    wanted.keep_alive = 2;
    let mut rig = Rig::connected(settings(), wanted);
    rig.advance(2_900);
    let before = rig.machine.next_timeout().unwrap();
    rig.advance(60_000);
    rig.machine.handle_pause(60_000);
    assert_eq!(rig.machine.next_timeout(), Some(before + 60_000));
    assert!(rig.run(Machine::handle_timeout).is_empty());
    rig.advance(101);
    assert_eq!(briefs(&rig.run(Machine::handle_timeout)), ended_by_server(V5, ReasonCode::KeepAliveTimeout));
}

#[test]
fn before_connect_a_packet_may_be_no_larger_than_a_connect_can_be() {
    let largest = SessionSettings { max_packet_size_bytes: 268_435_460, ..settings() };
    assert_eq!(Rig::new(largest.clone()).machine.max_packet_size_bytes(), 1024 * 1024);
    assert_eq!(Rig::connected(largest, connect(V5)).machine.max_packet_size_bytes(), 268_435_460);
    let small = SessionSettings { max_packet_size_bytes: 1000, ..settings() };
    assert_eq!(Rig::new(small).machine.max_packet_size_bytes(), 1000);
}

#[test]
fn the_server_keep_alive_is_the_one_enforced() {
    let mut wanted = connect(V5);
    wanted.keep_alive = 0;
    let limited =
        SessionSettings { keep_alive_policy: KeepAlivePolicy::HiveMq { max_s: 20, allow_unlimited: false }, ..settings() };
    let rig = Rig::connected(limited, wanted);
    assert_eq!(rig.machine.next_timeout(), Some(rig.now.mono_ms + 30_001));
}

#[test]
fn packets_that_may_not_come_end_the_connection() {
    let suback = Suback { packet_id: id(1), reason_codes: vec![], reason_string: None, user_properties: vec![] };
    let unsuback = Unsuback { packet_id: id(1), reason_codes: vec![], reason_string: None, user_properties: vec![] };
    let connack = Connack { session_present: false, reason_code: ReasonCode::Success, properties: ConnackProperties::default() };
    let auth = Auth { reason_code: ReasonCode::ReAuthenticate, properties: AuthProperties::default() };
    let packets = [
        Packet::Connect(Box::new(connect(V5))),
        Packet::Connack(Box::new(connack)),
        Packet::Suback(Box::new(suback)),
        Packet::Unsuback(Box::new(unsuback)),
        Packet::Pingresp,
        Packet::Auth(Box::new(auth)),
    ];
    for packet in packets {
        for version in VERSIONS {
            let effects = Rig::of(version).packet(packet.clone());
            assert_eq!(briefs(&effects), ended_by_server(version, ReasonCode::ProtocolError), "{packet:?}");
        }
    }
}

#[test]
fn undecodable_bytes_end_the_connection_with_their_code() {
    let table = [
        (DecodeError::Malformed("x"), ReasonCode::MalformedPacket),
        (DecodeError::Protocol("x"), ReasonCode::ProtocolError),
        (DecodeError::PacketTooLarge { size: 9, max: 8 }, ReasonCode::PacketTooLarge),
        (DecodeError::Code(ReasonCode::TopicNameInvalid, "x"), ReasonCode::TopicNameInvalid),
    ];
    for (error, code) in table {
        for version in VERSIONS {
            let effects = Rig::of(version).run(|m, now, out| m.handle_decode_error(&error, None, now, out));
            assert_eq!(briefs(&effects), ended_by_server(version, code));
        }
    }
    for error in [DecodeError::RemainingLength, DecodeError::Carrier] {
        let effects = Rig::of(V5).run(|m, now, out| m.handle_decode_error(&error, None, now, out));
        assert_eq!(briefs(&effects), ["end SERVER 0x81 with will", "close"], "no DISCONNECT");
    }
}

#[test]
fn the_server_may_end_a_connection_for_reasons_of_its_own() {
    use ReasonCode as C;
    let table = [
        (C::AdministrativeAction, true, Some("end SERVER 0x98 with will")),
        (C::NotAuthorized, true, Some("end SERVER 0x87 with will")),
        (C::SessionTakenOver, false, None),
        (C::SessionTakenOver, true, Some("end SESSION_TAKEN_OVER 0x8e with will")),
        (C::ServerUnavailable, false, None),
        // spec/hivemq.md 10.1
        (C::ServerShuttingDown, true, Some("end UNSPECIFIED - with will")),
    ];
    for (code, tell_shard, end) in table {
        for version in VERSIONS {
            let mut rig = Rig::of(version);
            let effects = rig.run(|m, now, out| m.disconnect(code, "why", tell_shard, now, out));
            let packet = version.is_v5().then(|| format!("DISCONNECT {:02x}", code.byte()));
            let want: Vec<_> = packet.into_iter().chain(end.map(str::to_owned)).chain(["close".to_owned()]).collect();
            assert_eq!(briefs(&effects), want);
            if let [Effect::Send(Packet::Disconnect(p)), ..] = &effects[..] {
                assert_eq!(p.properties.reason_string.as_deref(), Some("why"));
            }
            assert_eq!(rig.machine.protocol(), Some(version), "the last packet is still to be encoded");
        }
    }
}

#[test]
fn an_end_before_connack_never_sends_disconnect() {
    let end = |rig: &mut Rig, tell| rig.run(|m, now, out| m.disconnect(ReasonCode::ServerShuttingDown, "", tell, now, out));
    assert_eq!(briefs(&end(&mut Rig::new(settings()), true)), ["close"]);
    for (tell, want) in [(true, vec!["end UNSPECIFIED - with will", "CONNACK 88", "close"]), (false, vec!["CONNACK 88", "close"])]
    {
        let mut rig = Rig::new(settings());
        rig.connect(connect(V5));
        assert_eq!(briefs(&end(&mut rig, tell)), want);
        assert!(rig.register(Ok(Registered::default())).is_empty());
    }
}

#[test]
fn nothing_comes_out_after_close() {
    let closings: [fn(&mut Rig) -> Vec<Effect>; 4] = [
        |rig| rig.run(Machine::handle_closed),
        |rig| rig.packet(Packet::Pingresp),
        |rig| rig.packet(Packet::Disconnect(Box::new(disconnect(ReasonCode::Success, None)))),
        |rig| rig.run(|m, now, out| m.disconnect(ReasonCode::SessionTakenOver, "", false, now, out)),
    ];
    for close in closings {
        let mut rig = Rig::of(V5);
        assert!(rig.deliver(delivery(crate::mqtt::QoS::ExactlyOnce, Source::Queue { seq: 1 })).0);
        rig.packet(pubrec(1));
        rig.publish(publish("t", Q2, 1));
        rig.packet(Packet::Subscribe(Box::new(subscribe(1, &[("t", Q0)]))));
        rig.publish(publish("t", Q0, 0));
        let effects = close(&mut rig);
        if effects.is_empty() {
            // The end waits behind the PUBLISH, which waits for the subscription.
            assert_eq!(briefs(&rig.subscribed(2, &[ReasonCode::Success])).last().map(String::as_str), Some("close"));
        } else {
            assert_eq!(effects.last(), Some(&Effect::Close));
        }
        assert!(rig.machine.is_closed());
        rig.advance(1_000_000);
        let mut out = Vec::new();
        let (m, now) = (&mut rig.machine, rig.now);
        m.handle_bytes(now);
        m.handle_packet(Packet::Pingreq, &String::new, now, &mut out);
        m.handle_decode_error(&DecodeError::Malformed("x"), Some(V5), now, &mut out);
        m.handle_closed(now, &mut out);
        m.disconnect(ReasonCode::AdministrativeAction, "", true, now, &mut out);
        m.handle_registered(Ok(Registered::default()), now, &mut out);
        m.handle_registered(Err(ReasonCode::Banned), now, &mut out);
        m.handle_published(Ticket(1), ReasonCode::Success, now, &mut out);
        m.handle_published(Ticket(1), ReasonCode::NotAuthorized, now, &mut out);
        m.handle_released(Ticket(1), now, &mut out);
        m.handle_subscribed(Ticket(2), &[ReasonCode::Success], now, &mut out);
        m.handle_unsubscribed(Ticket(2), &[true], now, &mut out);
        m.handle_acknowledged(&Source::Queue { seq: 1 }, now, &mut out);
        m.resume_release(9, now, &mut out);
        assert!(!m.deliver(delivery(Q0, Source::Local), now, &mut out));
        m.handle_timeout(now, &mut out);
        assert_eq!(m.next_timeout(), None);
        assert!(!m.wants_input());
        assert!(out.is_empty(), "{out:?}");
    }
}
