//! The routing table and the filter functions against an oracle that is too simple to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use bytestring::ByteString;

use super::Draw;
use crate::mqtt::packet::{RetainHandling, SubscriptionOptions};
use crate::mqtt::{GroupId, QoS, SubscriptionFilter, topic_filter, topic_name};
use crate::routing::{RouteState, Table};

/// Levels that meet often, and those that are odd.
const LEVELS: [&str; 12] = ["a", "b", "", "+", "#", "a", "$x", "$share", "g", "é", "a+", "aa"];
const CLIENTS: [&str; 4] = ["c0", "c1", "c2", ""];
/// More would only be slower.
const STEPS_MAX: usize = 200;

pub fn topic_match(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut world = World::default();
    let mut steps = 0;
    while !draw.is_done() && steps < STEPS_MAX {
        world.step(&mut draw);
        steps += 1;
    }
    world.is_as_the_oracle_has_it();
    for client in CLIENTS {
        world.table.remove_client(&client.into());
    }
    world.sessions.clear();
    world.is_as_the_oracle_has_it();
}

#[derive(Default)]
struct World {
    table: Table,
    /// By client: its shard, and its subscriptions.
    sessions: BTreeMap<ByteString, (u16, BTreeMap<SubscriptionFilter, (SubscriptionOptions, Option<u32>)>)>,
}

impl World {
    fn step(&mut self, draw: &mut Draw<'_>) {
        match draw.below(8) {
            0..=2 => self.subscribe(draw),
            3 => self.unsubscribe(draw),
            4 => self.match_topic(draw),
            5 => compare_filters(draw),
            6 => {
                let client = ByteString::from_static(draw.pick(&CLIENTS));
                self.table.remove_client(&client);
                self.sessions.remove(&client);
            }
            _ => {
                let shard = shard_of(draw.pick(&CLIENTS));
                for client in self.table.clients_of(shard) {
                    self.table.remove_client(&client);
                }
                self.sessions.retain(|_, (kept, _)| *kept != shard);
            }
        }
    }

    fn subscribe(&mut self, draw: &mut Draw<'_>) {
        let client = ByteString::from_static(draw.pick(&CLIENTS));
        let Some(filter) = filter(draw) else { return };
        let byte = draw.byte();
        let options = SubscriptionOptions {
            qos: QoS::from_bits(byte & 3).unwrap_or(QoS::ExactlyOnce),
            no_local: byte & 4 != 0,
            retain_as_published: byte & 8 != 0,
            retain_handling: RetainHandling::Send,
        };
        let identifier = Some(u32::from(byte >> 4)).filter(|identifier| *identifier > 0);
        let shard = shard_of(&client);
        self.table.subscribe(shard, &client, &filter, options, identifier);
        self.sessions.entry(client).or_insert((shard, BTreeMap::new())).1.insert(filter, (options, identifier));
    }

    fn unsubscribe(&mut self, draw: &mut Draw<'_>) {
        let client = ByteString::from_static(draw.pick(&CLIENTS));
        let known = self.sessions.get(&client).map_or(0, |(_, filters)| filters.len());
        let wanted = draw.below(known + 1);
        let some = self.sessions.get(&client).and_then(|(_, filters)| filters.keys().nth(wanted).cloned());
        let Some(filter) = some.or_else(|| filter(draw)) else { return };
        self.table.unsubscribe(&client, &filter);
        if let Some((_, filters)) = self.sessions.get_mut(&client) {
            filters.remove(&filter);
        }
    }

    fn match_topic(&self, draw: &mut Draw<'_>) {
        let topic = text(draw);
        if !topic_name::is_valid(&topic) {
            return;
        }
        let publisher = draw.maybe(|draw| ByteString::from_static(draw.pick(&CLIENTS)));
        let found = self.table.matches(&topic, publisher.as_ref());

        let mut any = false;
        let mut clients: BTreeMap<ByteString, (QoS, bool, Vec<u32>)> = BTreeMap::new();
        let mut groups: BTreeMap<GroupId, QoS> = BTreeMap::new();
        for (client, (_, filters)) in &self.sessions {
            for (filter, (options, identifier)) in filters.iter().filter(|(filter, _)| oracle(&filter.filter, &topic)) {
                any = true;
                if let Some(share) = &filter.share {
                    let group = GroupId { share: share.clone(), filter: filter.filter.clone() };
                    let qos = groups.entry(group).or_default();
                    *qos = options.qos.max(*qos);
                } else if !options.no_local || publisher.as_ref() != Some(client) {
                    let copy = clients.entry(client.clone()).or_default();
                    *copy = (options.qos.max(copy.0), options.retain_as_published || copy.1, copy.2.clone());
                    copy.2.extend(identifier);
                }
            }
        }
        assert_eq!(found.any, any, "{topic}");
        assert_eq!(found.clients.len(), clients.len(), "{topic}");
        for one in &found.clients {
            let mut identifiers: Vec<u32> = one.subscription_ids.iter().copied().collect();
            identifiers.sort_unstable();
            let mut expected = clients.remove(&one.route.client).expect("a subscriber, once");
            expected.2.sort_unstable();
            // One that several subscriptions share is told for each of them (MQTT 5 section 3.3.4).
            assert_eq!((one.qos, one.retain_as_published, identifiers), expected, "{topic}");
        }
        assert_eq!(found.groups.len(), groups.len(), "{topic}");
        assert!(found.groups.iter().all(|one| groups.get(&one.group) == Some(&one.qos)), "{topic}");
    }

