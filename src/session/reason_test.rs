//! The rows of spec/hivemq.md 9.1, 9.3 and 9.8 from bytes to effects: what each offence is told in MQTT 5 and in MQTT 3, codec and machine
//! together. Differences from HiveMQ are marked with their reason.

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use super::effect::{Effect, Registered};
use super::settings::{RefuseConnections, ServerReference, SessionSettings};
use super::test_kit::*;
use crate::mqtt::codec;
use crate::mqtt::packet::{Connect, Publish, Subscribe, WillProperties};
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

const V3_1: ProtocolVersion = ProtocolVersion::V3_1;

/// A row: settings, then what is sent, then the Reason Code of MQTT 5 (CONNACK or DISCONNECT) and the return code of MQTT 3 (CONNACK).
struct Row {
    name: &'static str,
    shape: fn(&mut SessionSettings),
    v5: Option<u8>,
    v3: Option<u8>,
}

fn row(name: &'static str, shape: fn(&mut SessionSettings), v5: Option<u8>, v3: Option<u8>) -> Row {
    Row { name, shape, v5, v3 }
}

fn encode(packet: &Packet, version: ProtocolVersion) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    codec::encode(packet, version, &mut bytes);
    bytes.to_vec()
}

/// Hands in bytes as the Client actor does.
fn feed(rig: &mut Rig, bytes: &[u8]) -> Vec<Effect> {
    let version = rig.machine.protocol();
    let decoded = codec::frame(bytes, rig.machine.max_packet_size_bytes())
        .and_then(|frame| codec::decode(frame.expect("whole"), Bytes::copy_from_slice(bytes), version));
    match decoded {
        Ok(packet) => rig.packet(packet),
        Err(error) => {
            let connect_version = if version.is_none() { codec::connect_version(bytes) } else { None };
            rig.run(|m, now, out| m.handle_decode_error(&error, connect_version, now, out))
        }
    }
}

/// The bytes that leave, and whether the connection is closed.
fn answer(effects: &[Effect], version: ProtocolVersion) -> (Vec<u8>, bool) {
    let sent = effects.iter().filter_map(|e| if let Effect::Send(packet) = e { Some(encode(packet, version)) } else { None });
    (sent.flatten().collect(), effects.last() == Some(&Effect::Close))
}

/// Type and code of the one packet that left.
fn code_of(bytes: &[u8], version: ProtocolVersion) -> Option<(u8, u8)> {
    let kind = bytes.first()? >> 4;
    match (kind, version.is_v5()) {
        (2, _) => Some((kind, bytes[3])),
        (14, true) => Some((kind, bytes[2])),
        other => panic!("{other:?}: {bytes:02X?}"),
    }
}

fn check_connect(rows: &[(Row, fn(&mut Connect))]) {
    for (row, change) in rows {
        for version in VERSIONS {
            let mut settings = settings();
            (row.shape)(&mut settings);
            let mut packet = Connect { will: Some(will()), ..connect(version) };
            change(&mut packet);
            let bytes = encode(&Packet::Connect(Box::new(packet)), version);
            let (sent, closed) = answer(&feed(&mut Rig::new(settings), &bytes), version);
            let expected = if version.is_v5() { row.v5 } else { row.v3 };
            assert_eq!(code_of(&sent, version), expected.map(|code| (2, code)), "{} {version:?}", row.name);
            assert!(closed, "{} {version:?}", row.name);
        }
    }
}

