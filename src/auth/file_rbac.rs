//! User names and passwords, and SCRAM, by the files of HiveMQ's File RBAC extension (spec/hivemq.md 7.4).

use std::sync::Arc;

use bytestring::ByteString;
use parking_lot::RwLock;
use ring::hmac;

use super::scram::{self, Directory, Mechanism};
use super::{Answer, Authenticator, Exchange, Principal, Refusal, Request, Verdict, password};
use crate::config::rbac::{Credentials, FileRbacSettings, Password, Role, ScramVerifier};
use crate::mqtt::ReasonCode;

/// The users of the files as they are now; clones share them.
#[derive(Clone)]
pub struct FileRbac(Arc<Inner>);

struct Inner {
    settings: FileRbacSettings,
    users: RwLock<Arc<Users>>,
    /// Of this process: makes the salts of users nobody has.
    secret: hmac::Key,
}

/// Users, and how long an ordinary one's password takes.
struct Users {
    credentials: Credentials,
    iterations: Option<u32>,
    scram_sha_256: Option<ScramVerifier>,
    scram_sha_512: Option<ScramVerifier>,
}

impl Users {
    fn new(credentials: Credentials) -> Self {
        // The first by name stands for all: the same one after each start.
        let first = |verifier: fn(&crate::config::rbac::User) -> Option<&ScramVerifier>| {
            let users = credentials.users.iter().filter_map(|(name, user)| Some((name, verifier(user)?)));
            users.min_by_key(|(name, _)| *name).map(|(_, verifier)| verifier.clone())
        };
        let hashed = credentials.users.iter().filter_map(|(name, user)| match &user.password {
            Some(Password::Hashed(hash)) => Some((name, hash.iterations)),
            _ => None,
        });
        let iterations = hashed.min_by_key(|(name, _)| *name).map(|(_, iterations)| iterations);
        let (scram_sha_256, scram_sha_512) = (first(|u| u.scram_sha_256.as_ref()), first(|u| u.scram_sha_512.as_ref()));
        Self { iterations, scram_sha_256, scram_sha_512, credentials }
    }

    fn like(&self, mechanism: Mechanism) -> Option<&ScramVerifier> {
        match mechanism {
            Mechanism::Sha256 => self.scram_sha_256.as_ref(),
            Mechanism::Sha512 => self.scram_sha_512.as_ref(),
        }
    }
}

impl FileRbac {
    /// `credentials` is `None` where the file is of no use: every client is refused until there is a better one. `secret` is random.
    pub fn new(settings: FileRbacSettings, credentials: Option<Credentials>, secret: &[u8; 32]) -> Self {
        let users = RwLock::new(Arc::new(Users::new(credentials.unwrap_or_default())));
        Self(Arc::new(Inner { settings, users, secret: hmac::Key::new(hmac::HMAC_SHA512, secret) }))
    }

    /// Puts other users in the place of those there were. Clients that are connected keep what they have.
    pub fn replace(&self, credentials: Credentials) {
        *self.0.users.write() = Arc::new(Users::new(credentials));
    }

