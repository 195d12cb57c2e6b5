//! Shared subscriptions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use troupemq::mqtt::QoS;
use troupemq::mqtt::packet::Publish;

use super::kit::{self, node_with, publisher, queue_of, wait_metric};
use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{QUIET, SOON};

/// Row 70.
#[tokio::test]
async fn a_group_gets_each_message_once_besides_a_members_own_subscription() {
    const MESSAGES: usize = 100;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        for kept in [false, true] {
            let options = |name: &str| {
                let options = Options::v5(name);
                if kept { options.persistent() } else { options }
            };
            let mut a = Client::connect(node.mqtt(), &options("a")).await;
            kit::subscribe_as(&mut a, "t", qos, Some(1)).await;
            kit::subscribe_as(&mut a, "$share/g/t", qos, Some(2)).await;
            let mut b = Client::connect(node.mqtt(), &options("b")).await;
            b.subscribe("$share/g/t", qos).await;
            let mut publisher = publisher(node.mqtt()).await;
            for number in 0..MESSAGES {
                publisher.publish("t", number.to_string().as_bytes(), qos).await;
            }
            let case = format!("{qos:?}, kept: {kept}");
            let (mut own, mut shared) = (Vec::new(), Vec::new());
            while own.len() + shared.len() < 2 * MESSAGES {
                let (index, message) = next(&mut [&mut a, &mut b]).await;
                let text = String::from_utf8_lossy(&message.payload).into_owned();
                match (index, &message.properties.subscription_identifiers[..]) {
                    (0, [1]) => own.push(text),
                    (0, [2]) | (1, []) => shared.push(text),
                    other => panic!("{case}: {other:?}"),
                }
            }
            let all: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
            assert_eq!(own, all, "{case}");
            shared.sort_by_key(|text| text.parse::<usize>().expect("a number"));
            assert_eq!(shared, all, "{case}");
            for client in [&mut a, &mut b] {
                assert_eq!(client.try_message(QUIET / 4).await, Err(Gone::Timeout), "{case}");
            }
            for name in ["a", "b"] {
                Client::connect(node.mqtt(), &Options::v5(name)).await.disconnect().await;
            }
        }
    }
}

/// Row 71.
#[tokio::test]
async fn qos_0_in_a_group_is_handed_out_at_most_once_however_often_members_return() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let options = ["a", "b"].map(|name| Options::v5(name).persistent());
    for options in &options {
        let mut client = Client::connect(node.mqtt(), options).await;
        client.subscribe("$share/g/t", QoS::AtMostOnce).await;
        client.disconnect().await;
    }
    let mut publisher = publisher(node.mqtt()).await;
    for number in 0..10 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut clients = Vec::new();
        for options in &options {
            let client = Client::connect(node.mqtt(), options).await;
            assert!(client.session_present());
            clients.push(client);
        }
        // Resume works without SUBSCRIBE, and at once.
        for number in 0..4 {
            publisher.publish("t", format!("live {number}").as_bytes(), QoS::AtLeastOnce).await;
        }
        let mut live = 0;
        while live < 4 {
            let message = {
                let mut clients: Vec<&mut Client> = clients.iter_mut().collect();
                String::from_utf8_lossy(&next(&mut clients).await.1.payload).into_owned()
            };
            if message.starts_with("live") {
                live += 1;
            } else {
                assert!(seen.insert(message.clone()), "{message} again");
            }
        }
        for client in clients {
            client.disconnect().await;
        }
    }
}

/// The next message of any of the clients, and whose it is.
async fn next(clients: &mut [&mut Client]) -> (usize, Publish) {
    let deadline = Instant::now() + SOON;
    loop {
        for (index, client) in clients.iter_mut().enumerate() {
            match client.try_message(Duration::from_millis(5)).await {
                Ok(message) => return (index, message),
                Err(gone) => assert_eq!(gone, Gone::Timeout),
            }
        }
        assert!(Instant::now() < deadline, "no member gets the next message");
    }
}

