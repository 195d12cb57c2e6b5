//! Every way a client can reach the broker: TCP, TLS, WebSocket, WebSocket over TLS, each with and without a proxy in front.

mod edges;
pub mod pki;
pub mod relay;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::interop_skipped;
use crate::harness::wait;
use crate::harness::{QUIET, SOON};
use pki::Pki;
use relay::{Way, client_frame, read_frame};

const V1: &[u8] = b"PROXY TCP4 192.0.2.1 10.0.0.1 49152 1883\r\n";
const V2_LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";
/// From 192.0.2.1, over TLS, with a client certificate of the name `cn` that the proxy has verified.
const V2_TLS: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x19\xC0\x00\x02\x01\x0A\x00\x00\x01\xC0\x00\x07\x5B\
    \x20\x00\x0A\x03\x00\x00\x00\x00\x22\x00\x02cn";
const CONNECT_5: &[u8] = &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 2, b'w', b's'];
/// What a node prints of its listeners.
pub const KINDS: [&str; 4] = ["TCP Listener", "TCP Listener with TLS", "Websocket Listener", "Websocket Listener with TLS"];
/// The broker looks for changed files every 10 s.
const RELOAD: Duration = Duration::from_secs(40);

/// A node with listeners of all kinds behind its plain ones, all of which believe proxies.
fn start(pki: &Pki, client_authentication: &str) -> Node {
    Node::ready(config(pki, client_authentication, SOON))
}

/// `patience`: how long a client may take for a TLS handshake, a PROXY header, a WebSocket upgrade and its CONNECT, each.
pub fn config(pki: &Pki, client_authentication: &str, patience: Duration) -> Config {
    let patience = patience.as_millis();
    let directory = pki.path().display();
    let tls = format!(
        "<tls><keystore><path>{directory}/server.pem</path></keystore><truststore><path>{directory}/ca.pem</path></truststore>\
         <client-authentication-mode>{client_authentication}</client-authentication-mode>\
         <handshake-timeout>{patience}</handshake-timeout></tls>"
    );
    let listener = |kind: &str, more: &str| {
        format!(
            "<{kind}><port>0</port><bind-address>127.0.0.1</bind-address><proxy-protocol>true</proxy-protocol>{more}</{kind}>\n"
        )
    };
    let listeners = listener("tcp-listener", "")
        + &listener("websocket-listener", "")
        + &listener("tls-tcp-listener", &tls)
        + &listener("tls-websocket-listener", &tls);
    let more = format!("<restrictions><no-connect-idle-timeout>{patience}</no-connect-idle-timeout></restrictions>");
    Config { listeners, more, ..Config::default() }
}

/// The last listener of a kind.
pub fn address(node: &Node, kind: &str) -> SocketAddr {
    let stdout = node.stdout();
    let line = |line: &str| line.trim().strip_prefix(kind).and_then(|rest| rest.trim().parse().ok());
    stdout.lines().filter_map(line).next_back().unwrap_or_else(|| panic!("no {kind} in {stdout}"))
}

pub fn way(kind: &str, pki: &Pki, identity: Option<(&str, &[&str])>) -> Way {
    Way {
        tls: kind.ends_with("TLS").then(|| pki.client(identity)),
        fragment: kind.starts_with("Websocket").then_some(1000),
        ..Way::default()
    }
}

async fn watcher(node: &Node) -> Client {
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    watcher
}

