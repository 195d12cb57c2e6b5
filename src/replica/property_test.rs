//! Random commands on several machines at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::command::{
    Batch, Command, ConnectCommand, DeclareCommand, Proposal, QueueStep, SubscriptionRecord, TakeCommand, Target,
};
use super::event::{Applied, Event, OutboxEvent, Position};
use super::ids::{ConnectionRef, ShardId};
use super::state::State;
use super::testing::{Disk, connect, expiring, filter, group, on, subscription, will};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{QoS, SubscriptionFilter};
use crate::session::Seldom;
use crate::signal::{DropReason, Initiator, LifecycleEvent};

const CLIENTS: [&str; 3] = ["a", "b", "c"];
const NODES: u64 = 3;

/// What a test does; what it needs of the present is looked up when it is made a command.
#[derive(Debug, Clone)]
enum Op {
    Connect { client: usize, node: u64, clean_start: bool, expiry_s: u32, will_delay_s: Option<u32>, oldest: bool },
    Disconnect { client: usize, stale: bool, will: bool, expiry_s: Option<u32>, sent_seq: u64 },
    NodeDown { node: u64 },
    Subscribe { client: usize, topic: u8, qos2: bool },
    Unsubscribe { client: usize, topic: u8 },
    Enqueue { client: usize, count: u8, expiry_s: Option<u32>, retained_origin: bool },
    EnqueueGroup { count: u8, expiry_s: Option<u32>, oldest: bool },
    EnqueueMember { client: usize, count: u8, expiry_s: Option<u32> },
    Declare { node: u64, declared: bool },
    ReturnToGroup,
    Receive { client: usize, packet_id: u16 },
    Release { client: usize, packet_id: u16 },
    Acknowledge { client: usize, offset: u64, step: u8 },
    AcknowledgeShared { offset: u64, step: u8 },
    LendShared { offset: u64, stale: bool },
    RemoveGroup,
    Retain { topic: u8, empty: bool, expiry_s: Option<u32> },
    Take { source: u16, right: bool },
    Trim,
    Expire { limit: u32 },
    Kick { client: usize, will: bool, remove: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let client = || 0..CLIENTS.len();
    let expiry = || proptest::option::of(0..8u32);
    prop_oneof![
        8 => (client(), 0..NODES, any::<bool>(), prop_oneof![Just(0), 1..9u32, Just(u32::MAX)], expiry(), any::<bool>()).prop_map(
            |(client, node, clean_start, expiry_s, will_delay_s, oldest)| Op::Connect {
                client, node, clean_start, expiry_s, will_delay_s, oldest
            }
        ),
        5 => (client(), any::<bool>(), any::<bool>(), expiry(), 0..9u64).prop_map(
            |(client, stale, will, expiry_s, sent_seq)| Op::Disconnect { client, stale, will, expiry_s, sent_seq }
        ),
        1 => (0..NODES).prop_map(|node| Op::NodeDown { node }),
        3 => (client(), 0..3u8, any::<bool>()).prop_map(|(client, topic, qos2)| Op::Subscribe { client, topic, qos2 }),
        1 => (client(), 0..3u8).prop_map(|(client, topic)| Op::Unsubscribe { client, topic }),
        8 => (client(), prop_oneof![Just(1u8), Just(3), Just(60)], expiry(), any::<bool>()).prop_map(
            |(client, count, expiry_s, retained_origin)| Op::Enqueue { client, count, expiry_s, retained_origin }
        ),
        3 => (1..4u8, expiry(), any::<bool>()).prop_map(|(count, expiry_s, oldest)| Op::EnqueueGroup { count, expiry_s, oldest }),
        4 => (client(), 1..4u8, expiry()).prop_map(|(client, count, expiry_s)| Op::EnqueueMember { client, count, expiry_s }),
        2 => (0..2u64, any::<bool>()).prop_map(|(node, declared)| Op::Declare { node, declared }),
        1 => Just(Op::ReturnToGroup),
        3 => (client(), 1..4u16).prop_map(|(client, packet_id)| Op::Receive { client, packet_id }),
        2 => (client(), 1..4u16).prop_map(|(client, packet_id)| Op::Release { client, packet_id }),
        8 => (client(), 0..4u64, 0..4u8).prop_map(|(client, offset, step)| Op::Acknowledge { client, offset, step }),
        2 => (0..4u64, 0..4u8).prop_map(|(offset, step)| Op::AcknowledgeShared { offset, step }),
        3 => (0..9u64, proptest::bool::weighted(0.1)).prop_map(|(offset, stale)| Op::LendShared { offset, stale }),
        1 => Just(Op::RemoveGroup),
        3 => (0..3u8, any::<bool>(), expiry()).prop_map(|(topic, empty, expiry_s)| Op::Retain { topic, empty, expiry_s }),
        2 => (0..2u16, any::<bool>()).prop_map(|(source, right)| Op::Take { source, right }),
        1 => Just(Op::Trim),
        4 => (1..20u32).prop_map(|limit| Op::Expire { limit }),
        2 => (client(), any::<bool>(), any::<bool>()).prop_map(|(client, will, remove)| Op::Kick { client, will, remove }),
    ]
}

/// Makes proposals of operations, with what an honest node would know.
struct Driver {
    /// Incarnations of the nodes, and the sequence numbers they came to.
    nodes: BTreeMap<u64, (u64, u64)>,
    connections: u64,
    now_ms: u64,
    index: u64,
}

impl Driver {
    fn new() -> Self {
        let nodes = (0..=NODES).map(|node| (node, (1, 0))).collect();
        Self { nodes, connections: 0, now_ms: 1_000_000, index: 0 }
    }

