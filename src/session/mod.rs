//! One client's protocol state machine, sans-I/O: packets and verdicts in, effects out.
//!
//! The machine never waits: where it needs an outside verdict it emits an effect with a [`Ticket`] and goes on when the answer
//! comes. It knows no socket and no clock; [`Now`] is handed in (monotonic for timers, wall clock to stamp).
//!
//! `machine` holds the states and the interface, `connected` the state of a running connection; each other file holds one role of it.
//!
//! The caller's duties:
//! - it decodes the next packet only while [`Machine::wants_input`] says so, and stops reading the socket meanwhile;
//! - it hands in everything decodable before it reports the end of the stream with `handle_closed`;
//! - it answers every question, with a failure where it cannot do better: a message may wait for the answer to a SUBSCRIBE, and the
//!   keep-alive clock for both;
//! - it keeps the machine until [`Effect::Close`]: the end of a stream waits in line behind what came before it.

mod alias_memory;
pub mod authenticate;
mod connect;
mod connected;
pub mod effect;
mod end;
mod error;
mod inbound;
mod keep_alive;
mod lifetime;
pub mod machine;
mod outbound;
mod peer;
mod seldom;
mod sent_alias;
pub mod settings;
mod subscribe;
mod topic_alias;
mod will;

#[cfg(test)]
mod test_kit;

#[cfg(test)]
mod authenticate_test;
#[cfg(test)]
mod connect_test;
#[cfg(test)]
mod end_test;
#[cfg(test)]
mod inbound_test;
#[cfg(test)]
mod order_test;
#[cfg(test)]
mod outbound_test;
#[cfg(test)]
mod pair_test;
#[cfg(test)]
mod property_test;
#[cfg(test)]
mod reason_test;
#[cfg(test)]
mod size_test;
#[cfg(test)]
mod subscribe_test;

pub use alias_memory::AliasMemory;
pub use authenticate::{Evidence, Stage};
pub use effect::{AckOutcome, Effect, End, Registered, Registration, Subscription, Ticket, TooLarge, WillRegistration};
pub use machine::{Machine, Now};
pub use seldom::Seldom;
pub use settings::{KeepAlivePolicy, RefuseConnections, ServerReference, SessionSettings};
