//! `credentials.xml` (spec/hivemq.md 7.2, 7.3): users with what they prove themselves by, roles with their permissions.
//!
//! Own elements of a user, beside or instead of its password: `<scram-sha-256>` and `<scram-sha-512>`, each
//! `iterations:base64(salt):base64(StoredKey):base64(ServerKey)`, which say nothing of the password to whom does not try passwords.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytestring::ByteString;

use super::FileRbacSettings;
use super::elements::CREDENTIALS;
use super::extension::PasswordType;
use super::reader::{self, Node};
use super::template::Template;
use crate::config::diagnostic::{Report, quote};
use crate::mqtt::{QoS, topic_filter};

pub(super) const ROOT: &str = "file-rbac";
/// More iterations than this would keep a thread for many seconds.
pub(super) const ITERATIONS_MAX: u32 = 10_000_000;
/// Any group, in `shared-group`.
pub(super) const ANY_GROUP: &str = "#";
/// What is found wrong in a file is told up to this many errors.
const ERRORS_MAX: usize = 20;

/// A file of credentials that is valid.
#[derive(Debug, Default)]
pub struct Credentials {
    pub users: HashMap<ByteString, User>,
    pub roles: HashMap<ByteString, Arc<Role>>,
}

#[derive(Debug)]
pub struct User {
    /// `None`: the user logs in otherwise.
    pub password: Option<Password>,
    pub scram_sha_256: Option<ScramVerifier>,
    pub scram_sha_512: Option<ScramVerifier>,
    /// In the order of the user's list.
    pub roles: Arc<[Arc<Role>]>,
}

/// What a password is held against.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    Plain(Box<[u8]>),
    Hashed(Hash),
    /// Two parts, or three that are no numbers and base64: valid in the file, and no password fits (spec/hivemq.md 7.3).
    Never,
}

/// PBKDF2-HMAC-SHA512.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash {
    pub salt: Box<[u8]>,
    pub iterations: u32,
    pub hash: Box<[u8]>,
}

/// What a server keeps of a SCRAM password (RFC 5802 section 3).
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub iterations: u32,
    pub salt: Box<[u8]>,
    pub stored_key: Box<[u8]>,
    pub server_key: Box<[u8]>,
}

macro_rules! hide {
    ($($kind:ty),*) => {$(
        impl fmt::Debug for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("***")
            }
        }
    )*};
}
hide!(Password, Hash, ScramVerifier);

#[derive(Debug, PartialEq, Eq)]
pub struct Role {
    pub id: ByteString,
    pub permissions: Vec<Permission>,
}

/// What a client may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    pub topic: Template,
    pub activity: Activity,
    /// For QoS 0, 1 and 2.
    pub qos: [bool; 3],
    /// Of a PUBLISH.
    pub retain: Retain,
    /// Of a SUBSCRIBE.
    pub share: Share,
    /// `None`: any group.
    pub group: Option<ByteString>,
}

