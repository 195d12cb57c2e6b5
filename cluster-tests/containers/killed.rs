//! All pods killed at once, and then one that comes back without its volume.

use std::net::SocketAddr;

use super::load::Sleepers;
use super::pods::Pods;
use crate::harness::permit::Weight;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_killed_at_once_come_back_by_themselves_and_an_empty_volume_is_filled_again() {
    let test = "all_killed_at_once_come_back_by_themselves_and_an_empty_volume_is_filled_again";
    let Some(pods) = Pods::ready(test, "killed", Weight::Cluster, 3) else { return };
    let servers = |pods: &Pods| -> Vec<SocketAddr> { (0..3).map(|index| pods.mqtt(index)).collect() };
    let cluster = pods.cluster_id(0).expect("a cluster");
    let mut sleepers = Sleepers::fall_asleep(&servers(&pods), "killed", 9, 10).await;

    let before = servers(&pods);
    pods.kill(0..3);
    pods.start_all(0..3, 3);
    let took = pods.wait_ready(0..3);
    println!("all killed: ready {took:?} after the last was started");
    assert!(servers(&pods).iter().all(|address| !before.contains(address)), "all have other addresses");
    (0..3).for_each(|index| assert_eq!(pods.cluster_id(index).as_deref(), Some(&*cluster), "nobody founded another cluster"));
    sleepers.queue(&servers(&pods), "killed", 5).await;

    pods.kill([1]);
    pods.lose_volume(1);
    sleepers.queue(&[pods.mqtt(2)], "killed", 5).await;
    pods.start(1, 3);
    println!("without its volume: ready after {:?}", pods.wait_ready([1]));
    assert_eq!(pods.cluster_id(1).as_deref(), Some(&*cluster));
    wait_votes(&pods, 1);
    // It holds everything: with either of the others gone, the rest have a majority of what was acknowledged.
    pods.kill([0]);
    [1, 2].into_iter().for_each(|index| pods.wait_members(index, 2));
    pods.wait_ready([1, 2]);
    sleepers.wake_up(&[pods.mqtt(1), pods.mqtt(2)]).await;
}

/// A replica that came back without data votes again when it holds all.
fn wait_votes(pods: &Pods, index: usize) {
    crate::harness::wait::until("the node votes again in all groups", super::pods::READY, || {
        let status: serde_json::Value = serde_json::from_str(&pods.exec(index, &["cluster", "status", "--json"]).stdout).ok()?;
        let groups = status["groups"].as_array()?;
        groups.iter().all(|group| group["voters"].as_array().is_some_and(|voters| voters.len() == 3)).then_some(())
    });
}
