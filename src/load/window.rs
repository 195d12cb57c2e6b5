//! Messages that are sent and not acknowledged: Packet Identifiers and what they stand for.

use std::collections::VecDeque;

/// How far the exchange of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Free,
    /// PUBLISH is sent.
    Published,
    /// PUBREL is sent: the receiver has it.
    Released,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) stage: Stage,
    /// The publisher's number of the message.
    pub(super) number: u64,
    pub(super) at_ns: u64,
}

/// Slots by Packet Identifier, 1 and following; identifiers go round, the one free for longest first.
pub(super) struct Window {
    slots: Vec<Slot>,
    free: VecDeque<u16>,
    max: u16,
}

impl Window {
    pub(super) fn new(max: u16) -> Self {
        Self { slots: Vec::new(), free: VecDeque::new(), max: max.max(1) }
    }

    /// What the server takes, where that is less.
    pub(super) fn narrow(&mut self, max: u16) {
        self.max = self.max.min(max.max(1));
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight() < usize::from(self.max)
    }

    /// Takes an identifier for a message; `None` where the window is full.
    pub(super) fn take(&mut self, number: u64, at_ns: u64) -> Option<u16> {
        if !self.has_room() {
            return None;
        }
        let slot = Slot { stage: Stage::Published, number, at_ns };
        if self.slots.len() < usize::from(self.max) {
            self.slots.push(slot);
            return u16::try_from(self.slots.len()).ok();
        }
        let id = self.free.pop_front()?;
        *self.slot_mut(id)? = slot;
        Some(id)
    }

    /// Marks that the receiver has it; `false` where nothing of this identifier is under way.
    pub(super) fn release(&mut self, id: u16) -> bool {
        let slot = self.slot_mut(id).filter(|slot| slot.stage != Stage::Free);
        slot.map(|slot| slot.stage = Stage::Released).is_some()
    }

    /// Ends the exchange; gives what it was.
    pub(super) fn end(&mut self, id: u16) -> Option<Slot> {
        let slot = self.slot_mut(id).filter(|slot| slot.stage != Stage::Free)?;
        let ended = *slot;
        slot.stage = Stage::Free;
        self.free.push_back(id);
        Some(ended)
    }

    pub(super) fn slot(&self, id: u16) -> Option<Slot> {
        self.slots.get(usize::from(id).checked_sub(1)?).copied().filter(|slot| slot.stage != Stage::Free)
    }

    /// What is under way, in the order of the messages.
    pub(super) fn under_way(&self) -> Vec<u16> {
        let mut ids: Vec<(u64, u16)> = (1..=u16::MAX)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.stage != Stage::Free)
            .map(|(id, slot)| (slot.number, id))
            .collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id).collect()
    }

    fn slot_mut(&mut self, id: u16) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(id).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_while_under_way_and_never_0() {
        let mut window = Window::new(3);
        let ids: Vec<u16> = (0..3).map(|n| window.take(n, n).unwrap()).collect();
        assert_eq!(ids, [1, 2, 3]);
        assert!(!window.has_room() && window.take(3, 3).is_none());
        assert_eq!(window.end(2).map(|slot| slot.number), Some(1));
        assert_eq!(window.end(2), None);
        assert_eq!(window.take(3, 3), Some(2));
        assert_eq!((window.end(0), window.end(4), window.in_flight()), (None, None, 3));
    }

    #[test]
    fn what_is_under_way_comes_in_the_order_of_messages_with_its_stage() {
        let mut window = Window::new(2);
        window.take(0, 0);
        window.take(1, 0);
        assert!(window.release(2));
        window.end(1);
        window.take(2, 0);
        assert_eq!(window.under_way(), [2, 1]);
        assert_eq!(window.slot(2).map(|slot| slot.stage), Some(Stage::Released));
        assert_eq!(window.slot(1).map(|slot| slot.stage), Some(Stage::Published));
        assert!(!window.release(9));
    }

    #[test]
    fn a_server_that_takes_less_narrows_it() {
        let mut window = Window::new(10);
        window.narrow(2);
        window.narrow(50);
        assert!(window.take(0, 0).is_some() && window.take(1, 0).is_some() && window.take(2, 0).is_none());
    }
}
