//! What those who came in may not do, and how each version is told (spec/hivemq.md 4.7, 7.5).

use troupemq::mqtt::packet::{PacketId, Publish, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, User};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// `some` may share one filter within one group, and one with whatever group; may publish so and so; and may read add-on topics.
const SOME: &str = "\
<permission><topic>own/#</topic></permission>\
<permission><topic>work/+</topic><activity>SUBSCRIBE</activity><shared-subscription>SHARED</shared-subscription>\
<shared-group>g</shared-group></permission>\
<permission><topic>any/#</topic><shared-subscription>SHARED</shared-subscription></permission>\
<permission><topic>alone</topic><shared-subscription>NOT_SHARED</shared-subscription></permission>\
<permission><topic>one</topic><activity>PUBLISH</activity><qos>ONE</qos><retain>NOT_RETAINED</retain></permission>\
<permission><topic>$expired/#</topic></permission>";

fn start(files: &Rbac) -> Node {
    let all = "<permission><topic>#</topic></permission><permission><topic>$dropped/#</topic></permission>";
    let user = |name: &str| format!("<user><name>{name}</name><password>secret</password><roles><id>{name}</id></roles></user>");
    let role = |name: &str, permissions: &str| format!("<role><id>{name}</id><permissions>{permissions}</permissions></role>");
    files.write_text(&format!(
        "<file-rbac><users>{}{}</users><roles>{}{}</roles></file-rbac>",
        user("some"),
        user("all"),
        role("some", SOME),
        role("all", all)
    ));
    Node::ready(Config { more: format!("<security>{}</security>", files.element()), ..Config::default() })
}

fn files() -> Rbac {
    Rbac::new(&[User::password("x", "x", "x")], &[("x", &["x"])], "<password-type>PLAIN</password-type>")
}

fn user(version: ProtocolVersion, name: &str) -> Options {
    Options::of(version, name).username(name).password("secret")
}

/// One SUBSCRIBE of several filters; the codes and the Reason String of its SUBACK.
async fn subscribe(client: &mut Client, filters: &[(&str, QoS)]) -> Result<(Vec<u8>, Option<String>), Gone> {
    let request = |(filter, qos): &(&str, QoS)| SubscriptionRequest {
        filter: (*filter).into(),
        options: SubscriptionOptions {
            qos: *qos,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        },
    };
    let packet_id = PacketId::new(999).expect("not 0");
    let filters = filters.iter().map(request).collect();
    let packet = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
    client.send(&Packet::Subscribe(Box::new(packet))).await?;
    match client.answer(packet_id).await? {
        Packet::Suback(suback) => {
            let codes = suback.reason_codes.iter().map(|code| code.byte()).collect();
            Ok((codes, suback.reason_string.map(|text| text.to_string())))
        }
        other => panic!("the answer to SUBSCRIBE is {other:?}"),
    }
}

#[tokio::test]
async fn each_filter_that_is_denied_is_told_and_mqtt_3_1_is_closed() {
    let _permit = acquire(Weight::Node);
    let files = files();
    let node = start(&files);
    let asked = [
        ("own/#", LEVELS[1]),
        ("other/#", LEVELS[1]),
        ("$share/g/work/+", LEVELS[0]),
        ("$share/h/work/+", LEVELS[0]),
        ("$share/g/work/#", LEVELS[0]),
        ("work/+", LEVELS[0]),
        ("$share/h/any/#", LEVELS[2]),
        ("any/#", LEVELS[0]),
        ("alone", LEVELS[0]),
        ("$share/g/alone", LEVELS[0]),
        ("one", LEVELS[1]),
        ("$expired/#", LEVELS[1]),
        ("$dead/#", LEVELS[1]),
        ("#", LEVELS[0]),
    ];
    let granted = [1, 0x87, 0, 0x87, 0x87, 0x87, 2, 0x87, 0, 0x87, 0x87, 1, 0x87, 0x87];
    for version in VERSIONS {
        let mut client = Client::connect(node.mqtt(), &user(version, "some")).await;
        let suback = subscribe(&mut client, &asked).await;
        match version {
            ProtocolVersion::V3_1 => {
                assert!(matches!(suback, Err(Gone::Closed(_))), "{suback:?}");
                continue;
            }
            ProtocolVersion::V3_1_1 => {
                let codes = granted.map(|code| if code == 0x87 { 0x80 } else { code });
                assert_eq!(suback, Ok((codes.to_vec(), None)));
            }
            ProtocolVersion::V5 => {
                let (codes, reason) = suback.expect("a SUBACK");
                assert_eq!(codes, granted);
                let reason = reason.expect("a Reason String");
                assert!(
                    reason.starts_with(
                        "Not authorized to subscribe to topic 'other/#' with QoS '1'. \
                         Not authorized to subscribe to topic '$share/h/work/+' with QoS '0'. "
                    ) && reason.ends_with(" And 1 more."),
                    "{reason}"
                );
            }
        }
        client.publish("own/x", b"own", QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, "own", "what is allowed is in force");
        let (_, none) = subscribe(&mut client, &[("own/+", LEVELS[0])]).await.expect("a SUBACK");
        assert_eq!(none, None);
    }
}

