//! What of the messages sent has come, and what is wrong with it: lost, doubled, out of order.

use std::collections::BTreeSet;

/// Gaps a stream remembers at most; what is in the oldest beyond that counts as lost, and if it still comes, as doubled.
const GAPS_MAX: usize = 65_536;
/// Where order does not count (a bit for each message): a number that is so far ahead of all others is none of ours.
const AHEAD_MAX: u64 = 1 << 24;

/// What came of one stream of messages at one subscriber, in order: gaps are remembered until they are filled.
#[derive(Debug, Default, Clone)]
pub(super) struct Track {
    /// The number the next message has if none is lost.
    next: u64,
    /// Missing numbers as ranges (first, behind the last), ascending.
    gaps: Vec<(u64, u64)>,
    given_up: u64,
    pub(super) doubled: u64,
    pub(super) out_of_order: u64,
}

impl Track {
    /// Returns whether the message is one that had not come before.
    #[inline]
    pub(super) fn take(&mut self, sequence: u64) -> bool {
        if sequence == self.next {
            self.next += 1;
            return true;
        }
        self.take_astray(sequence)
    }

    #[cold]
    fn take_astray(&mut self, sequence: u64) -> bool {
        if sequence > self.next {
            if self.gaps.len() == GAPS_MAX {
                let (from, to) = self.gaps.remove(0);
                self.given_up += to - from;
            }
            self.gaps.push((self.next, sequence));
            self.next = sequence.saturating_add(1);
            return true;
        }
        let found = self.gaps.partition_point(|(_, to)| *to <= sequence);
        match self.gaps.get(found).copied().filter(|(from, _)| *from <= sequence) {
            None => {
                self.doubled += 1;
                false
            }
            Some((from, to)) => {
                self.out_of_order += 1;
                let rest = [(from, sequence), (sequence + 1, to)];
                self.gaps.splice(found..=found, rest.into_iter().filter(|(from, to)| from < to));
                true
            }
        }
    }

    /// How many of the first `sent` did not come, those in `uncertain` (not acknowledged) left aside.
    pub(super) fn lost(&self, sent: u64, uncertain: &BTreeSet<u64>) -> u64 {
        let behind = (self.next < sent).then_some((self.next, sent));
        let missing = self.gaps.iter().copied().chain(behind);
        let counted = missing.map(|(from, to)| (to - from) - uncertain.range(from..to).count() as u64);
        counted.sum::<u64>() + self.given_up
    }
}

/// What came of one stream, whoever got it and in whatever order.
#[derive(Debug, Default, Clone)]
pub(super) struct Arrivals {
    words: Vec<u64>,
    pub(super) doubled: u64,
}

impl Arrivals {
    /// Returns whether the message is one that had not come before.
    pub(super) fn take(&mut self, sequence: u64) -> bool {
        if sequence > self.words.len() as u64 * 64 + AHEAD_MAX {
            return false;
        }
        let Ok(word) = usize::try_from(sequence / 64) else { return false };
        if word >= self.words.len() {
            self.words.resize((word + 1).next_power_of_two(), 0);
        }
        let (bit, Some(word)) = (1 << (sequence % 64), self.words.get_mut(word)) else { return false };
        let is_new = *word & bit == 0;
        *word |= bit;
        self.doubled += u64::from(!is_new);
        is_new
    }

    /// Adds what others of the group got.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.doubled += other.doubled;
        for (ours, theirs) in self.words.iter_mut().zip(&other.words) {
            self.doubled += u64::from((*ours & theirs).count_ones());
            *ours |= theirs;
        }
    }

    pub(super) fn lost(&self, sent: u64, uncertain: &BTreeSet<u64>) -> u64 {
        let came = |sequence: u64| {
            let word = usize::try_from(sequence / 64).ok().and_then(|word| self.words.get(word));
            word.is_some_and(|word| word & (1 << (sequence % 64)) != 0)
        };
        (0..sent).filter(|sequence| !came(*sequence) && !uncertain.contains(sequence)).count() as u64
    }
}

/// What a publisher says of one stream when all is over.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) count: u64,
    /// Not acknowledged, or refused: nobody promised anything.
    pub(super) uncertain: BTreeSet<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loss, doubles, out of order of what came of ten, of which number 9 was not acknowledged.
    fn judged(came: &[u64]) -> (u64, u64, u64) {
        let mut track = Track::default();
        came.iter().for_each(|sequence| _ = track.take(*sequence));
        (track.lost(10, &BTreeSet::from([9])), track.doubled, track.out_of_order)
    }

    #[test]
    fn each_fault_is_told_from_the_others() {
        let table: [(&[u64], _); 8] = [
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], (0, 0, 0)),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 8], (0, 0, 0)),
            (&[0, 1, 2, 3, 4, 5, 6, 7], (1, 0, 0)),
            (&[], (9, 0, 0)),
            (&[0, 3, 4, 5, 6, 7, 8], (2, 0, 0)),
            (&[0, 3, 1, 4, 5, 2, 6, 7, 8], (0, 0, 2)),
            (&[0, 1, 1, 0, 2, 3, 4, 5, 6, 7, 8], (0, 2, 0)),
            (&[4, 1, 1, 0, 5, 9], (5, 1, 2)),
        ];
        for (came, expected) in table {
            assert_eq!(judged(came), expected, "{came:?}");
        }
    }

    #[test]
    fn gaps_that_are_too_many_to_remember_stay_lost() {
        let mut track = Track::default();
        let numbers = 2 * (GAPS_MAX as u64 + 10);
        (0..numbers).filter(|n| n % 2 == 1).for_each(|n| assert!(track.take(n)));
        assert_eq!(track.gaps.len(), GAPS_MAX);
        assert_eq!(track.lost(numbers, &BTreeSet::new()), numbers / 2);
        assert!(!track.take(0) && track.take(numbers - 2));
        assert_eq!(track.lost(numbers, &BTreeSet::new()), numbers / 2 - 1);
    }

    #[test]
    fn a_group_loses_and_doubles_as_a_whole() {
        let (mut one, mut other) = (Arrivals::default(), Arrivals::default());
        [0, 2, 4, 200].iter().for_each(|n| assert!(one.take(*n)));
        [1, 3, 4].iter().for_each(|n| assert!(other.take(*n)));
        assert!(!one.take(2));
        one.merge(&other);
        assert_eq!(one.doubled, 2);
        assert_eq!(one.lost(7, &BTreeSet::from([6])), 1);
        assert_eq!(one.lost(201, &BTreeSet::new()), 195);
        assert!(!one.take(u64::MAX));
    }
}
