//! The edges of WebSocket, of the PROXY protocol and of TLS, as a client sees them.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::HandshakeKind;
use troupemq::mqtt::QoS;

use super::pki::Pki;
use super::relay::{Way, client_frame, read_frame};
use super::{CONNECT_5, KINDS, V1, V2_TLS, address, start, watcher, way};
use crate::harness::client::{Client, Options};
use crate::harness::events::Event;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

/// The head of the answer to an upgrade request, in lower case.
async fn upgrade(way: &Way, broker: std::net::SocketAddr, path: &str, headers: &str) -> String {
    let mut stream = way.connect(broker).await.expect("connected");
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream.flush().await.expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tokio::time::timeout(SOON, stream.read_u8()).await.expect("an answer") {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_ascii_lowercase()
}

#[tokio::test]
async fn a_web_socket_is_opened_on_the_exact_path_with_a_sub_protocol_that_is_served_or_none() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    for kind in KINDS.into_iter().filter(|kind| kind.starts_with("Websocket")) {
        let broker = address(&node, kind);
        // The request is ours: the way ends below WebSocket.
        let way = Way { fragment: None, ..way(kind, &pki, None) };
        for path in ["/", "/mqtt/", "/MQTT", "/mqtt2", "/a/mqtt"] {
            let answer = upgrade(&way, broker, path, "Sec-WebSocket-Protocol: mqtt\r\n").await;
            assert!(answer.starts_with("http/1.1 404 "), "{kind} {path}: {answer}");
        }
        let protocols = [
            ("", 101, None),
            ("mqtt", 101, Some("mqtt")),
            ("mqttv3.1", 101, Some("mqttv3.1")),
            ("chat, mqtt", 101, Some("mqtt")),
            ("chat", 400, None),
            ("mqtt5", 400, None),
        ];
        for (offered, status, chosen) in protocols {
            let header = if offered.is_empty() { String::new() } else { format!("Sec-WebSocket-Protocol: {offered}\r\n") };
            let answer = upgrade(&way, broker, "/mqtt", &header).await;
            assert!(answer.starts_with(&format!("http/1.1 {status} ")), "{kind} {offered}: {answer}");
            let named = answer.lines().find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
            assert_eq!(named, chosen, "{kind} {offered}");
        }
        // No extension is agreed to: compression is not part of this version.
        let answer = upgrade(&way, broker, "/mqtt", "Sec-WebSocket-Extensions: permessage-deflate\r\n").await;
        assert!(answer.starts_with("http/1.1 101 ") && !answer.contains("sec-websocket-extensions"), "{answer}");
        // What is no opening handshake is told so and closed: RFC 6455 4.2.1, 4.4.
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
        let (version, key) = ("Sec-WebSocket-Version: 13\r\n", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
        let requests = [
            (format!("GET /mqtt HTTP/1.1\r\nHost: a\r\n{version}{key}\r\n"), 400),
            (format!("GET /mqtt HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n{version}{key}\r\n"), 426),
            (format!("GET /mqtt HTTP/1.1\r\nHost: a\r\n{upgrade}Sec-WebSocket-Version: 8\r\n{key}\r\n"), 426),
            (format!("GET /mqtt HTTP/1.1\r\nHost: a\r\n{upgrade}{version}\r\n"), 400),
            (format!("GET /mqtt HTTP/1.1\r\nHost: a\r\n{upgrade}{version}Sec-WebSocket-Key: abc\r\n\r\n"), 400),
            (format!("POST /mqtt HTTP/1.1\r\nHost: a\r\n{upgrade}{version}{key}\r\n"), 400),
            (format!("GET /mqtt HTTP/1.0\r\nHost: a\r\n{upgrade}{version}{key}\r\n"), 400),
        ];
        for (request, status) in requests {
            let mut plain = way.connect(broker).await.expect("connected");
            plain.write_all(request.as_bytes()).await.expect("sent");
            plain.flush().await.expect("sent");
            let mut answer = Vec::new();
            _ = tokio::time::timeout(SOON, plain.read_to_end(&mut answer)).await.expect("closed");
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{kind} {request}: {answer}");
            assert!(status != 426 || answer.contains("Sec-WebSocket-Version: 13\r\n"), "{answer}");
        }
    }
}

#[tokio::test]
async fn pings_are_answered_between_fragments_and_a_close_is_answered_with_its_status() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    for kind in KINDS.into_iter().filter(|kind| kind.starts_with("Websocket")) {
        let mut wire = way(kind, &pki, None).connect(address(&node, kind)).await.expect("upgraded");
        let (first, second) = CONNECT_5.split_at(7);
        // A fragment, a ping, an empty fragment, a pong that nobody asked for, and the end of the message.
        for (opcode, payload) in [(0x02, first), (0x89, b"are you there"), (0x00, b""), (0x8A, b"pong"), (0x80, second)] {
            wire.write_all(&client_frame(opcode, payload)).await.expect("sent");
            wire.flush().await.expect("sent");
            if opcode == 0x89 {
                assert_eq!(read_frame(&mut wire).await.expect("a pong"), (0xA, b"are you there".to_vec()), "{kind}");
            }
        }
        let (opcode, connack) = read_frame(&mut wire).await.expect("CONNACK");
        assert_eq!((opcode, connack[0], connack[3]), (2, 0x20, 0), "{kind}");
        // Two MQTT packets in one frame, and one in two frames.
        wire.write_all(&client_frame(0x82, &[0xC0, 0, 0xC0, 0, 0xC0])).await.expect("sent");
        wire.write_all(&client_frame(0x82, &[0])).await.expect("sent");
        wire.flush().await.expect("sent");
        let mut answers = Vec::new();
        while answers.len() < 6 {
            let (opcode, payload) = read_frame(&mut wire).await.expect("PINGRESP");
            assert_eq!(opcode, 2);
            answers.extend(payload);
        }
        assert_eq!(answers, [0xD0, 0].repeat(3));
        wire.write_all(&client_frame(0x88, &[0x03, 0xE9, b'b', b'y', b'e'])).await.expect("sent");
        wire.flush().await.expect("sent");
        assert_eq!(read_frame(&mut wire).await.expect("a close frame"), (8, vec![0x03, 0xE9]), "{kind}");
        let end = tokio::time::timeout(SOON, wire.read(&mut [0; 10])).await.expect("an end");
        assert!(!matches!(end, Ok(1..)), "{kind}");
    }
}

