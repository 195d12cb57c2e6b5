//! How far the dispatcher of a shared subscription may hand out entries of the group's queue.
//!
//! The shard is not to discard or expire what a member has in flight, and does not know what that is. So it *lends* its dispatcher the first
//! entries, up to a number: the dispatcher hands out no others, and what of them expires in its hands it takes out itself.
//!
//! To be lent something takes a command. A command for each message, or a round trip before each, would be dear, so the dispatcher asks ahead:
//! for what its members can take now and some more (`SURPLUS_MAX`), numbers of entries that are still to come included, and again when a part of
//! it is used up. What no member takes is asked for in vain: with `discard-oldest` the shard would discard younger messages, or the new one,
//! in its place. There the surplus is a part of the queue, while members make progress, and what nobody takes is given back once they make none.
//!
//! Where nothing is discarded but new messages, and nothing has an expiry, there is nothing to be lent.

use super::dispatch::Dispatcher;

/// Entries asked for beyond those that members have: what they take in the time that a command takes.
pub const LENT_AHEAD_MAX: usize = 1024;
/// Of these, beyond what members can take.
const SURPLUS_MAX: usize = 768;
/// The same of a queue whose oldest is discarded: one in so many of its limit, and nothing of a small one.
const SURPLUS_PART: usize = 4;
const SMALL_MAX: usize = 64;

/// The group's queue as the shard has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lender {
    /// Entries up to this one are lent.
    pub through: u64,
    pub limit: usize,
    pub discard_oldest: bool,
}

/// What is to be asked for: `through` instead of `from`, which is what is lent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    pub from: u64,
    pub through: u64,
}

/// What one dispatcher was lent. Nothing at first: what another was lent before, on another node, it asks for anew.
#[derive(Debug, Default)]
pub struct Lending {
    through: u64,
    asked: Option<Ask>,
    /// A message with an expiry was seen.
    expiring: bool,
    /// Members finish entries.
    moving: bool,
    /// Of the entries up to this one, which were lent before, members may have some that this dispatcher does not know of.
    inherited: Option<u64>,
}

impl Lending {
    /// Notes what was lent when the dispatcher began.
    pub fn look(&mut self, lender: Lender) {
        self.inherited.get_or_insert(lender.through);
    }

    /// The dispatcher begins anew: members have entries that it does not know of.
    pub fn forget_holders(&mut self) {
        self.inherited = None;
    }

    /// Whether the dispatcher knows if a member has the entry. Where it does not it hands the entry out, expired or not: a member that has it takes no
    /// notice, another finds it expired.
    pub fn is_known(&self, seq: u64) -> bool {
        self.inherited.is_some_and(|inherited| seq > inherited)
    }

    /// Entries up to this one may be handed out.
    pub fn through(&self, lender: Lender) -> u64 {
        if self.is_needed(lender) { self.through.min(lender.through) } else { u64::MAX }
    }

    /// Whether entries have to be lent at all.
    pub fn is_needed(&self, lender: Lender) -> bool {
        lender.discard_oldest || self.expiring || lender.through > 0
    }

    /// The queue has, or had, messages that expire.
    pub fn saw_expiry(&mut self) {
        self.expiring = true;
    }

    /// A member is done with an entry.
    pub fn finished(&mut self) {
        self.moving = true;
    }

    /// Nobody was done with anything for a while, although more is lent than members take (`is_idle_loan`).
    pub fn stall(&mut self) {
        self.moving = false;
    }

    /// Whether entries are lent that wait and that the shard could discard.
    pub fn is_idle_loan(&self, lender: Lender, dispatcher: &Dispatcher) -> bool {
        lender.discard_oldest && lender.through.min(dispatcher.offered()) > reach(dispatcher, dispatcher.room())
    }

    /// What to ask for now; not while an answer is awaited.
    pub fn ask(&self, lender: Lender, dispatcher: &Dispatcher) -> Option<Ask> {
        if self.asked.is_some() {
            return None;
        }
        let ask = |through| Some(Ask { from: lender.through, through });
        if !dispatcher.has_members() {
            // The shard is to discard and to expire.
            return if lender.through > 0 { ask(0) } else { None };
        }
        if !self.is_needed(lender) {
            return None;
        }
        let (room, surplus) = (dispatcher.room(), self.surplus(lender));
        let takeable = reach(dispatcher, room).min(dispatcher.offered());
        let needed = takeable.max(reach(dispatcher, room / 2 + surplus / 4 * 3));
        if self.through.min(lender.through) < needed && !dispatcher.is_idle() {
            return ask(reach(dispatcher, room.saturating_add(surplus)));
        }
        if surplus == 0 && self.is_idle_loan(lender, dispatcher) {
            return ask(reach(dispatcher, room));
        }
        None
    }

    /// It is asked for. What is given back is not handed out from now on.
    pub fn asked(&mut self, ask: Ask) {
        self.through = self.through.min(ask.from).min(ask.through);
        if ask.through == 0 {
            self.inherited = Some(0); // no member is there
        }
        self.asked = Some(ask);
    }

    /// The command was applied, or not; `lender` is the queue since. Entries behind the number returned were not lent before: those that are gone are
    /// not to be handed out.
    pub fn answered(&mut self, lender: Option<Lender>) -> Option<u64> {
        let asked = self.asked.take()?;
        let before = self.through;
        if lender?.through != asked.through || asked.through <= before {
            return None;
        }
        self.through = asked.through;
        Some(before)
    }

    fn surplus(&self, lender: Lender) -> usize {
        if !lender.discard_oldest {
            SURPLUS_MAX
        } else if !self.moving || lender.limit <= SMALL_MAX {
            0
        } else {
            (lender.limit / SURPLUS_PART).min(SURPLUS_MAX)
        }
    }
}

/// The number up to which `count` more entries are, and all that members have.
fn reach(dispatcher: &Dispatcher, count: usize) -> u64 {
    dispatcher.reach(count.min(LENT_AHEAD_MAX))
}

#[cfg(test)]
#[path = "lending_test.rs"]
mod tests;