    fn proposal(&mut self, state: &State, ops: &[Op], passed_ms: u64) -> Proposal {
        self.now_ms += passed_ms;
        self.index += 1;
        let commands: Vec<Command> = ops.iter().map(|op| self.command(state, op)).collect();
        // Node `NODES` submits for all: it never dies.
        let (incarnation, seq) = self.nodes[&NODES];
        self.nodes.insert(NODES, (incarnation, seq + commands.len() as u64));
        let batch = Batch { node: NODES, incarnation, first_seq: seq + 1, commands: Arc::new(commands) };
        Proposal { at_ms: self.now_ms, batches: vec![batch] }
    }

    fn command(&mut self, state: &State, op: &Op) -> Command {
        let name = |client: usize| bytestring::ByteString::from(CLIENTS[client]);
        let current =
            |client: usize| state.session(CLIENTS[client]).and_then(|session| session.connection).unwrap_or(on(0, 0, 0));
        let steps = |first: Option<u64>, offset: u64, step: u8| {
            let seq = first.unwrap_or(1) + offset;
            vec![(seq, step_of(step)), (seq + 1, step_of(step / 2)), (seq, step_of(0))]
        };
        match op {
            Op::Connect { client, node, clean_start, expiry_s, will_delay_s, oldest } => {
                self.connections += 1;
                let connect = ConnectCommand {
                    clean_start: *clean_start,
                    session_expiry_interval_s: *expiry_s,
                    will: will_delay_s.map(|delay_s| will(&format!("will/{}", self.connections), delay_s)),
                    discard_oldest: *oldest,
                    facts: Arc::new(crate::signal::ConnectionFacts {
                        connected_at_ms: self.connections,
                        ..crate::signal::ConnectionFacts::clone(&super::testing::facts(CLIENTS[*client]))
                    }),
                    ..connect(CLIENTS[*client], on(*node, self.nodes[node].0, self.connections))
                };
                Command::connect(connect, [1, 2, usize::MAX][self.connections as usize % 3], 3)
            }
            Op::Disconnect { client, stale, will, expiry_s, sent_seq } => Command::Disconnect {
                client: name(*client),
                connection: if *stale { on(0, 1, 0) } else { current(*client) },
                initiator: Initiator::Client,
                reason_code: Some(0),
                will: *will,
                session_expiry_interval_s: *expiry_s,
                sent_seq: *sent_seq,
            },
            Op::NodeDown { node } => {
                let progress = self.nodes.get_mut(node).unwrap();
                progress.0 += 1;
                Command::NodeDown { node: *node, incarnation: progress.0 - 1 }
            }
            Op::Subscribe { client, topic, qos2 } => Command::Subscribe {
                client: name(*client),
                connection: current(*client),
                subscriptions: vec![
                    subscription(&topic.to_string(), if *qos2 { QoS::ExactlyOnce } else { QoS::AtMostOnce }),
                    member(),
                ],
            },
            Op::Unsubscribe { client, topic } => Command::Unsubscribe {
                client: name(*client),
                connection: current(*client),
                filters: vec![filter(&topic.to_string())],
            },
            Op::Enqueue { client, count, expiry_s, retained_origin } => {
                let target = Target::Session {
                    client: name(*client),
                    qos: QoS::AtLeastOnce,
                    retain: *retained_origin,
                    subscription_ids: crate::mqtt::SubscriptionIds::new(),
                    retained_origin: *retained_origin,
                };
                let targets = vec![target; usize::from(*count)];
                Command::Enqueue { message: expiring("t", *expiry_s, self.now_ms), targets }
            }
            Op::EnqueueGroup { count, expiry_s, oldest } => {
                let target = Target::Group { group: group("g", "t"), queue_limit: 5, discard_oldest: *oldest };
                let targets = vec![target; usize::from(*count)];
                Command::Enqueue { message: expiring("t", *expiry_s, self.now_ms), targets }
            }
            Op::EnqueueMember { client, count, expiry_s } => {
                let target = Target::Member {
                    client: name(*client),
                    group: group("g", "t"),
                    retain: false,
                    subscription_ids: crate::mqtt::SubscriptionIds::new(),
                };
                let targets = vec![target; usize::from(*count)];
                Command::Enqueue { message: expiring("t", *expiry_s, self.now_ms), targets }
            }
            Op::Declare { node, declared } => Command::Declare(DeclareCommand {
                node: *node,
                groups: if *declared { vec![group("g", "t")] } else { Vec::new() },
                queue_limit: 5,
                discard_oldest: false,
            }),
            Op::ReturnToGroup => Command::Enqueue {
                message: expiring("t", None, self.now_ms),
                targets: vec![Target::Returned { group: group("g", "t") }],
            },
            Op::Receive { client, packet_id } => Command::Receive {
                client: name(*client),
                connection: current(*client),
                packet_id: PacketId::new(*packet_id).unwrap(),
                message: expiring("q", None, self.now_ms),
                dead: false,
            },
            Op::Release { client, packet_id } => Command::Release {
                client: name(*client),
                connection: current(*client),
                packet_id: PacketId::new(*packet_id).unwrap(),
            },
            Op::Acknowledge { client, offset, step } => {
                let first = state.queue_after(CLIENTS[*client], 0, 1).first().map(|entry| entry.seq);
                Command::Acknowledge { client: name(*client), connection: current(*client), steps: steps(first, *offset, *step) }
            }
            Op::AcknowledgeShared { offset, step } => {
                let first = state.group_queue_after(&group("g", "t"), 0, 1).first().map(|entry| entry.seq);
                Command::AcknowledgeShared { group: group("g", "t"), steps: steps(first, *offset, *step) }
            }
            Op::LendShared { offset, stale } => {
                let id = group("g", "t");
                let first = state.group_queue_after(&id, 0, 1).first().map_or(0, |entry| entry.seq);
                let from = state.group(&id).map_or(0, |kept| kept.queue_head.sent_seq) + u64::from(*stale);
                Command::LendShared { group: id, from, through: if *offset == 0 { 0 } else { first + offset - 1 } }
            }
            Op::RemoveGroup => Command::RemoveGroup {
                group: group("g", "t"),
                next_seq: state.group(&group("g", "t")).map_or(1, |kept| kept.queue_head.next_seq),
            },
            Op::Retain { topic, empty, expiry_s } => {
                let mut message = crate::mqtt::Message::clone(&expiring(&topic.to_string(), *expiry_s, self.now_ms));
                if *empty {
                    message.payload.clear();
                }
                Command::Retain { message: Arc::new(message) }
            }
            Op::Take { source, right } => {
                let source = ShardId(*source);
                let from = if *right { state.taken(source) } else { Position { index: 77, ordinal: 7 } };
                let target = Target::Group { group: group("g", "t"), queue_limit: 5, discard_oldest: false };
                Command::Take(Box::new(TakeCommand {
                    source,
                    from,
                    to: Position { index: from.index + 1, ordinal: 1 },
                    enqueue: vec![(expiring("taken", None, self.now_ms), vec![target])],
                    retain: vec![expiring("r", Some(3), self.now_ms)],
                    republish: vec![expiring("$dead/t", None, self.now_ms)],
                }))
            }
            Op::Trim => {
                let half = state.outbox_after(Position::default(), usize::MAX);
                Command::TrimOutbox { through: half.get(half.len() / 2).map_or(Position::default(), |(at, _)| *at) }
            }
            Op::Expire { limit } => Command::Expire { limit: *limit },
            Op::Kick { client, will, remove } => {
                let (client, reason_code, will) = (name(*client), 0x98, *will);
                if *remove {
                    Command::RemoveSession { client, reason_code, will }
                } else {
                    Command::Kick { client, reason_code, will }
                }
            }
        }
    }
}

/// A subscription that makes a member of the one group there is.
fn member() -> SubscriptionRecord {
    let shared = SubscriptionFilter { share: Some("g".into()), filter: "t".into() };
    SubscriptionRecord { filter: shared, ..subscription("x", QoS::ExactlyOnce) }
}

fn step_of(step: u8) -> QueueStep {
    match step {
        0 => QueueStep::Completed,
        1 => QueueStep::Received,
        2 => QueueStep::Expired,
        _ => QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded),
    }
}

