//! One node.

mod addons;
mod authentication;
mod command_line;
mod dropped;
mod extremes;
mod health;
mod malformed;
mod order;
mod restart;
mod start;
mod takeover;