    pub fn settings(&self) -> &FileRbacSettings {
        &self.0.settings
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.0.users.read())
    }

    /// Whether clients of the listener are this one's to judge.
    pub fn guards(&self, listener: &str) -> bool {
        self.0.settings.listener_names.as_ref().is_none_or(|names| names.iter().any(|name| name == listener))
    }

    /// What a user may do, who is known to be that user.
    pub fn principal(&self, user: &ByteString, request: &Request) -> Option<Principal> {
        self.admit(user, &request.client_id)
    }

    /// The roles of a user.
    pub fn roles_of(&self, user: &ByteString) -> Option<Arc<[Arc<Role>]>> {
        self.users().credentials.users.get(user).map(|user| Arc::clone(&user.roles))
    }

    /// A role by its id.
    pub fn role(&self, id: &str) -> Option<Arc<Role>> {
        self.users().credentials.roles.get(id).cloned()
    }

    fn admit(&self, user: &ByteString, client_id: &ByteString) -> Option<Principal> {
        let roles = self.roles_of(user)?;
        Some(Principal::with_roles(user.clone(), client_id.clone(), roles))
    }

    fn failed(&self, refusal: Refusal) -> Answer {
        if self.0.settings.next_instead_of_fail { Answer::Pass } else { Answer::Decided(Verdict::Refuse(refusal)) }
    }

    fn check_password(&self, request: &Request) -> Answer {
        let (Some(user), Some(given)) = (&request.user_name, &request.password) else { return self.failed(MISSING) };
        if let Some(refusal) = check_names(&request.client_id, user) {
            return self.failed(refusal);
        }
        let users = self.users();
        let kept = users.credentials.users.get(user).and_then(|user| user.password.clone());
        let (rbac, user, client_id, given) = (self.clone(), user.clone(), request.client_id.clone(), given.clone());
        match kept {
            Some(Password::Plain(_) | Password::Hashed(_)) | None => {}
            Some(Password::Never) => return self.failed(Refusal::CREDENTIALS),
        }
        let judge = move || {
            let fits = match &kept {
                Some(kept) => password::verify(kept, &given),
                None => {
                    // It takes as long to be told that there is no such user.
                    users.iterations.into_iter().for_each(|iterations| password::pretend(iterations, &given));
                    false
                }
            };
            match rbac.admit(&user, &client_id).filter(|_| fits) {
                Some(principal) => Answer::accept(principal, None),
                None => rbac.failed(Refusal::CREDENTIALS),
            }
        };
        Answer::Compute(Box::new(judge))
    }
}

/// HiveMQ's words (spec/hivemq.md 7.4).
const MISSING: Refusal =
    Refusal { code: ReasonCode::BadUserNameOrPassword, reason: "Authentication failed because username or password are missing" };

/// Refuses names that would be wildcards in a permission.
pub(super) fn check_names(client_id: &str, user: &str) -> Option<Refusal> {
    if client_id.contains(['#', '+']) {
        let reason = "The characters '#' and '+' are not allowed in the client identifier";
        return Some(Refusal { code: ReasonCode::ClientIdentifierNotValid, reason });
    }
    let reason = "The characters '#' and '+' are not allowed in the username";
    user.contains(['#', '+']).then_some(Refusal { code: ReasonCode::BadUserNameOrPassword, reason })
}

impl Authenticator for FileRbac {
    fn begin(&self, request: &Request, nonce: &dyn Fn() -> String) -> Answer {
        if !self.guards(&request.listener) {
            return Answer::Pass;
        }
        let Some(method) = &request.method else { return self.check_password(request) };
        let Some(mechanism) = Mechanism::named(method).filter(|_| self.serves(method)) else { return Answer::Pass };
        let directory = ScramUsers { rbac: self.clone(), client_id: request.client_id.clone() };
        Exchange::new(mechanism, Arc::new(directory), nonce()).step(request.data.as_ref())
    }

    fn serves(&self, method: &str) -> bool {
        Mechanism::named(method).is_some_and(|mechanism| self.users().like(mechanism).is_some())
    }
}

/// The users as a SCRAM exchange of one client sees them.
struct ScramUsers {
    rbac: FileRbac,
    client_id: ByteString,
}

impl Directory for ScramUsers {
    fn verifier(&self, mechanism: Mechanism, user: &str) -> ScramVerifier {
        let users = self.rbac.users();
        let known = users.credentials.users.get(user).and_then(|user| match mechanism {
            Mechanism::Sha256 => user.scram_sha_256.clone(),
            Mechanism::Sha512 => user.scram_sha_512.clone(),
        });
        known.unwrap_or_else(|| scram::made_up(mechanism, &self.rbac.0.secret, user, users.like(mechanism)))
    }

    fn admit(&self, user: &ByteString) -> Result<Principal, Refusal> {
        match check_names(&self.client_id, user) {
            Some(refusal) => Err(refusal),
            None => self.rbac.admit(user, &self.client_id).ok_or(Refusal::CREDENTIALS),
        }
    }
}

#[cfg(test)]
#[path = "file_rbac_test.rs"]
mod tests;
