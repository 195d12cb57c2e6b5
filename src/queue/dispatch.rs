//! Which member of a shared subscription gets which message.
//!
//! Runs where the group's shard leads. Entries come from the group's replicated queue in order; each goes to one connected member
//! with room; what a lost member had in flight goes to others at once.
//!
//! Entries are handed out lowest first, so what was handed out once is always lower than what never was, and "given back entries
//! first, in order" is one ordered set.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A member as the dispatcher sees it: its connection (node, incarnation, connection).
pub type MemberKey = (u64, u64, u64);

/// An entry handed to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dispatched {
    pub seq: u64,
    pub member: MemberKey,
}

/// Dispatch of one group.
#[derive(Debug, Default)]
pub struct Dispatcher {
    offered: u64,
    waiting: BTreeSet<u64>,
    in_flight: BTreeMap<u64, MemberKey>,
    members: BTreeMap<MemberKey, MemberState>,
    /// Members that can take an entry, the next one first.
    ready: BTreeSet<Rank>,
    /// Entries handed out so far.
    turn: u64,
}

#[derive(Debug, Default)]
struct MemberState {
    window: u32,
    held: BTreeSet<u64>,
    /// When it got its last entry.
    turn: u64,
    /// How many it takes, as far as is known: never more than `window`, less once it gave something back.
    limit: u32,
    /// Entries finished since `limit` changed.
    finished: u32,
    /// It gave an entry back and has not shown since that it has room.
    refused: bool,
    /// Its place in `ready`.
    rank: Option<Rank>,
}

/// The fewest in flight first, then the longest without an entry.
type Rank = (usize, u64, MemberKey);

/// A member is tried with one entry more after it finished so many times what it takes.
const TRIED_AFTER: u32 = 16;

impl Dispatcher {
    pub fn new() -> Self {
        Self::default()
    }

    /// The connected members now, with room for each (its send window). Returns the entries of members that went, which will be
    /// given out again before new ones.
    pub fn set_members(&mut self, members: &[(MemberKey, u32)]) -> Vec<u64> {
        let now: BTreeMap<MemberKey, u32> = members.iter().copied().collect();
        let mut freed = BTreeSet::new();
        for (key, gone) in self.members.extract_if(.., |key, _| !now.contains_key(key)) {
            if let Some(rank) = gone.rank {
                self.ready.remove(&rank);
            }
            debug_assert!(gone.held.iter().all(|seq| self.in_flight.get(seq) == Some(&key)));
            freed.extend(gone.held);
        }
        for seq in &freed {
            self.in_flight.remove(seq);
            self.waiting.insert(*seq);
        }
        for (key, window) in now {
            let member = self.members.entry(key).or_insert_with(|| MemberState { limit: window, ..MemberState::default() });
            if member.window != window {
                (member.window, member.limit) = (window, window);
            }
            self.rank(key);
        }
        freed.into_iter().collect()
    }

    /// The highest `seq` ever offered; read entries after it.
    pub fn offered(&self) -> u64 {
        self.offered
    }

