//! Permissions, row by row.

use super::*;
use crate::config::rbac::Template;

const Q: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

fn permission(topic: &str) -> Permission {
    Permission {
        topic: Template::Fixed(topic.into()),
        activity: Activity::All,
        qos: [true; 3],
        retain: Retain::All,
        share: Share::All,
        group: None,
    }
}

fn principal(permissions: Vec<Permission>) -> Principal {
    let role = Arc::new(Role { id: "r".into(), permissions });
    Principal::with_roles("u".into(), "c".into(), [role].into())
}

fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter::parse(&text.into()).unwrap()
}

#[test]
fn a_publish_needs_a_permission_that_matches_its_topic() {
    let table = [
        ("a/b", "a/b", true),
        ("a/b", "a/b/", false),
        ("a/b/", "a/b", false),
        ("a/b", "a/c", false),
        ("a/+", "a/b", true),
        ("a/+", "a/b/c", false),
        ("a/#", "a", true),
        ("a/#", "a/b/c", true),
        ("#", "a/b", true),
        ("#", "/", true),
        ("/", "/", true),
        ("+", "/", false),
        ("#", "$expired/a", false),
        ("+/a", "$expired/a", false),
        ("$expired/#", "$expired/a", true),
    ];
    for (permitted, topic, expected) in table {
        let allowed = principal(vec![permission(permitted)]).may_publish(topic, Q[0], false);
        assert_eq!(allowed, expected, "{permitted} for {topic}");
    }
}

#[test]
fn a_subscription_needs_a_permission_that_covers_all_it_matches() {
    let table = [
        ("a/b", "a/b", true),
        ("a/+", "a/b", true),
        ("a/+", "a/+", true),
        // Allowed by HiveMQ.
        ("a/+", "a/#", false),
        ("a/+", "a/+/#", false),
        ("+", "#", false),
        ("a/#", "a/#", true),
        ("a/#", "a/+/b", true),
        ("a/#", "a", true),
        ("a/#", "#", false),
        ("a/b", "a/+", false),
        ("#", "#", true),
        ("#", "$dead/#", false),
        ("+/#", "$dead/#", false),
        ("$dead/#", "$dead/a/#", true),
        ("$dead/a", "$dead/#", false),
        ("a/#", "$share/g/a/b", true),
        ("a/b", "$share/g/a/#", false),
        ("#", "$share/g/$dead/#", false),
    ];
    for (permitted, asked, expected) in table {
        let allowed = principal(vec![permission(permitted)]).may_subscribe(&filter(asked), Q[0]);
        assert_eq!(allowed, expected, "{permitted} for {asked}");
    }
}

#[test]
fn activity_qos_retain_and_share_must_fit_too() {
    let base = permission("t");
    let share = |share, group: Option<&str>| Permission { share, group: group.map(Into::into), ..base.clone() };
    let qos = |qos| Permission { qos, ..base.clone() };
    let retain = |retain| Permission { retain, ..base.clone() };
    let activity = |activity| Permission { activity, ..base.clone() };
    // Permission; PUBLISH of QoS 0, 1, 2, retained of QoS 0; SUBSCRIBE with QoS 0, 1, 2, $share/g with QoS 0, $share/h with QoS 0.
    let table = [
        (base.clone(), "1111", "11111"),
        (activity(Activity::Publish), "1111", "00000"),
        (activity(Activity::Subscribe), "0000", "11111"),
        (qos([true, false, false]), "1001", "10011"),
        (qos([false, true, true]), "0110", "01100"),
        (retain(Retain::Retained), "0001", "11111"),
        (retain(Retain::NotRetained), "1110", "11111"),
        (share(Share::Shared, None), "1111", "00011"),
        (share(Share::NotShared, None), "1111", "11100"),
        (share(Share::All, Some("g")), "1111", "11110"),
        (share(Share::Shared, Some("h")), "1111", "00001"),
    ];
    let digits = |allowed: &[bool]| allowed.iter().map(|a| if *a { '1' } else { '0' }).collect::<String>();
    for (permission, publish, subscribe) in table {
        let who = principal(vec![permission.clone()]);
        let mut allowed: Vec<bool> = Q.iter().map(|qos| who.may_publish("t", *qos, false)).collect();
        allowed.push(who.may_publish("t", Q[0], true));
        assert_eq!(digits(&allowed), publish, "{permission:?}");
        let mut allowed: Vec<bool> = Q.iter().map(|qos| who.may_subscribe(&filter("t"), *qos)).collect();
        allowed.extend(["$share/g/t", "$share/h/t"].map(|shared| who.may_subscribe(&filter(shared), Q[0])));
        assert_eq!(digits(&allowed), subscribe, "{permission:?}");
    }
}

#[test]
fn any_permission_will_do_and_without_one_nothing_is_allowed() {
    let one = Permission { qos: [true, false, false], ..permission("t") };
    let two = Permission { qos: [false, true, false], ..permission("t") };
    let who = principal(vec![one, two]);
    assert_eq!(Q.map(|qos| who.may_publish("t", qos, false)), [true, true, false]);
    assert!(!principal(Vec::new()).may_publish("t", Q[0], false));
    for all in [Principal::anonymous(), Principal::unlimited("u".into())] {
        assert!(all.may_publish("t", Q[2], true) && all.may_subscribe(&filter("$dead/#"), Q[2]));
    }
}
