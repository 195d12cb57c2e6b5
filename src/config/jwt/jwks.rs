//! A JSON Web Key Set (RFC 7517), as an issuer publishes it. Keys of other kinds, for other uses and of no use are passed over and said.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::algorithm::Algorithm;
use super::key::{Key, Material};
use crate::config::diagnostic::quote;
use crate::config::limits::JWT_KEYS_MAX;

/// Bytes of a point's coordinate.
const P256_LEN: usize = 32;
const P384_LEN: usize = 48;
/// Keys passed over that are told where none is left.
const WARNINGS_MAX: usize = 5;

/// Whether a key is of use.
enum Read {
    Key(Key),
    PassedOver(String),
}

pub(super) fn parse(raw: &[u8]) -> Result<(Vec<Key>, Vec<String>), String> {
    // Where, but not what: a set may hold secrets.
    let value: Value = serde_json::from_slice(raw)
        .map_err(|error| format!("is no JSON from line {} column {} on", error.line(), error.column()))?;
    let Some(list) = value.get("keys").and_then(Value::as_array) else {
        return Err("is no key set; allowed: {\"keys\": [..]}".to_owned());
    };
    if list.len() > JWT_KEYS_MAX {
        return Err(format!("has {} keys; allowed: {JWT_KEYS_MAX}", list.len()));
    }
    let (mut keys, mut warnings) = (Vec::new(), Vec::new());
    for (index, entry) in list.iter().enumerate() {
        let Some(entry) = entry.as_object() else {
            warnings.push(format!("key {} is passed over: it is no object", index + 1));
            continue;
        };
        let text = |name: &str| entry.get(name).and_then(Value::as_str);
        let name = text("kid").map_or_else(|| format!("key {}", index + 1), |kid| format!("key {} {}", index + 1, quote(kid)));
        // One key of no use does not take the others away: the issuer signs by those, too.
        match key(entry).unwrap_or_else(|why| Read::PassedOver(format!("it {why}"))) {
            Read::Key(key) => {
                if text("kty") != Some("oct") && entry.contains_key("d") {
                    warnings.push(format!("{name} is a private key, which belongs to the issuer alone"));
                }
                keys.push(key);
            }
            Read::PassedOver(why) => warnings.push(format!("{name} is passed over: {why}")),
        }
    }
    if keys.is_empty() {
        const NONE: &str = "holds no key that verifies signatures; allowed: kty RSA, EC (P-256, P-384), OKP (Ed25519), oct";
        let told: Vec<&str> = [NONE].into_iter().chain(warnings.iter().map(String::as_str).take(WARNINGS_MAX)).collect();
        return Err(told.join("; "));
    }
    Ok((keys, warnings))
}

fn key(entry: &Map<String, Value>) -> Result<Read, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let bytes = |name: &str| {
        let text = text(name).ok_or_else(|| format!("has no {name}"))?;
        URL_SAFE_NO_PAD.decode(text).map_err(|_| format!("has a {name} that is not base64url"))
    };
    let pass = |why: String| Ok(Read::PassedOver(why));
    if let Some(other) = text("use").filter(|usage| *usage != "sig") {
        return pass(format!("its use is {}", quote(other)));
    }
    let operations = entry.get("key_ops").and_then(Value::as_array);
    // Issuers name their own side of a signature, too.
    if operations.is_some_and(|all| !all.iter().any(|one| one == "verify" || one == "sign")) {
        return pass("its key_ops have no \"verify\"".to_owned());
    }
    let point = |len: usize| {
        let (x, y) = (bytes("x")?, bytes("y")?);
        if x.len() != len || y.len() != len {
            return Err(format!("has coordinates of other than {len} bytes"));
        }
        Ok([&[4][..], &x, &y].concat())
    };
    let curve = text("crv").unwrap_or_default();
    let material = match text("kty").ok_or("has no kty")? {
        "RSA" => Material::rsa(&bytes("n")?, &bytes("e")?)?,
        "EC" if curve == "P-256" => Material::p256(&point(P256_LEN)?)?,
        "EC" if curve == "P-384" => Material::p384(&point(P384_LEN)?)?,
        "OKP" if curve == "Ed25519" => Material::ed25519(&bytes("x")?)?,
        "oct" => Material::Secret(Some(bytes("k")?).filter(|k| !k.is_empty()).ok_or("has an empty k")?.into()),
        kind => return pass(format!("kty {} with curve {} is not known here", quote(kind), quote(curve))),
    };
    let algorithm = match text("alg") {
        None => None,
        Some(name) => match Algorithm::named(name) {
            Some(algorithm) if material.algorithms().contains(&algorithm) => Some(algorithm),
            Some(_) => return Err(format!("has alg {}, which is not for its kty", quote(name))),
            None => return pass(format!("alg {} is not known here", quote(name))),
        },
    };
    Ok(Read::Key(Key { id: text("kid").map(str::to_owned), material, algorithm }))
}
