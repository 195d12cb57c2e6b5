//! The replicated state machine of a shard (and of the `meta` group): pure and deterministic.
//!
//! `apply(index, proposal) -> Applied`: no clock (time is stamped by the leader into the proposal and never runs back), no random
//! numbers, ordered maps, cannot fail, cannot wait. Every node applies the same log and so holds the same state.

pub mod command;
pub mod event;
pub mod ids;
pub mod meta;
pub mod session;
pub mod state;

pub use command::{Batch, Command, ConnectCommand, Proposal, Target};
pub use event::{Event, OutboxEvent, Outcome, Position};
pub use ids::{ConnectionRef, Incarnation, NodeId, ShardId};
pub use state::State;
