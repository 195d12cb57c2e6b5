//! Add-on topics of a cluster: each event once for each subscriber, wherever it is, and counted once. (With nodes that are killed meanwhile:
//! `faults::expiry`.)

use std::collections::BTreeMap;
use std::time::Duration;

use troupemq::mqtt::QoS;

use crate::addons::counters::{Counters, moves};
use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{QUIET, SOON, events};

/// Enough for every shard to have some.
const SLEEPERS: usize = 18;
/// Room in every queue.
const ROOM: usize = 40;

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

async fn watch(trio: &Trio, filter: &str) -> [Client; 2] {
    let mut persistent = Client::connect(trio.mqtt(1), &Options::v5("persistent-watcher").persistent()).await;
    persistent.subscribe(filter, QoS::AtLeastOnce).await;
    let mut clean = Client::connect(trio.mqtt(2), &Options::v5("clean-watcher")).await;
    clean.subscribe(filter, QoS::AtLeastOnce).await;
    [persistent, clean]
}

/// Offline sessions that subscribe to the filter, made at all three nodes.
async fn sleepers(trio: &Trio, filter: &str) -> Vec<String> {
    let ids: Vec<String> = (0..SLEEPERS).map(|n| format!("sleeper-{n}")).collect();
    for (index, id) in ids.iter().enumerate() {
        let mut client = Client::connect(trio.mqtt(index % 3), &Options::v5(id).persistent()).await;
        client.subscribe(filter, QoS::AtLeastOnce).await;
        client.disconnect().await;
    }
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_all_nodes_are_told_once_to_watchers_at_all_nodes_and_counted_once() {
    let mut trio = Trio::ready_with(Weight::Cluster, |config| {
        config.mqtt = format!("<queued-messages><max-queue-size>{ROOM}</max-queue-size></queued-messages>");
    });
    let ids = sleepers(&trio, "brief/+").await;
    let mut heard = Client::connect(trio.mqtt(0), &Options::v5("hears of clients")).await;
    heard.subscribe(events::FILTER, QoS::AtMostOnce).await;
    let mut publishers = Vec::new();
    for index in 0..3 {
        publishers.push(Client::connect(trio.mqtt(index), &Options::v5(&format!("publisher-{index}")).persistent()).await);
    }
    let mut watchers = watch(&trio, "$dead/nobody/#").await;
    let nodes: Vec<_> = trio.nodes.iter().collect();
    let mut counters = Counters::of(&nodes);

    for (index, publisher) in publishers.iter_mut().enumerate() {
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
            publisher.publish(&format!("nobody/{index}/{}", qos as u8), b"", qos).await;
        }
    }
    let all =
        (0..3).flat_map(|index| (0..3).map(move |qos| (format!("$dead/nobody/{index}/{qos}"), format!("publisher-{index}"))));
    let wanted: Told = all.map(|dead| (dead, 1)).collect();
    for watcher in &mut watchers {
        assert_eq!(told(watcher, "hmq-dead-client", wanted.len()).await, wanted);
    }
    counters.moved("nine dead messages", &moves(&[("dead.count", 9), ("dead.topic.enqueued.count", 18)]));

    for watcher in &mut watchers {
        watcher.unsubscribe("$dead/nobody/#").await;
        watcher.subscribe("$expired/brief/#", QoS::AtLeastOnce).await;
    }
    let mut packet = publish("brief/1", b"x", QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(1);
    publishers[0].try_publish(packet).await.expect("acknowledged");
    let once_each = |topic: &str| ids.iter().map(|id| ((topic.to_owned(), id.clone()), 1)).collect::<Told>();
    for watcher in &mut watchers {
        assert_eq!(told(watcher, "hmq-exp-client", SLEEPERS).await, once_each("$expired/brief/1"));
    }
    let each = i64::try_from(SLEEPERS).expect("a small number");
    let expected = moves(&[("expired-messages", each), ("expired.topic.enqueued.count", 2 * each)]);
    counters.moved("a message that expires for all sleepers", &expected);

    for watcher in &mut watchers {
        watcher.unsubscribe("$expired/brief/#").await;
        watcher.subscribe("$dropped/brief/#", QoS::AtLeastOnce).await;
    }
    for n in 0..=ROOM {
        publishers[n % 3].publish(&format!("brief/{n}"), b"x", QoS::AtLeastOnce).await;
    }
    for watcher in &mut watchers {
        assert_eq!(told(watcher, "hmq-drop-client", SLEEPERS).await, once_each(&format!("$dropped/brief/{ROOM}")));
    }
    let expected = moves(&[
        ("dropped.count", each),
        ("dropped.topic.message-created.client.count", each),
        ("dropped.topic.enqueued.count", 2 * each),
    ]);
    counters.moved("a message for the full queues of all sleepers", &expected);

    for publisher in publishers {
        publisher.disconnect().await;
    }
    counters.moved("three clients go", &moves(&[("client-lifecycle-topic.published.count", 3)]));
    what_goes_to_a_node_that_has_just_died_is_told(&mut trio, watchers).await;
}

/// Live messages for clients of a node that was killed, until the others know: each is told as an internal error, of QoS 0 for a shared
/// subscription with the member that was chosen.
async fn what_goes_to_a_node_that_has_just_died_is_told(trio: &mut Trio, [mut persistent, mut clean]: [Client; 2]) {
    persistent.unsubscribe("$dropped/brief/#").await;
    clean.subscribe("$dropped/live/#", QoS::AtMostOnce).await;
    let mut lost = Vec::new();
    for (id, filter) in [("lost", "live/+"), ("member", "$share/g/live/+")] {
        let mut client = Client::connect(trio.mqtt(0), &Options::v5(id)).await;
        client.subscribe(filter, QoS::AtMostOnce).await;
        lost.push(client);
    }
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("live")).await;
    trio.nodes[0].kill();
    let mut told = BTreeMap::new();
    crate::harness::wait::until_async("what is lost is told", SOON, async || {
        publisher.publish("live/1", b"x", QoS::AtMostOnce).await;
        while let Ok(message) = clean.try_message(Duration::from_millis(50)).await {
            let value = |name: &str| user_property(&message, name).unwrap_or("none").to_owned();
            assert_eq!((&*message.topic, &*message.payload), ("$dropped/live/1", &b"x"[..]));
            assert_eq!(value("hmq-drop-reason"), "Internal Error");
            told.insert(value("hmq-drop-client"), (value("hmq-drop-origin"), value("hmq-drop-shared-subscription")));
        }
        (told.len() == 2).then_some(())
    })
    .await;
    let of = |origin: &str, shared: &str| (origin.to_owned(), shared.to_owned());
    assert_eq!(told["lost"], of("client", "none"));
    assert_eq!(told["member"], of("shared subscription", "$share/g/live/+"));
}
