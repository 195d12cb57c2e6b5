//! Replicas from 1 to 3 to 5 and back to 3, and a pod that is away for a while.

use std::net::SocketAddr;

use troupemq::mqtt::QoS;

use super::load::Sleepers;
use super::pods::Pods;
use crate::harness::client::{Client, Options};
use crate::harness::permit::Weight;

/// A pod that is added to a cluster founds none.
const NONE: usize = 0;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cluster_grows_from_one_to_five_and_shrinks_to_three_by_command() {
    let test = "a_cluster_grows_from_one_to_five_and_shrinks_to_three_by_command";
    let Some(pods) = Pods::new(test, "scale", Weight::Cluster) else { return };
    pods.start(0, 1);
    pods.wait_ready([0]);
    let cluster = pods.cluster_id(0).expect("a cluster");
    let mut sleepers = Sleepers::fall_asleep(&[pods.mqtt(0)], "scale", 5, 5).await;

    for (from, to) in [(1, 3), (3, 5)] {
        pods.start_all(from..to, NONE);
        pods.wait_ready(0..to);
        (0..to).for_each(|index| {
            pods.wait_members(index, to as u64);
            assert_eq!(pods.cluster_id(index).as_deref(), Some(&*cluster));
        });
        everybody_hears_everybody(&pods, to).await;
        sleepers.queue(&[pods.mqtt(to - 1)], "scale", 5).await;
    }

    // As documented: first the command, then fewer replicas.
    for index in [4, 3] {
        let left = pods.exec(index, &["cluster", "leave"]);
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(pods.terminate(index), 0);
        pods.lose_volume(index);
    }
    (0..3).for_each(|index| pods.wait_members(index, 3));
    everybody_hears_everybody(&pods, 3).await;

    // Fewer replicas without the command are a restart that lasts: the pod stays a member, two of three go on, and it finds its place again.
    assert_eq!(pods.terminate(2), 0);
    [0, 1].into_iter().for_each(|index| pods.wait_members(index, 2));
    pods.wait_ready([0, 1]);
    sleepers.queue(&[pods.mqtt(1)], "scale", 5).await;
    pods.start(2, NONE);
    pods.wait_ready([2]);
    (0..3).for_each(|index| pods.wait_members(index, 3));
    everybody_hears_everybody(&pods, 3).await;
    let servers: Vec<SocketAddr> = (0..3).map(|index| pods.mqtt(index)).collect();
    sleepers.wake_up(&servers).await;
}

/// What is published at each pod reaches a subscriber at each.
async fn everybody_hears_everybody(pods: &Pods, count: usize) {
    let mut subscribers = Vec::new();
    for index in 0..count {
        let mut client = Client::connect(pods.mqtt(index), &Options::v5(&format!("hears-{index}"))).await;
        client.subscribe("to/all", QoS::AtLeastOnce).await;
        subscribers.push(client);
    }
    for index in 0..count {
        let mut publisher = Client::connect(pods.mqtt(index), &Options::v5("tells")).await;
        publisher.publish("to/all", index.to_string().as_bytes(), QoS::AtLeastOnce).await;
        publisher.disconnect().await;
    }
    for (index, mut subscriber) in subscribers.into_iter().enumerate() {
        let mut heard = Vec::new();
        for _ in 0..count {
            heard.push(subscriber.text().await);
        }
        heard.sort();
        let all: Vec<String> = (0..count).map(|index| index.to_string()).collect();
        assert_eq!(heard, all, "of {count}, at {index}");
        subscriber.disconnect().await;
    }
}
