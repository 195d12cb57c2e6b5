//! What the leaders of shards do by themselves, seen by the sessions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::mqtt::{ProtocolVersion, ReasonCode};
use crate::replica::command::TakeCommand;
use crate::replica::event::Event;
use crate::replica::{Command, ConnectCommand, ConnectionRef, Outcome, Position, ShardId, State};
use crate::signal::{ConnectionFacts, Initiator, TlsNames};
use crate::storage::Mode;

use super::kit::{Plan, SHARDS, TestNode, log, wait_for, wait_same_state};

fn connection(node: &TestNode, connection: u64) -> ConnectionRef {
    ConnectionRef { node: node.cluster.node(), incarnation: node.cluster.incarnation(), connection }
}

async fn connect(node: &TestNode, client: &str, expiry_s: u32) -> ConnectionRef {
    let connection = connection(node, 1);
    let command = Command::Connect(Arc::new(ConnectCommand {
        connection,
        clean_start: false,
        session_expiry_interval_s: expiry_s,
        will: None,
        facts: Arc::new(ConnectionFacts {
            client_id: client.into(),
            client_id_assigned: false,
            client_ip: None,
            node_ip: None,
            listener_port: None,
            secure: false,
            protocol: ProtocolVersion::V5,
            username: None,
            tls: TlsNames::default(),
            connected_at_ms: 0,
        }),
        user_properties: Vec::new(),
        queue_limit: 10,
        discard_oldest: false,
        lifecycle: true,
        take_over: crate::replica::command::TakeOver::Any,
    }));
    let outcome = node.cluster.submit(ShardId::of(client, SHARDS), command).await;
    assert!(matches!(outcome, Ok(Outcome::Connected(_))), "{outcome:?}");
    connection
}

fn saw(node: &TestNode, wanted: impl Fn(&Event) -> bool) -> bool {
    node.hooks.events.lock().iter().any(|(_, event)| wanted(event))
}

fn is_end_of(event: &Event, of: &str, on: ConnectionRef) -> bool {
    matches!(event, Event::Disconnected { client, connection } if client == of && *connection == on)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_killed_node_end_once_on_all_others() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let mut nodes = plan.start_all().await;
    let mut lost = Vec::new();
    for i in 0..6 {
        let client = format!("client-{i}");
        let on = connect(&nodes[0], &client, 1_000).await;
        lost.push((client, on));
    }
    let kept = connect(&nodes[1], "kept", 1_000).await;
    let begun = Instant::now();
    drop(nodes.remove(0));
    for node in &nodes {
        let all_ended = || lost.iter().all(|(client, on)| saw(node, |event| is_end_of(event, client, *on)));
        wait_for("end of connections", all_ended, String::new).await;
    }
    let took = begun.elapsed();
    tracing::info!(?took, "all ended");
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_same_state(&[&nodes[0], &nodes[1]]).await;
    for node in &nodes {
        let events = node.hooks.events.lock();
        let ends = events.iter().filter(|(_, event)| matches!(event, Event::Disconnected { .. })).count();
        assert_eq!(ends, lost.len());
        assert!(!events.iter().any(|(_, event)| is_end_of(event, "kept", kept)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_has_no_connections_of_before() {
    log();
    let plan = Plan::new(1, Mode::File);
    let node = plan.start(0).await;
    node.ready().await;
    let on = connect(&node, "client", 1_000).await;
    drop(node);
    let node = plan.start(0).await;
    node.ready().await;
    wait_for("end of the connection", || saw(&node, |event| is_end_of(event, "client", on)), String::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_closes_the_connection_on_the_other_node() {
    log();
    let plan = Plan::new(3, Mode::InMemory);
    let nodes = plan.start_all().await;
    let first = connect(&nodes[0], "client", 1_000).await;
    connect(&nodes[1], "client", 1_000).await;
    let closed = |event: &Event| matches!(event, Event::Close { connection, reason_code: ReasonCode::SessionTakenOver, .. } if *connection == first);
    wait_for("close", || saw(&nodes[0], closed), String::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_expires_in_time_without_anybody_asking() {
    log();
    let plan = Plan::new(1, Mode::InMemory);
    let node = plan.start(0).await;
    node.ready().await;
    let connection = connect(&node, "client", 1).await;
    let disconnect = Command::Disconnect {
        client: "client".into(),
        connection,
        initiator: Initiator::Client,
        reason_code: Some(0),
        will: false,
        session_expiry_interval_s: None,
        sent_seq: 0,
    };
    node.cluster.submit_nowait(ShardId::of("client", SHARDS), disconnect).unwrap();
    let begun = Instant::now();
    let removed = |event: &Event| matches!(event, Event::SessionRemoved { client, .. } if client == "client");
    wait_for("end of the session", || saw(&node, removed), String::new).await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_is_trimmed_when_all_shards_have_taken_it() {
    log();
    let plan = Plan::new(1, Mode::InMemory);
    let node = plan.start(0).await;
    node.ready().await;
    connect(&node, "client", 1_000).await;
    let source = ShardId::of("client", SHARDS);
    let bounds = || node.cluster.read(source, State::outbox_bounds).unwrap();
    let (last, trimmed) = bounds();
    assert!(last > Position::default());
    assert_eq!(trimmed, Position::default());
    for shard in 0..SHARDS {
        let take = TakeCommand {
            source,
            from: Position::default(),
            to: last,
            enqueue: Vec::new(),
            retain: Vec::new(),
            republish: Vec::new(),
        };
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert_eq!(bounds().1, Position::default());
        let taken = node.cluster.submit(ShardId(shard), Command::Take(Box::new(take))).await;
        assert_eq!(taken, Ok(Outcome::Done));
    }
    wait_for("trimmed outbox", || bounds().1 == last, || format!("{:?}", bounds())).await;
}
