use proptest::prelude::*;

use super::*;

#[test]
fn valid_filters_are_taken_as_written() {
    for text in [
        "#",
        "+",
        "/",
        "//",
        "+/+",
        "/+",
        "a",
        "a/b/#",
        "a/+/#",
        "sport/tennis/+",
        "+/tennis/#",
        "$SYS/#",
        "$share",
        "$shared/a",
        "a b",
        "ä/+",
        "$dropped/a/#",
    ] {
        let filter = SubscriptionFilter::parse(&text.into()).unwrap();
        assert_eq!((filter.share.as_ref(), filter.full()), (None, ByteString::from(text)));
        assert_eq!(filter.has_wildcard(), text.contains(['+', '#']));
    }
}

#[test]
fn invalid_filters_are_refused() {
    let long = "a".repeat(65_536);
    for text in ["", "a#", "#/a", "a/#/b", "##", "a/##", "a/#b", "a+", "+a", "a/b+/c", "++", "a/+b", "a\0b", long.as_str()] {
        assert_eq!(SubscriptionFilter::parse(&text.into()), Err(FilterError::Invalid), "{text}");
    }
    assert!(SubscriptionFilter::parse(&"a".repeat(65_535).into()).is_ok());
}

#[test]
fn shared_subscriptions_are_split() {
    for (text, name, inner) in [
        ("$share/g/a", "g", "a"),
        ("$share/g/#", "g", "#"),
        ("$share/g//", "g", "/"),
        ("$share/$g/+/b", "$g", "+/b"),
        ("$share/g/$SYS/x", "g", "$SYS/x"),
    ] {
        let filter = SubscriptionFilter::parse(&text.into()).unwrap();
        assert_eq!((filter.share.as_deref(), &*filter.filter), (Some(name), inner));
        assert_eq!(filter.full(), ByteString::from(text));
    }
}

#[test]
fn shared_subscriptions_without_a_name_or_a_valid_filter_are_refused() {
    for text in [
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//x",
        "$share//",
        "$share/+/x",
        "$share/g#/x",
        "$share/a+b/x",
        "$share/g/a#",
        "$share/g/#/a",
        "$share/g\0/a",
    ] {
        assert_eq!(SubscriptionFilter::parse(&text.into()), Err(FilterError::InvalidShare), "{text:?}");
    }
}

#[test]
fn a_share_and_a_filter_are_slices_of_the_text() {
    let text = ByteString::from("$share/group/a/b");
    let filter = SubscriptionFilter::parse(&text).unwrap();
    assert_eq!(filter.filter.as_bytes().as_ptr(), text.as_bytes().slice(13..).as_ptr());
}

