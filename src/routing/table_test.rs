use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::mqtt::QoS;
use crate::mqtt::packet::RetainHandling;

fn options(qos: u8) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: QoS::from_bits(qos).unwrap(),
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::Send,
    }
}

fn plain(filter: &str) -> SubscriptionFilter {
    SubscriptionFilter { share: None, filter: filter.into() }
}

fn shared(share: &str, filter: &str) -> SubscriptionFilter {
    SubscriptionFilter { share: Some(share.into()), filter: filter.into() }
}

fn group(share: &str, filter: &str) -> GroupId {
    GroupId { share: share.into(), filter: filter.into() }
}

#[test]
fn a_client_takes_little_of_the_table() {
    assert!(size_of::<ClientEntry>() <= 24, "{}", size_of::<ClientEntry>());
    // With the counts of an `Arc`: 96, a size that the allocator has; the next is 112.
    assert!(size_of::<ClientRoute>() <= 80, "{}", size_of::<ClientRoute>());
}

fn subscribe(table: &Table, client: &str, filter: &str, qos: u8, id: Option<u32>) {
    table.subscribe(0, &client.into(), &plain(filter), options(qos), id);
}

fn receivers(table: &Table, topic: &str) -> Vec<String> {
    let mut clients: Vec<String> = table.matches(topic, None).clients.iter().map(|m| m.route.client.to_string()).collect();
    clients.sort();
    clients
}

#[test]
fn filters_match_as_the_specification_says() {
    let cases = [
        ("sport/tennis/player1/#", "sport/tennis/player1", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", true),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", true),
        ("sport/#", "sport", true),
        ("sport/#", "sports", false),
        ("sport/+", "sport", false),
        ("sport/+", "sport/", true),
        ("+/+", "/finance", true),
        ("/+", "/finance", true),
        ("+", "/finance", false),
        ("+/tennis/#", "sport/tennis", true),
        ("sport/+/player1", "sport/tennis/player1", true),
        ("sport/tennis/+", "sport/tennis/player1/ranking", false),
        ("#", "$SYS/x", false),
        ("+/x", "$SYS/x", false),
        ("$SYS/#", "$SYS/x", true),
        ("$SYS/+", "$SYS/x", true),
        ("$SYS/+", "$SYS", false),
        ("a/+/#", "a/$b/c", true),
        ("a/b", "a/b", true),
        ("a/b", "a/b/", false),
        ("/", "/", true),
        ("#", "a//b/", true),
        ("a//+", "a//b", true),
    ];
    for (filter, topic, expected) in cases {
        let table = Table::new();
        subscribe(&table, "c", filter, 1, None);
        let matches = table.matches(topic, None);
        assert_eq!((matches.any, matches.clients.len()), (expected, usize::from(expected)), "{filter} {topic}");
    }
}

#[test]
fn overlapping_subscriptions_make_one_copy_with_the_highest_qos_and_all_identifiers() {
    let table = Table::new();
    subscribe(&table, "c", "a/b", 0, Some(1));
    subscribe(&table, "c", "a/+", 2, Some(2));
    subscribe(&table, "c", "#", 1, Some(1));
    let retained = SubscriptionOptions { retain_as_published: true, ..options(0) };
    table.subscribe(0, &"c".into(), &plain("a/#"), retained, None);
    let matches = table.matches("a/b", None);
    assert_eq!(matches.clients.len(), 1);
    let copy = &matches.clients[0];
    let mut ids = copy.subscription_ids.to_vec();
    ids.sort_unstable();
    // Two of them share an identifier (MQTT 5 section 3.3.4).
    assert_eq!((copy.qos, copy.retain_as_published, ids), (QoS::ExactlyOnce, true, vec![1, 1, 2]));
}

