//! One node.

mod addons;
mod dropped;
mod health;
mod malformed;
mod restart;
mod start;
mod takeover;
