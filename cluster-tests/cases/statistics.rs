//! Statistics and metrics.

use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::kit::{self, node_with, publisher, queue_of, subscriber, wait_metric};
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::run;
use crate::harness::{SOON, program, wait};

/// Row 116.
#[tokio::test]
async fn connections_that_never_become_clients_are_not_counted_as_clients_and_end_in_time() {
    let _permit = acquire(Weight::Node);
    let more = "<restrictions><no-connect-idle-timeout>2000</no-connect-idle-timeout></restrictions>".to_owned();
    let node = Node::ready(Config { more, ..Config::default() });
    for number in 0..5 {
        subscriber(node.mqtt(), &Options::v5(&format!("offline-{number}")).persistent(), "t").await.disconnect().await;
    }
    let mut idle = Vec::new();
    for number in 0..70 {
        let mut stream = TcpStream::connect(node.mqtt()).await.expect("connected");
        if number >= 50 {
            stream.write_all(&[0x10, 0x20, 0, 4, b'M', b'Q']).await.expect("sent");
        }
        idle.push(stream);
    }
    let mut clients = Vec::new();
    for number in 0..10 {
        clients.push(Client::connect(node.mqtt(), &Options::v5(&format!("client-{number}"))).await);
    }
    wait_metric(&node, kit::CONNECTIONS, |count| count == 10.0);
    wait_metric(&node, kit::SESSIONS, |count| count == 15.0);
    for mut stream in idle {
        let mut rest = Vec::new();
        let end = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
        assert!(end.is_ok(), "an idle connection stays open");
        assert_eq!(rest, b"");
    }
    // Neither the end of those that were no clients moves the counts.
    assert_eq!(node.metric(kit::CONNECTIONS), 10.0);
    for client in &mut clients {
        client.ping().await;
    }
    for client in clients {
        client.disconnect().await;
    }
    wait_metric(&node, kit::CONNECTIONS, |count| count == 0.0);
    wait_metric(&node, kit::SESSIONS, |count| count == 5.0);
    for (name, value) in node.metrics() {
        assert!(value >= 0.0, "{name} is {value}");
    }
}

/// Row 117, shortened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gauges_come_back_after_churn() {
    const WORKERS: usize = 8;
    const EACH: usize = 120;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let address = node.mqtt();
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            tokio::spawn(async move {
                for number in 0..EACH {
                    let version = if number % 4 < 2 { ProtocolVersion::V5 } else { ProtocolVersion::V3_1_1 };
                    // Some ids return, some sessions live for a second.
                    let options = Options::of(version, &format!("churn-{worker}-{}", number % 50));
                    let options = if version == ProtocolVersion::V5 { options.expiry((number % 3 == 0).into()) } else { options };
                    if number % 2 == 0 {
                        // Cut between CONNECT and SUBACK: at once, or with all of it on its way.
                        let mut client = Client::raw(address, version).await.expect("connected");
                        client.send(&options.packet()).await.expect("sent");
                        if number % 4 == 0 {
                            let subscribe: &[u8] = match version {
                                ProtocolVersion::V5 => &[0x82, 7, 0, 1, 0, 0, 1, b't', 1],
                                _ => &[0x82, 6, 0, 1, 0, 1, b't', 1],
                            };
                            client.send_bytes(subscribe).await.expect("sent");
                        }
                        client.reset();
                        continue;
                    }
                    let mut client = Client::connect(address, &options).await;
                    for filter in ["t", "a/+/b", "$share/g/t"] {
                        client.subscribe(filter, QoS::AtLeastOnce).await;
                    }
                    if number % 3 == 0 {
                        client.disconnect().await
                    } else {
                        client.reset()
                    };
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    for gauge in [kit::CONNECTIONS, kit::SESSIONS, kit::SUBSCRIPTIONS] {
        wait_metric(&node, gauge, |count| count == 0.0);
    }
    // The lists agree with the gauges: nobody is subscribed.
    let code = publisher(address).await.publish("t", b"", QoS::AtLeastOnce).await;
    assert_eq!(code, troupemq::mqtt::ReasonCode::NoMatchingSubscribers);
    wait_metric(&node, kit::SESSIONS, |count| count == 0.0);
    assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
}

/// Row 119: the gauge says how full a queue is before anything is dropped.
#[tokio::test]
async fn the_gauge_of_queued_messages_rises_before_the_first_drop() {
    const LIMIT: usize = 100;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(LIMIT));
    let options = Options::v5("away").persistent();
    subscriber(node.mqtt(), &options, "t").await.disconnect().await;
    let mut publisher = publisher(node.mqtt()).await;
    let mut published = 0;
    for percent in [50, 80, 100] {
        while published < LIMIT * percent / 100 {
            publisher.publish("t", b"", QoS::AtLeastOnce).await;
            published += 1;
        }
        wait_metric(&node, kit::QUEUED, |queued| queued == published as f64);
        assert_eq!(node.metric(kit::DROPPED), 0.0, "at {percent} %");
        // The fullest can be listed, and from four fifths on somebody is warned.
        let listed = run(Command::new(program()).args(["queues", "--data"]).arg(node.data()), SOON).stdout;
        assert!(listed.contains(&format!("{percent:>4} %  {published} of {LIMIT}  away")), "{listed}");
        assert_eq!(node.metric("troupemq_queues_nearly_full"), f64::from(percent >= 80));
        let warned = || node.stderr().contains("80 % of its limit");
        match percent >= 80 {
            true => wait::until("somebody is warned", SOON, || warned().then_some(())),
            false => assert!(!warned(), "too early"),
        }
    }
    publisher.publish("t", b"", QoS::AtLeastOnce).await;
    wait_metric(&node, kit::DROPPED, |dropped| dropped == 1.0);
    assert_eq!(node.metric(kit::QUEUED), LIMIT as f64);
    let mut client = Client::connect(node.mqtt(), &options).await;
    kit::texts(&mut client, LIMIT).await;
    wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
}
