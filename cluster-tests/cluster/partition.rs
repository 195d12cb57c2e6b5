//! Nodes that cannot reach each other (wires in between are cut, the processes run on).

use std::time::{Duration, Instant};

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, Gone, Options, publish};
use crate::harness::permit::Weight;
use crate::harness::trio::alive;
use crate::harness::wire::WiredTrio;
use crate::harness::{SOON, wait};

/// A lease of 2.5 s has run out.
const LEASE_OVER: Duration = Duration::from_millis(3_000);

/// `../shared/cases.md`, row 16 for a node that is cut off, not dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_a_majority_acknowledges_nothing_refuses_clients_and_closes_those_it_has() {
    let wired = WiredTrio::ready(Weight::Cluster, |config| {
        let cluster = config.cluster.as_mut().expect("a cluster");
        cluster.more = "<close-clients-without-majority-after>6000</close-clients-without-majority-after>".to_owned();
    })
    .await;
    let trio = &wired.trio;
    let mut near = Client::connect(trio.mqtt(0), &Options::v5("near")).await;
    near.subscribe("t", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    publisher.publish("t", b"before", QoS::AtLeastOnce).await;
    assert_eq!(near.text().await, "before");

    wired.set_alone(0, true);
    let cut = Instant::now();
    tokio::time::sleep(LEASE_OVER).await;
    // Its only receiver is on the same node and keeps no session: nothing but the lease forbids to answer.
    publisher.start_publish(publish("t", b"alone", QoS::AtLeastOnce)).await.expect("sent");
    let refusal = |options: Options| async move {
        let begun = Instant::now();
        let error = Client::try_connect(trio.mqtt(0), &options).await.map(|_| ()).expect_err("refused");
        (format!("{error:?}"), begun.elapsed())
    };
    wait::until("it is not ready", SOON, || (!trio.nodes[0].is_up()).then_some(()));
    for (options, code) in [(Options::v5("five"), "ServerUnavailable"), (Options::v3("three"), "ServerUnavailable")] {
        let (error, took) = refusal(options).await;
        assert!(error.contains(code), "{error}");
        println!("refused within {took:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    // The others go on, and what they acknowledge is true on all that serve.
    let mut far =
        wait::until_async("a client comes in", SOON, async || Client::try_connect(trio.mqtt(1), &Options::v5("far")).await.ok())
            .await;
    far.subscribe("t", QoS::AtLeastOnce).await;
    println!("acknowledged {:?} after the cut", cut.elapsed());
    let mut other = Client::connect(trio.mqtt(2), &Options::v5("other")).await;
    other.publish("t", b"majority", QoS::AtLeastOnce).await;
    assert_eq!(far.text().await, "majority");

    let mut seen = publisher.step(Duration::from_millis(1)).await;
    while seen.is_ok() || matches!(seen, Err(Gone::Timeout)) {
        assert!(cut.elapsed() < SOON * 2, "not closed");
        seen = publisher.step(Duration::from_millis(100)).await;
    }
    println!("closed {:?} after the cut", cut.elapsed());
    assert!(publisher.session.acknowledged.is_empty(), "nothing is acknowledged by a node that is alone");
    assert_eq!(publisher.disconnect.as_ref().map(|packet| packet.reason_code), Some(ReasonCode::ServerBusy));
    assert_eq!(near.closed().await, Some(ReasonCode::ServerBusy));

    wired.set_alone(0, false);
    wait::until("it is back", SOON, || (trio.nodes[0].is_up() && alive(&trio.nodes[0]) == 3).then_some(()));
    let mut back = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    back.publish("t", b"back", QoS::AtLeastOnce).await;
    assert_eq!(far.text().await, "back");
}

/// `../shared/cases.md`, row 14 for one pair.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_reach_each_other_serve_on_through_the_third() {
    let wired = WiredTrio::ready(Weight::Cluster, |_| {}).await;
    let trio = &wired.trio;
    let mut clients = Vec::new();
    for number in 0..3 {
        clients.push(Client::connect(trio.mqtt(number), &Options::v5(&format!("c-{number}"))).await);
    }
    wired.set_cut(0, 1, true);
    let until = Instant::now() + Duration::from_secs(12);
    let mut round = 0;
    while Instant::now() < until {
        let (from, to) = [(0, 1), (1, 0), (0, 2), (2, 1), (1, 2)][round % 5];
        let topic = format!("t/{round}");
        // Acknowledged is effective, on the node that cannot hear of it directly too.
        assert_eq!(clients[to].subscribe(&topic, QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
        clients[from].publish(&topic, topic.as_bytes(), QoS::AtLeastOnce).await;
        assert_eq!(clients[to].text().await, topic);
        round += 1;
    }
    println!("{round} subscriptions while a pair was cut");
    assert!(trio.nodes.iter().all(|node| node.is_up() && alive(node) == 3));
    assert!(trio.nodes.iter().any(|node| node.stderr().contains("passes bytes on to a node that another did not reach")));
    wired.set_cut(0, 1, false);
    wait::until("they reach each other directly again", SOON, || {
        let is_direct = |node: usize, peer: usize| {
            let (log, up) = (trio.nodes[node].stderr(), format!("peer link is up peer=\"{}\"", trio.nodes[peer].name));
            let last = |class| log.lines().rfind(|line| line.contains(&up) && line.contains(class));
            ["class=Consensus", "class=Messages"]
                .iter()
                .all(|class| last(*class).is_some_and(|line| line.contains("relayed=false")))
        };
        (is_direct(0, 1) && is_direct(1, 0)).then_some(())
    });
    clients[1].subscribe("direct", QoS::AtLeastOnce).await;
    clients[0].publish("direct", b"direct", QoS::AtLeastOnce).await;
    assert_eq!(clients[1].text().await, "direct");
}
