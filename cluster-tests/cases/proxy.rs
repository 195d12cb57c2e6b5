//! PROXY protocol and client address.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq::mqtt::{Packet, ProtocolVersion};

use super::kit::subscriber;
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, ports};

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 49152 1883\r\n";
const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0C\xC0\x00\x02\x07\x0A\x00\x00\x01\xC0\x00\x07\x5B";

/// Row 94, the part that `transports` leaves out: a header in two segments at every place, one that comes late, and CONNECT in the same
/// segment as the header.
#[tokio::test]
async fn a_proxy_header_may_come_in_two_segments_late_and_with_the_first_packet() {
    let _permit = acquire(Weight::Node);
    let port = ports::reserve();
    let listeners = format!(
        "<tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address><proxy-protocol>true</proxy-protocol></tcp-listener>"
    );
    let more = "<restrictions><no-connect-idle-timeout>2000</no-connect-idle-timeout></restrictions>".to_owned();
    let node = Node::ready(Config { listeners, more, ..Config::default() });
    let mut watcher = subscriber(node.mqtt(), &Options::v5("watcher"), events::FILTER).await;
    let connect = {
        let mut bytes = bytes::BytesMut::new();
        troupemq::mqtt::codec::encode(&Options::v5("proxied").packet(), ProtocolVersion::V5, &mut bytes);
        bytes
    };
    for header in [V1, V2] {
        let whole = [header, &connect].concat();
        for cut in (1..whole.len()).step_by(5) {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
            stream.set_nodelay(true).expect("a socket");
            stream.write_all(&whole[..cut]).await.expect("sent");
            tokio::time::sleep(Duration::from_millis(5)).await;
            stream.write_all(&whole[cut..]).await.expect("sent");
            let event = Event::of(&watcher.message().await);
            assert_eq!(event.json["Client IP address"], "192.0.2.7", "cut at {cut} of {header:02X?}");
            let mut connack = [0; 2];
            stream.read_exact(&mut connack).await.expect("CONNACK");
            assert_eq!(connack[0], 0x20, "cut at {cut}");
            drop(stream);
            events::expect(&mut watcher, "proxied", 1).await;
        }
    }
    // Without a header in time, the connection ends within the limit for CONNECT.
    let mut silent = TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let mut rest = Vec::new();
    tokio::time::timeout(SOON, silent.read_to_end(&mut rest)).await.expect("the end").ok();
    assert_eq!(rest, b"");
    // Nothing but half a header.
    let mut half = Client::raw(([127, 0, 0, 1], port).into(), ProtocolVersion::V5).await.expect("connected");
    half.send_bytes(&V2[..13]).await.expect("sent");
    let end = half.next_packet(SOON).await;
    assert!(!matches!(end, Ok(Packet::Connack(_))), "{end:?}");
}