impl Permission {
    pub fn covers_qos(&self, qos: QoS) -> bool {
        self.qos.get(qos as usize).copied().unwrap_or(false)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    All,
    Publish,
    Subscribe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    All,
    Retained,
    NotRetained,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    All,
    Shared,
    NotShared,
}

/// Reads a file. Settings come out of a faulty one too, so that several errors are found in one go; they are of no use when the report
/// holds an error. `None`: the file is something else altogether.
pub(super) fn parse(raw: &[u8], settings: &FileRbacSettings, report: &Report) -> Option<Credentials> {
    let root = reader::root(raw, ROOT, report)?;
    let root = Node::root(&root, CREDENTIALS, report);
    root.know();
    let roles = roles(&root, report);
    let users = root.list("users", "user");
    if users.is_empty() {
        root.error("there is no user; add <users><user>..</user></users>");
    }
    let mut credentials = Credentials::default();
    for user in users {
        if report.errors() >= ERRORS_MAX {
            break;
        }
        user.know();
        let Some(name) = user.required("name") else { continue };
        if name.contains(['#', '+']) {
            user.warning(format!("found user name {}; nobody with # or + in the name is let in", user.quote(name)));
        }
        let entry = User {
            password: password(&user, settings),
            scram_sha_256: user.child("scram-sha-256").and_then(|scram| verifier(&scram, 32)),
            scram_sha_512: user.child("scram-sha-512").and_then(|scram| verifier(&scram, 64)),
            roles: roles_of(&user, &roles),
        };
        if credentials.users.insert(name.into(), entry).is_some() {
            user.error(format!("found a second user {}; allowed: each name once", quote(name)));
        }
    }
    credentials.roles = roles;
    Some(credentials)
}

fn roles(root: &Node<'_>, report: &Report) -> HashMap<ByteString, Arc<Role>> {
    let list = root.list("roles", "role");
    if list.is_empty() {
        root.error("there is no role; add <roles><role>..</role></roles>");
    }
    let mut roles = HashMap::new();
    for role in list {
        if report.errors() >= ERRORS_MAX {
            break;
        }
        role.know();
        let Some(id) = role.required("id") else { continue };
        let permissions: Vec<_> = role.list("permissions", "permission").iter().filter_map(permission).collect();
        if role.list("permissions", "permission").is_empty() {
            role.error(format!(
                "role {} has no permission; add <permissions><permission>..</permission></permissions>",
                quote(id)
            ));
        }
        let entry = Arc::new(Role { id: id.into(), permissions });
        if roles.insert(ByteString::from(id), entry).is_some() {
            role.error(format!("found a second role {}; allowed: each id once", quote(id)));
        }
    }
    roles
}

fn roles_of(user: &Node<'_>, roles: &HashMap<ByteString, Arc<Role>>) -> Arc<[Arc<Role>]> {
    let ids = user.list("roles", "id");
    if ids.is_empty() {
        user.error("the user has no role; add <roles><id>..</id></roles>");
    }
    let known = ids.iter().filter_map(|id| {
        let role = roles.get(id.text());
        if role.is_none() {
            id.error(format!("found {}; allowed: the id of a role in <roles>", id.quote(id.text())));
        }
        role.cloned()
    });
    known.collect()
}

fn password(user: &Node<'_>, settings: &FileRbacSettings) -> Option<Password> {
    let given = user.child("password").filter(|password| !password.text().is_empty());
    let Some(given) = given else {
        let other = user.child("scram-sha-256").or_else(|| user.child("scram-sha-512"));
        if other.is_none() && !settings.passwords_optional {
            user.error("<password> is missing or empty; add <password>..</password>");
        }
        return None;
    };
    match settings.password_type {
        PasswordType::Plain => {
            // Compared byte by byte (spec/hivemq.md 7.3).
            if given.untrimmed().is_some() {
                given.warning("the white space at its beginning or end is part of the password");
            }
            Some(Password::Plain(given.untrimmed().unwrap_or(given.text()).as_bytes().into()))
        }
        PasswordType::Hashed => hashed(&given),
    }
}

/// `base64(salt):iterations:base64(hash)`. What fits the file's rules but no password is taken with a warning, as HiveMQ takes it.
fn hashed(password: &Node<'_>) -> Option<Password> {
    let parts: Vec<&str> = password.text().split(':').collect();
    if parts.len() < 2 || parts.iter().any(|part| part.is_empty()) {
        // Not quoted: it may be a password.
        password.error("allowed: base64(salt):iterations:base64(hash), as `troupemq password hash` prints it");
        return None;
    }
    let hash = match parts.as_slice() {
        [salt, iterations, hash] => Some((STANDARD.decode(salt).ok(), read_iterations(iterations), STANDARD.decode(hash).ok())),
        _ => None,
    };
    let Some((Some(salt), Some(iterations), Some(hash))) = hash else {
        password.warning("no password fits this: it is not base64(salt):iterations:base64(hash)");
        return Some(Password::Never);
    };
    Some(Password::Hashed(Hash { salt: salt.into(), iterations, hash: hash.into() }))
}

fn verifier(scram: &Node<'_>, key_len: usize) -> Option<ScramVerifier> {
    let parts: Vec<&str> = scram.text().split(':').collect();
    let key = |text: &str| STANDARD.decode(text).ok().filter(|key| key.len() == key_len).map(Vec::into_boxed_slice);
    let found = match parts.as_slice() {
        [iterations, salt, stored_key, server_key] => read_iterations(iterations)
            .zip(STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty()))
            .zip(key(stored_key).zip(key(server_key))),
        _ => None,
    };
    let Some(((iterations, salt), (stored_key, server_key))) = found else {
        scram.error(format!(
            "allowed: iterations:base64(salt):base64(StoredKey):base64(ServerKey) with keys of {key_len} bytes, as `troupemq \
             password hash` prints it"
        ));
        return None;
    };
    Some(ScramVerifier { iterations, salt: salt.into(), stored_key, server_key })
}

fn read_iterations(text: &str) -> Option<u32> {
    text.parse().ok().filter(|iterations| (1..=ITERATIONS_MAX).contains(iterations))
}

pub(super) const QOS: &[(&str, [bool; 3])] = &[
    ("ALL", [true, true, true]),
    ("ZERO", [true, false, false]),
    ("ONE", [false, true, false]),
    ("TWO", [false, false, true]),
    ("ZERO_ONE", [true, true, false]),
    ("ONE_TWO", [false, true, true]),
    ("ZERO_TWO", [true, false, true]),
];
pub(super) const ACTIVITY: &[(&str, Activity)] =
    &[("ALL", Activity::All), ("PUBLISH", Activity::Publish), ("SUBSCRIBE", Activity::Subscribe)];
pub(super) const RETAIN: &[(&str, Retain)] =
    &[("ALL", Retain::All), ("RETAINED", Retain::Retained), ("NOT_RETAINED", Retain::NotRetained)];
pub(super) const SHARE: &[(&str, Share)] = &[("ALL", Share::All), ("SHARED", Share::Shared), ("NOT_SHARED", Share::NotShared)];

fn permission(permission: &Node<'_>) -> Option<Permission> {
    permission.know();
    let text = permission.required("topic")?;
    let mut unknown = Vec::new();
    let topic = Template::parse(text, &mut unknown);
    if !topic_filter::is_valid(&topic.sample()) {
        permission.error(format!("found topic {}; allowed: a topic filter", quote(text)));
    }
    if let Some(name) = unknown.first() {
        permission.warning(format!("found placeholder {}, which stands for itself; known: clientid and username", quote(name)));
    }
    let group = permission.child("shared-group").map_or(ANY_GROUP, |group| group.text());
    let lower = text.to_ascii_lowercase();
    if let Some(single) = ["${clientid}", "${username}"].into_iter().find(|single| lower.contains(single)) {
        permission
            .warning(format!("found {single}, which stands for itself; a placeholder has two braces, as ${{{{clientid}}}}"));
    }
    if text.starts_with("$share/") {
        permission.warning("found a topic that begins with $share/, which allows nothing; name the filter inside, and the group in <shared-group>");
    }
    if group.contains('/') {
        permission.warning(format!("found shared group {}, which nobody can have: a group has no /", quote(group)));
    }
    Some(Permission {
        topic,
        activity: permission.word("activity", ACTIVITY)?,
        qos: permission.word("qos", QOS)?,
        retain: permission.word("retain", RETAIN)?,
        share: permission.word("shared-subscription", SHARE)?,
        group: (group != ANY_GROUP && !group.is_empty()).then(|| group.into()),
    })
}
