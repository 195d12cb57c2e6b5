//! The event log: a line for each of HiveMQ's formats, made by real clients (spec/hivemq.md 9.9), and our own of failed logins.

use std::fs;

use troupemq::mqtt::packet::{
    Auth, AuthProperties, Disconnect, DisconnectProperties, PacketId, RetainHandling, Subscribe, SubscriptionOptions,
    SubscriptionRequest,
};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::rbac::{Rbac, Scram, User};
use crate::harness::{SOON, wait};
use crate::transports::relay::Way;

/// What the log holds behind the time of each line.
fn lines(node: &Node) -> Vec<String> {
    let text = fs::read_to_string(node.data().join("log/event.log")).unwrap_or_default();
    let line = |line: &str| {
        let (time, rest) = line.split_once(" - ").unwrap_or_else(|| panic!("no line of the log: {line}"));
        assert_eq!((time.len(), &time[4..5], &time[10..11], &time[19..20]), (23, "-", " ", ","), "{line}");
        rest.to_owned()
    };
    text.lines().map(line).collect()
}

#[track_caller]
fn told(node: &Node, line: &str) {
    let mut last = Vec::new();
    for _ in 0..SOON.as_millis() / 50 {
        last = lines(node);
        if last.iter().any(|found| found == line) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no line {line:?} among {last:#?}");
}

fn users() -> Vec<User> {
    vec![User::password("u", "right-password", "all"), User::scram("s", "scram-password", "all")]
}

fn config(files: &Rbac) -> Config {
    let security = files.element() + "<utf8-validation><enabled>false</enabled></utf8-validation>";
    let queue = "<queued-messages><max-queue-size>1</max-queue-size></queued-messages>";
    Config { more: format!("<security>{security}</security>"), mqtt: queue.to_owned(), ..Config::default() }
}

fn user(client_id: &str) -> Options {
    Options::v5(client_id).username("u").password("right-password")
}

async fn refused(address: std::net::SocketAddr, options: &Options) -> ReasonCode {
    match Client::try_connect(address, options).await {
        Err(ConnectError::Refused(connack)) => connack.reason_code,
        other => panic!("{} is not refused: {:?}", options.client_id(), other.err()),
    }
}

#[tokio::test]
async fn what_happens_to_clients_is_written_in_hivemqs_words() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), &[("all", &["#"])], "");
    let mut node = Node::ready(config(&files));
    let (address, port) = (node.mqtt(), node.mqtt().port());

    // Come and go.
    let client = Client::connect(address, &user("polite").expiry(600).clean_start(false)).await;
    told(&node, "Client ID: polite, IP: 127.0.0.1, Clean Start: false, Session Expiry: 600 connected.");
    client.disconnect().await;
    told(&node, "Client ID: polite, IP: 127.0.0.1 disconnected gracefully.");
    let mut client = Client::connect(address, &user("talkative")).await;
    let properties = DisconnectProperties { reason_string: Some("lunch\nbreak".into()), ..DisconnectProperties::default() };
    client.send(&Packet::Disconnect(Box::new(Disconnect { reason_code: ReasonCode::Success, properties }))).await.expect("sent");
    told(&node, "Client ID: talkative, IP: 127.0.0.1 disconnected gracefully. Reason given by client: lunch\\u{a}break");
    // A token where the client id belongs.
    let token = "eyJhbGciOiJIUzI1NiJ9.e30.AAAA";
    Client::connect(address, &user(token)).await.disconnect().await;
    told(&node, "Client ID: UNKNOWN, IP: 127.0.0.1 disconnected gracefully.");
    assert!(lines(&node).iter().all(|line| !line.contains(token)));
    Client::connect(address, &user("lost")).await.reset();
    told(&node, &format!("Client ID: lost, IP: 127.0.0.1 disconnected ungracefully from TCP Listener on port: {port}."));
    let mut ended = Vec::new();
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let options = Options::of(version, &format!("same {version:?}")).username("u").password("right-password");
        // It reads nothing, nor sees its end.
        let first = Client::connect(address, &options).await;
        let second = Client::connect(address, &options).await;
        second.disconnect().await;
        let who = format!("Client ID: same {version:?}, IP: 127.0.0.1");
        told(&node, &format!("{who} disconnected gracefully."));
        let all = lines(&node).into_iter().filter_map(|line| Some(line.strip_prefix(&who)?.to_owned())).collect::<Vec<_>>();
        let came = ", Clean Start: true, Session Expiry: 0 connected.";
        assert_eq!(all, [came, " was disconnected. reason: Session taken over.", came, " disconnected gracefully."]);
        ended.push((first, who));
    }
    let mut rude = Client::connect(address, &user("rude")).await;
    rude.send(&Packet::Publish(Box::new(publish("$x", b"", QoS::AtMostOnce)))).await.expect("sent");
    told(&node, "Client ID: rude, IP: 127.0.0.1 was disconnected. reason: Protocol Error.");

    // Messages that are dropped, for a client and for a shared subscription.
    let mut sleeper = Client::connect(address, &user("sleeper").persistent()).await;
    for filter in ["own", "$share/g/work/+"] {
        sleeper.subscribe(filter, QoS::AtLeastOnce).await;
    }
    sleeper.disconnect().await;
    let mut publisher = Client::connect(address, &user("publisher")).await;
    for topic in ["own", "own", "work/x", "work/x"] {
        publisher.publish(topic, b"", QoS::AtLeastOnce).await;
    }
    let dropped = "Outgoing publish message was dropped. Receiving";
    told(&node, &format!("{dropped} client: sleeper, topic: own, qos: 1, reason: The client message queue is full."));
    let why = "qos: 1, reason: The shared subscription message queue is full.";
    told(&node, &format!("{dropped} shared subscription group: g/work/+, topic: work/x, {why}"));

    // An answer that its client cannot take, nor expect.
    let mut small = Client::connect(address, &user("small").maximum_packet_size(40)).await;
    let request = |_| SubscriptionRequest {
        filter: "t".into(),
        options: SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        },
    };
    let packet_id = PacketId::new(1).expect("not 0");
    let filters = (0..50).map(request).collect();
    let packet = Subscribe { packet_id, subscription_identifier: None, user_properties: Vec::new(), filters };
    small.send(&Packet::Subscribe(Box::new(packet))).await.expect("sent");
    told(
        &node,
        "Outgoing MQTT packet was dropped. Receiving client: small, messageType: SUBACK, reason: Maximum packet size exceeded, \
         size: 55 bytes, max: 40 bytes.",
    );
    assert_eq!(node.metric("com_hivemq_messages_dropped_mqtt_packet_too_large_count"), 1.0);
    small.ping().await;

    // A session that ends by itself.
    Client::connect(address, &user("brief").expiry(1)).await.disconnect().await;
    wait::until("the end of the session is told", SOON, || {
        let all = lines(&node);
        let line = all.iter().find(|line| line.starts_with("Client ID: brief session has expired at "))?;
        assert!(line.ends_with(". All persistent data for this client has been removed."), "{line}");
        Some(())
    });

    // AUTH.
    let method = "SCRAM-SHA-256";
    let scram = Scram::new(method, "s", "scram-password");
    let mut client = Client::raw(address, ProtocolVersion::V5).await.expect("a socket");
    client.send(&Options::v5("exchange").authentication(method, &scram.first()).packet()).await.expect("sent");
    let Ok(Packet::Auth(challenge)) = client.next_packet(SOON).await else { panic!("no AUTH") };
    let (message, _) = scram.last(&challenge.properties.authentication_data.expect("data"));
    let properties = AuthProperties {
        authentication_method: Some(method.into()),
        authentication_data: Some(message.into()),
        ..AuthProperties::default()
    };
    let reason_code = ReasonCode::ContinueAuthentication;
    client.send(&Packet::Auth(Box::new(Auth { reason_code, properties }))).await.expect("sent");
    told(&node, "Sent AUTH to Client ID: exchange, IP: 127.0.0.1, reason code: CONTINUE_AUTHENTICATION.");
    told(&node, "Received AUTH from Client ID: exchange, IP: 127.0.0.1, reason code: CONTINUE_AUTHENTICATION.");

    // Who is not let in; and nobody writes a line of another.
    let forger = "x\n2026-01-01 00:00:00,000 - Client ID: forged";
    let code = refused(address, &Options::v5(forger).username("u\r").password("wrong-password")).await;
    assert_eq!(code, ReasonCode::NotAuthorized);
    told(
        &node,
        "Client ID: x\\u{a}2026-01-01 00:00:00,000 - Client ID: forged, IP: 127.0.0.1, Username: u\\u{d} failed to authenticate. \
         reason: Authentication failed because of invalid credentials.",
    );
    refused(address, &Options::of(ProtocolVersion::V3_1_1, "nobody")).await;
    told(
        &node,
        "Client ID: nobody, IP: 127.0.0.1, Username: UNKNOWN failed to authenticate. reason: Authentication failed because username \
         or password are missing.",
    );

    // The last lines are there when the node has stopped, and its next start goes on behind them.
    node.stop();
    told(&node, "Client ID: publisher, IP: 127.0.0.1 was disconnected. reason: Server shutting down.");
    let before = lines(&node);
    for (first, who) in ended {
        let end = format!("{who} was disconnected. reason: Session taken over.");
        assert_eq!(before.iter().filter(|line| **line == end).count(), 1, "{before:#?}");
        drop(first);
    }
    assert!(!before.iter().any(|line| line.contains("password") && !line.contains("username or password are missing")));
    assert!(before.iter().all(|line| !line.starts_with("Client ID: forged")), "{before:#?}");
    // A log that is removed is made anew; one that is not wanted is not.
    node.start();
    fs::remove_file(node.data().join("log/event.log")).expect("a file");
    Client::connect(node.mqtt(), &user("after")).await.disconnect().await;
    told(&node, "Client ID: after, IP: 127.0.0.1 disconnected gracefully.");
    assert!(!lines(&node).iter().any(|line| line.contains("publisher")));
}