#[test]
fn a_connect_that_is_refused_says_why() {
    let rows: &[(Row, fn(&mut Connect))] = &[
        (row("will topic empty", |_| (), Some(0x90), Some(5)), |c| will_of(c, |w| w.topic = ByteString::new())),
        (row("will topic with wildcard", |_| (), Some(0x90), Some(5)), |c| will_of(c, |w| w.topic = "a/+".into())),
        (row("will topic too long", |s| s.max_topic_length = 3, Some(0x90), Some(5)), |_| ()),
        (row("will topic reserved", |_| (), Some(0x90), Some(5)), |c| will_of(c, |w| w.topic = "$dropped/x".into())),
        (row("will QoS", |s| s.max_qos = Q0, Some(0x9B), Some(5)), |_| ()),
        (row("will retain", |s| s.retained_messages = false, Some(0x9A), Some(5)), |c| will_of(c, |w| w.retain = true)),
        (row("client id too long", |s| s.max_client_id_length = 5, Some(0x85), Some(2)), |_| ()),
        (row("client id empty", |s| s.allow_empty_client_id = false, Some(0x85), Some(2)), |c| c.client_id = ByteString::new()),
        (row("packet too large", |s| s.max_packet_size_bytes = 20, Some(0x95), Some(5)), |_| ()),
        (row("control character in the client id", |_| (), Some(0x81), None), |c| c.client_id = "a\u{1}".into()),
        (row("non-character in the user name", |_| (), Some(0x81), None), |c| c.username = Some("a\u{fffe}".into())),
        (row("control character in the will topic", |_| (), Some(0x81), None), |c| will_of(c, |w| w.topic = "\u{9f}".into())),
        (row("U+0000 in the client id", |s| s.utf8_validation = false, Some(0x81), None), |c| c.client_id = "a\0".into()),
        (row("moved", |s| s.server_reference = reference(RefuseConnections::Always), Some(0x9D), Some(3)), |_| ()),
    ];
    check_connect(rows);
}

fn will_of(connect: &mut Connect, change: impl Fn(&mut crate::mqtt::packet::Will)) {
    connect.will.as_mut().into_iter().for_each(change);
}

#[expect(clippy::unnecessary_wraps, reason = "as the setting has it")]
fn reference(refuse: RefuseConnections) -> Option<ServerReference> {
    Some(ServerReference { reference: "other:1883".into(), at_shutdown: true, refuse })
}

#[test]
fn a_connect_with_properties_that_break_a_rule_is_refused() {
    let rows: &[(u8, fn(&mut SessionSettings), fn(&mut Connect))] = &[
        (
            0x99,
            |s| s.payload_format_validation = true,
            |c| {
                will_of(c, |w| {
                    w.payload = Bytes::from_static(b"\xff");
                    w.properties = WillProperties { payload_format_indicator: Some(true), ..WillProperties::default() };
                });
            },
        ),
        (0x90, |_| (), |c| will_of(c, |w| w.properties.response_topic = Some("a/#".into()))),
        (0x81, |_| (), |c| will_of(c, |w| w.properties.response_topic = Some("a\u{7f}".into()))),
        // spec/hivemq.md 9.1
        (0x95, |_| (), |c| c.properties.user_properties = vec![("k".repeat(60_000).into(), "v".repeat(60_000).into()); 44]),
    ];
    for (code, shape, change) in rows {
        let mut settings = settings();
        shape(&mut settings);
        let mut packet = Connect { will: Some(will()), ..connect(V5) };
        change(&mut packet);
        let bytes = encode(&Packet::Connect(Box::new(packet)), V5);
        let (sent, closed) = answer(&feed(&mut Rig::new(settings), &bytes), V5);
        assert_eq!((code_of(&sent, V5), closed), (Some((2, *code)), true));
    }
}

#[test]
fn a_first_packet_that_is_no_good_connect_is_answered_where_its_version_can_be_known() {
    // (bytes, the whole answer)
    let connect = |name: &[u8], level: u8| {
        let mut bytes = vec![0x10, 0, 0, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name);
        bytes.extend([level, 2, 0, 0, 0, 0, 0, 0]);
        bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
        bytes
    };
    let table: [(Vec<u8>, &[u8]); 8] = [
        // spec/hivemq.md 9.1: HiveMQ closes without a word. 3.1.1 section 3.1.2.2 has an answer for it, so that is given.
        (connect(b"MQTT", 6), &[0x20, 3, 0, 0x84, 0]),
        (connect(b"MQTT", 3), &[0x20, 2, 0, 1]),
        (connect(b"MQIsdp", 4), &[0x20, 2, 0, 1]),
        (connect(b"MQTX", 4), &[]),
        // Another packet first.
        (vec![0xC0, 0], &[]),
        (vec![0xE0, 0], &[]),
        // Bytes after the end of a 3.1.1 CONNECT.
        (connect(b"MQTT", 4), &[]),
        // A remaining length of five bytes.
        (vec![0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], &[]),
    ];
    for (bytes, expected) in table {
        let mut rig = Rig::new(settings());
        let effects = match codec::frame(&bytes, rig.machine.max_packet_size_bytes()) {
            Ok(_) => feed(&mut rig, &bytes),
            Err(error) => rig.run(|m, now, out| m.handle_decode_error(&error, codec::connect_version(&bytes), now, out)),
        };
        let version = rig.machine.protocol().unwrap_or(V5);
        let (mut sent, closed) = answer(&effects, version);
        if version.is_v5() && !sent.is_empty() {
            // Without the Reason String.
            sent = [0x20, 3, sent[2], sent[3], 0].to_vec();
        }
        assert_eq!((&sent[..], closed), (expected, true), "{bytes:02X?}");
    }
}

