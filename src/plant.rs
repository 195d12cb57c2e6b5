//! Faults planted on purpose, to see that the simulator (`sim`) finds them. A program built without the simulator has none.

/// One fault of the broker that the simulator must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Plant {
    /// The log says that it is flushed before it is.
    AcknowledgeBeforeFlush,
    /// A vote is forgotten by a crash.
    VoteNotPersisted,
    /// A `Take` applies whatever position it was made for.
    TakePositionNotChecked,
    /// A QoS 2 publisher's Packet Identifier is not stored with its message.
    Qos2IdentifierNotStored,
    /// Commands sent again are applied again.
    ResendAppliedAgain,
    /// The connections of a dead node are not ended.
    NodeDownNotProposed,
    /// A SUBACK does not wait for the other nodes.
    SubackNotVisible,
    /// The snapshot sent to a peer lacks queued messages.
    SnapshotWithoutQueues,
    /// A will stays due after it was published.
    WillStaysDue,
    /// A PUBACK is sent before the queues have the message.
    PubackBeforeStored,
    /// A message that expires in a queue is told to nobody.
    ExpiryNotTold,
}

impl Plant {
    pub const ALL: [Self; 11] = [
        Self::AcknowledgeBeforeFlush,
        Self::VoteNotPersisted,
        Self::TakePositionNotChecked,
        Self::Qos2IdentifierNotStored,
        Self::ResendAppliedAgain,
        Self::NodeDownNotProposed,
        Self::SubackNotVisible,
        Self::SnapshotWithoutQueues,
        Self::WillStaysDue,
        Self::PubackBeforeStored,
        Self::ExpiryNotTold,
    ];
}

#[cfg(any(test, feature = "sim"))]
mod planted {
    use std::cell::Cell;

    use super::Plant;

    thread_local! {
        static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    /// Plants a fault in everything this thread does from now on, or none.
    pub fn plant(fault: Option<Plant>) {
        PLANTED.set(fault);
    }

    pub fn is_planted(fault: Plant) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(any(test, feature = "sim"))]
pub use planted::{is_planted, plant};

/// Never, in a program built without the simulator.
#[cfg(not(any(test, feature = "sim")))]
pub const fn is_planted(_: Plant) -> bool {
    false
}
