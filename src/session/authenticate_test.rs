//! Authentication before CONNACK and after it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::authenticate::{AUTHENTICATION_MS_MAX, Stage};
use super::effect::{Effect, Registered};
use super::test_kit::*;
use crate::auth::{Principal, Refusal, Verdict};
use crate::config::rbac::{Activity, Permission, Retain, Role, Share, Template};
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Auth, AuthProperties, Connect};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode};

fn enhanced() -> Connect {
    let mut connect = connect(V5);
    connect.properties.authentication_method = Some("M".into());
    connect.properties.authentication_data = Some(Bytes::from_static(b"one"));
    connect
}

fn auth(reason_code: ReasonCode, method: Option<&str>, data: &'static str) -> Packet {
    let properties = AuthProperties {
        authentication_method: method.map(Into::into),
        authentication_data: Some(Bytes::from_static(data.as_bytes())),
        ..AuthProperties::default()
    };
    Packet::Auth(Box::new(Auth { reason_code, properties }))
}

fn further(data: &'static str) -> Packet {
    auth(ReasonCode::ContinueAuthentication, Some("M"), data)
}

fn again(data: &'static str) -> Packet {
    auth(ReasonCode::ReAuthenticate, Some("M"), data)
}

fn accept(user: &str, data: &'static str) -> Verdict {
    let data = (!data.is_empty()).then_some(Bytes::from_static(data.as_bytes()));
    Verdict::Accept { principal: Arc::new(Principal::unlimited(user.into())), data }
}

fn go_on(data: &'static str) -> Verdict {
    Verdict::Continue { data: Some(Bytes::from_static(data.as_bytes())) }
}

fn refuse(code: ReasonCode) -> Verdict {
    Verdict::Refuse(Refusal { code, reason: "no" })
}

/// Connected by an exchange of one step, as user `u`.
fn connected() -> Rig {
    let mut rig = Rig::new(settings());
    rig.ask(enhanced());
    rig.judge(accept("u", ""));
    rig.register(Ok(Registered::default()));
    rig
}

/// A principal of a role that may do this.
fn limited(topic: &str, activity: Activity) -> Arc<Principal> {
    let (qos, retain, share, group) = ([true; 3], Retain::All, Share::All, None);
    let permission = Permission { topic: Template::Fixed(topic.into()), activity, qos, retain, share, group };
    let role = Arc::new(Role { id: "r".into(), permissions: vec![permission] });
    Arc::new(Principal::with_roles("u".into(), "client".into(), [role].into()))
}

fn connected_as(version: ProtocolVersion, principal: Arc<Principal>) -> Rig {
    let mut rig = Rig::new(settings());
    rig.ask(connect(version));
    rig.judge(Verdict::Accept { principal, data: None });
    rig.register(Ok(Registered::default()));
    rig
}

#[test]
fn a_plain_login_hands_over_what_connect_says_and_hides_the_password() {
    for version in VERSIONS {
        let mut rig = Rig::new(settings());
        let mut wanted = connect(version);
        wanted.username = Some("user".into());
        wanted.password = Some(Bytes::from_static(b"hunter2"));
        let evidence = rig.ask(wanted);
        assert_eq!(evidence.stage, Stage::Connect);
        assert_eq!((&*evidence.client_id, evidence.user_name.as_deref()), ("client", Some("user")));
        assert_eq!(evidence.password.as_deref(), Some(&b"hunter2"[..]));
        assert_eq!((evidence.method.as_deref(), evidence.data.as_deref()), (None, None));
        let shown = format!("{evidence:?} {:?} {:?}", rig.machine, Effect::Authenticate(Box::new(evidence.clone())));
        assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
        assert!(!rig.machine.wants_input());
        let effects = rig.judge(accept("user", ""));
        assert_eq!(briefs(&effects), ["register client"]);
        assert!(rig.judge(accept("user", "")).is_empty(), "a second verdict is none");
    }
}