#[test]
fn many_clients_with_overlapping_subscriptions_get_one_copy_each() {
    let table = Table::new();
    for n in 0..200 {
        subscribe(&table, &format!("c{n}"), "a/b", 1, Some(1));
        if n % 2 == 0 {
            subscribe(&table, &format!("c{n}"), "a/+", 1, Some(2));
        }
        if n % 10 == 0 {
            subscribe(&table, &format!("c{n}"), "#", 1, Some(3));
        }
    }
    let matches = table.matches("a/b", None);
    assert_eq!(matches.clients.len(), 200);
    let ids: usize = matches.clients.iter().map(|m| m.subscription_ids.len()).sum();
    assert_eq!(ids, 200 + 100 + 20);
    assert_eq!(receivers(&table, "a/b").windows(2).filter(|w| w[0] == w[1]).count(), 0);
}

#[test]
fn a_no_local_subscription_of_the_publisher_is_left_out_but_counts_as_a_match() {
    let table = Table::new();
    let no_local = SubscriptionOptions { no_local: true, ..options(2) };
    table.subscribe(0, &"c".into(), &plain("a/#"), no_local, Some(1));
    let own = table.matches("a/b", Some(&"c".into()));
    assert!(own.any && own.clients.is_empty());
    assert_eq!(table.matches("a/b", Some(&"d".into())).clients.len(), 1);
    assert_eq!(table.matches("a/b", None).clients.len(), 1);
    subscribe(&table, "c", "a/b", 1, Some(2));
    let own = table.matches("a/b", Some(&"c".into()));
    assert_eq!((own.clients[0].qos, own.clients[0].subscription_ids.as_slice()), (QoS::AtLeastOnce, &[2][..]));
}

#[test]
fn a_subscription_is_replaced_by_the_same_filter() {
    let table = Table::new();
    for filter in ["a/b", "a/+"] {
        subscribe(&table, "c", filter, 0, Some(1));
        subscribe(&table, "c", filter, 2, None);
    }
    assert_eq!(table.subscription_count(), 2);
    let copy = &table.matches("a/b", None).clients[0];
    assert_eq!((copy.qos, copy.subscription_ids.len()), (QoS::ExactlyOnce, 0));
}

#[test]
fn shared_subscriptions_stand_beside_normal_ones_and_name_the_highest_qos() {
    let table = Table::new();
    subscribe(&table, "a", "t/+", 1, None);
    table.subscribe(1, &"b".into(), &shared("g", "t/+"), options(0), Some(7));
    table.subscribe(0, &"a".into(), &shared("g", "t/+"), options(1), None);
    table.subscribe(0, &"a".into(), &shared("h", "t/1"), options(0), None);
    let matches = table.matches("t/1", None);
    assert_eq!(matches.clients.len(), 1);
    let mut groups: Vec<_> = matches.groups.iter().map(|g| (g.group.clone(), g.qos)).collect();
    groups.sort();
    assert_eq!(groups, [(group("g", "t/+"), QoS::AtLeastOnce), (group("h", "t/1"), QoS::AtMostOnce)]);
    let members: Vec<_> = table.members(&group("g", "t/+")).iter().map(|m| (m.route.client.to_string(), m.identifier)).collect();
    assert_eq!(members, [("a".into(), None), ("b".into(), Some(7))]);

    table.unsubscribe(&"a".into(), &shared("g", "t/+"));
    assert!(table.group_exists(&group("g", "t/+")));
    assert_eq!(table.matches("t/2", None).groups[0].qos, QoS::AtMostOnce);
    table.remove_client(&"b".into());
    assert!(!table.group_exists(&group("g", "t/+")));
    let mut left = Vec::new();
    table.for_each_group(|g| left.push((g.clone(), table.members(g).len())));
    assert_eq!(left, [(group("h", "t/1"), 1)]);
    assert!(table.members(&group("g", "t/+")).is_empty());
}

