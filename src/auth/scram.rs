//! The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, 7677) without channel binding.
//!
//! The primitives are `ring`'s; the messages are read here: of the crates with a server's side, one draws its random numbers itself, gives
//! an unknown user another salt at each try and leaves escaped names as they are, the others are not kept up or bring OpenSSL.
//!
//! A user nobody knows is challenged like any other, with a salt that is always the same for the name, and fails with the proof: whoever
//! asks does not learn which names there are. Names and passwords are compared as bytes, without SASLprep.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use bytestring::ByteString;
use ring::{digest, hmac, pbkdf2};

use super::{Answer, Principal, Refusal, Verdict};
use crate::config::rbac::ScramVerifier;
use crate::mqtt::ReasonCode;

/// A message of an exchange is no longer than this, bytes.
const MESSAGE_LEN_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Sha256,
    Sha512,
}

impl Mechanism {
    /// By its name, as an Authentication Method.
    pub fn named(method: &str) -> Option<Self> {
        match method {
            "SCRAM-SHA-256" => Some(Self::Sha256),
            "SCRAM-SHA-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Bytes of a key.
    pub fn key_len(self) -> usize {
        match self {
            Self::Sha256 => digest::SHA256_OUTPUT_LEN,
            Self::Sha512 => digest::SHA512_OUTPUT_LEN,
        }
    }

    pub(super) fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        }
    }

    pub(super) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    pub(super) fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// Knows the users.
pub trait Directory: Send + Sync {
    /// The user's keys, or made-up ones for a name without.
    fn verifier(&self, mechanism: Mechanism, user: &str) -> ScramVerifier;

    /// Who is let in once the proof fits; asked only then.
    ///
    /// # Errors
    /// Why nobody is, though the proof fits.
    fn admit(&self, user: &ByteString) -> Result<Principal, Refusal>;
}

/// An exchange that waits for the client's next message.
pub struct Exchange {
    mechanism: Mechanism,
    directory: Arc<dyn Directory>,
    awaits: Awaits,
}

enum Awaits {
    ClientFirst { nonce: String },
    ClientFinal(Box<ClientFinal>),
}

/// What the last message is held against.
struct ClientFinal {
    user: ByteString,
    verifier: ScramVerifier,
    /// What channel binding repeats: the header of the first message.
    gs2_header: String,
    nonce: String,
    /// `client-first-message-bare,server-first-message,`
    transcript: String,
}

impl Exchange {
    /// An exchange that has not begun. `nonce` is the server's part.
    pub fn new(mechanism: Mechanism, directory: Arc<dyn Directory>, nonce: String) -> Self {
        Self { mechanism, directory, awaits: Awaits::ClientFirst { nonce } }
    }

