//! A node is killed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::events::{self, Event};
use crate::harness::permit::Weight;
use crate::harness::roamer::Roamer;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

const CLIENTS: usize = 30;
/// Clients that connect to another node before anybody knows that theirs is dead.
const HASTY: usize = 6;

/// Connects, in spite of nodes that have just lost their leaders.
pub async fn connect_soon(trio: &Trio, node: usize, options: &Options) -> Client {
    wait::until_async(&format!("{} connects to node {node}", options.client_id()), SOON, async || {
        Client::try_connect(trio.mqtt(node), options).await.ok()
    })
    .await
}

/// `../shared/cases.md`, row 114.
#[tokio::test]
async fn clients_of_a_killed_node_are_told_once_and_resume_elsewhere() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut watcher = Client::connect(trio.mqtt(1), &Options::v5("watcher").persistent()).await;
    watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    events::effective(&mut watcher, &trio.all_mqtt()).await;
    let mut local_watcher = Client::connect(trio.mqtt(2), &Options::v5("watcher-clean")).await;
    local_watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
    events::effective(&mut local_watcher, &trio.all_mqtt()).await;
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;

    let options: Vec<Options> = (0..CLIENTS)
        .map(|number| {
            let options = Options::v5(&format!("lost-{number}"));
            if number % 3 == 0 { options.persistent() } else { options }
        })
        .collect();
    let mut clients = Vec::new();
    for options in &options {
        let mut client = Client::connect(trio.mqtt(0), options).await;
        let topic = format!("to/{}", options.client_id());
        client.subscribe(&topic, QoS::ExactlyOnce).await;
        publisher.reaches(&mut client, &topic).await;
        client.ping().await;
        clients.push(client);
    }
    let hasty: Vec<Options> = (0..HASTY).map(|number| Options::v5(&format!("lost-hasty-{number}")).persistent()).collect();
    for options in &hasty {
        clients.push(Client::connect(trio.mqtt(0), options).await);
    }

    let killed_at = Instant::now();
    trio.nodes[0].kill();
    // For the persistent ones, also while nobody has noticed yet.
    let publishes = async {
        for number in (0..CLIENTS).step_by(3) {
            publisher.publish(&format!("to/lost-{number}"), format!("queued {number}").as_bytes(), QoS::ExactlyOnce).await;
        }
        println!("all publishes after the kill acknowledged within {:?}", killed_at.elapsed());
    };
    let connects = async {
        let mut connected = Vec::new();
        for (number, options) in hasty.iter().enumerate() {
            connected.push(connect_soon(&trio, 1 + number % 2, &options.clone().clean_start(false)).await);
        }
        println!("the hasty ones are connected again {:?} after the kill", killed_at.elapsed());
        connected
    };
    let ((), hasty) = tokio::join!(publishes, connects);
    assert!(hasty.iter().all(Client::session_present));

    for watcher in [&mut watcher, &mut local_watcher] {
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for text in events::expect(watcher, "lost-", 2 * CLIENTS + 3 * HASTY).await {
            let (id, event) = text.rsplit_once(':').expect("id:event");
            seen.entry(id.to_owned()).or_default().push(event.to_owned());
        }
        println!("all events there {:?} after the kill", killed_at.elapsed());
        assert_eq!(seen.len(), CLIENTS + HASTY);
        for (id, events) in seen {
            // A connection whose node is gone was not taken over: nobody could tell its client so.
            let expected = ["+", "-UNSPECIFIED", "+"];
            let count = if id.starts_with("lost-hasty-") { 3 } else { 2 };
            assert_eq!(events, expected[..count], "{id}");
        }
    }
    for (number, options) in options.iter().enumerate() {
        let mut client = connect_soon(&trio, 1 + number % 2, &options.clone().clean_start(false)).await;
        assert_eq!(client.session_present(), number % 3 == 0, "{}", options.client_id());
        if client.session_present() {
            let mut message = client.message().await;
            // A probe whose acknowledgement the killed node had not passed on.
            while message.dup && message.payload.ends_with(b"probes") {
                message = client.message().await;
            }
            assert_eq!(&*message.payload, format!("queued {number}").as_bytes());
            client.ping().await;
            assert!(client.session.inbox.is_empty(), "once");
        }
        client.disconnect().await;
    }
    for watcher in [&mut watcher, &mut local_watcher] {
        let later = events::expect(watcher, "lost-", 2 * CLIENTS).await;
        assert!(later.iter().all(|event| event.ends_with(":+") || event.ends_with(":-CLIENT/0")), "{later:?}");
        assert_eq!(events::rest(watcher, "lost-", Duration::from_secs(1)).await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_subscriber_of_events_on_the_killed_node_misses_nothing_and_reads_nothing_twice() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut watcher = Roamer::connect(trio.all_mqtt(), 0, Options::v5("watcher").persistent()).await;
    watcher.client().await.subscribe(events::FILTER, QoS::ExactlyOnce).await;
    events::effective(watcher.client().await, &trio.all_mqtt()).await;
    let mut held = Vec::new();
    for number in 0..CLIENTS {
        held.push(Client::connect(trio.mqtt(number % 3), &Options::v5(&format!("c-{number}"))).await);
    }
    // Of what it has been sent by then, some is still in its hands, and some not acknowledged.
    let mut seen = Vec::new();
    events_of(&mut watcher, &mut seen, CLIENTS / 2).await;
    trio.nodes[0].kill();
    watcher.lost();
    for number in CLIENTS..2 * CLIENTS {
        held.push(connect_soon(&trio, 1 + number % 2, &Options::v5(&format!("c-{number}"))).await);
    }
    let lost = (0..CLIENTS).filter(|number| number % 3 == 0).count();
    events_of(&mut watcher, &mut seen, 2 * CLIENTS + lost).await;
    while let Some(message) = watcher.message(Duration::from_secs(1)).await {
        let event = Event::of(&message);
        assert!(!event.client_id.starts_with("c-"), "one event too many: {event:?}");
    }
    assert_eq!(watcher.wrongly_redelivered, Vec::<String>::new());
    let mut by_client: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for text in seen {
        let (id, event) = text.rsplit_once(':').expect("id:event");
        by_client.entry(id[2..].parse().expect("a number")).or_default().push(event.to_owned());
    }
    for number in 0..2 * CLIENTS {
        let on_killed_node = number < CLIENTS && number % 3 == 0;
        let expected: &[&str] = if on_killed_node { &["+", "-UNSPECIFIED"] } else { &["+"] };
        assert_eq!(by_client.get(&number).map_or(&[][..], Vec::as_slice), expected, "c-{number}");
    }
}

/// Collects the events of the clients `c-..` until there are `total`.
async fn events_of(watcher: &mut Roamer, seen: &mut Vec<String>, total: usize) {
    while seen.len() < total {
        let message = watcher.message(SOON).await;
        let Some(message) = message else { panic!("{} of {total} events: {seen:?}", seen.len()) };
        let event = Event::of(&message);
        if event.client_id.starts_with("c-") {
            seen.push(format!("{}:{}", event.client_id, event.short()));
        }
    }
}

#[tokio::test]
async fn a_will_of_a_client_of_the_killed_node_is_published_once() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut watcher = Client::connect(trio.mqtt(1), &Options::v5("watcher").persistent()).await;
    watcher.subscribe("wills/#", QoS::AtLeastOnce).await;
    Client::connect(trio.mqtt(0), &Options::v5("probe")).await.reaches(&mut watcher, "wills/probe").await;
    let _prompt = Client::connect(trio.mqtt(0), &Options::v5("prompt").will("wills/prompt", "now", 0)).await;
    let delayed = Options::v5("delayed").persistent().will("wills/delayed", "later", 1);
    let _delayed = Client::connect(trio.mqtt(0), &delayed).await;
    let returning = Options::v5("returning").persistent().will("wills/returning", "never", 60);
    let _returning = Client::connect(trio.mqtt(0), &returning).await;
    trio.nodes[0].kill();
    assert_eq!(watcher.text().await, "now");
    assert_eq!(watcher.text().await, "later");
    let returned = connect_soon(&trio, 2, &returning).await;
    assert!(returned.session_present());
    returned.disconnect().await;
    watcher.nothing().await;
    let counted =
        || trio.nodes[1..].iter().map(|node| node.metric("com_hivemq_messages_will_published_count_total")).sum::<f64>();
    wait::until("both are counted", SOON, || (counted() == 2.0).then_some(()));
}
