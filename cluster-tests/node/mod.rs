//! One node.

mod addons;
mod dropped;
mod health;
mod malformed;
mod order;
mod restart;
mod start;
mod takeover;
