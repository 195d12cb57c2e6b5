//! JSON Web Tokens (RFC 7519): a client is who a signed token says it is, may do what the token says, and for as long as it says.
//!
//! The signatures are `ring`'s; the token is read here. Of the crates that do both, `jsonwebtoken` has left `ring` for two other libraries
//! of cryptography, either of which would be a second one in this program, reads the clock itself, and its last version on `ring` takes a
//! claim of the wrong type for an absent one (CVE-2026-25537).
//!
//! What a signature may be follows from the keys, never from the token alone: `none` is no algorithm, and a public key is never a secret.

mod claims;
mod token;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use serde_json::{Map, Value};

use super::{Answer, Authenticator, FileRbac, Principal, Refusal, Request, Verdict};
use crate::config::jwt::{JwtSettings, Key, Material, TokenFrom, WithoutPermissions};
use crate::config::rbac::{Role, claim};
use crate::mqtt::ReasonCode;
use token::Token;

/// Roles that one token may name.
const ROLES_MAX: usize = 100;

const MISSING: Refusal =
    Refusal { code: ReasonCode::BadUserNameOrPassword, reason: "Authentication failed because the token is missing" };
const MALFORMED: Refusal =
    Refusal { code: ReasonCode::BadUserNameOrPassword, reason: "Authentication failed because the token is malformed" };
const ROLES: Refusal = Refusal { code: ReasonCode::NotAuthorized, reason: "the roles in the token are no list of names" };

/// The authenticator; clones share its keys.
#[derive(Clone)]
pub struct Jwt(Arc<Inner>);

struct Inner {
    settings: JwtSettings,
    keys: RwLock<Arc<Keys>>,
    /// Where roles and the users of `FILE_RBAC` are.
    rbac: Option<FileRbac>,
}

/// The keys, and whether a signature is looked at in no time.
struct Keys {
    keys: Vec<Key>,
    quick: bool,
}

impl Keys {
    fn new(keys: Vec<Key>) -> Self {
        let quick = keys.iter().all(|key| matches!(key.material, Material::Secret(_)));
        Self { keys, quick }
    }
}

/// Whether a text has the shape of a token: whoever logs it gives it away.
pub fn is_token(text: &str) -> bool {
    text.len() <= token::TOKEN_LEN_MAX && text.contains('.') && Token::parse(&Bytes::copy_from_slice(text.as_bytes())).is_some()
}

impl Jwt {
    pub fn new(settings: JwtSettings, keys: Vec<Key>, rbac: Option<FileRbac>) -> Self {
        Self(Arc::new(Inner { settings, keys: RwLock::new(Arc::new(Keys::new(keys))), rbac }))
    }

    /// Puts other keys in the place of those there were. Clients that are connected keep what they have.
    pub fn replace(&self, keys: Vec<Key>) {
        *self.0.keys.write() = Arc::new(Keys::new(keys));
    }

    pub fn settings(&self) -> &JwtSettings {
        &self.0.settings
    }

    /// Names of the keys that have one.
    pub fn key_names(&self) -> Vec<String> {
        self.0.keys.read().keys.iter().filter_map(|key| key.id.clone()).collect()
    }

    /// Refuses who has brought no token, to stand behind all authenticators where no other one asks for passwords.
    pub fn last_word(&self) -> impl Authenticator + use<> {
        LastWord(self.clone())
    }

    /// What is in the token's place.
    fn shown(&self, request: &Request) -> Option<Bytes> {
        match (&request.method, self.0.settings.token_from) {
            (Some(_), _) => request.data.clone(),
            (None, TokenFrom::Password) => request.password.clone(),
            (None, TokenFrom::UserName) => request.user_name.as_ref().map(|name| name.as_bytes().clone()),
        }
    }

    /// Takes some 100 microseconds, with a public key.
    fn judge(&self, keys: &Keys, token: &Token, request: &Request) -> Answer {
        let Some(claims) = token.claims(&keys.keys, &self.0.settings.algorithms) else {
            return Answer::Decided(Verdict::Refuse(Refusal::CREDENTIALS));
        };
        match self.principal(&claims, request) {
            Ok(principal) => Answer::accept(principal, None),
            Err(refusal) => Answer::Decided(Verdict::Refuse(refusal)),
        }
    }

