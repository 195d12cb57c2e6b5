//! Keys from files, and what is said of those that are of no use.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures").join(name)
}

fn none() -> KeySources {
    KeySources { secret: None, secret_file: None, secret_base64: false, public_keys: Vec::new(), jwks: None }
}

fn kinds(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| format!("{:?}", key.material)).collect()
}

#[test]
fn every_kind_of_key_is_read_and_serves_its_own_algorithms_alone() {
    let public_keys = ["rsa.pem", "rsa-certificate.pem", "p256.pem", "p384.pem", "ed25519.pem"].map(fixture).to_vec();
    let sources = KeySources { secret: Some(Secret::new("s".repeat(32))), public_keys, ..none() };
    let loaded = load(&sources).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert_eq!(kinds(&loaded.keys), ["secret", "RSA", "RSA", "P-256", "P-384", "Ed25519"]);
    assert_eq!(loaded.keys[1].material, loaded.keys[2].material, "the certificate is that key's");
    let served: Vec<_> = loaded.keys.iter().map(|key| Algorithm::ALL.iter().filter(|a| key.serves(**a)).count()).collect();
    assert_eq!(served, [3, 6, 6, 1, 1, 1]);
    for algorithm in Algorithm::ALL {
        assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
    }
    for no_name in ["none", "None", "hs256", "ES512", "", "HS256 "] {
        assert_eq!(Algorithm::named(no_name), None, "{no_name}");
    }
    assert!(!format!("{:?}{sources:?}", loaded.keys).contains("ssss"));
}

#[test]
fn a_set_has_keys_with_names_some_of_them_for_one_algorithm_only() {
    let loaded = load(&KeySources { jwks: Some(fixture("jwks.json")), ..none() }).unwrap();
    assert_eq!(kinds(&loaded.keys), ["RSA", "RSA", "P-256", "P-384", "Ed25519", "secret"]);
    let ids: Vec<_> = loaded.keys.iter().filter_map(|key| key.id.as_deref()).collect();
    assert_eq!(ids, ["rsa-1", "rsa-2", "P-256", "P-384", "ed", "shared"]);
    assert!(loaded.keys[0].serves(Algorithm::Rs256) && !loaded.keys[0].serves(Algorithm::Rs512));
    let pem = load(&KeySources { public_keys: vec![fixture("p384.pem")], ..none() }).unwrap();
    assert_eq!(pem.keys[0].material, loaded.keys[3].material);
}

#[test]
fn a_secret_ends_where_its_line_ends_and_may_stand_in_base64() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let read = |text: &[u8], secret_base64: bool| {
        fs::write(&path, text).unwrap();
        let loaded = load(&KeySources { secret_file: Some(path.clone()), secret_base64, ..none() });
        loaded.map(|loaded| (loaded.keys[0].material.clone(), loaded.warnings.len())).map_err(|all| all[0].message.clone())
    };
    let secret = |text: &[u8]| Material::Secret(text.into());
    let long = [b'x'; 32];
    assert_eq!(read(&long, false), Ok((secret(&long), 0)));
    assert_eq!(read(&[&long[..], b"\r\n"].concat(), false), Ok((secret(&long), 0)));
    assert_eq!(read(b"short \n", false), Ok((secret(b"short "), 1)), "with a warning");
    assert_eq!(read(b"AAECAw==\n", true), Ok((secret(&[0, 1, 2, 3]), 1)));
    assert_eq!(read(b"_-8", true), Ok((secret(&[0xff, 0xef]), 1)));
    for (text, base64, told) in [
        (&b"\n"[..], false, "is empty"),
        (b"not base64!", true, "is not base64"),
        (&fs::read(fixture("rsa.pem")).unwrap(), false, "is PEM, which is no secret"),
    ] {
        let message = read(text, base64).unwrap_err();
        assert!(message.contains(told) && message.starts_with(&path.display().to_string()), "{message}");
        assert!(!message.contains("not base64!"), "{message}");
    }
}

