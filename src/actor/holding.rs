//! Connections of an arbiter that are not read for a while, since the node has too much to do or has read its share of bytes
//! (spec/hivemq.md 9.10): in the order in which they came, with one timer for all of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use super::client::ClientItem;
use super::clock;
use super::hub::Local;

/// Between two looks at whether connections may be read again.
const PAUSE: Duration = Duration::from_millis(2);

/// Between looks at whether those that have not come in may be read, in pauses.
const NEWCOMERS_LOOKS: u32 = 50;

/// Who waits on an arbiter.
#[derive(Debug, Default)]
pub struct Holding {
    waiting: RefCell<VecDeque<u64>>,
    /// Somebody looks after them.
    attended: Cell<bool>,
}

/// Has the connection told `ClientItem::Read` when its turn has come. To be called once until then.
pub fn wait_for_turn(local: &Rc<Local>, connection: u64) {
    local.holding.waiting.borrow_mut().push_back(connection);
    if !local.holding.attended.replace(true) {
        actix_rt::spawn(attend(Rc::clone(local)));
    }
}

async fn attend(local: Rc<Local>) {
    let mut looks: u32 = 0;
    while !local.holding.waiting.borrow().is_empty() {
        actix_rt::time::sleep(PAUSE).await;
        let node = local.node();
        if node.holds_clients() {
            looks += 1;
            if looks.is_multiple_of(NEWCOMERS_LOOKS) && !node.holds_newcomers() {
                local.read_newcomers();
            }
            continue;
        }
        let mut turns = node.throttle.as_ref().map_or(usize::MAX, |throttle| throttle.turns(clock::now().mono_ms));
        while turns > 0
            && let Some(connection) = local.holding.take_first()
        {
            // The turn of one that is gone is the next one's.
            if let Some(mail) = local.mail(connection) {
                mail.post(ClientItem::Read);
                turns -= 1;
            }
        }
    }
    local.holding.attended.set(false);
}

impl Local {
    /// Reads from those that have not come in: the node takes no clients, and they are to be told.
    fn read_newcomers(&self) {
        let waiting = std::mem::take(&mut *self.holding.waiting.borrow_mut());
        let (others, newcomers): (Vec<u64>, Vec<u64>) = waiting.into_iter().partition(|id| self.has_come_in(*id));
        self.holding.waiting.borrow_mut().extend(others);
        for mail in newcomers.into_iter().filter_map(|id| self.mail(id)) {
            mail.post(ClientItem::Read);
        }
    }
}

impl Holding {
    fn take_first(&self) -> Option<u64> {
        let mut waiting = self.waiting.borrow_mut();
        let first = waiting.pop_front();
        if waiting.is_empty() {
            *waiting = VecDeque::new();
        }
        first
    }
}
