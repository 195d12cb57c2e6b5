//! Messages from the client.

use bytes::Bytes;

use super::effect::{Effect, Registered};
use super::settings::SessionSettings;
use super::test_kit::*;
use crate::mqtt::packet::{Publish, PublishProperties};
use crate::mqtt::{Message, Packet, ReasonCode};

fn routed(effects: &[Effect]) -> Message {
    match effects {
        [Effect::Publish { message, .. }] => (**message).clone(),
        other => panic!("not routed: {other:?}"),
    }
}

#[test]
fn qos_0_is_routed_and_not_answered() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&rig.publish(publish("t", Q0, 0))), ["publish t as 1"]);
        assert!(rig.published(1, ReasonCode::NoMatchingSubscribers).is_empty());
        assert!(rig.published(1, ReasonCode::QuotaExceeded).is_empty());
    }
}

#[test]
fn a_message_takes_over_what_the_publish_carried() {
    let properties = PublishProperties {
        payload_format_indicator: Some(true),
        message_expiry_interval: Some(30),
        topic_alias: Some(1),
        response_topic: Some("answer".into()),
        correlation_data: Some(Bytes::from_static(b"c")),
        user_properties: vec![("k".into(), "v".into()), ("k".into(), "w".into())],
        content_type: Some("text".into()),
        ..PublishProperties::default()
    };
    let mut rig = Rig::of(V5);
    rig.advance(1_234);
    let got = routed(&rig.publish(Publish { retain: true, properties: properties.clone(), ..publish("t", Q1, 1) }));
    let want = Message {
        retain: true,
        payload_format_indicator: Some(true),
        message_expiry_interval: Some(30),
        response_topic: properties.response_topic,
        correlation_data: properties.correlation_data,
        user_properties: properties.user_properties,
        content_type: properties.content_type,
        received_at_ms: WALL_MS + 1_234,
        origin: crate::mqtt::Origin::Client("client".into()),
        ..message("t", Q1)
    };
    assert_eq!(got, want);
}

#[test]
fn message_expiry_is_the_smaller_of_the_publishers_and_the_maximum() {
    let table = [(None, None, None), (Some(7), None, Some(7)), (None, Some(5), Some(5)), (Some(7), Some(5), Some(5))];
    for (asked, max, want) in table.into_iter().chain([(Some(3), Some(5), Some(3)), (Some(0), Some(5), Some(0))]) {
        let mut rig = Rig::connected(SessionSettings { message_expiry_max_s: max, ..settings() }, connect(V5));
        let mut packet = publish("t", Q0, 0);
        packet.properties.message_expiry_interval = asked;
        assert_eq!(routed(&rig.publish(packet)).message_expiry_interval, want);
    }
}

#[test]
fn a_publish_that_breaks_a_rule_ends_the_connection() {
    type Change = fn(&mut Publish, &mut SessionSettings);
    let table: &[(&str, Change, ReasonCode)] = &[
        ("reserved topic", |p, _| p.topic = "$SYS/x".into(), ReasonCode::ProtocolError),
        ("add-on topic", |p, _| p.topic = "$expired/x".into(), ReasonCode::ProtocolError),
        ("wildcard", |p, _| p.topic = "a/+".into(), ReasonCode::TopicNameInvalid),
        ("no topic", |p, _| p.topic = "".into(), ReasonCode::ProtocolError),
        ("long topic", |p, s| (p.topic, s.max_topic_length) = ("abcd".into(), 3), ReasonCode::TopicNameInvalid),
        ("QoS above 1", |_, s| s.max_qos = Q1, ReasonCode::QoSNotSupported),
        ("QoS above 0", |_, s| s.max_qos = Q0, ReasonCode::QoSNotSupported),
        ("retain", |p, s| (p.retain, s.retained_messages) = (true, false), ReasonCode::RetainNotSupported),
    ];
    for (name, change, code) in table {
        for version in VERSIONS {
            let (mut packet, mut settings) = (publish("t", Q2, 1), settings());
            change(&mut packet, &mut settings);
            let mut rig = Rig::connected(settings, connect(version));
            assert_eq!(briefs(&rig.publish(packet)), ended_by_server(version, *code), "{name} {version:?}");
        }
    }
}