/// Entries of the log: operations and the time that passed before.
fn script() -> impl Strategy<Value = Vec<(Vec<Op>, u64, bool)>> {
    let entry = (proptest::collection::vec(op(), 1..4), prop_oneof![Just(0), 0..5000u64], proptest::bool::weighted(0.1));
    proptest::collection::vec(entry, 1..80)
}

/// What must hold of any state.
fn check(state: &State) {
    let queues = state.sessions().map(|s| (&s.queue, &s.queue_head));
    // What a group takes back is not limited.
    let queues: Vec<_> = queues.map(|(queue, head)| (queue, head, true)).collect();
    assert!(queues.iter().all(|(_, head, _)| head.sent_seq < head.next_seq));
    for group in state.groups.values() {
        assert_eq!(group.queue.lent_seq, group.queue_head.sent_seq);
        let watched = group.queue.entries.iter().filter(|entry| entry.seq() > group.queue.lent_seq);
        let watched: Seldom<BTreeSet<_>> = watched.filter_map(|entry| Some((entry.expires_at_ms()?, entry.seq()))).collect();
        assert_eq!(group.queue.expiring, watched);
    }
    let groups = state.groups.values().map(|g| (&g.queue, &g.queue_head, false));
    let queues: Vec<_> = queues.into_iter().chain(groups).collect();
    assert_eq!(state.queued_count(), queues.iter().map(|(queue, ..)| queue.entries.len()).sum::<usize>());
    assert_eq!(state.subscription_count(), state.sessions().map(|s| s.subscriptions.len()).sum::<usize>());
    assert_eq!(state.retained_count(), state.retained.iter().count());
    for (queue, head, limited) in queues {
        let entries = &queue.entries;
        assert!(entries.iter().zip(entries.iter().skip(1)).all(|(one, next)| one.seq() < next.seq()));
        assert!(entries.back().is_none_or(|last| last.seq() < head.next_seq));
        let retained = entries.iter().filter(|entry| entry.is_retained_origin()).count();
        assert_eq!(queue.retained_count as usize, retained);
        assert!(!limited || entries.len() - retained <= head.limit as usize);
    }
    for session in state.sessions() {
        let connected = session.connection.is_some();
        assert!(session.is_persistent() || connected);
        assert!(!connected || (session.expires_at_ms.is_none() && session.will_due_ms.is_none()));
        assert!(session.will_due_ms.is_none() || session.will.is_some());
    }
    // All that is derived is what a restart would derive.
    let mut fresh = State::new(state.shard());
    for (key, value) in state.records() {
        fresh.load(&key, &value).unwrap();
    }
    fresh.finish_load();
    assert_eq!(fresh.due, state.due);
    assert_eq!(fresh.connected, state.connected);
    assert_eq!(fresh.sessions, state.sessions);
    assert_eq!(fresh.groups, state.groups);
    assert_eq!((&fresh.assigned, &fresh.declared), (&state.assigned, &state.declared));
    for (client, groups) in &state.assigned {
        let session = state.session(client).expect("of a session");
        assert!(!groups.is_empty());
        // Without a connection only what was sent is the member's.
        assert!(session.connection.is_some() || groups.keys().all(|seq| *seq <= session.queue_head.sent_seq));
        let has_message = |seq: &u64| session.queue.find(*seq).is_some_and(|index| session.queue.entries[index].has_message());
        assert!(groups.keys().all(has_message));
    }
    assert!(state.declared.keys().all(|id| state.groups.contains_key(id)));
}

