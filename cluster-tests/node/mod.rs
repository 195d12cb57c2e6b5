//! One node.

mod addons;
mod command_line;
mod dropped;
mod extremes;
mod health;
mod hostile;
mod limits;
mod malformed;
mod memory;
mod order;
mod rates;
mod restart;
mod start;
mod takeover;
