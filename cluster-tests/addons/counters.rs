//! The counters of the add-ons, read from `/metrics`, and by how much they move.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::harness::node::Node;
use crate::harness::{QUIET, SOON};

/// Every name of the seed's tables 3, 5, 7 and 11, behind `com.hivemq.messages.`.
pub const NAMES: [&str; 19] = [
    "expired-messages",
    "expired.topic.dropped.count",
    "expired.topic.expired.count",
    "expired.topic.enqueued.count",
    "dropped.count",
    "dropped.topic.dropped.count",
    "dropped.topic.message-created.client.count",
    "dropped.topic.message-created.shared.count",
    "dropped.topic.message-created.consumer.count",
    "dropped.topic.enqueued.count",
    "dead.count",
    "dead.topic.enqueued.count",
    "dead.topic.dead.count",
    "dead.topic.dropped.count",
    "dead.topic.expired.count",
    "expired.topic.dead.count",
    "dropped.topic.dead.count",
    "client-lifecycle-topic.published.count",
    "client-lifecycle-topic.skipped.count",
];

/// How far counters moved, by name.
pub type Moves = BTreeMap<&'static str, i64>;

/// Counters that move, each by so much.
pub fn moves(all: &[(&'static str, i64)]) -> Moves {
    let mut moves = Moves::new();
    for (name, by) in all {
        assert!(NAMES.contains(name), "{name}");
        *moves.entry(name).or_default() += by;
    }
    moves
}

/// The counters of one node, or of a cluster added up.
pub struct Counters<'a> {
    nodes: Vec<&'a Node>,
    before: Moves,
}

impl<'a> Counters<'a> {
    /// Once they have come to rest.
    pub fn of(nodes: &[&'a Node]) -> Self {
        let mut counters = Self { nodes: nodes.to_vec(), before: Moves::new() };
        counters.before = counters.at_rest();
        counters
    }

    /// Waits until these counters, and no others, have moved by exactly so much since they were looked at last, and stay there.
    pub fn moved(&mut self, what: &str, expected: &Moves) {
        let deadline = Instant::now() + SOON;
        let mut moved = self.since();
        while moved != *expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(30));
            moved = self.since();
        }
        assert_eq!(moved, *expected, "{what}");
        std::thread::sleep(QUIET);
        assert_eq!(self.since(), *expected, "{what}, a moment later");
        self.before = self.read();
    }

    fn since(&self) -> Moves {
        let now = self.read();
        now.into_iter().map(|(name, value)| (name, value - self.before[name])).filter(|(_, by)| *by != 0).collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "whole numbers")]
    fn read(&self) -> Moves {
        let mut sums = Moves::new();
        for node in &self.nodes {
            let metrics = node.metrics();
            for name in NAMES {
                let exposed = format!("com_hivemq_messages_{}", name.replace(['.', '-'], "_"));
                let value = metrics.get(&exposed).unwrap_or_else(|| panic!("{exposed} is not exposed"));
                *sums.entry(name).or_default() += *value as i64;
            }
        }
        sums
    }

    fn at_rest(&self) -> Moves {
        let mut before = self.read();
        let mut quiet = 0;
        while quiet < 3 {
            std::thread::sleep(QUIET);
            let now = self.read();
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
        before
    }
}
