//! The compact form of a signed token (RFC 7515 section 3.1), and its signature.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use ring::hmac;
use ring::signature::{self as sig, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::{Map, Value};

use crate::config::jwt::{Algorithm, Key, Material};

/// A longer one is none, bytes.
pub(super) const TOKEN_LEN_MAX: usize = 16 * 1024;

/// A token whose signature nobody has looked at.
pub(super) struct Token {
    header: Map<String, Value>,
    /// `header.payload`, as they came.
    signed: Bytes,
    /// Where in `signed` the payload begins.
    payload_at: usize,
    signature: Vec<u8>,
}

impl Token {
    /// `None`: it is something else.
    pub(super) fn parse(text: &Bytes) -> Option<Self> {
        if text.len() > TOKEN_LEN_MAX {
            return None;
        }
        let mut dots = text.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at);
        let (first, second) = (dots.next()?, dots.next()?);
        if dots.next().is_some() {
            return None;
        }
        let header = object(text.get(..first)?)?;
        let signature = URL_SAFE_NO_PAD.decode(text.get(second + 1..)?).ok()?;
        // Looked into only once the signature fits.
        let payload = text.get(first + 1..second)?;
        if payload.is_empty() || !payload.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
            return None;
        }
        Some(Self { header, signed: text.slice(..second), payload_at: first + 1, signature })
    }

    /// The claims, where one of the keys has signed them by an algorithm that is its own and allowed.
    pub(super) fn claims(&self, keys: &[Key], allowed: &[Algorithm]) -> Option<Map<String, Value>> {
        // RFC 7515 section 4.1.11: what must be understood and is not.
        if self.header.contains_key("crit") {
            return None;
        }
        let algorithm = Algorithm::named(self.header.get("alg")?.as_str()?).filter(|algorithm| allowed.contains(algorithm))?;
        let id = match self.header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str()?),
        };
        let may_fit = |key: &&Key| key.serves(algorithm) && id.zip(key.id.as_deref()).is_none_or(|(asked, own)| asked == own);
        keys.iter()
            .filter(may_fit)
            .any(|key| verify(&key.material, algorithm, &self.signed, &self.signature))
            .then(|| object(self.signed.get(self.payload_at..)?))
            .flatten()
    }
}

fn object(text: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
}

fn verify(key: &Material, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
    use Algorithm as A;
    let secret = |algorithm, secret: &[u8]| hmac::verify(&hmac::Key::new(algorithm, secret), signed, signature).is_ok();
    let rsa = |parameters: &sig::RsaParameters, n: &[u8], e: &[u8]| {
        RsaPublicKeyComponents { n, e }.verify(parameters, signed, signature).is_ok()
    };
    let public = |algorithm: &'static dyn sig::VerificationAlgorithm, key: &[u8]| {
        UnparsedPublicKey::new(algorithm, key).verify(signed, signature).is_ok()
    };
    match (key, algorithm) {
        (Material::Secret(key), A::Hs256) => secret(hmac::HMAC_SHA256, key),
        (Material::Secret(key), A::Hs384) => secret(hmac::HMAC_SHA384, key),
        (Material::Secret(key), A::Hs512) => secret(hmac::HMAC_SHA512, key),
        (Material::Rsa { n, e }, A::Rs256) => rsa(&sig::RSA_PKCS1_2048_8192_SHA256, n, e),
        (Material::Rsa { n, e }, A::Rs384) => rsa(&sig::RSA_PKCS1_2048_8192_SHA384, n, e),
        (Material::Rsa { n, e }, A::Rs512) => rsa(&sig::RSA_PKCS1_2048_8192_SHA512, n, e),
        (Material::Rsa { n, e }, A::Ps256) => rsa(&sig::RSA_PSS_2048_8192_SHA256, n, e),
        (Material::Rsa { n, e }, A::Ps384) => rsa(&sig::RSA_PSS_2048_8192_SHA384, n, e),
        (Material::Rsa { n, e }, A::Ps512) => rsa(&sig::RSA_PSS_2048_8192_SHA512, n, e),
        (Material::P256(point), A::Es256) => public(&sig::ECDSA_P256_SHA256_FIXED, point),
        (Material::P384(point), A::Es384) => public(&sig::ECDSA_P384_SHA384_FIXED, point),
        (Material::Ed25519(key), A::EdDsa) => public(&sig::ED25519, key),
        // A signature of another kind than the key's is none.
        (Material::Secret(_) | Material::Rsa { .. } | Material::P256(_) | Material::P384(_) | Material::Ed25519(_), _) => false,
    }
}
