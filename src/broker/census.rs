//! What is known only of whoever goes through all sessions: lengths of queues, wills, persistent sessions.
//!
//! There may be a million sessions, and while one counts them nothing is applied to their shard: so a look counts [`BUDGET`] sessions, of the
//! shards that were counted longest ago, and takes the numbers of the others from an earlier look. A shard with more than that is counted at
//! most once in [`LARGE_MS`]. While a node has fewer, as most do, every look sees everything as it is.

use std::collections::BTreeMap;

use crate::replica::{ShardId, State};
use crate::telemetry::Tally;
use crate::telemetry::tally::MESSAGES;

/// Sessions counted in one look: about 2 ms.
const BUDGET: usize = 50_000;
/// Between two counts of a shard that alone has more.
const LARGE_MS: u64 = 10_000;

/// What was counted.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Counted {
    pub(super) persistent: usize,
    pub(super) wills: usize,
    pub(super) nearly_full: usize,
    /// Lengths of the queues of persistent sessions, and of shared subscriptions.
    pub(super) sessions: Tally,
    pub(super) groups: Tally,
}

impl Default for Counted {
    fn default() -> Self {
        Self { persistent: 0, wills: 0, nearly_full: 0, sessions: Tally::new(MESSAGES), groups: Tally::new(MESSAGES) }
    }
}

impl Counted {
    #[expect(clippy::cast_precision_loss, reason = "lengths of queues, far below 2^53")]
    pub(super) fn of(state: &State) -> Self {
        let mut counted = Self::default();
        for session in state.sessions_to_count() {
            counted.wills += usize::from(session.will.is_some());
            if session.is_persistent() {
                counted.persistent += 1;
                counted.sessions.observe(session.queue.entries.len() as f64);
            }
            counted.nearly_full += usize::from(session.queue.is_nearly_full(&session.queue_head));
        }
        for (_, group) in state.groups() {
            counted.groups.observe(group.queue.entries.len() as f64);
            counted.nearly_full += usize::from(group.queue.is_nearly_full(&group.queue_head));
        }
        counted
    }

    pub(super) fn add_all<'a>(&mut self, others: impl Iterator<Item = &'a Self>) {
        for other in others {
            self.persistent += other.persistent;
            self.wills += other.wills;
            self.nearly_full += other.nearly_full;
            self.sessions.add(&other.sessions);
            self.groups.add(&other.groups);
        }
    }
}

/// The last counts of the shards that this node leads.
#[derive(Debug, Default)]
pub(super) struct Census {
    counts: BTreeMap<ShardId, (u64, Counted)>,
}

impl Census {
    /// Looks at the shards that are led now; `size` tells how many sessions one has, `count` counts it.
    pub(super) fn look(
        &mut self,
        led: &[ShardId],
        now_ms: u64,
        size: impl Fn(ShardId) -> usize,
        count: impl Fn(ShardId) -> Counted,
    ) -> impl Iterator<Item = &Counted> {
        self.counts.retain(|shard, _| led.contains(shard));
        let counted_ms = |shard: &ShardId| self.counts.get(shard).map(|(at_ms, _)| *at_ms);
        let mut oldest_first: Vec<(Option<u64>, ShardId)> = led.iter().map(|shard| (counted_ms(shard), *shard)).collect();
        oldest_first.sort_unstable();
        let mut left = BUDGET;
        for (counted_ms, shard) in oldest_first {
            let sessions = size(shard);
            let is_large = sessions > BUDGET;
            let is_due = counted_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= LARGE_MS);
            let affordable = if is_large { is_due && left == BUDGET } else { sessions <= left };
            // The first look at a shard has nothing to show yet.
            if affordable || counted_ms.is_none() {
                left = left.saturating_sub(sessions);
                self.counts.insert(shard, (now_ms, count(shard)));
            }
        }
        self.counts.values().map(|(_, counted)| counted)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Looks, and tells which shards were counted.
    fn looked(census: &mut Census, sizes: &[(u16, usize)], now_ms: u64) -> Vec<u16> {
        let led: Vec<ShardId> = sizes.iter().map(|(shard, _)| ShardId(*shard)).collect();
        let size = |of: ShardId| sizes.iter().find(|(shard, _)| *shard == of.0).map_or(0, |(_, size)| *size);
        let seen = RefCell::new(Vec::new());
        let count = |shard: ShardId| {
            seen.borrow_mut().push(shard.0);
            Counted { persistent: size(shard), ..Counted::default() }
        };
        let mut sum = Counted::default();
        sum.add_all(census.look(&led, now_ms, size, count));
        assert_eq!(sum.persistent, sizes.iter().map(|(_, size)| size).sum::<usize>(), "nothing is missing");
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        seen
    }

    #[test]
    fn few_sessions_are_counted_at_each_look() {
        let mut census = Census::default();
        for now_ms in [0, 1, 2] {
            assert_eq!(looked(&mut census, &[(0, 10), (1, 20), (2, BUDGET - 30)], now_ms), [0, 1, 2]);
        }
    }

    #[test]
    fn many_sessions_are_counted_in_turns() {
        let mut census = Census::default();
        let sizes = [(0, BUDGET / 2), (1, BUDGET / 2), (2, BUDGET / 2)];
        assert_eq!(looked(&mut census, &sizes, 0), [0, 1, 2], "the first time");
        assert_eq!(looked(&mut census, &sizes, 1), [0, 1]);
        assert_eq!(looked(&mut census, &sizes, 2), [0, 2]);
        assert_eq!(looked(&mut census, &sizes, 3), [0, 1]);
    }

    #[test]
    fn a_large_shard_is_counted_now_and_then_and_one_at_a_time() {
        let mut census = Census::default();
        let sizes = [(0, BUDGET * 4), (1, BUDGET * 4), (2, 1)];
        assert_eq!(looked(&mut census, &sizes, 0), [0, 1, 2], "the first time");
        assert_eq!(looked(&mut census, &sizes, LARGE_MS - 1), [2]);
        let (first, second) = (looked(&mut census, &sizes, LARGE_MS), looked(&mut census, &sizes, LARGE_MS + 1));
        let large: Vec<u16> = first.iter().chain(&second).copied().filter(|shard| *shard < 2).collect();
        assert_eq!(large, [0, 1], "{first:?} {second:?}");
        assert!(first.iter().filter(|shard| **shard < 2).count() == 1);
    }

    #[test]
    fn a_shard_that_is_not_led_any_more_is_forgotten() {
        let mut census = Census::default();
        looked(&mut census, &[(0, 10), (1, 20)], 0);
        assert_eq!(looked(&mut census, &[(1, 20)], 1), [1]);
        assert_eq!(census.counts.len(), 1);
    }
}
