//! One node.

mod addons;
mod dropped;
mod extremes;
mod health;
mod malformed;
mod order;
mod restart;
mod start;
mod takeover;