    /// New entries of the queue, in order. Those not after `offered` are known and ignored.
    pub fn offer(&mut self, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            if seq > self.offered {
                self.offered = seq;
                self.waiting.insert(seq);
            }
        }
    }

    /// Hands out what can be handed out of the entries up to `through`: to the member with the fewest in flight, in turn among equals.
    ///
    /// A member that gave an entry back gets none before it finished another, or `retry` was called.
    pub fn dispatch(&mut self, through: u64) -> Vec<Dispatched> {
        let mut dispatched = Vec::new();
        while let Some(&seq) = self.waiting.first()
            && seq <= through
            && let Some(&(.., key)) = self.ready.first()
        {
            let Some(member) = self.members.get_mut(&key) else { break };
            self.waiting.pop_first();
            self.turn += 1;
            member.turn = self.turn;
            member.held.insert(seq);
            self.in_flight.insert(seq, key);
            self.rank(key);
            dispatched.push(Dispatched { seq, member: key });
        }
        dispatched
    }

    /// A member finished with an entry, or the queue has it no more (expired, discarded): also one that waits is done then, such as
    /// an entry acknowledged just before its member went. Unknown ones are ignored.
    pub fn done(&mut self, seq: u64) {
        match self.take_back(seq) {
            Some(key) => {
                if let Some(member) = self.members.get_mut(&key) {
                    member.finished();
                }
                self.rank(key);
            }
            None => {
                self.waiting.remove(&seq);
            }
        }
    }

    /// A member could not take an entry now, which says nothing of its window (its connection was out of reach, or a queue on the way
    /// full): it is given out again. Ignored unless the entry is in flight.
    pub fn give_back(&mut self, seq: u64) {
        self.returned(seq, false);
    }

    /// A member refused an entry since it has as many as it takes: it is given out again, and the member gets no more than that. Ignored unless
    /// the entry is in flight; ask `holder` first where it may have gone to another member meanwhile.
    pub fn refuse(&mut self, seq: u64) {
        self.returned(seq, true);
    }

    fn returned(&mut self, seq: u64, is_full: bool) {
        let Some(key) = self.take_back(seq) else { return };
        self.waiting.insert(seq);
        if let Some(member) = self.members.get_mut(&key) {
            member.refused = true;
            if is_full {
                member.finished = 0;
                member.limit = u32::try_from(member.held.len()).unwrap_or(u32::MAX).clamp(1, member.window.max(1));
            }
        }
        self.rank(key);
    }

    /// Members that gave an entry back may be tried again: to be called after a pause, lest the entry go to and fro.
    pub fn retry(&mut self) {
        let refused: Vec<MemberKey> = self.members.iter().filter(|(_, member)| member.refused).map(|(key, _)| *key).collect();
        for key in refused {
            if let Some(member) = self.members.get_mut(&key) {
                member.refused = false;
            }
            self.rank(key);
        }
    }

    /// The member that has an entry in flight.
    pub fn holder(&self, seq: u64) -> Option<MemberKey> {
        self.in_flight.get(&seq).copied()
    }

    /// Entries a member has in flight.
    pub fn in_flight_of(&self, member: MemberKey) -> u32 {
        self.members.get(&member).map_or(0, |member| u32::try_from(member.held.len()).unwrap_or(u32::MAX))
    }

    /// Entries that no member has.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Entries behind `after` that no member has, in order.
    pub fn waiting_after(&self, after: u64) -> impl Iterator<Item = u64> {
        self.waiting.range((Bound::Excluded(after), Bound::Unbounded)).copied()
    }

    /// How many entries members could take more, as far as is known.
    pub fn room(&self) -> usize {
        let room = |member: &MemberState| (member.limit.min(member.window) as usize).saturating_sub(member.held.len());
        self.members.values().map(room).fold(0, usize::saturating_add)
    }

    /// The number up to which `count` of the entries are that no member has, those still to come included; not less than what members have.
    pub fn reach(&self, count: usize) -> u64 {
        let held = self.in_flight.last_key_value().map_or(0, |(seq, _)| *seq);
        let to_come = count.saturating_sub(self.waiting.len()) as u64;
        let last = match count.checked_sub(1) {
            _ if to_come > 0 => self.offered.saturating_add(to_come),
            Some(before) => self.waiting.iter().nth(before).copied().unwrap_or(self.offered),
            None => 0,
        };
        held.max(last)
    }

    pub fn has_members(&self) -> bool {
        !self.members.is_empty()
    }

    /// Entries neither waiting nor in flight.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Takes an entry out of flight; its member is to be ranked again.
    fn take_back(&mut self, seq: u64) -> Option<MemberKey> {
        let key = self.in_flight.remove(&seq)?;
        if let Some(member) = self.members.get_mut(&key) {
            member.held.remove(&seq);
        }
        Some(key)
    }

    /// Puts a member into its place among those that can take an entry, or out of them.
    fn rank(&mut self, key: MemberKey) {
        let Some(member) = self.members.get_mut(&key) else { return };
        if let Some(old) = member.rank.take() {
            self.ready.remove(&old);
        }
        let held = member.held.len();
        if !member.refused && held < member.limit.min(member.window) as usize {
            let rank = (held, member.turn, key);
            member.rank = Some(rank);
            self.ready.insert(rank);
        }
    }
}

impl MemberState {
    /// It has room for what it finished, and now and then for one more than before.
    fn finished(&mut self) {
        self.refused = false;
        self.finished += 1;
        if self.limit < self.window && self.finished >= self.limit.saturating_mul(TRIED_AFTER) {
            self.limit += 1;
            self.finished = 0;
        }
    }
}

#[cfg(test)]
#[path = "dispatch_test.rs"]
mod tests;