#[test]
fn properties_that_break_a_rule_end_an_mqtt_5_connection() {
    type Change = fn(&mut Publish);
    let table: &[(Change, ReasonCode)] = &[
        (|p| p.properties.subscription_identifiers.push(1), ReasonCode::ProtocolError),
        (|p| p.properties.topic_alias = Some(0), ReasonCode::ProtocolError),
        (|p| p.properties.topic_alias = Some(6), ReasonCode::TopicAliasInvalid),
        (|p| (p.topic, p.properties.topic_alias) = ("".into(), Some(5)), ReasonCode::TopicAliasInvalid),
    ];
    for (change, code) in table {
        let mut packet = publish("t", Q1, 1);
        change(&mut packet);
        assert_eq!(briefs(&Rig::of(V5).publish(packet)), ended_by_server(V5, *code));
    }
}

#[test]
fn an_alias_is_resolved_before_the_message_is_routed() {
    let mut rig = Rig::of(V5);
    for (topic, alias, want) in [("a", 5, "a"), ("", 5, "a"), ("b", 5, "b"), ("", 5, "b")] {
        let mut packet = publish(topic, Q0, 0);
        packet.properties.topic_alias = Some(alias);
        assert_eq!(routed(&rig.publish(packet)).topic, want);
    }
}

#[test]
fn a_topic_that_was_refused_never_gets_an_alias() {
    let mut packet = publish("$x", Q0, 0);
    packet.properties.topic_alias = Some(1);
    assert_eq!(briefs(&Rig::of(V5).publish(packet)), ended_by_server(V5, ReasonCode::ProtocolError));
}

#[test]
fn payload_format_is_checked_where_it_is_asked_for() {
    let table = [
        // QoS, validation, indicator, payload, what comes of it
        (Q0, true, Some(true), &b"\xff"[..], ended_by_server(V5, ReasonCode::PayloadFormatInvalid)),
        (Q1, true, Some(true), b"\xff", vec!["PUBACK 1 99".to_owned()]),
        (Q2, true, Some(true), b"\xff", vec!["PUBREC 1 99".to_owned()]),
        (Q1, false, Some(true), b"\xff", vec!["publish t as 1".to_owned()]),
        (Q1, true, Some(false), b"\xff", vec!["publish t as 1".to_owned()]),
        (Q1, true, None, b"\xff", vec!["publish t as 1".to_owned()]),
        (Q2, true, Some(true), b"ok", vec!["publish t as 1".to_owned()]),
    ];
    for (i, (qos, validation, indicator, payload, want)) in table.into_iter().enumerate() {
        let mut rig = Rig::connected(SessionSettings { payload_format_validation: validation, ..settings() }, connect(V5));
        let mut packet = Publish { payload: Bytes::from_static(payload), ..publish("t", qos, 1) };
        packet.properties.payload_format_indicator = indicator;
        assert_eq!(briefs(&rig.publish(packet)), want, "row {i}");
    }
}

#[test]
fn a_refused_payload_leaves_the_identifier_and_the_quota_free() {
    let settings = SessionSettings { payload_format_validation: true, server_receive_maximum: 1, ..settings() };
    let mut rig = Rig::connected(settings, connect(V5));
    for _ in 0..3 {
        let mut packet = Publish { payload: Bytes::from_static(b"\xff"), ..publish("t", Q2, 1) };
        packet.properties.payload_format_indicator = Some(true);
        assert_eq!(briefs(&rig.publish(packet)), ["PUBREC 1 99"]);
    }
    assert_eq!(briefs(&rig.publish(publish("t", Q2, 1))), ["publish t as 1"]);
}

#[test]
fn qos_1_is_acknowledged_when_it_is_safe() {
    for version in VERSIONS {
        for code in [ReasonCode::Success, ReasonCode::NoMatchingSubscribers] {
            let mut rig = Rig::of(version);
            assert_eq!(briefs(&rig.publish(publish("t", Q1, 9))), ["publish t as 1"]);
            assert_eq!(briefs(&rig.published(1, code)), [format!("PUBACK 9 {:02x}", code.byte())]);
            assert!(rig.published(1, code).is_empty());
        }
    }
}

