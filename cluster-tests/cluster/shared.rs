//! Shared subscriptions belong to the group: members come and go on three nodes and no message is lost, doubled or held up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use troupemq::mqtt::packet::{Publish, SubscriptionOptions};
use troupemq::mqtt::{QoS, ReasonCode};

use super::node_loss::connect_soon;
use crate::harness::client::{Client, Gone, Options, publish, user_property};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{QUIET, SOON, wait};

const GROUP: &str = "$share/g/t/+";
const QUEUED: &str = "com_hivemq_messages_queued_count";
const SUBSCRIPTIONS: &str = "com_hivemq_subscriptions_overall_current";

/// The sum of a gauge that each node tells of the shards it leads.
fn sum(trio: &Trio, name: &str) -> f64 {
    trio.nodes.iter().map(|node| node.metric(name)).sum()
}

#[track_caller]
fn wait_sum(trio: &Trio, name: &str, expected: f64) {
    wait::until(&format!("{name} is {expected}"), SOON, || (sum(trio, name) == expected).then_some(()));
}

/// Waits until leadership is spread and stays: a new leader of a group's shard gives what is in flight to another member as well.
fn settled(trio: &Trio) {
    let led = |node: &Node| {
        let metrics = node.metrics();
        metrics.iter().filter(|(name, value)| name.starts_with("troupemq_raft_is_leader") && **value == 1.0).count()
    };
    // Seven groups.
    wait::until("leadership is spread", 2 * SOON, || {
        let led: Vec<usize> = trio.nodes.iter().map(led).collect();
        (led.iter().sum::<usize>() == 7 && led.iter().all(|of_node| (2..=3).contains(of_node))).then_some(())
    });
}

async fn member(trio: &Trio, node: usize, options: &Options, qos: QoS) -> Client {
    let mut client = connect_soon(trio, node, options).await;
    client.subscribe(GROUP, qos).await;
    client
}

async fn publisher(trio: &Trio, node: usize) -> Client {
    connect_soon(trio, node, &Options::v5("publisher")).await
}

async fn publish_numbers(publisher: &mut Client, numbers: std::ops::Range<usize>, qos: QoS) {
    for number in numbers {
        let code = publisher.publish(&format!("t/{}", number % 3), number.to_string().as_bytes(), qos).await;
        assert_eq!(code, ReasonCode::Success);
    }
}

fn number(message: &Publish) -> usize {
    String::from_utf8_lossy(&message.payload).parse().expect("a number")
}

/// Messages until there are so many, or none comes any more.
async fn numbers(client: &mut Client, wanted: usize) -> Vec<Publish> {
    let mut messages = Vec::new();
    while messages.len() < wanted
        && let Ok(message) = client.try_message(SOON).await
    {
        messages.push(message);
    }
    messages
}

