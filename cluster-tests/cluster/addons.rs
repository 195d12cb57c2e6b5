//! Add-on topics of a cluster: each event once for each subscriber, wherever it is, also when a node that led shards is killed in between.

use std::collections::BTreeMap;

use troupemq::mqtt::QoS;

use super::node_loss::connect_soon;
use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{QUIET, SOON};

/// Enough for every shard to have some.
const SLEEPERS: usize = 18;
/// Room in every queue, also the watchers': more than the drops of one message.
const ROOM: usize = 40;
const EXPIRING: usize = 6;
const EXPIRY_S: u32 = 1;

/// (add-on topic, client the property names) and how often it came.
type Told = BTreeMap<(String, String), usize>;

async fn told(watcher: &mut Client, property: &str, wanted: usize) -> Told {
    let mut told = Told::new();
    while told.len() < wanted {
        let message = watcher.try_message(SOON).await.unwrap_or_else(|gone| panic!("{} of {wanted} came: {gone:?}", told.len()));
        let client = user_property(&message, property).unwrap_or_default().to_owned();
        *told.entry((message.topic.to_string(), client)).or_default() += 1;
    }
    while let Ok(message) = watcher.try_message(QUIET).await {
        let client = user_property(&message, property).unwrap_or_default().to_owned();
        *told.entry((message.topic.to_string(), client)).or_default() += 1;
    }
    told
}

fn once_each(prefix: &str, clients: &[String], topics: impl Iterator<Item = usize> + Clone) -> Told {
    let of_client = |client: &String| topics.clone().map(|n| ((format!("{prefix}/{n}"), client.clone()), 1)).collect::<Vec<_>>();
    clients.iter().flat_map(of_client).collect()
}

async fn watch(trio: &Trio, filter: &str) -> [Client; 2] {
    let mut persistent = Client::connect(trio.mqtt(1), &Options::v5("persistent-watcher").persistent()).await;
    persistent.subscribe(filter, QoS::AtLeastOnce).await;
    let mut clean = Client::connect(trio.mqtt(2), &Options::v5("clean-watcher")).await;
    clean.subscribe(filter, QoS::AtLeastOnce).await;
    [persistent, clean]
}

/// Offline sessions that subscribe to `topics`, made at all three nodes.
async fn sleepers(trio: &Trio, filter: &str) -> Vec<String> {
    let ids: Vec<String> = (0..SLEEPERS).map(|n| format!("sleeper-{n}")).collect();
    for (index, id) in ids.iter().enumerate() {
        let mut client = Client::connect(trio.mqtt(index % 3), &Options::v5(id).persistent()).await;
        client.subscribe(filter, QoS::AtLeastOnce).await;
        client.disconnect().await;
    }
    ids
}

#[tokio::test]
async fn drops_of_full_queues_are_told_once_although_a_leader_is_killed() {
    let mut trio = Trio::ready_with(Weight::Cluster, |config| {
        config.mqtt =
            format!("<queued-messages><max-queue-size>{ROOM}</max-queue-size><strategy>discard</strategy></queued-messages>");
    });
    let ids = sleepers(&trio, "full/+").await;
    // The watchers' own queues must hold what comes at once: they stay connected and acknowledge.
    let mut watchers = watch(&trio, "$dropped/full/#").await;
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher").persistent()).await;
    for n in 0..ROOM + 3 {
        if n == ROOM + 1 {
            trio.nodes[0].kill();
        }
        publisher.publish(&format!("full/{n}"), b"x", QoS::AtLeastOnce).await;
        if n < ROOM {
            continue;
        }
        let wanted = once_each("$dropped/full", &ids, n..=n);
        for watcher in &mut watchers {
            assert_eq!(told(watcher, "hmq-drop-client", wanted.len()).await, wanted);
        }
    }
}

#[tokio::test]
async fn expired_messages_are_told_once_although_a_leader_is_killed() {
    let mut trio = Trio::ready(Weight::Cluster);
    let ids = sleepers(&trio, "brief/+").await;
    let mut watchers = watch(&trio, "$expired/brief/#").await;
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher").persistent()).await;
    for n in 0..EXPIRING {
        let mut packet = publish(&format!("brief/{n}"), b"x", QoS::AtLeastOnce);
        packet.properties.message_expiry_interval = Some(EXPIRY_S);
        publisher.try_publish(packet).await.expect("an acknowledgement");
    }
    trio.nodes[0].kill();
    let wanted = once_each("$expired/brief", &ids, 0..EXPIRING);
    for watcher in &mut watchers {
        assert_eq!(told(watcher, "hmq-exp-client", wanted.len()).await, wanted);
    }
}

#[tokio::test]
async fn a_dead_message_of_any_node_is_told_once_to_watchers_at_all_nodes() {
    let trio = Trio::ready(Weight::Cluster);
    let mut watchers = watch(&trio, "$dead/nobody/#").await;
    for index in 0..3 {
        // The subscriptions are effective everywhere once a probe from each node arrives.
        let mut publisher = connect_soon(&trio, index, &Options::v5(&format!("publisher-{index}")).persistent()).await;
        crate::harness::wait::until_async("dead messages of the node arrive", SOON, async || {
            publisher.publish(&format!("nobody/probe/{index}"), b"", QoS::AtLeastOnce).await;
            let [persistent, clean] = &mut watchers;
            let both = persistent.try_message(QUIET).await.is_ok() & clean.try_message(QUIET).await.is_ok();
            both.then_some(())
        })
        .await;
        for watcher in &mut watchers {
            while watcher.try_message(QUIET).await.is_ok() {}
        }
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            publisher.publish(&format!("nobody/{index}/{}", qos as u8), b"", qos).await;
        }
        let client = format!("publisher-{index}");
        let wanted: Told = (0..3).map(|qos| ((format!("$dead/nobody/{index}/{qos}"), client.clone()), 1)).collect();
        for watcher in &mut watchers {
            assert_eq!(told(watcher, "hmq-dead-client", 3).await, wanted);
        }
    }
}
