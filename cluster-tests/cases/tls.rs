//! TLS rotation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::CertificateDer;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{ports, wait};
use crate::transports::pki::Pki;
use crate::transports::relay::Way;

const CLIENTS: usize = 40;
/// The broker looks for changed files every 10 s.
const RELOAD: Duration = Duration::from_secs(40);

/// Row 96, with fewer clients: files that are links into a directory that is swapped, as Kubernetes mounts a secret.
#[tokio::test]
async fn certificates_and_authorities_are_swapped_under_connected_clients() {
    let _permit = acquire(Weight::Node);
    let (old, new) = (Pki::new(), Pki::new());
    let home = tempfile::TempDir::new().expect("a directory");
    let mount = home.path();
    provide(mount, "..1", &fs::read(old.path().join("server.pem")).expect("a file"), &ca(&old));
    swap(mount, "..1");
    for file in ["server.pem", "ca.pem"] {
        symlink(format!("..data/{file}"), mount.join(file)).expect("a link");
    }
    let port = ports::reserve();
    let listeners = format!(
        "<tls-tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address><tls>\
         <keystore><path>{0}/server.pem</path></keystore><truststore><path>{0}/ca.pem</path></truststore>\
         <client-authentication-mode>REQUIRED</client-authentication-mode></tls></tls-tcp-listener>",
        mount.display()
    );
    let node = Node::ready(Config { listeners, ..Config::default() });
    let broker = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let old_identity = old.client(Some(("old", &[])));
    let old_way = Way { tls: Some(old_identity.clone()), ..Way::default() }.relay(broker).await;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        clients.push(Client::connect(old_way, &Options::v5(&format!("stays-{number}"))).await);
    }

    // A renewed certificate of the same authority.
    let renewed = old.renew_server();
    provide(mount, "..2", &fs::read(old.path().join("server.pem")).expect("a file"), &ca(&old));
    swap(mount, "..2");
    let shown = || served(broker, &old_identity);
    wait::until_async("the renewed certificate is served", RELOAD, async || (shown().await? == renewed).then_some(())).await;

    // A broken file: the old one is kept, and the log says so.
    let before = node.stderr().len();
    provide(mount, "..3", b"-----BEGIN CERTIFICATE-----\nnonsense\n", &ca(&old));
    swap(mount, "..3");
    let complaint = || {
        let log = node.stderr();
        log[before..].lines().find(|line| line.contains("ERROR") || line.contains("WARN")).map(str::to_owned)
    };
    let complaint = wait::until("the broken file is in the log", RELOAD, complaint);
    assert!(complaint.contains("server.pem"), "{complaint}");
    assert_eq!(shown().await, Some(renewed.clone()));
    for client in &mut clients {
        client.ping().await;
    }

    // Another authority, for the broker and for its clients.
    provide(mount, "..4", &fs::read(new.path().join("server.pem")).expect("a file"), &ca(&new));
    swap(mount, "..4");
    let new_identity = new.client(Some(("new", &[])));
    wait::until_async("the new authority is served", RELOAD, async || served(broker, &new_identity).await.map(|_| ())).await;
    let new_way = Way { tls: Some(new_identity), ..Way::default() }.relay(broker).await;
    Client::connect(new_way, &Options::v5("new")).await.ping().await;
    // It trusts the broker and shows a certificate of the authority that is gone.
    let stranger = new.client_of(&old, "old");
    let stranger = Way { tls: Some(stranger), ..Way::default() }.relay(broker).await;
    assert!(Client::try_connect(stranger, &Options::v5("old")).await.is_err(), "a client of the removed authority came in");
    // None of all this ended a connection.
    for client in &mut clients {
        client.ping().await;
    }
}

fn ca(pki: &Pki) -> Vec<u8> {
    fs::read(pki.path().join("ca.pem")).expect("a file")
}

fn provide(mount: &Path, version: &str, server: &[u8], ca: &[u8]) {
    fs::create_dir(mount.join(version)).expect("a directory");
    fs::write(mount.join(version).join("server.pem"), server).expect("a file");
    fs::write(mount.join(version).join("ca.pem"), ca).expect("a file");
}

/// Points `..data` to a version in one step.
fn swap(mount: &Path, version: &str) {
    let new = mount.join("..data_tmp");
    symlink(version, &new).expect("a link");
    fs::rename(new, mount.join("..data")).expect("a link");
}

/// The certificate that the broker shows to this client; `None` where there is no connection.
async fn served(broker: std::net::SocketAddr, client: &TlsConnector) -> Option<CertificateDer<'static>> {
    let stream = TcpStream::connect(broker).await.ok()?;
    let tls = client.connect("localhost".try_into().ok()?, stream).await.ok()?;
    Some(tls.get_ref().1.peer_certificates()?[0].clone().into_owned())
}
