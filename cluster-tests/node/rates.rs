//! How fast clients may come and send: connect-overload-protection and incoming-bandwidth-throttling.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const HELD: &str = "troupemq_connects_held_total";
const REFUSED: &str = "troupemq_connects_refused_total";

/// A node with a second TCP listener that is protected as told; its address.
fn protected(rate: &str, burst: u32) -> (Node, SocketAddr) {
    let listeners = format!(
        "<tcp-listener><port>0</port><bind-address>127.0.0.1</bind-address><connect-overload-protection><connect-rate>{rate}\
         </connect-rate><connect-burst-size>{burst}</connect-burst-size></connect-overload-protection></tcp-listener>"
    );
    let node = Node::ready(Config { listeners, ..Config::default() });
    let stdout = node.stdout();
    let line = |line: &str| line.trim().strip_prefix("TCP Listener").and_then(|rest| rest.trim().parse().ok());
    let address = stdout.lines().filter_map(line).next_back().unwrap_or_else(|| panic!("no listener in {stdout}"));
    (node, address)
}

#[tokio::test]
async fn connections_beyond_a_listeners_rate_wait_and_are_served() {
    let _permit = acquire(Weight::Node);
    let (node, address) = protected("5", 3);
    let began = Instant::now();
    let storm: Vec<_> =
        (0..13).map(|n| tokio::spawn(async move { Client::connect(address, &Options::v5(&format!("c{n}"))).await })).collect();
    // The others' listener has a bucket of its own.
    for n in 0..50 {
        Client::connect(node.mqtt(), &Options::v5(&format!("other{n}"))).await.ping().await;
    }
    let mut clients = Vec::new();
    for client in storm {
        clients.push(client.await.expect("served"));
    }
    // Three at once, ten more at five a second.
    assert!(began.elapsed() >= Duration::from_millis(1_990), "all in after {:?}", began.elapsed());
    for client in &mut clients {
        client.ping().await;
    }
    assert_eq!((node.metric(HELD), node.metric(REFUSED)), (10.0, 0.0));
}

#[tokio::test]
async fn a_flood_of_connects_is_refused_in_part_and_others_are_served() {
    const FLOOD: usize = 60;
    let _permit = acquire(Weight::Node);
    let (node, address) = protected("2", 4);
    // In either version: MQTT 3 has no code for it and is closed.
    let mut flood = Vec::new();
    for n in 0..FLOOD {
        let id = format!("c{n}");
        let options = if n % 2 == 0 { Options::v5(&id) } else { Options::v3(&id) };
        flood.push(tokio::spawn(async move { (options.version(), Client::try_connect(address, &options).await) }));
    }
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    other.subscribe("t", QoS::AtLeastOnce).await;
    other.publish("t", b"served", QoS::AtLeastOnce).await;
    assert_eq!(other.text().await, "served");
    let (mut served, mut told, mut closed) = (0, 0, 0);
    for connecting in flood {
        match connecting.await.expect("a result") {
            (_, Ok(_)) => served += 1,
            (version, Err(ConnectError::Refused(connack))) => {
                assert_eq!((version.is_v5(), connack.reason_code), (true, ReasonCode::ConnectionRateExceeded));
                told += 1;
            }
            (_, Err(ConnectError::Socket(_))) => closed += 1,
        }
    }
    // The burst, and two a second for the five seconds that a connection waits at most; a busy machine takes longer to come.
    assert!(served >= 13, "{served} served");
    assert_eq!(node.metric(REFUSED), (told + closed) as f64);
    assert!(told > 10 && closed > 10, "{told} told, {closed} closed");
    assert!(node.stderr().contains("connect-overload-protection/connect-rate"), "{}", node.stderr());
    // It is over when it is over.
    wait::until_async("the listener lets in clients again", SOON, async || {
        Client::try_connect(address, &Options::v5("later")).await.ok().map(drop)
    })
    .await;
}

