//! An issuer of tokens.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// Seconds since the epoch, so many from now.
pub fn in_s(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(now.as_secs()).expect("a year of this era") + seconds
}

/// Signed with a shared secret, by HS256.
pub fn hs256(secret: &str, claims: &Value) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    compact(&json!({"alg": "HS256", "typ": "JWT"}), claims, |text| hmac::sign(&key, text).as_ref().to_vec())
}

/// Signs by ES256 with a key of its own.
pub struct Issuer {
    pair: EcdsaKeyPair,
    kid: &'static str,
}

impl Issuer {
    pub fn new(kid: &'static str) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).expect("a key");
        Self { pair, kid }
    }

    /// The key as a set has it.
    pub fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid, "x": x, "y": y})
    }

    pub fn token(&self, claims: &Value) -> String {
        compact(&json!({"alg": "ES256", "kid": self.kid}), claims, |text| {
            self.pair.sign(&SystemRandom::new(), text).expect("a signature").as_ref().to_vec()
        })
    }
}

fn compact(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(text.as_bytes()));
    format!("{text}.{signature}")
}
