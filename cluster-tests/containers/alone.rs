//! A pod that starts long before the others, where names are resolved slowly, and one that has no others.

use std::time::{Duration, Instant};

use super::names::NameServer;
use super::pods::Pods;
use crate::harness::permit::Weight;
use crate::harness::{SOON, wait};

/// How long the pod is alone: many times what a cluster takes to be founded. `TROUPEMQ_ALONE_SECONDS=600` for the ten minutes that an operator may
/// take.
fn alone() -> Duration {
    let seconds = std::env::var("TROUPEMQ_ALONE_SECONDS")
        .map_or(8, |text| text.parse().expect("TROUPEMQ_ALONE_SECONDS: a number of seconds"));
    Duration::from_secs(seconds)
}

/// The engine gives up a question after 4 s.
const LATE: Duration = Duration::from_millis(2_500);
const NAME: &str = "nodes.slow.example";
/// Well under a second with a release build; whoever may not be the only one waits 5 s.
const FOUNDED: Duration = Duration::from_secs(4);

#[test]
fn a_pod_alone_is_alive_not_ready_and_founds_nothing_until_the_others_come_however_slow_names_are() {
    let test = "a_pod_alone_is_alive_not_ready_and_founds_nothing_until_the_others_come_however_slow_names_are";
    let Some(mut pods) = Pods::new(test, "alone", Weight::Cluster) else { return };
    let gateway = format!("{}1", pods.prefix()).parse().expect("the bridge has the first address");
    let names = NameServer::start(gateway, NAME, LATE);
    (pods.discovery, pods.name_server) = (NAME.to_owned(), Some(gateway));

    pods.start(0, 3);
    names.addresses.lock().expect("no panic").push(pods.address(0));
    wait::until("the pod serves HTTP", SOON, || pods.is_alive(0).then_some(()));
    let began = Instant::now();
    while began.elapsed() < alone() {
        assert!(pods.is_alive(0), "whoever waits is alive: {}", pods.engine.logs(&pods.pod(0)));
        assert!(!pods.is_ready(0), "one of three is no majority");
        assert_eq!(pods.cluster_id(0), None, "and founds nothing");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(pods.waits_for(0).is_some_and(|what| what.contains("cluster")), "{:?}", pods.waits_for(0));
    wait::until("the name was asked for, and again", SOON, || {
        (names.asked.load(std::sync::atomic::Ordering::Relaxed) > 1).then_some(())
    });
    let healthy = pods.exec(0, &["health", "--liveness"]);
    assert_eq!((healthy.code, healthy.stdout.trim()), (Some(0), "UP"), "{healthy:?}");
    let unready = pods.exec(0, &["health"]);
    assert!(unready.code == Some(1) && unready.stdout.starts_with("DOWN: waits for "), "{unready:?}");

    pods.start_all(1..3, 3);
    names.addresses.lock().expect("no panic").extend([pods.address(1), pods.address(2)]);
    let took = pods.wait_ready(0..3);
    println!("with names that take {LATE:?}: ready {took:?} after the others had started");
    assert!(pods.cluster_id(0).is_some());
    (1..3).for_each(|index| assert_eq!(pods.cluster_id(index), pods.cluster_id(0)));
}

#[test]
fn a_pod_that_is_to_be_the_only_one_is_ready_at_once() {
    let Some(pods) = Pods::new("a_pod_that_is_to_be_the_only_one_is_ready_at_once", "only", Weight::Node) else { return };
    pods.start(0, 1);
    let took = pods.wait_ready([0]);
    println!("the only one: ready {took:?} after its start");
    assert!(took < FOUNDED, "{took:?}: {}", pods.engine.logs(&pods.pod(0)));
    let cluster = pods.cluster_id(0);
    assert!(cluster.is_some());

    // Grown by a pod that is told of one as well, it stays the same cluster.
    pods.start(1, 1);
    pods.wait_ready([1]);
    assert_eq!(pods.cluster_id(1), cluster);
}
