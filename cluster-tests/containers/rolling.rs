//! A rolling restart under load, as a StatefulSet does it: from the highest number down, the next one when the last is ready; once with the
//! same image and once with another.

use super::load::{Load, Watcher, judge_events};
use super::pods::Pods;
use super::service::Service;
use crate::harness::permit::Weight;
use crate::harness::{SOON, wait};

const PAIRS: usize = 100;
const RATE: usize = 200;
/// What the figure of the issue asks for: 2,500 pairs make 5,000 clients.
const MANY_PAIRS: usize = 2_500;
const MANY_RATE: usize = 1_000;

#[test]
fn a_rolling_restart_to_another_image_loses_nothing_and_moves_no_client_more_than_twice() {
    roll("a_rolling_restart_to_another_image_loses_nothing_and_moves_no_client_more_than_twice", PAIRS, RATE);
}

/// `TROUPEMQ_BIN` should name a release build.
#[test]
#[ignore = "a measurement, for a machine that does nothing else"]
fn a_rolling_restart_with_5000_clients() {
    roll("a_rolling_restart_with_5000_clients", MANY_PAIRS, MANY_RATE);
}

fn roll(test: &str, pairs: usize, rate: usize) {
    let Some(pods) = Pods::ready(test, "roll", Weight::Whole, 3) else { return };
    let next = next_image(&pods);
    let service = Service::start(&pods.places);
    let watcher = Watcher::start(service.address, "rolled-");
    let load = Load::start(service.address, "rolled-", pairs, rate, &watcher);
    let cluster = pods.cluster_id(0);
    let mut stops = Vec::new();
    for index in (0..3).rev() {
        let before = pods.address(index);
        assert_eq!(pods.terminate(index), 0, "{} ends by itself within its grace period", pods.pod(index));
        pods.start_image(index, 3, &next);
        assert_ne!(pods.address(index), before, "it comes back at another address");
        stops.push(pods.wait_ready([index]));
        assert_eq!(pods.cluster_id(index), cluster, "it is in its cluster, as a member that was never gone");
        // Its probe must have been answered before the next one goes.
        wait::until("the service sends clients to it", SOON, || service.sends_to(pods.address(index)).then_some(()));
        (0..3).for_each(|member| pods.wait_members(member, 3));
    }
    let verdict = load.judge();
    let most = judge_events(&watcher.end(), 2 * pairs, 2);
    println!(
        "rolled with {} clients: ready again after {stops:?}, moved at most {most} times; {} connections lost, {}",
        2 * pairs,
        verdict["figures"]["connections_lost"],
        verdict["times_ms"]
    );
}

/// The same program in another image.
fn next_image(pods: &Pods) -> String {
    let tag = "troupemq:next";
    let folder = tempfile::tempdir().expect("a directory");
    let text = format!("FROM {}\nLABEL org.opencontainers.image.version=next\n", super::engine::IMAGE);
    std::fs::write(folder.path().join("Dockerfile"), text).expect("a file");
    pods.engine.build_plain(&folder.path().to_string_lossy(), tag);
    let id = |tag: &str| pods.engine.docker(&["image", "inspect", "--format", "{{.Id}}", tag]);
    assert_ne!(id(tag), id(super::engine::IMAGE));
    tag.to_owned()
}
