//! CONNECT to CONNACK.

use bytestring::ByteString;

use super::effect::{Effect, Registered};
use super::settings::{KeepAlivePolicy, SessionSettings};
use super::test_kit::*;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Connack, ConnackProperties, Connect, Will};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode};

/// What a refused CONNECT leads to.
fn refusal(settings: SessionSettings, connect: Connect) -> Vec<String> {
    let mut rig = Rig::new(settings);
    let effects = rig.packet(Packet::Connect(Box::new(connect)));
    assert!(rig.machine.is_closed());
    briefs(&effects)
}

#[test]
fn a_valid_connect_awaits_the_registration_before_its_connack() {
    for version in VERSIONS {
        let mut rig = Rig::new(settings());
        assert_eq!(rig.machine.protocol(), None);
        assert!(rig.machine.wants_input());
        let registration = rig.connect(connect(version));
        assert_eq!(registration.client_id, "client");
        assert_eq!(registration.protocol, version);
        assert_eq!(rig.machine.protocol(), Some(version));
        assert!(!rig.machine.wants_input());
        assert_eq!(rig.machine.send_quota(), 0);
        assert_eq!(briefs(&rig.register(Ok(Registered::default()))), ["CONNACK 00"]);
        assert!(rig.machine.wants_input());
        assert_eq!(rig.machine.send_quota(), 50);
        // A second answer is none.
        assert!(rig.register(Ok(Registered::default())).is_empty());
    }
}

#[test]
fn a_registration_of_unknown_outcome_is_answered_with_nothing_but_the_end() {
    for version in VERSIONS {
        let mut rig = Rig::new(settings());
        rig.connect(connect(version));
        assert_eq!(briefs(&rig.run(|machine, _, out| machine.registration_unknown(out))), ["close"]);
        assert!(rig.machine.is_closed());
        assert!(rig.register(Ok(Registered::default())).is_empty());
        let mut rig = Rig::new(settings());
        rig.connect(connect(version));
        rig.register(Ok(Registered::default()));
        assert!(rig.run(|machine, _, out| machine.registration_unknown(out)).is_empty(), "it is known by now");
    }
}

#[test]
fn the_registration_carries_who_connects() {
    let mut wanted = connect(V5);
    wanted.username = Some(ByteString::from_static("user"));
    wanted.properties.user_properties = vec![("a".into(), "b".into())];
    let registration = Rig::new(settings()).connect(wanted);
    assert_eq!(registration.username.as_deref(), Some("user"));
    assert_eq!(registration.user_properties, [("a".into(), "b".into())]);
}

#[test]
fn session_expiry_is_capped_and_a_cut_is_told() {
    use ProtocolVersion::{V3_1, V3_1_1, V5};
    let table = [
        // version, clean start, asked, maximum, in force, in CONNACK
        (V5, true, None, u32::MAX, 0, None),
        (V5, false, None, 100, 0, None),
        (V5, false, Some(50), 100, 50, None),
        (V5, true, Some(100), 100, 100, None),
        (V5, true, Some(101), 100, 100, Some(100)),
        (V5, true, Some(u32::MAX), u32::MAX, u32::MAX, None),
        (V5, true, Some(5), 0, 0, Some(0)),
        (V3_1_1, true, None, 100, 0, None),
        (V3_1, true, None, 100, 0, None),
    ];
    for (i, (version, clean_start, asked, max, in_force, told)) in table.into_iter().enumerate() {
        let mut rig = Rig::new(SessionSettings { session_expiry_max_s: max, ..settings() });
        let mut connect = connect(version);
        connect.clean_start = clean_start;
        connect.properties.session_expiry_interval = asked;
        let registration = rig.connect(connect);
        assert_eq!(registration.session_expiry_interval_s, in_force, "row {i}");
        assert_eq!(registration.clean_start, clean_start, "row {i}");
        let connack = rig.connack(Ok(Registered::default()));
        assert_eq!(connack.properties.session_expiry_interval, told, "row {i}");
    }
    for version in [V3_1, V3_1_1] {
        let mut rig = Rig::new(SessionSettings { session_expiry_max_s: 100, ..settings() });
        assert_eq!(rig.connect(persistent(version)).session_expiry_interval_s, 100);
    }
}

