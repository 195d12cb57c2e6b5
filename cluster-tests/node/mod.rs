//! One node.

mod addons;
mod authentication;
pub mod carried;
mod command_line;
mod connack;
mod dropped;
mod extremes;
mod health;
mod keep_alive;
mod large;
mod legal_bytes;
mod malformed;
mod mqtt_3_1;
mod order;
mod restart;
mod start;
mod takeover;
mod topic_alias;
