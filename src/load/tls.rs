//! TLS of clients: whom they believe, and what they show of themselves.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{ClientConfig, Resumption};
use tokio_rustls::rustls::crypto::{self, CryptoProvider};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::Failure;
use super::tickets::Tickets;

/// Certificates of the authorities a system trusts, where distributions keep them.
const SYSTEM_ROOTS: [&str; 3] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// As the operator gives it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsPlan {
    /// PEM file of the authorities to believe; without it those of the system.
    pub ca_file: Option<PathBuf>,
    /// Believes any certificate.
    pub insecure: bool,
    /// PEM files of the certificate and key every client shows.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name the server's certificate must have; without it the host that is connected to.
    pub server_name: Option<String>,
    /// Clients share session tickets, as the gateways of a fleet that come back do; otherwise each makes a full handshake. In `connect` each
    /// has been there once before the storm.
    pub resume: bool,
}

/// How a connection becomes TLS.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    pub(super) resume: bool,
}

impl Tls {
    /// # Errors
    /// `Plan` for files that cannot be read or are not what they should be.
    pub(super) fn new(plan: &TlsPlan) -> Result<Self, Failure> {
        let provider = Arc::new(crypto::ring::default_provider());
        let wrong = |error: Error| Failure::Plan(format!("TLS: {error}"));
        let builder =
            ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions().map_err(wrong)?;
        let builder = if plan.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Believer(provider)))
        } else {
            builder.with_root_certificates(roots(plan.ca_file.as_deref())?)
        };
        let mut config = match &plan.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, "private key", &error))?;
                builder.with_client_auth_cert(certificates(certificate)?, key_der).map_err(wrong)?
            }
        };
        config.resumption = if plan.resume { Resumption::store(Arc::new(Tickets::new())) } else { Resumption::disabled() };
        let server_name = plan.server_name.as_deref().map(name).transpose()?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name, resume: plan.resume })
    }

    pub(super) fn server_name(&self, host: &str) -> Result<ServerName<'static>, Failure> {
        self.server_name.clone().map_or_else(|| name(host), Ok)
    }
}

fn name(host: &str) -> Result<ServerName<'static>, Failure> {
    ServerName::try_from(host.to_owned()).map_err(|_| Failure::Plan(format!("{host:?} is no name a certificate can have")))
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, Failure> {
    let file = match file {
        Some(file) => file,
        None => SYSTEM_ROOTS.into_iter().map(Path::new).find(|path| path.is_file()).ok_or_else(|| {
            Failure::Plan(
                "this system keeps no list of certificate authorities: give --ca-file, or --insecure to believe anybody".into(),
            )
        })?,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(file)?);
    if added == 0 {
        return Err(Failure::Plan(format!("{} holds no certificate of an authority", file.display())));
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(file, "certificate", &error))?;
    if certificates.is_empty() {
        return Err(Failure::Plan(format!("{} holds no certificate in PEM", file.display())));
    }
    Ok(certificates)
}

fn unreadable(file: &Path, what: &str, error: &impl ToString) -> Failure {
    Failure::Plan(format!("cannot read a {what} from {}: {}", file.display(), error.to_string()))
}

/// Believes everybody, as `--insecure` says; signatures are still checked, so that a handshake costs what it costs.
#[derive(Debug)]
struct Believer(Arc<CryptoProvider>);

impl ServerCertVerifier for Believer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