#[test]
fn a_state_reaches_all_subscriptions_of_a_client_and_ends_with_it() {
    let table = Table::new();
    let state = RouteState { connection: Some((1, 2, 3)), persistent: true };
    subscribe(&table, "c", "a", 1, None);
    let route = Arc::clone(&table.matches("a", None).clients[0].route);
    assert_eq!(route.state(), RouteState::default());
    table.set_state(0, &"c".into(), state);
    assert_eq!(route.state(), state);
    assert_eq!(table.client("c").unwrap().state(), state);
    table.remove_client(&"c".into());
    assert_eq!(route.state(), RouteState::default());
    assert!(table.client("c").is_none());
    table.set_state(3, &"c".into(), state);
    assert_eq!((table.client_count(), table.client("c").unwrap().shard), (1, 3));
    assert!(table.subscriptions_of("c").is_empty());
}

fn clear_shard(table: &Table, shard: u16) {
    table.clients_of(shard).iter().for_each(|client| table.remove_client(client));
}

#[test]
fn a_declared_group_is_matched_without_members_until_it_is_declared_no_more() {
    for filter in ["a/+", "a/b"] {
        let table = Table::new();
        let group = GroupId { share: "g".into(), filter: filter.into() };
        let matched = |table: &Table| {
            let matches = table.matches("a/b", None);
            (matches.any, matches.groups.iter().map(|found| (found.group.clone(), found.qos)).collect::<Vec<_>>())
        };
        table.set_declared(&group, true);
        assert_eq!(matched(&table), (true, vec![(group.clone(), QoS::ExactlyOnce)]));
        assert!(table.is_declared(&group) && table.group_exists(&group) && table.members(&group).is_empty());
        table.subscribe(0, &"c".into(), &shared("g", filter), options(0), None);
        assert_eq!(matched(&table).1[0].1, QoS::ExactlyOnce, "what waits for others has its QoS");
        table.remove_client(&"c".into());
        assert!(matched(&table).0);
        table.subscribe(0, &"c".into(), &shared("g", filter), options(1), None);
        table.set_declared(&group, false);
        assert_eq!(matched(&table), (true, vec![(group.clone(), QoS::AtLeastOnce)]));
        table.set_declared(&group, true);
        table.remove_client(&"c".into());
        table.set_declared(&group, false);
        assert_eq!(matched(&table), (false, vec![]));
        table.set_declared(&group, false);
        assert_no_garbage(&table);
    }
}

#[test]
fn a_shard_is_cleared_alone() {
    let table = Table::new();
    for n in 0..100_u16 {
        table.subscribe(n % 3, &format!("c{n}").into(), &plain("a/+"), options(0), None);
        table.subscribe(n % 3, &format!("c{n}").into(), &shared("g", "x"), options(0), None);
    }
    clear_shard(&table, 1);
    assert_eq!((table.client_count(), table.subscription_count()), (67, 134));
    assert!(table.matches("a/b", None).clients.iter().all(|m| m.route.shard != 1));
    clear_shard(&table, 0);
    clear_shard(&table, 2);
    assert_no_garbage(&table);
}

#[test]
fn filters_and_topics_of_65_535_levels_are_matched_and_forgotten() {
    let deep = "/".repeat(65_534);
    let table = Table::new();
    subscribe(&table, "c", &format!("{deep}#"), 1, None);
    subscribe(&table, "d", &format!("{}+", "+/".repeat(32_000)), 1, None);
    subscribe(&table, "e", &deep, 1, None);
    subscribe(&table, "f", &"/".repeat(65_535), 1, None);
    assert_eq!(receivers(&table, &deep), ["c", "e"]);
    assert_eq!(receivers(&table, &"/".repeat(32_000)), ["d"]);
    for client in ["c", "d", "e", "f"] {
        table.remove_client(&client.into());
    }
    assert_no_garbage(&table);
    subscribe(&table, "c", &format!("{deep}#"), 1, None);
    drop(table);
}

