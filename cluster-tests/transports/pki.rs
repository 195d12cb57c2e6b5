//! A certification authority of a test, the files that the broker reads, and clients that trust in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

pub struct Pki {
    directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl Pki {
    /// With `server.pem` and `ca.pem`.
    pub fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = params("test ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let root = params.self_signed(&key).expect("a certificate");
        fs::write(directory.path().join("ca.pem"), root.pem()).expect("a file");
        let pki = Self { directory, issuer: Issuer::new(params, key), root: root.der().clone() };
        pki.renew_server();
        pki
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Gives the server another key and certificate; returns it.
    pub fn renew_server(&self) -> CertificateDer<'static> {
        let key = KeyPair::generate().expect("a key");
        let certificate = params("server", &["localhost"]).signed_by(&key, &self.issuer).expect("a certificate");
        let new = self.path().join("new.pem");
        fs::write(&new, certificate.pem() + &key.serialize_pem()).expect("a file");
        fs::rename(new, self.path().join("server.pem")).expect("a file");
        certificate.der().clone()
    }

    /// Files of a client's certificate and key, for a program.
    pub fn client_files(&self, common_name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().expect("a key");
        let certificate = params(common_name, &[]).signed_by(&key, &self.issuer).expect("a certificate");
        let paths = (self.path().join("client.crt"), self.path().join("client.key"));
        fs::write(&paths.0, certificate.pem()).expect("a file");
        fs::write(&paths.1, key.serialize_pem()).expect("a file");
        paths
    }

    /// A node's certificate, good for both ends of a connection, and its key, as PEM.
    pub fn node(&self, names: &[String]) -> (String, String) {
        self.node_until(names, 4000)
    }

    /// The same, good until a year begins.
    pub fn node_until(&self, names: &[String], year: i32) -> (String, String) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut params = params("node", &names);
        params.not_after = date_time_ymd(year, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// A client that trusts in this authority and has a certificate of another.
    pub fn client_of(&self, other: &Self, common_name: &str) -> TlsConnector {
        self.connector(Some((common_name, &[])), &other.issuer)
    }

    /// A client, with a certificate of that common name and those names where there is one.
    pub fn client(&self, identity: Option<(&str, &[&str])>) -> TlsConnector {
        self.connector(identity, &self.issuer)
    }

    fn connector(&self, identity: Option<(&str, &[&str])>, issuer: &Issuer<'static, KeyPair>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((common_name, names)) => {
                let key = KeyPair::generate().expect("a key");
                let certificate = params(common_name, names).signed_by(&key, issuer).expect("a certificate");
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
                builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("an identity")
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

fn params(common_name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
