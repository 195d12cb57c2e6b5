//! Keys that tokens are verified by, from secrets and from PEM. What signature a key verifies follows from its kind alone: a public key is
//! never a secret, so that nobody signs with what everybody knows.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::agreement;
use ring::rand::SystemRandom;
use tokio_rustls::rustls::pki_types::pem::{PemObject, SectionKind};
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::algorithm::Algorithm;
use Algorithm as A;

/// Bits of an RSA modulus; weaker ones are refused, larger ones take too long.
const RSA_BITS_MIN: usize = 2048;
const RSA_BITS_MAX: usize = 8192;
/// Bytes of a secret: what is shorter than the hash can be guessed from any token (RFC 7518 section 3.2).
const SECRET_LEN_MIN: usize = 32;
const OID_ED25519: &str = "1.3.101.112";

/// A key that is fit for use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `kid` of a JWKS.
    pub id: Option<String>,
    pub material: Material,
    /// Where its JWKS narrows it.
    pub algorithm: Option<Algorithm>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    Secret(Box<[u8]>),
    /// Modulus and exponent, big-endian without leading zeros.
    Rsa {
        n: Box<[u8]>,
        e: Box<[u8]>,
    },
    /// Points, uncompressed.
    P256(Box<[u8]>),
    P384(Box<[u8]>),
    Ed25519(Box<[u8]>),
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "secret",
            Self::Rsa { .. } => "RSA",
            Self::P256(_) => "P-256",
            Self::P384(_) => "P-384",
            Self::Ed25519(_) => "Ed25519",
        })
    }
}

impl Material {
    /// What it verifies.
    pub fn algorithms(&self) -> &'static [Algorithm] {
        match self {
            Self::Secret(_) => &[A::Hs256, A::Hs384, A::Hs512],
            Self::Rsa { .. } => &[A::Rs256, A::Rs384, A::Rs512, A::Ps256, A::Ps384, A::Ps512],
            Self::P256(_) => &[A::Es256],
            Self::P384(_) => &[A::Es384],
            Self::Ed25519(_) => &[A::EdDsa],
        }
    }

    pub(super) fn rsa(n: &[u8], e: &[u8]) -> Result<Self, String> {
        let [n, e] = [n, e].map(without_zeros);
        let bits = n.len() * 8 - n.first().map_or(0, |first| first.leading_zeros() as usize);
        if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
            return Err(format!("is an RSA key of {bits} bits; allowed: {RSA_BITS_MIN} to {RSA_BITS_MAX}"));
        }
        let is_odd = |number: &[u8]| number.last().is_some_and(|last| last % 2 == 1);
        if !is_odd(n) || !is_odd(e) || e.len() > 4 || e == [1] {
            return Err("is no RSA key: modulus and exponent are odd, the exponent from 3 to 32 bits".to_owned());
        }
        Ok(Self::Rsa { n: n.into(), e: e.into() })
    }

    pub(super) fn p256(point: &[u8]) -> Result<Self, String> {
        on_curve(&agreement::ECDH_P256, point).map(Self::P256)
    }

    pub(super) fn p384(point: &[u8]) -> Result<Self, String> {
        on_curve(&agreement::ECDH_P384, point).map(Self::P384)
    }

    pub(super) fn ed25519(key: &[u8]) -> Result<Self, String> {
        if key.len() == 32 { Ok(Self::Ed25519(key.into())) } else { Err("is no Ed25519 key, which has 32 bytes".to_owned()) }
    }
}

impl Key {
    fn new(material: Material) -> Self {
        Self { id: None, material, algorithm: None }
    }

    /// Whether it verifies such signatures.
    pub fn serves(&self, algorithm: Algorithm) -> bool {
        self.material.algorithms().contains(&algorithm) && self.algorithm.is_none_or(|only| only == algorithm)
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

/// An agreement with a key of the moment fails where the other point is not on the curve.
fn on_curve(curve: &'static agreement::Algorithm, point: &[u8]) -> Result<Box<[u8]>, String> {
    let own = agreement::EphemeralPrivateKey::generate(curve, &SystemRandom::new())
        .map_err(|_| "cannot be checked: the system gives no random numbers".to_owned())?;
    agreement::agree_ephemeral(own, &agreement::UnparsedPublicKey::new(curve, point), |_| ())
        .map_err(|_| "is no point of its curve".to_owned())?;
    Ok(point.into())
}

/// A secret shared with the issuer.
pub(super) fn secret(text: &[u8], base64: bool) -> Result<(Vec<Key>, Vec<String>), String> {
    if text.windows(11).any(|window| window == b"-----BEGIN ") {
        let message = "is PEM, which is no secret: what a public key is used as, everybody could sign with; allowed: a public key in \
                       <public-key-file>, or a secret made by `openssl rand -base64 48`";
        return Err(message.to_owned());
    }
    let secret = if base64 {
        let text = text.trim_ascii();
        let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text));
        // What decoding says may repeat a character of the secret.
        decoded.map_err(|_| "is not base64, as <secret-base64> says".to_owned())?
    } else {
        text.to_vec()
    };
    if secret.is_empty() {
        return Err("is empty; make a secret: `openssl rand -base64 48`".to_owned());
    }
    let mut warnings = Vec::new();
    if secret.len() < SECRET_LEN_MIN {
        warnings.push(format!(
            "has {} bytes: whoever has a token may guess it; use {SECRET_LEN_MIN} or more, `openssl rand -base64 48`",
            secret.len()
        ));
    }
    Ok((vec![Key::new(Material::Secret(secret.into()))], warnings))
}

/// Public keys, and those of certificates, in PEM.
pub(super) fn pem(raw: &[u8]) -> Result<Vec<Key>, String> {
    const PUBLIC: &str = "allowed: a public key or a certificate in PEM; make one: `openssl pkey -in private.pem -pubout`";
    let (mut keys, mut certified) = (Vec::new(), false);
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(raw) {
        let (kind, der) = section.map_err(|_| format!("is no valid PEM; {PUBLIC}"))?;
        let material = match kind {
            SectionKind::PublicKey => spki(&der)?,
            // What follows the first one is its issuer's, who signs no tokens.
            SectionKind::Certificate if !certified => {
                certified = true;
                let (_, certificate) =
                    X509Certificate::from_der(&der).map_err(|_| format!("holds a broken certificate; {PUBLIC}"))?;
                spki(certificate.tbs_certificate.subject_pki.raw)?
            }
            SectionKind::RsaPrivateKey | SectionKind::PrivateKey | SectionKind::EcPrivateKey => {
                return Err(format!("holds a private key, which belongs to the issuer alone; {PUBLIC}"));
            }
            _ => continue,
        };
        keys.push(Key::new(material));
    }
    if keys.is_empty() {
        return Err(format!("holds no public key; {PUBLIC}"));
    }
    Ok(keys)
}

fn spki(der: &[u8]) -> Result<Material, String> {
    let (_, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| "holds a broken public key".to_owned())?;
    if spki.algorithm.algorithm.to_id_string() == OID_ED25519 {
        return Material::ed25519(&spki.subject_public_key.data);
    }
    match spki.parsed() {
        Ok(PublicKey::RSA(rsa)) => Material::rsa(rsa.modulus, rsa.exponent),
        Ok(PublicKey::EC(point)) => match point.data().len() {
            65 => Material::p256(point.data()),
            97 => Material::p384(point.data()),
            _ => Err("is on another curve than P-256 and P-384 (uncompressed)".to_owned()),
        },
        _ => Err("is of another kind than RSA, P-256, P-384 and Ed25519".to_owned()),
    }
}
