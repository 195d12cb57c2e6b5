//! Clients that mean no good, or behave so: they cost their own connection and a bounded amount of memory, and the others are served
//! meanwhile.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq::mqtt::packet::{RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, codec};

use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};
use crate::transports::pki::Pki;
use crate::transports::{KINDS, address, config, way};

const MIB: usize = 1024 * 1024;
const CONNECTIONS: &str = "com_hivemq_networking_connections_current";
const CONNECT_5: &[u8] = &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 2, b'h', b'5'];

/// Goes on with `attack` while another client publishes and receives; it must be served within the usual time, all the time, and
/// once more afterwards. The node's memory may grow by `memory`, bytes.
async fn while_others_are_served<T>(node: &Node, memory: usize, attack: impl Future<Output = T>) -> T {
    let mut probe = Client::connect(node.mqtt(), &Options::v5("probe")).await;
    probe.subscribe("probe", QoS::AtLeastOnce).await;
    let before = node.resident_bytes();
    let mut served = 0_u64;
    let round_trips = async {
        loop {
            round_trip(&mut probe).await;
            served += 1;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let result = tokio::select! {
        result = attack => result,
        () = round_trips => unreachable!("it does not end"),
    };
    // One may have been in the middle.
    let mut after = Client::connect(node.mqtt(), &Options::v5("probe")).await;
    after.subscribe("probe", QoS::AtLeastOnce).await;
    round_trip(&mut after).await;
    let grown = node.resident_bytes().saturating_sub(before);
    assert!(grown <= memory, "the node grew by {grown} bytes, allowed are {memory}; {served} round trips meanwhile");
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
    after.disconnect().await;
    result
}

async fn round_trip(probe: &mut Client) {
    probe.publish("probe", b"1", QoS::AtLeastOnce).await;
    assert_eq!(probe.text().await, "1");
}

/// Whether nothing but a close comes.
async fn is_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let mut rest = [0; 4096];
    loop {
        match tokio::time::timeout(SOON, stream.read(&mut rest)).await {
            Ok(Ok(0) | Err(_)) => return true,
            Ok(Ok(_)) => {}
            Err(_) => return false,
        }
    }
}

#[tokio::test]
async fn slow_lorises_are_cut_off_and_hold_up_nobody() {
    const EACH: usize = 75;
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = Node::ready(config(&pki, "NONE", Duration::from_secs(5)));
    let attack = async {
        let mut lorises = Vec::new();
        for kind in KINDS {
            for n in 0..EACH {
                let (way, broker) = (way(kind, &pki, None), address(&node, kind));
                lorises.push(tokio::spawn(async move {
                    // Half of them are as slow before MQTT begins.
                    if n % 2 == 0 {
                        let stream = TcpStream::connect(broker).await.expect("connected");
                        let beginning: &[u8] = match kind {
                            _ if kind.ends_with("TLS") => &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC, 0x03, 0x03],
                            _ if kind.starts_with("Websocket") => b"GET /mqtt HTTP/1.1\r\n",
                            _ => CONNECT_5,
                        };
                        return trickle(stream, beginning).await;
                    }
                    match way.connect(broker).await {
                        Ok(wire) => trickle(wire, CONNECT_5).await,
                        Err(_) => true,
                    }
                }));
            }
        }
        for loris in lorises {
            assert!(loris.await.expect("a result"), "still open");
        }
    };
    while_others_are_served(&node, 48 * MIB, attack).await;
    // The last DISCONNECT of the others may still be on its way.
    wait::until("all are gone", SOON, || (node.metric(CONNECTIONS) == 0.0).then_some(()));
}

