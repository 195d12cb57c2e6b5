//! Networks that are cut: what goes on meanwhile, and that everything heals without help.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use troupemq::mqtt::{QoS, ReasonCode};

use super::campaign::shape;
use super::islands::Islands;
use super::kit::{connect_within, everybody_hears_everybody, resume, texts_within};
use super::net::Quality;
use super::random::{Random, from_environment};
use crate::harness::client::{Client, ConnectError, Options, Session};
use crate::harness::trio::{Trio, cluster_id};
use crate::harness::{SOON, wait};

/// After silence of a peer the others serve within this; stated: 5 s, the machine may be busy.
const SILENCE: Duration = Duration::from_secs(20);

fn whole(islands: &Islands, what: &str) {
    let took = tokio::task::block_in_place(|| islands.whole_again()).unwrap_or_else(|error| panic!("{what}: {error}"));
    println!("{what}: whole again after {took:?}");
}

/// Tries until the node refuses with 0x88. Until it has noticed that it is alone, an attempt may also end without an answer.
async fn refuses(trio: &Trio, node: usize, what: &str) {
    let refused = async || match connect_within(trio, node, &Options::v5("refused"), Duration::from_secs(12)).await {
        Err(ConnectError::Refused(connack)) => {
            assert_eq!(connack.reason_code, ReasonCode::ServerUnavailable, "{what}");
            Some(())
        }
        _ => None,
    };
    wait::until_async(&format!("{what}: CONNECT is refused with 0x88"), 2 * SOON, refused).await;
}

/// `../shared/cases.md`, row 14. `TROUPEMQ_CUT_ROUNDS` asks for more rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_cut_off_is_one_of_three_again() {
    let Some(islands) = tokio::task::block_in_place(|| Islands::ready("cut-node", 1, shape)) else { return };
    let trio = &islands.trio;
    let options = Options::v5("roams").persistent();
    for round in 0..from_environment("TROUPEMQ_CUT_ROUNDS").unwrap_or(1) {
        let name = format!("cut {round}");
        // Connected to the node that will be alone, with a session that goes on elsewhere.
        let mut alone = resume(trio, &[2], &options, Session::default()).await;
        alone.subscribe("t", QoS::ExactlyOnce).await;
        islands.net.cut_node(2);
        let cut_at = Instant::now();
        let mut moved = connect_soon_elsewhere(trio, &options).await;
        assert!(moved.session_present());
        let mut publisher = resume(trio, &[1], &Options::v5("publisher"), Session::default()).await;
        publisher.patience = SILENCE;
        publisher.publish("t", b"during", QoS::ExactlyOnce).await;
        assert_eq!(moved.text().await, "during");
        println!("{name}: the majority served the session {:?} after the cut", cut_at.elapsed());
        wait::until("the node that is alone is not ready", SILENCE, || (!trio.nodes[2].is_up()).then_some(()));
        refuses(trio, 2, &name).await;
        // Stated: about 13 s.
        alone.patience = 2 * SOON;
        let ended = alone.closed().await;
        println!("{name}: the minority closed its clients with {ended:?} {:?} after the cut", cut_at.elapsed());
        islands.net.heal();
        whole(&islands, &name);
        everybody_hears_everybody(trio, &name.replace(' ', "-")).await;
        moved.disconnect().await;
    }
    islands.net.cut_all();
    sleep(Duration::from_secs(1)).await;
    islands.net.heal();
    whole(&islands, "all pairs, for a second");
    everybody_hears_everybody(trio, "after-all").await;
}

async fn connect_soon_elsewhere(trio: &Trio, options: &Options) -> Client {
    let began = Instant::now();
    let client = resume(trio, &[0, 1], options, Session::default()).await;
    assert!(began.elapsed() < SILENCE, "the majority took {:?}", began.elapsed());
    client
}