    /// Takes the client's next message. A client that sends none at first is asked for it.
    pub fn step(self, data: Option<&Bytes>) -> Answer {
        let Some(data) = data else {
            return match self.awaits {
                Awaits::ClientFirst { .. } => Answer::Challenge { data: None, exchange: self },
                Awaits::ClientFinal(_) => malformed(),
            };
        };
        let message = str::from_utf8(data).ok().filter(|message| message.len() <= MESSAGE_LEN_MAX && !message.contains('\0'));
        let answer = message.and_then(|message| match self.awaits {
            Awaits::ClientFirst { nonce } => first(self.mechanism, self.directory, &nonce, message),
            Awaits::ClientFinal(held) => last(self.mechanism, self.directory.as_ref(), &held, message),
        });
        answer.unwrap_or_else(malformed)
    }
}

fn malformed() -> Answer {
    Answer::refuse(ReasonCode::NotAuthorized, "authentication data is no message of the method")
}

/// `client-first-message`: answers with `server-first-message`. `None`: it is none.
fn first(mechanism: Mechanism, directory: Arc<dyn Directory>, server_nonce: &str, message: &str) -> Option<Answer> {
    let (flag, rest) = message.split_once(',')?;
    if flag.starts_with("p=") {
        return Some(Answer::refuse(ReasonCode::NotAuthorized, "channel binding is not supported"));
    }
    if flag != "n" && flag != "y" {
        return None;
    }
    let (authorization, bare) = rest.split_once(',')?;
    let gs2_header = format!("{flag},{authorization},");
    // An extension that must be understood stands before the name: it is not.
    let mut attributes = bare.split(',');
    let user = name(attributes.next()?.strip_prefix("n=")?)?;
    let client_nonce = attributes.next()?.strip_prefix("r=").filter(|nonce| is_nonce(nonce))?;
    if !authorization.is_empty() {
        let acts_for = name(authorization.strip_prefix("a=")?)?;
        if acts_for != user {
            return Some(Answer::refuse(ReasonCode::NotAuthorized, "a user cannot act for another one"));
        }
    }
    let verifier = directory.verifier(mechanism, &user);
    let nonce = format!("{client_nonce}{server_nonce}");
    let challenge = format!("r={nonce},s={},i={}", STANDARD.encode(&verifier.salt), verifier.iterations);
    let transcript = format!("{bare},{challenge},");
    let held = ClientFinal { user, verifier, gs2_header, nonce, transcript };
    let exchange = Exchange { mechanism, directory, awaits: Awaits::ClientFinal(Box::new(held)) };
    Some(Answer::Challenge { data: Some(challenge.into()), exchange })
}

/// `client-final-message`: the proof. `None`: it is none.
fn last(mechanism: Mechanism, directory: &dyn Directory, held: &ClientFinal, message: &str) -> Option<Answer> {
    let (without_proof, proof) = message.rsplit_once(",p=")?;
    let mut attributes = without_proof.split(',');
    let binding = STANDARD.decode(attributes.next()?.strip_prefix("c=")?).ok()?;
    let nonce = attributes.next()?.strip_prefix("r=")?;
    let proof = STANDARD.decode(proof).ok().filter(|proof| proof.len() == mechanism.key_len())?;
    if binding != held.gs2_header.as_bytes() || nonce != held.nonce {
        return None;
    }
    let signed = format!("{}{without_proof}", held.transcript);
    let stored_key = hmac::Key::new(mechanism.hmac(), &held.verifier.stored_key);
    let signature = hmac::sign(&stored_key, signed.as_bytes());
    let client_key: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(proof, signature)| proof ^ signature).collect();
    let shown = digest::digest(mechanism.digest(), &client_key);
    if !equal(shown.as_ref(), &held.verifier.stored_key) {
        return Some(Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS)));
    }
    let server_key = hmac::Key::new(mechanism.hmac(), &held.verifier.server_key);
    let signature = format!("v={}", STANDARD.encode(hmac::sign(&server_key, signed.as_bytes())));
    Some(match directory.admit(&held.user) {
        Ok(principal) => Answer::accept(principal, Some(signature.into())),
        Err(refusal) => Answer::Decided(Verdict::Refuse(refusal)),
    })
}

/// Compares in a time that tells nothing of where two keys differ: `ring` compares so what it has signed.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
    hmac::verify(&key, a, hmac::sign(&key, b).as_ref()).is_ok()
}

/// A `saslname`: `=2C` is a comma, `=3D` an equals sign, and no other `=` may stand in it.
fn name(text: &str) -> Option<ByteString> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (decoded, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return None,
        };
        name.push(decoded);
        name.push_str(rest);
    }
    (!name.is_empty()).then(|| name.into())
}

/// Printable ASCII without comma (RFC 5802 section 5.1).
fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Keys for a name nobody has: the same at each try, and no proof fits them. `secret` is the process' own.
pub fn made_up(mechanism: Mechanism, secret: &hmac::Key, user: &str, like: Option<&ScramVerifier>) -> ScramVerifier {
    const ITERATIONS: u32 = 4096;
    const SALT_LEN: usize = 16;
    let part = |label: &str| hmac::sign(secret, format!("{label}\0{}\0{user}", mechanism.key_len()).as_bytes());
    // As long as those of the others, or it would show.
    let salt_len = like.map_or(SALT_LEN, |like| like.salt.len());
    let salt: Vec<u8> = part("salt").as_ref().iter().copied().cycle().take(salt_len).collect();
    let key: Vec<u8> = part("key").as_ref().iter().copied().cycle().take(mechanism.key_len()).collect();
    ScramVerifier {
        iterations: like.map_or(ITERATIONS, |like| like.iterations),
        salt: salt.into(),
        stored_key: key.clone().into(),
        server_key: key.into(),
    }
}

#[cfg(test)]
#[path = "scram_test.rs"]
mod tests;
