//! What nodes talk to each other with. One certificate serves both ends: a node shows it when it dials and when it is dialed, so it has to be good
//! for both uses, and each end checks it in the same way. Who it is for is checked when the peer has said its name (`cluster::transport`): a
//! node is known by its name, and is dialed by addresses that come and go.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{Resumption as ClientResumption, verify_server_cert_signed_by_trust_anchor};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::server::{self, Resumption};
use super::{Material, Part, TlsError, names};
use crate::config::settings::TlsSettings;

/// Both ends of connections between nodes.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub server: Arc<ServerConfig>,
    pub client: Arc<ClientConfig>,
}

pub(super) fn build(settings: &TlsSettings, material: &Material) -> Result<NodeConfig, TlsError> {
    // Nothing is resumed: nodes dial seldom, and a certificate that was taken back must not come in by an old session.
    let (provider, versions) = server::provider(settings);
    let verifier = Arc::new(PeerVerifier::new(settings, material, Arc::clone(&provider))?);
    let server = server::build_with(settings, material, &Resumption::none(), Some(Arc::clone(&verifier) as _))?;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| server::suites_refused(&error))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(material.identity.clone())));
    client.resumption = ClientResumption::disabled();
    client.enable_sni = false;
    Ok(NodeConfig { server: Arc::new(server), client: Arc::new(client) })
}

/// What each end checks of the other's certificate: use by clients, revocation, and use by servers.
#[derive(Debug)]
struct PeerVerifier {
    as_client: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl PeerVerifier {
    fn new(settings: &TlsSettings, material: &Material, provider: Arc<CryptoProvider>) -> Result<Self, TlsError> {
        let roots = server::roots(settings, material)?;
        let as_client = server::verifier(settings, material, Arc::clone(&provider))?
            .ok_or_else(|| TlsError { part: Part::Truststore, message: "there is no trust store".to_owned() })?;
        Ok(Self { as_client, roots, provider })
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        self.as_client.verify_client_cert(end_entity, intermediates, now)
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.as_client.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.as_client.supported_verify_schemes()
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now).map(|_| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.as_client.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.as_client.supported_verify_schemes()
    }
}

/// What is wrong with a certificate; `Display` goes on from "its certificate".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Expired,
    NotYet,
    Untrusted,
    Revoked,
    Use,
    Other(String),
}

impl Fault {
    /// What a check of ours found.
    pub fn of(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Self::NotYet,
            // The second, where an authority of the same name and another key is trusted.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
            CertificateError::Revoked => Self::Revoked,
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => Self::Use,
            other => Self::Other(other.to_string()),
        }
    }

    /// What the check of the other end found, as far as it says; `None` for an alert about something else.
    pub fn of_alert(alert: AlertDescription) -> Option<Self> {
        Some(match alert {
            // Of a certificate that is not valid yet, too.
            AlertDescription::CertificateExpired => Self::Expired,
            AlertDescription::UnknownCA | AlertDescription::DecryptError => Self::Untrusted,
            AlertDescription::CertificateRevoked => Self::Revoked,
            AlertDescription::UnsupportedCertificate => Self::Use,
            AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => Self::Other("is not accepted".to_owned()),
            _ => return None,
        })
    }

    /// What is to be done at the node that shows the certificate.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Expired => "renew it, or set the clock",
            Self::NotYet => "set the clock",
            Self::Untrusted => "have it signed by an authority in <truststore>, or add its authority there, on all nodes",
            Self::Use => "have one made with the extended key usages server auth and client auth",
            Self::Revoked | Self::Other(_) => "have another one made",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "has expired",
            Self::NotYet => "is not valid yet",
            Self::Untrusted => "goes back to no certificate of the trust store",
            Self::Revoked => "is revoked",
            Self::Use => "is not for both uses, by servers and by clients",
            Self::Other(what) => what,
        })
    }
}

impl Material {
    /// What a node with the same trust store finds wrong with this one's certificate.
    pub fn own_fault(&self, settings: &TlsSettings, now: UnixTime) -> Option<Fault> {
        let (provider, _) = server::provider(settings);
        let verifier = PeerVerifier::new(settings, self, provider).ok()?;
        let (own, chain) = self.identity.cert.split_first()?;
        match verifier.verify(own, chain, now) {
            Ok(_) => None,
            Err(rustls::Error::InvalidCertificate(error)) => Some(Fault::of(&error)),
            Err(error) => Some(Fault::Other(error.to_string())),
        }
    }

    /// Names that this node's certificate is for.
    pub fn own_names(&self) -> Vec<String> {
        self.identity.cert.first().map_or_else(Vec::new, |own| names::of(own))
    }

    /// When this node's certificate ends, seconds since 1970.
    pub fn own_end_s(&self) -> Option<i64> {
        let own = self.identity.cert.first()?;
        let (_, certificate) = X509Certificate::from_der(own).ok()?;
        Some(certificate.validity().not_after.timestamp())
    }
}
