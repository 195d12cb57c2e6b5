//! The namespaces that messages are re-published in, and how they nest (spec/hivemq.md 4.8).

use bytestring::ByteString;

/// A namespace that wraps the topic of another message. `$client-events` is none: nothing is wrapped in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Namespace {
    Expired,
    Dropped,
    Dead,
}

/// Bytes of the longest Topic Name [MQTT-4.7.3-3].
pub const TOPIC_BYTES_MAX: usize = 65_535;

impl Namespace {
    /// The first topic level.
    pub fn level(self) -> &'static str {
        match self {
            Self::Expired => "$expired",
            Self::Dropped => "$dropped",
            Self::Dead => "$dead",
        }
    }

    /// The original topic with this namespace before it; `None` where that is longer than a topic may be.
    pub fn wrap(self, topic: &str) -> Option<ByteString> {
        let bytes = self.level().len() + 1 + topic.len();
        (bytes <= TOPIC_BYTES_MAX).then(|| format!("{}/{topic}", self.level()).into())
    }

    fn of_level(level: &str) -> Option<Self> {
        [Self::Expired, Self::Dropped, Self::Dead].into_iter().find(|namespace| namespace.level() == level)
    }
}

/// Whether what happens to a message on this topic is told of no further: the namespace is there already.
pub fn is_told_already(topic: &str, namespace: Namespace) -> bool {
    topic.starts_with('$') && chain(topic).any(|outer| outer == namespace)
}

/// The namespaces a topic lies in, outermost first: the leading levels only, since `a/$dead/b` is a topic of a client's.
pub fn chain(topic: &str) -> impl Iterator<Item = Namespace> + '_ {
    let mut rest = Some(topic);
    std::iter::from_fn(move || {
        // The last level is never a namespace: something was wrapped.
        let (level, inner) = rest?.split_once('/')?;
        rest = Some(inner);
        Namespace::of_level(level)
    })
}

#[cfg(test)]
mod tests {
    use super::Namespace::{Dead, Dropped, Expired};
    use super::*;

    #[test]
    fn only_leading_levels_are_namespaces() {
        let table: [(&str, &[Namespace]); 13] = [
            ("a/b", &[]),
            ("", &[]),
            ("$expired/a", &[Expired]),
            ("$dropped/a/b", &[Dropped]),
            ("$dead//", &[Dead]),
            ("$dead/$expired/a", &[Dead, Expired]),
            ("$dropped/$dead/$expired/a", &[Dropped, Dead, Expired]),
            ("$dead/$client-events/all/client-id/c", &[Dead]),
            ("$client-events/all/client-id/$dead", &[]),
            ("a/$dead/b", &[]),
            ("$dead/a/$expired/b", &[Dead]),
            ("$expiredx/a", &[]),
            ("$dead", &[]),
        ];
        for (topic, expected) in table {
            assert_eq!(chain(topic).collect::<Vec<_>>(), expected, "{topic}");
        }
    }

    #[test]
    fn what_lies_in_a_namespace_is_not_told_of_in_it_again() {
        for (topic, told) in
            [("a", false), ("$dropped/a", true), ("$dead/$dropped/a", true), ("$expired/a", false), ("a/$dropped/b", false)]
        {
            assert_eq!(is_told_already(topic, Dropped), told, "{topic}");
        }
    }

    #[test]
    fn a_topic_is_wrapped_up_to_the_longest_one_that_mqtt_allows() {
        let prefix = "$dead/".len();
        assert_eq!(Dead.wrap("a/b").as_deref(), Some("$dead/a/b"));
        assert_eq!(Dead.wrap(&"t".repeat(65_535 - prefix)).map(|t| t.len()), Some(65_535));
        assert_eq!(Dead.wrap(&"t".repeat(65_536 - prefix)), None);
    }
}
