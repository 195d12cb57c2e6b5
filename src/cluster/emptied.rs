//! Whom a replica that came without data may follow.
//!
//! It has forgotten its term. A leader that was stopped meanwhile, and wakes, could gather a majority with it for a term that is over, and
//! what a newer leader committed with the help of the forgotten replica would be lost. So it takes nothing from a leader until a majority of the
//! other voters, as the leader knows them, has told its terms since this process began (`Control::Terms`), and the leader's is none of the lower
//! ones. A newer leader was elected by a majority of the voters: besides the forgotten replica itself too few others know nothing of it to be a
//! majority of them. Who came without data itself tells nothing.

use std::collections::BTreeMap;

use crate::replica::NodeId;

/// What a peer says of a group: its term, and the sets of voters of which each must agree, as it knows them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    pub term: u64,
    pub voters: Vec<Vec<NodeId>>,
}

/// What this process was told of a group.
#[derive(Debug, Default)]
pub struct Words {
    of: BTreeMap<NodeId, Word>,
}

impl Words {
    pub fn told(&mut self, by: NodeId, word: Word) {
        let known = self.of.entry(by).or_default();
        // An older word may come later by another way.
        let term = known.term.max(word.term);
        *known = Word { term, voters: word.voters };
    }

    /// A peer of a release that does not tell: it is trusted, as that release trusts.
    pub fn tells_nothing(&mut self, peer: NodeId) {
        self.of.entry(peer).or_default();
    }

    /// Whether some peer has told who votes, or is of a release that tells nothing.
    pub fn is_any(&self) -> bool {
        !self.of.is_empty()
    }

    /// Whether `own`, which came without data, may take something from this leader.
    pub fn may_follow(&self, own: NodeId, leader: NodeId, term: u64) -> bool {
        let Some(word) = self.of.get(&leader) else { return false };
        let enough = |voters: &Vec<NodeId>| {
            let others = voters.iter().filter(|voter| **voter != own);
            let told = others.clone().filter(|voter| self.of.contains_key(voter)).count();
            told * 2 > others.count()
        };
        word.voters.iter().all(enough) && self.of.values().all(|word| word.term <= term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(term: u64, voters: &[NodeId]) -> Word {
        Word { term, voters: vec![voters.to_vec()] }
    }

    #[test]
    fn a_leader_that_was_stopped_gets_no_help_from_an_empty_replica() {
        let (own, paused, newer) = (3, 1, 2);
        let mut words = Words::default();
        assert!(!words.may_follow(own, paused, 3), "nobody told");
        words.told(paused, word(3, &[1, 2, 3]));
        assert!(!words.may_follow(own, paused, 3), "the other may know of a newer term");
        words.told(newer, word(4, &[1, 2, 3]));
        assert!(!words.may_follow(own, paused, 3));
        assert!(words.may_follow(own, newer, 4));
        words.told(newer, word(2, &[1, 2, 3]));
        assert!(!words.may_follow(own, paused, 3), "terms never sink");
        assert!(words.may_follow(own, paused, 5), "elected anew");
    }

    #[test]
    fn so_many_of_the_other_voters_must_have_told() {
        let cases: [(&[NodeId], &[NodeId], bool); 8] = [
            (&[1, 9], &[1], true),
            (&[1, 2, 9], &[1], false),
            (&[1, 2, 9], &[1, 2], true),
            (&[1, 2, 9], &[1, 5, 6], false),
            (&[1, 2, 3, 4, 9], &[1, 2], false),
            (&[1, 2, 3, 4, 9], &[1, 2, 4], true),
            // It is no voter: whoever leads has such a majority.
            (&[1, 2, 3], &[1, 2], true),
            (&[1, 2, 3], &[1], false),
        ];
        for (voters, told_by, expected) in cases {
            let mut words = Words::default();
            told_by.iter().for_each(|by| words.told(*by, word(7, voters)));
            assert_eq!(words.may_follow(9, 1, 7), expected, "{voters:?} {told_by:?}");
        }
    }

    #[test]
    fn each_set_of_a_change_under_way_counts() {
        let mut words = Words::default();
        let both = |term| Word { term, voters: vec![vec![1, 2, 9], vec![1, 4, 9]] };
        words.told(1, both(7));
        words.told(2, both(7));
        assert!(!words.may_follow(9, 1, 7));
        words.told(4, both(7));
        assert!(words.may_follow(9, 1, 7));
    }

    #[test]
    fn releases_before_are_followed_as_they_were() {
        let mut words = Words::default();
        words.tells_nothing(1);
        assert!(words.may_follow(9, 1, 1));
        words.told(2, word(4, &[1, 2, 9]));
        assert!(!words.may_follow(9, 1, 3));
        assert!(words.may_follow(9, 2, 4));
    }
}
