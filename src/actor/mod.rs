//! Thin actix actors around the pure cores, and what they share on a node.
//!
//! One arbiter a core. A connection lives on one arbiter for life: its Client and its Queue are there, and a Hub hands them what other
//! arbiters and nodes send. An actor's items wait in an [`inbox::Inbox`] with bounds of our own; actix carries only the wake-up.

pub mod client;
pub mod clock;
pub mod congestion;
pub mod declared;
pub mod detours;
pub mod endings;
pub mod essential;
mod fetch;
pub mod gate;
pub mod guard;
pub mod holding;
pub mod hooks;
pub mod hub;
pub mod inbox;
pub mod loop_lag;
pub mod node;
pub mod outbox_taker;
pub mod overload;
pub mod parting;
pub mod prevented;
pub mod publish;
pub mod queue;
pub mod render;
pub mod retained;
pub mod retaining;
pub mod settle;
pub mod shared_subscription;
pub mod signal_bus;
pub mod throttle;
pub mod timers;
pub mod transport;

pub use node::{Node, NodeSettings};
pub use prevented::Prevented;
pub use retaining::RetainedLimits;
pub use transport::Transport;
