//! Messages to the client.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::smallvec;

use super::effect::{AckOutcome, Effect};
use super::settings::SessionSettings;
use super::test_kit::*;
use crate::mqtt::packet::{Publish, PublishAck, PublishProperties};
use crate::mqtt::{Delivery, GroupId, Message, Packet, ReasonCode, Source};

fn share(seq: u64) -> Source {
    Source::Share { group: GroupId { share: "g".into(), filter: "t".into() }, seq }
}

fn queue(seq: u64) -> Source {
    Source::Queue { seq }
}

/// The effects of a delivery that is taken.
fn sent(rig: &mut Rig, delivery: Delivery) -> Vec<Effect> {
    let (taken, effects) = rig.deliver(delivery);
    assert!(taken);
    effects
}

/// The packet identifier a delivery is sent with.
fn sent_id(rig: &mut Rig, delivery: Delivery) -> u16 {
    match &sent(rig, delivery)[..] {
        [Effect::Send(Packet::Publish(p))] => p.packet_id.unwrap().get(),
        other => panic!("{other:?}"),
    }
}

fn acked(source: Source, outcome: AckOutcome) -> Effect {
    Effect::Acknowledge { source, outcome }
}

fn completed(source: Source) -> Effect {
    acked(source, AckOutcome::Completed(ReasonCode::Success))
}

#[test]
fn qos_0_is_sent_and_only_queues_are_told() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&sent(&mut rig, delivery(Q0, Source::Local))), ["PUBLISH t q0"]);
        for source in [share(3), queue(3)] {
            let effects = sent(&mut rig, delivery(Q0, source.clone()));
            assert_eq!(briefs(&effects[..1]), ["PUBLISH t q0"]);
            assert_eq!(effects[1..], [acked(source, AckOutcome::Sent)]);
        }
        assert_eq!(rig.machine.send_quota(), 50);
    }
}

#[test]
fn a_delivery_carries_the_message_to_mqtt_5_and_less_to_mqtt_3() {
    let message = Message {
        payload_format_indicator: Some(true),
        content_type: Some("text".into()),
        response_topic: Some("answer".into()),
        correlation_data: Some(Bytes::from_static(b"c")),
        user_properties: vec![("k".into(), "v".into())],
        message_expiry_interval: Some(10),
        ..message("t", Q2)
    };
    let delivery = Delivery {
        message: Arc::new(message),
        retain: true,
        dup: true,
        subscription_ids: smallvec![4, 9],
        ..delivery(Q1, queue(5))
    };
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        rig.advance(3_999);
        let properties = PublishProperties {
            payload_format_indicator: Some(true),
            message_expiry_interval: Some(7),
            topic_alias: None,
            response_topic: Some("answer".into()),
            correlation_data: Some(Bytes::from_static(b"c")),
            user_properties: vec![("k".into(), "v".into())],
            subscription_identifiers: smallvec![4, 9],
            content_type: Some("text".into()),
        };
        let want = Publish {
            dup: true,
            retain: true,
            properties: if version.is_v5() { properties } else { PublishProperties::default() },
            ..publish("t", Q1, 5)
        };
        assert_eq!(sent(&mut rig, delivery.clone()), [Effect::Send(Packet::Publish(Box::new(want)))]);
    }
}

#[test]
fn dup_is_never_set_on_qos_0() {
    let effects = sent(&mut Rig::of(V5), Delivery { dup: true, ..delivery(Q0, Source::Local) });
    assert_eq!(briefs(&effects), ["PUBLISH t q0"]);
}

#[test]
fn the_identifier_of_a_queue_entry_is_a_function_of_its_position() {
    let table =
        [(1, 1), (2, 2), (32_767, 32_767), (32_768, 1), (65_534, 32_767), (65_535, 1), (u64::MAX, 1 + (u64::MAX - 1) % 32_767)];
    for (seq, want) in table {
        assert_eq!(want, 1 + (seq - 1) % 32_767, "{seq}");
        assert_eq!(u64::from(sent_id(&mut Rig::of(V5), delivery(Q1, queue(seq)))), want, "{seq}");
    }
}

#[test]
fn identifiers_of_other_sources_go_round_in_the_upper_half() {
    let mut rig = Rig::of(V5);
    // One stays in flight over the whole round.
    assert_eq!(sent_id(&mut rig, delivery(Q1, Source::Local)), 32_768);
    for want in (32_769..=65_535).chain(32_769..=32_800) {
        let source = if want % 2 == 0 { Source::Local } else { share(u64::from(want)) };
        assert_eq!(sent_id(&mut rig, delivery(Q1, source)), want);
        assert_eq!(rig.packet(puback(want)).len(), 1);
    }
    // An entry of the queue between them moves nothing.
    assert_eq!(sent_id(&mut rig, delivery(Q1, queue(7))), 7);
    assert_eq!(sent_id(&mut rig, delivery(Q1, Source::Local)), 32_801);
}

