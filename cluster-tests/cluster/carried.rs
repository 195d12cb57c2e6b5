//! What a message carries, over three nodes: to subscribers of other nodes, from queues that were handed over, after the loss of a node.

use troupemq::mqtt::QoS;

use crate::harness::SOON;
use crate::harness::client::{Client, Options};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::wait;
use crate::node::carried::{Expected, LEVELS, Overlapping, VERSIONS, full, name, of_each_qos, options, publish_all, subscribers};

#[tokio::test]
async fn a_message_arrives_whole_at_other_nodes_and_from_queues_that_move() {
    let mut trio = Trio::ready(Weight::Cluster);
    let mut all = Vec::new();
    for node in 0..3 {
        all.extend(subscribers(trio.mqtt(node), &format!("s{node}"), "carried/+").await);
    }
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("prober")).await;
    for (index, subscriber) in all.iter_mut().enumerate() {
        let client = subscriber.client.as_mut().unwrap();
        let topic = format!("probe/{index}");
        client.subscribe(&topic, QoS::AtLeastOnce).await;
        publisher.reaches(client, &topic).await;
    }
    let messages = of_each_qos("carried/x");
    for node in 0..3 {
        publish_all(trio.mqtt(node), &messages).await;
        for subscriber in &mut all {
            let expected = subscriber.expects(&messages, true);
            subscriber.receives(&expected, &format!("live from node {node}")).await;
        }
    }
    for subscriber in &mut all {
        subscriber.sleep().await;
    }
    publish_all(trio.mqtt(1), &messages).await;
    for (index, subscriber) in all.iter_mut().enumerate() {
        subscriber.wake(trio.mqtt(index % 3)).await;
        let expected = subscriber.expects(&messages, false);
        subscriber.receives(&expected, "handed over").await;
        subscriber.sleep().await;
    }
    publish_all(trio.mqtt(2), &messages).await;
    let retained: Vec<_> = LEVELS.iter().map(|qos| full(&format!("kept/{qos:?}"), "kept", *qos, true)).collect();
    publish_all(trio.mqtt(2), &retained).await;
    trio.nodes[2].kill();
    wait::until("two nodes serve", SOON, || trio.nodes[..2].iter().all(|node| node.is_up()).then_some(()));
    for (index, subscriber) in all.iter_mut().enumerate() {
        let address = trio.mqtt(index % 2);
        let client = wait::until_async("the session is served", SOON, async || {
            Client::try_connect(address, &subscriber.options).await.ok()
        });
        subscriber.client = Some(client.await);
        let expected = subscriber.expects(&messages, false);
        subscriber.receives(&expected, "after the loss of a node").await;
    }
    for version in VERSIONS {
        let mut client = Client::connect(trio.mqtt(0), &Options::of(version, &format!("late-{}", name(version)))).await;
        for message in &retained {
            let identifier = version.is_v5().then_some(5);
            client.subscribe_as(&message.topic, options(QoS::ExactlyOnce), identifier).await;
            let identifiers = identifier.into_iter().collect();
            let expected = Expected { message: message.clone(), qos: message.qos, retain: true, identifiers };
            expected.check(&client.message().await, version, "retained");
        }
    }
}

#[tokio::test]
async fn overlapping_subscriptions_keep_their_options_on_every_node() {
    let trio = Trio::ready(Weight::Cluster);
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    for (index, one) in Overlapping::all().iter().enumerate().step_by(3) {
        let probe = format!("probe/{index}");
        let mut client = Client::connect(trio.mqtt(index % 3), &one.options).await;
        one.subscribe(&mut client).await;
        client.subscribe(&probe, QoS::AtLeastOnce).await;
        publisher.reaches(&mut client, &probe).await;
        for message in one.messages() {
            publisher.try_publish(message).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), false, "live").await;
        client.disconnect().await;
        for message in one.messages() {
            publisher.try_publish(message).await.expect("acknowledged");
        }
        let mut client = Client::connect(trio.mqtt((index + 1) % 3), &one.options).await;
        one.receives(&mut client, &one.messages(), false, "handed over").await;
        for message in one.messages() {
            client.try_publish(message).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), true, "its own, elsewhere").await;
        client.disconnect().await;
    }
}