#[test]
fn unsubscribing_leaves_other_filters_on_the_same_path() {
    let table = Table::new();
    for filter in ["a/+/c", "a/+/c/#", "a/+/+", "a/#", "#"] {
        subscribe(&table, "c", filter, 0, None);
    }
    let before = table.wildcards.read().node_count();
    subscribe(&table, "c", "a/+/c/d/e/+", 0, None);
    table.unsubscribe(&"c".into(), &plain("a/+/c/d/e/+"));
    assert_eq!(table.wildcards.read().node_count(), before);
    table.unsubscribe(&"c".into(), &plain("a/+/c"));
    table.unsubscribe(&"c".into(), &plain("a/+/c"));
    table.unsubscribe(&"c".into(), &plain("not/+/there"));
    let left: Vec<String> = table.subscriptions_of("c").iter().map(|(filter, ..)| filter.filter.to_string()).collect();
    assert_eq!(left, ["#", "a/#", "a/+/+", "a/+/c/#"]);
}

#[test]
fn a_table_is_whole_after_many_threads_changed_and_read_it() {
    let table = Table::new();
    std::thread::scope(|scope| {
        for shard in 0..3_u16 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..300 {
                    let client = ByteString::from(format!("c{shard}-{}", round % 7));
                    for filter in
                        [plain("t/+"), plain("t/1"), plain(&format!("t/{round}/+")), shared("g", "t/+"), shared("g", "t/1")]
                    {
                        table.subscribe(shard, &client, &filter, options(1), None);
                    }
                    table.set_state(shard, &client, RouteState { connection: None, persistent: true });
                    match round % 5 {
                        0 => table.remove_client(&client),
                        1 => clear_shard(table, shard),
                        _ => table.unsubscribe(&client, &shared("g", "t/+")),
                    }
                }
                clear_shard(table, shard);
            });
        }
        let table = &table;
        scope.spawn(move || {
            for _ in 0..1000 {
                let matches = table.matches("t/1", Some(&"c0-1".into()));
                let clients: BTreeSet<_> = matches.clients.iter().map(|m| m.route.client.clone()).collect();
                // A client that is taken out and made again is never seen as both routes.
                assert_eq!(clients.len(), matches.clients.len());
                table.for_each_group(|group| drop(table.members(group)));
            }
        });
    });
    assert_no_garbage(&table);
}

#[test]
fn a_trie_that_lost_most_of_its_filters_gives_memory_back_and_keeps_the_others() {
    let table = Table::new();
    for n in 0..5000 {
        subscribe(&table, &format!("c{n}"), &format!("a/{n}/+"), 1, None);
        subscribe(&table, &format!("c{n}"), &format!("a/+/{n}/#"), 1, None);
    }
    for n in (0..5000).filter(|n| n % 50 != 0) {
        table.remove_client(&format!("c{n}").into());
    }
    assert!(table.wildcards.read().allocated() < 5000);
    assert_eq!(table.wildcards.read().len(), 200);
    for n in 0..5000 {
        let own = usize::from(n % 50 == 0);
        assert_eq!(receivers(&table, &format!("a/{n}/x")).len(), own);
        assert_eq!(receivers(&table, &format!("a/x/{n}")).len(), own);
        table.remove_client(&format!("c{n}").into());
    }
    assert_no_garbage(&table);
}

fn assert_no_garbage(table: &Table) {
    assert_eq!((table.client_count(), table.subscription_count()), (0, 0));
    assert_eq!(table.exact.parts.iter().map(|part| part.read().len()).sum::<usize>(), 0);
    let trie = table.wildcards.read();
    assert_eq!((trie.len(), trie.node_count(), table.wildcard_filters.load(Ordering::Relaxed)), (0, 0, 0));
    assert!(table.groups.read().is_empty());
}

