//! What can go wrong, and whose fault it is.

use std::io;

use crate::mqtt::ReasonCode;
use crate::mqtt::codec::DecodeError;

/// Reason Codes of a CONNACK with which a server says that it has too much to do, or is about to stop.
const PASSING: [ReasonCode; 5] = [
    ReasonCode::ServerUnavailable,
    ReasonCode::ServerBusy,
    ReasonCode::ConnectionRateExceeded,
    ReasonCode::QuotaExceeded,
    ReasonCode::UseAnotherServer,
];

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
    /// The server answered CONNECT with an error, and perhaps said more in brackets.
    #[error("{address} refused the client: {} (0x{:02X}){reason}", .code.name(), *.code as u8)]
    Refused { address: String, code: ReasonCode, reason: String },
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
    /// Whether the same client may be let in a moment later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Closed(_) => true,
            Self::Refused { code, .. } => PASSING.contains(code),
            Self::Plan(_) | Self::Files { .. } | Self::Protocol(_) | Self::Local { .. } => false,
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_stays() {
        let refused = |code| Failure::Refused { address: "host:1883".into(), code, reason: String::new() };
        assert_eq!(refused(ReasonCode::ServerBusy).to_string(), "host:1883 refused the client: Server busy (0x89)",);
        assert!(refused(ReasonCode::ConnectionRateExceeded).is_passing());
        assert!(refused(ReasonCode::ServerBusy).is_passing());
        assert!(Failure::Closed(None).is_passing());
        assert!(!refused(ReasonCode::NotAuthorized).is_passing());
        assert!(!refused(ReasonCode::Banned).is_passing());
        assert!(!Failure::Protocol("x".into()).is_passing());
    }
}