/// Row 66, shortened: members come and go under load, nothing is lost and nobody is forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_reconnect_under_load_stay_in_the_group() {
    const PUBLISHERS: usize = 5;
    const MEMBERS: usize = 5;
    const MESSAGES: usize = 300;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(PUBLISHERS * MESSAGES));
    let address = node.mqtt();
    let (over, stop) = watch::channel(false);
    let mut members = Vec::new();
    for index in 0..MEMBERS {
        let options = Options::v5(&format!("member-{index}")).persistent();
        let mut client = Client::connect(address, &options).await;
        client.subscribe("$share/g/+", QoS::AtLeastOnce).await;
        members.push(tokio::spawn(member(client, address, options, index, stop.clone())));
    }
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|index| {
            tokio::spawn(async move {
                let mut publisher = Client::connect(address, &Options::v5(&format!("publisher-{index}"))).await;
                for number in 0..MESSAGES {
                    let payload = format!("{index}/{number}");
                    while publisher.session.unacknowledged() > 8 {
                        publisher.step(SOON).await.expect("an acknowledgement");
                    }
                    let packet = publish(&format!("topic{}", number % 5), payload.as_bytes(), QoS::AtLeastOnce);
                    publisher.start_publish(packet).await.expect("sent");
                }
                while publisher.session.unacknowledged() > 0 {
                    publisher.step(SOON).await.expect("an acknowledgement");
                }
            })
        })
        .collect();
    for publisher in publishers {
        publisher.await.expect("a publisher");
    }
    wait_metric(&node, kit::QUEUED, |queued| queued == 0.0);
    // Everybody is online now: each gets something of what comes.
    over.send(true).expect("members");
    let mut received = BTreeSet::new();
    let mut clients = Vec::new();
    for member in members {
        let (client, texts) = member.await.expect("a member");
        received.extend(texts);
        clients.push(client);
    }
    assert_eq!(received.len(), PUBLISHERS * MESSAGES, "received of what was acknowledged");
    let mut publisher = publisher(address).await;
    for _ in 0..20 * MEMBERS {
        publisher.publish("topic0", b"last", QoS::AtLeastOnce).await;
    }
    for mut client in clients {
        assert_eq!(client.text().await, "last");
    }
}

/// Receives, and reconnects after a number of messages of its own; subscribes right after CONNECT.
async fn member(
    mut client: Client,
    address: std::net::SocketAddr,
    options: Options,
    index: usize,
    stop: watch::Receiver<bool>,
) -> (Client, Vec<String>) {
    let mut received = Vec::new();
    loop {
        let message = client.try_message(Duration::from_millis(100)).await;
        if *stop.borrow() && message == Err(Gone::Timeout) {
            return (client, received);
        }
        let Ok(message) = message else { continue };
        received.push(String::from_utf8_lossy(&message.payload).into_owned());
        if received.len() % (40 + 7 * index) == 0 {
            let session = client.into_session();
            client = match Client::try_resume(address, &options, session).await {
                Ok(client) => client,
                Err((error, _)) => panic!("{error:?}"),
            };
            client.subscribe("$share/g/+", QoS::AtLeastOnce).await;
        }
    }
}

/// An exchange begun with a member is ended with that one [MQTT-4.8.2-4], so entries move into its own queue: as many as it takes at a time, and the
/// next when it has room, not when somebody looks again.
#[tokio::test]
async fn a_backlog_of_qos_2_goes_to_members_in_order_as_they_take_it_and_a_slow_one_holds_up_no_more_than_its_window() {
    const WINDOW: u16 = 3;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let narrow = |id: &str| Options::v5(id).persistent().with(|connect| connect.properties.receive_maximum = Some(WINDOW));
    let mut member = Client::connect(node.mqtt(), &narrow("m")).await;
    member.subscribe("$share/g/t", QoS::ExactlyOnce).await;
    member.disconnect().await;
    let mut publisher = publisher(node.mqtt()).await;
    for number in 0..40 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::ExactlyOnce).await;
    }
    let began = Instant::now();
    let mut member = Client::connect(node.mqtt(), &narrow("m")).await;
    for number in 0..40 {
        assert_eq!(member.text().await, number.to_string());
    }
    assert!(began.elapsed() < SOON, "it was looked at again and again, by a timer");
    // Beside one that never answers.
    let mut slow = Client::connect(node.mqtt(), &narrow("slow").manual_ack()).await;
    slow.subscribe("$share/g/t", QoS::ExactlyOnce).await;
    for number in 0..40 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::ExactlyOnce).await;
    }
    for _ in 0..WINDOW {
        slow.message().await;
    }
    for _ in 0..40 - WINDOW {
        member.message().await;
    }
    for client in [&mut slow, &mut member] {
        assert_eq!(client.try_message(QUIET).await, Err(Gone::Timeout));
    }
}
