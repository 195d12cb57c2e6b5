//! Clients that do not come to rest are told of, and kept out where that is wanted.

use std::process::Command;

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::events;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::run;
use crate::harness::{SOON, program, wait};

const BANS: &str = "<security><unstable-clients><connects>4</connects><takeovers>3</takeovers>\
                    <ban><enabled>true</enabled><duration>300</duration></ban></unstable-clients></security>";

/// What a command of an operator prints, and its exit status.
fn operator(node: &Node, arguments: &[&str]) -> (String, Option<i32>) {
    let finished = run(Command::new(program()).args(arguments).arg("--data").arg(node.data()), SOON);
    (finished.stdout, finished.code)
}

#[track_caller]
fn told(node: &Node, line: &str) {
    let log = node.data().join("log/event.log");
    wait::until(&format!("the event log says {line:?}"), SOON, || {
        std::fs::read_to_string(&log).unwrap_or_default().contains(line).then_some(())
    });
}

/// Connects a client that is banned by that: it comes in, and is sent off.
async fn banned_by_connecting(node: &Node, options: &Options) {
    let code = Client::connect(node.mqtt(), options).await.closed().await;
    assert_eq!(code, options.version().is_v5().then_some(ReasonCode::AdministrativeAction));
}

async fn refusal(node: &Node, options: &Options) -> (ReasonCode, Option<String>) {
    match Client::try_connect(node.mqtt(), options).await {
        Err(ConnectError::Refused(connack)) => {
            (connack.reason_code, connack.properties.reason_string.map(|text| text.to_string()))
        }
        other => panic!("{} is not refused: {:?}", options.client_id(), other.err()),
    }
}

#[tokio::test]
async fn a_client_that_connects_again_and_again_is_kept_out_until_it_is_pardoned() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { more: BANS.to_owned(), ..Config::default() });
    assert_eq!(operator(&node, &["ban", "list"]), ("nobody is banned on this node\n".to_owned(), Some(0)));
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let id = format!("restless {version:?}");
        let options = Options::of(version, &id);
        for _ in 0..3 {
            let mut client = Client::connect(node.mqtt(), &options).await;
            client.ping().await;
            client.disconnect().await;
        }
        banned_by_connecting(&node, &options).await;
        told(&node, &format!("Client ID: {id}, IPs: 127.0.0.1 connected 4 times within 60 s. It is banned for 300 s."));
        let (code, reason) = refusal(&node, &options).await;
        match version.is_v5() {
            true => {
                assert_eq!(code, ReasonCode::Banned);
                let reason = reason.expect("a Reason String");
                assert!(reason.starts_with("banned for ") && reason.contains("more seconds"), "{reason}");
            }
            false => assert_eq!(code, ReasonCode::NotAuthorized),
        }
        Client::connect(node.mqtt(), &Options::of(version, "calm")).await.ping().await;
        // An operator sees it and lets it in again.
        let (list, _) = operator(&node, &["ban", "list"]);
        assert!(list.contains(&format!("client id {id}  connected too often, ")), "{list}");
        assert_eq!(operator(&node, &["ban", "remove", "--client-id", &id]).1, Some(0));
        assert_eq!(operator(&node, &["ban", "remove", "--client-id", &id]).1, Some(1), "there is none");
        Client::connect(node.mqtt(), &options).await.ping().await;
    }
    assert_eq!(node.metric("troupemq_unstable_clients_total{cause=\"flapping\"}"), 3.0);
    assert!(node.metric("troupemq_login_failures_total{cause=\"banned\"}") >= 3.0);
    assert!(node.stderr().contains("a client does not come to rest"), "{}", node.stderr());
}

/// The connect that is the detection takes effect: it is accepted, its events are true, and its will is published as at every end by the server.
/// Those after it are refused, and leave no trace.
#[tokio::test]
async fn what_is_told_of_a_client_that_is_banned_is_what_it_was_told() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { more: BANS.to_owned(), ..Config::default() });
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("will/#", QoS::AtMostOnce).await;
    let mut lifecycle = Client::connect(node.mqtt(), &Options::v5("lifecycle")).await;
    lifecycle.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let id = format!("restless {version:?}");
        let options = Options::of(version, &id).will(&format!("will/{id}"), "gone", 0);
        for _ in 0..3 {
            Client::connect(node.mqtt(), &options).await.disconnect().await;
        }
        banned_by_connecting(&node, &options).await;
        assert_eq!(watcher.message().await.topic, format!("will/{id}"));
        assert!(refusal(&node, &options).await.0.is_error());
        let told = events::expect(&mut lifecycle, &id, 8).await;
        assert_eq!(told[6..], [format!("{id}:+"), format!("{id}:-SERVER/152")]);
    }
    lifecycle.nothing().await;
    watcher.nothing().await;
}

#[tokio::test]
async fn several_that_fight_over_one_client_id_are_told_of_and_parted() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { more: BANS.to_owned(), ..Config::default() });
    let options = Options::v5("wanted").persistent();
    let mut last = Client::connect(node.mqtt(), &options).await;
    last.subscribe("t", QoS::AtLeastOnce).await;
    for _ in 0..2 {
        let next = Client::connect(node.mqtt(), &options).await;
        assert_eq!(last.closed().await, Some(ReasonCode::SessionTakenOver));
        last = next;
    }
    banned_by_connecting(&node, &options).await;
    assert_eq!(last.closed().await, Some(ReasonCode::SessionTakenOver));
    told(
        &node,
        "Client ID: wanted, IPs: 127.0.0.1 took its connection over from others 3 times within 60 s. It is banned for 300 s.",
    );
    assert_eq!(refusal(&node, &options).await.0, ReasonCode::Banned);
    assert_eq!(node.metric("troupemq_unstable_clients_total{cause=\"fight\"}"), 1.0);
    // The session waits for the end of the ban.
    assert_eq!(operator(&node, &["ban", "remove", "--client-id", "wanted"]).1, Some(0));
    assert!(Client::connect(node.mqtt(), &options).await.session_present());
}

#[tokio::test]
async fn without_bans_a_restless_client_is_told_of_and_served() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for _ in 0..16 {
        Client::connect(node.mqtt(), &Options::v5("restless")).await.disconnect().await;
    }
    told(&node, "Client ID: restless, IPs: 127.0.0.1 connected 15 times within 60 s.\n");
    assert_eq!(node.metric("troupemq_unstable_clients_total{cause=\"flapping\"}"), 1.0);
    assert_eq!(node.metric("troupemq_login_failures_total{cause=\"banned\"}"), 0.0);
}
