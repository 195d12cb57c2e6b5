//! CONNECT packets that are refused.

use troupemq::mqtt::{Packet, ProtocolVersion, ReasonCode};

use crate::harness::SOON;
use crate::harness::client::{Client, Gone};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::V3_1_1, ProtocolVersion::V5];
const CLIENT_ID_MAX: usize = 23;

/// A CONNECT with the flags and the payload given.
pub fn connect(version: ProtocolVersion, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (level, properties): (u8, &[u8]) = if version == ProtocolVersion::V5 { (5, &[0]) } else { (4, &[]) };
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', level, flags, 0, 60];
    body.extend_from_slice(properties);
    body.extend_from_slice(payload);
    let length = u8::try_from(body.len()).ok().filter(|length| *length < 0x80).expect("a short packet");
    [&[0x10, length][..], &body].concat()
}

/// A text with its length.
pub fn text(value: &str) -> Vec<u8> {
    [&u16::try_from(value.len()).expect("short").to_be_bytes()[..], value.as_bytes()].concat()
}

/// What the broker says to a CONNECT that it refuses, until it closes.
pub async fn refusal(node: &Node, version: ProtocolVersion, packet: &[u8]) -> Option<ReasonCode> {
    let mut client = Client::raw(node.mqtt(), version).await.expect("a socket");
    client.send_bytes(packet).await.expect("sent");
    let mut code = None;
    loop {
        match client.next_packet(SOON).await {
            Ok(Packet::Connack(connack)) if code.is_none() && connack.reason_code != ReasonCode::Success => {
                assert!(!connack.session_present);
                code = Some(connack.reason_code);
            }
            Ok(other) => panic!("{packet:02X?} is answered with {other:?}"),
            Err(Gone::Closed(_)) => return code,
            Err(Gone::Timeout) => panic!("{packet:02X?} is not refused"),
        }
    }
}

/// [MQTT-3.1.2-11] of MQTT 3.1.1.
#[tokio::test]
async fn a_will_without_its_flag_is_refused() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in VERSIONS {
        let properties: &[u8] = if version == ProtocolVersion::V5 { &[0] } else { &[] };
        let will = [properties, &text("w"), &text("gone")].concat();
        let payload = [text("c"), will].concat();
        // Clean, and with the Will Flag it is a CONNECT like any other.
        let mut client = Client::raw(node.mqtt(), version).await.expect("a socket");
        client.send_bytes(&connect(version, 0b0000_0110, &payload)).await.expect("sent");
        assert!(
            matches!(client.next_packet(SOON).await, Ok(Packet::Connack(connack)) if connack.reason_code == ReasonCode::Success)
        );
        for (flags, payload) in [
            (0b0000_0010, &payload),
            (0b0000_1010, &payload),
            (0b0010_0010, &payload),
            (0b0000_1010, &text("c")),
            (0b0001_0010, &text("c")),
            (0b0010_0010, &text("c")),
        ] {
            let code = refusal(&node, version, &connect(version, flags, payload)).await;
            let allowed = match version {
                // [MQTT-3.1.4-1]: closed without a CONNACK.
                ProtocolVersion::V3_1_1 => code.is_none(),
                _ => [None, Some(ReasonCode::MalformedPacket), Some(ReasonCode::ProtocolError)].contains(&code),
            };
            assert!(allowed, "{version:?} {flags:08b}: {code:?}");
        }
    }
}

/// [MQTT-3.1.3-9] of MQTT 3.1.1, [MQTT-3.1.3-8] of MQTT 5.0.
#[tokio::test]
async fn a_client_id_that_is_refused_is_told_and_closed() {
    let _permit = acquire(Weight::Node);
    let more = format!("<restrictions><max-client-id-length>{CLIENT_ID_MAX}</max-client-id-length></restrictions>");
    let node = Node::ready(Config { more, ..Config::default() });
    for version in VERSIONS {
        let (longest, longer) = ("c".repeat(CLIENT_ID_MAX), "c".repeat(CLIENT_ID_MAX + 1));
        let code = refusal(&node, version, &connect(version, 2, &text(&longer))).await;
        assert_eq!(code, Some(ReasonCode::ClientIdentifierNotValid), "{version:?}");
        let mut client = Client::raw(node.mqtt(), version).await.expect("a socket");
        client.send_bytes(&connect(version, 2, &text(&longest))).await.expect("sent");
        assert!(
            matches!(client.next_packet(SOON).await, Ok(Packet::Connack(connack)) if connack.reason_code == ReasonCode::Success)
        );
    }
}
