//! The MQTT Add-ons as pure functions: a signal goes in, the message to publish and the counters to move come out.
//!
//! A re-published message is an ordinary message from there on (matched, queued, expired, dropped), with two rules for the caller:
//! its RETAIN flag is the original's, kept for subscriptions with Retain As Published, but a message whose origin is
//! `Origin::Extension` or `Origin::Broker` is never stored as a retained message; and it has no publisher, so No Local does not
//! apply to it. Loops are cut here: a namespace stands at most once in a topic (`namespace`).

mod counters;
mod dead;
mod dropped;
mod expired;
mod lifecycle;
mod render;
mod settings;
pub mod supervisor;

pub use counters::on_enqueued;
pub use render::{Count, Rendered, Skipped, dead, record, record_made, render};
pub use settings::AddonSettings;

pub use crate::telemetry::AddonCounter;

#[cfg(test)]
mod fixture;
