use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::fixture::{Ca, put, settings, store};
use super::*;
use crate::config::settings::{ClientAuthentication, TlsSettings};

/// Length of the chain that would be served.
fn load(settings: &TlsSettings) -> Result<usize, TlsError> {
    let material = Files::read(settings)?.parse(settings)?;
    server_config(settings, &material, &Resumption::none())?;
    Ok(material.identity.cert.len())
}

#[track_caller]
fn refused(settings: &TlsSettings, part: Part, says: &str) {
    let error = load(settings).expect_err("refused");
    assert_eq!(error.part, part, "{error}");
    assert!(error.message.contains(says), "{error}");
}

#[test]
fn a_key_store_is_pem_in_one_file_or_two_or_pkcs12() {
    let directory = TempDir::new().unwrap();
    let root = Ca::new("root");
    let between = root.intermediate("between");
    let server = between.server();
    let own = server.certificate.pem();
    let chain = between.certificate.pem();
    let key = server.key.serialize_pem();
    for (name, content) in [
        ("chain.pem", format!("{own}{chain}{key}")),
        ("key-first.pem", format!("Bag Attributes\n    friendlyName: x\n{key}{own}{chain}")),
        ("wrong-order.pem", format!("{chain}{own}{key}")),
    ] {
        assert_eq!(load(&settings(store(put(directory.path(), name, content), ""))), Ok(2), "{name}");
    }
    let mut apart = settings(store(put(directory.path(), "tls.crt", format!("{own}{chain}")), ""));
    apart.private_key_path = Some(put(directory.path(), "tls.key", &key));
    assert_eq!(load(&apart), Ok(2));
    let pkcs12 = put(directory.path(), "s.p12", server.pkcs12("secret", &[&between.certificate]));
    assert_eq!(load(&settings(store(pkcs12.clone(), "secret"))), Ok(2));
    refused(&settings(store(pkcs12, "other")), Part::KeystorePassword, "the password does not fit");
}

/// Made by `keytool` of JDK 17 and `openssl pkcs12` 3.0, all with the password `changeit`.
#[test]
fn stores_of_keytool_and_openssl_are_read() {
    let directory = TempDir::new().unwrap();
    let put = |name: &str, content: &[u8]| put(directory.path(), name, content);
    let keytool = put("keytool.p12", include_bytes!("fixtures/keytool.p12"));
    let legacy = put("legacy.p12", include_bytes!("fixtures/openssl-legacy.p12"));
    let keytool_trust = put("keytool-trust.p12", include_bytes!("fixtures/keytool-trust.p12"));
    let openssl_trust = put("openssl-trust.p12", include_bytes!("fixtures/openssl-trust.p12"));
    for keystore in [&keytool, &legacy] {
        for truststore in [&keytool_trust, &openssl_trust] {
            let mut settings = settings(store(keystore.clone(), "changeit"));
            settings.truststore = Some(store(truststore.clone(), "changeit"));
            settings.client_authentication = ClientAuthentication::Required;
            assert_eq!(load(&settings), Ok(1), "{settings:?}");
            settings.truststore = Some(store(truststore.clone(), "changed"));
            refused(&settings, Part::TruststorePassword, "the password does not fit");
        }
        refused(&settings(store(keystore.clone(), "changed")), Part::KeystorePassword, "the password does not fit");
    }
}

