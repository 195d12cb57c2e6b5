//! Sessions and messages expire on time and once, also when the leader that watches over them dies, and are told once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Leaders, messages_within, resume};
use super::random::{Random, from_environment};
use crate::harness::client::{Client, Options, Session, publish, user_property};
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

/// Sessions that are away, and shared subscriptions all of whose members are: each is to get every message, and gets none.
const SLEEPERS: usize = 18;
const GROUPS: usize = 6;
const MESSAGES: usize = 30;
/// Room in the queues of these, not in the analysts'.
const ROOM: usize = 20;
const QUIET_END: Duration = Duration::from_secs(1);

/// The topic of a message, and the client or shared subscription that missed it.
type Missed = (String, String);

/// What a message of an add-on topic tells: whether of an expiry, and of what.
fn told(message: &Publish) -> (bool, Missed) {
    let value = |name: &str| user_property(message, name).map(str::to_owned);
    let (expired, topic, receiver) = if let Some(topic) = message.topic.strip_prefix("$expired/") {
        (true, topic, value("hmq-exp-client").or_else(|| value("hmq-exp-shared-subscription")))
    } else {
        let topic = message.topic.strip_prefix("$dropped/").expect("the one or the other");
        (false, topic, value("hmq-drop-client").or_else(|| value("hmq-drop-shared-subscription")))
    };
    (expired, (topic.to_owned(), receiver.expect("a receiver")))
}

/// Reads until as much has come as is wanted, and a while longer.
async fn analyse(client: &mut Client, wanted: usize) -> Vec<(bool, Missed)> {
    let mut all = Vec::new();
    while let Ok(message) = client.try_message(if all.len() < wanted { 2 * SOON } else { QUIET_END }).await {
        all.push(told(&message));
    }
    all
}

/// Messages of mixed expiry in replicated queues, some of which are full, while two of three nodes are killed in turn: each is told as expired or
/// as dropped, once, for each that missed it, to an analyst that is there and to one that comes later.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_expires_or_is_dropped_while_leaders_are_killed_is_told_once() {
    let mut trio = Trio::ready_with(Weight::Whole, |config| {
        let is_small = config.cluster.as_ref().is_some_and(|cluster| cluster.node_name != "node3");
        let room = if is_small { ROOM } else { 100_000 };
        config.mqtt = format!("<queued-messages><max-queue-size>{room}</max-queue-size></queued-messages>");
    });
    let mut receivers = BTreeSet::new();
    for number in 0..SLEEPERS + GROUPS {
        let id = format!("sleeper-{number}");
        let filter = if number < SLEEPERS { "brief/+".to_owned() } else { format!("$share/group-{number}/brief/+") };
        // A session's limit is that of the node where it began.
        let mut client = Client::connect(trio.mqtt(number % 2), &Options::v5(&id).persistent()).await;
        client.subscribe(&filter, QoS::ExactlyOnce).await;
        client.disconnect().await;
        receivers.insert(if number < SLEEPERS { id } else { filter });
    }
    let late = Options::v5("analyst that comes later").persistent();
    let mut analysts = Vec::new();
    for options in [Options::v5("analyst").persistent(), late.clone()] {
        let mut analyst = Client::connect(trio.mqtt(2), &options).await;
        for filter in ["$expired/brief/#", "$dropped/brief/#"] {
            analyst.subscribe(filter, QoS::AtLeastOnce).await;
        }
        analysts.push(analyst);
    }
    analysts.pop().expect("two of them").disconnect().await;
    let mut analyst = analysts.pop().expect("two of them");
    let wanted = MESSAGES * receivers.len();
    let reading = tokio::spawn(async move { analyse(&mut analyst, wanted).await });

    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher").persistent()).await;
    for number in 0..MESSAGES {
        if number == MESSAGES / 3 {
            trio.nodes[0].kill();
        }
        let qos = if number % 3 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce };
        let mut message = publish(&format!("brief/{number}"), b"x", qos);
        message.properties.message_expiry_interval = Some(1 + number as u32 % 7);
        publisher.try_publish(message).await.expect("acknowledged");
    }
    tokio::task::block_in_place(|| {
        trio.nodes[0].launch();
        trio.wait_ready();
        trio.nodes[1].kill();
    });

    let all: BTreeSet<Missed> = (0..MESSAGES)
        .flat_map(|number| receivers.iter().map(move |receiver| (format!("brief/{number}"), receiver.clone())))
        .collect();
    let there = reading.await.expect("the analyst reads to the end");
    let mut analyst = resume(&trio, &[2], &late, Session::default()).await;
    assert!(analyst.session_present());
    let later = analyse(&mut analyst, wanted).await;
    for (who, told) in [("there", there), ("later", later)] {
        let expired = told.iter().filter(|(expired, _)| *expired).count();
        println!("told to the analyst that is {who}: {expired} expired, {} dropped", told.len() - expired);
        assert!(expired > 0 && expired < told.len(), "{who}: of both kinds");
        let missed: BTreeSet<Missed> = told.iter().map(|(_, missed)| missed.clone()).collect();
        let lacking: Vec<_> = all.difference(&missed).take(5).collect();
        assert_eq!((missed.len(), told.len()), (all.len(), all.len()), "{who}: distinct, all; lacking {lacking:?}");
        assert_eq!(missed, all, "{who}");
    }
}