fn publish_row(change: fn(&mut Publish)) -> Packet {
    let mut packet = publish("topic", Q1, 1);
    change(&mut packet);
    Packet::Publish(Box::new(packet))
}

fn subscribe_row(filter: &str, change: fn(&mut Subscribe)) -> Packet {
    let mut packet = subscribe(7, &[(filter, Q1)]);
    change(&mut packet);
    Packet::Subscribe(Box::new(packet))
}

#[test]
fn what_ends_a_connection_is_told_mqtt_5_and_closes_mqtt_3() {
    let all: [(&str, fn(&mut SessionSettings), Packet, u8); 17] = [
        ("QoS", |s| s.max_qos = Q0, publish_row(|_| ()), 0x9B),
        ("retain", |s| s.retained_messages = false, publish_row(|p| p.retain = true), 0x9A),
        ("topic too long", |s| s.max_topic_length = 4, publish_row(|_| ()), 0x90),
        ("topic with wildcard", |_| (), publish_row(|p| p.topic = "a/#".into()), 0x90),
        ("topic with U+0000", |s| s.utf8_validation = false, publish_row(|p| p.topic = "a\0".into()), 0x81),
        ("topic with a control character", |_| (), publish_row(|p| p.topic = "a\u{1f}".into()), 0x81),
        ("topic with a non-character", |_| (), publish_row(|p| p.topic = "\u{fdd0}".into()), 0x81),
        ("topic with $", |_| (), publish_row(|p| p.topic = "$SYS/x".into()), 0x82),
        ("packet too large", |s| s.max_packet_size_bytes = 60, publish_row(|p| p.payload = vec![0; 60].into()), 0x95),
        ("filter", |_| (), subscribe_row("a/#/b", |_| ()), 0x8F),
        ("filter too long", |s| s.max_topic_length = 4, subscribe_row("topic", |_| ()), 0x8F),
        ("filter with a control character", |_| (), subscribe_row("a\u{2}", |_| ()), 0x81),
        ("share name with a control character", |_| (), subscribe_row("$share/a\u{2}/t", |_| ()), 0x81),
        ("wildcard", |s| s.wildcard_subscriptions = false, subscribe_row("a/+", |_| ()), 0xA2),
        ("shared", |s| s.shared_subscriptions = false, subscribe_row("$share/g/a", |_| ()), 0x9E),
        ("unsubscribe with a control character", |_| (), Packet::Unsubscribe(Box::new(unsubscribe(7, &["a\u{2}"]))), 0x81),
        // HiveMQ closes without DISCONNECT; MQTT 5 section 4.13 lets it be said.
        ("second CONNECT", |_| (), Packet::Connect(Box::new(connect(V5))), 0x82),
    ];
    for (name, shape, packet, code) in all {
        for version in VERSIONS {
            let mut settings = settings();
            shape(&mut settings);
            let mut rig = Rig::connected(settings, connect(version));
            let packet = match &packet {
                Packet::Connect(_) => Packet::Connect(Box::new(connect(version))),
                other => other.clone(),
            };
            let (sent, closed) = answer(&feed(&mut rig, &encode(&packet, version)), version);
            let expected = version.is_v5().then_some((14, code));
            assert_eq!((code_of(&sent, version), closed), (expected, true), "{name} {version:?}");
        }
    }
}