/// One byte a second, until the broker closes; false where it does not.
async fn trickle(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, bytes: &[u8]) -> bool {
    let (mut read, mut write) = tokio::io::split(stream);
    let writing = async {
        // Not the last byte: the packet stays half.
        for byte in bytes.iter().take(bytes.len() - 1).chain(std::iter::repeat(&b'x')) {
            if write.write_all(&[*byte]).await.is_err() || write.flush().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        closed = is_closed(&mut read) => closed,
        () = writing => is_closed(&mut read).await,
    }
}

/// The peer is gone and its host says nothing: no FIN comes, and whatever is sent is lost.
#[tokio::test]
async fn half_open_connections_end_at_one_and_a_half_keep_alives() {
    const GONE: usize = 50;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let attack = async {
        let mut gone = Vec::new();
        for n in 0..GONE {
            let id = format!("gone{n}");
            let options = if n % 2 == 0 { Options::v5(&id) } else { Options::v3(&id) }.keep_alive(2);
            gone.push((Client::connect(node.mqtt(), &options).await, Instant::now()));
        }
        wait::until("the broker finds out", SOON, || {
            (node.metric("com_hivemq_keep_alive_disconnect_count") >= GONE as f64).then_some(())
        });
        for (mut client, connected) in gone {
            let expected = (client.version == ProtocolVersion::V5).then_some(ReasonCode::KeepAliveTimeout);
            assert_eq!(client.closed().await, expected);
            assert!(connected.elapsed() >= Duration::from_millis(2_990), "{:?}", connected.elapsed());
        }
    };
    while_others_are_served(&node, 16 * MIB, attack).await;
    // The last DISCONNECT of the others may still be on its way.
    wait::until("all are gone", SOON, || (node.metric(CONNECTIONS) == 0.0).then_some(()));
}

/// A subscriber that is flooded and takes nothing; with Keep Alive, since otherwise it may stay as long as it likes.
#[tokio::test]
async fn subscribers_that_never_read_are_bounded_and_end_with_their_keep_alive() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    // What is dropped is not published again: its memory is not what is looked at here.
    let node = Node::ready(Config { addons: false, ..config(&pki, "NONE", SOON) });
    for kind in ["TCP Listener", "Websocket Listener"] {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            let attack = async {
                let mut deaf = way(kind, &pki, None).connect(address(&node, kind)).await.expect("a connection");
                let mut bytes = BytesMut::new();
                codec::encode(&Options::v5("deaf").keep_alive(4).packet(), ProtocolVersion::V5, &mut bytes);
                let options = SubscriptionOptions {
                    qos,
                    no_local: false,
                    retain_as_published: false,
                    retain_handling: RetainHandling::Send,
                };
                let filters = vec![SubscriptionRequest { filter: "flood".into(), options }];
                let packet_id = std::num::NonZeroU16::MIN;
                let subscribe = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
                codec::encode(&Packet::Subscribe(Box::new(subscribe)), ProtocolVersion::V5, &mut bytes);
                let framed = if kind.starts_with("Websocket") {
                    crate::transports::relay::client_frame(0x82, &bytes)
                } else {
                    bytes.to_vec()
                };
                deaf.write_all(&framed).await.expect("sent");
                deaf.flush().await.expect("sent");
                let subscribed = || (node.metric("com_hivemq_subscriptions_overall_current") >= 2.0).then_some(());
                wait::until("subscribed", SOON, subscribed);

                let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
                let before = node.metric("com_hivemq_keep_alive_disconnect_count");
                // Until it is found out, and after.
                while node.metric("com_hivemq_keep_alive_disconnect_count") == before {
                    for _ in 0..50 {
                        publisher.publish("flood", &vec![b'x'; 20_000], qos).await;
                    }
                    publisher.ping().await;
                }
                publisher.disconnect().await;
                // The socket ends with the session (case 93).
                assert!(is_closed(&mut deaf).await, "{kind} {qos:?}: still open");
            };
            Box::pin(while_others_are_served(&node, 96 * MIB, attack)).await;
            wait::until("it is gone", SOON, || (node.metric(CONNECTIONS) == 0.0).then_some(()));
        }
    }
}

/// A client that takes nothing for a while and says all the time that it lives is not called silent.
#[tokio::test]
async fn a_slow_reader_that_pings_is_kept() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { addons: false, ..Config::default() });
    let mut slow = Client::connect(node.mqtt(), &Options::v5("slow").keep_alive(1)).await;
    slow.subscribe("flood", QoS::AtMostOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let not_writable = "com_hivemq_mqtt_connection_not_writable_current";
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) || node.metric(not_writable) == 0.0 {
        for _ in 0..50 {
            publisher.publish("flood", &vec![b'x'; 20_000], QoS::AtMostOnce).await;
        }
        publisher.ping().await;
        slow.send(&Packet::Pingreq).await.expect("it is connected");
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(began.elapsed() < SOON, "its socket takes everything");
    }
    // It reads at last, and finds an answer to its pings behind what it was sent.
    slow.ping().await;
    assert_eq!(slow.disconnect, None);
    assert_eq!(node.metric("com_hivemq_keep_alive_disconnect_count"), 0.0);
}

