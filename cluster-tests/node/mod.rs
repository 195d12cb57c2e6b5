//! One node.

mod addons;
mod command_line;
mod dropped;
mod extremes;
mod health;
mod large;
mod malformed;
mod order;
mod restart;
mod start;
mod takeover;
