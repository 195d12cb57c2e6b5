//! TroupeMQ: a clustered MQTT broker in which each client, queue and shared subscription is an actor and every session is replicated
//! by Raft. ARCHITECTURE.md has the map of the rooms; a room uses rooms above it in this list only.

pub mod actor;
pub mod addon;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod edge;
pub mod internal_client;
pub mod listener;
pub mod mqtt;
pub mod queue;
pub mod replica;
pub mod routing;
pub mod session;
pub mod signal;
pub mod storage;
pub mod telemetry;