#[test]
fn a_queue_entry_waits_while_its_identifier_is_in_use() {
    let mut rig = Rig::of(V5);
    assert_eq!(sent_id(&mut rig, delivery(Q1, queue(1))), 1);
    assert_eq!(rig.deliver(delivery(Q1, queue(32_768))), (false, vec![]));
    assert_eq!(rig.packet(puback(1)), [completed(queue(1))]);
    assert_eq!(sent_id(&mut rig, delivery(Q1, queue(32_768))), 1);
}

#[test]
fn nothing_above_the_quota_is_sent() {
    // cases.md 43
    let mut wanted = connect(V5);
    wanted.properties.receive_maximum = Some(2);
    let mut rig = Rig::connected(settings(), wanted);
    for seq in [1, 2] {
        sent(&mut rig, delivery(Q1, queue(seq)));
    }
    assert_eq!(rig.machine.send_quota(), 0);
    assert_eq!(rig.deliver(delivery(Q1, queue(3))), (false, vec![]));
    assert_eq!(rig.deliver(delivery(Q2, Source::Local)), (false, vec![]));
    assert_eq!(briefs(&sent(&mut rig, delivery(Q0, Source::Local))), ["PUBLISH t q0"], "QoS 0 has no quota");
    rig.packet(puback(1));
    assert_eq!(rig.machine.send_quota(), 1);
    sent(&mut rig, delivery(Q1, queue(3)));
}

#[test]
fn puback_completes_qos_1_with_its_code() {
    for code in [ReasonCode::Success, ReasonCode::NoMatchingSubscribers, ReasonCode::ImplementationSpecificError] {
        for source in [Source::Local, queue(1), share(1)] {
            let mut rig = Rig::of(V5);
            let packet_id = id(sent_id(&mut rig, delivery(Q1, source.clone())));
            let effects = rig.packet(Packet::Puback(PublishAck::new(packet_id, code)));
            assert_eq!(effects, [acked(source, AckOutcome::Completed(code))]);
            assert_eq!(rig.machine.send_quota(), 50);
        }
    }
}

#[test]
fn pubrel_of_a_queue_entry_waits_until_pubrec_is_stored() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        sent(&mut rig, delivery(Q2, queue(4)));
        assert_eq!(rig.packet(pubrec(4)), [acked(queue(4), AckOutcome::Received)]);
        assert!(rig.packet(pubrec(4)).is_empty(), "being stored");
        assert!(rig.packet(pubcomp(4)).is_empty(), "before PUBREL");
        let stored = |rig: &mut Rig, source| rig.run(|m, now, out| m.handle_acknowledged(&source, now, out));
        assert!(stored(&mut rig, queue(32_771)).is_empty(), "another entry with that identifier");
        assert!(stored(&mut rig, share(4)).is_empty());
        assert_eq!(briefs(&stored(&mut rig, queue(4))), ["PUBREL 4 00"]);
        assert!(stored(&mut rig, queue(4)).is_empty(), "once");
        assert_eq!(rig.machine.send_quota(), 49, "PUBREC gives no quota back");
        assert_eq!(briefs(&rig.packet(pubrec(4))), ["PUBREL 4 00"], "a repeated PUBREC is answered again");
        assert_eq!(rig.packet(pubcomp(4)), [completed(queue(4))]);
        assert_eq!(rig.machine.send_quota(), 50);
    }
}

#[test]
fn pubrel_of_other_sources_goes_at_once() {
    for source in [Source::Local, share(4)] {
        let mut rig = Rig::of(V5);
        let packet_id = sent_id(&mut rig, delivery(Q2, source.clone()));
        let effects = rig.packet(pubrec(packet_id));
        assert_eq!(effects[..1], [acked(source.clone(), AckOutcome::Received)]);
        assert_eq!(briefs(&effects[1..]), [format!("PUBREL {packet_id} 00")]);
        assert_eq!(rig.packet(pubcomp(packet_id)), [completed(source)]);
    }
}

#[test]
fn a_failing_pubrec_completes_the_delivery() {
    let mut rig = Rig::of(V5);
    sent(&mut rig, delivery(Q2, queue(4)));
    let refused = || Packet::Pubrec(PublishAck::new(id(4), ReasonCode::QuotaExceeded));
    assert_eq!(rig.packet(refused()), [acked(queue(4), AckOutcome::Completed(ReasonCode::QuotaExceeded))]);
    assert_eq!(rig.machine.send_quota(), 50);
    assert!(rig.packet(refused()).is_empty(), "a failure needs no PUBREL");
    assert_eq!(briefs(&rig.packet(pubrec(4))), ["PUBREL 4 92"]);
}