    fn is_as_the_oracle_has_it(&self) {
        let table = &self.table;
        assert_eq!(table.client_count(), self.sessions.len());
        assert_eq!(table.subscription_count(), self.sessions.values().map(|(_, filters)| filters.len()).sum::<usize>());
        let mut groups: BTreeMap<GroupId, BTreeSet<ByteString>> = BTreeMap::new();
        for (client, (shard, filters)) in &self.sessions {
            let kept: Vec<_> = filters.iter().map(|(filter, (options, id))| (filter.clone(), *options, *id)).collect();
            assert_eq!(table.subscriptions_of(client), kept);
            assert_eq!(table.client(client).map(|route| route.shard), Some(*shard));
            for filter in filters.keys() {
                if let Some(share) = &filter.share {
                    let group = GroupId { share: share.clone(), filter: filter.filter.clone() };
                    groups.entry(group).or_default().insert(client.clone());
                }
            }
        }
        let mut seen = Vec::new();
        table.for_each_group(|group| seen.push(group.clone()));
        assert_eq!(seen, groups.keys().cloned().collect::<Vec<_>>());
        for (group, members) in &groups {
            assert!(table.group_exists(group));
            let found: Vec<_> = table.members(group).into_iter().map(|member| member.route.client.clone()).collect();
            assert_eq!(found, members.iter().cloned().collect::<Vec<_>>());
        }
        // A client is where it was set to be, and its state goes with it.
        if let Some(client) = self.sessions.keys().next() {
            let state = RouteState { connection: Some((1, 2, 3)), persistent: true };
            table.set_state(shard_of(client), client, state);
            assert_eq!(table.client(client).map(|route| route.state()), Some(state));
        }
    }
}

/// A client belongs to one shard.
fn shard_of(client: &str) -> u16 {
    u16::from(client.ends_with(['0', '1']))
}

/// Levels of the table, or any text.
fn text(draw: &mut Draw<'_>) -> String {
    let count = draw.below(8);
    if count == 0 {
        return draw.text();
    }
    let levels: Vec<&str> = (0..count).map(|_| draw.pick(&LEVELS)).collect();
    levels.join("/")
}

/// A filter, checked against what the specification says of one.
fn filter(draw: &mut Draw<'_>) -> Option<SubscriptionFilter> {
    let mut written = text(draw);
    if draw.byte() & 3 == 3 {
        written.insert_str(0, "$share/g/");
    }
    let written = ByteString::from(written);
    let parsed = SubscriptionFilter::parse(&written);
    let valid = match written.strip_prefix("$share/") {
        Some(rest) => {
            let (name, filter) = rest.split_once('/').unwrap_or(("", ""));
            !name.is_empty() && !name.contains(['+', '#', '\0']) && is_filter(filter)
        }
        None => is_filter(&written),
    };
    assert_eq!(parsed.is_ok(), valid, "{written:?}");
    let parsed = parsed.ok()?;
    assert_eq!(parsed.full(), written);
    assert_eq!(parsed.has_wildcard(), parsed.filter.contains(['+', '#']));
    assert!(!parsed.has_wildcard() || !topic_name::is_valid(&parsed.filter));
    Some(parsed)
}

/// [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2], character by character.
fn is_filter(text: &str) -> bool {
    let chars: Vec<char> = text.chars().collect();
    let alone = |at: usize| (at == 0 || chars[at - 1] == '/') && (at + 1 == chars.len() || chars[at + 1] == '/');
    !chars.is_empty()
        && chars.iter().enumerate().all(|(at, c)| match c {
            '#' => alone(at) && at + 1 == chars.len(),
            '+' => alone(at),
            '\0' => false,
            _ => true,
        })
}

/// Whether a topic matches a filter, level by level as MQTT 5 section 4.7 reads.
fn oracle(filter: &str, topic: &str) -> bool {
    fn levels_match(filter: &[&str], topic: &[&str]) -> bool {
        match (filter, topic) {
            (["#"], _) => true,
            ([], []) => true,
            (["+", filter @ ..], [_, topic @ ..]) => levels_match(filter, topic),
            ([one, filter @ ..], [other, topic @ ..]) => one == other && levels_match(filter, topic),
            _ => false,
        }
    }
    if topic.starts_with('$') && (filter.starts_with('+') || filter.starts_with('#')) {
        return false;
    }
    levels_match(&filter.split('/').collect::<Vec<_>>(), &topic.split('/').collect::<Vec<_>>())
}

/// `matches` is what the oracle says, and `covers` promises nothing that it does not hold.
fn compare_filters(draw: &mut Draw<'_>) {
    let (Some(one), Some(other)) = (filter(draw), filter(draw)) else { return };
    let covers = topic_filter::covers(&one.filter, &other.filter);
    assert!(topic_filter::covers(&one.filter, &one.filter) && topic_filter::covers(&other.filter, &other.filter));
    // Topics that the second filter was made for, and any other.
    let made = |with: &str| {
        other.filter.split('/').map(|level| if matches!(level, "+" | "#") { with } else { level }).collect::<Vec<_>>().join("/")
    };
    let mut topics = vec![made("a"), made(""), made("$x"), text(draw)];
    topics.push(format!("{}/b", topics[0]));
    topics.extend(other.filter.strip_suffix("/#").map(str::to_owned));
    for topic in topics.iter().filter(|topic| topic_name::is_valid(topic)) {
        let (by_one, by_other) = (oracle(&one.filter, topic), oracle(&other.filter, topic));
        assert_eq!(topic_filter::matches(&one.filter, topic), by_one, "{} {topic}", one.filter);
        assert_eq!(topic_filter::matches(&other.filter, topic), by_other, "{} {topic}", other.filter);
        assert!(!covers || !by_other || by_one, "{} covers {} but not {topic}", one.filter, other.filter);
    }
}
