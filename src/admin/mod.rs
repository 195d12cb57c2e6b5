//! The way by which `troupemq cluster ..` talks to a running node: a Unix socket in its data directory.
//!
//! ```text
//! client                               node
//!   {"version":1,"command":"leave"}\n ->
//!                                     <- {"kind":"progress","text":".."}\n   any number
//!                                     <- {"kind":"done",..}\n | {"kind":"failed","error":".."}\n   then the node closes
//! ```
//!
//! Who may open the socket may administer the node: it has mode 0600, and a directory of its own around it. One request per connection. A
//! client that goes away ends nothing: what it asked for goes on, and may be asked for again.
//!
//! A command is a variant of `Command`, a method of `Handler` and an arm of `handler::run`; what the node does for it is `broker`'s.

pub mod client;
pub mod handler;
pub mod protocol;
pub mod report;
mod server;
mod socket;

pub use client::{CallError, call};
pub use handler::{Handler, Outcome, Progress};
pub use protocol::{Answer, Command, Line};
pub use server::{AdminHandle, serve};

#[cfg(test)]
mod admin_test;
