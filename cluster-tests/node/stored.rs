//! Queued messages are on disk: what they cost in memory, and that all of them come, in order, whatever is in memory.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options, publish, user_property};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

const MIB: usize = 1024 * 1024;
const PAYLOAD_BYTES: usize = 3000;

fn config(queue_limit: usize, strategy: &str) -> Config {
    let mqtt = format!(
        "<queued-messages><max-queue-size>{queue_limit}</max-queue-size><strategy>{strategy}</strategy></queued-messages>\
         <receive-maximum><server-receive-maximum>500</server-receive-maximum></receive-maximum>"
    );
    Config { mqtt, ..Config::default() }
}

/// The number, and what follows from it.
fn payload(number: usize, bytes: usize) -> Vec<u8> {
    let mut payload = format!("{number:08}").into_bytes();
    payload.extend((0..bytes.saturating_sub(8)).map(|at| (number + at) as u8));
    payload
}

/// Publishes messages with these numbers, many at a time.
async fn fill(publisher: &mut Client, topic: &str, numbers: std::ops::Range<usize>, bytes: usize) {
    for number in numbers {
        publisher.start_publish(publish(topic, &payload(number, bytes), QoS::AtLeastOnce)).await.expect("sent");
        while publisher.session.unacknowledged() >= 200 {
            publisher.step(SOON).await.expect("PUBACK");
        }
    }
    while publisher.session.unacknowledged() > 0 {
        publisher.step(SOON).await.expect("PUBACK");
    }
}

async fn expect(client: &mut Client, numbers: std::ops::Range<usize>, bytes: usize) {
    for number in numbers {
        let message = client.message().await;
        assert!(message.payload == payload(number, bytes), "number {number}: {:?}", message.payload.get(..8));
    }
}

async fn offline(node: &Node, id: &str, filter: &str) -> Options {
    let options = Options::v5(id).persistent();
    let mut client = Client::connect(node.mqtt(), &options).await;
    client.subscribe(filter, QoS::AtLeastOnce).await;
    client.disconnect().await;
    options
}

/// The engine's buffers are full after the first messages, so what the others add is what they cost: less than a third of their bytes, where a queue in
/// memory would take all of them.
#[tokio::test]
async fn queued_messages_take_little_memory_and_come_in_order_after_a_kill() {
    const SESSIONS: usize = 4;
    const FIRST: usize = 2000;
    const ALL: usize = 6000;
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config { addons: false, ..config(ALL, "discard") });
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        sessions.push(offline(&node, &format!("s{number}"), &format!("t/{number}")).await);
    }
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let mut before = 0;
    for part in [0..FIRST, FIRST..ALL] {
        before = node.resident_bytes();
        for number in 0..SESSIONS {
            fill(&mut publisher, &format!("t/{number}"), part.clone(), PAYLOAD_BYTES).await;
        }
    }
    let bytes = (ALL - FIRST) * SESSIONS * PAYLOAD_BYTES;
    wait::until("memory is small again", SOON, || {
        let grown = node.resident_bytes().saturating_sub(before);
        eprintln!("{} MiB of messages took {} MiB of memory", bytes / MIB, grown / MIB);
        (grown < bytes / 3).then_some(())
    });
    assert_eq!(node.metric("com_hivemq_messages_queued_count"), (ALL * SESSIONS) as f64);
    assert_eq!(node.metric("troupemq_queues_nearly_full"), SESSIONS as f64);
    assert!(node.stdout().contains("80 %") || node.stderr().contains("80 %"), "somebody is warned");

    node.kill();
    node.start();
    let (peak, _) = node.memory_bytes();
    // The program itself, and what it reads of the journals, without all the messages.
    assert!(peak < 40 * MIB + ALL * SESSIONS * PAYLOAD_BYTES, "{} MiB at the start", peak / MIB);
    for (number, options) in sessions.iter().enumerate() {
        let mut client = Client::connect(node.mqtt(), options).await;
        assert!(client.session_present());
        if number == 0 {
            // What is published meanwhile does not overtake.
            let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
            expect(&mut client, 0..ALL / 2, PAYLOAD_BYTES).await;
            fill(&mut publisher, "t/0", ALL..ALL + 100, PAYLOAD_BYTES).await;
            expect(&mut client, ALL / 2..ALL + 100, PAYLOAD_BYTES).await;
        } else {
            expect(&mut client, 0..ALL, PAYLOAD_BYTES).await;
        }
        client.nothing().await;
        client.disconnect().await;
    }
    assert_eq!(node.metric("com_hivemq_messages_queued_count"), 0.0);
}

