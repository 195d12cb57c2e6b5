//! From the `tls` block's files to what rustls serves, and nodes dial, with: read, parse, build. The check of a configuration goes the same way as the
//! start of a listener and as each reload, so that `troupemq config check` finds whatever would fail later.

mod ec_key;
#[cfg(test)]
pub(crate) mod fixture;
pub mod names;
mod node;
mod server;
mod store;
pub mod suites;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tokio_rustls::rustls::ServerConfig;
use xxhash_rust::xxh3::Xxh3;

pub use node::{Fault, NodeConfig};
pub use server::Resumption;
pub use store::Material;

use super::settings::TlsSettings;

/// A store or a revocation list larger than this is refused, bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Which element of the `tls` block an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Keystore,
    KeystorePassword,
    PrivateKey,
    Truststore,
    TruststorePassword,
    /// The n-th revocation list, from 0.
    Crl(usize),
    CipherSuites,
}

/// Why TLS cannot be served with the files as they are; the operator's to mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TlsError {
    pub part: Part,
    pub message: String,
}

impl TlsError {
    fn new(part: Part, path: &Path, message: impl std::fmt::Display) -> Self {
        Self { part, message: format!("{}: {message}", path.display()) }
    }
}

/// The content of all files of a `tls` block.
pub struct Files {
    keystore: Vec<u8>,
    private_key: Option<Vec<u8>>,
    truststore: Option<Vec<u8>>,
    crls: Vec<Vec<u8>>,
}

impl Files {
    /// Reads all files; links are followed, so that a swapped Kubernetes secret is seen. Blocks on the disk.
    ///
    /// # Errors
    /// A file that cannot be read, or is too large.
    pub fn read(settings: &TlsSettings) -> Result<Self, TlsError> {
        let keystore = read(Part::Keystore, &settings.keystore.path)?;
        let private_key = settings.private_key_path.as_deref().map(|path| read(Part::PrivateKey, path)).transpose()?;
        let truststore = settings.truststore.as_ref().map(|store| read(Part::Truststore, &store.path)).transpose()?;
        let crls = settings.crls.iter().enumerate().map(|(n, path)| read(Part::Crl(n), path)).collect::<Result<_, _>>()?;
        Ok(Self { keystore, private_key, truststore, crls })
    }

    /// Equal for equal contents; to notice changes, not to hold against a forger.
    pub fn fingerprint(&self) -> u128 {
        let mut hash = Xxh3::new();
        let one = |file: &[u8], hash: &mut Xxh3| {
            hash.update(&file.len().to_le_bytes());
            hash.update(file);
        };
        one(&self.keystore, &mut hash);
        for file in [&self.private_key, &self.truststore].into_iter().flatten().chain(&self.crls) {
            one(file, &mut hash);
        }
        hash.digest128()
    }

    /// Takes keys, certificates and lists out of the files. A PKCS12 store's password is stretched on purpose: this may take a
    /// tenth of a second.
    ///
    /// # Errors
    /// A file of another format, a password that does not fit, a key without certificate.
    pub fn parse(&self, settings: &TlsSettings) -> Result<Material, TlsError> {
        store::parse(self, settings)
    }
}

/// Builds what handshakes are served with.
///
/// # Errors
/// What rustls refuses: certificates, keys and lists that do not belong together.
pub fn server_config(settings: &TlsSettings, material: &Material, resumption: &Resumption) -> Result<ServerConfig, TlsError> {
    server::build(settings, material, resumption)
}

/// Builds what a node accepts and dials peers with: each end shows a certificate and checks the other's.
///
/// # Errors
/// As [`server_config`].
pub fn node_config(settings: &TlsSettings, material: &Material) -> Result<NodeConfig, TlsError> {
    node::build(settings, material)
}

fn read(part: Part, path: &Path) -> Result<Vec<u8>, TlsError> {
    let bounded = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::other(format!("larger than {FILE_BYTES_MAX} bytes")));
        }
        Ok(bytes)
    };
    bounded().map_err(|error| TlsError::new(part, path, format!("cannot be read: {error}")))
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
