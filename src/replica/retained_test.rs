use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::mqtt::{Origin, QoS};

fn message(topic: &str, payload: &'static str) -> Arc<Message> {
    Arc::new(Message {
        topic: topic.into(),
        payload: Bytes::from_static(payload.as_bytes()),
        qos: QoS::AtLeastOnce,
        retain: true,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval: None,
        received_at_ms: 0,
        origin: Origin::Extension,
    })
}

fn tree(topics: &[&str]) -> RetainedTree {
    let mut tree = RetainedTree::new();
    for topic in topics {
        assert!(tree.insert(message(topic, "x")).is_none());
    }
    tree
}

fn matching(tree: &RetainedTree, filter: &str) -> Vec<String> {
    tree.matching(filter).map(|m| m.topic.to_string()).collect()
}

#[test]
fn filters_find_topics_in_order_of_their_levels() {
    let tree = tree(&["a", "a/b", "a/b/c", "a-b", "a/c", "a/", "/", "/a", "b/b", "b/x/c", "$SYS/b", "$SYS", "a\u{1}", "a b/b"]);
    let cases: [(&str, &[&str]); 16] = [
        ("#", &["/", "/a", "a", "a/", "a/b", "a/b/c", "a/c", "a\u{1}", "a b/b", "a-b", "b/b", "b/x/c"]),
        ("+", &["a", "a\u{1}", "a-b"]),
        ("+/+", &["/", "/a", "a/", "a/b", "a/c", "a b/b", "b/b"]),
        ("+/b", &["a/b", "a b/b", "b/b"]),
        ("a/#", &["a", "a/", "a/b", "a/b/c", "a/c"]),
        ("a/+", &["a/", "a/b", "a/c"]),
        ("+/+/c", &["a/b/c", "b/x/c"]),
        ("+/+/#", &["/", "/a", "a/", "a/b", "a/b/c", "a/c", "a b/b", "b/b", "b/x/c"]),
        ("a/b", &["a/b"]),
        ("a/x", &[]),
        ("a/b/c/d/#", &[]),
        ("b/+/c", &["b/x/c"]),
        ("/#", &["/", "/a"]),
        ("$SYS/#", &["$SYS", "$SYS/b"]),
        ("$SYS/+", &["$SYS/b"]),
        ("+/b/#", &["a/b", "a/b/c", "a b/b", "b/b"]),
    ];
    for (filter, expected) in cases {
        assert_eq!(matching(&tree, filter), expected, "{filter}");
    }
}

#[test]
fn a_topic_keeps_its_last_message_and_the_bytes_are_exact() {
    let mut tree = RetainedTree::new();
    assert!(tree.insert(message("t", "first")).is_none());
    let replaced = tree.insert(message("t", "2")).unwrap();
    assert_eq!(replaced.payload, "first");
    assert_eq!((tree.len(), tree.bytes()), (1, message("t", "2").size_bytes()));
    assert_eq!(tree.get("t").unwrap().payload, "2");
    assert!(tree.get("t/").is_none() && tree.remove("u").is_none());
    assert_eq!(tree.remove("t").unwrap().payload, "2");
    assert_eq!((tree.len(), tree.bytes(), tree.is_empty()), (0, 0, true));
}

#[test]
fn topics_of_65_535_levels_are_stored_found_and_dropped() {
    let deep = "/".repeat(65_534);
    let topics = [deep.clone(), format!("{deep}x"), format!("a{deep}"), "/".repeat(65_533)];
    let mut tree = RetainedTree::new();
    for topic in &topics {
        tree.insert(message(topic, "x"));
    }
    assert!(matching(&tree, &deep) == [deep.as_str()]);
    assert_eq!(matching(&tree, &format!("{}+", "+/".repeat(65_534))).len(), 3);
    assert_eq!(matching(&tree, "/#").len(), 3);
    assert_eq!(matching(&tree, "+/+/#").len(), 4);
    assert!(tree.remove(&deep).is_some());
    // `#` stands for the parent level too.
    let lengths: Vec<usize> = matching(&tree, &format!("{deep}#")).iter().map(String::len).collect();
    assert_eq!(lengths, [65_533, 65_535]);
    drop(tree);
}

#[test]
fn a_match_looks_only_at_what_it_can_find() {
    let mut tree = RetainedTree::new();
    for site in 0..100 {
        for device in 0..100 {
            tree.insert(message(&format!("site/{site:02}/device/{device:02}/state"), "x"));
        }
    }
    let steps = |filter: &str| {
        let mut steps = 0;
        let mut matching = tree.matching(filter);
        while let Some(entry) = matching.range.next() {
            steps += 1;
            match compare(&matching.levels, &entry.0.topic) {
                Step::Match => {}
                Step::Seek(topic) => matching.range = range_from(&tree.messages, &topic),
                Step::End => break,
            }
        }
        steps
    };
    assert_eq!(steps("site/07/#"), 101);
    assert!(steps("site/07/device/42/state") <= 2);
    assert!(steps("site/+/device/42/state") <= 301);
    assert!(steps("+/+/none/#") <= 202);
    assert!(steps("other/#") <= 1);
}

fn oracle(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (filter, topic): (Vec<_>, Vec<_>) = (filter.split('/').collect(), topic.split('/').collect());
    for (at, level) in filter.iter().enumerate() {
        match (*level, topic.get(at)) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (level, Some(part)) if level == *part => {}
            _ => return false,
        }
    }
    filter.len() == topic.len()
}

fn level_strategy() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("a"), 3 => Just("b"), 1 => Just(""), 1 => Just("$c"), 1 => Just("a!"), 1 => Just("a\u{1}"), 1 => Just("é")]
}

fn topic_strategy() -> impl Strategy<Value = String> {
    prop::collection::vec(level_strategy(), 1..5).prop_map(|levels| levels.join("/"))
}

fn filter_strategy() -> impl Strategy<Value = String> {
    let level = prop_oneof![2 => level_strategy(), 1 => Just("+")];
    (prop::collection::vec(level, 0..5), any::<bool>()).prop_map(|(mut levels, hash)| {
        if hash || levels.is_empty() {
            levels.push("#");
        }
        levels.join("/")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_finds_what_a_list_finds(
        changes in prop::collection::vec((topic_strategy(), prop::bool::weighted(0.8)), 1..200),
        filters in prop::collection::vec(filter_strategy(), 1..30),
    ) {
        let (mut tree, mut list) = (RetainedTree::new(), BTreeMap::<Vec<String>, Arc<Message>>::new());
        for (topic, keep) in changes {
            let levels = topic.split('/').map(String::from).collect();
            if keep {
                let message = message(&topic, "x");
                prop_assert_eq!(tree.insert(message.clone()), list.insert(levels, message));
            } else {
                prop_assert_eq!(tree.remove(&topic), list.remove(&levels));
            }
        }
        prop_assert_eq!(tree.len(), list.len());
        prop_assert_eq!(tree.bytes(), list.values().map(|m| m.size_bytes()).sum::<usize>());
        prop_assert!(tree.iter().eq(list.values()));
        for filter in &filters {
            let expected: Vec<_> = list.values().filter(|m| oracle(filter, &m.topic)).collect();
            prop_assert_eq!(tree.matching(filter).collect::<Vec<_>>(), expected, "{}", filter);
        }
    }
}
