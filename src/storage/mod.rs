//! What a node keeps on disk: the Raft log and votes of all groups, the state of all shards, and who the node is.
//!
//! Knows bytes, keys and indexes, not Raft and not MQTT. Two modes: `file` (fjall) and `in-memory`.

pub mod error;
pub mod identity;
pub mod log;
pub mod state;
pub mod store;

pub use error::StorageError;
pub use identity::Identity;
pub use log::LogStore;
pub use state::StateStore;
pub use store::{Mode, Storage};
