//! TLS between nodes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::{Trio, alive};
use crate::harness::{SOON, wait};
use crate::transports::pki::Pki;

/// Files are looked at every 10 s.
const TAKEN_UP: Duration = Duration::from_secs(40);
const OPTIONAL: &str = "<optional>true</optional>";

/// What stands in `<tcp>` for the files of a node.
fn block(files: &Path, node: &str, more: &str) -> String {
    let files = files.display();
    format!(
        "<tls><keystore><path>{files}/{node}.crt</path><private-key-path>{files}/{node}.key</private-key-path></keystore>\
         <truststore><path>{files}/ca.pem</path></truststore>{more}</tls>"
    )
}

/// The certificate of a node and its key, each in one step as a renewal brings them.
fn put(files: &Path, node: &str, (certificate, key): (String, String)) {
    for (end, content) in [("crt", certificate), ("key", key)] {
        let new = files.join("new");
        fs::write(&new, content).expect("a file");
        fs::rename(new, files.join(format!("{node}.{end}"))).expect("a file");
    }
}

/// Three certificates, each for one node.
fn issue(pki: &Pki, files: &Path) {
    for node in ["node1", "node2", "node3"] {
        put(files, node, pki.node(&[node.to_owned()]));
    }
}

fn with_tls(config: &mut Config, files: &Path, more: &str) {
    let cluster = config.cluster.as_mut().expect("a cluster");
    cluster.transport = block(files, &cluster.node_name, more);
}

fn trio(pki: &Pki) -> Trio {
    issue(pki, pki.path());
    Trio::new(Weight::Cluster, |config| with_tls(config, pki.path(), ""))
}

fn wait_log(node: &Node, words: &[&str]) {
    let is_there = || node.stderr().lines().any(|line| words.iter().all(|word| line.contains(word)));
    wait::until(&format!("{} logs {words:?}", node.name), TAKEN_UP, || is_there().then_some(()));
}

/// Which links came up, in the order of the log: whether each is encrypted.
fn links(node: &Node) -> Vec<bool> {
    let log = node.stderr();
    log.lines().filter(|line| line.contains("peer link is up")).map(|line| line.contains("encrypted=true")).collect()
}

/// The certificate that a node shows at its cluster port; `None` where it is not of this authority.
async fn shown(pki: &Pki, node: &Node) -> Option<Vec<u8>> {
    let port = node.config.cluster.as_ref()?.port;
    let stream = TcpStream::connect(SocketAddr::from((node.config.address(), port))).await.ok()?;
    let name = node.name.clone().try_into().ok()?;
    let stream = pki.client(Some(("observer", &[]))).connect(name, stream).await.ok()?;
    Some(stream.get_ref().1.peer_certificates()?.first()?.to_vec())
}

#[tokio::test]
async fn nodes_with_tls_serve_fail_over_and_come_back() {
    let pki = Pki::new();
    let mut trio = trio(&pki);
    trio.start_all();
    for node in &trio.nodes {
        let links = links(node);
        assert!(links.len() >= 4 && links.iter().all(|encrypted| *encrypted), "{}: {links:?}", node.name);
    }
    let options = Options::v5("kept").persistent();
    let mut client = Client::connect(trio.mqtt(2), &options).await;
    client.subscribe("to/kept", QoS::ExactlyOnce).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publisher.reaches(&mut client, "to/kept").await;
    client.ping().await;
    // In pieces, and more than any buffer on the way holds.
    let large = vec![b'x'; 3 * 1024 * 1024];
    publisher.publish("to/kept", &large, QoS::AtLeastOnce).await;
    assert_eq!(client.message().await.payload.len(), large.len());
    client.ping().await;
    drop(client);

    trio.nodes[2].kill();
    publisher.publish("to/kept", b"while a node is down", QoS::ExactlyOnce).await;
    let mut client =
        wait::until_async("the client comes elsewhere", SOON, async || Client::try_connect(trio.mqtt(1), &options).await.ok())
            .await;
    assert!(client.session_present());
    assert_eq!(client.text().await, "while a node is down");
    client.ping().await;
    client.disconnect().await;

    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    let mut client = Client::connect(trio.mqtt(2), &options).await;
    publisher.publish("to/kept", b"home again", QoS::ExactlyOnce).await;
    assert_eq!(client.text().await, "home again");
    assert!(links(&trio.nodes[2]).iter().all(|encrypted| *encrypted));
}

#[tokio::test]
async fn renewed_certificates_are_taken_up_without_a_restart() {
    let pki = Pki::new();
    let mut trio = trio(&pki);
    trio.start_all();
    let mut client = Client::connect(trio.mqtt(0), &Options::v5("through")).await;
    client.subscribe("through", QoS::AtLeastOnce).await;
    let before = shown(&pki, &trio.nodes[1]).await;
    let links_before = links(&trio.nodes[0]);
    // Another authority signs from now on; both are trusted for a while.
    let next = Pki::new();
    let read = |pki: &Pki| fs::read_to_string(pki.path().join("ca.pem")).expect("a file");
    fs::write(pki.path().join("ca.pem"), read(&pki) + &read(&next)).expect("a file");
    issue(&next, pki.path());
    let renewed = wait::until_async("all nodes show their new certificates", TAKEN_UP, async || {
        shown(&next, &trio.nodes[0]).await?;
        shown(&next, &trio.nodes[2]).await?;
        shown(&next, &trio.nodes[1]).await
    })
    .await;
    assert!(before.is_some_and(|before| before != renewed));
    // Connections that were there went on, and new ones come about with what is new.
    assert_eq!(links(&trio.nodes[0]), links_before, "no link was lost");
    client.publish("through", b"still", QoS::AtLeastOnce).await;
    assert_eq!(client.text().await, "still");
    trio.nodes[2].kill();
    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    // Half a change: told, and nothing else happens.
    fs::write(pki.path().join("node1.key"), "no key").expect("a file");
    wait_log(&trio.nodes[0], &["ERROR", "changed TLS files of the cluster cannot be used", "node1.key"]);
    assert!(alive(&trio.nodes[0]) == 3 && trio.nodes[0].is_up());
}

