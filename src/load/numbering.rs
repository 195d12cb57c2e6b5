//! Which topic a publisher's message goes to, and what it is called there.

/// How a publisher counts. A *stream* is what keeps its order: its messages are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbering {
    /// One topic, one stream.
    One { stream: u32, topic: u32 },
    /// Streams `first`, `first + step` and so on, `count` of them, in turn; each has the topic of its number.
    Turns { first: u32, step: u32, count: u32 },
    /// One stream; each message has a topic of its own: `first`, `first + step` and so on.
    Topics { stream: u32, first: u32, step: u32 },
}

/// A message's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) topic: u32,
    pub(super) stream: u32,
    pub(super) sequence: u64,
}

impl Numbering {
    /// Of the publisher's message of this number, counted from 0.
    pub(super) fn place(self, number: u64) -> Place {
        match self {
            Self::One { stream, topic } => Place { topic, stream, sequence: number },
            Self::Turns { first, step, count } => {
                let count = u64::from(count.max(1));
                let stream = first + step * u32::try_from(number % count).unwrap_or(0);
                Place { topic: stream, stream, sequence: number / count }
            }
            Self::Topics { stream, first, step } => {
                let topic = u64::from(first) + u64::from(step) * number;
                Place { topic: u32::try_from(topic).unwrap_or(u32::MAX), stream, sequence: number }
            }
        }
    }
}

/// How many of `all`, dealt out in turn to `parts`, this part gets.
pub(super) fn share(all: usize, parts: usize, part: usize) -> usize {
    let parts = parts.max(1);
    all / parts + usize::from(part < all % parts)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn turns_number_every_stream_without_gaps() {
        let numbering = Numbering::Turns { first: 1, step: 2, count: 3 };
        let mut streams: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for place in (0..9).map(|number| numbering.place(number)) {
            assert_eq!(place.topic, place.stream);
            streams.entry(place.stream).or_default().push(place.sequence);
        }
        assert_eq!(streams, BTreeMap::from([(1, vec![0, 1, 2]), (3, vec![0, 1, 2]), (5, vec![0, 1, 2])]));
    }

    #[test]
    fn publishers_share_topics_without_overlap() {
        let mut topics: Vec<u32> = (0..3)
            .flat_map(|p| {
                (0..share(10, 3, p as usize) as u64)
                    .map(move |n| Numbering::Topics { stream: p, first: p, step: 3 }.place(n).topic)
            })
            .collect();
        topics.sort_unstable();
        assert_eq!(topics, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn shares_add_up() {
        for (all, parts) in [(0, 3), (1, 3), (10, 3), (9, 3), (5, 1)] {
            assert_eq!((0..parts).map(|part| share(all, parts, part)).sum::<usize>(), all);
        }
    }
}