#[test]
fn qos_1_with_an_acknowledged_identifier_is_a_new_message() {
    let mut rig = Rig::of(V5);
    rig.publish(publish("t", Q1, 9));
    rig.published(1, ReasonCode::Success);
    assert_eq!(briefs(&rig.publish(Publish { dup: true, ..publish("t", Q1, 9) })), ["publish t as 2"]);
}

#[test]
fn acknowledgements_leave_in_the_order_of_arrival() {
    let mut rig = Rig::of(V5);
    for (qos, packet_id) in [(Q1, 1), (Q2, 2), (Q1, 3), (Q2, 4)] {
        rig.publish(publish("t", qos, packet_id));
    }
    assert!(rig.published(3, ReasonCode::Success).is_empty());
    assert!(rig.published(2, ReasonCode::NoMatchingSubscribers).is_empty());
    assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), ["PUBACK 1 00", "PUBREC 2 10", "PUBACK 3 00"]);
    assert_eq!(briefs(&rig.published(4, ReasonCode::Success)), ["PUBREC 4 00"]);
}

#[test]
fn a_failure_is_told_to_mqtt_5_and_ends_mqtt_3() {
    for (qos, name) in [(Q1, "PUBACK"), (Q2, "PUBREC")] {
        let mut rig = Rig::of(V5);
        rig.publish(publish("t", qos, 1));
        let effects = rig.published(1, ReasonCode::QuotaExceeded);
        assert_eq!(briefs(&effects), [format!("{name} 1 97")]);
        match &effects[..] {
            [Effect::Send(Packet::Puback(p) | Packet::Pubrec(p))] => {
                assert_eq!(p.reason_string.as_deref(), Some("Quota exceeded"));
            }
            other => panic!("{other:?}"),
        }
        let mut rig = Rig::of(V3);
        rig.publish(publish("t", qos, 1));
        assert_eq!(briefs(&rig.published(1, ReasonCode::QuotaExceeded)), ended_by_server(V3, ReasonCode::QuotaExceeded));
    }
}

#[test]
fn a_publish_that_is_not_authorized_is_told_and_ends_the_connection() {
    let code = ReasonCode::NotAuthorized;
    for (qos, ack) in [(Q0, None), (Q1, Some("PUBACK 1 87")), (Q2, Some("PUBREC 1 87"))] {
        let mut rig = Rig::of(V5);
        rig.publish(publish("t", qos, if qos == Q0 { 0 } else { 1 }));
        let want: Vec<_> = ack.map(str::to_owned).into_iter().chain(ended_by_server(V5, code)).collect();
        assert_eq!(briefs(&rig.published(1, code)), want);

        let mut rig = Rig::of(V3);
        rig.publish(publish("t", qos, if qos == Q0 { 0 } else { 1 }));
        assert_eq!(briefs(&rig.published(1, code)), ended_by_server(V3, code));
    }
    assert!(Rig::of(V5).published(1, code).is_empty(), "never asked");
}

#[test]
fn qos_2_of_a_clean_session_is_kept_in_memory() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&rig.publish(publish("t", Q2, 9))), ["publish t as 1"]);
        assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), ["PUBREC 9 00"]);
        for _ in 0..3 {
            let again = Publish { dup: true, ..publish("t", Q2, 9) };
            assert_eq!(briefs(&rig.publish(again)), ["PUBREC 9 00"], "not routed twice");
        }
        assert_eq!(briefs(&rig.packet(pubrel(9))), ["PUBCOMP 9 00"]);
        assert_eq!(briefs(&rig.publish(publish("t", Q2, 9))), ["publish t as 2"], "free again");
    }
}

#[test]
fn qos_2_of_a_session_that_outlives_the_connection_is_stored() {
    for version in VERSIONS {
        let mut rig = Rig::connected(settings(), persistent(version));
        assert_eq!(briefs(&rig.publish(publish("t", Q2, 9))), ["publish t as 1 storing 9"]);
        assert_eq!(briefs(&rig.publish(publish("t", Q1, 9))), ["publish t as 2"]);
        assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), ["PUBREC 9 00"]);
        assert_eq!(briefs(&rig.packet(pubrel(9))), ["release 9 as 3"]);
        assert!(rig.packet(pubrel(9)).is_empty(), "answered by the PUBCOMP to come");
        assert!(rig.released(2).is_empty(), "no question of that kind");
        assert_eq!(briefs(&rig.released(3)), ["PUBCOMP 9 00"]);
        assert!(rig.released(3).is_empty());
        assert_eq!(briefs(&rig.publish(publish("t", Q2, 9))), ["publish t as 4 storing 9"]);
    }
}