/// A third node that is wrong in one way after the other, and then right.
#[tokio::test]
async fn a_node_that_does_not_fit_is_refused_and_both_logs_say_why() {
    let pki = Pki::new();
    let mut trio = trio(&pki);
    trio.nodes[0].launch();
    trio.nodes[1].launch();
    trio.nodes[0].wait_ready();
    trio.nodes[1].wait_ready();
    let right = trio.nodes[2].config.cluster.as_ref().expect("a cluster").transport.clone();
    let files = pki.path();
    let own = ["node3".to_owned()];
    let plain = "the dialer talks without TLS, and the acceptor to nothing else";
    let wrong = |trio: &mut Trio, transport: &str, own_log: &[&[&str]], others_log: &[&[&str]]| {
        trio.nodes[2].config.cluster.as_mut().expect("a cluster").transport = transport.to_owned();
        trio.nodes[2].launch();
        own_log.iter().for_each(|words| wait_log(&trio.nodes[2], words));
        others_log.iter().for_each(|words| wait_log(&trio.nodes[0], words));
        assert!(!trio.nodes[2].has_ended(), "it waits");
        assert_eq!(alive(&trio.nodes[0]), 2);
        trio.nodes[2].kill();
    };
    // It dials, and is dialed.
    let none = "the dialer talks TLS, and the acceptor is configured without";
    let others = [&["WARN", "refused: ", plain][..], &["WARN", "refused by the peer", none]];
    wrong(
        &mut trio,
        "",
        &[&["WARN", "peer connection refused", "refused by the peer", plain], &["WARN", "refused: ", none]],
        &others,
    );

    put(files, "node3", pki.node_until(&own, 2020));
    let expired =
        ["the peer refuses the certificate of this node: it has expired; renew it", "the certificate of the peer has expired"];
    wrong(
        &mut trio,
        &right,
        &[&["WARN", expired[0]], &["ERROR", "this node's certificate has expired"]],
        &[&["WARN", expired[1]]],
    );
    let checked = trio.nodes[2].config_check();
    assert!(checked.code == Some(0) && checked.stderr.contains("its certificate has expired; renew it"), "{checked:?}");

    put(files, "node3", Pki::new().node(&own));
    let untrusted = "goes back to no certificate of the trust store";
    wrong(
        &mut trio,
        &right,
        &[&["WARN", "the peer refuses the certificate of this node", untrusted]],
        &[&["WARN", "the certificate of the peer", untrusted]],
    );

    put(files, "node3", pki.node(&["node4".to_owned()]));
    let other = "the certificate of node3 is for node4; allowed: node3";
    wrong(&mut trio, &right, &[&["WARN", "refused by the peer", other]], &[&["WARN", "refused: ", other]]);

    put(files, "node3", pki.node(&own));
    trio.nodes[2].config.cluster.as_mut().expect("a cluster").transport = right;
    trio.nodes[2].launch();
    trio.wait_ready_one(2);
    let lines = trio.nodes[0].stderr().lines().filter(|line| line.contains("peer connection refused")).count();
    assert!(lines < 60, "{lines} lines: not each attempt is told");
}

#[tokio::test]
async fn a_cluster_goes_from_plain_to_tls_one_node_at_a_time() {
    let pki = Pki::new();
    issue(&pki, pki.path());
    let mut trio = Trio::ready(Weight::Cluster);
    assert!(links(&trio.nodes[0]).iter().all(|encrypted| !encrypted));
    for more in [OPTIONAL, ""] {
        for node in 0..3 {
            let mut client = Client::connect(trio.mqtt((node + 1) % 3), &Options::v5("through")).await;
            client.subscribe("through", QoS::AtLeastOnce).await;
            assert!(trio.nodes[node].stop().success());
            with_tls(&mut trio.nodes[node].config, pki.path(), more);
            trio.nodes[node].launch();
            // The service goes on meanwhile.
            client.publish("through", b"x", QoS::AtLeastOnce).await;
            assert_eq!(client.text().await, "x");
            trio.wait_ready_one(node);
            client.disconnect().await;
            if node == 0 && more == OPTIONAL {
                let status = trio.nodes[0].status().expect("an answer");
                assert!(status["warnings"].to_string().contains("is not encrypted"), "{status}");
            }
        }
    }
    for node in &trio.nodes {
        // The last one to come found all with TLS, and those before it dialed it with TLS.
        assert!(links(node).iter().rev().take(2).all(|encrypted| *encrypted), "{}", node.name);
        let status = node.status().expect("an answer");
        assert!(!status["warnings"].to_string().contains("is not encrypted"), "{status}");
    }
}
