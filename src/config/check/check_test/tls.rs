//! The `tls` block of a listener, and that of the cluster's transport.

use super::*;
use crate::config::render;
use crate::config::settings::ClientAuthentication;
use crate::config::tls::fixture::{Ca, Identity, put};

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

/// Files of a node, and what may stand in `<tls>` for them.
struct NodeFiles {
    directory: tempfile::TempDir,
    ca: Ca,
}

impl NodeFiles {
    fn new() -> Self {
        let (directory, ca) = (tempfile::TempDir::new().unwrap(), Ca::new("ca"));
        put(directory.path(), "ca.crt", ca.certificate.pem());
        Self { directory, ca }
    }

    /// A configuration in which the node shows that certificate.
    fn file(&self, identity: &Identity, more: &str) -> String {
        put(self.directory.path(), "tls.crt", identity.certificate.pem());
        put(self.directory.path(), "tls.key", identity.key.serialize_pem());
        self.with(more)
    }

    fn with(&self, more: &str) -> String {
        let at = |name: &str| self.directory.path().join(name).display().to_string();
        let (certificate, key, ca) = (at("tls.crt"), at("tls.key"), at("ca.crt"));
        cluster_file("").replace(
            "</tcp>",
            &format!(
                "<tls>\n<keystore>\n<path>{certificate}</path>\n<private-key-path>{key}</private-key-path></keystore>\n<truststore>\n<path>{ca}\
                 </path></truststore>{more}</tls></tcp>"
            ),
        )
    }
}

#[test]
fn tls_between_nodes_arrives_in_the_settings() {
    let files = NodeFiles::new();
    let identity = files.ca.node(&["n1"], 1);
    let outcome = check_text(&files.file(&identity, ""));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let settings = outcome.settings.unwrap_or_else(|| panic!("{:?}", outcome.errors));
    let tls = settings.cluster.tls.as_ref().unwrap();
    assert_eq!((tls.hostname_verification, tls.optional, tls.domains.len()), (true, false, 0));
    assert_eq!(tls.files.client_authentication, ClientAuthentication::Required);
    assert_eq!((tls.files.tls_1_2, tls.files.tls_1_3, tls.files.handshake_timeout_ms), (true, true, 2_000));
    assert_eq!(tls.names_of("n2"), ["n2"]);
    let line = |settings: &Settings| {
        let rendered = render(settings);
        let line = rendered.lines().find(|line| line.contains("transport/tcp/tls")).unwrap().to_owned();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line(&settings), "on");
    assert_eq!(line(&check_text(&cluster_file("")).settings.unwrap()), "off: nodes do not encrypt what they say");

    let changing = check_text(&files.file(&identity, "<optional>true</optional><handshake-timeout>500</handshake-timeout>"));
    assert!(changing.warnings[0].to_string().contains("<cluster/transport/tcp/tls/optional>: connections without TLS are taken"));
    assert_eq!(line(&changing.settings.unwrap()), "optional: plain connections are taken and made too");
    // Off, it is not looked into.
    let off = "<tls><enabled>false</enabled><keystore><path>absent.p12</path></keystore></tls></tcp>";
    let off = check_text(&cluster_file("").replace("</tcp>", off));
    assert!(off.settings.unwrap().cluster.tls.is_none());
    let alone = files.with("").replace(".crt</path>", ".absent</path>").replacen("true", "false", 1);
    assert!(check_text(&alone).settings.unwrap().cluster.tls.is_none(), "without a cluster nobody needs it");
    // As with <udp>, which is treated as <tcp>.
    let udp = files.with("").replace("tcp>", "udp>").replace("udp></udp-", "tcp></tcp-");
    assert!(check_text(&udp).settings.unwrap().cluster.tls.is_some());
}

#[test]
fn nodes_may_be_named_within_the_domain_of_their_cluster() {
    let files = NodeFiles::new();
    let domains = |from: &str, to: &str| {
        let text = files.file(&files.ca.node(&["*.peers", "n1.example", "n1"], 1), "").replace(from, to);
        check_text(&text).settings.unwrap().cluster.tls.unwrap().domains
    };
    let port = "<bind-port>7001</bind-port>";
    assert_eq!(domains(port, &format!("{port}<external-address>n1.peers</external-address>")), ["peers"]);
    assert_eq!(domains(port, &format!("{port}<external-address>n1peers</external-address>")), [""; 0]);
    assert_eq!(domains(port, &format!("{port}<external-address>n2.peers</external-address>")), [""; 0]);
    assert_eq!(domains("<host>127.0.0.1</host>", "<host>n1.example</host>"), ["example"]);
    let found = "<extension><address>peers</address></extension>";
    assert_eq!(domains("<static>", &format!("{found}<static>")), ["peers"]);
}

