//! SUBSCRIBE and UNSUBSCRIBE.

use super::effect::Effect;
use super::settings::SessionSettings;
use super::test_kit::*;
use crate::mqtt::packet::{RetainHandling, Subscribe, SubscriptionOptions};
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

fn ask(rig: &mut Rig, subscribe: Subscribe) -> Vec<Effect> {
    rig.packet(Packet::Subscribe(Box::new(subscribe)))
}

fn cancel(rig: &mut Rig, filters: &[&str]) -> Vec<Effect> {
    rig.packet(Packet::Unsubscribe(Box::new(unsubscribe(8, filters))))
}

#[test]
fn suback_says_what_was_granted_in_the_order_of_the_filters() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        let effects = ask(&mut rig, subscribe(7, &[("a", Q2), ("+/b", Q0), ("c/#", Q1), ("a", Q1)]));
        assert_eq!(briefs(&effects), ["subscribe a:2,+/b:0,c/#:1,a:1 as 1"]);
        let codes = [ReasonCode::GrantedQoS2, ReasonCode::Success, ReasonCode::GrantedQoS1, ReasonCode::GrantedQoS1];
        assert_eq!(briefs(&rig.subscribed(1, &codes)), ["SUBACK 7 02 00 01 01"]);
        assert!(rig.subscribed(1, &codes).is_empty());
    }
}

#[test]
fn options_and_identifier_reach_the_outside() {
    let options =
        SubscriptionOptions { qos: Q1, no_local: true, retain_as_published: true, retain_handling: RetainHandling::SendIfNew };
    let mut packet = subscribe(7, &[("a", Q1)]);
    packet.subscription_identifier = Some(42);
    packet.filters[0].options = options;
    match &ask(&mut Rig::of(V5), packet)[..] {
        [Effect::Subscribe { subscriptions, .. }] => {
            assert_eq!(subscriptions[0].options, options);
            assert_eq!(subscriptions[0].identifier, Some(42));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_granted_qos_is_within_the_maximum_also_for_shared_subscriptions() {
    let table: [(QoS, &str, QoS, u8); 7] = [
        (Q2, "t", Q2, 2),
        (Q2, "t", Q1, 1),
        (Q1, "t", Q2, 1),
        (Q2, "$share/g/t", Q2, 2),
        (Q1, "$share/g/t", Q0, 0),
        (Q2, "$share/g/t", Q0, 0),
        (Q0, "$share/g/t", Q2, 0),
    ];
    for (asked, filter, max, granted) in table {
        for version in VERSIONS {
            let mut rig = Rig::connected(SessionSettings { max_qos: max, ..settings() }, connect(version));
            let effects = ask(&mut rig, subscribe(7, &[(filter, asked)]));
            assert_eq!(briefs(&effects), [format!("subscribe {filter}:{granted} as 1")]);
        }
    }
}

#[test]
fn a_filter_that_may_not_be_ends_the_connection() {
    type Change = fn(&mut SessionSettings);
    let table: &[(&str, Change, ReasonCode)] = &[
        ("a/#/b", |_| (), ReasonCode::TopicFilterInvalid),
        ("a+", |_| (), ReasonCode::TopicFilterInvalid),
        ("", |_| (), ReasonCode::TopicFilterInvalid),
        ("$share/g", |_| (), ReasonCode::TopicFilterInvalid),
        ("$share//t", |_| (), ReasonCode::TopicFilterInvalid),
        ("$share/+/t", |_| (), ReasonCode::TopicFilterInvalid),
        ("abcd", |s| s.max_topic_length = 3, ReasonCode::TopicFilterInvalid),
        ("a/+", |s| s.wildcard_subscriptions = false, ReasonCode::WildcardSubscriptionsNotSupported),
        ("$share/g/#", |s| s.wildcard_subscriptions = false, ReasonCode::WildcardSubscriptionsNotSupported),
        ("$share/g/t", |s| s.shared_subscriptions = false, ReasonCode::SharedSubscriptionsNotSupported),
    ];
    for (filter, change, code) in table {
        for version in VERSIONS {
            let mut settings = settings();
            change(&mut settings);
            let mut rig = Rig::connected(settings, connect(version));
            let effects = ask(&mut rig, subscribe(7, &[("good", Q1), (filter, Q1)]));
            assert_eq!(briefs(&effects), ended_by_server(version, *code), "{filter}");
        }
    }
}

#[test]
fn a_dollar_topic_may_be_subscribed_to() {
    for filter in ["$SYS/#", "$dropped/#", "$client-events/all/#"] {
        let effects = ask(&mut Rig::of(V5), subscribe(7, &[(filter, Q1)]));
        assert_eq!(briefs(&effects), [format!("subscribe {filter}:1 as 1")]);
    }
}

#[test]
fn no_local_on_a_shared_subscription_is_a_protocol_error() {
    let mut packet = subscribe(7, &[("$share/g/t", Q1)]);
    packet.filters[0].options.no_local = true;
    assert_eq!(briefs(&ask(&mut Rig::of(V5), packet)), ended_by_server(V5, ReasonCode::ProtocolError));
}

#[test]
fn a_subscription_identifier_needs_the_feature() {
    let mut packet = subscribe(7, &[("t", Q1)]);
    packet.subscription_identifier = Some(1);
    let mut rig = Rig::connected(SessionSettings { subscription_identifiers: false, ..settings() }, connect(V5));
    let want = ended_by_server(V5, ReasonCode::SubscriptionIdentifiersNotSupported);
    assert_eq!(briefs(&ask(&mut rig, packet)), want);
    let mut rig = Rig::connected(SessionSettings { subscription_identifiers: false, ..settings() }, connect(V5));
    assert_eq!(ask(&mut rig, subscribe(7, &[("t", Q1)])).len(), 1);
}

#[test]
fn a_failure_from_outside_stands_in_suback_or_ends_mqtt_3_1() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        ask(&mut rig, subscribe(7, &[("a", Q1), ("b", Q1)]));
        let effects = rig.subscribed(1, &[ReasonCode::GrantedQoS1, ReasonCode::NotAuthorized]);
        if version == ProtocolVersion::V3_1 {
            assert_eq!(briefs(&effects), ended_by_server(version, ReasonCode::NotAuthorized));
        } else {
            assert_eq!(briefs(&effects), ["SUBACK 7 01 87"]);
        }
    }
}

#[test]
fn answers_that_are_missing_are_failures() {
    let mut rig = Rig::of(V5);
    ask(&mut rig, subscribe(7, &[("a", Q1), ("b", Q1)]));
    assert_eq!(briefs(&rig.subscribed(1, &[ReasonCode::Success])), ["SUBACK 7 00 80"]);
    ask(&mut rig, subscribe(7, &[("a", Q1)]));
    assert_eq!(briefs(&rig.subscribed(2, &[ReasonCode::Success; 3])), ["SUBACK 7 00"]);
    cancel(&mut rig, &["a", "b"]);
    assert_eq!(briefs(&rig.unsubscribed(3, &[true])), ["UNSUBACK 8 00 80"]);
}

#[test]
fn unsuback_says_what_existed_in_the_order_of_the_filters() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(briefs(&cancel(&mut rig, &["a", "b", "$share/g/a"])), ["unsubscribe a,b,$share/g/a as 1"]);
        assert!(rig.subscribed(1, &[ReasonCode::Success]).is_empty(), "not a subscribe");
        assert_eq!(briefs(&rig.unsubscribed(1, &[true, false, true])), ["UNSUBACK 8 00 11 00"]);
        assert!(rig.unsubscribed(1, &[true, false, true]).is_empty());
    }
}