#[test]
fn what_only_mqtt_5_can_do_wrong() {
    let all: [(&str, fn(&mut SessionSettings), Packet, u8); 11] = [
        ("response topic with wildcard", |_| (), publish_row(|p| p.properties.response_topic = Some("+".into())), 0x90),
        ("response topic empty", |_| (), publish_row(|p| p.properties.response_topic = Some("".into())), 0x90),
        ("response topic, control", |_| (), publish_row(|p| p.properties.response_topic = Some("\n".into())), 0x81),
        ("alias above the maximum", |_| (), publish_row(|p| p.properties.topic_alias = Some(6)), 0x94),
        ("alias never set", |_| (), publish_row(|p| (p.topic, p.properties.topic_alias) = (ByteString::new(), Some(1))), 0x94),
        ("alias 0", |_| (), publish_row(|p| p.properties.topic_alias = Some(0)), 0x82),
        ("no topic", |_| (), publish_row(|p| p.topic = ByteString::new()), 0x82),
        ("identifier", |_| (), publish_row(|p| p.properties.subscription_identifiers.push(1)), 0x82),
        (
            "alias memory",
            |s| s.alias_memory = super::AliasMemory::new(1000, 10),
            publish_row(|p| p.properties.topic_alias = Some(1)),
            0x97,
        ),
        ("no local shared", |_| (), subscribe_row("$share/g/a", |s| s.filters[0].options.no_local = true), 0x82),
        (
            "subscription identifier off",
            |s| s.subscription_identifiers = false,
            subscribe_row("a", |s| s.subscription_identifier = Some(1)),
            0xA1,
        ),
    ];
    for (name, shape, packet, code) in all {
        let mut settings = settings();
        shape(&mut settings);
        let mut rig = Rig::connected(settings, connect(V5));
        let (sent, closed) = answer(&feed(&mut rig, &encode(&packet, V5)), V5);
        assert_eq!((code_of(&sent, V5), closed), (Some((14, code)), true), "{name}");
    }
}

#[test]
fn without_utf8_validation_control_and_non_characters_pass() {
    let lenient = SessionSettings { utf8_validation: false, ..settings() };
    for version in VERSIONS {
        let mut wanted = Connect { will: Some(will()), ..connect(version) };
        wanted.client_id = "c\u{1}\u{fffe}".into();
        wanted.username = Some("u\n".into());
        will_of(&mut wanted, |w| w.topic = "w\u{9f}".into());
        let mut rig = Rig::connected(lenient.clone(), wanted);
        let effects = rig.publish(publish("t\u{7f}", Q0, 0));
        assert_eq!(briefs(&effects), ["publish t\u{7f} as 1"]);
        let effects = rig.packet(Packet::Subscribe(Box::new(subscribe(7, &[("f\u{fdd0}/#", Q1)]))));
        assert_eq!(briefs(&effects), ["subscribe f\u{fdd0}/#:1 as 2"]);
        let effects = rig.packet(Packet::Unsubscribe(Box::new(unsubscribe(8, &["f\u{fdd0}/#"]))));
        assert_eq!(briefs(&effects), ["unsubscribe f\u{fdd0}/# as 3"]);
    }
}

#[test]
fn with_utf8_validation_properties_and_payloads_may_hold_any_text() {
    let mut rig = Rig::of(V5);
    let packet = publish_row(|p| {
        p.properties.user_properties = vec![("line\nbreak".into(), "\u{1}".into())];
        p.properties.content_type = Some("a\tb".into());
        p.payload = Bytes::from_static(b"\x01");
    });
    let effects = rig.packet(packet);
    assert!(matches!(effects[..], [Effect::Publish { .. }]), "{effects:?}");
}

/// Section 3.1.2.11.6: only who asks gets it, and only where there is one.
#[test]
fn response_information_goes_to_those_who_ask() {
    let template = || Some("responses/${{clientid}}/".into());
    // template, asked, client id, Maximum Packet Size, answer
    let table = [
        (template(), Some(true), "client", None, Some("responses/client/")),
        (template(), Some(false), "client", None, None),
        (template(), None, "client", None, None),
        (None, Some(true), "client", None, None),
        // It would be no topic name, or two clients could have one.
        (template(), Some(true), "a/+", None, None),
        (template(), Some(true), "#", None, None),
        (template(), Some(true), "ünïcode $/id", None, Some("responses/ünïcode $/id/")),
        // Left out before the connection is given up.
        (template(), Some(true), "client", Some(20), None),
    ];
    for (template, asked, client_id, max, expected) in table {
        let mut rig = Rig::new(SessionSettings { response_information: template, topic_alias_max: 0, ..settings() });
        let mut wanted = connect(V5);
        wanted.client_id = client_id.into();
        wanted.properties.request_response_information = asked;
        wanted.properties.maximum_packet_size = max;
        rig.connect(wanted);
        let connack = rig.connack(Ok(Registered::default()));
        assert_eq!(connack.reason_code, ReasonCode::Success);
        assert_eq!(connack.properties.response_information.as_deref(), expected, "{client_id} {asked:?}");
    }
}

