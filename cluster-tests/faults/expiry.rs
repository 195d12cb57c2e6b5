//! Sessions and messages expire on time and once, also when the leader that watches over them dies.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Leaders, messages_within, resume};
use super::random::{Random, from_environment};
use crate::harness::client::{Client, Options, Session, publish};
use crate::harness::events;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const CLIENTS: usize = 24;
const EXPIRY_S: u32 = 2;
const QUEUED: &str = "com_hivemq_messages_queued_count";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_everywhere_and_once_when_their_leader_dies_at_about_their_expiry() {
    let seed = from_environment("TROUPEMQ_FAULTS_SEED").unwrap_or(1);
    let mut random = Random::new(seed);
    let mut trio = Trio::ready(Weight::Whole);
    let mut watcher = Client::connect(trio.mqtt(0), &Options::v5("watcher").persistent()).await;
    watcher.subscribe(events::FILTER, QoS::ExactlyOnce).await;
    for round in 0..from_environment("TROUPEMQ_EXPIRY_ROUNDS").unwrap_or(1) {
        let victim = 1 + random.index(2);
        let elsewhere = 3 - victim;
        let leaders = tokio::task::block_in_place(|| Leaders::of(&trio, 0));
        let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
        let topic = format!("t/{round}");
        let options: Vec<Options> = (0..CLIENTS)
            .map(|number| {
                Options::v5(&leaders.client_of(victim, &format!("e-{round}-{number}"))).clean_start(false).expiry(EXPIRY_S)
            })
            .collect();
        let mut clients = Vec::new();
        for options in &options {
            let mut client = Client::connect(trio.mqtt(elsewhere), options).await;
            client.subscribe(&topic, QoS::AtLeastOnce).await;
            clients.push(client);
        }
        for client in clients {
            client.disconnect().await;
        }
        let due = Instant::now() + Duration::from_secs(EXPIRY_S.into());
        publisher.publish(&topic, b"queued", QoS::AtLeastOnce).await;
        let offset_ms = random.below(1_200);
        sleep_until(due + Duration::from_millis(offset_ms) - Duration::from_millis(500)).await;
        trio.nodes[victim].kill();
        let what = format!("seed {seed}, round {round}, killed {offset_ms} - 500 ms after the expiry");
        for node in [0, elsewhere] {
            let mut asking = resume(&trio, &[node], &Options::v5(&format!("asking-{node}")), Session::default()).await;
            wait::until_async(&format!("{what}: node {node} has no subscription of them"), SOON, async || {
                (asking.publish(&topic, b"x", QoS::AtLeastOnce).await == ReasonCode::NoMatchingSubscribers).then_some(())
            })
            .await;
            asking.disconnect().await;
        }
        for (number, options) in options.iter().enumerate() {
            let node = if number % 2 == 0 { 0 } else { elsewhere };
            let mut client = resume(&trio, &[node], options, Session::default()).await;
            assert!(!client.session_present(), "{what}: {} on node {node}", options.client_id());
            assert!(client.try_message(Duration::from_millis(5)).await.is_err(), "{what}: its queue went with it");
            client.disconnect().await;
        }
        let mut told: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for text in events::expect(&mut watcher, &format!("e-{round}-"), 4 * CLIENTS).await {
            let (id, event) = text.rsplit_once(':').expect("id:event");
            told.entry(id.to_owned()).or_default().push(event.to_owned());
        }
        for (id, events) in told {
            assert_eq!(events, ["+", "-CLIENT/0", "+", "-CLIENT/0"], "{what}: {id}");
        }
        assert_eq!(events::rest(&mut watcher, &format!("e-{round}-"), Duration::from_millis(500)).await, Vec::<String>::new());
        tokio::task::block_in_place(|| {
            trio.nodes[victim].launch();
            trio.wait_ready();
        });
        sleep(Duration::from_secs(u64::from(EXPIRY_S) + 1)).await;
        for node in &trio.nodes {
            wait::until(&format!("{what}: {} has no message queued", node.name), SOON, || {
                (node.metric(QUEUED) == 0.0).then_some(())
            });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expiry_interval_counts_on_under_another_leader() {
    const LONG_S: u32 = 1_000;
    let mut trio = Trio::ready(Weight::Cluster);
    let leaders = tokio::task::block_in_place(|| Leaders::of(&trio, 0));
    let options = Options::v5(&leaders.client_of(2, "absent")).persistent();
    let mut client = Client::connect(trio.mqtt(0), &options).await;
    client.subscribe("t", QoS::ExactlyOnce).await;
    client.disconnect().await;
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    let began = Instant::now();
    for (text, seconds) in [("short", 4), ("long", LONG_S)] {
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let mut message: Publish = publish("t", text.as_bytes(), qos);
            message.properties.message_expiry_interval = Some(seconds);
            publisher.try_publish(message).await.expect("acknowledged");
        }
    }
    let stored = Instant::now();
    trio.nodes[2].kill();
    sleep_until(stored + Duration::from_millis(5_500)).await;
    let mut client = resume(&trio, &[1], &options, Session::default()).await;
    let messages = messages_within(&mut client, Duration::from_secs(1)).await;
    let texts: Vec<_> = messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect();
    assert_eq!(texts, ["long", "long"]);
    let most = LONG_S - 5 + 1;
    let least = LONG_S - u32::try_from(began.elapsed().as_secs()).expect("not that long") - 2;
    for message in messages {
        let left = message.properties.message_expiry_interval.expect("still told");
        assert!((least..=most).contains(&left), "{left} is not in {least}..={most}");
    }
}
