//! Who a client is and what it may do, decided from what it says: pure, so that whoever asks chooses the thread, the clock and the
//! random numbers.
//!
//! An [`Authenticator`] looks at a [`Request`] and answers. What takes long (a password's hash) it gives back as a computation, to be run
//! where nobody waits. What takes several steps (SCRAM) continues as an [`Exchange`]. A [`Chain`] asks several in order.

pub mod bans;
pub mod certificate;
pub mod chain;
pub mod failures;
pub mod file_rbac;
pub mod jwt;
pub mod password;
pub mod principal;
pub mod scram;
pub mod unstable;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

pub use chain::Chain;
pub use file_rbac::FileRbac;
pub use jwt::Jwt;
pub use principal::Principal;
pub use scram::Exchange;

use crate::mqtt::ReasonCode;

/// What a client says of itself, and what its connection shows.
#[derive(Clone, Default)]
pub struct Request {
    pub client_id: ByteString,
    pub user_name: Option<ByteString>,
    pub password: Option<Bytes>,
    /// Authentication Method and the data of the first step (MQTT 5 section 4.12).
    pub method: Option<ByteString>,
    pub data: Option<Bytes>,
    /// Name of the listener.
    pub listener: Arc<str>,
    /// The names in the client's certificate, where one was verified.
    pub certificate: Option<CertificateNames>,
    /// The time of asking: wall clock, ms since the epoch.
    pub wall_ms: u64,
}

impl fmt::Debug for Request {
    /// Leaves out what the client proves itself by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("client_id", &self.client_id)
            .field("user_name", &self.user_name)
            .field("method", &self.method)
            .field("listener", &self.listener)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The names a certificate gives its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateNames {
    pub common_name: Option<ByteString>,
    /// The first of the DNS names and IP addresses.
    pub subject_alternative_name: Option<ByteString>,
}

/// Decides about clients.
pub trait Authenticator: Send + Sync {
    /// Looks at a request. `nonce` makes random text that nobody has seen: 24 printable ASCII characters without comma.
    fn begin(&self, request: &Request, nonce: &dyn Fn() -> String) -> Answer;

    /// Whether the Authentication Method is served at all.
    fn serves(&self, method: &str) -> bool;

    /// Whether clients prove themselves by their user names, so that nobody else may see them.
    fn user_name_is_secret(&self) -> bool {
        false
    }
}

/// What an authenticator has to say.
pub enum Answer {
    Decided(Verdict),
    /// The client is to take another step.
    Challenge {
        data: Option<Bytes>,
        exchange: Exchange,
    },
    /// The answer takes long to compute.
    Compute(Computation),
    /// Somebody else may decide.
    Pass,
}

/// Gives the answer that takes long; never another `Compute`.
pub type Computation = Box<dyn FnOnce() -> Answer + Send>;

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(verdict) => f.debug_tuple("Decided").field(verdict).finish(),
            Self::Challenge { .. } => f.write_str("Challenge"),
            Self::Compute(_) => f.write_str("Compute"),
            Self::Pass => f.write_str("Pass"),
        }
    }
}

impl Answer {
    pub(crate) fn accept(principal: Principal, data: Option<Bytes>) -> Self {
        Self::Decided(Verdict::Accept { principal: Arc::new(principal), data })
    }

    pub(crate) fn refuse(code: ReasonCode, reason: &'static str) -> Self {
        Self::Decided(Verdict::Refuse(Refusal { code, reason }))
    }
}

/// What becomes of an authentication, as far as the protocol is concerned.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    Accept {
        principal: Arc<Principal>,
        /// Authentication Data of the last step.
        data: Option<Bytes>,
    },
    Refuse(Refusal),
    /// The client is to send AUTH.
    Continue {
        data: Option<Bytes>,
    },
}

/// Why a client is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// For CONNACK.
    pub code: ReasonCode,
    /// For the client; says nothing that helps to guess.
    pub reason: &'static str,
}

impl Refusal {
    /// HiveMQ's words (spec/hivemq.md 7.4), whether there is no such user or the password is another.
    pub const CREDENTIALS: Self =
        Self { code: ReasonCode::NotAuthorized, reason: "Authentication failed because of invalid credentials" };
    pub const METHOD: Self = Self { code: ReasonCode::BadAuthenticationMethod, reason: "authentication method is not supported" };
    /// So many authentications are under way that no more are begun.
    pub const BUSY: Self = Self { code: ReasonCode::ServerBusy, reason: "too many clients log in at this moment" };
    /// The same login failed several times within seconds.
    pub const TOO_MANY_FAILURES: Self =
        Self { code: ReasonCode::ConnectionRateExceeded, reason: "too many failed logins, try again in a few seconds" };
}
