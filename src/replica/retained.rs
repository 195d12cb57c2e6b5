//! The retained messages of a shard, found by Topic Filter.
//!
//! One ordered set, sorted by topic levels: a `/` sorts before every other character, so the topics below a level follow it at
//! once, a `#` is a range and a `+` a walk that jumps from one range to the next. No node for each level: a topic of 65,535 levels
//! costs no more than another of its length, and nothing recurses. The key is the topic inside the message.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, btree_set};
use std::ops::Bound;
use std::sync::Arc;

use crate::mqtt::Message;

/// Retained messages, one a topic.
#[derive(Debug, Default, Clone)]
pub struct RetainedTree {
    messages: BTreeSet<Entry>,
    bytes: usize,
}

impl RetainedTree {
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores the message of its topic; returns the one it replaces [MQTT-3.3.1-5].
    pub fn insert(&mut self, message: Arc<Message>) -> Option<Arc<Message>> {
        self.bytes += message.size_bytes();
        let replaced = self.messages.replace(Entry(message))?.0;
        self.bytes -= replaced.size_bytes();
        Some(replaced)
    }

    pub fn remove(&mut self, topic: &str) -> Option<Arc<Message>> {
        let removed = self.messages.take(&topic as &dyn Topic)?.0;
        self.bytes -= removed.size_bytes();
        Some(removed)
    }

    pub fn get(&self, topic: &str) -> Option<&Arc<Message>> {
        self.messages.get(&topic as &dyn Topic).map(|entry| &entry.0)
    }

    /// Messages whose topic matches a filter (one without share), in order of their topics. Costs a search for each message and for
    /// each topic level that a `+` has to try, whatever else is stored. A `$` topic is not matched by a filter that begins with a
    /// wildcard [MQTT-4.7.2-1].
    pub fn matching<'a>(&'a self, filter: &'a str) -> Matching<'a> {
        let levels: Vec<&str> = filter.split('/').collect();
        let start = start_of(&levels);
        Matching { messages: &self.messages, range: self.from(&start), levels, is_over: false }
    }

    /// All messages in order of their topics.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.messages.iter().map(|entry| &entry.0)
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of all messages (`Message::size_bytes`).
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn from(&self, topic: &str) -> btree_set::Range<'_, Entry> {
        range_from(&self.messages, topic)
    }
}

/// The messages that match a filter, searched as they are asked for.
#[derive(Debug)]
pub struct Matching<'a> {
    messages: &'a BTreeSet<Entry>,
    range: btree_set::Range<'a, Entry>,
    levels: Vec<&'a str>,
    is_over: bool,
}

impl<'a> Iterator for Matching<'a> {
    type Item = &'a Arc<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let message = &self.range.next()?.0;
            match compare(&self.levels, &message.topic) {
                Step::Match => return Some(message),
                Step::Seek(topic) => self.range = range_from(self.messages, &topic),
                Step::End => self.is_over = true,
            }
        }
        None
    }
}

/// Where to go from a topic.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Match,
    /// To the first topic not before this; nothing in between matches. It is after the topic that was compared.
    Seek(String),
    /// No later topic matches.
    End,
}

/// Compares a topic, not before the first possible match, with a filter.
fn compare(levels: &[&str], topic: &str) -> Step {
    if topic.starts_with('$') && levels.first().is_some_and(|first| is_wildcard(first)) {
        // [MQTT-4.7.2-1]: `%` is the character after `$`.
        return Step::Seek("%".into());
    }
    // Where the next level of the topic begins; past the end there is none.
    let mut from = 0;
    // The end of the last level that a `+` stood for.
    let mut plus_end = None;
    for (at, level) in levels.iter().enumerate() {
        if *level == "#" && at + 1 == levels.len() {
            return Step::Match;
        }
        let Some(rest) = topic.get(from..) else {
            // The topic ends above the filter: its first descendant that can match is next.
            let mut next = String::with_capacity(topic.len() + 1 + level.len());
            next.push_str(topic);
            next.push('/');
            if !is_wildcard(level) {
                next.push_str(level);
            }
            return Step::Seek(next);
        };
        let end = rest.find('/').map_or(topic.len(), |slash| from + slash);
        let part = &topic[from..end];
        if *level == "+" {
            plus_end = Some(end);
        } else {
            match part.cmp(level) {
                Ordering::Equal => {}
                Ordering::Less => return Step::Seek(format!("{}{level}", &topic[..from])),
                Ordering::Greater => return plus_end.map_or(Step::End, |end| after_subtree(&topic[..end])),
            }
        }
        from = end + 1;
    }
    if from > topic.len() {
        return Step::Match;
    }
    // The topic goes on below the filter, and so do all others of this subtree.
    plus_end.map_or(Step::End, |_| after_subtree(&topic[..from - 1]))
}

/// The first place after a topic and all topics below it: U+0000 is the lowest character but `/`.
fn after_subtree(topic: &str) -> Step {
    Step::Seek(format!("{topic}\0"))
}

/// The levels before the first wildcard, which all matches begin with.
fn start_of(levels: &[&str]) -> String {
    let fixed = levels.iter().position(|level| is_wildcard(level)).unwrap_or(levels.len());
    levels.get(..fixed).unwrap_or_default().join("/")
}

fn is_wildcard(level: &str) -> bool {
    matches!(level, "+" | "#")
}

fn range_from<'a>(messages: &'a BTreeSet<Entry>, topic: &str) -> btree_set::Range<'a, Entry> {
    messages.range::<dyn Topic, _>((Bound::Included(&topic as &dyn Topic), Bound::Unbounded))
}

/// A message that compares by its topic's levels.
#[derive(Debug, Clone)]
struct Entry(Arc<Message>);

/// What an entry is searched by, without making one.
trait Topic {
    fn topic(&self) -> &str;
}

impl Topic for Entry {
    fn topic(&self) -> &str {
        &self.0.topic
    }
}

impl Topic for &str {
    fn topic(&self) -> &str {
        self
    }
}

impl<'a> Borrow<dyn Topic + 'a> for Entry {
    fn borrow(&self) -> &(dyn Topic + 'a) {
        self
    }
}

impl Ord for dyn Topic + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |byte: u8| if byte == b'/' { None } else { Some(byte) };
        let (a, b) = (self.topic().as_bytes(), other.topic().as_bytes());
        match a.iter().zip(b).find(|(a, b)| a != b) {
            Some((&a, &b)) => rank(a).cmp(&rank(b)),
            None => a.len().cmp(&b.len()),
        }
    }
}

impl PartialOrd for dyn Topic + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Topic + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.topic() == other.topic()
    }
}

impl Eq for dyn Topic + '_ {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self as &dyn Topic).cmp(other as &dyn Topic)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.topic() == other.topic()
    }
}

impl Eq for Entry {}

#[cfg(test)]
#[path = "retained_test.rs"]
mod tests;