/// Behind a proxy each client is judged by its own address, not by the proxy's.
#[tokio::test]
async fn a_client_behind_a_proxy_is_judged_and_written_by_its_own_address() {
    let _permit = acquire(Weight::Node);
    let files = Rbac::new(&users(), &[("all", &["#"])], "");
    let listeners = "<tcp-listener><port>0</port><name>proxied</name><bind-address>127.0.0.1</bind-address>\
                     <proxy-protocol>true</proxy-protocol></tcp-listener>";
    let node = Node::ready(Config { listeners: listeners.to_owned(), ..config(&files) });
    let broker = node
        .stdout()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("TCP Listener")?.trim().parse().ok())
        .nth(1)
        .expect("a second listener");
    let behind = async |ip: &str| {
        let header = format!("PROXY TCP4 {ip} 192.0.2.200 4711 1883\r\n").into_bytes();
        Way { header, ..Way::default() }.relay(broker).await
    };
    let wrong = Options::v5("c").username("u").password("wrong");
    for _ in 0..5 {
        assert_eq!(refused(behind("192.0.2.1").await, &wrong).await, ReasonCode::NotAuthorized);
    }
    let right = Options::v5("c").username("u").password("right-password");
    assert_eq!(refused(behind("192.0.2.1").await, &right).await, ReasonCode::ConnectionRateExceeded);
    Client::connect(behind("192.0.2.2").await, &right).await.ping().await;
    told(&node, "Client ID: c, IP: 192.0.2.2, Clean Start: true, Session Expiry: 0 connected.");
    told(
        &node,
        "Client ID: c, IP: 192.0.2.1, Username: u failed to authenticate. reason: too many failed logins, try again in a few seconds.",
    );
    assert!(lines(&node).iter().all(|line| !line.contains("127.0.0.1")));
    assert_eq!(node.metric("troupemq_login_failures_total{cause=\"too-many-failures\"}"), 1.0);
    assert_eq!(node.metric("troupemq_login_failures_total{cause=\"not-authorized\"}"), 5.0);
}