#[tokio::test]
async fn the_node_reads_no_more_bytes_than_it_is_told_and_everybody_gets_a_turn() {
    const RATE: usize = 100_000;
    const BYTES: usize = 300_000;
    let _permit = acquire(Weight::Node);
    let more = format!("<restrictions><incoming-bandwidth-throttling>{RATE}</incoming-bandwidth-throttling></restrictions>");
    let node = Node::ready(Config { more, ..Config::default() });
    // Its keep alive is shorter than its message takes: the clock stands still while the broker does not read.
    let mut sender = Client::connect(node.mqtt(), &Options::v5("sender").keep_alive(1)).await;
    let mut other = Client::connect(node.mqtt(), &Options::v5("other")).await;
    let began = Instant::now();
    let sending = tokio::spawn(async move {
        sender.publish("t", &vec![b'x'; BYTES], QoS::AtLeastOnce).await;
        sender.ping().await;
        (began.elapsed(), sender)
    });
    let mut pings = 0;
    while !sending.is_finished() {
        other.ping().await;
        pings += 1;
    }
    let (took, mut sender) = sending.await.expect("sent");
    // A tenth of a second's worth may have been saved up.
    let least = Duration::from_millis((BYTES * 1000 / RATE - 100) as u64);
    assert!(took >= least, "{BYTES} bytes in {took:?}");
    assert!(pings >= 5, "{pings} pings answered in {took:?}");
    // Nobody is held any more.
    assert_eq!(node.metric("com_hivemq_overload_protection_clients_backpressure_active"), 0.0);
    sender.ping().await;
    // A client that is silent of its own accord is found out all the same.
    assert_eq!(sender.closed().await, Some(ReasonCode::KeepAliveTimeout));
}

/// A node that had no time for a while must not call those silent whose packets wait in its sockets.
#[tokio::test]
async fn clients_that_pinged_in_time_outlive_a_pause_of_the_node() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut clients = Vec::new();
    for n in 0..10 {
        clients.push(Client::connect(node.mqtt(), &Options::v5(&format!("c{n}")).keep_alive(2)).await);
    }
    let mut silent = Client::connect(node.mqtt(), &Options::v5("silent").keep_alive(2)).await;
    node.signal(rustix::process::Signal::STOP);
    tokio::time::sleep(Duration::from_secs(2)).await;
    for client in &mut clients {
        client.send(&troupemq::mqtt::Packet::Pingreq).await.expect("sent");
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.signal(rustix::process::Signal::CONT);
    for client in &mut clients {
        let alive = client.try_ping().await;
        assert!(alive.is_ok(), "{alive:?}, {:?}", client.disconnect);
    }
    assert_eq!(silent.closed().await, Some(ReasonCode::KeepAliveTimeout));
}

/// Many who send at once: no connection is starved, and none is called silent.
#[tokio::test]
async fn throttled_clients_share_what_the_node_reads() {
    const CLIENTS: usize = 20;
    let _permit = acquire(Weight::Node);
    let more = "<restrictions><incoming-bandwidth-throttling>200000</incoming-bandwidth-throttling></restrictions>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        clients.push(Client::connect(node.mqtt(), &Options::v5(&format!("c{n}")).keep_alive(2)).await);
    }
    let began = Instant::now();
    let mut sending = Vec::new();
    for mut client in clients {
        sending.push(tokio::spawn(async move {
            client.publish("t", &vec![b'x'; 30_000], QoS::AtLeastOnce).await;
            let at = Instant::now();
            client.disconnect().await;
            at
        }));
    }
    let mut ends = Vec::new();
    for end in sending {
        ends.push(end.await.expect("acknowledged").duration_since(began));
    }
    ends.sort();
    // In turns all end late; one after the other, half of them would have ended after half of the time. An arbiter with few of them gives
    // each more turns, so that it is the other half that shows it.
    let (middle, last) = (ends[CLIENTS / 2], ends[CLIENTS - 1]);
    assert!(middle > last * 3 / 4, "{ends:?}");
}