#[test]
fn received_identifiers_of_a_resumed_session_are_known() {
    // cases.md 36
    let registered = Registered { session_present: true, received_packet_ids: vec![id(9), id(10)] };
    let mut rig = Rig::resumed(settings(), persistent(V5), registered);
    assert_eq!(briefs(&rig.publish(Publish { dup: true, ..publish("t", Q2, 9) })), ["PUBREC 9 00"]);
    for packet_id in [9, 10] {
        let release = briefs(&rig.packet(pubrel(packet_id)));
        assert_eq!(release, [format!("release {packet_id} as {}", packet_id - 8)]);
        assert_eq!(briefs(&rig.released(u64::from(packet_id) - 8)), [format!("PUBCOMP {packet_id} 00")]);
    }
    assert_eq!(briefs(&rig.packet(pubrel(9))), ["PUBCOMP 9 92"]);
}

#[test]
fn identifiers_without_a_session_are_not_taken_over() {
    let registered = Registered { session_present: false, received_packet_ids: vec![id(9)] };
    let mut rig = Rig::resumed(settings(), persistent(V5), registered);
    assert_eq!(briefs(&rig.publish(publish("t", Q2, 9))), ["publish t as 1 storing 9"]);
}

#[test]
fn a_repeated_publish_shares_the_fate_of_the_first() {
    for (code, byte) in [(ReasonCode::Success, "00"), (ReasonCode::QuotaExceeded, "97")] {
        let mut rig = Rig::of(V5);
        rig.publish(publish("t", Q1, 1));
        rig.publish(publish("t", Q2, 9));
        assert!(rig.publish(publish("t", Q2, 9)).is_empty(), "waits for the first");
        assert!(rig.published(2, code).is_empty(), "waits in line");
        assert!(rig.publish(publish("t", Q2, 9)).is_empty(), "the verdict is there, its turn is not");
        let want = format!("PUBREC 9 {byte}");
        assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), ["PUBACK 1 00", &want, &want, &want]);
        let next = briefs(&rig.publish(publish("t", Q2, 9)));
        if code.is_error() {
            assert_eq!(next, ["publish t as 3"], "a refused identifier is free");
        } else {
            assert_eq!(next, ["PUBREC 9 00"]);
        }
    }
}

#[test]
fn a_repeated_publish_does_not_take_the_fate_of_a_qos_1_message_with_its_identifier() {
    let mut rig = Rig::of(V5);
    for (qos, packet_id) in [(Q1, 1), (Q1, 9), (Q2, 9)] {
        rig.publish(publish("t", qos, packet_id));
    }
    rig.published(2, ReasonCode::QuotaExceeded);
    assert!(rig.publish(publish("t", Q2, 9)).is_empty());
    rig.published(3, ReasonCode::Success);
    let want = ["PUBACK 1 00", "PUBACK 9 97", "PUBREC 9 00", "PUBREC 9 00"];
    assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), want);
}

#[test]
fn a_pubrel_that_does_not_wait_for_its_pubrec_is_served_after_it() {
    for (connect, want) in
        [(connect(V5), vec!["PUBREC 9 00", "PUBCOMP 9 00"]), (persistent(V5), vec!["PUBREC 9 00", "release 9 as 2"])]
    {
        let mut rig = Rig::connected(settings(), connect);
        rig.publish(publish("t", Q2, 9));
        assert!(rig.packet(pubrel(9)).is_empty());
        assert_eq!(briefs(&rig.published(1, ReasonCode::Success)), want);
    }
}

#[test]
fn a_pubrel_for_an_unknown_identifier_is_answered_and_the_connection_goes_on() {
    // cases.md 32; the MQTT 3 encoder leaves the code out.
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&rig.packet(pubrel(4321))), ["PUBCOMP 4321 92"]);
        assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["PINGRESP"]);
    }
}

