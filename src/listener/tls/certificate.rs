//! What a client's certificate says of the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytestring::ByteString;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::actor::transport::PeerCertificate;

/// Reads subject and alternative names of a certificate that was verified. What cannot be read counts as not there.
pub(super) fn facts(der: &[u8]) -> PeerCertificate {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return PeerCertificate::default() };
    let common_name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).map(ByteString::from);
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|extension| &extension.value.general_names).filter_map(text).collect();
    PeerCertificate { common_name, subject_alternative_names: Some(names) }
}

/// DNS and IP names only (spec/hivemq.md 10.1).
fn text(name: &GeneralName<'_>) -> Option<ByteString> {
    match name {
        GeneralName::DNSName(name) => Some((*name).into()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|ip| IpAddr::from(Ipv6Addr::from(ip)))).ok()?;
            Some(ip.to_string().into())
        }
        _ => None,
    }
}
