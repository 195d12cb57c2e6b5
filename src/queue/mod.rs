//! Bounded queues of one node as plain data: the queue of a connection (QoS 0, and QoS 1/2 of clean sessions) and the dispatch
//! of a shared subscription. Pushing and popping return outcomes; nothing is dropped without saying so.

pub mod client_queue;
pub mod dispatch;
pub mod lending;

pub use client_queue::{ClientQueue, Pop, Push, QueueLimits};
pub use dispatch::{Dispatched, Dispatcher};
pub use lending::{Ask, Lender, Lending};
