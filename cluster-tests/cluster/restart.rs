//! All nodes end and come back.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::{Trio, cluster_id};

#[tokio::test]
async fn a_cluster_that_was_stopped_comes_back_with_everything() {
    comes_back(|trio| {
        trio.nodes.iter_mut().for_each(Node::terminate);
        trio.nodes.iter_mut().for_each(|node| assert!(node.wait_ended().success(), "{} ends well", node.name));
    })
    .await;
}

#[tokio::test]
async fn a_cluster_whose_nodes_were_all_killed_comes_back_with_everything() {
    comes_back(|trio| trio.nodes.iter_mut().for_each(Node::kill)).await;
}

async fn comes_back(end: impl Fn(&mut Trio)) {
    const SESSIONS: usize = 12;
    let mut trio = Trio::ready(Weight::Cluster);
    let id = cluster_id(&trio.nodes[0]);
    let options = |number: usize| Options::v5(&format!("kept-{number}")).persistent();
    let mut publisher = Client::connect(trio.mqtt(1), &Options::v5("publisher")).await;
    for number in 0..SESSIONS {
        let mut client = Client::connect(trio.mqtt(number % 3), &options(number)).await;
        let topic = format!("one/{number}");
        client.subscribe("everyone", QoS::ExactlyOnce).await;
        client.subscribe(&topic, QoS::AtLeastOnce).await;
        publisher.reaches(&mut client, &topic).await;
        client.ping().await;
        client.disconnect().await;
    }
    publisher.publish("everyone", b"all", QoS::ExactlyOnce).await;
    for number in 0..SESSIONS {
        publisher.publish(&format!("one/{number}"), number.to_string().as_bytes(), QoS::AtLeastOnce).await;
        publisher.publish_retained(&format!("retained/{number}"), number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    end(&mut trio);
    trio.start_all();
    assert_eq!(cluster_id(&trio.nodes[2]), id);
    for number in 0..SESSIONS {
        let mut client = Client::connect(trio.mqtt((number + 1) % 3), &options(number)).await;
        assert!(client.session_present(), "{number}");
        assert_eq!(client.text().await, "all");
        assert_eq!(client.text().await, number.to_string());
        client.publish(&format!("one/{number}"), b"new", QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, "new");
    }
    let mut late = Client::connect(trio.mqtt(0), &Options::v5("late")).await;
    late.subscribe("retained/#", QoS::AtLeastOnce).await;
    let mut retained = Vec::new();
    for _ in 0..SESSIONS {
        retained.push(late.text().await.parse::<usize>().expect("a number"));
    }
    retained.sort_unstable();
    assert_eq!(retained, (0..SESSIONS).collect::<Vec<_>>());
    late.nothing().await;
}
