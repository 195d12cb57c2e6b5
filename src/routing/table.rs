//! The routing table.
//!
//! Filters without wildcards live in a hash map cut into parts with a lock each, those with wildcards in a trie under one lock. A client
//! remembers its filters, so that taking it out costs what it has.
//!
//! Locks are taken in the order clients, filters, groups, and a writer holds one filter lock at a time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ahash::RandomState;
use bytestring::ByteString;
use hashbrown::HashTable;
use parking_lot::RwLock;

use super::collect::{MatchedNodes, Matches, collect};
use super::filter_node::{FilterNode, Group, Inserted, Removed, Subscriber};
use super::route::{ClientRoute, RouteKey, RouteState};
use super::small_set::SmallSet;
use super::trie::Trie;
use crate::mqtt::packet::SubscriptionOptions;
use crate::mqtt::{GroupId, SubscriptionFilter};

/// Parts of each hash map.
const PARTS: usize = 64;

/// A member of a shared subscription.
#[derive(Debug, Clone)]
pub struct Member {
    pub route: Arc<ClientRoute>,
    pub options: SubscriptionOptions,
    pub identifier: Option<u32>,
}

/// All subscriptions of the cluster.
#[derive(Debug, Default)]
pub struct Table {
    clients: Clients,
    exact: Parts<Arc<str>, FilterNode>,
    wildcards: RwLock<Trie>,
    /// Filters in `wildcards`; while there are none its lock is left alone.
    wildcard_filters: AtomicUsize,
    groups: RwLock<BTreeSet<GroupId>>,
    subscriptions: AtomicUsize,
    /// Subscriptions, and declared groups, of filters that begin with `$`.
    dollar: AtomicUsize,
}

/// A client with the filters it has subscriptions of. Very many have none: a table of them has little room for one.
#[derive(Debug)]
struct ClientEntry {
    route: RouteKey,
    filters: SmallSet<Box<FilterKey>>,
}

impl ClientEntry {
    fn is_of(&self, client: &str) -> bool {
        self.route.0.client == client
    }
}