    /// Who the client is by claims that are proved.
    fn principal(&self, claims: &Map<String, Value>, request: &Request) -> Result<Principal, Refusal> {
        let settings = &self.0.settings;
        let accepted = claims::check(claims, settings, request)?;
        let roles = self.roles(claims, accepted.user_name.as_ref())?;
        let principal = Principal::new(accepted.user_name, request.client_id.clone(), roles).until(accepted.expires_at_ms);
        Ok(if settings.token_from == TokenFrom::UserName { principal.hiding_the_claimed_name() } else { principal })
    }

    /// What it may do; `None`: everything.
    fn roles(
        &self,
        claims: &Map<String, Value>,
        user_name: Option<&bytestring::ByteString>,
    ) -> Result<Option<Arc<[Arc<Role>]>>, Refusal> {
        let settings = &self.0.settings;
        let permissions = claims::find(claims, &settings.permissions_claim);
        let named = self.0.rbac.as_ref().zip(claims::find(claims, &settings.roles_claim));
        if permissions.is_none() && named.is_none() {
            return match (settings.without_permissions, &self.0.rbac) {
                (WithoutPermissions::All, _) => Ok(None),
                (WithoutPermissions::FileRbac, Some(rbac)) => {
                    user_name.and_then(|user| rbac.roles_of(user)).map(Some).ok_or(Refusal::CREDENTIALS)
                }
                (WithoutPermissions::Nothing | WithoutPermissions::FileRbac, _) => Ok(Some(Arc::default())),
            };
        }
        let mut roles = Vec::new();
        if let Some(permissions) = permissions {
            let permissions = claim::permissions(permissions)
                .map_err(|error| Refusal { code: ReasonCode::NotAuthorized, reason: error.reason() })?;
            roles.push(Arc::new(Role { id: bytestring::ByteString::new(), permissions }));
        }
        if let Some((rbac, names)) = named {
            // Issuers put roles of other systems into the same claim.
            roles.extend(role_names(names)?.into_iter().filter_map(|name| rbac.role(name)));
        }
        Ok(Some(roles.into()))
    }
}

fn role_names(claim: &Value) -> Result<Vec<&str>, Refusal> {
    match claim {
        Value::String(name) => Ok(vec![name]),
        Value::Array(names) if names.len() <= ROLES_MAX => names.iter().map(|name| name.as_str().ok_or(ROLES)).collect(),
        _ => Err(ROLES),
    }
}

impl Authenticator for Jwt {
    fn begin(&self, request: &Request, _: &dyn Fn() -> String) -> Answer {
        if request.method.as_ref().is_some_and(|method| !self.serves(method)) {
            return Answer::Pass;
        }
        let shown = self.shown(request);
        let Some(token) = shown.as_ref().and_then(Token::parse) else {
            // A password, for somebody else.
            return if request.method.is_some() { refuse_shown(shown.as_ref()) } else { Answer::Pass };
        };
        let keys = Arc::clone(&self.0.keys.read());
        if keys.quick {
            return self.judge(&keys, &token, request);
        }
        let (jwt, request) = (self.clone(), request.clone());
        Answer::Compute(Box::new(move || jwt.judge(&keys, &token, &request)))
    }

    fn serves(&self, method: &str) -> bool {
        self.0.settings.method.as_deref() == Some(method)
    }

    fn user_name_is_secret(&self) -> bool {
        self.0.settings.token_from == TokenFrom::UserName
    }
}

struct LastWord(Jwt);

impl Authenticator for LastWord {
    fn begin(&self, request: &Request, _: &dyn Fn() -> String) -> Answer {
        refuse_shown(self.0.shown(request).as_ref())
    }

    fn serves(&self, _: &str) -> bool {
        false
    }
}

/// Refuses what is no token.
fn refuse_shown(shown: Option<&Bytes>) -> Answer {
    let missing = shown.is_none_or(Bytes::is_empty);
    Answer::Decided(Verdict::Refuse(if missing { MISSING } else { MALFORMED }))
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;
