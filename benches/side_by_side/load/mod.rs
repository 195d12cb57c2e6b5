//! The load generator: many MQTT clients on few threads. Each thread has a runtime of its own and its clients for life; a client is never
//! touched by two threads.

pub mod client;
pub mod inbox;
pub mod pairs;
pub mod storm;

mod publisher;
mod subscriber;

use std::net::Ipv4Addr;

/// The loopback address that the client of this number connects from, so that no address runs out of ports.
fn source(number: usize, sources: u8) -> Ipv4Addr {
    let last = number % usize::from(sources.max(1));
    Ipv4Addr::new(127, 0, 0, u8::try_from(last + 1).unwrap_or(1))
}
