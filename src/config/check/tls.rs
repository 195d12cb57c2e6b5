//! The `tls` block of a listener and of the cluster's transport (spec/hivemq.md 1.4). The files are opened too: a store that is missing or a password that does not fit
//! is found before the start.

use std::path::PathBuf;

use tokio_rustls::rustls::pki_types::UnixTime;

use super::view::View;
use crate::config::settings::{ClientAuthentication, NodeTlsSettings, Secret, StoreSettings, TlsSettings};
use crate::config::tls::{self, Fault, Files, Material, Part, Resumption, TlsError, names, suites};

/// Names of protocols as the JVM writes them.
const TLS_1_2: &str = "TLSv1.2";
const TLS_1_3: &str = "TLSv1.3";

/// Reads the block of a TLS listener; `None` after an error, which is in the report.
pub(super) fn read(listener: &View<'_>) -> Option<TlsSettings> {
    let tls = listener.at("tls");
    if !tls.exists() {
        listener
            .error("the element <tls> is missing; add <tls><keystore><path>..</path><password>..</password></keystore></tls>");
        return None;
    }
    let before = tls.report().errors();
    let settings = block(&tls, client_authentication(&tls), LISTENER_TRUST)?;
    if tls.report().errors() == before
        && let Err(error) = parsed(&settings).and_then(|material| server_config(&settings, &material))
    {
        tell(&tls, &error);
    }
    Some(settings)
}

/// Reads the block of the cluster's transport; `None` where nodes talk without TLS, or after an error.
pub(super) fn between_nodes(transport: &View<'_>, node_name: &str, domains: Vec<String>) -> Option<NodeTlsSettings> {
    let tls = transport.at("tls");
    if !tls.exists() || !tls.flag("enabled") {
        return None;
    }
    let before = tls.report().errors();
    let files = block(&tls, ClientAuthentication::Required, NODE_TRUST)?;
    let settings = NodeTlsSettings {
        files,
        hostname_verification: tls.flag("hostname-verification"),
        optional: tls.flag("optional"),
        domains,
    };
    if tls.report().errors() == before {
        let files = &settings.files;
        match parsed(files).and_then(|material| tls::node_config(files, &material).map(|_| material)) {
            Ok(material) => own_certificate(&tls, &settings, node_name, &material),
            Err(error) => tell(&tls, &error),
        }
        if settings.optional {
            tls.at("optional").warning(
                "connections without TLS are taken, and made to nodes that have nothing else: for the time of a change only; remove the element \
                 when all nodes of the cluster have TLS",
            );
        }
    }
    Some(settings)
}

/// What the other nodes are going to say to this one's certificate: they judge by their own files and clocks, so nothing but what can never be is an
/// error.
fn own_certificate(tls: &View<'_>, settings: &NodeTlsSettings, node_name: &str, material: &Material) {
    let path = tls.at("keystore/path");
    if let Some(fault) = material.own_fault(&settings.files, UnixTime::now()) {
        let message = format!("the other nodes are going to refuse this one: its certificate {fault}; {}", fault.remedy());
        if fault == Fault::Use { path.error(message) } else { path.warning(message) }
    }
    let names = settings.names_of(node_name);
    if settings.hostname_verification && !names::is_for(&material.own_names(), &names) {
        let found = names::listed(&material.own_names());
        path.warning(format!(
            "the other nodes are going to refuse this one: its certificate is for {found}; allowed: the name of the node, {}; have a certificate \
             made with that as a DNS name, or set <hostname-verification> to false on all nodes",
            names.join(" or ")
        ));
    }
}

fn block(tls: &View<'_>, client_authentication: ClientAuthentication, no_trust: &str) -> Option<TlsSettings> {
    let keystore = tls.at("keystore");
    let Some(path) = keystore.at("path").file() else {
        if !keystore.at("path").exists() {
            keystore.error("the element <path> is missing; add <path>..</path> with a PKCS12 or PEM file");
        }
        return None;
    };
    let (tls_1_2, tls_1_3) = protocols(tls);
    Some(TlsSettings {
        keystore: StoreSettings { path, password: secret(&keystore) },
        private_key_path: keystore.at("private-key-path").file(),
        truststore: truststore(tls, client_authentication, no_trust),
        crls: tls.at("truststore").all("crl").iter().filter_map(View::file).collect(),
        client_authentication,
        tls_1_2,
        tls_1_3,
        cipher_suites: cipher_suites(tls),
        prefer_server_cipher_suites: tls.flag("prefer-server-cipher-suites"),
        handshake_timeout_ms: tls.u64_or_max("handshake-timeout"),
    })
}