#[test]
fn acknowledgements_of_nothing_are_let_pass() {
    // cases.md 32
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert!(rig.packet(puback(5)).is_empty());
        assert!(rig.packet(pubcomp(5)).is_empty());
        assert_eq!(briefs(&rig.packet(pubrec(5))), ["PUBREL 5 92"]);
        assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["PINGRESP"]);
    }
}

#[test]
fn an_acknowledgement_of_the_wrong_kind_changes_nothing() {
    let mut rig = Rig::of(V5);
    sent(&mut rig, delivery(Q1, queue(1)));
    sent(&mut rig, delivery(Q2, queue(2)));
    for packet in [pubrec(1), pubcomp(1), puback(2), pubcomp(2)] {
        assert!(rig.packet(packet).is_empty());
    }
    assert_eq!(rig.packet(puback(1)), [completed(queue(1))]);
    assert_eq!(rig.packet(pubrec(2)), [acked(queue(2), AckOutcome::Received)]);
}

#[test]
fn a_resumed_release_sends_pubrel_and_awaits_pubcomp() {
    let mut rig = Rig::connected(settings(), persistent(V5));
    let effects = rig.run(|m, now, out| m.resume_release(32_770, now, out));
    assert_eq!(briefs(&effects), ["PUBREL 3 00"]);
    assert!(rig.run(|m, now, out| m.resume_release(32_770, now, out)).is_empty());
    assert_eq!(rig.machine.send_quota(), 49);
    assert_eq!(rig.deliver(delivery(Q1, queue(3))), (false, vec![]), "the identifier is in use");
    assert_eq!(rig.packet(pubcomp(3)), [completed(queue(32_770))]);
    assert_eq!(rig.machine.send_quota(), 50);
}

#[test]
fn more_resumed_releases_than_the_window_only_hold_messages_back() {
    let mut rig = Rig::connected(SessionSettings { max_inflight: 2, ..settings() }, persistent(V5));
    for seq in 1..=4 {
        assert_eq!(rig.run(|m, now, out| m.resume_release(seq, now, out)).len(), 1);
    }
    assert_eq!(rig.machine.send_quota(), 0);
    for seq in 1..=3 {
        rig.packet(pubcomp(seq));
    }
    assert_eq!(rig.machine.send_quota(), 1);
}

#[test]
fn an_expired_delivery_is_not_sent() {
    // cases.md 50, 33
    let table = [
        // QoS, dup, interval, waited ms, sent
        (Q0, false, 2, 1_999, true),
        (Q0, false, 2, 2_000, false),
        (Q1, false, 2, 2_000, false),
        (Q1, true, 2, 2_000, false),
        (Q2, false, 2, 2_000, false),
        (Q2, true, 2, 60_000, true),
        (Q1, false, 0, 0, false),
    ];
    for (qos, dup, interval, waited_ms, is_sent) in table {
        let mut rig = Rig::of(V5);
        rig.advance(waited_ms);
        let message = Arc::new(Message { message_expiry_interval: Some(interval), ..message("t", qos) });
        let delivery = Delivery { message, dup, ..delivery(qos, queue(1)) };
        let effects = sent(&mut rig, delivery.clone());
        if is_sent {
            assert!(matches!(effects[0], Effect::Send(_)), "{qos:?} {dup} {waited_ms}");
        } else {
            assert_eq!(effects, [Effect::Expired { delivery: Box::new(delivery) }], "{qos:?} {dup} {waited_ms}");
            assert_eq!(rig.machine.send_quota(), 50);
        }
    }
}

#[test]
fn nothing_is_delivered_unless_connected() {
    let mut rig = Rig::new(settings());
    assert_eq!(rig.deliver(delivery(Q0, Source::Local)), (false, vec![]));
    rig.connect(connect(V5));
    assert_eq!(rig.deliver(delivery(Q1, Source::Local)), (false, vec![]));
    let mut rig = Rig::of(V5);
    rig.run(super::Machine::handle_closed);
    assert_eq!(rig.deliver(delivery(Q1, Source::Local)), (false, vec![]));
    assert_eq!(rig.machine.send_quota(), 0);
}

/// A client that takes this many aliases.
fn aliasing(max: u16) -> crate::mqtt::packet::Connect {
    let mut wanted = connect(V5);
    wanted.properties.topic_alias_maximum = Some(max);
    wanted
}

/// Topic and alias of what is sent for a QoS 0 message to that topic; `None` where nothing is.
fn sent_to(rig: &mut Rig, topic: &str, payload_len: usize) -> Option<(String, Option<u16>)> {
    let message = Arc::new(Message { payload: vec![0; payload_len].into(), ..message(topic, Q0) });
    let (_, effects) = rig.deliver(Delivery { message, ..delivery(Q0, Source::Local) });
    match &effects[..] {
        [Effect::Send(Packet::Publish(p))] => Some((p.topic.to_string(), p.properties.topic_alias)),
        [Effect::Dropped { .. }] => None,
        other => panic!("{other:?}"),
    }
}

