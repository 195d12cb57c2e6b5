//! Permissions.

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, User};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

fn files(allowed: &[&str]) -> Rbac {
    let users = [User::password("u", "secret", "some"), User::password("w", "secret", "all")];
    Rbac::new(&users, &[("some", allowed), ("all", &["#", "$SYS/#", "$dropped/#"])], "")
}

fn start(files: &Rbac) -> Node {
    Node::ready(Config { more: format!("<security>{}</security>", files.element()), ..Config::default() })
}

fn user(version: ProtocolVersion, name: &str) -> Options {
    Options::of(version, name).username(name).password("secret")
}

/// Row 101. MQTT 5 section 3.1.3.3.
#[tokio::test]
async fn a_will_that_its_client_may_not_publish_is_refused_with_its_connect() {
    let _permit = acquire(Weight::Node);
    let files = files(&["t/#"]);
    let node = start(&files);
    let mut watcher = Client::connect(node.mqtt(), &user(ProtocolVersion::V5, "w")).await;
    for filter in ["admin/#", "t/#", "$SYS/#", "$dropped/#"] {
        watcher.subscribe(filter, QoS::AtLeastOnce).await;
    }
    for version in VERSIONS {
        for topic in ["admin/x", "$SYS/x", "$dropped/x"] {
            match Client::try_connect(node.mqtt(), &user(version, "u").will(topic, "gone", 0)).await {
                Err(ConnectError::Refused(connack)) => assert!(connack.reason_code.is_error(), "{version:?} {topic}"),
                Err(ConnectError::Socket(error)) => panic!("{version:?} {topic}: closed without a word: {error}"),
                Ok(_) => panic!("{version:?}: a client with a will on {topic} is let in"),
            }
        }
        // One that it may publish is published.
        Client::connect(node.mqtt(), &user(version, "u").will("t/x", "gone", 0)).await.reset();
        assert_eq!(&*watcher.message().await.topic, "t/x");
    }
    watcher.nothing().await;
}

/// Row 103. MQTT 5 section 4.7: a name without wildcards is one name.
#[tokio::test]
async fn a_permission_for_a_literal_topic_is_for_no_other() {
    let _permit = acquire(Weight::Node);
    let files = files(&["allowed"]);
    let node = start(&files);
    let mut watcher = Client::connect(node.mqtt(), &user(ProtocolVersion::V5, "w")).await;
    watcher.subscribe("#", QoS::AtLeastOnce).await;
    for version in VERSIONS {
        let mut client = Client::connect(node.mqtt(), &user(version, "u")).await;
        client.publish("allowed", b"", QoS::AtLeastOnce).await;
        assert_eq!(&*watcher.message().await.topic, "allowed");
        for topic in ["allowed/secret", "allowedx", "/allowed", "allowed/"] {
            let mut client = Client::connect(node.mqtt(), &user(version, "u")).await;
            let id = client.start_publish(publish(topic, b"", QoS::AtLeastOnce)).await.expect("sent").expect("an identifier");
            assert_eq!(client.closed().await, version.is_v5().then_some(ReasonCode::NotAuthorized), "{version:?} {topic}");
            let told = client.session.acknowledged.remove(&id);
            assert_eq!(told, version.is_v5().then_some(ReasonCode::NotAuthorized), "{version:?} {topic}");
        }
    }
    watcher.nothing().await;
}