#[tokio::test]
async fn what_is_queued_comes_also_where_nothing_is_on_disk() {
    let _permit = acquire(Weight::Node);
    let more = "<persistence><mode>in-memory</mode></persistence>".to_owned();
    let node = Node::ready(Config { more, ..config(1000, "discard") });
    let options = offline(&node, "s", "t").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    fill(&mut publisher, "t", 0..500, 300).await;
    let mut client = Client::connect(node.mqtt(), &options).await;
    expect(&mut client, 0..200, 300).await;
    fill(&mut publisher, "t", 500..600, 300).await;
    expect(&mut client, 200..600, 300).await;
    client.nothing().await;
}

/// spec/hivemq.md 2.2: the report carries the oldest message, which only the disk has.
#[tokio::test]
async fn the_oldest_is_discarded_and_reported_whole_from_disk() {
    const LIMIT: usize = 300;
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(config(LIMIT, "discard-oldest"));
    let options = offline(&node, "s", "t").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    fill(&mut publisher, "t", 0..LIMIT, 300).await;
    node.kill();
    node.start();
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$dropped/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    fill(&mut publisher, "t", LIMIT..LIMIT + 200, 300).await;
    for number in 0..200 {
        let message = watcher.message().await;
        assert!(message.payload == payload(number, 300), "number {number}: {:?}", message.payload.get(..8));
        assert_eq!(user_property(&message, "hmq-drop-reason"), Some("Client Message Queue Full"));
        assert_eq!(user_property(&message, "hmq-drop-client"), Some("s"));
    }
    let mut client = Client::connect(node.mqtt(), &options).await;
    expect(&mut client, 200..LIMIT + 200, 300).await;
    client.nothing().await;
}

/// A message that waits in a queue expires there, and its report is whole.
#[tokio::test]
async fn messages_that_expire_on_disk_are_reported_whole() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(config(1000, "discard"));
    let options = offline(&node, "s", "t").await;
    let mut watcher = Client::connect(node.mqtt(), &Options::v5("watcher")).await;
    watcher.subscribe("$expired/#", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 0..100 {
        let mut message = publish("t", &payload(number, 300), QoS::AtLeastOnce);
        message.properties.message_expiry_interval = Some(2);
        publisher.try_publish(message).await.expect("PUBACK");
    }
    let mut numbers = Vec::new();
    for _ in 0..100 {
        let message = watcher.message().await;
        let number = std::str::from_utf8(&message.payload[..8]).unwrap().parse().unwrap();
        assert!(message.payload == payload(number, 300));
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<usize>>());
    let mut client = Client::connect(node.mqtt(), &options).await;
    client.nothing().await;
}

#[tokio::test]
async fn a_shared_subscription_keeps_its_queue_on_disk_and_gives_it_out_in_order() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(config(5000, "discard"));
    let options = offline(&node, "s", "$share/g/t").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    fill(&mut publisher, "t", 0..3000, 300).await;
    node.kill();
    node.start();
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    fill(&mut publisher, "t", 3000..3100, 300).await;
    let mut client = Client::connect(node.mqtt(), &options).await;
    expect(&mut client, 0..1000, 300).await;
    fill(&mut publisher, "t", 3100..3200, 300).await;
    expect(&mut client, 1000..3200, 300).await;
    client.nothing().await;
    wait::until("the queue is empty", SOON, || (node.metric("com_hivemq_messages_queued_count") == 0.0).then_some(()));
}

/// Payloads above 1 MiB are in parts of their own.
#[tokio::test]
async fn large_messages_wait_on_disk() {
    const COUNT: usize = 40;
    const LARGE: usize = 2 * MIB + 17;
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config { addons: false, ..config(1000, "discard") });
    let before = node.resident_bytes();
    let options = offline(&node, "s", "t").await;
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for number in 0..COUNT {
        publisher.publish("t", &payload(number, LARGE), QoS::AtLeastOnce).await;
    }
    drop(publisher);
    eprintln!("{} MiB of messages, {} MiB of memory", COUNT * LARGE / MIB, node.resident_bytes() / MIB);
    node.kill();
    node.start();
    // What the start reads of the journals, and merges, takes up to some 100 MiB for a moment, for 80 MiB of messages as for 320.
    wait::until("memory is small after a start", SOON, || {
        let grown = node.resident_bytes().saturating_sub(before);
        (grown < COUNT * LARGE * 2 / 3).then_some(())
    });
    let mut client = Client::connect(node.mqtt(), &options).await;
    expect(&mut client, 0..COUNT, LARGE).await;
    client.nothing().await;
}