/// `../shared/cases.md`, row 94.
#[tokio::test]
async fn every_transport_carries_mqtt_and_tells_where_the_client_is() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "OPTIONAL");
    let mut watcher = watcher(&node).await;
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    for kind in KINDS {
        let address = address(&node, kind);
        let headers: [(&str, &[u8]); 3] = [("none", b""), ("v1", V1), ("v2", V2_TLS)];
        for (n, (proxy, header)) in headers.into_iter().enumerate() {
            let case = format!("{kind}, proxy header {proxy}");
            let mut way = Way { header: header.to_vec(), slow: n == 2, ..way(kind, &pki, None) };
            // Once in messages of one large frame each.
            way.fragment = way.fragment.map(|fragment| if n == 1 { usize::MAX } else { fragment });
            let id = format!("{}-{n}", kind.replace(' ', ""));
            let relay = way.relay(address).await;
            let mut client = Client::connect(relay, &Options::v5(&id)).await;
            let json = Event::of(&watcher.message().await).json;
            assert_eq!(json["Client ID"], id.as_str(), "{case}");
            let peer = if n == 0 { "127.0.0.1" } else { "192.0.2.1" };
            assert_eq!(json["Client IP address"], peer, "{case}");
            assert_eq!(json["Node IP address"], "127.0.0.1", "{case}");
            assert_eq!(json["Listener port"], address.port(), "{case}");
            assert_eq!(json["Is secure connection?"], kind.ends_with("TLS") || n == 2, "{case}");
            assert_eq!(json["TLS: Common Name"].as_str(), (n == 2).then_some("cn"), "{case}");
            assert!(json["TLS: Subject Alternative Name"].is_null(), "{case}");

            assert_eq!(client.subscribe(&id, QoS::ExactlyOnce).await, ReasonCode::GrantedQoS2, "{case}");
            for payload in [&b""[..], b"small", &large] {
                client.publish(&id, payload, QoS::ExactlyOnce).await;
                assert!(client.message().await.payload == payload, "{case}, {} bytes", payload.len());
            }
            // The last packet arrives, whatever has to be said below MQTT to end the connection.
            let mut second = Client::connect(relay, &Options::v5(&id)).await;
            assert_eq!(client.closed().await, Some(ReasonCode::SessionTakenOver), "{case}");
            second.ping().await;
            second.disconnect().await;
            let expected = ["-SESSION_TAKEN_OVER/142", "+", "-CLIENT/0"].map(|event| format!("{id}:{event}"));
            assert_eq!(events::expect(&mut watcher, &id, 3).await, expected, "{case}");
        }
    }
}

#[tokio::test]
async fn a_required_certificate_is_in_the_lifecycle_event_and_nobody_comes_in_without() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "REQUIRED");
    let mut watcher = watcher(&node).await;
    for kind in KINDS.into_iter().filter(|kind| kind.ends_with("TLS")) {
        let broker = address(&node, kind);
        let anonymous = way(kind, &pki, None).relay(broker).await;
        assert!(Client::try_connect(anonymous, &Options::v5("nobody")).await.is_err());
        let stranger = way(kind, &Pki::new(), Some(("stranger", &[]))).relay(broker).await;
        assert!(Client::try_connect(stranger, &Options::v5("nobody")).await.is_err());

        let names: [&[&str]; 2] = [&["device.example", "192.0.2.9"], &[]];
        for names in names {
            // What the client shows to the broker outweighs what the proxy says.
            let way = Way { header: V2_TLS.to_vec(), ..way(kind, &pki, Some(("device 7", names))) };
            let client = Client::connect(way.relay(broker).await, &Options::v5("device")).await;
            let json = Event::of(&watcher.message().await).json;
            assert_eq!(json["Is secure connection?"], true);
            assert_eq!(json["TLS: Common Name"], "device 7");
            assert_eq!(json["TLS: Subject Alternative Name"], serde_json::json!(names));
            drop(client);
            events::expect(&mut watcher, "device", 1).await;
        }
    }
}

#[tokio::test]
async fn mosquittos_client_comes_over_tls_with_its_certificate() {
    if interop_skipped("mosquitto") {
        return;
    }
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "REQUIRED");
    let mut watcher = watcher(&node).await;
    watcher.subscribe("from/mosquitto", QoS::AtLeastOnce).await;
    let (certificate, key) = pki.client_files("mosquitto");
    let broker = address(&node, "TCP Listener with TLS");
    for version in ["tlsv1.2", "tlsv1.3"] {
        let mut command = tokio::process::Command::new("mosquitto_pub");
        command.args(["-V", "5", "-q", "2", "-i", version, "-h", "localhost", "-p", &broker.port().to_string()]);
        command
            .args(["-t", "from/mosquitto", "-m", version, "--tls-version", version, "--cafile"])
            .arg(pki.path().join("ca.pem"));
        command.arg("--cert").arg(&certificate).arg("--key").arg(&key);
        let output = tokio::time::timeout(SOON, command.output()).await.expect("it ends").expect("it starts");
        assert!(output.status.success(), "{version}: {output:?}");
        // The message may overtake the event.
        let came = [watcher.message().await, watcher.message().await, watcher.message().await];
        let (told, lifecycle): (Vec<_>, Vec<_>) = came.iter().partition(|message| &*message.topic == "from/mosquitto");
        assert!(told.len() == 1 && &*told[0].payload == version.as_bytes(), "{told:?}");
        let (connected, ended) = (Event::of(lifecycle[0]), Event::of(lifecycle[1]));
        assert_eq!((&connected.json["Client ID"], &connected.json["TLS: Common Name"]), (&version.into(), &"mosquitto".into()));
        let ended = (ended.client_id.as_str(), ended.connected, ended.initiator.as_deref(), ended.reason_code);
        assert_eq!(ended, (version, false, Some("CLIENT"), Some(0)));
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_up_and_no_connection_is_lost() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let broker = address(&node, "TCP Listener with TLS");
    let way = way("TCP Listener with TLS", &pki, None);
    let mut client = Client::connect(way.clone().relay(broker).await, &Options::v5("stays")).await;
    let renewed = pki.renew_server();
    let served = async || {
        let stream = TcpStream::connect(broker).await.ok()?;
        let tls = pki.client(None).connect("localhost".try_into().ok()?, stream).await.ok()?;
        tls.get_ref().1.peer_certificates().filter(|chain| chain[0] == renewed).map(|_| ())
    };
    wait::until_async("the renewed certificate is served", RELOAD, served).await;
    client.ping().await;
    assert!(Client::try_connect(way.relay(broker).await, &Options::v5("new")).await.is_ok());
    client.ping().await;
}

