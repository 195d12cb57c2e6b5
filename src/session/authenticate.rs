//! Authentication: plain, and enhanced with AUTH in several steps, before CONNACK and again while connected (MQTT 5 sections 3.15, 4.12).
//!
//! The machine knows no user and no method. It asks the outside, holds client and outside to whose turn it is, and to the method that
//! CONNECT named. What an unproved client sent is not processed before it is let in, and its shard does not hear of it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use super::connect::Terms;
use super::connected::Connected;
use super::effect::{Effect, Registration};
use super::error::Offence;
use super::lifetime::Lifetime;
use super::machine::Now;
use super::peer::Peer;
use crate::auth::{Principal, Verdict};
use crate::mqtt::packet::{Auth, AuthProperties};
use crate::mqtt::{Packet, ReasonCode};

/// A whole authentication takes no longer (spec/hivemq.md 9.1).
pub(super) const AUTHENTICATION_MS_MAX: u64 = 30_000;

/// What the outside is to judge.
#[derive(Clone, PartialEq)]
pub struct Evidence {
    pub stage: Stage,
    pub client_id: ByteString,
    pub user_name: Option<ByteString>,
    /// Neither logged nor stored.
    pub password: Option<Bytes>,
    /// Authentication Method, and the data of this step.
    pub method: Option<ByteString>,
    pub data: Option<Bytes>,
}

/// Where in an authentication a piece of evidence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// CONNECT.
    Connect,
    /// The first AUTH of a re-authentication.
    Again,
    /// A further AUTH: the data belongs to what the last verdict continued.
    Further,
}

impl fmt::Debug for Evidence {
    /// Leaves out what the client proves itself by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evidence")
            .field("stage", &self.stage)
            .field("client_id", &self.client_id)
            .field("user_name", &self.user_name)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// A verdict is awaited.
    Outside,
    /// AUTH is awaited.
    Client,
}

/// A CONNECT that is not answered yet.
#[derive(Debug)]
pub(super) struct Authentication {
    pub(super) terms: Terms,
    pub(super) registration: Registration,
    /// Monotonic ms.
    pub(super) deadline_ms: u64,
    turn: Turn,
}

/// Whether a CONNECT goes on after a packet.
#[derive(Debug)]
pub(super) enum Exchanged {
    GoOn,
    /// The client said DISCONNECT.
    Left,
}

impl Authentication {
    /// Asks about a CONNECT that is fine otherwise.
    pub(super) fn begin(
        terms: Terms,
        registration: Registration,
        password: Option<Bytes>,
        data: Option<Bytes>,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> Self {
        let evidence = Evidence {
            stage: Stage::Connect,
            client_id: terms.client_id.clone(),
            user_name: registration.username.clone(),
            password,
            method: terms.method.clone(),
            data,
        };
        out.push(Effect::Authenticate(Box::new(evidence)));
        let deadline_ms = now.mono_ms.saturating_add(AUTHENTICATION_MS_MAX);
        Self { terms, registration, deadline_ms, turn: Turn::Outside }
    }

    /// Whether the client speaks during the authentication. Without a method it may have sent more behind its CONNECT, which waits for
    /// its turn.
    pub(super) fn is_exchange(&self) -> bool {
        self.terms.method.is_some()
    }

    /// Whether a verdict is awaited.
    pub(super) fn is_asking(&self) -> bool {
        self.turn == Turn::Outside
    }

    /// A packet before CONNACK, where a method is in use.
    ///
    /// # Errors
    /// What CONNACK refuses with.
    pub(super) fn handle(&mut self, packet: Packet, out: &mut Vec<Effect>) -> Result<Exchanged, Offence> {
        match packet {
            Packet::Auth(auth) => {
                let data = continued(*auth, self.terms.method.as_ref())?;
                self.turn = further(self.turn, &self.terms.client_id, self.terms.method.as_ref(), data, out)?;
                Ok(Exchanged::GoOn)
            }
            Packet::Disconnect(_) => Ok(Exchanged::Left),
            // [MQTT-3.1.2-30]
            _ => Err(Offence::PacketBeforeConnack),
        }
    }

    /// The outside wants another step.
    ///
    /// # Errors
    /// A client that cannot be told.
    pub(super) fn challenge(&mut self, data: Option<Bytes>, out: &mut Vec<Effect>) -> Result<(), Offence> {
        self.turn = Turn::Client;
        // [MQTT-4.12.0-2] [MQTT-4.12.0-3]
        send_auth(&self.terms.peer, ReasonCode::ContinueAuthentication, self.terms.method.as_ref(), data, out)
    }

    /// The client is let in.
    ///
    /// # Errors
    /// A Will that it may not publish (spec/hivemq.md 7.5).
    pub(super) fn accept(self, principal: Arc<Principal>, data: Option<Bytes>) -> Result<(Terms, Registration), Offence> {
        let Self { mut terms, mut registration, .. } = self;
        terms.claimed_name = registration.username.clone().filter(|_| terms.method.is_some());
        let will = registration.will.as_ref().map(|will| &will.message);
        if will.is_some_and(|will| !principal.may_publish(&will.topic, will.qos, will.retain)) {
            return Err(Offence::WillNotAuthorized);
        }
        if principal.hides_claimed_name() {
            registration.username = None;
        }
        // The name that was proved outweighs the one that was claimed.
        if let Some(user_name) = principal.user_name() {
            registration.username = Some(user_name.clone());
        }
        // [MQTT-4.12.0-5]
        terms.connack.authentication_data = data.filter(|_| terms.method.is_some());
        terms.connack.authentication_method = terms.method.clone();
        terms.principal = principal;
        Ok((terms, registration))
    }
}

/// The method of a client that is connected, and its re-authentication; its other packets go on meanwhile (MQTT 5 section 4.12.1).
#[derive(Debug)]
pub(super) struct Enhanced {
    method: ByteString,
    /// The user name in CONNECT, which holds for every authentication of the connection.
    claimed_name: Option<ByteString>,
    again: Option<Reauthentication>,
}

#[derive(Debug)]
struct Reauthentication {
    turn: Turn,
    /// Monotonic ms.
    deadline_ms: u64,
}

impl Enhanced {
    pub(super) fn new(method: ByteString, claimed_name: Option<ByteString>) -> Self {
        Self { method, claimed_name, again: None }
    }