/// A subscription's name as the client's entry keeps it; the strings are those of the filter's node.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FilterKey {
    filter: Arc<str>,
    share: Option<Arc<str>>,
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    /// Matches a topic. `publisher` leaves out that client's own No Local subscriptions [MQTT-3.8.3-3].
    pub fn matches(&self, topic: &str, publisher: Option<&ByteString>) -> Matches {
        let exact = self.exact.part(topic).read();
        let wildcards = (self.wildcard_filters.load(Ordering::Acquire) > 0).then(|| self.wildcards.read());
        let mut nodes: MatchedNodes<'_> = exact.get(topic).into_iter().collect();
        if let Some(wildcards) = &wildcards {
            wildcards.matching(topic, &mut nodes);
        }
        collect(nodes, publisher)
    }

    /// Adds or replaces a subscription [MQTT-3.8.4-3]; the client is made where it is not known.
    pub fn subscribe(
        &self,
        shard: u16,
        client: &ByteString,
        filter: &SubscriptionFilter,
        options: SubscriptionOptions,
        identifier: Option<u32>,
    ) {
        let (hash, part) = self.clients.part(client);
        let mut clients = part.write();
        let entry = self.clients.entry(hash, &mut clients, shard, client, RouteState::default());
        let subscriber = Subscriber { route: entry.route.clone(), options, identifier: identifier.and_then(NonZeroU32::new) };
        let (key, new) = self.insert(filter, subscriber);
        if new {
            entry.filters.insert(Box::new(key));
            self.subscriptions.fetch_add(1, Ordering::Relaxed);
            self.dollar.fetch_add(usize::from(filter.filter.starts_with('$')), Ordering::AcqRel);
        }
    }

    pub fn unsubscribe(&self, client: &ByteString, filter: &SubscriptionFilter) {
        let (hash, part) = self.clients.part(client);
        let mut clients = part.write();
        let Some(entry) = clients.find_mut(hash, |entry| entry.is_of(client)) else { return };
        let key = FilterKey { filter: (&*filter.filter).into(), share: filter.share.as_deref().map(Arc::from) };
        if let Some(known) = entry.filters.remove(&key) {
            self.remove(&known, &entry.route);
        }
    }

    /// Notes where the client is (creates it where unknown).
    pub fn set_state(&self, shard: u16, client: &ByteString, state: RouteState) {
        let (hash, part) = self.clients.part(client);
        self.clients.entry(hash, &mut part.write(), shard, client, state).route.0.set_state(state);
    }

    /// The session is gone with all its subscriptions.
    pub fn remove_client(&self, client: &ByteString) {
        let (hash, part) = self.clients.part(client);
        let mut clients = part.write();
        if let Ok(known) = clients.find_entry(hash, |entry| entry.is_of(client)) {
            let (entry, _) = known.remove();
            self.forget(&entry);
            if is_mostly_empty(clients.capacity(), clients.len()) {
                let len = clients.len();
                clients.shrink_to(len * 2, |entry| self.clients.hasher.hash_one(&*entry.route.0.client));
            }
        }
    }

    /// Ids of all clients of one shard.
    pub fn clients_of(&self, shard: u16) -> Vec<ByteString> {
        let mut found = Vec::new();
        for part in &self.clients.parts {
            let clients = part.read();
            found.extend(
                clients.iter().map(|e| &e.route.0).filter(|route| route.shard == shard).map(|route| route.client.clone()),
            );
        }
        found
    }

    pub fn client(&self, client: &str) -> Option<Arc<ClientRoute>> {
        let (hash, part) = self.clients.part(client);
        part.read().find(hash, |entry| entry.is_of(client)).map(|entry| Arc::clone(&entry.route.0))
    }

    /// Subscriptions of a client with options and Subscription Identifier, sorted by filter.
    pub fn subscriptions_of(&self, client: &str) -> Vec<(SubscriptionFilter, SubscriptionOptions, Option<u32>)> {
        let (hash, part) = self.clients.part(client);
        let clients = part.read();
        let Some(entry) = clients.find(hash, |entry| entry.is_of(client)) else { return Vec::new() };
        let mut all: Vec<_> = entry.filters.iter().filter_map(|key| self.subscription(key, &entry.route)).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Members of a shared subscription, all of them, connected or not, sorted by client id.
    pub fn members(&self, group: &GroupId) -> Vec<Member> {
        let mut members = self
            .with_node(&group.filter, |node| {
                let members = node.group(&group.share).into_iter().flat_map(|group| group.members());
                members.map(Member::from).collect::<Vec<_>>()
            })
            .unwrap_or_default();
        members.sort_unstable_by(|a, b| a.route.client.cmp(&b.route.client));
        members
    }

    /// Notes that a shared subscription is declared: it is matched without members too. Or that it is no more.
    pub fn set_declared(&self, group: &GroupId, declared: bool) {
        let GroupId { share, filter } = group;
        let set = |node: &mut FilterNode| {
            let was_declared = node.group(share).is_some_and(Group::is_declared);
            match (was_declared, declared) {
                (false, true) => _ = self.dollar.fetch_add(usize::from(filter.starts_with('$')), Ordering::AcqRel),
                (true, false) => _ = self.dollar.fetch_sub(usize::from(filter.starts_with('$')), Ordering::AcqRel),
                _ => {}
            }
            let exists = node.set_declared(share, filter, declared);
            let mut groups = self.groups.write();
            if exists {
                groups.insert(group.clone());
            } else {
                groups.remove(group);
            }
        };
        if has_wildcard(filter) {
            let mut trie = self.wildcards.write();
            if declared {
                set(&mut trie.entry(filter).node);
            } else {
                trie.change(filter, set);
            }
            self.wildcard_filters.store(trie.len(), Ordering::Release);
            return;
        }
        let mut part = self.exact.part(filter).write();
        if declared && !part.contains_key(&**filter) {
            part.insert(Arc::from(&**filter), FilterNode::default());
        }
        if let Some(node) = part.get_mut(&**filter) {
            set(node);
            if node.is_empty() {
                part.remove(&**filter);
            }
        }
    }

    pub fn is_declared(&self, group: &GroupId) -> bool {
        self.with_node(&group.filter, |node| node.group(&group.share).is_some_and(Group::is_declared)).unwrap_or(false)
    }

    /// Whether the shared subscription has a member, or is declared.
    pub fn group_exists(&self, group: &GroupId) -> bool {
        self.groups.read().contains(group)
    }

    /// Visits every shared subscription that has a member or is declared, sorted. They are those at the time of the call; `visit` may use the table.
    pub fn for_each_group(&self, visit: impl FnMut(&GroupId)) {
        let groups: Vec<GroupId> = self.groups.read().iter().cloned().collect();
        groups.iter().for_each(visit);
    }

    /// Whether anybody can hear a topic that begins with `$`: no wildcard at the first level matches those [MQTT-4.7.2-1].
    pub fn has_dollar_filters(&self) -> bool {
        self.dollar.load(Ordering::Acquire) > 0
    }

    pub fn subscription_count(&self) -> usize {
        self.subscriptions.load(Ordering::Relaxed)
    }

    pub fn client_count(&self) -> usize {
        self.clients.parts.iter().map(|part| part.read().len()).sum()
    }

    /// Puts a subscription to its filter; returns how the client is to remember it and whether it is new.
    fn insert(&self, filter: &SubscriptionFilter, subscriber: Subscriber) -> (FilterKey, bool) {
        let share = filter.share.as_deref();
        let (text, inserted) = if filter.has_wildcard() {
            let mut trie = self.wildcards.write();
            let terminal = trie.entry(&filter.filter);
            let inserted = terminal.node.insert(share, &filter.filter, subscriber);
            self.note_made(&inserted);
            let text = Arc::clone(&terminal.filter);
            self.wildcard_filters.store(trie.len(), Ordering::Release);
            (text, inserted)
        } else {
            let mut part = self.exact.part(&filter.filter).write();
            let text =
                part.get_key_value(&*filter.filter).map_or_else(|| Arc::from(&*filter.filter), |(text, _)| Arc::clone(text));
            let inserted = part.entry(Arc::clone(&text)).or_default().insert(share, &filter.filter, subscriber);
            self.note_made(&inserted);
            (text, inserted)
        };
        (FilterKey { filter: text, share: inserted.share }, inserted.new)
    }

    fn note_made(&self, inserted: &Inserted) {
        if let Some(group) = &inserted.group_made {
            self.groups.write().insert(group.clone());
        }
    }

    /// Takes all subscriptions of a client that is gone from their filters.
    fn forget(&self, entry: &ClientEntry) {
        for key in entry.filters.iter() {
            self.remove(key, &entry.route);
        }
        entry.route.0.set_state(RouteState::default());
    }

    fn remove(&self, key: &FilterKey, route: &RouteKey) {
        let take = |node: &mut FilterNode| {
            let Removed { existed, group_gone } = node.remove(key.share.as_deref(), route);
            if existed {
                self.subscriptions.fetch_sub(1, Ordering::Relaxed);
                self.dollar.fetch_sub(usize::from(key.filter.starts_with('$')), Ordering::AcqRel);
            }
            if let Some(group) = group_gone {
                self.groups.write().remove(&group);
            }
        };
        if has_wildcard(&key.filter) {
            let mut trie = self.wildcards.write();
            trie.change(&key.filter, take);
            self.wildcard_filters.store(trie.len(), Ordering::Release);
            return;
        }
        let mut part = self.exact.part(&key.filter).write();
        if let Some(node) = part.get_mut(&*key.filter) {
            take(node);
            if node.is_empty() {
                part.remove(&*key.filter);
                shrink(&mut part);
            }
        }
    }

    fn subscription(&self, key: &FilterKey, route: &RouteKey) -> Option<(SubscriptionFilter, SubscriptionOptions, Option<u32>)> {
        let share = key.share.as_deref();
        let (options, identifier) = self.with_node(&key.filter, |node| {
            node.get(share, route).map(|subscriber| (subscriber.options, subscriber.identifier.map(NonZeroU32::get)))
        })??;
        let filter = SubscriptionFilter { share: share.map(ByteString::from), filter: (&*key.filter).into() };
        Some((filter, options, identifier))
    }

    fn with_node<R>(&self, filter: &str, read: impl FnOnce(&FilterNode) -> R) -> Option<R> {
        if has_wildcard(filter) {
            return self.wildcards.read().get(filter).map(|terminal| read(&terminal.node));
        }
        self.exact.part(filter).read().get(filter).map(read)
    }
}