async fn rest(client: &mut Client) -> Vec<usize> {
    let mut rest = Vec::new();
    while let Ok(message) = client.try_message(QUIET).await {
        rest.push(number(&message));
    }
    rest
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Leave {
    Disconnect,
    Reset,
    Unsubscribe,
    Taken,
    Killed,
}

#[tokio::test]
async fn what_a_member_that_leaves_had_not_acknowledged_goes_to_others_at_once_in_order_and_without_dup() {
    const MESSAGES: usize = 20;
    let mut trio = Trio::ready(Weight::Cluster);
    for leave in [Leave::Disconnect, Leave::Reset, Leave::Unsubscribe, Leave::Taken, Leave::Killed] {
        for kept in [false, true] {
            let case = format!("{leave:?}, kept: {kept}");
            let options = Options::v5("leaver").manual_ack();
            let options = if kept { options.persistent() } else { options };
            settled(&trio);
            let mut leaver = member(&trio, 1, &options, QoS::AtLeastOnce).await;
            let mut publisher = publisher(&trio, 0).await;
            publish_numbers(&mut publisher, 0..MESSAGES, QoS::AtLeastOnce).await;
            let had: Vec<usize> = numbers(&mut leaver, MESSAGES).await.iter().map(number).collect();
            assert_eq!(had, (0..MESSAGES).collect::<Vec<_>>(), "{case}");
            let mut heir = member(&trio, 2, &Options::v5("heir"), QoS::AtLeastOnce).await;
            assert_eq!(heir.try_message(QUIET / 2).await, Err(Gone::Timeout), "{case}: they are the other's");
            match leave {
                Leave::Disconnect => drop(leaver.disconnect().await),
                Leave::Reset => drop(leaver.reset()),
                Leave::Unsubscribe => leaver.unsubscribe(GROUP).await,
                // The session that takes over is another one, and no member.
                Leave::Taken => drop(Client::connect(trio.mqtt(0), &Options::v5("leaver")).await),
                Leave::Killed => trio.nodes[1].kill(),
            }
            let left = Instant::now();
            let messages = numbers(&mut heir, MESSAGES).await;
            let took = left.elapsed();
            assert_eq!(messages.iter().map(number).collect::<Vec<_>>(), had, "{case}");
            assert!(messages.iter().all(|message| !message.dup), "{case}: it was not sent to this client before");
            println!("{case}: {took:?}");
            heir.nothing().await;
            heir.disconnect().await;
            if leave == Leave::Killed {
                trio.nodes[1].launch();
                trio.wait_ready();
            }
            // The end of the session, in whatever state it is.
            connect_soon(&trio, 0, &Options::v5("leaver")).await.disconnect().await;
            wait_sum(&trio, QUEUED, 0.0);
        }
    }
}

/// [MQTT-4.8.2-4] [MQTT-4.8.2-5]
#[tokio::test]
async fn a_qos_2_message_that_was_begun_is_its_members_and_one_that_was_not_is_the_groups() {
    const MESSAGES: usize = 30;
    let trio = Trio::ready(Weight::Cluster);
    settled(&trio);
    for (kept, session_ends) in [(true, false), (true, true), (false, true)] {
        let case = format!("kept: {kept}, session ends: {session_ends}");
        // One message at a time; the others that were chosen for it wait in its queue.
        let options = Options::v5("leaver").manual_ack().receive_maximum(1);
        let options = if kept { options.persistent() } else { options };
        let mut leaver = member(&trio, 1, &options, QoS::ExactlyOnce).await;
        let mut publisher = publisher(&trio, 0).await;
        publish_numbers(&mut publisher, 0..MESSAGES, QoS::ExactlyOnce).await;
        let begun = leaver.message().await;
        let mut heir = member(&trio, 2, &Options::v5("heir"), QoS::ExactlyOnce).await;
        leaver.nothing().await;
        leaver.reset();
        if kept && session_ends {
            Client::connect(trio.mqtt(0), &Options::v5("leaver")).await.disconnect().await;
        }
        let mut got: Vec<usize> = numbers(&mut heir, MESSAGES - 1).await.iter().map(number).collect();
        got.sort_unstable();
        let others: Vec<usize> = (0..MESSAGES).filter(|other| *other != number(&begun)).collect();
        assert_eq!(got, others, "{case}");
        heir.nothing().await;
        if !session_ends {
            let mut back = Client::connect(trio.mqtt(0), &Options::v5("leaver").persistent().receive_maximum(1)).await;
            let again = back.message().await;
            assert_eq!((number(&again), again.dup, again.packet_id), (number(&begun), true, begun.packet_id), "{case}");
            back.disconnect().await;
            Client::connect(trio.mqtt(0), &Options::v5("leaver")).await.disconnect().await;
        }
        heir.nothing().await;
        heir.disconnect().await;
        wait_sum(&trio, QUEUED, 0.0);
    }
}

#[tokio::test]
async fn a_group_queues_while_one_persistent_member_exists_and_goes_with_the_last() {
    let trio = Trio::ready(Weight::Cluster);
    let options = ["first", "second"].map(|name| Options::v5(name).persistent());
    for (node, options) in options.iter().enumerate() {
        member(&trio, node, options, QoS::AtLeastOnce).await.disconnect().await;
    }
    // A member that ends with its connection holds nothing.
    member(&trio, 2, &Options::v5("passing"), QoS::AtLeastOnce).await.disconnect().await;
    let mut publisher = publisher(&trio, 2).await;
    publish_numbers(&mut publisher, 0..10, QoS::AtLeastOnce).await;
    wait_sum(&trio, QUEUED, 10.0);
    // The first's session ends: the second alone keeps the group.
    connect_soon(&trio, 2, &Options::v5("first")).await.disconnect().await;
    publish_numbers(&mut publisher, 10..20, QoS::AtLeastOnce).await;
    wait_sum(&trio, QUEUED, 20.0);
    let mut second = connect_soon(&trio, 0, &options[1]).await;
    assert!(second.session_present());
    let got: Vec<usize> = numbers(&mut second, 20).await.iter().map(number).collect();
    assert_eq!(got, (0..20).collect::<Vec<_>>());
    second.ping().await;
    second.disconnect().await;
    publish_numbers(&mut publisher, 0..5, QoS::AtLeastOnce).await;
    wait_sum(&trio, QUEUED, 5.0);
    // And its session expires.
    connect_soon(&trio, 1, &options[1].clone().receive_maximum(1).manual_ack().expiry(1)).await.reset();
    wait_sum(&trio, QUEUED, 0.0);
    wait_sum(&trio, SUBSCRIPTIONS, 0.0);
    let code = publisher.publish("t/0", b"", QoS::AtLeastOnce).await;
    assert_eq!(code, ReasonCode::NoMatchingSubscribers);
    let mut late = member(&trio, 0, &Options::v5("late"), QoS::AtLeastOnce).await;
    late.nothing().await;
}

/// Publishes without waiting for each, as fast as they are taken.
async fn publish_fast(publisher: &mut Client, numbers: std::ops::Range<usize>, qos: QoS) {
    for number in numbers {
        while publisher.session.unacknowledged() > 8 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
        publisher.session.acknowledged.clear();
        publisher.start_publish(publish("t/0", number.to_string().as_bytes(), qos)).await.expect("sent");
    }
    while publisher.session.unacknowledged() > 0 {
        publisher.step(SOON).await.expect("an acknowledgement");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_on_all_nodes_get_their_share() {
    const PUBLISHERS: usize = 3;
    const MESSAGES: usize = 600;
    let trio = Trio::ready_with(Weight::Whole, |config| {
        config.mqtt = "<queued-messages><max-queue-size>100000</max-queue-size></queued-messages>".to_owned();
    });
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut receiving = Vec::new();
        for index in 0..6 {
            let mut client = member(&trio, index % 3, &Options::v5(&format!("member-{index}")), qos).await;
            receiving.push(tokio::spawn(async move {
                let mut got = Vec::new();
                while let Ok(message) = client.try_message(Duration::from_secs(3)).await {
                    got.push(number(&message));
                }
                got
            }));
        }
        let publishing: Vec<_> = (0..PUBLISHERS)
            .map(|index| {
                let address = trio.mqtt(index);
                tokio::spawn(async move {
                    let mut publisher = Client::connect(address, &Options::v5(&format!("publisher-{index}"))).await;
                    publish_fast(&mut publisher, index * MESSAGES..(index + 1) * MESSAGES, qos).await;
                })
            })
            .collect();
        for publisher in publishing {
            publisher.await.expect("a publisher");
        }
        let mut of_node = [0; 3];
        let mut all = Vec::new();
        for (index, receiver) in receiving.into_iter().enumerate() {
            let got = receiver.await.expect("a member");
            of_node[index % 3] += got.len();
            all.extend(got);
        }
        let came = all.len();
        all.sort_unstable();
        all.dedup();
        // A new leader of the group's shard offers again what it does not know to be acknowledged, with QoS 1.
        assert!(came == all.len() || qos == QoS::AtLeastOnce, "{came} of {}", all.len());
        println!("{qos:?}: {of_node:?} of {came}");
        assert_eq!(all, (0..PUBLISHERS * MESSAGES).collect::<Vec<_>>(), "{qos:?}");
        assert!(of_node.iter().all(|share| *share >= came / 6), "{qos:?}: half of a third at least: {of_node:?}");
    }
}

#[tokio::test]
async fn a_slow_member_gets_no_more_than_its_window_and_holds_up_nobody() {
    const MESSAGES: usize = 200;
    const WINDOW: u16 = 5;
    let trio = Trio::ready(Weight::Cluster);
    settled(&trio);
    for (slow_node, fast_node) in [(0, 1), (1, 0)] {
        let options = Options::v5("slow").receive_maximum(WINDOW).manual_ack();
        let mut slow = member(&trio, slow_node, &options, QoS::AtLeastOnce).await;
        let mut fast = member(&trio, fast_node, &Options::v5("fast"), QoS::AtLeastOnce).await;
        let mut publisher = publisher(&trio, 2).await;
        publish_fast(&mut publisher, 0..MESSAGES, QoS::AtLeastOnce).await;
        let fast_got = numbers(&mut fast, MESSAGES - usize::from(WINDOW)).await;
        assert_eq!(fast_got.len(), MESSAGES - usize::from(WINDOW));
        fast.nothing().await;
        let slow_got = rest(&mut slow).await;
        assert_eq!(slow_got.len(), usize::from(WINDOW));
        slow.reset();
        let mut all: Vec<usize> = fast_got.iter().map(number).collect();
        all.extend(numbers(&mut fast, usize::from(WINDOW)).await.iter().map(number));
        all.sort_unstable();
        assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
        fast.disconnect().await;
    }
}

/// Row 69, with three nodes.
#[tokio::test]
async fn after_most_members_were_cut_off_all_messages_reach_those_that_are_left() {
    const MEMBERS: usize = 15;
    const LEFT: usize = 2;
    let trio = Trio::ready(Weight::Cluster);
    let mut members = Vec::new();
    for round in 0..2 {
        for index in members.len()..MEMBERS {
            let options = Options::v5(&format!("member-{round}-{index}"));
            members.push(member(&trio, index % 3, &options, QoS::AtLeastOnce).await);
        }
        let mut publisher = publisher(&trio, round).await;
        for live in [MEMBERS, LEFT] {
            members.drain(live..).for_each(|client| drop(client.reset()));
            publish_numbers(&mut publisher, 0..100, QoS::AtLeastOnce).await;
            let mut got = BTreeSet::new();
            let deadline = Instant::now() + SOON;
            while got.len() < 100 && Instant::now() < deadline {
                for client in &mut members {
                    while let Ok(message) = client.try_message(Duration::from_millis(5)).await {
                        got.insert(number(&message));
                    }
                }
            }
            assert_eq!(got.len(), 100, "round {round}, {live} members");
            wait_sum(&trio, SUBSCRIPTIONS, live as f64);
            wait_sum(&trio, QUEUED, 0.0);
        }
    }
}

/// Row 72.
#[tokio::test]
async fn no_member_comes_back_from_the_dead_when_nodes_restart() {
    const MEMBERS: usize = 6;
    const MESSAGES: usize = 600;
    let mut trio = Trio::ready(Weight::Cluster);
    let mut members = Vec::new();
    for index in 0..MEMBERS {
        let node = index % 3;
        members.push((node, member(&trio, node, &Options::v5(&format!("member-{index}")), QoS::AtLeastOnce).await));
    }
    for node in 0..3 {
        if node == 1 {
            trio.nodes[node].kill()
        } else {
            assert!(trio.nodes[node].stop().success())
        }
        for (index, (at, client)) in members.iter_mut().enumerate() {
            if *at == node {
                *at = (node + 1 + index % 2) % 3;
                *client = member(&trio, *at, &Options::v5(&format!("member-{index}")), QoS::AtLeastOnce).await;
            }
        }
        trio.nodes[node].launch();
        trio.wait_ready();
    }
    wait_sum(&trio, SUBSCRIPTIONS, MEMBERS as f64);
    let mut publisher = publisher(&trio, 0).await;
    let receiving: Vec<_> = members
        .into_iter()
        .map(|(_, mut client)| {
            tokio::spawn(async move {
                let mut got = Vec::new();
                while let Ok(message) = client.try_message(Duration::from_secs(3)).await {
                    got.push(number(&message));
                }
                got
            })
        })
        .collect();
    publish_fast(&mut publisher, 0..MESSAGES, QoS::AtLeastOnce).await;
    let mut all = Vec::new();
    for receiver in receiving {
        let got = receiver.await.expect("a member");
        assert!(!got.is_empty(), "every member works");
        all.extend(got);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (0..MESSAGES).collect::<Vec<_>>());
    wait_sum(&trio, QUEUED, 0.0);
}

/// Row 74.
#[tokio::test]
async fn members_share_what_the_broker_publishes_on_all_nodes() {
    const EACH: usize = 30;
    let trio = Trio::ready(Weight::Cluster);
    let mut members = Vec::new();
    for node in 0..2 {
        let mut client = Client::connect(trio.mqtt(node), &Options::v5(&format!("member-{node}"))).await;
        client.subscribe("$share/g/$dead/nobody/#", QoS::AtLeastOnce).await;
        members.push(client);
    }
    for node in 0..3 {
        let mut publisher = Client::connect(trio.mqtt(node), &Options::v5(&format!("publisher-{node}"))).await;
        for number in 0..EACH {
            publisher.publish(&format!("nobody/{node}/{number}"), b"", QoS::AtLeastOnce).await;
        }
    }
    let mut got = Vec::new();
    let deadline = Instant::now() + SOON;
    let mut shares = [0; 2];
    while got.len() < 3 * EACH && Instant::now() < deadline {
        for (share, client) in shares.iter_mut().zip(&mut members) {
            while let Ok(message) = client.try_message(Duration::from_millis(20)).await {
                got.push(message.topic.to_string());
                *share += 1;
            }
        }
    }
    for client in &mut members {
        client.nothing().await;
    }
    let different: BTreeSet<&String> = got.iter().collect();
    assert_eq!((got.len(), different.len()), (3 * EACH, 3 * EACH), "one member each; shares {shares:?}");
    assert!(shares.iter().all(|share| *share >= EACH / 2), "{shares:?}");
}

/// The group's queue is on all nodes: its leader's death loses nothing and nobody is forgotten.
#[tokio::test]
async fn a_group_goes_on_when_the_leader_of_its_shard_is_killed() {
    const MESSAGES: usize = 60;
    let mut trio = Trio::ready(Weight::Cluster);
    for victim in 0..3 {
        let keeper = Options::v5("keeper").persistent();
        member(&trio, (victim + 1) % 3, &keeper, QoS::AtLeastOnce).await.disconnect().await;
        let mut publisher = publisher(&trio, (victim + 2) % 3).await;
        publish_numbers(&mut publisher, 0..MESSAGES, QoS::AtLeastOnce).await;
        trio.nodes[victim].kill();
        let mut back = connect_soon(&trio, (victim + 1) % 3, &keeper).await;
        assert!(back.session_present());
        let got: BTreeSet<usize> = numbers(&mut back, MESSAGES).await.iter().map(number).collect();
        assert_eq!(got.len(), MESSAGES);
        back.ping().await;
        back.disconnect().await;
        trio.nodes[victim].launch();
        trio.wait_ready();
        wait_sum(&trio, QUEUED, 0.0);
    }
    trio.nodes.iter_mut().for_each(Node::terminate);
}

/// A member's options are those of its own subscription.
#[tokio::test]
async fn a_member_on_another_node_gets_its_own_qos_and_retain() {
    let trio = Trio::ready(Weight::Cluster);
    let mut member = Client::connect(trio.mqtt(1), &Options::v5("member")).await;
    let options = SubscriptionOptions {
        qos: QoS::AtMostOnce,
        no_local: false,
        retain_as_published: true,
        retain_handling: troupemq::mqtt::packet::RetainHandling::Send,
    };
    member.subscribe_as(GROUP, options, Some(7)).await;
    let mut sleeper = self::member(&trio, 2, &Options::v5("sleeper").persistent(), QoS::ExactlyOnce).await;
    sleeper.ping().await;
    sleeper.disconnect().await;
    let mut publisher = publisher(&trio, 0).await;
    publisher.publish_retained("t/0", b"x", QoS::ExactlyOnce).await;
    let message = member.message().await;
    assert_eq!(
        (message.qos, message.retain, &message.properties.subscription_identifiers[..]),
        (QoS::AtMostOnce, true, &[7][..])
    );
    wait_sum(&trio, QUEUED, 0.0);
}

/// A new dispatcher does not know what a member has, and does not tell of it as expired.
#[tokio::test]
async fn what_a_member_has_does_not_expire_when_the_leader_of_its_shard_is_killed() {
    const GROUPS: usize = 12;
    let mut trio = Trio::ready(Weight::Cluster);
    let mut told = Client::connect(trio.mqtt(2), &Options::v5("told")).await;
    told.subscribe("$expired/#", QoS::AtMostOnce).await;
    let mut holder = Client::connect(trio.mqtt(2), &Options::v5("holder").persistent().manual_ack()).await;
    for group in 0..GROUPS {
        holder.subscribe(&format!("$share/g-{group}/t/+"), QoS::AtLeastOnce).await;
    }
    let mut away = Client::connect(trio.mqtt(2), &Options::v5("away").persistent()).await;
    away.subscribe("t/+", QoS::AtLeastOnce).await;
    away.disconnect().await;
    let mut publisher = publisher(&trio, 2).await;
    let mut packet = publish("t/expires", b"", QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(1);
    publisher.try_publish(packet).await.expect("acknowledged");
    let mut held = Vec::new();
    for _ in 0..GROUPS {
        held.push(holder.message().await);
    }
    // It has expired, for who has it not.
    assert_eq!(user_property(&told.message().await, "hmq-exp-client"), Some("away"));
    trio.nodes[0].kill();
    publisher.publish("t/after", b"", QoS::AtLeastOnce).await;
    for _ in 0..GROUPS {
        let message = holder.message().await;
        assert_eq!(&*message.topic, "t/after");
        held.push(message);
    }
    for message in &held {
        holder.puback(message).await;
    }
    told.nothing().await;
    // Nothing is left of it anywhere: not with the client away either.
    holder.reset();
    told.nothing().await;
    trio.nodes[1..].iter_mut().for_each(Node::terminate);
}