fn references(effects: &[Effect]) -> Vec<(u8, Option<ByteString>)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(Packet::Connack(p)) => Some((p.reason_code.byte(), p.properties.server_reference.clone())),
            Effect::Send(Packet::Disconnect(p)) => Some((p.reason_code.byte(), p.properties.server_reference.clone())),
            _ => None,
        })
        .collect()
}

/// Sections 3.2.2.3.16, 3.14.2.2.5 and 4.11.
#[test]
fn a_server_reference_goes_with_the_codes_that_send_clients_away() {
    use ReasonCode as C;
    let other = Some(ByteString::from_static("other:1883"));
    let with = |refuse| SessionSettings { server_reference: reference(refuse), ..settings() };
    let shut = |settings: SessionSettings| {
        let mut rig = Rig::connected(settings, connect(V5));
        rig.run(|m, now, out| m.disconnect(C::ServerShuttingDown, "bye", true, now, out))
    };
    let effects = shut(with(RefuseConnections::Never));
    assert_eq!(references(&effects), [(0x9C, other.clone())]);
    // The event is the same as without.
    assert!(briefs(&effects).contains(&"end UNSPECIFIED - with will".to_owned()));
    let mut quiet = with(RefuseConnections::Never);
    quiet.server_reference.as_mut().unwrap().at_shutdown = false;
    assert_eq!(references(&shut(quiet)), [(0x8B, None)]);
    assert_eq!(references(&shut(settings())), [(0x8B, None)]);

    let refused = |settings: SessionSettings, code| {
        let mut rig = Rig::new(settings);
        rig.connect(connect(V5));
        references(&rig.register(Err(code)))
    };
    for code in [C::ServerUnavailable, C::ServerBusy, C::QuotaExceeded, C::ConnectionRateExceeded] {
        assert_eq!(refused(with(RefuseConnections::WhenUnavailable), code), [(0x9C, other.clone())], "{code:?}");
        assert_eq!(refused(with(RefuseConnections::Never), code), [(code.byte(), None)], "{code:?}");
        assert_eq!(refused(settings(), code), [(code.byte(), None)], "{code:?}");
    }
    assert_eq!(refused(with(RefuseConnections::WhenUnavailable), C::NotAuthorized), [(0x87, None)]);
    for version in [V3_1, V3] {
        let mut rig = Rig::new(with(RefuseConnections::WhenUnavailable));
        rig.connect(connect(version));
        let effects = rig.register(Err(C::QuotaExceeded));
        assert_eq!(answer(&effects, version), (vec![0x20, 2, 0, 3], true));
    }
}

#[test]
fn mqtt_3_return_codes_are_those_of_the_table() {
    use ReasonCode as C;
    let table = [
        (C::ServerUnavailable, Some(3)),
        (C::ServerBusy, Some(3)),
        (C::BadUserNameOrPassword, Some(4)),
        (C::BadAuthenticationMethod, Some(4)),
        (C::NotAuthorized, Some(5)),
        (C::Banned, Some(5)),
        (C::QuotaExceeded, Some(5)),
        (C::ConnectionRateExceeded, Some(5)),
        (C::UnspecifiedError, None),
        (C::ImplementationSpecificError, None),
    ];
    for (code, expected) in table {
        for version in [V3_1, V3] {
            let mut rig = Rig::new(settings());
            rig.connect(connect(version));
            let (sent, closed) = answer(&rig.register(Err(code)), version);
            let expected = expected.map_or(Vec::new(), |byte| vec![0x20, 2, 0, byte]);
            assert_eq!((sent, closed), (expected, true), "{code:?} {version:?}");
        }
    }
}