/// Follows the lifecycle events and the events about connections.
#[derive(Default)]
struct Watcher {
    /// Whether the last lifecycle event of a client was CONNECTED, and of which connection (its facts).
    alive: BTreeMap<String, u64>,
    /// The connections by the events that other nodes mirror.
    mirrored: BTreeMap<String, ConnectionRef>,
    /// Facts are numbered by connection: those that were connected.
    connected: u64,
    disconnected: u64,
    last: Position,
    /// Topics of published Wills, one for each connection.
    wills: BTreeSet<String>,
}

impl Watcher {
    fn watch(&mut self, applied: &Applied) {
        let mut queued = BTreeSet::new();
        for event in &applied.events {
            match event {
                Event::Outbox { position, event } => {
                    assert!(*position > self.last);
                    self.last = *position;
                    self.outbox(event);
                }
                Event::Connected { client, connection, .. } => {
                    assert_eq!(self.mirrored.insert(client.to_string(), *connection), None);
                }
                Event::Disconnected { client, connection } => {
                    assert_eq!(self.mirrored.remove(&client.to_string()), Some(*connection));
                }
                Event::SessionRemoved { client, .. } => {
                    self.mirrored.remove(&client.to_string());
                    queued.remove(client);
                }
                Event::Queued { client } => assert!(queued.insert(client), "told twice"),
                Event::Close { client, connection, .. } => {
                    assert_eq!(self.mirrored.get(&client.to_string()), Some(connection));
                }
                Event::Subscribed { .. }
                | Event::Unsubscribed { .. }
                | Event::GroupQueued { .. }
                | Event::GroupDeclared { .. }
                | Event::GroupRemoved { .. } => {}
            }
        }
    }

