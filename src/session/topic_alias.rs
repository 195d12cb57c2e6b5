//! Topic Aliases from the client (MQTT 5 section 3.3.2.3.4). Towards clients none are used (spec/hivemq.md 2.5).

use bytestring::ByteString;

use super::error::Offence;

/// The aliases of one connection; they end with it [MQTT-3.3.2-7].
#[derive(Debug, Default)]
pub(super) struct TopicAliases {
    /// By alias - 1, as long as the highest alias used.
    topics: Vec<ByteString>,
}

impl TopicAliases {
    /// The topic that a PUBLISH means: its own, which an alias then stands for, or what the alias stands for.
    ///
    /// # Errors
    /// An alias of 0, above `max`, or never set; no topic at all.
    pub(super) fn resolve(&mut self, topic: ByteString, alias: Option<u16>, max: u16) -> Result<ByteString, Offence> {
        let Some(alias) = alias else {
            return if topic.is_empty() { Err(Offence::TopicMissing) } else { Ok(topic) };
        };
        // [MQTT-3.3.2-8]
        let index = usize::from(alias.checked_sub(1).ok_or(Offence::TopicAliasZero)?);
        // [MQTT-3.3.2-9]
        if alias > max {
            return Err(Offence::TopicAliasTooLarge);
        }
        if topic.is_empty() {
            return match self.topics.get(index) {
                Some(known) if !known.is_empty() => Ok(known.clone()),
                _ => Err(Offence::TopicAliasUnknown),
            };
        }
        if self.topics.len() <= index {
            self.topics.resize(index + 1, ByteString::new());
        }
        if let Some(slot) = self.topics.get_mut(index) {
            // A copy of its own: the topic is a slice of a read buffer that it must not keep alive.
            *slot = ByteString::from(&*topic);
        }
        Ok(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_stands_for_the_last_topic_it_was_sent_with() {
        let max = 5;
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
        let mut aliases = TopicAliases::default();
        for (i, (topic, alias, want)) in table.iter().enumerate() {
            let got = aliases.resolve(ByteString::from_static(topic), *alias, max);
            assert_eq!(got.as_deref(), want.as_deref(), "row {i}");
        }
    }

    #[test]
    fn no_alias_is_taken_where_they_are_off() {
        let got = TopicAliases::default().resolve(ByteString::from_static("a"), Some(1), 0);
        assert_eq!(got, Err(Offence::TopicAliasTooLarge));
    }
}
