//! Items for an actor: a queue under a short lock, and one wake-up message however many items wait.
//!
//! actix's mailbox bound counts wake-ups, of which there is one at most, so `try_send` cannot fail for a living actor. An inbox refuses
//! nothing; its sources are held back instead (`Node::is_pressed`, `congestion`, a connection's window, `signal_bus`). While an actor works
//! on what it took, the next batch gathers here: that is where fan-out gets its batches from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::{Actor, Addr, Handler, Message};
use parking_lot::Mutex;

/// Tells an actor that its inbox has items.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Items waiting for one actor.
#[derive(Debug)]
pub struct Inbox<T> {
    items: Mutex<Vec<T>>,
    len: AtomicUsize,
    awake: AtomicBool,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { items: Mutex::new(Vec::new()), len: AtomicUsize::new(0), awake: AtomicBool::new(false) }
    }
}

impl<T> Inbox<T> {
    /// Adds an item; true where the actor must be woken.
    fn push(&self, item: T) -> bool {
        {
            let mut items = self.items.lock();
            if items.capacity() == 0 {
                // Most connections never have more waiting than this one, and there are many of them.
                items.reserve_exact(1);
            }
            items.push(item);
            self.len.store(items.len(), Ordering::Relaxed);
        }
        !self.awake.swap(true, Ordering::AcqRel)
    }

    /// Moves all items into `into`, in order. A push from now on wakes the actor again.
    pub fn take(&self, into: &mut Vec<T>) {
        self.awake.store(false, Ordering::Release);
        let mut items = self.items.lock();
        if into.is_empty() {
            std::mem::swap(&mut *items, into);
        } else {
            into.append(&mut items);
        }
        if items.capacity() > 4096 {
            items.shrink_to(64);
        }
        self.len.store(0, Ordering::Relaxed);
    }

    /// Items waiting, about.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Posts items to an actor from any thread.
pub struct Mail<T, A: Actor> {
    inbox: Arc<Inbox<T>>,
    address: Addr<A>,
}

impl<T, A: Actor> Clone for Mail<T, A> {
    fn clone(&self) -> Self {
        Self { inbox: Arc::clone(&self.inbox), address: self.address.clone() }
    }
}

impl<T, A> Mail<T, A>
where
    A: Actor + Handler<Wake>,
    A::Context: actix::dev::ToEnvelope<A, Wake>,
{
    pub fn new(inbox: Arc<Inbox<T>>, address: Addr<A>) -> Self {
        Self { inbox, address }
    }

    /// Adds an item and wakes the actor. An actor that is gone loses its items with its inbox.
    pub fn post(&self, item: T) {
        if self.inbox.push(item) && self.address.try_send(Wake).is_err() {
            tracing::trace!("an actor is gone, its item is discarded");
        }
    }

    pub fn len(&self) -> usize {
        self.inbox.len()
    }

    pub fn is_empty(&self) -> bool {
        self.inbox.is_empty()
    }
}
