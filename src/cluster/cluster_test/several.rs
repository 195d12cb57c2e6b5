use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::cluster::{ClusterSettings, PeerMessage, RemoveError, node_id};
use crate::replica::{NodeId, Outcome, ShardId};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, TestNode, log, retain, retain_bytes, wait_for, wait_same_state};

fn leader_of(nodes: &[TestNode], shard: ShardId) -> Option<usize> {
    nodes.iter().position(|node| node.cluster.leads(shard))
}

/// The other nodes that `meta` knows to be alive; `status` also asks whether there is a link to them.
fn alive(node: &TestNode) -> BTreeSet<NodeId> {
    node.cluster.peers().into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_found_one_cluster_and_serve_on_each() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let ids: BTreeSet<_> = nodes.iter().map(|node| node.cluster.status().cluster_id).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    for (i, node) in nodes.iter().enumerate() {
        for j in 0..10 {
            node.retain(&format!("t/{i}/{j}")).await;
        }
        assert_eq!(node.cluster.peers().len(), 2);
    }
    let all: Vec<_> = nodes.iter().collect();
    wait_same_state(&all).await;
    let retained: Vec<_> = nodes.iter().map(TestNode::retained).collect();
    assert_eq!(retained, [30, 30, 30]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_visible_on_its_node_when_its_outcome_is_there() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    for i in 0..50 {
        let node = &nodes[i % 3];
        let before = node.retained();
        node.retain(&format!("t/{i}")).await;
        assert!(node.retained() > before);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_leader_is_replaced_and_nothing_is_lost_or_done_twice() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    for i in 0..20 {
        nodes[i % 3].retain(&format!("before/{i}")).await;
    }
    let shard = ShardId(0);
    wait_for("leader", || leader_of(&nodes, shard).is_some(), String::new).await;
    let victim = leader_of(&nodes, shard).unwrap();
    let survivor = nodes[(victim + 1) % 3].cluster.clone();
    let outcomes: Vec<_> = (0..200).map(|i| survivor.submit(shard, retain(&format!("during/{i}")))).map(tokio::spawn).collect();
    let dead = node_id(&Plan::name(victim));
    drop(nodes.remove(victim));
    let killed = Instant::now();
    for outcome in outcomes {
        assert_eq!(outcome.await.unwrap(), Ok(Outcome::Done));
    }
    tracing::info!(took = ?killed.elapsed(), "fail-over");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    wait_for("death", || nodes.iter().all(|node| !alive(node).contains(&dead)), String::new).await;
    tracing::info!(took = ?killed.elapsed(), "declared dead");
    for node in &nodes {
        node.retain(&format!("after/{}", node.cluster.node())).await;
        node.ready().await;
    }
    wait_same_state(&[&nodes[0], &nodes[1]]).await;
    assert_eq!(nodes[0].retained(), 222);

    let back = plan.start(victim).await;
    back.ready().await;
    wait_same_state(&[&nodes[0], &nodes[1], &back]).await;
    assert!(alive(&nodes[0]).contains(&dead));
    assert_eq!(back.retained(), 222);
    back.retain("again").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_of_a_leader_whose_process_is_gone_is_not_waited_for() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = Vec::new();
    for node in 0..3 {
        // Longer than anything here waits: whoever waits for the lease, or for an election timeout, fails.
        let patient = ClusterSettings { election_min_ms: 120_000, election_max_ms: 240_000, ..plan.settings(node) };
        nodes.push(plan.start_with(node, patient).await);
    }
    for node in &nodes {
        node.ready().await;
    }
    nodes[0].retain("before").await;
    let shard = ShardId(0);
    wait_for("leader", || leader_of(&nodes, shard).is_some(), String::new).await;
    let victim = leader_of(&nodes, shard).unwrap();
    let dead = node_id(&Plan::name(victim));
    let term = nodes[victim].cluster.status().groups[1].term;
    drop(nodes.remove(victim));
    for node in &nodes {
        for topic in 0..20 {
            node.retain(&format!("after/{}/{topic}", node.cluster.node())).await;
        }
    }
    wait_for("death", || nodes.iter().all(|node| !alive(node).contains(&dead)), String::new).await;
    wait_same_state(&[&nodes[0], &nodes[1]]).await;
    assert_eq!(nodes[0].retained(), 41);
    assert!(nodes[0].cluster.status().groups[1].term > term);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_stopped_and_started_come_back_by_themselves() {
    log();
    let plan = Plan::new(3, Mode::File);
    let nodes = plan.start_all().await;
    for i in 0..10 {
        nodes[i % 3].retain(&format!("t/{i}")).await;
    }
    let id = nodes[0].cluster.status().cluster_id;
    drop(nodes);
    let nodes = plan.start_all().await;
    assert!(nodes.iter().all(|node| node.cluster.status().cluster_id == id));
    let retained: Vec<_> = nodes.iter().map(TestNode::retained).collect();
    let groups: Vec<_> = nodes.iter().map(|node| node.cluster.status().groups).collect();
    assert_eq!(retained, [10, 10, 10], "{groups:#?}");
    nodes[2].retain("more").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_node_is_filled_again_and_founds_no_second_cluster() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    for i in 0..10 {
        nodes[i % 3].retain(&format!("t/{i}")).await;
    }
    let id = nodes[0].cluster.status().cluster_id;
    drop(nodes.remove(1));
    plan.wipe(1).await;
    let back = plan.start(1).await;
    back.ready().await;
    assert_eq!(back.cluster.status().cluster_id, id);
    wait_same_state(&[&nodes[0], &nodes[1], &back]).await;
    assert_eq!(back.retained(), 10);
    back.retain("more").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_founds_without_the_late_one_which_joins() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let first = plan.start(0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(first.cluster.status().cluster_id, None);
    assert!(!first.cluster.status().ready);
    let second = plan.start(1).await;
    first.ready().await;
    second.ready().await;
    first.retain("a").await;
    let third = plan.start(2).await;
    third.ready().await;
    assert_eq!(third.cluster.status().cluster_id, first.cluster.status().cluster_id);
    third.retain("b").await;
    wait_same_state(&[&first, &second, &third]).await;
    wait_for(
        "third voter",
        || first.cluster.status().groups.iter().all(|group| group.voters.len() == 3),
        || format!("{:?}", first.cluster.status().groups),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_is_not_ready_and_refuses() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    let last = nodes.pop().unwrap();
    drop(nodes);
    wait_for("loss of readiness", || !last.cluster.status().ready, String::new).await;
    wait_for(
        "refusal",
        || {
            use futures_util::FutureExt;
            let refused = last.cluster.submit(ShardId(0), retain("a")).now_or_never();
            refused == Some(Err(crate::cluster::SubmitError::Unavailable))
        },
        String::new,
    )
    .await;
    let incarnation = last.cluster.incarnation();
    wait_for("loss of the incarnation", || last.hooks.lost.load(Ordering::Relaxed) == 1, String::new).await;
    assert!(last.cluster.incarnation() >= incarnation);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_another_secret_stays_out() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let stranger = ClusterSettings { secret: "another secret".to_owned(), ..plan.settings(2) };
    let stranger = plan.start_with(2, stranger).await;
    let first = plan.start(0).await;
    let second = plan.start(1).await;
    first.ready().await;
    second.ready().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(stranger.cluster.status().cluster_id, None);
    assert_eq!(first.cluster.status().members.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_reach_the_peer_in_order() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let to = nodes[1].cluster.node();
    for seq in 0..100_u64 {
        let group = crate::mqtt::GroupId { share: "s".into(), filter: "f".into() };
        let done = PeerMessage::DispatchDone { group, entries: vec![(seq, true)] };
        assert!(nodes[0].cluster.send(to, done));
    }
    wait_for("messages", || nodes[1].hooks.messages.lock().len() == 100, String::new).await;
    let messages = nodes[1].hooks.messages.lock();
    for (expected, (from, message)) in messages.iter().enumerate() {
        assert_eq!(*from, nodes[0].cluster.node());
        assert!(matches!(message, PeerMessage::DispatchDone { entries, .. } if entries[0].0 == expected as u64));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_node_hands_leadership_over_at_once() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let shard = ShardId(0);
    wait_for("leader", || leader_of(&nodes, shard).is_some(), String::new).await;
    let leader = leader_of(&nodes, shard).unwrap();
    let begun = Instant::now();
    nodes[leader].cluster.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let other = &nodes[(leader + 1) % 3];
    for i in 0..SHARDS * 4 {
        other.retain(&format!("t/{i}")).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_spread_when_all_is_calm() {
    log();
    let plan = Plan::new(2, Mode::InMemory);
    let nodes = plan.start_all().await;
    wait_for(
        "spread leadership",
        || {
            let leaders: BTreeSet<_> = (0..SHARDS).filter_map(|shard| leader_of(&nodes, ShardId(shard))).collect();
            leaders.len() == 2
        },
        || format!("{:?}", nodes[0].cluster.status().groups),
    )
    .await;
    nodes[0].retain("a").await;
    nodes[1].retain("b").await;
}

/// Makes the node forget all log entries it has a snapshot for.
async fn purge(node: &TestNode) {
    for group in node.cluster.groups() {
        let applied = group.status().applied_index;
        group.raft.trigger().snapshot().await.unwrap();
        wait_for("snapshot", || group.status().snapshot_index >= applied, String::new).await;
        group.raft.trigger().purge_log(applied).await.unwrap();
        let purged = || group.metrics().purged.is_some_and(|purged| purged.index() + 1 >= applied);
        wait_for("purged log", purged, || format!("{:?}", group.metrics())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_too_far_behind_gets_a_snapshot() {
    log();
    let plan = Plan::new(3, Mode::File);
    let first = plan.start(0).await;
    let second = plan.start(1).await;
    first.ready().await;
    second.ready().await;
    for i in 0..200 {
        let topic = format!("t/{i}");
        // Several chunks in all.
        let outcome = first.cluster.submit(ShardId::of(&topic, SHARDS), retain_bytes(&topic, 30_000)).await;
        assert_eq!(outcome, Ok(Outcome::Done));
    }
    wait_same_state(&[&second, &first]).await;
    purge(&first).await;
    purge(&second).await;
    let third = plan.start(2).await;
    // The state goes on while it is sent.
    for i in 0..50 {
        second.retain(&format!("meanwhile/{i}")).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    third.ready().await;
    wait_same_state(&[&third, &first, &second]).await;
    assert_eq!(third.retained(), 250);
    assert!(third.hooks.loaded.load(Ordering::Relaxed) > u32::from(SHARDS));
    third.retain("more").await;
    // What was installed is there after a restart too, with nothing in the log to make it from.
    drop(third);
    let third = plan.start(2).await;
    third.ready().await;
    wait_same_state(&[&third, &first, &second]).await;
    assert_eq!(third.retained(), 251);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_after_the_log_was_purged_has_everything() {
    log();
    let plan = Plan::new(3, Mode::File);
    let nodes = plan.start_all().await;
    for i in 0..30 {
        nodes[i % 3].retain(&format!("t/{i}")).await;
    }
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    for node in &nodes {
        purge(node).await;
    }
    drop(nodes);
    let nodes = plan.start_all().await;
    assert!(nodes.iter().all(|node| node.retained() == 30));
    nodes[0].retain("more").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_node_can_be_removed_and_comes_back_as_a_new_one() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    nodes[0].retain("a").await;
    let gone = nodes[2].cluster.node();
    assert_eq!(nodes[0].cluster.remove_member(gone, |_| {}).await, Err(RemoveError::Alive));
    assert_eq!(nodes[0].cluster.remove_member(1, |_| {}).await, Err(RemoveError::NotAMember));
    nodes.pop().unwrap().cluster.shutdown().await;
    wait_for("death", || !alive(&nodes[0]).contains(&gone), String::new).await;
    assert_eq!(nodes[0].cluster.remove_member(gone, |_| {}).await, Ok(()));
    assert!(nodes[0].cluster.status().groups.iter().all(|group| group.voters.len() == 2));
    assert_eq!(nodes[0].cluster.status().members.len(), 2);
    nodes[1].retain("b").await;
    let back = plan.start(2).await;
    back.ready().await;
    back.retain("c").await;
    wait_same_state(&[&nodes[0], &nodes[1], &back]).await;
    assert_eq!(back.retained(), 3);
}

/// Says what three nodes do together; run by hand with --ignored --nocapture.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_commands_per_second() {
    log();
    let plan = Plan::new(3, if std::env::var_os("MEASURE_IN_MEMORY").is_some() { Mode::InMemory } else { Mode::File });
    let nodes = plan.start_all().await;
    const CLIENTS: u16 = 200;
    const EACH: u16 = 100;
    let begun = Instant::now();
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let cluster = nodes[usize::from(client % 3)].cluster.clone();
        clients.push(tokio::spawn(async move {
            let mut slowest = Duration::ZERO;
            for i in 0..EACH {
                let sent = Instant::now();
                let outcome = cluster.submit(ShardId(client % SHARDS), retain(&format!("t/{client}/{}", i % 10))).await;
                assert_eq!(outcome, Ok(Outcome::Done));
                slowest = slowest.max(sent.elapsed());
            }
            slowest
        }));
    }
    let mut slowest = Duration::ZERO;
    for client in clients {
        slowest = slowest.max(client.await.unwrap());
    }
    let count = u32::from(CLIENTS) * u32::from(EACH);
    let entries: u64 = nodes[0].cluster.status().groups.iter().map(|group| group.applied_index).sum();
    println!("{:.0} commands/s, {entries} entries, slowest {slowest:?}", f64::from(count) / begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    for i in 0..200 {
        nodes[i % 3].retain(&format!("one/{i}")).await;
    }
    println!("one after the other: {:?} each", begun.elapsed() / 200);
}

/// Three idle nodes for 10 s; the processor time is measured from outside.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_idle() {
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(nodes.iter().all(|node| node.cluster.is_ready()));
}