/// `../shared/cases.md`, row 94.
#[tokio::test]
async fn silent_and_half_done_handshakes_hold_up_nobody() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = Node::ready(config(&pki, "NONE", Duration::from_secs(3)));
    let mut silent = Vec::new();
    for kind in KINDS {
        let broker = address(&node, kind);
        for sent in [&b""[..], b"P", &V2_TLS[..20], b"\x16\x03\x01\x02", b"GET /mqtt HTTP/1.1\r\n"] {
            for _ in 0..20 {
                let mut stream = TcpStream::connect(broker).await.expect("connected");
                stream.write_all(sent).await.expect("sent");
                silent.push((kind, sent, stream));
            }
        }
        let mut client = Client::connect(way(kind, &pki, None).relay(broker).await, &Options::v5("served")).await;
        client.ping().await;
    }
    // Each is closed by its time limit, at the latest by that of CONNECT.
    for (kind, sent, mut stream) in silent {
        let mut rest = [0; 100];
        let closed = tokio::time::timeout(SOON, stream.read(&mut rest)).await;
        assert!(closed.is_ok(), "{kind} {sent:?}");
    }
}

/// `../shared/cases.md`, row 94.
#[tokio::test]
async fn a_listener_that_is_not_told_to_believe_proxies_believes_none() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let way = Way { header: V1.to_vec(), ..Way::default() };
    assert!(Client::try_connect(way.relay(node.mqtt()).await, &Options::v5("proxied")).await.is_err());
}

/// `../shared/cases.md`, row 94.
#[tokio::test]
async fn a_proxys_health_check_is_closed_without_a_byte_or_a_log_line() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let before = node.stderr();
    for kind in KINDS {
        let mut stream = TcpStream::connect(address(&node, kind)).await.expect("connected");
        stream.write_all(V2_LOCAL).await.expect("sent");
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok_and(|read| read.is_ok()), "{kind}");
        assert_eq!(rest, b"", "{kind}");
    }
    assert_eq!(node.stderr(), before);
}

