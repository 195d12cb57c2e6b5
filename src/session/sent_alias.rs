//! Topic Aliases towards the client (MQTT 5 section 3.3.2.3.4): which PUBLISH sets one, and which one makes way.
//!
//! A topic gets an alias when it is sent the second time within a short while, so that topics used once cost nothing. With all aliases
//! in use, a clock goes round them: each newcomer takes one credit from the alias under the hand, a use gives some back, and only
//! an alias without credit makes way. So more topics in turn than there are aliases leave most of them in place, instead of each driving
//! out the next; setting an alias costs bytes, using it saves them.

use std::collections::{BTreeMap, VecDeque};

use bytestring::ByteString;

use super::alias_memory::{AliasMemory, Held};

/// The property takes three bytes each time, and three more are paid to set the alias: a topic longer than both is worth one.
const TOPIC_LEN_MIN: usize = 7;
/// Topics remembered to recognise their second use.
const SEEN_LEN_MAX: usize = 64;
/// Newcomers that an alias outlasts for each use of it, and at most.
const CREDIT_PER_USE: u8 = 3;
const CREDIT_MAX: u8 = 12;

/// What is done for one PUBLISH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The topic goes as it is.
    None,
    /// The alias goes, and the topic does not.
    Use(u16),
    /// Both go, and the alias stands for the topic from then on.
    Set(u16),
}

/// The aliases of one connection; they end with it, so a resend on a new one begins with none.
#[derive(Debug, Default)]
pub(super) struct SentAliases {
    max: u16,
    memory: AliasMemory,
    /// Made with the first message: many clients only publish.
    table: Option<Box<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    max: usize,
    by_topic: BTreeMap<ByteString, usize>,
    /// By alias - 1.
    slots: Vec<Slot>,
    /// The slot that the next newcomer looks at.
    hand: usize,
    /// Hashes of topics without alias that were sent lately.
    seen: VecDeque<u64>,
    held: Held,
}

#[derive(Debug)]
struct Slot {
    topic: ByteString,
    credit: u8,
}

impl SentAliases {
    /// At most `max` aliases: no more than the client's Topic Alias Maximum [MQTT-3.1.2-26], and none where it announced none
    /// [MQTT-3.1.2-27].
    pub(super) fn new(max: u16, memory: &AliasMemory) -> Self {
        Self { max, memory: memory.clone(), table: None }
    }

    /// Chooses for a PUBLISH to this topic; nothing stands for anything before `sent` says that it left.
    pub(super) fn choose(&mut self, topic: &str) -> Choice {
        if self.max == 0 || topic.len() < TOPIC_LEN_MIN {
            return Choice::None;
        }
        let new = || Box::new(Table { max: usize::from(self.max), held: self.memory.hold(), ..Table::default() });
        self.table.get_or_insert_with(new).choose(topic)
    }

    /// The PUBLISH left as chosen.
    pub(super) fn sent(&mut self, topic: &str, choice: Choice) {
        if let Some(table) = &mut self.table {
            table.sent(topic, choice);
        }
    }
}

impl Table {
    fn choose(&mut self, topic: &str) -> Choice {
        if let Some(index) = self.by_topic.get(topic) {
            return alias_of(*index).map_or(Choice::None, Choice::Use);
        }
        if !self.was_seen(topic) || !self.held.is_plenty() {
            return Choice::None;
        }
        let free = if self.slots.len() < self.max { Some(self.slots.len()) } else { self.turn_hand() };
        free.and_then(alias_of).map_or(Choice::None, Choice::Set)
    }

    fn sent(&mut self, topic: &str, choice: Choice) {
        match choice {
            Choice::None => {}
            Choice::Use(alias) => {
                if let Some(slot) = self.slots.get_mut(usize::from(alias).saturating_sub(1)) {
                    slot.credit = slot.credit.saturating_add(CREDIT_PER_USE).min(CREDIT_MAX);
                }
            }
            Choice::Set(alias) => self.set(usize::from(alias).saturating_sub(1), topic),
        }
    }

    fn set(&mut self, index: usize, topic: &str) {
        // A copy of its own: the topic is a slice of a packet that it must not keep alive.
        let topic = ByteString::from(topic);
        let slot = Slot { topic: topic.clone(), credit: CREDIT_PER_USE };
        match self.slots.get_mut(index) {
            Some(old) => {
                let old = std::mem::replace(old, slot);
                self.by_topic.remove(&old.topic);
                self.held.give_back(&old.topic);
            }
            None => self.slots.push(slot),
        }
        self.held.take(&topic);
        self.by_topic.insert(topic, index);
    }

    /// Whether the topic was sent lately; it was from now on.
    fn was_seen(&mut self, topic: &str) -> bool {
        let hash = hash(topic);
        if let Some(index) = self.seen.iter().position(|seen| *seen == hash) {
            self.seen.remove(index);
            self.remember(hash);
            return true;
        }
        self.remember(hash);
        false
    }

    fn remember(&mut self, hash: u64) {
        if self.seen.len() >= SEEN_LEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(hash);
    }

    /// The slot under the hand where it has no credit left; one credit less where it has.
    fn turn_hand(&mut self) -> Option<usize> {
        let index = self.hand;
        let slot = self.slots.get_mut(index)?;
        if slot.credit == 0 {
            // The hand stays: should the PUBLISH not leave, the next newcomer finds the same place.
            return Some(index);
        }
        slot.credit -= 1;
        self.hand = (index + 1) % self.slots.len().max(1);
        None
    }
}