/// What a publisher pipelines is not taken while it does not take the acknowledgements.
#[tokio::test]
async fn a_publisher_that_never_reads_its_acknowledgements_is_not_read() {
    const FLOOD_BYTES: usize = 64 * MIB;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config { addons: false, ..Config::default() });
    let attack = async {
        // MQTT 3 has no Receive Maximum to offend against.
        let mut client = Client::connect(node.mqtt(), &Options::v3("pipeline")).await;
        let packet_id = Some(std::num::NonZeroU16::MIN);
        let packet = troupemq::mqtt::packet::Publish { packet_id, ..publish("t", b"", QoS::AtLeastOnce) };
        let mut bytes = BytesMut::new();
        while bytes.len() < 64 * 1024 {
            codec::encode(&Packet::Publish(Box::new(packet.clone())), ProtocolVersion::V3_1_1, &mut bytes);
        }
        let flood = async {
            for _ in 0..FLOOD_BYTES / bytes.len() {
                if client.send_bytes(&bytes).await.is_err() {
                    return;
                }
            }
            panic!("{FLOOD_BYTES} bytes were read, and their answers kept");
        };
        _ = tokio::time::timeout(Duration::from_secs(4), flood).await;
        // Whoever reads again is served again.
        let mut answers = 0;
        while answers < 1000 {
            assert!(matches!(client.next_packet(SOON).await, Ok(Packet::Puback(_))));
            answers += 1;
        }
    };
    while_others_are_served(&node, 32 * MIB, attack).await;
}

/// Every packet of a client, one byte in a write; over WebSocket one byte in a fragment, with a ping between them.
#[tokio::test]
async fn a_session_byte_by_byte_is_a_session() {
    let _permit = acquire(Weight::Node);
    let pki = Pki::new();
    let node = Node::ready(config(&pki, "NONE", SOON));
    for kind in KINDS {
        let mut way = way(kind, &pki, None);
        way.fragment = way.fragment.map(|_| 1);
        let relay = way.relay(address(&node, kind)).await;
        for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            let options = Options::of(version, "bytes").username("name").will("will", "last words", 0).byte_by_byte();
            let mut client = Client::connect(relay, &options).await;
            assert_eq!(client.subscribe("bytes/#", QoS::ExactlyOnce).await, ReasonCode::GrantedQoS2, "{kind} {version:?}");
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for payload in [&b""[..], b"payload"] {
                    client.publish("bytes/ä", payload, qos).await;
                    let message = client.message().await;
                    assert_eq!((&*message.topic, &*message.payload, message.qos), ("bytes/ä", payload, qos), "{kind}");
                }
            }
            client.unsubscribe("bytes/#").await;
            client.publish("bytes/ä", b"nobody", QoS::ExactlyOnce).await;
            client.ping().await;
            client.nothing().await;
            client.disconnect().await;
        }
    }
}

/// A linear congruential generator: the same bytes every time.
struct Noise(u64);

impl Noise {
    fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u8
    }
}

#[tokio::test]
async fn garbage_behind_a_connect_ends_its_own_connection() {
    const ROUNDS: usize = 300;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let attack = async {
        let mut noise = Noise(42);
        for round in 0..ROUNDS {
            let mut client = Client::raw(node.mqtt(), ProtocolVersion::V5).await.expect("connected");
            let mut bytes = CONNECT_5.to_vec();
            // Some begin as a packet that clients send.
            let types = [0x30, 0x32, 0x34, 0x82, 0xA2, 0x40, 0x50, 0x62, 0x70, 0xE0, 0xF0];
            bytes.extend(types.get(round % 16));
            bytes.extend((0..1 + round * 7 % 500).map(|_| noise.byte()));
            // A client that stops in the middle of a packet closes, too.
            _ = client.send_bytes(&bytes).await;
            _ = tokio::time::timeout(Duration::from_millis(20), async { while client.next_packet(SOON).await.is_ok() {} }).await;
        }
    };
    while_others_are_served(&node, 32 * MIB, attack).await;
    wait::until("all are gone", SOON, || (node.metric(CONNECTIONS) == 0.0).then_some(()));
}

#[tokio::test]
async fn as_many_subscriptions_in_a_packet_as_there_are_identifiers_are_granted() {
    const FILTERS: usize = 65_535;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let attack = async {
        let mut greedy = Client::connect(node.mqtt(), &Options::v5("greedy")).await;
        let options = SubscriptionOptions {
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        };
        let filters = (0..FILTERS).map(|n| SubscriptionRequest { filter: format!("greedy/{n}").into(), options }).collect();
        let packet_id = std::num::NonZeroU16::MIN;
        let subscribe = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
        greedy.send(&Packet::Subscribe(Box::new(subscribe))).await.expect("sent");
        match greedy.next_packet(3 * SOON).await.expect("an answer") {
            Packet::Suback(suback) => {
                assert_eq!(suback.reason_codes.len(), FILTERS);
                assert!(suback.reason_codes.iter().all(|code| *code == ReasonCode::GrantedQoS1));
            }
            other => panic!("{other:?}"),
        }
        for n in [0, FILTERS / 2, FILTERS - 1] {
            greedy.publish(&format!("greedy/{n}"), b"found", QoS::AtLeastOnce).await;
            assert_eq!(greedy.text().await, "found");
        }
        greedy.disconnect().await;
    };
    while_others_are_served(&node, 256 * MIB, attack).await;
    wait::until("they are gone", SOON, || (node.metric("com_hivemq_subscriptions_overall_current") == 0.0).then_some(()));
}