/// One pair, and each direction of it: whoever can be reached by a majority is served, and everything heals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_cut_between_one_pair_or_in_one_direction_heal() {
    let Some(islands) = tokio::task::block_in_place(|| Islands::ready("cut-links", 2, shape)) else { return };
    let trio = &islands.trio;
    for (number, (a, b, one_way)) in [(0, 1, false), (1, 2, true), (2, 1, true), (0, 2, true)].into_iter().enumerate() {
        let what = format!("{a} to {b}, {}", if one_way { "one way" } else { "both ways" });
        let options = Options::v5(&format!("s-{number}")).persistent();
        let mut subscriber = resume(trio, &[0, 1, 2], &options, Session::default()).await;
        subscriber.subscribe(&format!("t/{number}"), QoS::ExactlyOnce).await;
        let session = subscriber.into_session();
        islands.net.set(a, b, Quality::CUT);
        if !one_way {
            islands.net.set(b, a, Quality::CUT);
        }
        sleep(Duration::from_secs(5)).await;
        // Somebody serves: with the third node both have a majority, of which one has to give way.
        let mut publisher = resume(trio, &[0, 1, 2], &Options::v5(&format!("p-{number}")).persistent(), Session::default()).await;
        publisher.patience = 2 * SOON;
        publisher.publish(&format!("t/{number}"), b"during", QoS::ExactlyOnce).await;
        islands.net.heal();
        whole(&islands, &what);
        let mut subscriber = resume(trio, &[number % 3], &options, session).await;
        assert!(subscriber.session_present(), "{what}");
        assert_eq!(texts_within(&mut subscriber, Duration::from_secs(1)).await, ["during"], "{what}");
        subscriber.disconnect().await;
        everybody_hears_everybody(trio, &format!("pair-{number}")).await;
    }
}

/// `../shared/cases.md`, row 17. `TROUPEMQ_BLIP_ROUNDS` asks for more blips.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blips_of_all_links_leave_the_same_views_on_all_nodes() {
    let seed = from_environment("TROUPEMQ_FAULTS_SEED").unwrap_or(3);
    let Some(islands) = tokio::task::block_in_place(|| Islands::ready("blips", seed, shape)) else { return };
    let trio = &islands.trio;
    let mut random = Random::new(seed);
    let mut sessions = Vec::new();
    for round in 0..from_environment("TROUPEMQ_BLIP_ROUNDS").unwrap_or(6) {
        let blip = Duration::from_millis(random.one_of(&[5, 50, 500, 1_500]));
        let before = Duration::from_millis(random.below(150));
        // Subscribes, retains and takes over while it happens.
        let load = async {
            let options = Options::v5(&format!("c-{round}")).persistent();
            let mut first = resume(trio, &[round as usize % 3], &options, Session::default()).await;
            first.patience = 2 * SOON;
            let mut publisher =
                resume(trio, &[(round as usize + 1) % 3], &Options::v5(&format!("p-{round}")), Session::default()).await;
            publisher.patience = 2 * SOON;
            first.subscribe(&format!("blip/{round}"), QoS::AtLeastOnce).await;
            publisher.publish_retained("retained", round.to_string().as_bytes(), QoS::AtLeastOnce).await;
            let second = resume(trio, &[(round as usize + 2) % 3], &options, Session::default()).await;
            assert!(second.session_present(), "seed {seed}, blip {round}");
            second.into_session();
            options
        };
        let cut = async {
            sleep(before).await;
            islands.net.cut_all();
            sleep(blip).await;
            islands.net.heal();
        };
        let (options, ()) = tokio::join!(load, cut);
        sessions.push(options);
        let what = format!("seed {seed}, blip {round} of {blip:?}");
        tokio::task::block_in_place(|| islands.whole_again()).unwrap_or_else(|error| panic!("{what}: {error}"));
        same_views(trio, round, &sessions, &what).await;
    }
    for node in &trio.nodes {
        assert!(!node.stderr().contains("panicked"), "{}", node.stderr());
    }
}

/// All nodes know the newest subscription, the newest retained message, and the sessions.
async fn same_views(trio: &Trio, round: u64, sessions: &[Options], what: &str) {
    for node in 0..3 {
        let mut client = resume(trio, &[node], &Options::v5(&format!("views-{node}")), Session::default()).await;
        client.patience = SOON;
        let code = client.publish(&format!("blip/{round}"), b"x", QoS::AtLeastOnce).await;
        assert_eq!(code, ReasonCode::Success, "{what}: node {node} knows the subscription");
        client.subscribe("retained", QoS::AtLeastOnce).await;
        assert_eq!(client.text().await, round.to_string(), "{what}: node {node} has the newest retained message");
        client.disconnect().await;
        let options = &sessions[round as usize * 7 % sessions.len()];
        let resumed = resume(trio, &[node], options, Session::default()).await;
        assert!(resumed.session_present(), "{what}: node {node}, {}", options.client_id());
        resumed.disconnect().await;
    }
    let mut subscriber = resume(trio, &[0], &sessions[round as usize], Session::default()).await;
    let texts = texts_within(&mut subscriber, Duration::from_millis(300)).await;
    assert!(texts.len() >= 3 || round as usize * 7 % sessions.len() == round as usize, "{what}: {texts:?}");
    subscriber.disconnect().await;
}

