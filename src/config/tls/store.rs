//! Key and trust stores: PEM and PKCS12, told apart by their content.

use std::path::Path;
use std::sync::Arc;

use p12_keystore::{Pkcs12Archive, error::Error as Pkcs12Error};
use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Files, Part, TlsError, ec_key};
use crate::config::settings::{StoreSettings, TlsSettings};

/// Certificates sent to a client at most; a chain is rarely longer than 3.
const CHAIN_LEN_MAX: usize = 10;
const JKS_MAGIC: &[u8] = &[0xFE, 0xED, 0xFE, 0xED];
const JCEKS_MAGIC: &[u8] = &[0xCE, 0xCE, 0xCE, 0xCE];
/// The tag of a DER sequence, with which every PKCS12 file begins.
const DER_SEQUENCE: u8 = 0x30;
const ENCRYPTED_PEM: &[&[u8]] = &[b"-----BEGIN ENCRYPTED PRIVATE KEY", b"Proc-Type: 4,ENCRYPTED"];

/// What the files of a `tls` block hold.
pub struct Material {
    pub(super) identity: CertifiedKey,
    /// Certificates that client certificates may go back to.
    pub(super) anchors: Vec<CertificateDer<'static>>,
    pub(super) crls: Vec<CertificateRevocationListDer<'static>>,
}

/// The content of one store.
#[derive(Default)]
struct Store {
    keys: Vec<PrivateKeyDer<'static>>,
    certificates: Vec<CertificateDer<'static>>,
}

pub(super) fn parse(files: &Files, settings: &TlsSettings) -> Result<Material, TlsError> {
    let path = &settings.keystore.path;
    let mut store = open(&files.keystore, &settings.keystore, [Part::Keystore, Part::KeystorePassword])?;
    if let (Some(bytes), Some(path)) = (&files.private_key, &settings.private_key_path) {
        store.keys = pem_keys(bytes, Part::PrivateKey, path)?;
        if store.keys.is_empty() {
            return Err(TlsError::new(Part::PrivateKey, path, "holds no private key in PEM"));
        }
    }
    let identity = identity(store, path)?;

    let mut anchors = Vec::new();
    if let (Some(bytes), Some(store)) = (&files.truststore, &settings.truststore) {
        anchors = open(bytes, store, [Part::Truststore, Part::TruststorePassword])?.certificates;
        if anchors.is_empty() {
            return Err(TlsError::new(Part::Truststore, &store.path, "holds no certificate"));
        }
    }
    let mut crls = Vec::new();
    for (n, (bytes, path)) in files.crls.iter().zip(&settings.crls).enumerate() {
        crls.extend(revocation_lists(bytes).map_err(|message| TlsError::new(Part::Crl(n), path, message))?);
    }
    Ok(Material { identity, anchors, crls })
}

fn open(bytes: &[u8], settings: &StoreSettings, [store, password]: [Part; 2]) -> Result<Store, TlsError> {
    let path = &settings.path;
    if is_pem(bytes) {
        let certificates = CertificateDer::pem_slice_iter(bytes)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| TlsError::new(store, path, "is no valid PEM"))?;
        // A trust store's keys are of no use, and may be of any kind.
        let keys = if store == Part::Keystore { pem_keys(bytes, store, path)? } else { Vec::new() };
        return Ok(Store { keys, certificates });
    }
    if bytes.starts_with(JKS_MAGIC) || bytes.starts_with(JCEKS_MAGIC) {
        let message = format!(
            "is a Java keystore (JKS), allowed: PKCS12 or PEM; convert it: keytool -importkeystore -srckeystore {0} -destkeystore \
             {0}.p12 -deststoretype pkcs12",
            path.display()
        );
        return Err(TlsError::new(store, path, message));
    }
    if bytes.first() != Some(&DER_SEQUENCE) {
        return Err(TlsError::new(store, path, "is neither PKCS12 nor PEM"));
    }
    let archive = Pkcs12Archive::from_pkcs12(bytes, settings.password.expose()).map_err(|error| match error {
        Pkcs12Error::MacError(_) => TlsError::new(password, path, "the password does not fit"),
        error => TlsError::new(store, path, format!("cannot be read as PKCS12, or the password does not fit: {error}")),
    })?;
    let key = |bag: &p12_keystore::PrivateKeyBag| PrivatePkcs8KeyDer::from(bag.key.as_der().to_vec()).into();
    Ok(Store {
        keys: archive.keys.iter().map(key).collect(),
        certificates: archive.certs.iter().map(|bag| CertificateDer::from(bag.cert.as_der().to_vec())).collect(),
    })
}