#[test]
fn a_file_that_is_of_no_use_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let put = |text: &str| {
        let path = folder.path().join("file");
        fs::write(&path, text).unwrap();
        path
    };
    let private = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let ec = fs::read_to_string(fixture("p256.pem")).unwrap();
    let pem = |text: &str| load(&KeySources { public_keys: vec![put(text)], ..none() });
    let table = [
        (load(&KeySources { public_keys: vec![fixture("no.pem")], ..none() }), "cannot be read"),
        (
            load(&KeySources { public_keys: vec![fixture("rsa-weak.pem")], ..none() }),
            "RSA key of 1024 bits; allowed: 2048 to 8192",
        ),
        (load(&KeySources { public_keys: vec![fixture("p521.pem")], ..none() }), "another curve"),
        (pem(&private), "private key, which belongs to the issuer alone; allowed: a public key"),
        (pem("secret"), "holds no public key; allowed: a public key"),
        (pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), "broken public key"),
        (pem("-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----\n"), "no valid PEM"),
        (pem(&ec[..ec.len() - 40]), "no valid PEM"),
    ];
    for (outcome, told) in table {
        let findings = outcome.unwrap_err();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].part, Part::PublicKeyFile(0));
        assert!(findings[0].message.contains(told), "{told}: {}", findings[0].message);
    }
}

#[test]
fn a_set_is_told_what_is_wrong_and_passes_over_what_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    let read = |keys: &str| {
        fs::write(&path, format!("{{\"keys\": [{keys}]}}")).unwrap();
        load(&KeySources { jwks: Some(path.clone()), ..none() })
    };
    let good = r#"{"kty": "oct", "k": "c2VjcmV0"}"#;
    let zeros = URL_SAFE_NO_PAD.encode([1; 32]);
    let point = format!(r#"{{"kty": "EC", "kid": "e", "crv": "P-256", "x": "{zeros}", "y": "{zeros}"}}"#);
    let wrong = [
        ("", "holds no key that verifies signatures"),
        ("1", "key 1 is passed over: it is no object"),
        (r#"{"kid": "a"}"#, "key 1 \"a\" is passed over: it has no kty"),
        (r#"{"kty": "oct"}"#, "has no k"),
        (r#"{"kty": "oct", "k": ""}"#, "has an empty k"),
        (r#"{"kty": "oct", "k": "hunter2!"}"#, "has a k that is not base64url"),
        (r#"{"kty": "RSA", "n": "AQAB", "e": "AQAB"}"#, "RSA key of 17 bits"),
        (r#"{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}"#, "coordinates of other than 32 bytes"),
        (&point, "no point of its curve"),
        (r#"{"kty": "OKP", "crv": "Ed25519", "x": "AQAB"}"#, "no Ed25519 key"),
        (r#"{"kty": "oct", "k": "c2VjcmV0", "alg": "RS256"}"#, "alg \"RS256\", which is not for its kty"),
        (&[good; 65].join(","), "has 65 keys; allowed: 64"),
    ];
    for (keys, told) in wrong {
        let findings = read(keys).unwrap_err();
        assert!(findings[0].message.contains(told), "{told}: {}", findings[0].message);
        assert!(findings[0].part == Part::JwksFile && !findings[0].message.contains("hunter2"));
        // Beside a good key it is passed over; an empty set and one that is too large are what they are.
        if !keys.is_empty() && !keys.contains(good) {
            let loaded = read(&format!("{keys}, {good}")).unwrap();
            assert_eq!((loaded.keys.len(), loaded.warnings.len()), (1, 1), "{keys}");
            assert!(loaded.warnings[0].message.contains(told), "{told}: {}", loaded.warnings[0].message);
        }
    }
    let passed_over = [
        r#"{"kty": "oct", "k": "c2VjcmV0", "use": "enc"}"#,
        r#"{"kty": "oct", "k": "c2VjcmV0", "key_ops": ["encrypt"]}"#,
        r#"{"kty": "oct", "k": "c2VjcmV0", "alg": "none"}"#,
        r#"{"kty": "EC", "crv": "P-521", "x": "", "y": ""}"#,
        r#"{"kty": "new"}"#,
    ];
    for key in passed_over {
        let loaded = read(&format!("{key}, {good}")).unwrap();
        assert_eq!((loaded.keys.len(), loaded.warnings.len()), (1, 1), "{key}");
        assert!(loaded.warnings[0].message.contains("key 1 is passed over"), "{}", loaded.warnings[0].message);
        assert!(read(key).is_err(), "{key}");
    }
    for text in ["{\"keys\": [", "[]", "{\"keys\": {}}", ""] {
        fs::write(&path, text).unwrap();
        let findings = load(&KeySources { jwks: Some(path.clone()), ..none() }).unwrap_err();
        let message = &findings[0].message;
        assert!(message.contains("is no JSON from line 1") || message.contains("is no key set"), "{message}");
    }
}
