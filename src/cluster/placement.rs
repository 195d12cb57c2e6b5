//! Which members replicate a group as voters.

use std::collections::BTreeSet;

use crate::replica::NodeId;

/// More voters only make each commit slower; further members replicate as learners, so that every node can route on its own.
pub const VOTERS_MAX: usize = 5;

/// The voters of a group: those it has, filled up to five from the other members in an order that differs between groups.
pub fn placement(group: u16, members: &BTreeSet<NodeId>, voters: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
    let mut placed: BTreeSet<NodeId> = voters.intersection(members).copied().collect();
    let mut others: Vec<NodeId> = members.difference(&placed).copied().collect();
    others.sort_by_key(|&node| (weight(group, node), node));
    let room = VOTERS_MAX.saturating_sub(placed.len());
    placed.extend(others.into_iter().take(room));
    placed
}

/// The voter that should lead, so that leadership is spread evenly.
pub fn preferred_leader(group: u16, voters_alive: &BTreeSet<NodeId>) -> Option<NodeId> {
    let count = voters_alive.len();
    (count > 0).then(|| voters_alive.iter().nth(usize::from(group) % count).copied()).flatten()
}

fn weight(group: u16, node: NodeId) -> u64 {
    (node ^ (u64::from(group) << 48 | u64::from(group))).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(range: std::ops::Range<u64>) -> BTreeSet<NodeId> {
        range.collect()
    }

    #[test]
    fn up_to_five_members_all_vote() {
        assert_eq!(placement(1, &nodes(0..3), &BTreeSet::new()), nodes(0..3));
        assert_eq!(placement(1, &nodes(0..5), &nodes(0..3)), nodes(0..5));
    }

    #[test]
    fn present_voters_stay_and_five_is_the_most() {
        let placed = placement(1, &nodes(0..9), &nodes(4..9));
        assert_eq!(placed, nodes(4..9));
        let placed = placement(1, &nodes(0..9), &nodes(7..9));
        assert_eq!(placed.len(), VOTERS_MAX);
        assert!(placed.is_superset(&nodes(7..9)));
    }

    #[test]
    fn leadership_goes_round() {
        let leaders: Vec<_> = (0..6).filter_map(|group| preferred_leader(group, &nodes(0..3))).collect();
        assert_eq!(leaders, [0, 1, 2, 0, 1, 2]);
        assert_eq!(preferred_leader(1, &BTreeSet::new()), None);
    }
}