#[test]
fn what_is_no_filter_is_answered_without_asking() {
    let mut rig = Rig::of(V5);
    assert_eq!(briefs(&cancel(&mut rig, &["a", "b+", "c"])), ["unsubscribe a,c as 1"]);
    assert_eq!(briefs(&rig.unsubscribed(1, &[false, true])), ["UNSUBACK 8 11 8f 00"]);
    assert_eq!(briefs(&cancel(&mut rig, &["b+"])), ["UNSUBACK 8 8f"]);
}

#[test]
fn reading_stops_while_too_many_answers_are_awaited() {
    let mut rig = Rig::of(V5);
    let mut asked = 0;
    while rig.machine.wants_input() {
        asked += 1;
        ask(&mut rig, subscribe(asked, &[("t", Q0)]));
    }
    assert_eq!(asked, 256);
    assert_eq!(briefs(&rig.subscribed(256, &[ReasonCode::Success])), ["SUBACK 256 00"]);
    assert!(rig.machine.wants_input());
}

/// spec/hivemq.md 9.8
#[test]
fn what_is_no_filter_or_too_long_a_one_cannot_be_unsubscribed() {
    let short = SessionSettings { max_topic_length: 5, ..settings() };
    for wrong in ["a+", "longer"] {
        let mut rig = Rig::connected(short.clone(), connect(V5));
        assert_eq!(briefs(&cancel(&mut rig, &[wrong])), ["UNSUBACK 8 8f"], "{wrong}");
        for version in [ProtocolVersion::V3_1, V3] {
            let mut rig = Rig::connected(short.clone(), connect(version));
            assert_eq!(briefs(&cancel(&mut rig, &[wrong])), ended_by_server(version, ReasonCode::TopicFilterInvalid), "{wrong}");
        }
    }
}