#[test]
fn an_empty_client_id_is_replaced_only_where_it_may_be() {
    use ProtocolVersion::{V3_1, V3_1_1, V5};
    let table = [
        // version, clean start, allowed, accepted
        (V5, true, true, true),
        (V5, false, true, true),
        (V5, true, false, false),
        (V3_1_1, true, true, true),
        (V3_1_1, false, true, false),
        (V3_1_1, true, false, false),
        (V3_1, true, true, false),
        (V3_1, false, true, false),
    ];
    for (version, clean_start, allowed, accepted) in table {
        let settings = SessionSettings { allow_empty_client_id: allowed, ..settings() };
        let wanted = Connect { client_id: ByteString::new(), clean_start, ..connect(version) };
        if !accepted {
            assert_eq!(refusal(settings, wanted), ["CONNACK 85", "close"], "{version:?} {clean_start} {allowed}");
            continue;
        }
        let mut rig = Rig::new(settings);
        let registration = rig.connect(wanted);
        assert_eq!(registration.client_id, "assigned-1");
        assert!(registration.client_id_assigned);
        let connack = rig.connack(Ok(Registered::default()));
        assert_eq!(connack.properties.assigned_client_identifier.as_deref(), Some("assigned-1"));
    }
    let mut rig = Rig::new(settings());
    assert!(!rig.connect(connect(V5)).client_id_assigned);
    assert_eq!(rig.connack(Ok(Registered::default())).properties.assigned_client_identifier, None);
}

#[test]
fn a_client_id_may_be_as_long_as_the_limit() {
    for (len, accepted) in [(5, true), (6, false)] {
        let settings = SessionSettings { max_client_id_length: 5, ..settings() };
        let wanted = Connect { client_id: "x".repeat(len).into(), ..connect(V5) };
        if accepted {
            Rig::new(settings).connect(wanted);
        } else {
            assert_eq!(refusal(settings, wanted), ["CONNACK 85", "close"]);
        }
    }
}

#[test]
fn connack_leaves_the_defaults_out() {
    let mut rig = Rig::new(SessionSettings { server_receive_maximum: 65_535, topic_alias_max: 0, ..settings() });
    rig.connect(connect(V5));
    let connack = rig.connack(Ok(Registered::default()));
    let want = Connack { session_present: false, reason_code: ReasonCode::Success, properties: ConnackProperties::default() };
    assert_eq!(connack, want);
}

#[test]
fn connack_tells_every_restriction() {
    let restricted = SessionSettings {
        server_receive_maximum: 7,
        topic_alias_max: 3,
        max_packet_size_bytes: 1000,
        max_qos: Q1,
        retained_messages: false,
        wildcard_subscriptions: false,
        shared_subscriptions: false,
        subscription_identifiers: false,
        keep_alive_policy: KeepAlivePolicy::HiveMq { max_s: 30, allow_unlimited: true },
        ..settings()
    };
    let mut rig = Rig::new(restricted);
    assert_eq!(rig.machine.max_packet_size_bytes(), 1000);
    rig.connect(connect(V5));
    let properties = rig.connack(Ok(Registered::default())).properties;
    let want = ConnackProperties {
        receive_maximum: Some(7),
        topic_alias_maximum: Some(3),
        maximum_packet_size: Some(1000),
        maximum_qos: Some(Q1),
        retain_available: Some(false),
        wildcard_subscription_available: Some(false),
        shared_subscription_available: Some(false),
        subscription_identifiers_available: Some(false),
        server_keep_alive: Some(30),
        ..ConnackProperties::default()
    };
    assert_eq!(properties, want);
}

#[test]
fn session_present_is_told_to_all_that_know_it() {
    for (version, want) in [(ProtocolVersion::V3_1, false), (V3, true), (V5, true)] {
        let mut rig = Rig::new(settings());
        rig.connect(persistent(version));
        let registered = Registered { session_present: true, received_packet_ids: vec![] };
        assert_eq!(rig.connack(Ok(registered)).session_present, want, "{version:?}");
    }
}

#[test]
fn the_send_quota_is_the_smaller_of_receive_maximum_and_window() {
    for (receive_maximum, quota) in [(None, 50), (Some(1), 1), (Some(50), 50), (Some(65_535), 50)] {
        let mut wanted = connect(V5);
        wanted.properties.receive_maximum = receive_maximum;
        assert_eq!(Rig::connected(settings(), wanted).machine.send_quota(), quota);
    }
}