/// A slow link costs time and nothing else: leaders stay, and nobody is declared dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_that_loses_packets_changes_nothing_but_time() {
    let Some(islands) = tokio::task::block_in_place(|| Islands::ready("slow-link", 4, shape)) else { return };
    let trio = &islands.trio;
    let mut subscriber = resume(trio, &[0], &Options::v5("subscriber").persistent(), Session::default()).await;
    subscriber.subscribe("t", QoS::ExactlyOnce).await;
    let mut publisher = resume(trio, &[1], &Options::v5("publisher").persistent(), Session::default()).await;
    publisher.patience = 2 * SOON;
    let slow = Quality {
        delay: Duration::from_millis(60),
        jitter: Duration::from_millis(20),
        lost_per_mille: 10,
        doubled_per_mille: 10,
        ..Quality::default()
    };
    let before = islands.net.carried(0, 1);
    islands.net.set_pair(0, 1, slow);
    for number in 0..60 {
        publisher.publish("t", number.to_string().as_bytes(), QoS::ExactlyOnce).await;
    }
    let after = islands.net.carried(0, 1);
    assert!(after.0 > before.0 + 20, "the link was used: {before:?}, {after:?}");
    let expected: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    let mut received = Vec::new();
    while received.len() < expected.len() {
        received.push(subscriber.text().await);
    }
    assert_eq!(received, expected);
    assert!(trio.nodes.iter().all(|node| !node.stderr().contains("the node's incarnation ended")), "nobody was declared dead");
    islands.net.heal();
    whole(&islands, "slow link");
}

/// `../shared/cases.md`, row 12: nodes that cannot find each other found nothing, and an empty one joins those that have data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_reach_each_other_found_no_cluster_each() {
    let Some(mut islands) = tokio::task::block_in_place(|| Islands::new("founding", 5, shape)) else { return };
    islands.net.cut_all();
    islands.trio.nodes.iter_mut().for_each(crate::harness::node::Node::launch);
    sleep(Duration::from_secs(6)).await;
    for node in &islands.trio.nodes {
        assert!(!node.stdout().contains("\nTry: "), "{} is ready alone", node.name);
        assert!(!node.is_up(), "{} says that it is ready", node.name);
    }
    islands.net.heal();
    tokio::task::block_in_place(|| islands.trio.wait_ready());
    let id = cluster_id(&islands.trio.nodes[0]).expect("founded");
    for node in &islands.trio.nodes {
        assert_eq!(cluster_id(node).as_ref(), Some(&id), "one cluster");
    }
    let mut client = resume(&islands.trio, &[0], &Options::v5("kept").persistent(), Session::default()).await;
    client.subscribe("t", QoS::AtLeastOnce).await;
    client.disconnect().await;
    // The third loses its data while it cannot reach the others.
    islands.trio.nodes[2].kill();
    std::fs::remove_dir_all(islands.trio.nodes[2].data()).expect("data");
    islands.net.cut_node(2);
    islands.trio.nodes[2].launch();
    sleep(Duration::from_secs(4)).await;
    assert!(!islands.trio.nodes[2].is_up(), "an empty node alone is not ready");
    islands.net.heal();
    tokio::task::block_in_place(|| islands.trio.wait_ready());
    assert_eq!(cluster_id(&islands.trio.nodes[2]), Some(id));
    let mut publisher = resume(&islands.trio, &[1], &Options::v5("publisher"), Session::default()).await;
    publisher.publish("t", b"queued", QoS::AtLeastOnce).await;
    let mut client = resume(&islands.trio, &[2], &Options::v5("kept").persistent(), Session::default()).await;
    assert!(client.session_present(), "the node was filled again");
    assert_eq!(client.text().await, "queued");
}

/// `../shared/cases.md`, row 16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loss_of_a_node_makes_no_other_refuse_and_the_loss_of_two_makes_the_third() {
    let Some(mut islands) = tokio::task::block_in_place(|| Islands::ready("loss", 6, shape)) else { return };
    islands.trio.nodes[2].kill();
    let killed_at = Instant::now();
    for second in 0..8 {
        for node in 0..2 {
            for clean in [true, false] {
                let options = Options::v5(&format!("c-{node}-{clean}-{}", second % 2)).persistent().clean_start(clean);
                let client = resume(&islands.trio, &[node], &options, Session::default()).await;
                assert_eq!(client.session_present(), !clean && second >= 2, "{second}, node {node}, Clean Start {clean}");
                client.disconnect().await;
            }
        }
        if second == 0 {
            println!("both survivors accepted every kind of client {:?} after the kill", killed_at.elapsed());
            assert!(killed_at.elapsed() < SILENCE);
        }
        sleep(Duration::from_millis(300)).await;
    }
    islands.trio.nodes[1].kill();
    wait::until("the last node is not ready", SILENCE, || (!islands.trio.nodes[0].is_up()).then_some(()));
    refuses(&islands.trio, 0, "one of three").await;
}