/// How a PUBLISH ends that is not taken: the code of its acknowledgement, and of the DISCONNECT.
async fn ending(client: &mut Client, packet: Publish) -> (Option<ReasonCode>, Option<ReasonCode>) {
    let id = client.start_publish(packet).await.expect("sent");
    let code = client.closed().await;
    (id.and_then(|id| client.session.acknowledged.remove(&id)), code)
}

#[tokio::test]
async fn a_publish_that_is_denied_is_told_by_its_acknowledgement_and_by_disconnect() {
    let _permit = acquire(Weight::Node);
    let files = files();
    let node = start(&files);
    let denied = Some(ReasonCode::NotAuthorized);
    for version in VERSIONS {
        for (topic, qos, retain, allowed) in [
            ("one", LEVELS[1], false, true),
            ("one", LEVELS[0], false, false),
            ("one", LEVELS[2], false, false),
            ("one", LEVELS[1], true, false),
            ("one/", LEVELS[1], false, false),
            ("work/x", LEVELS[2], false, false),
        ] {
            let mut client = Client::connect(node.mqtt(), &user(version, "some")).await;
            let packet = Publish { retain, ..publish(topic, b"x", qos) };
            let v5 = |code| if version.is_v5() { code } else { None };
            let acknowledged = if qos == QoS::AtMostOnce { None } else { denied };
            if allowed {
                client.try_publish(packet).await.expect("acknowledged");
                client.ping().await;
                continue;
            }
            let ended = ending(&mut client, packet).await;
            assert_eq!(ended, (v5(acknowledged), v5(denied)), "{version:?} {topic} {qos:?} {retain}");
        }
    }
}

#[tokio::test]
async fn no_client_publishes_to_a_dollar_topic_whatever_it_may_do() {
    let _permit = acquire(Weight::Node);
    let files = files();
    let node = start(&files);
    let mut watcher = Client::connect(node.mqtt(), &user(ProtocolVersion::V5, "all")).await;
    for filter in ["#", "$dropped/#"] {
        watcher.subscribe(filter, QoS::AtLeastOnce).await;
    }
    let protocol_error = |version: ProtocolVersion| (None, version.is_v5().then_some(ReasonCode::ProtocolError));
    for version in VERSIONS {
        // `$expired/#` is allowed to the one by a permission, `$dropped/#` to the other; it is not looked at.
        for (name, topic) in
            [("some", "$expired/x"), ("some", "$dropped/x"), ("all2", "$dropped/x"), ("some", "$SYS/x"), ("some", "$")]
        {
            for qos in LEVELS {
                for retain in [false, true] {
                    let options = user(version, name.trim_end_matches('2')).named(name);
                    let mut client = Client::connect(node.mqtt(), &options).await;
                    let packet = Publish { retain, ..publish(topic, b"x", qos) };
                    let ended = ending(&mut client, packet).await;
                    assert_eq!(ended, protocol_error(version), "{version:?} {name} {topic} {qos:?} {retain}");
                }
            }
        }
        for topic in ["$expired/x", "$SYS/x"] {
            for options in
                [user(version, "some").will(topic, "gone", 0), user(version, "some").will(topic, "gone", 0).retained_will()]
            {
                match Client::try_connect(node.mqtt(), &options).await {
                    Err(ConnectError::Refused(connack)) => {
                        let expected = if version.is_v5() { ReasonCode::TopicNameInvalid } else { ReasonCode::NotAuthorized };
                        assert_eq!(connack.reason_code, expected, "{version:?} {topic}");
                    }
                    other => panic!("{version:?} {topic}: {:?}", other.err()),
                }
                // Before it is asked who that is.
                let stranger = options.password("wrong");
                match Client::try_connect(node.mqtt(), &stranger).await {
                    Err(ConnectError::Refused(connack)) if version.is_v5() => {
                        assert_eq!(connack.reason_code, ReasonCode::TopicNameInvalid);
                    }
                    Err(ConnectError::Refused(_)) => {}
                    other => panic!("{version:?} {topic}: {:?}", other.err()),
                }
            }
        }
    }
    // A Topic Alias does not help, neither where it is set nor later.
    let mut client = Client::connect(node.mqtt(), &user(ProtocolVersion::V5, "some")).await;
    let mut packet = publish("$expired/x", b"x", QoS::AtLeastOnce);
    packet.properties.topic_alias = Some(1);
    assert_eq!(ending(&mut client, packet).await, protocol_error(ProtocolVersion::V5));
    // Not at the beginning of the name it is a character like any other.
    let mut client = Client::connect(node.mqtt(), &user(ProtocolVersion::V5, "some")).await;
    client.publish("own/$x", b"fine", QoS::AtLeastOnce).await;
    assert_eq!(watcher.text().await, "fine");
    watcher.nothing().await;
}
