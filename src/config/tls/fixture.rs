//! Certificates of tests, made anew in each.

use std::fs;
use std::path::{Path, PathBuf};

use p12_keystore::{Certificate as Pkcs12Certificate, KeyStore, KeyStoreEntry, PrivateKey, PrivateKeyChain};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

use crate::config::settings::{ClientAuthentication, NodeTlsSettings, Secret, StoreSettings, TlsSettings};

pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) certificate: Certificate,
}

const NODE: &[ExtendedKeyUsagePurpose] = &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];

pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    pub(crate) key: KeyPair,
}

impl Ca {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(name);
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub(crate) fn intermediate(&self, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let params = ca_params(name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// For `localhost`.
    pub(crate) fn server(&self) -> Identity {
        self.issue(Some("server"), &["localhost"], 1, &[ExtendedKeyUsagePurpose::ServerAuth], 4000)
    }

    pub(crate) fn client(&self, common_name: Option<&str>, names: &[&str], serial: u64) -> Identity {
        self.issue(common_name, names, serial, &[ExtendedKeyUsagePurpose::ClientAuth], 4000)
    }

    /// Of a node of a cluster, for both ends of a connection.
    pub(crate) fn node(&self, names: &[&str], serial: u64) -> Identity {
        self.issue(None, names, serial, NODE, 4000)
    }

    /// Of a node, and good no more.
    pub(crate) fn expired_node(&self, names: &[&str]) -> Identity {
        self.issue(None, names, 1, NODE, 2020)
    }

    fn issue(
        &self,
        common_name: Option<&str>,
        names: &[&str],
        serial: u64,
        usages: &[ExtendedKeyUsagePurpose],
        until: i32,
    ) -> Identity {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if let Some(common_name) = common_name {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        params.extended_key_usages = usages.to_vec();
        params.not_after = date_time_ymd(until, 1, 1);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        Identity { certificate: params.signed_by(&key, &self.issuer).unwrap(), key }
    }

    pub(crate) fn revocation_list(&self, serials: &[u64]) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 2),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

impl Identity {
    /// Certificate and key.
    pub(crate) fn pem(&self) -> String {
        format!("{}{}", self.certificate.pem(), self.key.serialize_pem())
    }

    pub(crate) fn pkcs12(&self, password: &str, more: &[&Certificate]) -> Vec<u8> {
        let certificates = [&self.certificate].into_iter().chain(more.iter().copied());
        let certificates: Vec<_> = certificates.map(|c| Pkcs12Certificate::from_der(c.der()).unwrap()).collect();
        let key = PrivateKey::from_der(self.key.serialized_der()).unwrap();
        let mut store = KeyStore::new();
        store.add_entry("own", KeyStoreEntry::PrivateKeyChain(PrivateKeyChain::new("1", key, certificates)));
        store.writer(password).encryption_iterations(10).mac_iterations(10).write().unwrap()
    }
}

/// Writes a file of a test.
pub(crate) fn put(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::write(&path, content).unwrap();
    path
}

pub(crate) fn store(path: PathBuf, password: &str) -> StoreSettings {
    StoreSettings { path, password: Secret::new(password) }
}

/// What a node of this name talks to others with: an identity and the authority that it trusts in.
pub(crate) fn node_settings(directory: &Path, name: &str, identity: &Identity, ca: &Ca) -> NodeTlsSettings {
    let mut files = settings(store(put(directory, &format!("{name}.pem"), identity.pem()), ""));
    files.truststore = Some(store(put(directory, &format!("{name}-ca.pem"), ca.certificate.pem()), ""));
    files.client_authentication = ClientAuthentication::Required;
    NodeTlsSettings { files, hostname_verification: true, optional: false, domains: Vec::new() }
}

/// A key store and nothing else.
pub(crate) fn settings(keystore: StoreSettings) -> TlsSettings {
    TlsSettings {
        keystore,
        private_key_path: None,
        truststore: None,
        crls: Vec::new(),
        client_authentication: ClientAuthentication::None,
        tls_1_2: true,
        tls_1_3: true,
        cipher_suites: Vec::new(),
        prefer_server_cipher_suites: false,
        handshake_timeout_ms: 10_000,
    }
}