/// Matching as the specification words it, with no regard to cost.
fn oracle_matches(filter: &[&str], topic: &[&str]) -> bool {
    match (filter.split_first(), topic.split_first()) {
        (Some((&"#", [])), _) => true,
        (Some((level, filter)), Some((part, topic))) => (*level == "+" || level == part) && oracle_matches(filter, topic),
        (None, None) => true,
        _ => false,
    }
}

fn oracle(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    oracle_matches(&filter.split('/').collect::<Vec<_>>(), &topic.split('/').collect::<Vec<_>>())
}

#[derive(Debug, Clone)]
enum Op {
    Subscribe(u8, SubscriptionFilter, SubscriptionOptions, Option<u32>),
    Unsubscribe(u8, SubscriptionFilter),
    RemoveClient(u8),
    ClearShard(u16),
}

const CLIENTS: u8 = 50;

fn client_name(n: u8) -> ByteString {
    format!("c{n}").into()
}

fn shard_of(n: u8) -> u16 {
    u16::from(n % 3)
}

fn filter_strategy() -> impl Strategy<Value = SubscriptionFilter> {
    let level = prop_oneof![3 => Just("a"), 2 => Just("b"), 1 => Just(""), 1 => Just("$c"), 2 => Just("+")];
    let levels = prop::collection::vec(level, 1..4);
    let share = prop_oneof![3 => Just(None), 1 => Just(Some("g")), 1 => Just(Some("h"))];
    (levels, any::<bool>(), share).prop_map(|(mut levels, hash, share)| {
        if hash {
            levels.push("#");
        }
        SubscriptionFilter { share: share.map(ByteString::from), filter: levels.join("/").into() }
    })
}

fn topic_strategy() -> impl Strategy<Value = String> {
    let level = prop_oneof![3 => Just("a"), 2 => Just("b"), 1 => Just(""), 1 => Just("$c")];
    prop::collection::vec(level, 1..5).prop_map(|levels| levels.join("/"))
}

fn op_strategy() -> impl Strategy<Value = Op> {
    let options = (0_u8..3, any::<bool>(), any::<bool>()).prop_map(|(qos, no_local, retain_as_published)| SubscriptionOptions {
        no_local,
        retain_as_published,
        ..options(qos)
    });
    prop_oneof![
        60 => (0..CLIENTS, filter_strategy(), options, prop::option::of(1_u32..5)).prop_map(|(c, f, o, i)| Op::Subscribe(c, f, o, i)),
        20 => (0..CLIENTS, filter_strategy()).prop_map(|(c, f)| Op::Unsubscribe(c, f)),
        3 => (0..CLIENTS).prop_map(Op::RemoveClient),
        1 => (0_u16..3).prop_map(Op::ClearShard),
    ]
}

type Oracle = BTreeMap<(u8, SubscriptionFilter), (SubscriptionOptions, Option<u32>)>;

fn apply(table: &Table, oracle: &mut Oracle, op: Op) {
    match op {
        Op::Subscribe(c, filter, options, id) => {
            table.subscribe(shard_of(c), &client_name(c), &filter, options, id);
            oracle.insert((c, filter), (options, id));
        }
        Op::Unsubscribe(c, filter) => {
            table.unsubscribe(&client_name(c), &filter);
            oracle.remove(&(c, filter));
        }
        Op::RemoveClient(c) => {
            table.remove_client(&client_name(c));
            oracle.retain(|(client, _), _| *client != c);
        }
        Op::ClearShard(shard) => {
            clear_shard(table, shard);
            oracle.retain(|(client, _), _| shard_of(*client) != shard);
        }
    }
}

/// Client: (QoS, Retain As Published, identifiers).
type Copies = BTreeMap<String, (QoS, bool, Vec<u32>)>;