#[tokio::test]
async fn frames_that_carry_no_mqtt_end_their_web_socket() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let mut watcher = watcher(&node).await;
    let text = client_frame(0x81, b"hello");
    let close = client_frame(0x88, &1000_u16.to_be_bytes());
    let not_masked = vec![0x82, 1, 0xC0];
    let endless = [&[0x82, 0xFF][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    let (reserved, unknown) = (client_frame(0xC2, &[0xC0, 0]), client_frame(0x83, b""));
    // What came before counts, also where it came in one piece with it.
    let behind_disconnect = [client_frame(0x82, &[0xE0, 0]), text.clone()].concat();
    for kind in KINDS.into_iter().filter(|kind| kind.starts_with("Websocket")) {
        nothing_is_told_of_who_never_connected(&node, kind, &pki, &[&text, &not_masked, &reserved]).await;
        for (bytes, status, end) in [
            (&text, 1003_u16, "-SERVER/129"),
            (&close, 1000, "-UNSPECIFIED"),
            (&not_masked, 1002, "-SERVER/129"),
            (&endless, 1002, "-SERVER/129"),
            (&reserved, 1002, "-SERVER/129"),
            (&unknown, 1002, "-SERVER/129"),
            (&behind_disconnect, 1000, "-CLIENT/0"),
        ] {
            let mut wire = way(kind, &pki, None).connect(address(&node, kind)).await.expect("upgraded");
            wire.write_all(&client_frame(0x82, CONNECT_5)).await.expect("sent");
            wire.flush().await.expect("sent");
            let (opcode, connack) = read_frame(&mut wire).await.expect("CONNACK");
            assert_eq!((opcode, connack[0]), (2, 0x20));
            wire.write_all(bytes).await.expect("sent");
            wire.flush().await.expect("sent");
            let answer = tokio::time::timeout(SOON, read_frame(&mut wire)).await.expect("an end");
            assert_eq!(answer.expect("a close frame"), (8, status.to_be_bytes().to_vec()), "{kind}");
            let closed = tokio::time::timeout(SOON, wire.read(&mut [0; 10])).await.expect("an end");
            assert!(!matches!(closed, Ok(1..)), "{kind}");
            let told = events::expect(&mut watcher, "", 2).await;
            assert_eq!(told, ["ws:+".to_owned(), format!("ws:{end}")], "{kind} {bytes:x?}");
        }
        // A frame may claim any length: it costs the broker nothing, and the client nothing but its own connection.
        let mut claims = Vec::new();
        for _ in 0..100 {
            let mut wire = way(kind, &pki, None).connect(address(&node, kind)).await.expect("upgraded");
            let header = [&[0x82, 0xFF][..], &200_000_000_u64.to_be_bytes(), &[0; 4]].concat();
            wire.write_all(&header).await.expect("sent");
            wire.flush().await.expect("sent");
            claims.push(wire);
        }
        tokio::time::sleep(QUIET).await;
        let mut client = Client::connect(way(kind, &pki, None).relay(address(&node, kind)).await, &Options::v5("x")).await;
        client.ping().await;
        client.disconnect().await;
        assert_eq!(events::expect(&mut watcher, "", 2).await, ["x:+", "x:-CLIENT/0"]);
    }
}

/// Errors of the PROXY header, of HTTP and of frames before CONNECT: the next event is another's.
async fn nothing_is_told_of_who_never_connected(node: &Node, kind: &str, pki: &Pki, frames: &[&[u8]]) {
    let broker = address(node, kind);
    let mut proxied = TcpStream::connect(broker).await.expect("connected");
    proxied.write_all(b"PROXY TCP4 nowhere\r\n").await.expect("sent");
    let below = Way { fragment: None, ..way(kind, pki, None) };
    let mut http = below.connect(broker).await.expect("connected");
    http.write_all(b"GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("sent");
    http.flush().await.expect("sent");
    let mut wires: Vec<Box<dyn relay::Wire>> = vec![Box::new(proxied), http];
    for frame in frames {
        let mut wire = way(kind, pki, None).connect(broker).await.expect("upgraded");
        wire.write_all(frame).await.expect("sent");
        wire.flush().await.expect("sent");
        wires.push(wire);
    }
    for mut wire in wires {
        let mut rest = Vec::new();
        _ = tokio::time::timeout(SOON, wire.read_to_end(&mut rest)).await.expect("closed");
    }
}

/// Passes on what comes from the client a little at a time, so that the broker sees parts of TLS records only.
async fn trickle(broker: SocketAddr) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(wire) = TcpStream::connect(broker).await else { return };
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_wire, mut to_wire) = wire.into_split();
                let down = tokio::io::copy(&mut from_wire, &mut to_client);
                let up = async {
                    let mut piece = [0; 400];
                    while let Ok(count @ 1..) = from_client.read(&mut piece).await {
                        if to_wire.write_all(&piece[..count]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                };
                _ = tokio::join!(up, down);
            });
        }
    });
    address
}

/// A TLS record has up to 16 KB, and nothing of it can be read before it is whole.
#[tokio::test]
async fn a_client_that_sends_a_tls_record_slowly_is_not_cut() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = start(&pki, "NONE");
    let mut subscriber = Client::connect(node.mqtt(), &Options::v5("subscriber")).await;
    subscriber.subscribe("slow", QoS::AtMostOnce).await;
    for kind in ["TCP Listener with TLS", "Websocket Listener with TLS"] {
        let broker = trickle(address(&node, kind)).await;
        let relay = way(kind, &pki, None).relay(broker).await;
        let mut client = Client::connect(relay, &Options::v5("slow").keep_alive(1)).await;
        let since = std::time::Instant::now();
        client.publish("slow", &[b'x'; 16_000], QoS::AtMostOnce).await;
        assert_eq!(subscriber.message().await.payload.len(), 16_000);
        assert!(since.elapsed() > Duration::from_secs(3), "twice its patience: {:?}", since.elapsed());
        assert_eq!(client.closed().await, Some(ReasonCode::KeepAliveTimeout), "once it is silent");
    }
}