#[test]
fn a_will_that_may_not_be_published_refuses_the_connect() {
    type Change = fn(&mut Will, &mut SessionSettings);
    let table: &[(&str, Change, ReasonCode)] = &[
        ("reserved", |w, _| w.topic = "$SYS/x".into(), ReasonCode::TopicNameInvalid),
        ("reserved by an add-on", |w, _| w.topic = "$dropped/x".into(), ReasonCode::TopicNameInvalid),
        ("wildcard", |w, _| w.topic = "a/#".into(), ReasonCode::TopicNameInvalid),
        ("empty", |w, _| w.topic = ByteString::new(), ReasonCode::TopicNameInvalid),
        ("too long", |_, s| s.max_topic_length = 3, ReasonCode::TopicNameInvalid),
        ("QoS", |_, s| s.max_qos = Q0, ReasonCode::QoSNotSupported),
        ("retain", |w, s| (w.retain, s.retained_messages) = (true, false), ReasonCode::RetainNotSupported),
        (
            "payload format",
            |w, s| {
                w.payload = bytes::Bytes::from_static(b"\xff");
                w.properties.payload_format_indicator = Some(true);
                s.payload_format_validation = true;
            },
            ReasonCode::PayloadFormatInvalid,
        ),
    ];
    for (name, change, code) in table {
        for version in VERSIONS {
            let (mut will, mut settings) = (will(), settings());
            change(&mut will, &mut settings);
            let wanted = Connect { will: Some(will), ..connect(version) };
            assert_eq!(refusal(settings, wanted), [format!("CONNACK {:02x}", code.byte()), "close".into()], "{name}");
        }
    }
}

#[test]
fn a_good_will_is_registered_with_its_capped_expiry_and_delay() {
    let table = [(None, None, None), (Some(9), None, Some(9)), (Some(9), Some(5), Some(5)), (None, Some(5), Some(5))];
    for (asked, max, want) in table {
        let mut wanted = will();
        wanted.retain = true;
        wanted.properties.message_expiry_interval = asked;
        wanted.properties.will_delay_interval = Some(3);
        let settings = SessionSettings { message_expiry_max_s: max, ..settings() };
        let registration = Rig::new(settings).connect(Connect { will: Some(wanted), ..connect(V5) });
        let got = registration.will.unwrap();
        assert_eq!(got.delay_interval_s, 3);
        assert_eq!(got.message.message_expiry_interval, want);
        assert_eq!((&*got.message.topic, got.message.retain, got.message.qos), ("will", true, Q1));
        assert_eq!(got.message.publisher().map(|p| &**p), Some("client"));
    }
}

#[test]
fn a_refused_registration_is_told_and_closed_without_an_end() {
    use ReasonCode as C;
    let table = [
        (C::NotAuthorized, "CONNACK 87", "CONNACK 87"),
        (C::BadUserNameOrPassword, "CONNACK 86", "CONNACK 86"),
        (C::ServerUnavailable, "CONNACK 88", "CONNACK 88"),
        (C::QuotaExceeded, "CONNACK 97", "CONNACK 97"),
        (C::ConnectionRateExceeded, "CONNACK 9f", "CONNACK 9f"),
        // MQTT 3 has no return code for it.
        (C::UnspecifiedError, "CONNACK 80", ""),
        // CONNACK may not say it.
        (C::ServerShuttingDown, "CONNACK 88", "CONNACK 88"),
        (C::SessionTakenOver, "", ""),
    ];
    for (code, to_v5, to_v3) in table {
        for (version, connack) in [(V5, to_v5), (V3, to_v3)] {
            let mut rig = Rig::new(settings());
            rig.connect(connect(version));
            rig.packet(Packet::Pingreq);
            let want: Vec<_> = [connack, "close"].into_iter().filter(|s| !s.is_empty()).collect();
            assert_eq!(briefs(&rig.register(Err(code))), want, "{code:?} {version:?}");
            assert!(rig.machine.is_closed());
        }
    }
}