fn expected(subscriptions: &Oracle, topic: &str, publisher: u8) -> (bool, Copies, BTreeMap<GroupId, QoS>) {
    let (mut any, mut copies, mut groups) = (false, Copies::new(), BTreeMap::new());
    for ((client, filter), (options, id)) in subscriptions.iter().filter(|((_, filter), _)| oracle(&filter.filter, topic)) {
        any = true;
        if let Some(share) = &filter.share {
            let qos = groups.entry(GroupId { share: share.clone(), filter: filter.filter.clone() }).or_insert(options.qos);
            *qos = options.qos.max(*qos);
        } else if !options.no_local || *client != publisher {
            let copy = copies.entry(client_name(*client).to_string()).or_default();
            copy.0 = copy.0.max(options.qos);
            copy.1 |= options.retain_as_published;
            copy.2.extend(id);
            copy.2.sort_unstable();
        }
    }
    (any, copies, groups)
}

fn found(table: &Table, topic: &str, publisher: u8) -> (bool, Copies, BTreeMap<GroupId, QoS>) {
    let matches = table.matches(topic, Some(&client_name(publisher)));
    let mut copies = Copies::new();
    for m in matches.clients {
        let mut ids = m.subscription_ids.to_vec();
        ids.sort_unstable();
        assert!(copies.insert(m.route.client.to_string(), (m.qos, m.retain_as_published, ids)).is_none());
    }
    let groups: BTreeMap<_, _> = matches.groups.iter().map(|g| (g.group.clone(), g.qos)).collect();
    assert_eq!(groups.len(), matches.groups.len());
    (matches.any, copies, groups)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_finds_what_a_list_of_subscriptions_finds(
        ops in prop::collection::vec(op_strategy(), 1..400),
        probes in prop::collection::vec((topic_strategy(), 0..CLIENTS), 1..20),
    ) {
        let (table, mut subscriptions) = (Table::new(), Oracle::new());
        for op in ops {
            apply(&table, &mut subscriptions, op);
        }
        prop_assert_eq!(table.subscription_count(), subscriptions.len());
        for (topic, publisher) in &probes {
            prop_assert_eq!(found(&table, topic, *publisher), expected(&subscriptions, topic, *publisher));
        }
        for c in 0..CLIENTS {
            let own: Vec<_> = subscriptions.iter().filter(|((client, _), _)| *client == c)
                .map(|((_, filter), (options, id))| (filter.clone(), *options, *id)).collect();
            prop_assert_eq!(table.subscriptions_of(&client_name(c)), own);
            table.remove_client(&client_name(c));
        }
        assert_no_garbage(&table);
    }
}

#[test]
fn whether_anybody_hears_dollar_topics_follows_every_way_to_subscribe() {
    let table = Table::new();
    let (client, options) = (ByteString::from("c"), options(1));
    let filter = |share: Option<&str>, filter: &str| SubscriptionFilter { share: share.map(Into::into), filter: filter.into() };
    for plain in ["#", "+/+", "a/$dead"] {
        table.subscribe(0, &client, &filter(None, plain), options, None);
    }
    assert!(!table.has_dollar_filters());
    let ways = [filter(None, "$dead/#"), filter(None, "$client-events/all/client-id/x"), filter(Some("g"), "$dead/#")];
    for way in &ways {
        table.subscribe(0, &client, way, options, None);
        table.subscribe(0, &client, way, options, Some(1));
        assert!(table.has_dollar_filters(), "{way:?}");
        table.unsubscribe(&client, way);
        table.unsubscribe(&client, way);
        assert!(!table.has_dollar_filters(), "{way:?}");
    }
    for way in &ways {
        table.subscribe(0, &client, way, options, None);
    }
    assert!(table.has_dollar_filters());
    table.remove_client(&client);
    assert!(!table.has_dollar_filters());
    let group = GroupId { share: "g".into(), filter: "$expired/#".into() };
    for declared in [true, true] {
        table.set_declared(&group, declared);
        assert!(table.has_dollar_filters());
    }
    for declared in [false, false] {
        table.set_declared(&group, declared);
        assert!(!table.has_dollar_filters());
    }
}