/// PEM may have remarks in front of its first section.
fn is_pem(bytes: &[u8]) -> bool {
    contains(bytes, b"-----BEGIN ")
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn pem_keys(bytes: &[u8], part: Part, path: &Path) -> Result<Vec<PrivateKeyDer<'static>>, TlsError> {
    if ENCRYPTED_PEM.iter().any(|mark| contains(bytes, mark)) {
        let message = "the private key is encrypted, which only PKCS12 may be; decrypt it (openssl pkey -in ..) or make a PKCS12 store \
                       (openssl pkcs12 -export ..)";
        return Err(TlsError::new(part, path, message));
    }
    PrivateKeyDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(|_| TlsError::new(part, path, "is no valid PEM"))
}

/// Finds the key with a certificate, and puts the chain into the order of a handshake: the own certificate, its issuer, and so on.
fn identity(store: Store, path: &Path) -> Result<CertifiedKey, TlsError> {
    let refuse = |message: String| TlsError::new(Part::Keystore, path, message);
    if store.keys.is_empty() {
        return Err(refuse("holds no private key".to_owned()));
    }
    if store.certificates.is_empty() {
        return Err(refuse("holds no certificate".to_owned()));
    }
    let mut unusable = None;
    for key in &store.keys {
        match own_key(key, &store.certificates) {
            Ok(Some((own, key))) => return Ok(CertifiedKey::new(chain(own, &store.certificates), key)),
            Ok(None) => {}
            Err(error) => unusable = Some(error),
        }
    }
    Err(refuse(match unusable {
        Some(error) => format!("the private key is of no kind that can be used: {error}"),
        None => "the private key belongs to none of the certificates".to_owned(),
    }))
}

/// The certificate of a key, and the key ready to sign.
type OwnKey<'a> = (&'a CertificateDer<'static>, Arc<dyn SigningKey>);

fn own_key<'a>(
    key: &PrivateKeyDer<'static>,
    certificates: &'a [CertificateDer<'static>],
) -> Result<Option<OwnKey<'a>>, rustls::Error> {
    let load = |key| default_provider().key_provider.load_private_key(key);
    let fits = |certificate: &CertificateDer<'static>, key: &Arc<dyn SigningKey>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(key)).keys_match().is_ok()
    };
    let error = match load(key.clone_key()) {
        Ok(key) => return Ok(certificates.iter().find(|certificate| fits(certificate, &key)).map(|own| (own, key))),
        Err(error) => error,
    };
    let completed = |certificate: &CertificateDer<'static>| {
        let PrivateKeyDer::Pkcs8(pkcs8) = key else { return None };
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let pkcs8 = ec_key::complete(pkcs8.secret_pkcs8_der(), &parsed.public_key().subject_public_key.data)?;
        load(PrivatePkcs8KeyDer::from(pkcs8).into()).ok().filter(|key| fits(certificate, key))
    };
    certificates.iter().find_map(|own| Some((own, completed(own)?))).map(Some).ok_or(error)
}

fn chain(own: &CertificateDer<'static>, all: &[CertificateDer<'static>]) -> Vec<CertificateDer<'static>> {
    let parsed: Vec<_> = all.iter().filter_map(|der| Some((der, X509Certificate::from_der(der).ok()?.1))).collect();
    let mut chain = vec![own.clone()];
    let mut last = parsed.iter().find(|(der, _)| *der == own);
    while let Some((_, certificate)) = last {
        let issuer = |(der, candidate): &&(&CertificateDer<'static>, X509Certificate<'_>)| {
            candidate.subject().as_raw() == certificate.issuer().as_raw() && !chain.contains(der)
        };
        last = parsed.iter().find(issuer);
        let Some((der, _)) = last.filter(|_| chain.len() < CHAIN_LEN_MAX) else { break };
        chain.push((*der).clone());
    }
    chain
}

fn revocation_lists(bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    if !is_pem(bytes) {
        return Ok(vec![bytes.to_vec().into()]);
    }
    let lists: Vec<_> = CertificateRevocationListDer::pem_slice_iter(bytes)
        .collect::<Result<_, _>>()
        .map_err(|_| "is no valid PEM".to_owned())?;
    if lists.is_empty() { Err("holds no certificate revocation list".to_owned()) } else { Ok(lists) }
}
