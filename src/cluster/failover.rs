//! How long a group had no leader that this node could follow.
//!
//! A fail-over begins when the leader was heard last, which is before anybody misses it, and ends when there is a leader in reach and all that
//! its predecessors committed is applied here: from then on this node serves the group's clients. What was never served yet, since the node
//! starts, is no fail-over. A planned hand-over is one, and a short one.

use crate::replica::NodeId;
use crate::telemetry::tally::{SECONDS, Tally};

use super::group::LeaderView;

/// Watches one group.
#[derive(Debug)]
pub struct Failovers {
    /// The leader served last.
    leader: Option<NodeId>,
    /// When the one before was heard last, while there is none; monotonic.
    lost_ms: Option<u64>,
    changes: u64,
    seconds: Tally,
}

impl Default for Failovers {
    fn default() -> Self {
        Self { leader: None, lost_ms: None, changes: 0, seconds: Tally::new(SECONDS) }
    }
}

impl Failovers {
    /// What was seen before, and what is seen at `now_ms`.
    pub fn step(&mut self, before: &LeaderView, view: &LeaderView, now_ms: u64) {
        let Some(leader) = served(view) else {
            if self.leader.is_some() && self.lost_ms.is_none() {
                self.lost_ms = Some(before.heard_ms);
            }
            return;
        };
        let is_another = self.leader.is_some_and(|known| known != leader);
        self.changes += u64::from(is_another);
        self.leader = Some(leader);
        let since_ms = self.lost_ms.take().or(is_another.then_some(before.heard_ms));
        if let Some(since_ms) = since_ms {
            #[expect(clippy::cast_precision_loss, reason = "a metric; 2^53 ms are long")]
            self.seconds.observe(now_ms.saturating_sub(since_ms) as f64 / 1e3);
        }
    }

    /// How often another leader than before was met.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Durations, seconds.
    pub fn seconds(&self) -> &Tally {
        &self.seconds
    }
}

/// The leader, if this node can serve clients of the group by it.
fn served(view: &LeaderView) -> Option<NodeId> {
    view.leader.filter(|_| view.reachable && view.caught_up)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led_by(leader: NodeId, heard_ms: u64) -> LeaderView {
        LeaderView { leader: Some(leader), reachable: true, caught_up: true, heard_ms, ..LeaderView::default() }
    }

    fn nobody(heard_ms: u64) -> LeaderView {
        LeaderView { heard_ms, ..LeaderView::default() }
    }

    /// Runs the views, each with its moment; tells the changes of leader, the number of fail-overs and their seconds together.
    fn run(views: &[(u64, LeaderView)]) -> (u64, u64, f64) {
        let mut failovers = Failovers::default();
        let mut before = LeaderView::default();
        for (now_ms, view) in views {
            failovers.step(&before, view, *now_ms);
            before = *view;
        }
        (failovers.changes(), failovers.seconds().count(), failovers.seconds().sum())
    }

    #[test]
    fn a_failover_lasts_from_the_last_word_of_the_old_leader_until_the_new_one_is_followed() {
        let behind = LeaderView { caught_up: false, ..led_by(2, 2_400) };
        let cases = [
            // The start of a node.
            (vec![(0, nobody(0)), (500, led_by(1, 500))], (0, 0, 0.0)),
            (vec![(0, led_by(1, 0)), (1_000, led_by(1, 1_000)), (2_000, nobody(1_000)), (3_000, led_by(2, 3_000))], (1, 1, 2.0)),
            // The same leader again.
            (vec![(1_000, led_by(1, 1_000)), (2_000, nobody(1_000)), (2_500, led_by(1, 2_500))], (0, 1, 1.5)),
            // There, but what was committed before is not applied yet.
            (vec![(1_000, led_by(1, 1_000)), (2_000, nobody(1_000)), (2_400, behind), (2_600, led_by(2, 2_600))], (1, 1, 1.6)),
            // So quick that nobody saw the gap.
            (vec![(1_000, led_by(1, 900)), (1_050, led_by(2, 1_050))], (1, 1, 0.15)),
            // Without a leader still.
            (vec![(1_000, led_by(1, 1_000)), (2_000, nobody(1_000)), (9_000, nobody(1_000))], (0, 0, 0.0)),
        ];
        for (views, (changes, count, seconds)) in cases {
            let (found_changes, found_count, found_seconds) = run(&views);
            assert_eq!((found_changes, found_count), (changes, count), "{views:?}");
            assert!((found_seconds - seconds).abs() < 1e-9, "{found_seconds} {views:?}");
        }
    }
}
