//! Nodes that come, move, lose their disk and leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;

use crate::cluster::clock::wall_ms;
use crate::cluster::{ClusterSettings, LeaveError, RemoveError, node_id};
use crate::replica::ShardId;
use crate::storage::recover::{self, Who};
use crate::storage::{Mode, Storage, StorageError};

use super::kit::{Plan, SHARDS, TestNode, free_address, log, wait_for, wait_same_state};

/// Long enough for several elections.
const ELECTIONS: Duration = Duration::from_secs(4);

fn voters(node: &TestNode) -> Vec<BTreeSet<u64>> {
    node.cluster.status().groups.iter().map(|group| group.voters.iter().copied().collect()).collect()
}

async fn wait_voters(node: &TestNode, count: usize) {
    let all = || node.cluster.status().groups.iter().all(|group| group.voters.len() == count && !group.changing);
    wait_for(&format!("{count} voters"), all, || format!("{:?}", node.cluster.status().groups)).await;
}

fn may_vote(node: &TestNode) -> bool {
    node.cluster.groups().iter().all(|group| group.may_vote())
}

/// Node 0 and 1 hold what node 2 missed; then node 0 is away and node 1 comes back empty.
async fn with_a_lost_disk(plan: &Plan) -> (TestNode, TestNode) {
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let last = nodes.pop().unwrap();
    last.cluster.shutdown().await;
    drop(last);
    nodes[0].ready().await;
    for i in 0..10 {
        nodes[0].retain(&format!("t/{i}")).await;
    }
    drop(nodes);
    plan.wipe(1).await;
    let stale = plan.start(2).await;
    let empty = plan.start(1).await;
    wait_for("cluster id", || empty.cluster.status().cluster_id.is_some(), String::new).await;
    (empty, stale)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_voter_elects_nobody_who_lacks_what_was_acknowledged() {
    log();
    let plan = Plan::new(3, Mode::File);
    let (empty, stale) = with_a_lost_disk(&plan).await;
    tokio::time::sleep(ELECTIONS).await;
    assert!(!empty.cluster.is_ready() && !stale.cluster.is_ready());
    // It knows its cluster by now: a restart must not make it forget that it is empty.
    drop(empty);
    let empty = plan.start(1).await;
    tokio::time::sleep(ELECTIONS).await;
    assert!(!may_vote(&empty));
    assert!((0..SHARDS).all(|shard| stale.cluster.leader(ShardId(shard)).is_none()), "{:?}", stale.cluster.status());
    let (waits, _) = empty.cluster.status().waiting_for.unwrap();
    assert!(waits.contains("accept-loss"), "{waits}");

    let first = plan.start(0).await;
    first.ready().await;
    empty.ready().await;
    stale.ready().await;
    stale.retain("more").await;
    wait_same_state(&[&first, &empty, &stale]).await;
    assert_eq!(empty.retained(), 11, "nothing is lost");
    // Its votes first: a leader that learns late of the loss takes them away, and gives them back when the replica is filled.
    wait_for("votes", || may_vote(&empty), String::new).await;
    // On each: a change that only the leader knows to be through would be lost with it.
    for node in [&first, &empty, &stale] {
        wait_voters(node, 3).await;
    }

    // It counts again: it and the one that was stale are a majority now.
    drop(first);
    empty.ready().await;
    stale.ready().await;
    empty.retain("again").await;
    assert_eq!(stale.retained().max(empty.retained()), 12);
    drop(empty);
    let again = plan.start(1).await;
    again.ready().await;
    assert!(may_vote(&again), "a restart takes nothing back");
}

/// Two disks are lost, and the founder to be fails when it has the promise of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_voter_that_promised_itself_to_a_founder_has_no_vote_in_the_old_cluster() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    wait_for("votes in what was founded with them", || nodes.iter().all(may_vote), String::new).await;
    let last = nodes.pop().unwrap();
    last.cluster.shutdown().await;
    drop(last);
    nodes[0].ready().await;
    nodes[0].retain("t").await;
    drop(nodes);
    plan.wipe(1).await;
    std::fs::create_dir_all(plan.path(1)).unwrap();
    Storage::open(&plan.path(1), Mode::File, &Plan::name(1), SHARDS, wall_ms())
        .unwrap()
        .set_promise(Some(&Plan::name(0)))
        .unwrap();
    let stale = plan.start(2).await;
    let empty = plan.start(1).await;
    wait_for("cluster id", || empty.cluster.status().cluster_id.is_some(), String::new).await;
    tokio::time::sleep(ELECTIONS).await;
    assert!(!empty.cluster.is_ready() && !stale.cluster.is_ready());
    assert!(!may_vote(&empty));
    assert!((0..SHARDS).all(|shard| stale.cluster.leader(ShardId(shard)).is_none()), "{:?}", stale.cluster.status());

    let first = plan.start(0).await;
    for node in [&first, &empty, &stale] {
        node.ready().await;
    }
    assert_eq!((empty.retained(), stale.retained()), (1, 1), "nothing is lost");
    wait_for("votes", || may_vote(&empty), String::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_can_give_up_what_only_lost_disks_held() {
    log();
    let plan = Plan::new(3, Mode::File);
    let (empty, stale) = with_a_lost_disk(&plan).await;
    tokio::time::sleep(ELECTIONS).await;
    let groups = usize::from(SHARDS) + 1;
    let loss = stale.cluster.accept_loss();
    assert_eq!((loss.accepted.len(), loss.waiting.len()), (0, groups), "it has its votes");
    let loss = empty.cluster.accept_loss();
    assert_eq!((loss.accepted.len(), loss.led.len(), loss.hopeless.len()), (groups, 0, 0));
    empty.ready().await;
    stale.ready().await;
    empty.retain("after").await;
    assert_eq!(empty.retained(), 1);
    wait_for("votes", || may_vote(&empty), String::new).await;
}

/// Every node's data was set aside: nobody knows the members any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_knows_the_members_there_is_nothing_to_go_on_from() {
    log();
    let plan = Plan::new(3, Mode::File);
    let nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    for (node, others) in [(0, [1, 2]), (1, [0, 2]), (2, [0, 1])] {
        let others = Some(others.map(Plan::name).to_vec());
        wait_for("others", || nodes[node].cluster.storage().others() == others, String::new).await;
    }
    drop(nodes);
    let mut emptied = Vec::new();
    for node in 0..3 {
        // The last task of the stopped node goes.
        let path = plan.path(node);
        while recover::run(&path, Who::Stays, 1).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        emptied.push(plan.start(node).await);
    }
    let heard = || emptied.iter().all(|node| node.cluster.hears_majority());
    let _ = tokio::time::timeout(ELECTIONS, wait_for("links", heard, String::new)).await;
    for node in &emptied {
        let loss = node.cluster.accept_loss();
        assert_eq!((loss.hopeless.len(), loss.accepted.len()), (usize::from(SHARDS) + 1, 0), "{loss:?}");
        assert!(!may_vote(node));
    }
    // As an operator is told to.
    drop(emptied);
    for node in 0..3 {
        let path = plan.path(node);
        while recover::run(&path, Who::IsNew, 2).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let nodes = plan.start_all().await;
    for node in &nodes {
        node.ready().await;
    }
}

/// One of four is away; one more loses its disk while it leads a group, which waits for the one that is away. All are killed and started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn votes_that_an_emptied_replica_has_again_outlive_a_restart_of_all() {
    log();
    let plan = Plan::new(4, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 4).await;
    let away = nodes.pop().unwrap();
    away.cluster.shutdown().await;
    drop(away);
    nodes[0].ready().await;
    for (group, to) in [("0", 2), ("meta", 0), ("1", 0)] {
        nodes[0].cluster.transfer_leadership(Some(&Plan::name(to)), Some(group), |_| ()).await.unwrap();
    }
    drop(nodes.pop());
    plan.wipe(2).await;
    let empty = plan.start(2).await;
    let votes = |node: &TestNode| node.cluster.groups().iter().map(|group| group.may_vote()).collect::<Vec<_>>();
    wait_for("votes where there is a leader", || votes(&empty) == [true, false, true], || format!("{:?}", votes(&empty))).await;
    let counts = || [0, 2].iter().all(|group: &usize| nodes[0].cluster.status().groups[*group].voters.len() == 4);
    wait_for("voters", counts, || format!("{:?}", nodes[0].cluster.status().groups)).await;
    let stored = || empty.cluster.storage().votes_in(0) && empty.cluster.storage().votes_in(2);
    wait_for("votes on disk", stored, String::new).await;

    drop((nodes, empty));
    let nodes = [plan.start(0).await, plan.start(1).await, plan.start(2).await];
    let led = || nodes.iter().all(|node| [0, 2].iter().all(|group: &usize| node.cluster.groups()[*group].view().reachable));
    wait_for("leaders", led, || format!("{:?}", nodes[0].cluster.status().groups)).await;
    assert_eq!(votes(&nodes[2]), [true, false, true]);
    assert!(nodes[0].cluster.leader(ShardId(0)).is_none(), "it was led by the one that lost its disk");

    let away = plan.start(3).await;
    for node in nodes.iter().chain([&away]) {
        node.ready().await;
    }
    wait_for("votes", || may_vote(&nodes[2]), String::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_given_up_in_a_cluster_that_has_leaders() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    drop(nodes.pop());
    plan.wipe(2).await;
    let empty = plan.start(2).await;
    let led = || empty.cluster.groups().iter().all(|group| group.may_vote() || group.view().reachable);
    wait_for("leaders in reach", led, || format!("{:?}", empty.cluster.status())).await;
    let loss = empty.cluster.accept_loss();
    assert!(loss.accepted.is_empty() && loss.hopeless.is_empty(), "{loss:?}");
    wait_for("votes", || may_vote(&empty), String::new).await;
    assert!(empty.cluster.groups().iter().all(|group| group.counts_from().is_some()), "the leaders gave them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_members_left_half_done_is_finished_by_whoever_leads() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let leads = |node: &TestNode| node.cluster.leads(ShardId(0));
    wait_for("a leader", || nodes.iter().any(leads), String::new).await;
    let leader = nodes.iter().position(leads).unwrap();
    let removed = nodes[(leader + 1) % 3].cluster.node();
    let group = Arc::clone(&nodes[leader].cluster.groups()[1]);
    // As where the process that leads ends between the two steps. Where both are done before anybody sees the first, it goes back and forth again.
    let mut attempts = 0;
    loop {
        let raft = group.raft.clone();
        let remove = ChangeMembers::RemoveVoters([removed].into());
        let half = tokio::spawn(async move { raft.change_membership(remove, true).await.map(drop) });
        while !group.is_half_changed() && !half.is_finished() {
            tokio::task::yield_now().await;
        }
        half.abort();
        if half.await.is_err_and(|error| error.is_cancelled()) && group.is_half_changed() {
            break;
        }
        attempts += 1;
        assert!(attempts < 50, "the second step is always faster");
        wait_voters(&nodes[leader], 3).await;
    }
    drop(group);

    // The one that was removed asks for its vote, and gets it when the change is through.
    for node in &nodes {
        wait_voters(node, 3).await;
    }
    drop(nodes.remove(leader));
    for node in &nodes {
        node.ready().await;
        node.retain("one of three may be lost").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_moved_is_found_at_its_new_address() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let moved = nodes.pop().unwrap();
    moved.cluster.shutdown().await;
    drop(moved);
    let elsewhere = free_address();
    let settings = ClusterSettings { bind: Some(elsewhere), advertised: elsewhere.to_string(), ..plan.settings(2) };
    let moved = plan.start_with(2, settings).await;
    moved.ready().await;
    moved.retain("a").await;
    let known = |node: &TestNode| {
        let id = moved.cluster.node();
        let in_meta = node.cluster.members().iter().any(|member| member.id == id && member.address == elsewhere.to_string());
        let in_groups = node.cluster.groups().iter().all(|group| {
            crate::cluster::node::members(&group.metrics()).get(&id).is_some_and(|peer| peer.address == elsewhere.to_string())
        });
        in_meta && in_groups
    };
    wait_for("new address", || known(&nodes[0]) && known(&nodes[1]), || format!("{:?}", nodes[0].cluster.members())).await;
    // One that starts later has it from the others, or from its own log: its configuration has the old one.
    drop(nodes.remove(0));
    let again = plan.start(0).await;
    again.ready().await;
    let linked = || again.cluster.members().iter().all(|member| member.connected);
    wait_for("link to the node that moved", linked, || format!("{:?}", again.cluster.members())).await;
    again.retain("b").await;
    wait_same_state(&[&nodes[0], &moved, &again]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_leaves_is_in_no_group_and_its_directory_says_so() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    nodes[0].retain("a").await;
    let gone = nodes.pop().unwrap();
    let told = parking_lot::Mutex::new(Vec::new());
    assert_eq!(gone.cluster.leave(|text| told.lock().push(text)).await, Ok(()));
    assert!(told.lock().iter().any(|text| text.contains("removed from all groups")), "{told:?}");
    assert!(nodes.iter().all(|node| voters(node).iter().all(|voters| !voters.contains(&gone.cluster.node()))));
    assert_eq!(nodes[0].cluster.members().len(), 2);
    // It does not come back by itself.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(nodes[0].cluster.members().len(), 2);
    assert!(nodes[0].cluster.status().groups.iter().all(|group| group.learners.is_empty()));
    nodes[1].retain("b").await;
    gone.cluster.shutdown().await;
    drop(gone);
    let refused = plan.open(2).await.map(drop);
    assert!(matches!(refused, Err(StorageError::Left { .. })), "{refused:?}");

    // With an empty directory it joins anew.
    plan.wipe(2).await;
    let back = plan.start(2).await;
    back.ready().await;
    wait_voters(&nodes[0], 3).await;
    back.retain("c").await;
    wait_same_state(&[&nodes[0], &nodes[1], &back]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_leaves_who_is_needed_for_a_majority() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let dead = nodes.pop().unwrap();
    let dead_id = dead.cluster.node();
    drop(dead);
    let declared = || nodes.iter().all(|node| !node.cluster.peers().contains(&dead_id));
    wait_for("death", declared, String::new).await;
    nodes[0].ready().await;
    nodes[1].ready().await;
    let refused = nodes[0].cluster.leave(|_| {}).await;
    assert!(matches!(&refused, Err(LeaveError::Majority { .. })), "{refused:?}");
    assert!(nodes[0].cluster.is_ready(), "a refusal changes nothing");
    assert_eq!(nodes[1].cluster.remove_member(dead_id, |_| {}).await, Ok(()));
    wait_voters(&nodes[0], 2).await;
    assert_eq!(nodes[1].cluster.remove_member(dead_id, |_| {}).await, Err(RemoveError::NotAMember));
    assert_eq!(nodes[0].cluster.leave(|_| {}).await, Ok(()));
    wait_voters(&nodes[1], 1).await;
    nodes[1].ready().await;
    nodes[1].retain("alone").await;
    assert_eq!(nodes[1].cluster.leave(|_| {}).await, Err(LeaveError::Alone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_to_be_forgotten_without_a_majority_is_not_said_to_be_alive() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let dead_id = nodes[2].cluster.node();
    nodes.truncate(1);
    nodes[0].cluster.minority().await;
    let refused = nodes[0].cluster.remove_member(dead_id, |_| {}).await;
    assert!(matches!(&refused, Err(RemoveError::Timeout(missing)) if missing.contains("1 of 3 voters")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_started_anew_does_not_drain() {
    log();
    let plan = Plan::new(3, Mode::File);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let stopping = nodes.pop().unwrap();
    let (id, before) = (stopping.cluster.node(), stopping.cluster.incarnation());
    let about = |node: &TestNode| node.cluster.members().into_iter().find(|member| member.id == id).unwrap();
    stopping.cluster.begin_stop();
    wait_for("word of the drain", || nodes.iter().all(|node| about(node).draining), String::new).await;
    drop(stopping);
    let again = plan.start(2).await;
    for node in &nodes {
        wait_for("its new incarnation", || about(node).alive && about(node).incarnation > before, String::new).await;
        assert!(!about(node).draining, "{:?}", about(node));
    }
    again.ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_where_an_operator_wants_it_and_stays() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    wait_voters(&nodes[0], 3).await;
    let (asked, name) = (&nodes[0], Plan::name(2));
    for group in ["meta", "0", "1"] {
        asked.cluster.transfer_leadership(Some(&name), Some(group), |_| {}).await.unwrap();
    }
    let leads_all = || asked.cluster.status().groups.iter().all(|group| group.leader == Some(node_id(&name)));
    assert!(leads_all(), "{:?}", asked.cluster.status().groups);
    // Spread again, it would go elsewhere by now.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert!(leads_all(), "{:?}", asked.cluster.status().groups);
    let told = nodes[2].cluster.transfer_leadership(None, None, |_| {}).await.unwrap();
    assert!(!told.contains(&name), "{told}");
    for (to, group, word) in [(Some("nobody"), None, "there is no member"), (None, Some("9"), "meta, and 0 to 1")] {
        let refused = asked.cluster.transfer_leadership(to, group, |_| {}).await.unwrap_err();
        assert!(refused.contains(word), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_seven_nodes_five_vote_and_a_learner_takes_the_place_of_one_that_leaves() {
    log();
    let plan = Plan::new(7, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    wait_voters(&nodes[0], 5).await;
    let all_replicate = || nodes[0].cluster.status().groups.iter().all(|group| group.learners.len() == 2);
    wait_for("two learners", all_replicate, || format!("{:?}", nodes[0].cluster.status().groups)).await;
    // A node serves whether it votes or not.
    for (i, node) in nodes.iter().enumerate() {
        node.retain(&format!("t/{i}")).await;
    }
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    let voter = nodes.iter().position(|node| voters(&nodes[0])[1].contains(&node.cluster.node())).unwrap();
    let leaving = nodes.remove(voter);
    assert_eq!(leaving.cluster.leave(|_| {}).await, Ok(()));
    let left = leaving.cluster.node();
    let replaced = || voters(&nodes[0]).iter().all(|voters| voters.len() == 5 && !voters.contains(&left));
    wait_for("a learner that votes", replaced, || format!("{:?}", nodes[0].cluster.status().groups)).await;
    for (i, node) in nodes.iter().enumerate() {
        node.retain(&format!("after/{i}")).await;
    }
    wait_same_state(&nodes.iter().collect::<Vec<_>>()).await;
    assert_eq!(nodes[0].retained(), 13);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_differ_are_told_on_both_nodes() {
    log();
    let plan = Plan::new(2, Mode::InMemory);
    let settings = |node, value: &str| ClusterSettings {
        must_agree: vec![("persistence/mode".to_owned(), "file".to_owned()), ("mqtt/x".to_owned(), value.to_owned())],
        ..plan.settings(node)
    };
    let (first, second) = (plan.start_with(0, settings(0, "1")).await, plan.start_with(1, settings(1, "2")).await);
    let told = |node: &TestNode| node.cluster.warnings();
    wait_for("warnings", || told(&first).len() == 1 && told(&second).len() == 1, || format!("{:?}", told(&first))).await;
    assert!(told(&first)[0].contains("mqtt/x is 1 on node-0 and 2 on node-1"), "{:?}", told(&first));
    let versions = || first.cluster.members().iter().filter(|member| member.version.is_some()).count();
    assert_eq!(versions(), 2, "{:?}", first.cluster.members());
}
