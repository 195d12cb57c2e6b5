//! The thin layer over openraft: types, log storage over `storage`, state machines over `replica`, RPCs over the peer transport.
//! Nothing outside this folder and `group` names openraft.

pub mod codec;
pub mod entry_cache;
pub mod log_store;
pub mod network;
pub mod rpc;
pub mod runtime;
pub mod snapshot;
pub mod state_machine;
pub mod transfers;
pub mod type_config;

pub use type_config::{Payload, PeerNode, Raft, TypeConfig};
