//! Topic Aliases from the client (MQTT 5 section 3.3.2.3.4). Those towards clients are in `sent_alias`.

use std::collections::BTreeMap;

use bytestring::ByteString;

use super::alias_memory::{AliasMemory, Held};
use super::error::Offence;

/// The aliases of one connection; they end with it [MQTT-3.3.2-7].
#[derive(Debug, Default)]
pub(super) struct TopicAliases {
    /// As CONNACK announced it.
    max: u16,
    memory: AliasMemory,
    /// Most clients set none.
    set: Option<Box<Set>>,
}

#[derive(Debug)]
struct Set {
    topics: BTreeMap<u16, ByteString>,
    held: Held,
}

impl TopicAliases {
    /// No alias is set; `max` is what CONNACK announces.
    pub(super) fn new(max: u16, memory: &AliasMemory) -> Self {
        Self { max, memory: memory.clone(), set: None }
    }

    /// The topic that a PUBLISH means: its own, which an alias then stands for, or what the alias stands for.
    ///
    /// # Errors
    /// An alias of 0, above the maximum, or never set; no topic at all; no memory for one more.
    pub(super) fn resolve(&mut self, topic: ByteString, alias: Option<u16>) -> Result<ByteString, Offence> {
        let Some(alias) = alias else {
            return if topic.is_empty() { Err(Offence::TopicMissing) } else { Ok(topic) };
        };
        // [MQTT-3.3.2-8]
        if alias == 0 {
            return Err(Offence::TopicAliasZero);
        }
        // [MQTT-3.3.2-9]
        if alias > self.max {
            return Err(Offence::TopicAliasTooLarge);
        }
        if topic.is_empty() {
            let topic = self.set.as_ref().and_then(|set| set.topics.get(&alias).cloned());
            return topic.ok_or(Offence::TopicAliasUnknown);
        }
        let set = self.set.get_or_insert_with(|| Box::new(Set { topics: BTreeMap::new(), held: self.memory.hold() }));
        // A copy of its own: the topic is a slice of a read buffer that it must not keep alive.
        let before = set.topics.insert(alias, ByteString::from(&*topic));
        if let Some(before) = before {
            set.held.give_back(&before);
        }
        // spec/hivemq.md 9.8
        if !set.held.take(&topic) {
            return Err(Offence::TopicAliasMemory);
        }
        Ok(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aliases(max: u16) -> TopicAliases {
        TopicAliases::new(max, &AliasMemory::default())
    }

    #[test]
    fn an_alias_stands_for_the_last_topic_it_was_sent_with() {
        let table: &[(&str, Option<u16>, Result<&str, Offence>)] = &[
            ("a", None, Ok("a")),
            ("", None, Err(Offence::TopicMissing)),
            ("", Some(1), Err(Offence::TopicAliasUnknown)),
            ("a", Some(5), Ok("a")),
            ("", Some(5), Ok("a")),
            ("", Some(1), Err(Offence::TopicAliasUnknown)),
            ("b", Some(5), Ok("b")),
            ("", Some(5), Ok("b")),
            ("c", Some(1), Ok("c")),
            ("", Some(1), Ok("c")),
            ("", Some(5), Ok("b")),
            ("a", Some(0), Err(Offence::TopicAliasZero)),
            ("", Some(0), Err(Offence::TopicAliasZero)),
            ("a", Some(6), Err(Offence::TopicAliasTooLarge)),
            ("", Some(6), Err(Offence::TopicAliasTooLarge)),
        ];
        let mut aliases = aliases(5);
        for (i, (topic, alias, want)) in table.iter().enumerate() {
            let got = aliases.resolve(ByteString::from_static(topic), *alias);
            assert_eq!(got.as_deref(), want.as_deref(), "row {i}");
        }
    }

    #[test]
    fn no_alias_is_taken_where_they_are_off() {
        assert_eq!(aliases(0).resolve(ByteString::from_static("a"), Some(1)), Err(Offence::TopicAliasTooLarge));
    }

    #[test]
    fn aliases_beyond_the_hard_limit_of_the_node_are_refused_and_give_their_memory_back_with_their_connection() {
        let memory = AliasMemory::new(0, 1000);
        let topic = ByteString::from("t".repeat(400));
        let mut one = TopicAliases::new(5, &memory);
        let mut other = TopicAliases::new(5, &memory);
        assert!(one.resolve(topic.clone(), Some(1)).is_ok());
        // Set anew, it takes its own place.
        assert!(one.resolve(topic.clone(), Some(1)).is_ok());
        assert!(other.resolve(topic.clone(), Some(1)).is_ok());
        assert_eq!(other.resolve(topic.clone(), Some(2)), Err(Offence::TopicAliasMemory));
        drop(other);
        assert!(one.resolve(topic, Some(2)).is_ok());
        drop(one);
        assert_eq!(memory.used_bytes(), 0);
    }
}