#[tokio::test]
async fn large_frames_go_both_ways() {
    const LARGE: usize = 16 * 1024 * 1024;
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let kind = "Websocket Listener";
    let relay = Way { fragment: Some(usize::MAX), ..way(kind, &pki, None) }.relay(address(&node, kind)).await;
    let mut subscriber = Client::connect(relay, &Options::v5("subscriber")).await;
    subscriber.subscribe("large", QoS::AtMostOnce).await;
    // By hand, so that the whole packet is one frame.
    let mut wire = way(kind, &pki, None).connect(address(&node, kind)).await.expect("upgraded");
    wire.write_all(&client_frame(0x82, CONNECT_5)).await.expect("sent");
    let (_, connack) = read_frame(&mut wire).await.expect("CONNACK");
    assert_eq!(connack[0], 0x20);
    let mut packet = vec![0x30, 0x88, 0x80, 0x80, 0x08, 0, 5];
    packet.extend(b"large\0");
    packet.extend((0..LARGE).map(|n| (n % 251) as u8));
    let remaining = packet.len() - 5;
    assert_eq!(remaining, LARGE + 8);
    wire.write_all(&client_frame(0x82, &packet)).await.expect("sent");
    wire.flush().await.expect("sent");
    let message = subscriber.message().await;
    assert!(message.payload == packet[packet.len() - LARGE..], "{} bytes", message.payload.len());
}

/// case 94
#[tokio::test]
async fn a_proxy_header_may_be_split_and_may_come_late() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let mut watcher = watcher(&node).await;
    for kind in KINDS {
        for (name, header) in [("v1", V1), ("v2", V2_TLS)] {
            let mut stream = TcpStream::connect(address(&node, kind)).await.expect("connected");
            stream.set_nodelay(true).expect("set");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (first, second) = header.split_at(header.len() / 2);
            stream.write_all(first).await.expect("sent");
            tokio::time::sleep(Duration::from_millis(300)).await;
            stream.write_all(second).await.expect("sent");
            let mut wire = way(kind, &pki, None).go_on(stream).await.expect("a connection");
            let connect = if kind.starts_with("Websocket") { client_frame(0x82, CONNECT_5) } else { CONNECT_5.to_vec() };
            wire.write_all(&connect).await.expect("sent");
            wire.flush().await.expect("sent");
            let json = Event::of(&watcher.message().await).json;
            assert_eq!(json["Client IP address"], "192.0.2.1", "{kind} {name}");
            drop(wire);
            watcher.message().await;
        }
    }
}

#[tokio::test]
async fn a_returning_client_resumes_its_tls_session() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let connector = pki.client(None);
    let broker = address(&node, "TCP Listener with TLS");
    let mut kinds = Vec::new();
    for n in 0..3 {
        let stream = TcpStream::connect(broker).await.expect("connected");
        let mut tls = connector.connect("localhost".try_into().expect("a name"), stream).await.expect("a handshake");
        tls.write_all(CONNECT_5).await.expect("sent");
        tls.flush().await.expect("sent");
        // The ticket comes with the first bytes.
        let mut connack = [0; 5];
        tls.read_exact(&mut connack).await.expect("CONNACK");
        assert_eq!(connack[0], 0x20, "{n}");
        kinds.push(tls.get_ref().1.handshake_kind());
    }
    assert_eq!(kinds, [Some(HandshakeKind::Full), Some(HandshakeKind::Resumed), Some(HandshakeKind::Resumed)]);
    wait::until("they are gone", SOON, || (node.metric("com_hivemq_networking_connections_current") == 0.0).then_some(()));
}
