//! The replicated state machine of a shard (and of the `meta` group): pure and deterministic.
//!
//! `apply(index, proposal) -> Applied`: no clock (time is stamped by the leader into the proposal and never runs back), no random
//! numbers, ordered maps (but see `sessions`), cannot fail, cannot wait. Every node applies the same log and so holds the same state.

#![warn(clippy::wildcard_enum_match_arm)]

mod apply;
mod assigned;
pub mod body;
pub mod cold;
pub mod command;
mod connect;
mod digest;
mod ending;
mod enqueue;
pub mod event;
mod expiry;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod group;
pub mod ids;
pub mod look;
pub mod meta;
mod outbox;
mod qos2;
mod record;
mod record_key;
mod retain;
pub mod retained;
pub mod session;
mod sessions;
pub mod slot;
pub mod state;
mod stored_queue;
mod subscribe;

#[cfg(test)]
mod apply_test;
#[cfg(test)]
mod assigned_test;
#[cfg(test)]
mod body_test;
#[cfg(test)]
mod cold_test;
#[cfg(test)]
mod connect_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod queue_test;
#[cfg(test)]
mod record_test;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), allow(dead_code))]
mod testing;

pub use cold::{ReadError, StoredRecords};
pub use command::{Batch, Command, ConnectCommand, Proposal, Target};
pub use event::{Event, OutboxEvent, Outcome, Position};
pub use ids::{ConnectionRef, Incarnation, NodeId, ShardId};
pub use look::{Fetch, Found, Look};
pub use record::Unwritten;
pub use record_key::is_queue_entry;
pub use state::State;
pub use stored_queue::IN_FLIGHT_MAX;