#[test]
fn overlapping_exchanges_complete_in_any_order() {
    // cases.md 39, 40
    let mut rig = Rig::of(V5);
    let mut ticket = 0;
    for round in 0..1_000_u16 {
        let ids: Vec<_> = (0..4).map(|i| (round * 4 + i) % 997 + 1).collect();
        for packet_id in &ids {
            ticket += 1;
            assert_eq!(briefs(&rig.publish(publish("t", Q2, *packet_id))), [format!("publish t as {ticket}")]);
        }
        for (i, packet_id) in ids.iter().enumerate() {
            let effects = rig.published(ticket - 3 + i as u64, ReasonCode::Success);
            assert_eq!(briefs(&effects), [format!("PUBREC {packet_id} 00")]);
        }
        for packet_id in ids.iter().rev() {
            assert_eq!(briefs(&rig.packet(pubrel(*packet_id))), [format!("PUBCOMP {packet_id} 00")]);
        }
    }
}

#[test]
fn one_message_above_the_receive_maximum_ends_an_mqtt_5_connection() {
    // cases.md 38
    for qos in [Q1, Q2] {
        let mut rig = Rig::of(V5);
        for packet_id in 1..=10 {
            assert_eq!(rig.publish(publish("t", qos, packet_id)).len(), 1);
        }
        rig.publish(publish("t", Q0, 0));
        let effects = rig.publish(publish("t", qos, 11));
        assert_eq!(briefs(&effects), ended_by_server(V5, ReasonCode::ReceiveMaximumExceeded));
    }
    let mut rig = Rig::of(V3);
    for packet_id in 1..=100 {
        assert_eq!(rig.publish(publish("t", Q2, packet_id)).len(), 1);
    }
}

#[test]
fn the_receive_maximum_counts_what_is_not_acknowledged() {
    let settings = SessionSettings { server_receive_maximum: 2, ..settings() };
    let mut rig = Rig::connected(settings.clone(), connect(V5));
    for round in 0..10 {
        rig.publish(publish("t", Q1, 1));
        rig.publish(publish("t", Q2, 2));
        // The same message again is not one more.
        rig.publish(Publish { dup: true, ..publish("t", Q2, 2) });
        assert_eq!(briefs(&rig.published(2 * round + 1, ReasonCode::Success)), ["PUBACK 1 00"]);
        assert_eq!(briefs(&rig.published(2 * round + 2, ReasonCode::Success)), ["PUBREC 2 00", "PUBREC 2 00"]);
        assert_eq!(briefs(&rig.packet(pubrel(2))), ["PUBCOMP 2 00"]);
    }
    // PUBREC alone does not give it back.
    for packet_id in [1, 2] {
        rig.publish(publish("t", Q2, packet_id));
        assert_eq!(rig.published(u64::from(packet_id) + 20, ReasonCode::Success).len(), 1);
    }
    assert_eq!(briefs(&rig.publish(publish("t", Q1, 3))), ended_by_server(V5, ReasonCode::ReceiveMaximumExceeded));

    // What an earlier connection left open does not count until it is sent again.
    let registered = Registered { session_present: true, received_packet_ids: vec![id(7), id(8)] };
    let mut rig = Rig::resumed(settings, persistent(V5), registered);
    rig.publish(publish("t", Q1, 1));
    assert_eq!(briefs(&rig.packet(pubrel(7))), ["release 7 as 2"]);
    assert_eq!(briefs(&rig.released(2)), ["PUBCOMP 7 00"]);
    assert!(rig.publish(publish("t", Q2, 8)).is_empty(), "waits in line");
    assert_eq!(briefs(&rig.publish(publish("t", Q1, 2))), ended_by_server(V5, ReasonCode::ReceiveMaximumExceeded));
}

#[test]
fn reading_stops_while_too_many_verdicts_are_awaited() {
    let mut rig = Rig::of(V3);
    let mut taken = 0;
    while rig.machine.wants_input() {
        taken += 1;
        rig.publish(publish("t", Q1, taken));
    }
    assert_eq!(taken, 256);
    assert_eq!(rig.machine.next_timeout(), None, "the client is not heard, so it cannot be silent");
    rig.advance(1_000_000);
    rig.published(1, ReasonCode::Success);
    assert!(rig.machine.wants_input());
    assert_eq!(rig.machine.next_timeout(), Some(rig.now.mono_ms + 90_001));
}
