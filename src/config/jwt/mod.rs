//! JSON Web Tokens: what `<jwt>` of `config.xml`, an element of our own, says, and the files of keys it names. The check of a configuration
//! reads the files as the start and each reload do, so that `troupemq config check` finds whatever would be refused later.

mod algorithm;
mod jwks;
mod key;

use std::path::{Path, PathBuf};

use super::limits::{FILE_SIZE_MAX, JWT_KEYS_MAX};
use super::rbac::Template;
use super::read_bounded;
use super::settings::Secret;

pub use algorithm::Algorithm;
pub use key::{Key, Material};

/// `<security><authentication><jwt>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    pub token_from: TokenFrom,
    /// Authentication Method by which MQTT 5 clients send a token in the Authentication Data.
    pub method: Option<String>,
    pub sources: KeySources,
    /// Seconds, at least 1.
    pub reload_interval_s: u32,
    /// What a token may be signed by, beside what its key allows.
    pub algorithms: Vec<Algorithm>,
    /// By how many seconds clocks may differ.
    pub leeway_s: u32,
    pub expiry_required: bool,
    /// One of them is the token's `iss`; empty: it is not looked at.
    pub issuers: Vec<String>,
    /// One of them is in the token's `aud`; empty: it is not looked at.
    pub audiences: Vec<String>,
    pub user_name_claim: String,
    pub verify: Vec<VerifyClaim>,
    pub permissions_claim: String,
    pub roles_claim: String,
    pub without_permissions: WithoutPermissions,
}

#[cfg(test)]
impl JwtSettings {
    /// What a configuration says that names keys and nothing else.
    pub(crate) fn of(sources: KeySources) -> Self {
        Self {
            token_from: TokenFrom::Password,
            method: None,
            sources,
            reload_interval_s: 60,
            algorithms: Algorithm::ALL.to_vec(),
            leeway_s: 10,
            expiry_required: true,
            issuers: Vec::new(),
            audiences: Vec::new(),
            user_name_claim: "sub".to_owned(),
            verify: Vec::new(),
            permissions_claim: "permissions".to_owned(),
            roles_claim: "roles".to_owned(),
            without_permissions: WithoutPermissions::Nothing,
        }
    }
}

/// Where in a CONNECT the token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFrom {
    Password,
    UserName,
}

/// A claim that must be what the template gives for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyClaim {
    pub claim: String,
    pub value: Template,
}

/// What a client may do whose token has neither of the claims that say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutPermissions {
    Nothing,
    All,
    /// What the files of File RBAC allow the user.
    FileRbac,
}

/// Where keys are; at least one is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySources {
    pub secret: Option<Secret>,
    pub secret_file: Option<PathBuf>,
    /// Both stand in base64.
    pub secret_base64: bool,
    pub public_keys: Vec<PathBuf>,
    pub jwks: Option<PathBuf>,
}

/// Which element of `<jwt>` is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Secret,
    SecretFile,
    PublicKeyFile(usize),
    JwksFile,
}

/// Why keys are of no use, or what is odd about them. Never holds anything of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub part: Part,
    pub message: String,
}

/// Keys, and what is odd about their files.
#[derive(Debug, Default)]
pub struct Loaded {
    pub keys: Vec<Key>,
    pub warnings: Vec<Finding>,
}

impl KeySources {
    pub fn is_empty(&self) -> bool {
        self.files().is_empty() && self.secret.is_none()
    }

    /// Every file, to look for changes.
    pub fn files(&self) -> Vec<&Path> {
        self.secret_file.iter().chain(&self.public_keys).chain(&self.jwks).map(PathBuf::as_path).collect()
    }
}

/// Reads all keys. Blocks on the disk.
///
/// # Errors
/// Any source that is of no use makes all of them so.
pub fn load(sources: &KeySources) -> Result<Loaded, Vec<Finding>> {
    let mut loaded = Loaded::default();
    let mut errors = Vec::new();
    let mut add = |part: Part, read: Result<(Vec<Key>, Vec<String>), String>| match read {
        Ok((keys, warnings)) => {
            loaded.keys.extend(keys);
            loaded.warnings.extend(warnings.into_iter().map(|message| Finding { part, message }));
        }
        Err(message) => errors.push(Finding { part, message }),
    };
    if let Some(secret) = &sources.secret {
        add(Part::Secret, key::secret(secret.expose().as_bytes(), sources.secret_base64));
    }
    if let Some(path) = &sources.secret_file {
        let read = |raw: &[u8]| key::secret(without_line_end(raw), sources.secret_base64);
        // The secret itself may stand in the place of the path: only what is a file is named.
        let known = path.exists();
        let unknown = || Err("names no file (it is not shown, a secret may stand there); allowed: the path of a file".to_owned());
        add(Part::SecretFile, if known { in_file(path, read) } else { unknown() });
    }
    for (n, path) in sources.public_keys.iter().enumerate() {
        add(Part::PublicKeyFile(n), in_file(path, |raw| Ok((key::pem(raw)?, Vec::new()))));
    }
    if let Some(path) = &sources.jwks {
        add(Part::JwksFile, in_file(path, jwks::parse));
    }
    if loaded.keys.len() > JWT_KEYS_MAX {
        let part = if sources.jwks.is_some() { Part::JwksFile } else { Part::PublicKeyFile(0) };
        errors.push(Finding { part, message: format!("found {} keys in all; allowed: {JWT_KEYS_MAX}", loaded.keys.len()) });
    }
    if errors.is_empty() { Ok(loaded) } else { Err(errors) }
}

fn in_file<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let tell = |message: String| format!("{} {message}", path.display());
    let raw = read_bounded(path, FILE_SIZE_MAX)
        .map_err(|error| tell(format!("cannot be read: {error}; allowed: a file that the broker may read")))?;
    if raw.len() > FILE_SIZE_MAX {
        return Err(tell(format!("is larger than {FILE_SIZE_MAX} bytes")));
    }
    parse(&raw).map_err(tell)
}

/// An editor ends a line where a secret ends.
fn without_line_end(raw: &[u8]) -> &[u8] {
    let raw = raw.strip_suffix(b"\n").unwrap_or(raw);
    raw.strip_suffix(b"\r").unwrap_or(raw)
}

#[cfg(test)]
#[path = "jwt_test.rs"]
mod tests;
