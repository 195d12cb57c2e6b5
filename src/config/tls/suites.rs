//! Names of protocols and cipher suites: those of IANA, which are also the JVM's.

use tokio_rustls::rustls::SupportedCipherSuite;
use tokio_rustls::rustls::crypto::ring::ALL_CIPHER_SUITES;

/// Finds a cipher suite by its name, in any case.
pub fn find(name: &str) -> Option<SupportedCipherSuite> {
    ALL_CIPHER_SUITES.iter().copied().find(|suite| self::name(suite).eq_ignore_ascii_case(name))
}

/// `TLS_AES_128_GCM_SHA256` and the like.
pub fn name(suite: &SupportedCipherSuite) -> String {
    // rustls marks those of TLS 1.3 in their names; IANA does not.
    format!("{:?}", suite.suite()).replacen("TLS13_", "TLS_", 1)
}

/// All names, most wanted first.
pub fn names() -> Vec<String> {
    ALL_CIPHER_SUITES.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_go_by_their_iana_names() {
        for known in [
            "TLS_AES_128_GCM_SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "tls_ecdhe_rsa_with_chacha20_poly1305_sha256",
        ] {
            assert!(name(&find(known).unwrap()).eq_ignore_ascii_case(known));
        }
        for unknown in ["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS13_AES_128_GCM_SHA256", "", "AES"] {
            assert!(find(unknown).is_none(), "{unknown}");
        }
        assert_eq!(names().len(), ALL_CIPHER_SUITES.len());
    }
}
