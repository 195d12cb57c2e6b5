//! TroupeMQ: a clustered MQTT broker in which each client, queue and shared subscription is an actor and every session is replicated
//! by Raft. ARCHITECTURE.md has the map of the rooms; a room uses rooms above it in this list only.

#![cfg_attr(
    any(test, feature = "fuzzing", feature = "sim"),
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::type_complexity,
        clippy::suspicious_map
    )
)]

pub mod plant;

pub mod mqtt;

pub mod signal;

pub mod config;

pub mod auth;

pub mod session;

pub mod queue;

pub mod routing;

pub mod replica;

pub mod storage;

pub mod cluster;

pub mod telemetry;

pub mod actor;

pub mod internal_client;

pub mod addon;

pub mod listener;

pub mod edge;

pub mod admin;

pub mod broker;

pub mod load;

pub mod cli;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;

#[cfg(any(test, feature = "sim"))]
pub mod sim;

#[cfg(test)]
mod tidy;