/// They come through a listener that lets in a rate, as all do unless told otherwise.
#[tokio::test]
async fn clients_that_reconnect_in_a_tight_loop_hold_up_nobody() {
    let _permit = acquire(Weight::Node);
    let listeners = "<tcp-listener><port>0</port><bind-address>127.0.0.1</bind-address><connect-overload-protection>\
                     <connect-rate>50</connect-rate></connect-overload-protection></tcp-listener>"
        .to_owned();
    let node = Node::ready(Config { listeners, ..Config::default() });
    let broker = address(&node, "TCP Listener");
    let attack = async {
        let until = Instant::now() + Duration::from_secs(4);
        let (mut loops, mut times) = (Vec::new(), Vec::new());
        for n in 0..4_usize {
            loops.push(tokio::spawn(async move {
                let mut times = 0;
                while Instant::now() < until {
                    // Two of them take each other's session over; one does not wait for an answer.
                    let options = Options::v5(&format!("loop{}", n / 2)).persistent().will("will", "again", 0);
                    if n == 3 {
                        abandon(broker, &options).await;
                    } else {
                        _ = Client::try_connect(broker, &options).await;
                    }
                    times += 1;
                }
                times
            }));
        }
        for tight in loops {
            times.push(tight.await.expect("a loop"));
        }
        // Each of them gets on, however busy the machine.
        assert!(times.iter().all(|times| *times > 1), "{times:?}");
    };
    while_others_are_served(&node, 48 * MIB, attack).await;
    wait::until("all are gone", SOON, || (node.metric(CONNECTIONS) == 0.0).then_some(()));
    wait::until("two sessions are left", SOON, || (node.metric("com_hivemq_sessions_overall_current") == 2.0).then_some(()));
}

/// Sends a CONNECT and is gone.
async fn abandon(broker: SocketAddr, options: &Options) {
    if let Ok(mut client) = Client::raw(broker, options.version()).await {
        _ = client.send(&options.packet()).await;
    }
}

/// case 116
#[tokio::test]
async fn connections_that_never_connect_are_in_no_count() {
    const CLIENTS: usize = 10;
    const OFFLINE: usize = 5;
    let _permit = acquire(Weight::Node);
    let more = "<restrictions><no-connect-idle-timeout>3000</no-connect-idle-timeout></restrictions>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    for n in 0..OFFLINE {
        Client::connect(node.mqtt(), &Options::v5(&format!("offline{n}")).persistent()).await.disconnect().await;
    }
    let mut silent = Vec::new();
    for n in 0..70 {
        let mut stream = TcpStream::connect(node.mqtt()).await.expect("connected");
        stream.write_all(if n < 50 { b"" } else { &CONNECT_5[..9] }).await.expect("sent");
        silent.push(stream);
    }
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        clients.push(Client::connect(node.mqtt(), &Options::v5(&format!("c{n}"))).await);
    }
    let counts = |node: &Node| {
        let metrics = node.metrics();
        let negative: Vec<_> = metrics.iter().filter(|(_, value)| **value < 0.0).collect();
        assert!(negative.is_empty(), "{negative:?}");
        let of = |name: &str| metrics[name];
        (of(CONNECTIONS), of("com_hivemq_sessions_overall_current"), of("com_hivemq_sessions_persistent_active"))
    };
    assert_eq!(counts(&node), (CLIENTS as f64, (CLIENTS + OFFLINE) as f64, OFFLINE as f64));
    // The silent ones go at their time, the first half of the clients says so, the others do not.
    for mut stream in silent {
        assert!(is_closed(&mut stream).await);
    }
    assert_eq!(counts(&node), (CLIENTS as f64, (CLIENTS + OFFLINE) as f64, OFFLINE as f64));
    for (n, client) in clients.into_iter().enumerate() {
        if n % 2 == 0 {
            client.disconnect().await;
        } else {
            drop(client);
        }
    }
    wait::until("all clients are gone", SOON, || (counts(&node).0 == 0.0).then_some(()));
    wait::until("so are their sessions", SOON, || (counts(&node) == (0.0, OFFLINE as f64, OFFLINE as f64)).then_some(()));
    // A connection that is refused is in no count either.
    for _ in 0..20 {
        let refused = Client::raw(node.mqtt(), ProtocolVersion::V5).await;
        let mut client = refused.expect("connected");
        client.send_bytes(&[0xC0, 0x00]).await.expect("sent");
        assert!(matches!(client.next_packet(SOON).await, Err(Gone::Closed(_))));
    }
    assert_eq!(counts(&node), (0.0, OFFLINE as f64, OFFLINE as f64));
}