    /// When the re-authentication that is going on must have ended, monotonic ms.
    pub(super) fn deadline_ms(&self) -> Option<u64> {
        self.again.as_ref().map(|again| again.deadline_ms)
    }
}

impl Connected {
    /// AUTH from the client.
    pub(super) fn auth(&mut self, auth: Auth, now: Now, out: &mut Vec<Effect>) -> Result<(), Offence> {
        // [MQTT-4.12.0-7]
        let Some(enhanced) = &mut self.enhanced else { return Err(Offence::UnexpectedAuth) };
        if let Some(again) = &mut enhanced.again {
            let data = continued(auth, Some(&enhanced.method))?;
            again.turn = further(again.turn, &self.client_id, Some(&enhanced.method), data, out)?;
            return Ok(());
        }
        // [MQTT-3.15.2-1]: there is nothing to continue, and only the server tells of a success.
        if auth.reason_code != ReasonCode::ReAuthenticate {
            return Err(Offence::UnexpectedAuth);
        }
        let data = checked(auth, Some(&enhanced.method))?;
        let deadline_ms = now.mono_ms.saturating_add(AUTHENTICATION_MS_MAX);
        enhanced.again = Some(Reauthentication { turn: Turn::Outside, deadline_ms });
        let evidence = Evidence {
            stage: Stage::Again,
            client_id: self.client_id.clone(),
            user_name: enhanced.claimed_name.clone(),
            password: None,
            method: Some(enhanced.method.clone()),
            data,
        };
        out.push(Effect::Authenticate(Box::new(evidence)));
        Ok(())
    }

    /// The outside's answer to a re-authentication.
    ///
    /// # Errors
    /// What the connection ends for [MQTT-4.12.1-2].
    pub(super) fn authenticated(&mut self, verdict: Verdict, now: Now, out: &mut Vec<Effect>) -> Result<(), Offence> {
        let Some(enhanced) = &mut self.enhanced else { return Ok(()) };
        let Some(again) = enhanced.again.as_mut().filter(|again| again.turn == Turn::Outside) else { return Ok(()) };
        match verdict {
            Verdict::Continue { data } => {
                again.turn = Turn::Client;
                send_auth(&self.peer, ReasonCode::ContinueAuthentication, Some(&enhanced.method), data, out)
            }
            Verdict::Accept { principal, data } => {
                // The session belongs to the user that began it.
                if principal.user_name() != self.principal.user_name() {
                    return Err(Offence::AnotherUser);
                }
                self.lifetime = Lifetime::of(&principal, now).map(Box::new);
                self.principal = principal;
                enhanced.again = None;
                send_auth(&self.peer, ReasonCode::Success, Some(&enhanced.method), data, out)
            }
            Verdict::Refuse(refusal) => Err(Offence::NotAuthenticated(match refusal.code {
                code @ (ReasonCode::ServerBusy | ReasonCode::BadAuthenticationMethod | ReasonCode::ConnectionRateExceeded) => {
                    code
                }
                // What only CONNACK can say.
                _ => ReasonCode::NotAuthorized,
            })),
        }
    }
}

/// The data of an AUTH that continues an exchange.
fn continued(auth: Auth, method: Option<&ByteString>) -> Result<Option<Bytes>, Offence> {
    // [MQTT-3.15.2-1] [MQTT-4.12.0-3]
    if auth.reason_code != ReasonCode::ContinueAuthentication {
        return Err(Offence::UnexpectedAuth);
    }
    checked(auth, method)
}

fn checked(auth: Auth, method: Option<&ByteString>) -> Result<Option<Bytes>, Offence> {
    // [MQTT-4.12.0-5] [MQTT-4.12.1-1]
    if auth.properties.authentication_method.as_ref() != method {
        return Err(Offence::AuthenticationMethodChanged);
    }
    Ok(auth.properties.authentication_data)
}

/// Asks about a further step; tells whose turn it is then.
fn further(
    turn: Turn,
    client_id: &ByteString,
    method: Option<&ByteString>,
    data: Option<Bytes>,
    out: &mut Vec<Effect>,
) -> Result<Turn, Offence> {
    if turn != Turn::Client {
        return Err(Offence::UnexpectedAuth);
    }
    let client_id = client_id.clone();
    let evidence = Evidence { stage: Stage::Further, client_id, user_name: None, password: None, method: method.cloned(), data };
    out.push(Effect::Authenticate(Box::new(evidence)));
    Ok(Turn::Outside)
}

fn send_auth(
    peer: &Peer,
    reason_code: ReasonCode,
    method: Option<&ByteString>,
    data: Option<Bytes>,
    out: &mut Vec<Effect>,
) -> Result<(), Offence> {
    // [MQTT-4.12.0-6]
    if method.is_none() {
        return Err(Offence::UnexpectedAuth);
    }
    let properties =
        AuthProperties { authentication_method: method.cloned(), authentication_data: data, ..AuthProperties::default() };
    // A step that does not fit what the client takes leads nowhere.
    match peer.send(Packet::Auth(Box::new(Auth { reason_code, properties })), out) {
        true => Ok(()),
        false => Err(Offence::AuthTooLarge),
    }
}
