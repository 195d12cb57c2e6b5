//! Which member of a shared subscription gets which message: skeleton of its interface.
//!
//! Runs where the group's shard leads. Entries come from the group's replicated queue in order; each goes to one connected member
//! with room; what a lost member had in flight goes to others at once.

use std::collections::BTreeMap;

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
    _in_flight: BTreeMap<u64, MemberKey>,
}

impl Dispatcher {
    pub fn new() -> Self {
        Self::default()
    }

    /// The connected members now, with room for each (its send window). Returns the entries of members that went, which will be
    /// given out again before new ones.
    pub fn set_members(&mut self, _members: &[(MemberKey, u32)]) -> Vec<u64> {
        Vec::new()
    }

    /// The highest `seq` ever offered; read entries after it.
    pub fn offered(&self) -> u64 {
        0
    }

    /// New entries of the queue, in order.
    pub fn offer(&mut self, _seqs: impl IntoIterator<Item = u64>) {}

    /// Hands out what can be handed out: to the member with the fewest in flight, in turn among equals.
    pub fn dispatch(&mut self) -> Vec<Dispatched> {
        Vec::new()
    }

    /// A member finished with an entry.
    pub fn done(&mut self, _seq: u64) {}

    /// A member could not take an entry (its connection was gone, or its window full): it is given out again.
    pub fn give_back(&mut self, _seq: u64) {}

    /// Entries neither waiting nor in flight.
    pub fn is_idle(&self) -> bool {
        true
    }
}
