//! Files of credentials, and the client's side of SCRAM.

use std::fmt::Write;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};
use tempfile::TempDir;
use troupemq::auth::password;
use troupemq::auth::scram::Mechanism;

/// Whom the files do not let in may come in otherwise.
pub const PASS_ON: &str = "<next-extension-instead-of-fail>true</next-extension-instead-of-fail>";
const ITERATIONS: NonZeroU32 = NonZeroU32::new(100).expect("not 0");

/// A user of the files.
#[derive(Debug, Clone)]
pub struct User(String);

impl User {
    pub fn new(name: &str, proof: &str, role: &str) -> Self {
        Self(format!("<user><name>{name}</name>{proof}<roles><id>{role}</id></roles></user>"))
    }

    pub fn password(name: &str, password: &str, role: &str) -> Self {
        Self::hashed(name, &password::hash(password.as_bytes(), "saltsaltsaltsalt", ITERATIONS), role)
    }

    /// With what stands in the file.
    pub fn hashed(name: &str, hash: &str, role: &str) -> Self {
        Self::new(name, &format!("<password>{hash}</password>"), role)
    }

    /// Logs in by SCRAM-SHA-256 and SCRAM-SHA-512.
    pub fn scram(name: &str, password: &str, role: &str) -> Self {
        let keys = |mechanism| {
            password::scram_text(&password::scram_verifier(mechanism, password.as_bytes(), b"salt of 16 bytes", ITERATIONS))
        };
        let (short, long) = (keys(Mechanism::Sha256), keys(Mechanism::Sha512));
        Self::new(name, &format!("<scram-sha-256>{short}</scram-sha-256><scram-sha-512>{long}</scram-sha-512>"), role)
    }
}

/// The folder of the extension.
pub struct Rbac {
    directory: TempDir,
}

impl Rbac {
    /// Roles are names with what they allow; `extension` is what stands in the extension's own configuration.
    pub fn new(users: &[User], roles: &[(&str, &[&str])], extension: &str) -> Self {
        let rbac = Self { directory: TempDir::new().expect("a directory") };
        fs::create_dir(rbac.path().join("conf")).expect("a directory");
        rbac.write(users, roles);
        let text = format!(
            "<extension-configuration><credentials-reload-interval>1</credentials-reload-interval>{extension}\
             </extension-configuration>"
        );
        fs::write(rbac.path().join("conf/config.xml"), text).expect("a file");
        rbac
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The element that switches it on.
    pub fn element(&self) -> String {
        format!("<authentication><file-rbac><folder>{}</folder></file-rbac></authentication>", self.path().display())
    }

    /// Puts other credentials in the place of those there are.
    pub fn write(&self, users: &[User], roles: &[(&str, &[&str])]) {
        let mut xml = String::from("<file-rbac><users>");
        users.iter().for_each(|user| xml.push_str(&user.0));
        xml.push_str("</users><roles>");
        for (role, topics) in roles {
            _ = write!(xml, "<role><id>{role}</id><permissions>");
            topics.iter().for_each(|topic| _ = write!(xml, "<permission><topic>{topic}</topic></permission>"));
            xml.push_str("</permissions></role>");
        }
        self.write_text(&(xml + "</roles></file-rbac>"));
    }

    pub fn write_text(&self, text: &str) {
        let new = self.path().join("conf/new.xml");
        fs::write(&new, text).expect("a file");
        fs::rename(&new, self.path().join("conf/credentials.xml")).expect("a file");
    }

    /// Replaced files.
    pub fn archived(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path().join("credentials-archive")) else { return Vec::new() };
        entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
    }
}

/// A client in a SCRAM exchange.
pub struct Scram {
    sha_512: bool,
    bare: String,
    password: String,
}

impl Scram {
    pub fn new(method: &str, user: &str, password: &str) -> Self {
        Self { sha_512: method == "SCRAM-SHA-512", bare: format!("n={user},r=client"), password: password.to_owned() }
    }

    pub fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// The last message for the server's first, and the signature that the server must answer with.
    pub fn last(&self, challenge: &[u8]) -> (String, String) {
        let challenge = String::from_utf8(challenge.to_vec()).expect("text");
        let attribute = |name: &str| {
            challenge.split(',').find_map(|part| part.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {challenge}"))
        };
        let nonce = attribute("r=");
        assert!(nonce.starts_with("client") && nonce.len() > 20, "{challenge}");
        let salt = STANDARD.decode(attribute("s=")).expect("a salt");
        let iterations: NonZeroU32 = attribute("i=").parse().expect("a number");
        let (derive, sign, hash) = if self.sha_512 {
            (pbkdf2::PBKDF2_HMAC_SHA512, hmac::HMAC_SHA512, &digest::SHA512)
        } else {
            (pbkdf2::PBKDF2_HMAC_SHA256, hmac::HMAC_SHA256, &digest::SHA256)
        };
        let mut salted = vec![0; hash.output_len()];
        pbkdf2::derive(derive, iterations, &salt, self.password.as_bytes(), &mut salted);
        let with = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(sign, key), text.as_bytes());
        let client_key = with(&salted, "Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{challenge},{without_proof}", self.bare);
        let signature = with(digest::digest(hash, client_key.as_ref()).as_ref(), &signed);
        let proof: Vec<u8> = client_key.as_ref().iter().zip(signature.as_ref()).map(|(key, signature)| key ^ signature).collect();
        let server = with(with(&salted, "Server Key").as_ref(), &signed);
        (format!("{without_proof},p={}", STANDARD.encode(proof)), format!("v={}", STANDARD.encode(server)))
    }
}