/// spec/hivemq.md 9.2.
#[test]
fn topic_alias_maximum_is_announced_while_there_is_memory() {
    let announced = |memory| {
        let mut rig = Rig::new(SessionSettings { alias_memory: memory, ..settings() });
        rig.connect(connect(V5));
        let maximum = rig.connack(Ok(Registered::default())).properties.topic_alias_maximum;
        let mut packet = publish("t", Q0, 0);
        packet.properties.topic_alias = Some(1);
        (maximum, briefs(&rig.publish(packet)))
    };
    assert_eq!(announced(super::AliasMemory::default()), (Some(5), vec!["publish t as 1".to_owned()]));
    // What was not announced is not accepted.
    assert_eq!(announced(super::AliasMemory::new(0, 1000)), (None, ended_by_server(V5, ReasonCode::TopicAliasInvalid)));
}

#[test]
fn answers_of_mqtt_3_1_are_those_of_its_time() {
    let mut rig = Rig::resumed(settings(), persistent(V3_1), Registered { session_present: true, ..Registered::default() });
    // DUP in SUBSCRIBE, UNSUBSCRIBE and PUBREL, as only that version has it.
    let (sent, closed) = answer(&feed(&mut rig, b"\x8A\x06\x00\x07\x00\x01t\x01"), V3_1);
    assert_eq!((sent.len(), closed), (0, false));
    assert_eq!(answer(&rig.subscribed(1, &[ReasonCode::GrantedQoS1]), V3_1).0, [0x90, 3, 0, 7, 1]);
    assert_eq!(briefs(&feed(&mut rig, b"\xAA\x05\x00\x08\x00\x01t")), ["unsubscribe t as 2"]);
    assert_eq!(answer(&rig.unsubscribed(2, &[false]), V3_1).0, [0xB0, 2, 0, 8]);
    assert_eq!(answer(&feed(&mut rig, b"\x6A\x02\x00\x09"), V3_1).0, [0x70, 2, 0, 9]);
    // No Session Present in its CONNACK.
    let mut rig = Rig::new(settings());
    rig.connect(persistent(V3_1));
    let present = Registered { session_present: true, ..Registered::default() };
    assert_eq!(answer(&rig.register(Ok(present)), V3_1), (vec![0x20, 2, 0, 0], false));
    // A SUBSCRIBE that is denied in part has no answer: the connection ends.
    feed(&mut rig, b"\x82\x0A\x00\x07\x00\x01a\x01\x00\x01b\x01");
    let denied = rig.subscribed(1, &[ReasonCode::GrantedQoS1, ReasonCode::NotAuthorized]);
    assert_eq!(answer(&denied, V3_1), (Vec::new(), true));
    // A long client id is none of our business; an empty one is refused.
    let long = Connect { client_id: "c".repeat(200).into(), ..connect(V3_1) };
    Rig::new(settings()).connect(long);
    let empty = Connect { client_id: ByteString::new(), ..connect(V3_1) };
    let (sent, closed) = answer(&feed(&mut Rig::new(settings()), &encode(&Packet::Connect(Box::new(empty)), V3_1)), V3_1);
    assert_eq!((sent, closed), (vec![0x20, 2, 0, 2], true));
}

#[test]
fn what_is_subscribed_above_the_maximum_qos_is_granted_less_in_all_versions() {
    let maximum: [(QoS, u8); 3] = [(Q0, 0), (Q1, 1), (Q2, 2)];
    for version in VERSIONS {
        for (max_qos, granted) in maximum {
            let mut rig = Rig::connected(SessionSettings { max_qos, ..settings() }, connect(version));
            let effects = rig.packet(Packet::Subscribe(Box::new(subscribe(7, &[("t", Q2)]))));
            assert_eq!(briefs(&effects), [format!("subscribe t:{granted} as 1")]);
        }
    }
}

/// MQTT 5 table 3-10.
#[test]
fn a_disconnect_with_a_code_of_the_server_is_a_protocol_error() {
    for byte in 0..=255 {
        let Some(code) = ReasonCode::from_byte(byte) else { continue };
        let bytes = [0xE0, 1, byte];
        let (sent, closed) = answer(&feed(&mut Rig::of(V5), &bytes), V5);
        let expected = match byte {
            0x00 | 0x04 | 0x80..=0x83 | 0x90 | 0x93..=0x99 => None,
            // Codes of DISCONNECT that only a server sends.
            0x87 | 0x89 | 0x8B..=0x8F | 0x9A..=0xA2 => Some((14, 0x82)),
            // No codes of DISCONNECT at all.
            _ => Some((14, sent[2])),
        };
        assert_eq!((code_of(&sent, V5), closed), (expected, true), "{code:?}");
    }
}