impl From<&Subscriber> for Member {
    fn from(subscriber: &Subscriber) -> Self {
        Self {
            route: Arc::clone(&subscriber.route.0),
            options: subscriber.options,
            identifier: subscriber.identifier.map(NonZeroU32::get),
        }
    }
}

fn has_wildcard(filter: &str) -> bool {
    filter.bytes().any(|b| matches!(b, b'+' | b'#'))
}

/// The clients by their ids, in parts with a lock each. The id is in the route alone: there are as many entries as sessions in the cluster.
#[derive(Debug)]
struct Clients {
    hasher: RandomState,
    parts: Box<[RwLock<HashTable<ClientEntry>>]>,
}

impl Default for Clients {
    fn default() -> Self {
        Self { hasher: RandomState::new(), parts: (0..PARTS).map(|_| RwLock::default()).collect() }
    }
}

impl Clients {
    /// The hash of an id, and the part that it is in.
    fn part(&self, client: &str) -> (u64, &RwLock<HashTable<ClientEntry>>) {
        let hash = self.hasher.hash_one(client);
        // Not the bits by which the part's table places it.
        (hash, &self.parts[((hash >> 32) % PARTS as u64) as usize])
    }

    /// The client's entry, made with `state` where it is not known.
    fn entry<'a>(
        &self,
        hash: u64,
        clients: &'a mut HashTable<ClientEntry>,
        shard: u16,
        client: &ByteString,
        state: RouteState,
    ) -> &'a mut ClientEntry {
        let hasher = |entry: &ClientEntry| self.hasher.hash_one(&*entry.route.0.client);
        let entry = clients.entry(hash, |entry| entry.is_of(client), hasher).or_insert_with(|| ClientEntry {
            route: RouteKey(Arc::new(ClientRoute::new(client.clone(), shard, state))),
            filters: SmallSet::Empty,
        });
        entry.into_mut()
    }
}

type Part<K, V> = HashMap<K, V, RandomState>;

/// A hash map cut into parts with a lock each.
#[derive(Debug)]
struct Parts<K, V> {
    hasher: RandomState,
    parts: Box<[RwLock<Part<K, V>>]>,
}

impl<K, V> Default for Parts<K, V> {
    fn default() -> Self {
        Self { hasher: RandomState::new(), parts: (0..PARTS).map(|_| RwLock::default()).collect() }
    }
}

impl<K, V> Parts<K, V> {
    #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash choose a part")]
    fn part(&self, key: &str) -> &RwLock<Part<K, V>> {
        &self.parts[self.hasher.hash_one(key) as usize % PARTS]
    }
}

/// Gives memory back after most of a part went.
fn shrink<K: Eq + Hash, V>(part: &mut Part<K, V>) {
    if is_mostly_empty(part.capacity(), part.len()) {
        part.shrink_to(part.len() * 2);
    }
}

fn is_mostly_empty(capacity: usize, len: usize) -> bool {
    capacity > 1024 && capacity / 8 > len
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
