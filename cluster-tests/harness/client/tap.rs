//! Somebody who sees what a client sends and receives.

use std::fmt;
use std::sync::Arc;

use troupemq::mqtt::Packet;

/// What is seen of a connection.
#[derive(Debug)]
pub enum Seen<'a> {
    /// About to be written.
    Sent(&'a Packet),
    Received(&'a Packet),
    /// The broker's end of the stream, or an error of the socket.
    Closed(&'a str),
}

#[derive(Clone)]
pub struct Tap(Arc<dyn Fn(Seen<'_>) + Send + Sync>);

impl Tap {
    pub fn new(see: impl Fn(Seen<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(see))
    }

    pub fn see(&self, seen: Seen<'_>) {
        (self.0)(seen);
    }
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}