#[test]
fn what_is_no_key_store_is_refused_with_what_to_do() {
    let directory = TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let (server, other) = (ca.server(), ca.server());
    let own = server.certificate.pem();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let cases: &[(&str, Vec<u8>, &str)] = &[
        ("jks", b"\xFE\xED\xFE\xED\x00\x00\x00\x02".to_vec(), "-deststoretype pkcs12"),
        ("jceks", b"\xCE\xCE\xCE\xCE\x00\x00\x00\x02".to_vec(), "-deststoretype pkcs12"),
        ("nothing", Vec::new(), "neither PKCS12 nor PEM"),
        ("text", b"hello".to_vec(), "neither PKCS12 nor PEM"),
        ("der", b"\x30\x03\x02\x01\x03".to_vec(), "cannot be read as PKCS12"),
        ("cut", server.pkcs12("", &[])[..100].to_vec(), "cannot be read as PKCS12"),
        ("no key", own.clone().into_bytes(), "holds no private key"),
        ("no certificate", server.key.serialize_pem().into_bytes(), "holds no certificate"),
        ("another key", format!("{own}{}", other.key.serialize_pem()).into_bytes(), "belongs to none of the certificates"),
        ("encrypted", format!("{own}{encrypted}").into_bytes(), "openssl pkey"),
        ("bad base64", b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n".to_vec(), "no valid PEM"),
    ];
    for (name, content, says) in cases {
        refused(&settings(store(put(directory.path(), name, content), "")), Part::Keystore, says);
    }
    refused(&settings(store(directory.path().join("absent"), "")), Part::Keystore, "cannot be read");
    refused(&settings(store(directory.path().to_owned(), "")), Part::Keystore, "cannot be read");
    let mut apart = settings(store(put(directory.path(), "c", &own), ""));
    apart.private_key_path = Some(put(directory.path(), "k", &own));
    refused(&apart, Part::PrivateKey, "holds no private key");
}

#[test]
fn trust_stores_and_revocation_lists_are_checked() {
    let directory = TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let mut settings = settings(store(put(directory.path(), "s.pem", ca.server().pem()), ""));
    settings.client_authentication = ClientAuthentication::Required;
    settings.truststore = Some(store(put(directory.path(), "empty", "-----BEGIN X-----\n"), ""));
    assert!(load(&settings).is_err_and(|error| error.part == Part::Truststore));
    settings.truststore = Some(store(put(directory.path(), "ca.pem", ca.certificate.pem()), ""));
    settings.crls = vec![put(directory.path(), "crl.pem", ca.revocation_list(&[]))];
    assert_eq!(load(&settings), Ok(1));
    settings.crls.push(put(directory.path(), "no.crl", "-----BEGIN X-----\n-----END X-----\n"));
    refused(&settings, Part::Crl(1), "holds no certificate revocation list");
    settings.crls = vec![put(directory.path(), "garbage.crl", "garbage")];
    refused(&settings, Part::Crl(0), "could not be parsed");
}

#[test]
fn cipher_suites_and_protocols_must_go_together() {
    let directory = TempDir::new().unwrap();
    let mut settings = settings(store(put(directory.path(), "s.pem", Ca::new("ca").server().pem()), ""));
    settings.cipher_suites = vec![suites::find("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256").unwrap()];
    assert_eq!(load(&settings), Ok(1), "TLS 1.3 has no suite left and is not served");
    settings.tls_1_2 = false;
    assert!(load(&settings).is_err_and(|error| error.part == Part::CipherSuites));
}

#[test]
fn a_fingerprint_changes_with_the_content_also_behind_links() {
    let directory = TempDir::new().unwrap();
    for generation in ["1", "2"] {
        fs::create_dir(directory.path().join(generation)).unwrap();
        put(&directory.path().join(generation), "tls.pem", generation);
    }
    // As the kubelet lays secrets out: a link to the file, over a link to the directory that is swapped.
    let data = directory.path().join("data");
    symlink("1", &data).unwrap();
    let path = directory.path().join("tls.pem");
    symlink("data/tls.pem", &path).unwrap();
    let fingerprint = || Files::read(&settings(store(path.clone(), ""))).unwrap().fingerprint();
    let first = fingerprint();
    assert_eq!(fingerprint(), first);
    fs::remove_file(&data).unwrap();
    symlink("2", &data).unwrap();
    assert_ne!(fingerprint(), first);
}

#[test]
fn passwords_are_not_printed() {
    let settings = settings(store("x".into(), "hidden-word"));
    assert!(!format!("{settings:?}").contains("hidden-word"));
}
