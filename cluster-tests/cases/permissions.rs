//! Permissions.

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, User};
use crate::harness::{SOON, wait};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

const ALL: (&str, &[&str]) = ("all", &["#", "$SYS/#", "$dropped/#"]);

fn users(password: &str) -> [User; 2] {
    [User::password("u", password, "some"), User::password("w", "secret", "all")]
}

fn files(allowed: &[&str]) -> Rbac {
    Rbac::new(&users("secret"), &[("some", allowed), ALL], "")
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

/// Row 104. The rule: a connected client keeps the rights it came in with; when a session is resumed, subscriptions that its client may
/// not have any more are gone, and what only they brought is dropped and told.
#[tokio::test]
async fn a_resumed_session_loses_what_its_client_may_not_have_any_more() {
    let _permit = acquire(Weight::Node);
    let files = files(&["t", "keep", "both/#", "group"]);
    let node = start(&files);
    let address = node.mqtt();
    let mut watcher = Client::connect(address, &user(ProtocolVersion::V5, "w")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(address, &user(ProtocolVersion::V5, "w").named("p")).await;
    let sleeper = |version: ProtocolVersion| {
        let options = user(version, "u").named(&format!("sleeper {version:?}"));
        options.persistent()
    };
    let versions = [ProtocolVersion::V3_1_1, ProtocolVersion::V5];
    for version in versions {
        let mut client = Client::connect(address, &sleeper(version)).await;
        for filter in ["t", "keep", "both/+", "both/x", "$share/g/group"] {
            assert!(!client.subscribe(filter, QoS::AtLeastOnce).await.is_error(), "{filter}");
        }
        client.disconnect().await;
    }
    let mut stays = Client::connect(address, &user(ProtocolVersion::V5, "u").named("stays")).await;
    stays.subscribe("t", QoS::AtLeastOnce).await;
    for topic in ["t", "both/x", "both/y", "keep", "group"] {
        publisher.publish(topic, topic.as_bytes(), QoS::AtLeastOnce).await;
    }
    assert_eq!(stays.text().await, "t");

    // Another password and fewer rights.
    files.write(&users("changed"), &[("some", &["keep", "both/x", "other"]), ALL]);
    let changed = |options: Options| options.password("changed");
    wait::until_async("the change is known", SOON, async || {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        Client::try_connect(address, &changed(user(ProtocolVersion::V5, "u").named("probe"))).await.ok()
    })
    .await;
    publisher.publish("t", b"kept", QoS::AtLeastOnce).await;
    assert_eq!(stays.text().await, "kept", "who is connected keeps its rights");
    match Client::try_connect(address, &user(ProtocolVersion::V5, "u").named("stays")).await {
        Err(ConnectError::Refused(connack)) => assert_eq!(connack.reason_code, ReasonCode::NotAuthorized),
        other => panic!("the old password: {:?}", other.err()),
    }
    stays.disconnect().await;
    for version in versions {
        let mut client = Client::connect(address, &changed(sleeper(version))).await;
        assert!(client.session_present(), "{version:?}");
        let mut came = [client.text().await, client.text().await];
        came.sort();
        assert_eq!(came, ["both/x", "keep"], "{version:?}");
        let mut dropped = Vec::new();
        for _ in 0..3 {
            let message = watcher.message().await;
            assert_eq!(user_property(&message, "hmq-drop-reason"), Some("Extension Prevented (outbound)"));
            assert_eq!(user_property(&message, "hmq-drop-client"), Some(&*format!("sleeper {version:?}")));
            dropped.push(message.topic.to_string());
        }
        assert_eq!(dropped, ["$dropped/t", "$dropped/both/y", "$dropped/t"], "{version:?}");
        client.ping().await;
        client.nothing().await;
        // What is published from now on finds no such subscription.
        publisher.publish("keep", b"still", QoS::AtMostOnce).await;
        assert_eq!(client.text().await, "still");
        client.disconnect().await;
        if version == ProtocolVersion::V3_1_1 {
            // The group's message is there for another member.
            let mut member = Client::connect(address, &user(ProtocolVersion::V5, "w").named("member")).await;
            member.subscribe("$share/g/group", QoS::AtLeastOnce).await;
            assert_eq!(member.text().await, "group");
            member.ping().await;
            member.disconnect().await;
            publisher.publish("group", b"group", QoS::AtLeastOnce).await;
        }
    }
    for topic in ["t", "both/y", "group"] {
        let code = publisher.publish(topic, b"", QoS::AtLeastOnce).await;
        assert_eq!(code, ReasonCode::NoMatchingSubscribers, "{topic}");
    }
    assert_eq!(node.metric("troupemq_subscriptions_withdrawn_total"), 6.0);
    assert_eq!(node.metric("com_hivemq_messages_dropped_count"), 6.0);
    let log = std::fs::read_to_string(node.data().join("log/event.log")).expect("an event log");
    for version in versions {
        let line =
            format!("Client ID: sleeper {version:?}, IP: 127.0.0.1 may not have these subscriptions of its session any more");
        assert!(log.contains(&line), "{log}");
    }
}