    fn outbox(&mut self, event: &OutboxEvent) {
        let lifecycle = match event {
            OutboxEvent::Lifecycle(lifecycle) => lifecycle,
            OutboxEvent::Publish { message, .. } if message.topic.starts_with("will/") => {
                assert!(self.wills.insert(message.topic.to_string()), "a will twice");
                return;
            }
            OutboxEvent::Publish { .. }
            | OutboxEvent::Assigned { .. }
            | OutboxEvent::AssignedFrom { .. }
            | OutboxEvent::Returned { .. }
            | OutboxEvent::Dropped(_)
            | OutboxEvent::Expired(_) => return,
        };
        let client = lifecycle.facts.client_id.to_string();
        let connection = lifecycle.facts.connected_at_ms;
        match &lifecycle.event {
            LifecycleEvent::Connected { .. } => {
                self.connected += 1;
                assert_eq!(self.alive.insert(client, connection), None, "connected twice");
            }
            LifecycleEvent::Disconnected { .. } => {
                self.disconnected += 1;
                assert_eq!(self.alive.remove(&client), Some(connection), "ended without being connected");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// One machine runs through over a disk; another is loaded from what the first wrote, at random points, all in memory or with nothing in
    /// memory that it need not have, and goes on in its place.
    #[test]
    fn a_restarted_machine_is_the_same_machine(script in script(), resident_bytes_max in 0..2000_usize) {
        let mut driver = Driver::new();
        let disk = Disk::default();
        let mut running = State::over(ShardId(0), Arc::new(disk.clone()), resident_bytes_max);
        let mut whole = true;
        let mut other = State::new(ShardId(0));
        let mut watcher = Watcher::default();
        for (ops, passed_ms, restart) in &script {
            let proposal = driver.proposal(&running, ops, *passed_ms);
            let applied = running.apply(driver.index, &proposal);
            watcher.watch(&applied);
            prop_assert_eq!(&applied, &other.apply(driver.index, &proposal));
            prop_assert_eq!(applied.answers.len(), ops.len());
            if *restart {
                disk.write(&mut running);
                prop_assert!(running.resident_bytes() <= resident_bytes_max);
                prop_assert_eq!(&disk.records(), &running.records().collect::<BTreeMap<_, _>>());
                whole = !whole;
                other = if whole { disk.load_whole() } else { disk.load(resident_bytes_max) };
                prop_assert_eq!(running.digest(), other.digest());
                check(&running);
            }
        }
        prop_assert_eq!(running.digest(), other.digest());
        check(&running);
        prop_assert_eq!((running.failure(), other.failure()), (None, None));
        prop_assert_eq!(running.session_count(), running.sessions().count());
        prop_assert_eq!(running.connected_count(), running.sessions().filter(|s| s.connection.is_some()).count());
        // Who is connected is the same by the state, by the lifecycle events and by what others mirror.
        let connected: BTreeMap<_, _> =
            running.sessions().filter_map(|s| Some((s.client.to_string(), s.connection?))).collect();
        prop_assert_eq!(&connected, &watcher.mirrored);
        prop_assert_eq!(connected.keys().collect::<Vec<_>>(), watcher.alive.keys().collect::<Vec<_>>());
        prop_assert_eq!(watcher.connected, watcher.disconnected + connected.len() as u64);
    }

    /// Whatever is due is done by `Expire`, so that nobody asks in a loop.
    #[test]
    fn nothing_stays_due(script in script()) {
        let mut driver = Driver::new();
        let mut state = State::new(ShardId(0));
        for (ops, passed_ms, _) in &script {
            let proposal = driver.proposal(&state, ops, *passed_ms);
            state.apply(driver.index, &proposal);
            let proposal = driver.proposal(&state, &[Op::Expire { limit: u32::MAX }], 0);
            state.apply(driver.index, &proposal);
            prop_assert!(state.next_expiry_ms().is_none_or(|due_ms| due_ms > driver.now_ms));
        }
    }

    /// Batches that arrive twice, late or with gaps change nothing but by the commands that are next.
    #[test]
    fn resends_and_gaps_do_not_change_the_outcome(
        script in proptest::collection::vec((op(), 0..5000u64), 1..60),
        noise in proptest::collection::vec((0..60usize, 1..5usize), 0..40),
    ) {
        let mut driver = Driver::new();
        let mut clean = State::new(ShardId(0));
        let mut noisy = State::new(ShardId(0));
        let mut log: Vec<Command> = Vec::new();
        let mut noise = noise.iter().cycle();
        for (op, passed_ms) in &script {
            let proposal = driver.proposal(&clean, std::slice::from_ref(op), *passed_ms);
            log.extend(proposal.batches[0].commands.iter().cloned());
            let expected = clean.apply(driver.index, &proposal);
            let mut batches = Vec::new();
            if let Some((start, length)) = noise.next() {
                // A part of the log so far, and a batch from the future.
                let start = start % log.len();
                let end = (start + length).min(log.len() - 1).max(start);
                let part = log[start..end].to_vec();
                let batch = |first: usize, commands| Batch {
                    node: NODES, incarnation: 1, first_seq: first as u64 + 1, commands: Arc::new(commands)
                };
                batches.push(batch(start, part.clone()));
                batches.push(batch(log.len() + 1, part));
            }
            batches.extend(proposal.batches.iter().cloned());
            let applied = noisy.apply(driver.index, &Proposal { at_ms: proposal.at_ms, batches });
            prop_assert_eq!(&expected, &applied);
        }
        prop_assert_eq!(clean.digest(), noisy.digest());
    }
}
