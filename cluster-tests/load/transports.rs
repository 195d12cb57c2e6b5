//! The load tool over TLS, WebSocket, and both.

use super::{SHORT, figure, fine, play};
use crate::harness::SOON;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::transports::pki::Pki;
use crate::transports::{KINDS, address, config};

#[test]
fn every_transport_carries_the_load() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = Node::ready(config(&pki, "REQUIRED", SOON));
    let (certificate, key) = pki.client_files("load");
    let ca = pki.path().join("ca.pem");
    for kind in KINDS {
        let server = address(&node, kind);
        let websocket = if kind.starts_with("Websocket") { "--ws /mqtt" } else { "" };
        let is_tls = kind.ends_with("TLS");
        let identity = format!("--cert {} --key {}", certificate.display(), key.display());
        let trusted = format!("--tls --server-name localhost --ca-file {} {identity}", ca.display());
        let tls = if is_tls { trusted.as_str() } else { "" };
        // Large ones in frames and records of their own.
        for (version, payload) in [("3.1.1", "24"), ("5", "100000")] {
            let scene = format!(
                "pubsub --pairs 2 --qos 2 --in-flight 2 --until-received --payload {payload} {SHORT} --mqtt {version} {websocket} {tls}"
            );
            let json = fine(server, &scene);
            assert!(figure(&json, "received") > 0.0, "{kind} {version} {payload}");
        }
        let json = fine(
            server,
            &format!("connect --clients 10 --hold 0 {websocket} {tls} {}", if is_tls { "--tls-resume" } else { "" }),
        );
        assert_eq!(figure(&json, "connected"), 10.0, "{kind}");
        if !is_tls {
            continue;
        }
        // All at once, more than rustls keeps tickets for: what is called resumed is.
        for (resume, resumed) in [("--tls-resume", 40.0), ("", 0.0)] {
            let json = fine(server, &format!("connect --clients 40 --burst --hold 0 {websocket} {tls} {resume}"));
            assert_eq!((figure(&json, "connected"), figure(&json, "resumed")), (40.0, resumed), "{kind} {resume}");
        }
        fine(server, &format!("connect --clients 2 --hold 0 {websocket} --tls --insecure {identity}"));
        // Nobody is believed who should not be, and nobody comes in without a certificate.
        for (options, says) in
            [(format!("--tls {identity} --ca-file {}", ca.display()), "certificate"), ("--tls --insecure".to_owned(), "")]
        {
            let (code, json) = play(server, &format!("connect --clients 1 --hold 0 {websocket} {options}"));
            let told = json["faults"].to_string();
            assert!(code == Some(1) && told.contains(says), "{kind} {options}: {told}");
        }
    }
    let (code, json) = play(address(&node, "Websocket Listener"), "connect --clients 1 --hold 0 --ws /elsewhere");
    let told = json["faults"].to_string();
    assert!(code == Some(1) && told.contains("404") && told.contains("path"), "{told}");
}
