//! The `tls` block of a listener.

use super::*;
use crate::config::render;
use crate::config::settings::ClientAuthentication;
use crate::config::tls::fixture::{Ca, put};

/// A file with a TLS listener; its block begins in line 5.
fn tls_file(block: &str) -> String {
    format!(
        "<hivemq>\n<listeners>\n<tls-tcp-listener><port>8883</port><bind-address>127.0.0.1</bind-address>\n<proxy-protocol>true\
         </proxy-protocol><tls>\n{block}</tls></tls-tcp-listener></listeners></hivemq>"
    )
}

#[test]
fn a_tls_block_arrives_in_the_settings() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let keystore = put(directory.path(), "server store.p12", ca.server().pkcs12("key password", &[]));
    let truststore = put(directory.path(), "ca.pem", ca.certificate.pem());
    let crl = put(directory.path(), "crl.pem", ca.revocation_list(&[7]));
    let xml = tls_file(&format!(
        "<keystore><path>{}</path><password>key password</password><private-key-password>key password</private-key-password></keystore>
         <truststore><path>{}</path><crl>{}</crl></truststore><client-authentication-mode>REQUIRED</client-authentication-mode>
         <protocols><protocol>TLSv1.3</protocol></protocols>
         <cipher-suites><cipher-suite>TLS_AES_128_GCM_SHA256</cipher-suite></cipher-suites>
         <prefer-server-cipher-suites>true</prefer-server-cipher-suites><handshake-timeout>500</handshake-timeout>",
        keystore.display(),
        truststore.display(),
        crl.display()
    ));
    let outcome = check_text(&xml);
    let settings = outcome.settings.unwrap_or_else(|| panic!("{:?}", outcome.errors));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let listener = &settings.listeners[0];
    assert_eq!((listener.name.as_str(), listener.proxy_protocol), ("tls-tcp-listener-8883", true));
    let tls = listener.tls.as_deref().unwrap();
    assert_eq!((&tls.keystore.path, tls.keystore.password.expose()), (&keystore, "key password"));
    assert_eq!((&tls.truststore.as_ref().unwrap().path, &tls.crls), (&truststore, &vec![crl]));
    assert_eq!(tls.client_authentication, ClientAuthentication::Required);
    assert_eq!((tls.tls_1_2, tls.tls_1_3, tls.prefer_server_cipher_suites, tls.handshake_timeout_ms), (false, true, true, 500));
    assert_eq!(tls.cipher_suites.len(), 1);
    let rendered = render(&settings);
    assert!(
        rendered.contains("MQTT over TCP and TLS on 127.0.0.1:8883, client certificate required, PROXY protocol"),
        "{rendered}"
    );
    assert!(!rendered.contains("key password"), "{rendered}");

    // With certificates required, nobody is let in without credentials.
    assert!(check_text(&xml.replace("127.0.0.1", "0.0.0.0")).settings.is_some());
    let optional = xml.replace("127.0.0.1", "0.0.0.0").replace("REQUIRED", "OPTIONAL");
    assert!(error(&optional).contains("allow-anonymous"));
}

#[test]
fn a_tls_block_that_cannot_be_served_is_refused_with_line_and_element() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let store = put(directory.path(), "s.p12", ca.server().pkcs12("right", &[]));
    let store = store.display();
    let jks = put(directory.path(), "s.jks", b"\xFE\xED\xFE\xED");
    let good = format!("<keystore><path>{store}</path><password>right</password></keystore>");
    let cases = [
        (String::new(), "c.xml:4: <listeners/tls-tcp-listener/tls/keystore>: the element <path> is missing"),
        (
            format!("<keystore>\n<path>{store}</path>\n<password>wrong</password></keystore>"),
            "c.xml:7: <listeners/tls-tcp-listener/tls/keystore/password>:",
        ),
        (format!("<keystore>\n<path>{store}</path></keystore>"), "c.xml:5: <listeners/tls-tcp-listener/tls/keystore/password>:"),
        (
            "<keystore>\n<path>absent.p12</path></keystore>".to_owned(),
            "c.xml:6: <listeners/tls-tcp-listener/tls/keystore/path>: absent.p12: cannot be read",
        ),
        (
            format!("<keystore>\n<path>{}</path></keystore>", jks.display()),
            "c.xml:6: <listeners/tls-tcp-listener/tls/keystore/path>:",
        ),
        (
            format!("{good}\n<client-authentication-mode>OPTIONAL</client-authentication-mode>"),
            "c.xml:4: <listeners/tls-tcp-listener/tls/truststore>: without",
        ),
        (
            format!("{good}\n<truststore>\n<path>{store}</path><password>wrong</password></truststore>"),
            "c.xml:7: <listeners/tls-tcp-listener/tls/truststore/password>:",
        ),
        (
            format!("{good}<truststore><path>{store}</path><password>right</password>\n<crl>absent.crl</crl></truststore>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/truststore/crl>: absent.crl",
        ),
        (
            format!("{good}<protocols>\n<protocol>TLSv1.1</protocol></protocols>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/protocols/protocol>: found \"TLSv1.1\"; allowed: TLSv1.2 or TLSv1.3",
        ),
        (
            format!("{good}<cipher-suites>\n<cipher-suite>TLS_RSA_WITH_AES_128_CBC_SHA</cipher-suite></cipher-suites>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/cipher-suites/cipher-suite>: found \"TLS_RSA_WITH_AES_128_CBC_SHA\"; allowed: TLS_AES",
        ),
        (
            format!("{good}<client-authentication-mode>SOMETIMES</client-authentication-mode>"),
            "c.xml:5: <listeners/tls-tcp-listener/tls/client-authentication-mode>: found",
        ),
        (
            format!("{good}<handshake-timeout>-1</handshake-timeout>"),
            "c.xml:5: <listeners/tls-tcp-listener/tls/handshake-timeout>: found",
        ),
    ];
    for (block, message) in cases {
        let found = error(&tls_file(&block));
        assert!(found.starts_with(message), "{found}");
        assert!(!found.contains("right") && !found.contains("wrong"), "{found}");
    }
    // A relative path starts where the configuration is.
    let config =
        put(directory.path(), "config.xml", tls_file("<keystore><path>s.p12</path><password>right</password></keystore>"));
    assert!(crate::config::load(&config, |_| None).is_ok());
}