fn parsed(settings: &TlsSettings) -> Result<Material, TlsError> {
    Files::read(settings)?.parse(settings)
}

fn server_config(settings: &TlsSettings, material: &Material) -> Result<(), TlsError> {
    tls::server_config(settings, material, &Resumption::none()).map(drop)
}

/// Reports at the element that is at fault, or at the nearest one around it.
fn tell(tls: &View<'_>, error: &TlsError) {
    let view = match error.part {
        Part::Keystore => tls.at("keystore/path"),
        Part::KeystorePassword => tls.at("keystore/password"),
        Part::PrivateKey => tls.at("keystore/private-key-path"),
        Part::Truststore => tls.at("truststore/path"),
        Part::TruststorePassword => tls.at("truststore/password"),
        Part::Crl(n) => tls.at("truststore").all("crl").into_iter().nth(n).unwrap_or_else(|| tls.at("truststore/crl")),
        Part::CipherSuites => tls.at("cipher-suites"),
    };
    let paths = ["keystore/path", "keystore/private-key-path", "truststore/path"].map(|path| tls.at(path));
    let paths = paths.into_iter().chain(tls.at("truststore").all("crl"));
    view.error(paths.fold(error.to_string(), |message, path| path.without_path(&message)));
}

fn client_authentication(tls: &View<'_>) -> ClientAuthentication {
    match tls.choice("client-authentication-mode") {
        "OPTIONAL" => ClientAuthentication::Optional,
        "REQUIRED" => ClientAuthentication::Required,
        _ => ClientAuthentication::None,
    }
}

/// What is said where certificates have to be checked and nothing says by what.
const LISTENER_TRUST: &str = "without the certificates that client certificates go back to, none can be checked; add <truststore><path>..</path>\
                              </truststore> with a PKCS12 or PEM file, or remove <client-authentication-mode> and <truststore>";
const NODE_TRUST: &str = "without the certificates that those of the nodes go back to, none can be checked; add <truststore><path>..</path></truststore> \
                          with a PKCS12 or PEM file of the authority that signs the nodes' certificates";

fn truststore(tls: &View<'_>, mode: ClientAuthentication, no_trust: &str) -> Option<StoreSettings> {
    let truststore = tls.at("truststore");
    let path: Option<PathBuf> = truststore.at("path").file();
    if path.is_none() && (mode != ClientAuthentication::None || truststore.exists()) {
        truststore.error(no_trust);
    }
    path.map(|path| StoreSettings { path, password: secret(&truststore) })
}

fn secret(store: &View<'_>) -> Secret {
    Secret::new(store.at("password").own_text().unwrap_or_default())
}

/// Tells whether TLS 1.2 and 1.3 are on.
fn protocols(tls: &View<'_>) -> (bool, bool) {
    let list = tls.at("protocols").all("protocol");
    if list.is_empty() {
        return (true, true);
    }
    let (mut tls_1_2, mut tls_1_3) = (false, false);
    for item in list {
        match item.own_text().unwrap_or_default() {
            TLS_1_2 => tls_1_2 = true,
            TLS_1_3 => tls_1_3 = true,
            other => {
                let found = item.quote(other);
                item.error(format!(
                    "found {found}; allowed: {TLS_1_2} or {TLS_1_3}; correct the value, older protocols are not safe"
                ));
            }
        }
    }
    (tls_1_2, tls_1_3)
}

fn cipher_suites(tls: &View<'_>) -> Vec<tokio_rustls::rustls::SupportedCipherSuite> {
    let mut found = Vec::new();
    for item in tls.at("cipher-suites").all("cipher-suite") {
        let text = item.own_text().unwrap_or_default();
        match suites::find(text) {
            Some(suite) => found.push(suite),
            None => {
                let (text, known) = (item.quote(text), suites::names().join(" "));
                item.error(format!("found {text}; allowed: {known}; correct the value or remove the element"));
            }
        }
    }
    found
}