fn plain(topic: &str) -> Option<(String, Option<u16>)> {
    Some((topic.to_owned(), None))
}

#[test]
fn a_topic_sent_again_and_again_is_replaced_by_an_alias() {
    let mut rig = Rig::connected(settings(), aliasing(1));
    assert_eq!(sent_to(&mut rig, "long/topic", 0), plain("long/topic"));
    assert_eq!(sent_to(&mut rig, "long/topic", 0), Some(("long/topic".to_owned(), Some(1))));
    assert_eq!(sent_to(&mut rig, "long/topic", 0), Some((String::new(), Some(1))));
    assert_eq!(sent_to(&mut rig, "other/topic", 0), plain("other/topic"));
    assert_eq!(sent_to(&mut rig, "other/topic", 0), plain("other/topic"), "one alias was announced");
}

/// [MQTT-3.1.2-27], and the setting.
#[test]
fn no_alias_is_sent_where_the_client_announced_none_or_they_are_switched_off() {
    let off = SessionSettings { sent_topic_alias_max: 0, ..settings() };
    for (settings, wanted) in
        [(settings(), connect(V5)), (settings(), aliasing(0)), (off, aliasing(5)), (settings(), connect(V3))]
    {
        let mut rig = Rig::connected(settings, wanted);
        for _ in 0..4 {
            assert_eq!(sent_to(&mut rig, "long/topic", 0), plain("long/topic"));
        }
    }
}

#[test]
fn a_message_that_was_too_large_sets_no_alias() {
    let mut wanted = aliasing(5);
    wanted.properties.maximum_packet_size = Some(60);
    let mut rig = Rig::connected(settings(), wanted);
    assert_eq!(sent_to(&mut rig, "long/topic", 0), plain("long/topic"));
    assert_eq!(sent_to(&mut rig, "long/topic", 100), None);
    // 45 + 10 + 2 + 1 + 2: fits as it is, and not with the property.
    assert_eq!(sent_to(&mut rig, "long/topic", 45), plain("long/topic"));
    assert_eq!(sent_to(&mut rig, "long/topic", 0), Some(("long/topic".to_owned(), Some(1))));
    // Without its topic, more fits.
    assert_eq!(sent_to(&mut rig, "long/topic", 50), Some((String::new(), Some(1))));
    assert_eq!(sent_to(&mut rig, "long/topic", 60), None);
}

/// MQTT 5 section 3.3.2.3.4: aliases end with their connection; a resend names its topic.
#[test]
fn a_resend_on_a_new_connection_carries_its_topic() {
    let mut wanted = persistent(V5);
    wanted.properties.topic_alias_maximum = Some(5);
    for dup in [false, true] {
        let mut rig = Rig::connected(settings(), wanted.clone());
        let topics: Vec<_> = (1..=3)
            .map(|seq| {
                let message = Arc::new(message("long/topic", Q1));
                let (_, effects) = rig.deliver(Delivery { message, dup, ..delivery(Q1, Source::Queue { seq }) });
                match &effects[..] {
                    [Effect::Send(Packet::Publish(p))] => (p.dup, p.topic.to_string(), p.properties.topic_alias),
                    other => panic!("{other:?}"),
                }
            })
            .collect();
        let topic = || "long/topic".to_owned();
        assert_eq!(topics, [(dup, topic(), None), (dup, topic(), Some(1)), (dup, String::new(), Some(1))]);
    }
}

proptest::proptest! {
    /// What a client makes of packets and aliases is what was to be delivered, whatever was too large on the way.
    #[test]
    fn a_client_that_resolves_aliases_finds_the_topics_that_were_meant(
        max in 0_u16..4,
        deliveries in proptest::collection::vec((0_usize..7, 0_usize..60), 1..200),
    ) {
        let topics = ["short", "topic/1", "topic/2", "a/longer/topic/3", "a/longer/topic/4", "ünïcode/5", "topic/6"];
        let mut wanted = aliasing(max);
        wanted.properties.maximum_packet_size = Some(60);
        let mut rig = Rig::connected(settings(), wanted);
        let mut client = super::topic_alias::TopicAliases::new(max, &super::AliasMemory::default());
        for (number, payload_len) in deliveries {
            let topic = topics[number];
            if let Some((sent, alias)) = sent_to(&mut rig, topic, payload_len) {
                let resolved = client.resolve(sent.into(), alias);
                proptest::prop_assert_eq!(resolved.as_deref(), Ok(topic));
            }
        }
    }
}