#[test]
fn filters_match_as_the_specification_shows() {
    for (filter, topic) in [
        ("sport/tennis/player1/#", "sport/tennis/player1"),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
        ("sport/#", "sport"),
        ("#", "a"),
        ("#", "/a/b"),
        ("sport/+", "sport/"),
        ("+/+", "/finance"),
        ("/+", "/finance"),
        ("+", "finance"),
        ("sport/tennis/+", "sport/tennis/player1"),
        ("a//b", "a//b"),
        ("a/+/b", "a//b"),
        ("+/#", "a"),
        ("+/+/#", "a/b"),
        ("$SYS/#", "$SYS/x"),
        ("$SYS/#", "$SYS"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"),
        ("a/+", "a/$b"),
        ("/#", "/$SYS"),
    ] {
        assert!(matches(filter, topic), "{filter} {topic}");
    }
    for (filter, topic) in [
        ("sport/tennis/+", "sport/tennis/player1/ranking"),
        ("sport/+", "sport"),
        ("+", "/finance"),
        ("a", "A"),
        ("a", "a/"),
        ("a/", "a"),
        ("a/b", "a"),
        ("a", "a/b"),
        ("sport/#", "sports"),
        ("#", "$SYS/x"),
        ("+/x", "$SYS/x"),
        ("+/#", "$SYS"),
        ("allowed", "allowedx"),
        ("+/+", "a"),
    ] {
        assert!(!matches(filter, topic), "{filter} {topic}");
    }
}

#[test]
fn containment_is_of_the_topics_matched() {
    for (permission, requested) in [
        ("#", "a"),
        ("#", "#"),
        ("#", "+/b/#"),
        ("+/#", "#"),
        ("/+/#", "/#"),
        ("+/+/#", "/#"),
        ("a/#", "a"),
        ("a/#", "a/+/#"),
        ("a/+", "a/b"),
        ("a/+", "a/+"),
        ("a/+/#", "a/+"),
        ("$SYS/#", "$SYS/+"),
        ("+/b", "+/b"),
    ] {
        assert!(covers(permission, requested), "{permission} {requested}");
    }
    for (permission, requested) in [
        ("#", "$SYS/a"),
        ("+/a", "$SYS/a"),
        ("+", "#"),
        ("a/+", "a/#"),
        ("a/b", "a/+"),
        ("a/b", "#"),
        ("a/+/#", "a/#"),
        ("a", "a/#"),
        ("a/#", "b"),
        ("a/#", "+/b"),
        ("a/+", "a"),
        ("+/+/#", "#"),
        ("a/b", "a/b/c"),
    ] {
        assert!(!covers(permission, requested), "{permission} {requested}");
    }
}

/// The rules of MQTT 5 section 4.7 told level by level, recursively, without care for cost.
fn oracle(filter: &[&str], topic: &[&str], first: bool) -> bool {
    let wild_allowed = !(first && topic.first().is_some_and(|level| level.starts_with('$')));
    match filter {
        [] => topic.is_empty(),
        ["#"] => wild_allowed,
        ["+", rest @ ..] => wild_allowed && !topic.is_empty() && oracle(rest, &topic[1..], false),
        [literal, rest @ ..] => topic.first() == Some(literal) && oracle(rest, &topic[1..], false),
    }
}

fn oracle_matches(filter: &str, topic: &str) -> bool {
    oracle(&filter.split('/').collect::<Vec<_>>(), &topic.split('/').collect::<Vec<_>>(), true)
}

fn topic_text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&["", "a", "b", "$a"][..]), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |topic| !topic.is_empty())
}

fn filter_text() -> impl Strategy<Value = String> {
    let levels = prop::collection::vec(prop::sample::select(&["", "a", "b", "$a", "+", "+"][..]), 0..4);
    (levels, any::<bool>())
        .prop_map(|(mut levels, hash)| {
            levels.extend(hash.then_some("#"));
            levels.join("/")
        })
        .prop_filter("not empty", |filter| !filter.is_empty())
}

/// All topics of up to five levels from a small alphabet: enough to tell apart any two filters of up to four levels.
fn all_topics() -> Vec<String> {
    let mut topics = Vec::new();
    let mut longest = vec![String::new()];
    for depth in 0..5 {
        longest = longest
            .iter()
            .flat_map(|start| {
                ["", "a", "z", "$a", "b"].map(|level| if depth == 0 { level.into() } else { format!("{start}/{level}") })
            })
            .collect();
        topics.extend(longest.iter().filter(|topic| !topic.is_empty()).cloned());
    }
    topics
}

#[test]
fn containment_agrees_with_matching_all_topics() {
    let topics = all_topics();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&(filter_text(), filter_text()), |(permission, requested)| {
            let contained = topics.iter().all(|topic| !matches(&requested, topic) || matches(&permission, topic));
            prop_assert_eq!(covers(&permission, &requested), contained);
            Ok(())
        })
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn matching_agrees_with_the_oracle(filter in filter_text(), topic in topic_text()) {
        prop_assert!(is_valid(&filter));
        prop_assert_eq!(matches(&filter, &topic), oracle_matches(&filter, &topic));
    }

    #[test]
    fn any_text_parses_or_is_refused(text in "[$a-c/+#\u{0}]{0,12}|\\$share/[a+/#]{0,8}|.{0,8}") {
        let text = ByteString::from(text);
        if let Ok(filter) = SubscriptionFilter::parse(&text) {
            prop_assert_eq!(filter.full(), text);
            prop_assert!(is_valid(&filter.filter));
        }
    }
}
