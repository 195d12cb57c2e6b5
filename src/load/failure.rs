//! What can go wrong, and whose fault it is.

use std::io;

use crate::mqtt::codec::DecodeError;

/// Why a scene, or one client of it, cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The operator asks for what cannot be: the command line is wrong.
    #[error("{0}")]
    Plan(String),
    /// The operator's limits are too low.
    #[error(
        "{needed} open files are needed and this process may have {hard} at the most: raise the hard limit (`ulimit -Hn`, nofile in \
         /etc/security/limits.conf, LimitNOFILE= of systemd) and `ulimit -n {needed}`, or take fewer clients"
    )]
    Files { needed: u64, hard: u64 },
    #[error("cannot connect to {address}: {reason}")]
    Unreachable { address: String, reason: String },
    /// The server answered CONNECT with an error; its name in the specification.
    #[error("{address} refused the client: {code}")]
    Refused { address: String, code: String },
    #[error("no {what} within {ms} ms")]
    Timeout { what: &'static str, ms: u128 },
    /// The server ended the connection; with the Reason Code it gave, where it did.
    #[error("the server closed the connection{}", .0.as_ref().map_or(String::new(), |code| format!(": {code}")))]
    Closed(Option<String>),
    /// The server, or something between, breaks the protocol.
    #[error("{0}")]
    Protocol(String),
    /// This machine does not let us.
    #[error("cannot {what}: {reason}")]
    Local { what: &'static str, reason: String },
}

impl Failure {
    pub(super) fn local(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Local { what, reason: error.to_string() }
    }
}

impl From<io::Error> for Failure {
    /// Of an established connection.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Closed(None),
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::Closed(Some(error.kind().to_string())),
            _ => Self::Protocol(error.to_string()),
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Protocol(format!("a packet of the server cannot be read: {error}"))
    }
}