#[test]
fn the_name_that_was_proved_outweighs_the_one_that_was_claimed() {
    for (principal, expected) in [(Principal::unlimited("proved".into()), "proved"), (Principal::anonymous(), "claimed")] {
        let mut rig = Rig::new(settings());
        rig.ask(Connect { username: Some("claimed".into()), ..connect(V3) });
        match &rig.judge(Verdict::Accept { principal: Arc::new(principal), data: None })[..] {
            [Effect::Register(registration)] => assert_eq!(registration.username.as_deref(), Some(expected)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refusal_is_told_in_the_words_of_the_version_and_what_came_behind_is_forgotten() {
    use ReasonCode as C;
    let table = [
        (C::NotAuthorized, "CONNACK 87", "CONNACK 87"),
        (C::BadUserNameOrPassword, "CONNACK 86", "CONNACK 86"),
        (C::ClientIdentifierNotValid, "CONNACK 85", "CONNACK 85"),
        (C::ServerBusy, "CONNACK 89", "CONNACK 89"),
        (C::ConnectionRateExceeded, "CONNACK 9f", "CONNACK 9f"),
        (C::UnspecifiedError, "CONNACK 80", ""),
    ];
    for (code, to_v5, to_v3) in table {
        for (version, connack) in [(V5, to_v5), (V3, to_v3)] {
            let mut rig = Rig::new(settings());
            rig.ask(connect(version));
            assert!(rig.publish(publish("t", Q0, 0)).is_empty());
            let want: Vec<_> = [connack, "close"].into_iter().filter(|s| !s.is_empty()).collect();
            assert_eq!(briefs(&rig.judge(refuse(code))), want, "{code:?} {version:?}");
            assert!(rig.machine.is_closed());
            assert!(rig.judge(accept("u", "")).is_empty());
        }
    }
}

#[test]
fn what_a_client_sends_behind_its_connect_waits_until_it_is_let_in() {
    let mut rig = Rig::new(settings());
    rig.ask(connect(V3));
    assert!(rig.publish(publish("t", Q0, 0)).is_empty());
    assert!(rig.run(super::Machine::handle_closed).is_empty());
    assert_eq!(briefs(&rig.judge(accept("u", ""))), ["register client"]);
    let want = ["CONNACK 00", "publish t as 1", "end UNSPECIFIED - with will", "close"];
    assert_eq!(briefs(&rig.register(Ok(Registered::default()))), want);
}

#[test]
fn an_exchange_of_several_steps_ends_in_a_connack_that_names_the_method() {
    let mut rig = Rig::new(settings());
    let evidence = rig.ask(enhanced());
    assert_eq!((evidence.method.as_deref(), evidence.data.as_deref()), (Some("M"), Some(&b"one"[..])));
    assert!(rig.machine.wants_input());
    assert_eq!(briefs(&rig.judge(go_on("two"))), ["AUTH 18 M two"]);
    assert_eq!(briefs(&rig.packet(further("three"))), ["authenticate Further three"]);
    assert_eq!(briefs(&rig.judge(go_on("four"))), ["AUTH 18 M four"]);
    assert_eq!(briefs(&rig.packet(further("five"))), ["authenticate Further five"]);
    assert_eq!(briefs(&rig.judge(accept("u", "six"))), ["register client"]);
    let connack = rig.connack(Ok(Registered::default()));
    assert_eq!(connack.properties.authentication_method.as_deref(), Some("M"));
    assert_eq!(connack.properties.authentication_data.as_deref(), Some(&b"six"[..]));
    // Without a method none is named, whatever the outside has to say.
    let mut rig = Rig::new(settings());
    rig.ask(connect(V5));
    rig.judge(accept("u", "six"));
    let connack = rig.connack(Ok(Registered::default()));
    assert_eq!((connack.properties.authentication_method, connack.properties.authentication_data), (None, None));
}

#[test]
fn a_verdict_that_nobody_waits_for_changes_nothing() {
    let mut rig = Rig::new(settings());
    rig.ask(enhanced());
    rig.judge(go_on("one"));
    // The client's turn.
    assert_eq!(rig.judge(go_on("two")), []);
    assert_eq!(rig.judge(accept("u", "two")), []);
    assert_eq!(rig.judge(refuse(ReasonCode::NotAuthorized)), []);
    assert!(!rig.machine.is_closed());
}

#[test]
fn before_connack_only_auth_in_its_turn_and_disconnect_may_come() {
    use ReasonCode as C;
    let publish = || Packet::Publish(Box::new(publish("t", Q0, 0)));
    let table = [
        (further("x"), "authenticate Further x"),
        (again("x"), "CONNACK 82"),
        (auth(C::Success, Some("M"), ""), "CONNACK 82"),
        (auth(C::ContinueAuthentication, Some("N"), ""), "CONNACK 8c"),
        (auth(C::ContinueAuthentication, None, ""), "CONNACK 8c"),
        (publish(), "CONNACK 82"),
        (Packet::Pingreq, "CONNACK 82"),
        (Packet::Subscribe(Box::new(subscribe(1, &[("t", Q0)]))), "CONNACK 82"),
        (Packet::Connect(Box::new(enhanced())), "CONNACK 82"),
        (Packet::Disconnect(Box::new(disconnect(C::Success, None))), "close"),
    ];
    for (packet, in_turn) in table {
        // The client's turn.
        let mut rig = Rig::new(settings());
        rig.ask(enhanced());
        rig.judge(go_on("two"));
        let closes = in_turn != "close" && in_turn.starts_with("CONNACK");
        let want: Vec<_> = [in_turn].into_iter().chain(closes.then_some("close")).collect();
        assert_eq!(briefs(&rig.packet(packet.clone())), want, "{packet:?}");
        assert_eq!(rig.machine.is_closed(), in_turn != "authenticate Further x", "{packet:?}");

        // Not the client's turn.
        let out_of_turn = if in_turn == "authenticate Further x" { "CONNACK 82" } else { in_turn };
        let mut rig = Rig::new(settings());
        rig.ask(enhanced());
        let effects = briefs(&rig.packet(packet.clone()));
        assert_eq!(effects.first().map(String::as_str), Some(out_of_turn), "{packet:?}");
        assert!(rig.machine.is_closed() && rig.judge(accept("u", "")).is_empty());

        // Let in, and not told yet: the shard may know it, so it hears of the end.
        let mut rig = Rig::new(settings());
        rig.ask(enhanced());
        rig.judge(accept("u", ""));
        let effects = briefs(&rig.packet(packet.clone()));
        if in_turn == "close" {
            assert!(effects.is_empty());
            let want = ["CONNACK 00", "end CLIENT 0x00", "close"];
            assert_eq!(briefs(&rig.register(Ok(Registered::default()))), want);
        } else {
            assert_eq!(effects, ["end SERVER 0x82 with will", "CONNACK 82", "close"], "{packet:?}");
        }
    }
}

#[test]
fn a_client_that_goes_or_sends_garbage_during_an_exchange_leaves_nothing() {
    let rig = || {
        let mut rig = Rig::new(settings());
        rig.ask(enhanced());
        rig.judge(go_on("two"));
        rig
    };
    assert_eq!(briefs(&rig().run(super::Machine::handle_closed)), ["close"]);
    let broken = |error: DecodeError| rig().run(|m, now, out| m.handle_decode_error(&error, None, now, out));
    assert_eq!(briefs(&broken(DecodeError::Malformed("x"))), ["CONNACK 81", "close"]);
    assert_eq!(briefs(&broken(DecodeError::RemainingLength)), ["close"]);
    assert_eq!(briefs(&broken(DecodeError::Carrier)), ["close"]);
    let ended = rig().run(|m, now, out| m.disconnect(ReasonCode::ServerShuttingDown, "", true, now, out));
    assert_eq!(briefs(&ended), ["CONNACK 88", "close"]);
}

#[test]
fn an_authentication_has_its_time_and_no_more() {
    for wanted in [enhanced(), connect(V5), connect(V3)] {
        let mut rig = Rig::new(settings());
        let v5 = wanted.protocol.is_v5();
        let exchange = wanted.properties.authentication_method.is_some();
        rig.ask(wanted);
        assert_eq!(rig.machine.next_timeout(), Some(5_000 + AUTHENTICATION_MS_MAX));
        if exchange {
            // Steps do not prolong it.
            rig.advance(20_000);
            rig.judge(go_on("two"));
            rig.advance(AUTHENTICATION_MS_MAX - 20_001);
        } else {
            rig.advance(AUTHENTICATION_MS_MAX - 1);
        }
        assert!(rig.run(super::Machine::handle_timeout).is_empty());
        rig.advance(1);
        assert_eq!(briefs(&rig.run(super::Machine::handle_timeout)), ["CONNACK 87", "close"], "v5: {v5}");
        assert!(rig.judge(accept("u", "")).is_empty());
    }
}

#[test]
fn a_challenge_that_does_not_fit_what_the_client_takes_ends_it() {
    let mut wanted = enhanced();
    wanted.properties.maximum_packet_size = Some(20);
    let mut rig = Rig::new(settings());
    rig.ask(wanted);
    assert_eq!(briefs(&rig.judge(go_on("a rather long challenge"))), ["CONNACK 95", "close"]);
}

#[test]
fn a_will_that_may_not_be_published_is_refused_with_its_connect() {
    for (version, topic, want) in [
        (V5, "will", "register client"),
        (V5, "other", "CONNACK 87"),
        (V3, "other", "CONNACK 87"),
        (V3, "will", "register client"),
    ] {
        let mut rig = Rig::new(settings());
        rig.ask(Connect { will: Some(will()), ..connect(version) });
        let effects = rig.judge(Verdict::Accept { principal: limited(topic, Activity::Publish), data: None });
        assert_eq!(brief(&effects[0]), want);
    }
}

#[test]
fn a_client_authenticates_again_while_its_packets_go_on() {
    let mut rig = connected();
    assert_eq!(briefs(&rig.packet(again("one"))), ["authenticate Again one"]);
    assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["PINGRESP"]);
    assert_eq!(briefs(&rig.judge(go_on("two"))), ["AUTH 18 M two"]);
    assert_eq!(briefs(&rig.publish(publish("t", Q0, 0))), ["publish t as 1"]);
    assert_eq!(briefs(&rig.packet(further("three"))), ["authenticate Further three"]);
    assert_eq!(briefs(&rig.judge(accept("u", "four"))), ["AUTH 00 M four"]);
    assert!(rig.judge(accept("u", "four")).is_empty());
    // And once more.
    assert_eq!(briefs(&rig.packet(again("one"))), ["authenticate Again one"]);
    assert_eq!(briefs(&rig.judge(accept("u", ""))), ["AUTH 00 M -"]);
}

#[test]
fn a_re_authentication_that_fails_ends_the_connection() {
    use ReasonCode as C;
    let table: [(Vec<Packet>, Option<Verdict>, ReasonCode); 11] = [
        (vec![again("x")], Some(refuse(C::NotAuthorized)), C::NotAuthorized),
        (vec![again("x")], Some(refuse(C::BadUserNameOrPassword)), C::NotAuthorized),
        (vec![again("x")], Some(refuse(C::ServerBusy)), C::ServerBusy),
        (vec![again("x")], Some(accept("another", "")), C::NotAuthorized),
        (vec![auth(C::ReAuthenticate, Some("N"), "")], None, C::BadAuthenticationMethod),
        (vec![auth(C::ReAuthenticate, None, "")], None, C::BadAuthenticationMethod),
        (vec![further("x")], None, C::ProtocolError),
        (vec![auth(C::Success, Some("M"), "")], None, C::ProtocolError),
        (vec![again("x"), again("y")], None, C::ProtocolError),
        // Out of turn.
        (vec![again("x"), further("y")], None, C::ProtocolError),
        (vec![again("x"), auth(C::ContinueAuthentication, Some("N"), "")], None, C::BadAuthenticationMethod),
    ];
    for (packets, verdict, code) in table {
        let mut rig = connected();
        let mut effects = Vec::new();
        for packet in packets.clone() {
            effects = rig.packet(packet);
        }
        if let Some(verdict) = verdict {
            effects = rig.judge(verdict);
        }
        assert_eq!(briefs(&effects), ended_by_server(V5, code), "{packets:?}");
    }
    let mut rig = Rig::of(V5);
    assert_eq!(briefs(&rig.packet(again("x"))), ended_by_server(V5, C::ProtocolError), "CONNECT named no method");
}

#[test]
fn a_re_authentication_has_its_time_beside_the_keep_alive() {
    let mut rig = connected();
    rig.packet(again("one"));
    assert_eq!(rig.machine.next_timeout(), Some(5_000 + AUTHENTICATION_MS_MAX));
    rig.judge(go_on("two"));
    rig.advance(AUTHENTICATION_MS_MAX);
    assert_eq!(briefs(&rig.run(super::Machine::handle_timeout)), ended_by_server(V5, ReasonCode::NotAuthorized));
    // Whichever comes first.
    let mut rig = Rig::new(settings());
    rig.ask(Connect { keep_alive: 2, ..enhanced() });
    rig.judge(accept("u", ""));
    rig.register(Ok(Registered::default()));
    rig.packet(again("one"));
    rig.advance(4_000);
    assert_eq!(briefs(&rig.run(super::Machine::handle_timeout)), ended_by_server(V5, ReasonCode::KeepAliveTimeout));
}

#[test]
fn what_may_be_published_is_what_the_role_allows() {
    for version in [V3, V5] {
        let ends = ended_by_server(version, ReasonCode::NotAuthorized);
        let acks: HashMap<u8, &str> = HashMap::from([(0, ""), (1, "PUBACK 1 87"), (2, "PUBREC 1 87")]);
        for (qos, ack) in acks {
            let mut rig = connected_as(version, limited("a/#", Activity::All));
            let packet = |topic: &str, id| publish(topic, [Q0, Q1, Q2][usize::from(qos)], if qos == 0 { 0 } else { id });
            assert_eq!(briefs(&rig.publish(packet("a/b", 9))), ["publish a/b as 1"]);
            rig.published(1, ReasonCode::Success);
            let told = Some(ack.to_owned()).filter(|ack| version.is_v5() && !ack.is_empty());
            let want: Vec<_> = told.into_iter().chain(ends.clone()).collect();
            assert_eq!(briefs(&rig.publish(packet("b", 1))), want, "{version:?} {qos}");
        }
    }
}

#[test]
fn what_may_be_subscribed_to_is_what_the_role_allows() {
    let subscribe = |filters| Packet::Subscribe(Box::new(subscribe(7, filters)));
    for version in [V3, V5] {
        let mut rig = connected_as(version, limited("a/+", Activity::Subscribe));
        let effects = rig.packet(subscribe(&[("a/#", Q0), ("a/b", Q1), ("$share/g/a/+", Q0), ("b", Q2)]));
        assert_eq!(briefs(&effects), ["subscribe a/b:1,$share/g/a/+:0 as 1"]);
        let codes = [ReasonCode::GrantedQoS1, ReasonCode::Success];
        assert_eq!(briefs(&rig.subscribed(1, &codes)), ["SUBACK 7 87 01 00 87"]);
        assert_eq!(briefs(&rig.packet(subscribe(&[("#", Q0), ("$dead/#", Q0)]))), ["SUBACK 7 87 87"]);
    }
    // MQTT 3.1 has no failure in SUBACK.
    let mut rig = connected_as(ProtocolVersion::V3_1, limited("a/+", Activity::Subscribe));
    let effects = rig.packet(subscribe(&[("#", Q0)]));
    assert_eq!(briefs(&effects), ended_by_server(ProtocolVersion::V3_1, ReasonCode::NotAuthorized));
}

#[test]
fn a_re_authentication_renews_what_is_allowed() {
    let mut rig = Rig::new(settings());
    rig.ask(enhanced());
    rig.judge(Verdict::Accept { principal: limited("a", Activity::All), data: None });
    rig.register(Ok(Registered::default()));
    rig.packet(again("x"));
    rig.judge(Verdict::Accept { principal: limited("b", Activity::All), data: None });
    assert_eq!(briefs(&rig.publish(publish("b", Q0, 0))), ["publish b as 1"]);
    assert_eq!(briefs(&rig.publish(publish("a", Q0, 0))), ended_by_server(V5, ReasonCode::NotAuthorized));
}

/// Whoever it is may stay for so many milliseconds.
fn staying(user: &str, ms: u64, now: super::Now) -> Verdict {
    let principal = Principal::unlimited(user.into()).until(Some(now.wall_ms + ms));
    Verdict::Accept { principal: Arc::new(principal), data: None }
}

fn timeout(rig: &mut Rig) -> Vec<Effect> {
    rig.run(super::Machine::handle_timeout)
}

#[test]
fn a_client_whose_proof_expires_is_told_and_closed_with_its_will() {
    for version in VERSIONS {
        let mut rig = Rig::new(settings());
        rig.ask(Connect { keep_alive: 0, will: Some(will()), ..connect(version) });
        rig.judge(staying("u", 9_000, rig.now));
        rig.register(Ok(Registered::default()));
        rig.advance(8_999);
        assert!(timeout(&mut rig).is_empty());
        rig.advance(1);
        assert_eq!(rig.machine.next_timeout(), Some(rig.now.mono_ms));
        assert_eq!(briefs(&timeout(&mut rig)), ended_by_server(version, ReasonCode::MaximumConnectTime));
    }
    // It may take longer to be registered.
    let mut rig = Rig::new(settings());
    rig.ask(connect(V5));
    rig.judge(staying("u", 10, rig.now));
    rig.advance(50);
    rig.register(Ok(Registered::default()));
    assert_eq!(briefs(&timeout(&mut rig)), ended_by_server(V5, ReasonCode::MaximumConnectTime));
}

#[test]
fn the_keep_alive_ends_a_connection_before_its_proof_expires_and_after_it_does_not() {
    let ended = |keep_alive: u16, ms: u64| {
        let mut rig = Rig::new(settings());
        rig.ask(Connect { keep_alive, ..connect(V5) });
        rig.judge(staying("u", ms, rig.now));
        rig.register(Ok(Registered::default()));
        rig.advance(rig.machine.next_timeout().unwrap() - rig.now.mono_ms);
        briefs(&timeout(&mut rig))
    };
    assert_eq!(ended(2, 60_000), ended_by_server(V5, ReasonCode::KeepAliveTimeout));
    assert_eq!(ended(60, 2_000), ended_by_server(V5, ReasonCode::MaximumConnectTime));
}

#[test]
fn a_clock_that_is_set_ends_nothing_early_and_what_never_expires_overflows_nothing() {
    let mut rig = Rig::new(settings());
    rig.ask(Connect { keep_alive: 0, ..connect(V5) });
    rig.judge(staying("u", 9_000, rig.now));
    rig.register(Ok(Registered::default()));
    rig.now.mono_ms += 9_000;
    rig.now.wall_ms -= 1_000;
    assert!(timeout(&mut rig).is_empty());
    assert_eq!(rig.machine.next_timeout(), Some(rig.now.mono_ms + 10_000));
    rig.advance(10_000);
    assert_eq!(briefs(&timeout(&mut rig)), ended_by_server(V5, ReasonCode::MaximumConnectTime));
    let mut rig = Rig::new(settings());
    rig.ask(Connect { keep_alive: 0, ..connect(V5) });
    rig.judge(staying("u", u64::MAX - rig.now.wall_ms, rig.now));
    rig.register(Ok(Registered::default()));
    for _ in 0..3 {
        rig.advance(600_000);
        assert!(timeout(&mut rig).is_empty() && rig.machine.next_timeout() == Some(rig.now.mono_ms + 600_000));
    }
}

#[test]
fn a_new_proof_takes_the_place_of_the_one_that_expires() {
    let mut rig = Rig::new(settings());
    rig.ask(Connect { keep_alive: 0, username: Some("claimed".into()), ..enhanced() });
    rig.judge(staying("u", 5_000, rig.now));
    rig.register(Ok(Registered::default()));
    rig.advance(4_000);
    match &rig.packet(again("two"))[..] {
        [Effect::Authenticate(evidence)] => assert_eq!(evidence.user_name.as_deref(), Some("claimed"), "as in CONNECT"),
        other => panic!("{other:?}"),
    }
    assert_eq!(briefs(&rig.judge(staying("u", 60_000, rig.now))), ["AUTH 00 M -"]);
    rig.advance(59_999);
    assert!(timeout(&mut rig).is_empty());
    rig.packet(again("three"));
    rig.judge(accept("u", ""));
    assert_eq!(rig.machine.next_timeout(), None, "this one does not expire");
    // Nor does one hold longer than the new one says.
    rig.packet(again("four"));
    rig.judge(staying("u", 1_000, rig.now));
    rig.advance(1_000);
    assert_eq!(briefs(&timeout(&mut rig)), ended_by_server(V5, ReasonCode::MaximumConnectTime));
}

#[test]
fn a_user_name_that_was_the_proof_goes_no_further() {
    for (user, expected) in [(Some("ann"), Some("ann")), (None, None)] {
        let mut rig = Rig::new(settings());
        rig.ask(Connect { username: Some("a token".into()), ..connect(V3) });
        let principal = Principal::new(user.map(Into::into), "client".into(), None).hiding_the_claimed_name();
        match &rig.judge(Verdict::Accept { principal: Arc::new(principal), data: None })[..] {
            [Effect::Register(registration)] => assert_eq!(registration.username.as_deref(), expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_suback_names_the_filters_that_are_denied_and_not_without_end() {
    let reason = |effects: &[Effect]| match effects {
        [Effect::Send(Packet::Suback(suback))] => suback.reason_string.as_deref().map(ToOwned::to_owned),
        other => panic!("{other:?}"),
    };
    let denied = |filter: &str, qos: u8| format!("Not authorized to subscribe to topic '{filter}' with QoS '{qos}'.");
    let ask = |filters: &[(&str, crate::mqtt::QoS)]| {
        let mut rig = connected_as(V5, limited("a", Activity::All));
        let mut effects = rig.packet(Packet::Subscribe(Box::new(subscribe(7, filters))));
        if filters.contains(&("a", Q1)) {
            effects = rig.subscribed(1, &[ReasonCode::GrantedQoS1]);
        }
        reason(&effects)
    };
    assert_eq!(ask(&[("a", Q1)]), None);
    assert_eq!(ask(&[("b", Q2)]), Some(denied("b", 2)));
    assert_eq!(ask(&[("b", Q2), ("a", Q1), ("$share/g/c", Q0)]), Some(format!("{} {}", denied("b", 2), denied("$share/g/c", 0))));
    let many = vec![("x", Q0); 1000];
    let text = ask(&many).unwrap();
    assert!(text.ends_with(" And 992 more.") && text.len() < 1000, "{text}");
    let long = "ü".repeat(30_000);
    let text = ask(&[(&long, Q0)]).unwrap();
    assert!(text.contains("ü..' with QoS") && text.len() < 300, "{text}");
}