fn alias_of(index: usize) -> Option<u16> {
    u16::try_from(index + 1).ok()
}

/// FNV-1a. Two topics with one hash get an alias one use early, no more.
fn hash(topic: &str) -> u64 {
    topic.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(max: u16) -> SentAliases {
        SentAliases::new(max, &AliasMemory::default())
    }

    /// Sends the topics in turn; the choices made.
    fn send(aliases: &mut SentAliases, topics: &[&str]) -> Vec<Choice> {
        let mut choices = Vec::new();
        for topic in topics {
            let choice = aliases.choose(topic);
            aliases.sent(topic, choice);
            choices.push(choice);
        }
        choices
    }

    #[test]
    fn the_second_use_sets_an_alias_and_the_third_needs_no_topic() {
        let mut aliases = aliases(2);
        let choices = send(&mut aliases, &["topic/1", "topic/2", "topic/1", "topic/1", "topic/2", "topic/2"]);
        assert_eq!(choices, [Choice::None, Choice::None, Choice::Set(1), Choice::Use(1), Choice::Set(2), Choice::Use(2)]);
    }

    #[test]
    fn none_are_used_where_the_client_announced_none_or_the_topic_is_short() {
        assert_eq!(send(&mut aliases(0), &["topic/1"; 3]), [Choice::None; 3]);
        assert_eq!(send(&mut aliases(5), &["topics"; 3]), [Choice::None; 3]);
    }

    #[test]
    fn what_did_not_leave_sets_nothing() {
        let mut aliases = aliases(1);
        assert_eq!(send(&mut aliases, &["topic/1"]), [Choice::None]);
        assert_eq!(aliases.choose("topic/1"), Choice::Set(1));
        assert_eq!(aliases.choose("topic/1"), Choice::Set(1));
        assert_eq!(send(&mut aliases, &["topic/1", "topic/1"]), [Choice::Set(1), Choice::Use(1)]);
    }

    #[test]
    fn more_topics_in_turn_than_aliases_do_not_drive_each_other_out() {
        let topics: Vec<String> = (0..12).map(|n| format!("sensor/{n}/temperature")).collect();
        let mut aliases = aliases(4);
        let (mut plain, mut spent) = (0, 0);
        for _ in 0..100 {
            for topic in &topics {
                let choice = aliases.choose(topic);
                aliases.sent(topic, choice);
                plain += topic.len();
                spent += match choice {
                    Choice::None => topic.len(),
                    Choice::Use(_) => 3,
                    Choice::Set(_) => topic.len() + 3,
                };
            }
        }
        // The best that four aliases can do for twelve topics in turn is a third of what three bytes save.
        assert!(spent * 100 < plain * 80, "{spent} of {plain}");
    }

    #[test]
    fn what_is_sent_no_more_makes_way_for_what_is() {
        let mut aliases = aliases(2);
        send(&mut aliases, &["old/topic/1", "old/topic/2"].repeat(20));
        let choices = send(&mut aliases, &["new/topic/1", "new/topic/2"].repeat(20));
        assert!(
            choices.ends_with(&[Choice::Use(1), Choice::Use(2)]) || choices.ends_with(&[Choice::Use(2), Choice::Use(1)]),
            "{choices:?}"
        );
        assert_eq!(aliases.table.unwrap().by_topic.len(), 2);
    }

    #[test]
    fn no_alias_stands_for_two_topics_and_none_is_above_the_maximum() {
        let topics: Vec<String> = (0..9).map(|n| format!("a/topic/{n}")).collect();
        let mut aliases = aliases(3);
        let mut client: BTreeMap<u16, &str> = BTreeMap::new();
        let mut state = 7_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (number, lost) = (usize::try_from((state >> 33) % 9).unwrap(), (state >> 40).is_multiple_of(5));
            let topic = topics[number].as_str();
            let choice = aliases.choose(topic);
            if lost {
                continue; // the PUBLISH was too large
            }
            aliases.sent(topic, choice);
            match choice {
                Choice::None => {}
                Choice::Use(alias) => assert_eq!(client.get(&alias), Some(&topic)),
                Choice::Set(alias) => {
                    assert!((1..=3).contains(&alias));
                    client.insert(alias, topic);
                }
            }
        }
        assert_eq!(client.len(), 3);
        assert!(aliases.table.unwrap().held.is_plenty());
    }

    #[test]
    fn without_memory_to_spare_no_alias_is_begun() {
        let memory = AliasMemory::new(100, 1000);
        let mut one = SentAliases::new(5, &memory);
        assert_eq!(send(&mut one, &["topic/of/one"; 3]), [Choice::None, Choice::Set(1), Choice::Use(1)]);
        let mut other = SentAliases::new(5, &memory);
        send(&mut one, &["topic/of/two"; 3]);
        assert_eq!(send(&mut other, &["topic/of/other"; 3]), [Choice::None; 3]);
        drop(one);
        assert_eq!(memory.used_bytes(), 0);
        assert_eq!(send(&mut other, &["topic/of/other"; 1]), [Choice::Set(1)]);
    }
}
