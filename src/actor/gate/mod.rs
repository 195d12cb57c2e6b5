//! The gate of a node: asks its authenticators about a client, bounds how many authentications are under way, has passwords hashed beside
//! the arbiters, and slows down who fails again and again.

pub mod key_watch;
mod pool;
pub mod watch;

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahash::RandomState;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;

use super::clock;
use crate::auth::failures::Failures;
use crate::auth::jwt::is_token;
use crate::auth::{Answer, Chain, Exchange, Refusal, Request, Verdict};
use crate::telemetry::RateLimited;
use crate::telemetry::event_log::{Event, EventLog, Who as Client};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::own::LoginFailure;
use pool::Pool;

/// Authentications under way at once; more are refused with 0x89.
const UNDER_WAY_MAX: usize = 10_000;
/// Characters of a client's names that are logged.
const NAME_CHARS_MAX: usize = 100;
/// Bytes of a server's part of a nonce.
const NONCE_LEN: usize = 18;

static FAILED: RateLimited = RateLimited::new(Duration::from_secs(5));

/// What comes of asking.
pub enum Reply {
    Now(Outcome),
    Later(Pin<Box<dyn Future<Output = Outcome>>>),
}

/// A verdict, and where it continues, with what.
pub struct Outcome {
    pub verdict: Verdict,
    pub exchange: Option<Exchange>,
}

/// One authentication under way.
pub struct Login {
    gate: Arc<Gate>,
    exchange: Option<Exchange>,
    who: Who,
}

/// Whose failure it would be.
#[derive(Clone)]
struct Who {
    address: Option<bytestring::ByteString>,
    client_id: bytestring::ByteString,
    user_name: Option<bytestring::ByteString>,
    address_key: u64,
    /// Of a client that proves itself by something that can be tried again and again.
    user_key: Option<u64>,
}

/// The gate; made once for a node that has authenticators.
pub struct Gate {
    chain: Arc<Chain>,
    pool: Pool,
    under_way: AtomicUsize,
    failures: Mutex<Failures>,
    keys: RandomState,
    metrics: Arc<Metrics>,
    events: EventLog,
}

impl Gate {
    pub fn new(chain: Chain, metrics: Arc<Metrics>) -> std::io::Result<Self> {
        Ok(Self {
            chain: Arc::new(chain),
            pool: Pool::start()?,
            under_way: AtomicUsize::new(0),
            failures: Mutex::default(),
            keys: RandomState::new(),
            metrics,
            events: EventLog::default(),
        })
    }

    /// Has failures written.
    #[must_use]
    pub fn with_events(mut self, events: EventLog) -> Self {
        self.events = events;
        self
    }

    /// Begins an authentication; `None` while too many are under way.
    pub fn open(self: &Arc<Self>, request: &Request, address: Option<IpAddr>) -> Option<Login> {
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= UNDER_WAY_MAX {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            self.metrics.own.login_failed(LoginFailure::Busy);
            return None;
        }
        let network = address.map(network);
        let in_user_name = self.chain.user_name_is_secret();
        let user_name = request.user_name.as_ref().filter(|name| self.may_be_told(name));
        // Without a name it is the client id that fails: all nameless ones behind one address are not one user. Nor is a token a name: each
        // that is tried would be another user.
        let nameless = user_name.is_none().then_some(&request.client_id);
        let proves = request.password.is_some() || request.method.is_some() || in_user_name;
        let user_key = proves.then(|| self.keys.hash_one((network, user_name, nameless)));
        let who = Who {
            address: address.map(|address| address.to_canonical().to_string().into()),
            client_id: request.client_id.clone(),
            user_name: user_name.cloned(),
            address_key: self.keys.hash_one(network),
            user_key,
        };
        Some(Login { gate: Arc::clone(self), exchange: None, who })
    }

    /// Whether a user name that was sent proves nothing, so that others may see it.
    pub fn may_be_told(&self, user_name: &str) -> bool {
        !self.chain.user_name_is_secret() && !is_token(user_name)
    }

    /// Has a failure written: who it was and why, and nothing that proves anything.
    fn record(&self, who: &Who, reason: &str) {
        if self.events.is_on() {
            let client = Client { client_id: Some(&who.client_id), ip: who.address.as_deref() };
            self.events.tell(&Event::LoginFailed { who: client, user_name: who.user_name.as_deref(), reason });
        }
    }

    /// Notes a refusal, and tells how long it is to wait.
    fn refused(&self, who: &Who, refusal: Refusal) -> Duration {
        self.metrics.own.login_failed(LoginFailure::of(refusal.code));
        if refusal == Refusal::BUSY {
            return Duration::ZERO;
        }
        self.record(who, refusal.reason);
        tell_refused(who.address.as_deref(), &who.client_id, who.user_name.as_deref(), refusal.reason);
        // What was not looked at does not count against the user once more.
        let user = who.user_key.filter(|_| refusal != Refusal::TOO_MANY_FAILURES);
        Duration::from_millis(self.failures.lock().failed(who.address_key, user, clock::now().mono_ms))
    }
}

