//! What a client's certificate says of the client.

use bytestring::ByteString;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::actor::transport::PeerCertificate;
use crate::config::tls::names;

/// Reads subject and alternative names of a certificate that was verified. What cannot be read counts as not there.
pub(super) fn facts(der: &[u8]) -> PeerCertificate {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return PeerCertificate::default() };
    let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).map(ByteString::from);
    let names = certificate.subject_alternative_name().ok().flatten();
    let names =
        names.iter().flat_map(|extension| &extension.value.general_names).filter_map(names::text).map(ByteString::from).collect();
    PeerCertificate { common_name, subject_alternative_names: Some(names) }
}
