//! MQTT 3.1 clients (MQIsdp, level 3): that version's answers, byte for byte where they differ from 3.1.1.

use troupemq::mqtt::{ProtocolVersion, QoS};

use crate::harness::client::{Client, Gone, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{QUIET, SOON};

fn options(id: &str) -> Options {
    Options::of(ProtocolVersion::V3_1, id)
}

/// CONNECT of MQTT 3.1.
fn connect(flags: u8, client_id: &str) -> Vec<u8> {
    let mut bytes = b"\x10\x00\x00\x06MQIsdp\x03".to_vec();
    bytes.extend([flags, 0, 0]);
    bytes.extend(u16::try_from(client_id.len()).unwrap().to_be_bytes());
    bytes.extend(client_id.as_bytes());
    bytes[1] = u8::try_from(bytes.len() - 2).unwrap();
    bytes
}

/// Sends bytes on a new connection, and returns what comes back until it is closed or quiet, and whether it is closed.
async fn exchange(node: &Node, requests: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut client = Client::raw(node.mqtt(), ProtocolVersion::V3_1).await.expect("a connection");
    let mut answer = Vec::new();
    for request in requests {
        if client.send_bytes(request).await.is_err() {
            break;
        }
        loop {
            match client.read_bytes(QUIET).await {
                Ok(bytes) => answer.extend(bytes),
                Err(Gone::Timeout) => break,
                Err(Gone::Closed(_)) => return (answer, true),
            }
        }
    }
    (answer, false)
}

#[tokio::test]
async fn connect_is_answered_as_in_1999_to_2014() {
    let _permit = acquire(Weight::Node);
    let more = "<restrictions><max-client-id-length>100</max-client-id-length></restrictions>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    let table: [(Vec<u8>, &[u8], bool); 6] = [
        (connect(2, "clean"), &[0x20, 2, 0, 0], false),
        (connect(0, "kept"), &[0x20, 2, 0, 0], false),
        // The same session again: 3.1 has no Session Present.
        (connect(0, "kept"), &[0x20, 2, 0, 0], false),
        // Longer than 23 characters is fine; empty never is, clean session or not.
        (connect(2, &"c".repeat(100)), &[0x20, 2, 0, 0], false),
        (connect(2, ""), &[0x20, 2, 0, 2], true),
        (connect(2, &"c".repeat(101)), &[0x20, 2, 0, 2], true),
    ];
    for (request, answer, closed) in table {
        assert_eq!(exchange(&node, &[&request]).await, (answer.to_vec(), closed), "{request:02X?}");
    }
}

#[tokio::test]
async fn requests_may_carry_dup_and_are_answered() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let requests: [&[u8]; 7] = [
        &connect(2, "c"),
        b"\x8A\x06\x00\x01\x00\x01t\x02",
        b"\x34\x06\x00\x01t\x00\x07x",
        b"\x6A\x02\x00\x07",
        b"\xAA\x05\x00\x02\x00\x01t",
        b"\xAA\x05\x00\x03\x00\x01t",
        b"\xC0\x00",
    ];
    let (answer, closed) = exchange(&node, &requests).await;
    assert!(!closed);
    let parts: [&[u8]; 7] = [
        &[0x20, 2, 0, 0],
        &[0x90, 3, 0, 1, 2],
        &[0x50, 2, 0, 7],
        &[0x70, 2, 0, 7],
        // UNSUBACK has no codes, whether there was a subscription or not.
        &[0xB0, 2, 0, 2],
        &[0xB0, 2, 0, 3],
        &[0xD0, 0],
    ];
    for part in parts {
        assert!(answer.windows(part.len()).any(|window| window == part), "{part:02X?} is not in {answer:02X?}");
    }
}

/// There is no failure in its SUBACK: what is not allowed closes the connection.
#[tokio::test]
async fn what_is_restricted_closes_the_connection_without_a_word() {
    let _permit = acquire(Weight::Node);
    let off = |name: &str| format!("<{name}><enabled>false</enabled></{name}>");
    let mqtt = off("wildcard-subscriptions")
        + &off("shared-subscriptions")
        + &off("retained-messages")
        + "<quality-of-service><max-qos>1</max-qos></quality-of-service>";
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let hello = connect(2, "c");
    let accepted: &[u8] = &[0x20, 2, 0, 0];
    for request in [
        &b"\x82\x08\x00\x01\x00\x03a/#\x01"[..],
        b"\x82\x0F\x00\x01\x00\x0A$share/g/t\x01",
        b"\x82\x09\x00\x01\x00\x04a#/b\x01",
        b"\x31\x04\x00\x01tx",
        b"\x34\x06\x00\x01t\x00\x07x",
        b"\x30\x05\x00\x02$tx",
    ] {
        assert_eq!(exchange(&node, &[&hello, request]).await, (accepted.to_vec(), true), "{request:02X?}");
    }
    // Within the restrictions: QoS 2 is granted as 1.
    let (answer, closed) = exchange(&node, &[&hello, b"\x82\x06\x00\x01\x00\x01t\x02"]).await;
    assert_eq!((&answer[4..], closed), (&[0x90, 3, 0, 1, 1][..], false));
    // A will that is not allowed is refused with the code of its time.
    let mut will = connect(0x16, "w");
    will.extend(b"\x00\x01t\x00\x01x");
    will[1] += 6;
    assert_eq!(exchange(&node, &[&will]).await, (vec![0x20, 2, 0, 5], true));
}

#[tokio::test]
async fn messages_wills_and_sessions_work_with_other_versions() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let sleeper = options("sleeper").clean_start(false);
    let mut old = Client::connect(node.mqtt(), &sleeper).await;
    assert_eq!(old.subscribe("t/#", QoS::ExactlyOnce).await.byte(), 2);
    let mut new = Client::connect(node.mqtt(), &Options::v5("new")).await;
    new.subscribe("t/#", QoS::ExactlyOnce).await;
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        old.publish("t/old", b"from old", qos).await;
        new.publish("t/new", b"from new", qos).await;
        for client in [&mut old, &mut new] {
            let mut seen = [client.message().await, client.message().await].map(|m| (m.topic.to_string(), m.qos));
            seen.sort();
            assert_eq!(seen, [("t/new".to_owned(), qos), ("t/old".to_owned(), qos)]);
        }
    }
    old.disconnect().await;
    new.publish("t/queued", b"1", QoS::AtLeastOnce).await;
    new.publish("t/queued", b"2", QoS::ExactlyOnce).await;
    node.kill();
    node.start();
    let mut old = Client::connect(node.mqtt(), &sleeper.will("t/will", "gone", 0)).await;
    assert!(!old.session_present(), "3.1 cannot say so");
    assert_eq!((old.text().await, old.text().await), ("1".to_owned(), "2".to_owned()));
    let mut new = Client::connect(node.mqtt(), &Options::v5("new")).await;
    new.subscribe("t/will", QoS::AtLeastOnce).await;
    drop(old);
    let will = new.try_message(SOON).await.expect("the will");
    assert_eq!(&*will.payload, b"gone");
}