impl Login {
    /// Asks about a CONNECT, or the beginning of a re-authentication.
    pub fn begin(&mut self, request: Request) -> Reply {
        let gate = Arc::clone(&self.gate);
        let blocked = self.who.user_key.is_some_and(|user| gate.failures.lock().is_blocked(user, clock::now().mono_ms));
        if blocked {
            return self.reply(Answer::Decided(Verdict::Refuse(Refusal::TOO_MANY_FAILURES)));
        }
        let answer = gate.chain.begin(&Arc::new(request), nonce);
        self.reply(answer)
    }

    /// Goes on with the client's next step.
    pub fn further(&mut self, data: Option<&Bytes>) -> Reply {
        match self.exchange.take() {
            Some(exchange) => {
                let answer = exchange.step(data);
                self.reply(answer)
            }
            // The machine asks for a further step only where a verdict continued.
            None => self.reply(Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS))),
        }
    }

    /// Keeps what the client's next step belongs to.
    pub fn keep(&mut self, exchange: Exchange) {
        self.exchange = Some(exchange);
    }

    /// It was not ended in time.
    pub fn timed_out(&self) {
        self.gate.metrics.own.login_failed(LoginFailure::Timeout);
        self.gate.record(&self.who, "authentication took too long");
    }

    pub fn client_id(&self) -> &bytestring::ByteString {
        &self.who.client_id
    }

    /// The claimed user name, where it may be told.
    pub fn user_name(&self) -> Option<&bytestring::ByteString> {
        self.who.user_name.as_ref()
    }

    pub fn ip(&self) -> Option<&str> {
        self.who.address.as_deref()
    }

    fn reply(&self, answer: Answer) -> Reply {
        let (gate, who) = (Arc::clone(&self.gate), self.who.clone());
        match answer {
            Answer::Compute(computation) => match gate.pool.run(computation) {
                Some(computed) => Reply::Later(Box::pin(async move {
                    let answer = computed.await.unwrap_or(Answer::Decided(Verdict::Refuse(Refusal::BUSY)));
                    let (outcome, wait) = settle(&gate, &who, answer);
                    rest(wait).await;
                    outcome
                })),
                None => Reply::Now(settle(&gate, &who, Answer::Decided(Verdict::Refuse(Refusal::BUSY))).0),
            },
            answer => {
                let (outcome, wait) = settle(&gate, &who, answer);
                if wait.is_zero() {
                    return Reply::Now(outcome);
                }
                Reply::Later(Box::pin(async move {
                    rest(wait).await;
                    outcome
                }))
            }
        }
    }
}

async fn rest(wait: Duration) {
    if !wait.is_zero() {
        actix_rt::time::sleep(wait).await;
    }
}

/// Makes an outcome of an answer that needs no computing, and tells how long it is to wait.
fn settle(gate: &Gate, who: &Who, answer: Answer) -> (Outcome, Duration) {
    let (verdict, exchange) = match answer {
        Answer::Decided(verdict) => (verdict, None),
        Answer::Challenge { data, exchange } => (Verdict::Continue { data }, Some(exchange)),
        // The chain decides, and what was computed is not computed again.
        Answer::Pass | Answer::Compute(_) => (Verdict::Refuse(Refusal::CREDENTIALS), None),
    };
    let wait = match &verdict {
        Verdict::Refuse(refusal) => gate.refused(who, *refusal),
        Verdict::Accept { .. } => {
            who.user_key.into_iter().for_each(|user| gate.failures.lock().succeeded(user));
            Duration::ZERO
        }
        Verdict::Continue { .. } => Duration::ZERO,
    };
    (Outcome { verdict, exchange }, wait)
}

impl Drop for Login {
    fn drop(&mut self) {
        self.gate.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Has a refusal logged, with nothing that proves anything; at most a line in five seconds.
pub fn tell_refused(address: Option<&str>, client_id: &str, user_name: Option<&str>, reason: &str) {
    // A token may stand where it does not belong.
    let client_id = if is_token(client_id) { "(a token, not shown)" } else { short(client_id) };
    let user_name = user_name.map(short);
    crate::warn_limited!(FAILED, address, ?client_id, user_name, reason, "a client is refused");
}

/// As much of a name as a line of the log holds.
fn short(name: &str) -> &str {
    name.char_indices().nth(NAME_CHARS_MAX).map_or(name, |(end, _)| name.get(..end).unwrap_or_default())
}

/// Random text of printable ASCII without comma.
fn nonce() -> String {
    STANDARD.encode(rand::random::<[u8; NONCE_LEN]>())
}

/// What one subscriber of a network has: an IPv4 address, or 64 bits of an IPv6 one.
fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
#[path = "gate_test.rs"]
mod tests;
