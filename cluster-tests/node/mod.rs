//! One node.

mod access;
mod addons;
mod authentication;
pub mod carried;
mod command_line;
mod connack;
mod dropped;
mod event_log;
mod extremes;
mod health;
mod hostile;
mod keep_alive;
mod large;
mod legal_bytes;
mod limits;
mod malformed;
mod memory;
mod mqtt_3_1;
mod order;
mod rates;
mod restart;
mod retained_limits;
mod start;
mod stored;
mod takeover;
mod topic_alias;
mod unstable_clients;
