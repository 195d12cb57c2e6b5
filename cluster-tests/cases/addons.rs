//! Add-on topics (`$expired`, `$dropped`, `$dead`).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use troupemq::mqtt::QoS;

use super::kit::{self, BrokerClock, expiring, node_with, publisher, queue_of, subscriber};
use crate::harness::client::{Client, Gone, Options};
use crate::harness::permit::{Weight, acquire};

/// Row 121: each namespace at most once in a topic, and an end to it when nobody listens.
#[tokio::test]
async fn messages_on_add_on_topics_do_not_go_round_in_circles() {
    const QUEUE: usize = 10;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(QUEUE));
    let mut publisher = publisher(node.mqtt()).await;
    let mut everything = Client::connect(node.mqtt(), &Options::v5("everything")).await;
    for filter in ["$dead/#", "$expired/#"] {
        everything.subscribe(filter, QoS::AtLeastOnce).await;
    }
    let (stop, stopped) = watch::channel(false);
    let everything = tokio::spawn(read_along(everything, stopped));
    // A slow subscriber of $dropped: its own queue is full soon.
    let slow = Options::v5("slow").persistent();
    let mut client = Client::connect(node.mqtt(), &slow).await;
    for filter in ["$dropped/#", "$dead/$expired/t", "$dropped/$expired/t"] {
        client.subscribe(filter, QoS::AtLeastOnce).await;
    }
    client.disconnect().await;
    subscriber(node.mqtt(), &Options::v5("full").persistent(), "full").await.disconnect().await;
    subscriber(node.mqtt(), &Options::v5("short").persistent(), "t").await.disconnect().await;
    for _ in 0..3 * QUEUE {
        publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
    }
    for _ in 0..QUEUE / 2 {
        publisher.try_publish(expiring("t", b"", QoS::AtLeastOnce, 1)).await.expect("acknowledged");
    }
    let mut clock = BrokerClock::new(node.mqtt()).await;
    clock.pass(1).await;
    // All counters come to rest.
    let still = settled(&node);
    assert!(still["com_hivemq_messages_dropped_count"] >= 2.0 * QUEUE as f64);
    for (name, value) in &still {
        assert!(*value < 1000.0, "{name} is {value}");
    }
    stop.send(true).expect("a reader");
    let (everything, mut topics) = everything.await.expect("a reader");
    let mut client = Client::connect(node.mqtt(), &slow).await;
    while let Ok(message) = client.try_message(Duration::from_millis(500)).await {
        *topics.entry(message.topic.to_string()).or_default() += 1;
    }
    for topic in topics.keys() {
        let spaces: Vec<&str> = topic.split('/').take_while(|level| level.starts_with('$')).collect();
        let mut once = spaces.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), spaces.len(), "{topic}");
    }
    for topic in ["$dead/nobody", "$dropped/full", "$expired/t"] {
        assert!(topics.contains_key(topic), "no {topic} in {topics:?}");
    }
    // Nobody listens any more: no growth.
    client.disconnect().await;
    everything.disconnect().await;
    Client::connect(node.mqtt(), &Options::v5("slow")).await.disconnect().await;
    for _ in 0..20 {
        publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
    }
    settled(&node);
    let queued = node.metric(kit::QUEUED);
    assert!(queued <= QUEUE as f64 + 1.0, "{queued} messages are kept");
}

/// Counts messages by topic until there are no more.
async fn read_along(mut client: Client, stopped: watch::Receiver<bool>) -> (Client, BTreeMap<String, usize>) {
    let mut topics: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        match client.try_message(Duration::from_millis(300)).await {
            Ok(message) => *topics.entry(message.topic.to_string()).or_default() += 1,
            Err(_) if *stopped.borrow() => return (client, topics),
            Err(gone) => assert_eq!(gone, Gone::Timeout),
        }
    }
}

/// The add-on counters when they move no more.
fn settled(node: &crate::harness::node::Node) -> BTreeMap<String, f64> {
    let read = || -> BTreeMap<String, f64> {
        let is_one = |name: &String| name.starts_with("com_hivemq_messages_d") || name.starts_with("com_hivemq_messages_expired");
        node.metrics().into_iter().filter(|(name, _)| is_one(name)).collect()
    };
    let mut before = read();
    crate::harness::wait::until("the counters come to rest", crate::harness::SOON, || {
        std::thread::sleep(Duration::from_millis(700));
        let now = read();
        let same = now == before;
        before = now;
        same.then(|| before.clone())
    })
}
