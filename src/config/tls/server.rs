//! Builds rustls's configuration.

use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::crypto::ring::{Ticketer, default_provider};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{
    NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::{Material, Part, TlsError};
use crate::config::settings::{ClientAuthentication, TlsSettings};

/// Sessions kept for TLS 1.2 clients that take no tickets; about a kilobyte each, more with a client certificate.
const SESSIONS_MAX: usize = 10_000;

/// What lets a returning client resume its TLS session: tickets, which cost the broker no memory, and the session cache of TLS 1.2.
#[derive(Clone)]
pub struct Resumption {
    sessions: Arc<dyn StoresServerSessions>,
    tickets: Option<Arc<dyn ProducesTickets>>,
}

impl Resumption {
    /// Fresh keys: no session from before can be resumed.
    pub fn new() -> Self {
        // Without randomness there are no tickets, and no TLS either.
        Self { sessions: ServerSessionMemoryCache::new(SESSIONS_MAX), tickets: Ticketer::new().ok() }
    }

    /// For a configuration that is only looked at.
    pub fn none() -> Self {
        Self { sessions: Arc::new(NoServerSessionStorage {}), tickets: None }
    }
}

impl Default for Resumption {
    fn default() -> Self {
        Self::new()
    }
}

pub(super) fn build(settings: &TlsSettings, material: &Material, resumption: &Resumption) -> Result<ServerConfig, TlsError> {
    let (provider, _) = provider(settings);
    build_with(settings, material, resumption, verifier(settings, material, provider)?)
}

/// With what is to check the certificates of those who connect.
pub(super) fn build_with(
    settings: &TlsSettings,
    material: &Material,
    resumption: &Resumption,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, TlsError> {
    let (provider, versions) = provider(settings);
    let builder = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| suites_refused(&error))?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let identity = Arc::new(SingleCertAndKey::from(material.identity.clone()));
    let mut config = builder.with_cert_resolver(identity);
    config.ignore_client_order = settings.prefer_server_cipher_suites;
    config.session_storage = Arc::clone(&resumption.sessions);
    match &resumption.tickets {
        Some(tickets) => config.ticketer = Arc::clone(tickets),
        // Those of TLS 1.3 would stand for sessions that nobody keeps.
        None => config.send_tls13_tickets = 0,
    }
    Ok(config)
}

pub(super) fn suites_refused(error: &rustls::Error) -> TlsError {
    TlsError { part: Part::CipherSuites, message: format!("{error}") }
}

/// What checks the certificates of those who connect; `None` where nobody is asked for one.
pub(super) fn verifier(
    settings: &TlsSettings,
    material: &Material,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let (mode, Some(truststore)) = (settings.client_authentication, &settings.truststore) else { return Ok(None) };
    if mode == ClientAuthentication::None {
        return Ok(None);
    }
    let refuse = |message: String| TlsError::new(Part::Truststore, &truststore.path, message);
    // With lists, every issuer of a chain needs one: a certificate of unknown status is refused.
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots(settings, material)?, provider)
        .with_crls(material.crls.iter().cloned());
    if mode == ClientAuthentication::Optional {
        verifier = verifier.allow_unauthenticated();
    }
    let crl_refused = |error| match settings.crls.first() {
        Some(path) => TlsError::new(Part::Crl(0), path, error),
        None => refuse(format!("{error}")),
    };
    verifier.build().map(Some).map_err(crl_refused)
}

/// The certificates of the trust store.
pub(super) fn roots(settings: &TlsSettings, material: &Material) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for anchor in &material.anchors {
        roots.add(anchor.clone()).map_err(|error| {
            let path = settings.truststore.as_ref().map_or(&settings.keystore.path, |store| &store.path);
            TlsError::new(Part::Truststore, path, format!("a certificate cannot be trusted in: {error}"))
        })?;
    }
    Ok(Arc::new(roots))
}

/// The cipher suites of the settings, and the protocol versions that they leave.
pub(super) fn provider(settings: &TlsSettings) -> (Arc<CryptoProvider>, Vec<&'static SupportedProtocolVersion>) {
    let mut provider = default_provider();
    if !settings.cipher_suites.is_empty() {
        provider.cipher_suites.clone_from(&settings.cipher_suites);
    }
    let versions = versions(settings, &provider);
    (Arc::new(provider), versions)
}

/// Protocol versions that are asked for and have a cipher suite: one without would be negotiated and then fail.
fn versions(settings: &TlsSettings, provider: &CryptoProvider) -> Vec<&'static SupportedProtocolVersion> {
    [(&TLS13, settings.tls_1_3), (&TLS12, settings.tls_1_2)]
        .into_iter()
        .filter(|(version, wanted)| *wanted && provider.cipher_suites.iter().any(|suite| suite.version() == *version))
        .map(|(version, _)| version)
        .collect()
}