#[test]
fn what_comes_before_connect_closes_without_an_answer() {
    let packets = [
        Packet::Pingreq,
        Packet::Publish(Box::new(publish("t", Q0, 0))),
        Packet::Subscribe(Box::new(subscribe(1, &[("t", Q0)]))),
        Packet::Disconnect(Box::new(disconnect(ReasonCode::Success, None))),
        Packet::Pingresp,
        puback(1),
    ];
    for packet in packets {
        let mut rig = Rig::new(settings());
        assert_eq!(briefs(&rig.packet(packet)), ["close"]);
        assert!(rig.packet(Packet::Connect(Box::new(connect(V5)))).is_empty());
    }
}

#[test]
fn a_broken_connect_is_refused_in_the_version_it_named() {
    use ProtocolVersion::{V3_1, V3_1_1, V5};
    let version = |name: &str, level| DecodeError::UnsupportedProtocolVersion { name: name.to_owned(), level };
    let too_large = DecodeError::PacketTooLarge { size: 9, max: 8 };
    let table = [
        (DecodeError::Malformed("x"), Some(V5), vec!["CONNACK 81", "close"], Some(V5)),
        (DecodeError::Protocol("x"), Some(V5), vec!["CONNACK 82", "close"], Some(V5)),
        (DecodeError::Malformed("x"), Some(V3_1_1), vec!["close"], Some(V3_1_1)),
        (DecodeError::Protocol("x"), Some(V3_1), vec!["close"], Some(V3_1)),
        (DecodeError::Malformed("x"), None, vec!["close"], None),
        (DecodeError::Code(ReasonCode::TopicNameInvalid, "x"), Some(V5), vec!["CONNACK 90", "close"], Some(V5)),
        (DecodeError::Code(ReasonCode::ClientIdentifierNotValid, "x"), Some(V3_1), vec!["CONNACK 85", "close"], Some(V3_1)),
        (too_large.clone(), Some(V5), vec!["CONNACK 95", "close"], Some(V5)),
        (too_large.clone(), Some(V3_1_1), vec!["CONNACK 95", "close"], Some(V3_1_1)),
        (too_large, None, vec!["close"], None),
        (DecodeError::RemainingLength, Some(V5), vec!["close"], None),
        (DecodeError::Carrier, None, vec!["close"], None),
        (version("MQTT", 6), None, vec!["CONNACK 84", "close"], Some(V5)),
        (version("MQTT", 255), None, vec!["CONNACK 84", "close"], Some(V5)),
        (version("MQTT", 0), None, vec!["CONNACK 84", "close"], Some(V3_1_1)),
        (version("MQTT", 3), None, vec!["CONNACK 84", "close"], Some(V3_1_1)),
        (version("MQIsdp", 4), None, vec!["CONNACK 84", "close"], Some(V3_1_1)),
        (version("MQTX", 4), None, vec!["close"], None),
        (version("", 5), None, vec!["close"], None),
    ];
    for (error, connect_version, want, encoded_in) in table {
        let mut rig = Rig::new(settings());
        let effects = rig.run(|m, now, out| m.handle_decode_error(&error, connect_version, now, out));
        assert_eq!(briefs(&effects), want, "{error:?}");
        assert_eq!(rig.machine.protocol(), encoded_in, "{error:?}");
        assert!(rig.machine.is_closed());
    }
}

#[test]
fn a_refusal_says_why_to_an_mqtt_5_client() {
    let wanted = Connect { client_id: "x".repeat(9).into(), ..connect(V5) };
    let mut rig = Rig::new(SessionSettings { max_client_id_length: 5, ..settings() });
    match &rig.packet(Packet::Connect(Box::new(wanted)))[..] {
        [Effect::Send(Packet::Connack(connack)), Effect::Close] => {
            assert_eq!(connack.properties.reason_string.as_deref(), Some("client identifier is too long"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_connect_the_connection_is_closed_in_time() {
    let mut rig = Rig::new(settings());
    assert_eq!(rig.machine.next_timeout(), Some(15_000));
    rig.advance(9_999);
    rig.machine.handle_bytes(rig.now);
    assert!(rig.run(super::Machine::handle_timeout).is_empty());
    rig.advance(1);
    assert_eq!(briefs(&rig.run(super::Machine::handle_timeout)), ["close"]);
    assert_eq!(rig.machine.next_timeout(), None);

    let rig = Rig::new(SessionSettings { no_connect_idle_timeout_ms: 0, ..settings() });
    assert_eq!(rig.machine.next_timeout(), None);
}
