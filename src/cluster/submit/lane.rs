//! What one connection publishes, as a line that may break but has no gaps.
//!
//! A message that was refused or given up is sent again by its publisher, on its next connection. What the same connection sent behind it must not
//! be stored meanwhile, or it would come first [MQTT-4.6.0-6]: from the first failure on nothing more is taken in for the lane, and the
//! connection is woken to be closed, whatever else it waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

/// The lane of one connection.
#[derive(Debug, Default)]
pub struct Lane {
    broken: AtomicBool,
    waker: AtomicWaker,
}

impl Lane {
    /// Something of it is not stored, or not known to be.
    pub fn break_off(&self) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Whom to wake when it breaks; look at `is_broken` afterwards.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}