#[test]
fn files_that_no_node_can_talk_with_are_refused_with_line_and_element() {
    let files = NodeFiles::new();
    let good = files.file(&files.ca.node(&["n1"], 1), "");
    let at = |name: &str| files.directory.path().join(name).display().to_string();
    let other = put(files.directory.path(), "other.key", files.ca.node(&["n1"], 1).key.serialize_pem()).display().to_string();
    let within = "<cluster/transport/tcp/tls";
    for (from, to, message) in [
        (
            format!("<path>{}</path>", at("tls.crt")),
            String::new(),
            format!("c.xml:4: {within}/keystore>: the element <path> is missing"),
        ),
        (at("tls.crt"), at("absent.crt"), format!("c.xml:5: {within}/keystore/path>: {}: cannot be read", at("absent.crt"))),
        (at("tls.key"), at("absent.key"), format!("c.xml:6: {within}/keystore/private-key-path>: {}: cannot", at("absent.key"))),
        (at("tls.key"), other, format!("c.xml:5: {within}/keystore/path>: {}: the private key belongs to none", at("tls.crt"))),
        (at("ca.crt"), at("absent.ca"), format!("c.xml:8: {within}/truststore/path>: {}: cannot be read", at("absent.ca"))),
        (
            format!("<truststore>\n<path>{}</path></truststore>", at("ca.crt")),
            String::new(),
            format!("c.xml:3: {within}/truststore>: without the certificates that those of the nodes go back to"),
        ),
        (
            "</truststore>".to_owned(),
            "</truststore><client-authentication-mode>NONE</client-authentication-mode>".to_owned(),
            format!("c.xml:8: {within}/client-authentication-mode>: found \"NONE\"; allowed: REQUIRED"),
        ),
        (
            "</truststore>".to_owned(),
            "</truststore><handshake-timeout>0</handshake-timeout>".to_owned(),
            format!("c.xml:8: {within}/handshake-timeout>: found \"0\"; allowed: a whole number from 100 to 60000"),
        ),
    ] {
        let found = error(&good.replace(&from, &to));
        assert!(found.starts_with(&message), "{found}\n{message}");
    }
    // What is good for servers alone is of no use to a node that dials.
    let server = error(&files.file(&files.ca.server(), "<hostname-verification>false</hostname-verification>"));
    assert!(
        server.contains("/keystore/path>: the other nodes are going to refuse this one: its certificate is not for both uses"),
        "{server}"
    );
    assert!(server.contains("server auth and client auth"), "{server}");
}

#[test]
fn a_certificate_that_the_other_nodes_will_refuse_is_warned_of() {
    let files = NodeFiles::new();
    let warned = |identity: &Identity, more: &str| {
        let outcome = check_text(&files.file(identity, more));
        assert!(outcome.settings.is_some(), "{:?}", outcome.errors);
        outcome.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expired = warned(&files.ca.expired_node(&["n1"]), "");
    assert_eq!(expired.len(), 1, "{expired:?}");
    assert!(expired[0].contains("<cluster/transport/tcp/tls/keystore/path>: the other nodes are going to refuse this one: its certificate has expired; renew it"));
    let untrusted = warned(&Ca::new("other").node(&["n1"], 1), "");
    assert!(
        untrusted.len() == 1 && untrusted[0].contains("its certificate goes back to no certificate of the trust store"),
        "{untrusted:?}"
    );
    let other = files.ca.node(&["n2", "n1.example"], 1);
    let named = warned(&other, "");
    assert!(
        named.len() == 1 && named[0].contains("its certificate is for n2, n1.example; allowed: the name of the node, n1;"),
        "{named:?}"
    );
    assert!(warned(&other, "<hostname-verification>false</hostname-verification>").is_empty());
    assert!(warned(&files.ca.node(&[], 1), "")[0].contains("its certificate is for no DNS name;"));
}

#[test]
fn the_block_of_the_documentation_is_one() {
    const TEXT: &str = include_str!("../../../../docs/node-tls.md");
    let example = TEXT.split("```xml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let block = &example[example.find("<tls>").unwrap()..example.find("</tcp>").unwrap()];
    let files = NodeFiles::new();
    let identity = files.ca.node(&["n1"], 1);
    let home = files.directory.path();
    put(home, "node1.crt", identity.certificate.pem());
    put(home, "node1.key", identity.key.serialize_pem());
    put(home, "ca.pem", files.ca.certificate.pem());
    let config = put(home, "config.xml", cluster_file("").replace("</tcp>", &format!("{block}</tcp>")));
    let loaded = crate::config::load(&config, |_| None).unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.warnings.is_empty() && loaded.settings.cluster.tls.is_some(), "{:?}", loaded.warnings);
    let own = ["enabled", "truststore", "client-authentication-mode", "hostname-verification", "optional", "handshake-timeout"];
    for element in own {
        assert!(TEXT.contains(&format!("| `{element}` |")), "{element} is in no table");
        assert!(rules::find(&format!("cluster/transport/tcp/tls/{element}")).is_some(), "{element}");
    }
}
