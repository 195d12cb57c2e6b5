//! What CONNACK and DISCONNECT tell beyond their code, and text that is not wanted in names.

use troupemq::mqtt::{ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const ELSEWHERE: &str = "other.example:1883 third.example";

#[tokio::test]
async fn response_information_is_made_for_each_client_that_asks() {
    let _permit = acquire(Weight::Node);
    let mqtt = "<response-information><template>responses/${{clientid}}</template></response-information>".to_owned();
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let information = async |id: &str, ask: Option<bool>| {
        let options = Options::v5(id).with(|connect| connect.properties.request_response_information = ask);
        Client::connect(node.mqtt(), &options).await.connack.unwrap().properties.response_information
    };
    assert_eq!(information("asker", Some(true)).await.as_deref(), Some("responses/asker"));
    assert_eq!(information("silent", None).await, None);
    assert_eq!(information("no", Some(false)).await, None);
    // An id that the broker made is one too.
    let options = Options::v5("").with(|connect| connect.properties.request_response_information = Some(true));
    let properties = Client::connect(node.mqtt(), &options).await.connack.unwrap().properties;
    let id = properties.assigned_client_identifier.expect("an id");
    assert_eq!(properties.response_information.as_deref(), Some(format!("responses/{id}").as_str()));
}

/// spec/hivemq.md 9.8.
#[tokio::test]
async fn a_node_that_stops_sends_its_clients_to_another_server() {
    let _permit = acquire(Weight::Node);
    let mqtt = format!("<server-reference><reference>{ELSEWHERE}</reference></server-reference>");
    let mut node = Node::ready(Config { mqtt, ..Config::default() });
    let mut new = Client::connect(node.mqtt(), &Options::v5("new")).await;
    let mut old = Client::connect(node.mqtt(), &Options::v3("old")).await;
    node.terminate();
    assert_eq!(new.closed().await, Some(ReasonCode::UseAnotherServer));
    assert_eq!(new.disconnect.unwrap().properties.server_reference.as_deref(), Some(ELSEWHERE));
    assert_eq!(old.closed().await, None);
    assert!(node.wait_ended().success());
}

async fn refusal(node: &Node, options: &Options) -> (ReasonCode, Option<String>) {
    match Client::try_connect(node.mqtt(), options).await {
        Err(ConnectError::Refused(connack)) => {
            (connack.reason_code, connack.properties.server_reference.map(|reference| reference.to_string()))
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("not refused"),
    }
}

#[tokio::test]
async fn clients_that_find_no_room_are_sent_elsewhere_where_so_configured() {
    let _permit = acquire(Weight::Node);
    for (refuse, code, reference) in [
        ("never", ReasonCode::QuotaExceeded, None),
        ("when-unavailable", ReasonCode::UseAnotherServer, Some(ELSEWHERE.to_owned())),
    ] {
        let node = Node::ready(Config {
            mqtt: format!(
                "<server-reference><reference>{ELSEWHERE}</reference><refuse-connections>{refuse}</refuse-connections></server-reference>"
            ),
            more: "<restrictions><max-connections>1</max-connections></restrictions>".to_owned(),
            ..Config::default()
        });
        let _first = Client::connect(node.mqtt(), &Options::v5("first")).await;
        assert_eq!(refusal(&node, &Options::v5("second")).await, (code, reference), "{refuse}");
    }
}

#[tokio::test]
async fn a_node_whose_clients_are_to_move_refuses_them_all() {
    let _permit = acquire(Weight::Node);
    let mqtt = format!(
        "<server-reference><reference>{ELSEWHERE}</reference><refuse-connections>always</refuse-connections></server-reference>"
    );
    let node = Node::ready(Config { mqtt, ..Config::default() });
    assert_eq!(refusal(&node, &Options::v5("new")).await, (ReasonCode::ServerMoved, Some(ELSEWHERE.to_owned())));
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        assert_eq!(refusal(&node, &Options::of(version, "old")).await, (ReasonCode::ServerUnavailable, None));
    }
}

/// spec/hivemq.md 1.6: with and without the validation.
#[tokio::test]
async fn control_and_non_characters_in_names_are_refused_where_utf8_is_validated() {
    let _permit = acquire(Weight::Node);
    for validated in [true, false] {
        let more = format!("<security><utf8-validation><enabled>{validated}</enabled></utf8-validation></security>");
        let node = Node::ready(Config { more, ..Config::default() });
        let odd = Options::v5("odd\u{1}").username("u\u{fffe}").will("will\u{7f}", "", 0);
        if validated {
            for options in [Options::v5("odd\u{1}"), Options::v5("u").username("\n"), Options::v5("w").will("w\u{9f}", "", 0)] {
                assert_eq!(refusal(&node, &options).await.0, ReasonCode::MalformedPacket);
            }
            let mut client = Client::connect(node.mqtt(), &Options::v5("p")).await;
            client.start_publish(crate::harness::client::publish("t\n", b"", QoS::AtMostOnce)).await.unwrap();
            assert_eq!(client.closed().await, Some(ReasonCode::MalformedPacket));
            let mut client = Client::connect(node.mqtt(), &Options::v5("s")).await;
            assert!(client.try_subscribe("t\u{fdd0}", QoS::AtMostOnce).await.is_err());
            assert_eq!(client.disconnect.map(|d| d.reason_code), Some(ReasonCode::MalformedPacket));
            let mut client = Client::connect(node.mqtt(), &Options::v3("s3")).await;
            assert!(client.try_subscribe("t\u{2}", QoS::AtMostOnce).await.is_err());
        } else {
            let mut client = Client::connect(node.mqtt(), &odd).await;
            client.subscribe("t\u{fdd0}\n", QoS::AtLeastOnce).await;
            client.publish("t\u{fdd0}\n", b"x", QoS::AtLeastOnce).await;
            assert_eq!(&*client.message().await.topic, "t\u{fdd0}\n");
        }
    }
}
