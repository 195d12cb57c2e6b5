use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::body::{BODY_BYTES_MAX, Cut, INLINE_BYTES_MAX, PART_BYTES, cut};
use super::command::{Batch, Command, ConnectCommand, PartCommand, Proposal, QueueStep, TakeCommand, Target};
use super::event::{Applied, Outcome, Position};
use super::ids::{Incarnation, NodeId, ShardId};
use super::state::State;
use super::testing::{Bench, Disk, LEADER, connect, disconnect, group, message, on, subscription, to_session};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{Message, QoS, ReasonCode};

const LARGE: usize = INLINE_BYTES_MAX + PART_BYTES / 2;

/// A message whose payload tells its topic.
fn large(topic: &str, bytes: usize) -> Arc<Message> {
    let payload: Vec<u8> = topic.bytes().cycle().take(bytes).collect();
    Arc::new(Message { payload: payload.into(), ..Message::clone(&message(topic)) })
}

fn is_intact(message: &Message) -> bool {
    message.payload.iter().copied().eq(message.topic.bytes().cycle().take(message.payload.len()))
}

/// The commands as they are submitted.
fn parts(command: Command) -> Vec<Command> {
    let Cut::Large { command, body } = cut(command) else { panic!("a large command") };
    let part = |(at, bytes): (usize, &[u8])| {
        Command::Part(PartCommand {
            bytes_total: body.len() as u64,
            offset: (at * PART_BYTES) as u64,
            bytes: Bytes::copy_from_slice(bytes),
        })
    };
    body.chunks(PART_BYTES).enumerate().map(part).chain([command]).collect()
}

/// A bench with the sessions `a` and `b`, which subscribe to everything and are offline.
fn bench() -> Bench {
    let mut bench = Bench::new();
    for (number, client) in ["a", "b"].into_iter().enumerate() {
        let connection = on(LEADER, 1, number as u64);
        bench.connect(ConnectCommand { queue_limit: 3, discard_oldest: true, lifecycle: false, ..connect(client, connection) });
        let subscriptions = vec![subscription("#", QoS::ExactlyOnce)];
        bench.run(Command::Subscribe { client: client.into(), connection, subscriptions });
        bench.run(disconnect(client, connection, false));
    }
    bench
}

fn enqueue(topic: &str) -> Command {
    let group = Target::Group { group: group("g", "#"), queue_limit: 3, discard_oldest: true };
    Command::Enqueue { message: large(topic, LARGE), targets: vec![to_session("a"), to_session("b"), group] }
}

fn write(state: &mut State, stored: &mut BTreeMap<Vec<u8>, Vec<u8>>) {
    for (key, value) in state.take_changes() {
        match value {
            Some(value) => stored.insert(key, value),
            None => stored.remove(&key),
        };
    }
}

fn load(stored: &BTreeMap<Vec<u8>, Vec<u8>>) -> State {
    let mut state = State::new(ShardId(0));
    for (key, value) in stored {
        state.load(key, value).unwrap();
    }
    state.finish_load();
    state
}

#[test]
fn a_command_without_a_large_payload_is_left_as_it_is() {
    for bytes in [0, 1, INLINE_BYTES_MAX] {
        let command = Command::Retain { message: large("t", bytes) };
        assert_eq!(cut(command.clone()), Cut::Small(command));
    }
}

#[test]
fn a_payload_that_several_messages_of_a_command_share_travels_once() {
    let (one, payload) = (large("one", LARGE), large("one", LARGE).payload.clone());
    let shared = |topic: &str| Arc::new(Message { payload: payload.clone(), ..Message::clone(&message(topic)) });
    let take = TakeCommand {
        source: ShardId(0),
        from: Position::default(),
        to: Position { index: 1, ordinal: 1 },
        enqueue: vec![(shared("q"), vec![to_session("a")]), (message("small"), vec![to_session("a")])],
        retain: vec![shared("r")],
        republish: vec![shared("$dead/r")],
    };
    let Cut::Large { command: Command::Whole { command, cut: numbers }, body } = cut(Command::Take(Box::new(take))) else {
        panic!("it is large")
    };
    assert_eq!((numbers, body.as_ptr()), (vec![0, 2, 3], payload.as_ptr()));
    let Command::Take(take) = *command else { panic!("a take") };
    assert!(take.enqueue[0].0.payload.is_empty() && take.retain[0].payload.is_empty() && !take.enqueue[1].0.payload.is_empty());
    // Of two payloads the second stays where it is.
    let take = TakeCommand { enqueue: vec![(shared("q"), Vec::new()), (one, Vec::new())], ..*take };
    let Cut::Large { command: Command::Whole { cut: numbers, .. }, .. } = cut(Command::Take(Box::new(take))) else {
        panic!("large")
    };
    assert_eq!(numbers, [0]);
}

#[test]
fn a_body_is_stored_once_for_all_queues_and_goes_with_the_last() {
    let (mut bench, mut stored) = (bench(), BTreeMap::new());
    for command in parts(enqueue("t")) {
        bench.run(command);
        write(&mut bench.state, &mut stored);
    }
    let bytes = |stored: &BTreeMap<Vec<u8>, Vec<u8>>| stored.values().map(Vec::len).sum::<usize>();
    assert!((LARGE..LARGE + 4096).contains(&bytes(&stored)));
    assert!(stored.values().all(|value| value.len() <= PART_BYTES + 16), "no record is large");
    let mut restarted = load(&stored);
    assert_eq!(restarted.digest(), bench.state.digest());
    for client in ["a", "b"] {
        let entry = restarted.queue_after(client, 0, 1).remove(0);
        assert!(is_intact(entry.message.as_deref().unwrap()) && entry.message.unwrap().payload.len() == LARGE);
    }
    let queued = |client: &str| restarted.queue_after(client, 0, 1).remove(0).message.unwrap().payload.as_ptr();
    assert_eq!(queued("a"), queued("b"), "the memory is shared, too");

    let steps = |state: &mut State, index: u64, seq: u64, command: Command| {
        let batch = Batch { node: 50, incarnation: 1, first_seq: seq, commands: Arc::new(vec![command]) };
        state.apply(index, &Proposal { at_ms: bench.now_ms, batches: vec![batch] });
    };
    let remove = |client: &str| Command::RemoveSession { client: client.into(), reason_code: 0x98, will: false };
    steps(&mut restarted, 100, 1, remove("a"));
    steps(&mut restarted, 101, 2, remove("b"));
    write(&mut restarted, &mut stored);
    assert_eq!(restarted.bodies.len(), 1, "the shared subscription holds it");
    let done = vec![(1, QueueStep::Completed)];
    steps(&mut restarted, 102, 3, Command::AcknowledgeShared { group: group("g", "#"), steps: done });
    write(&mut restarted, &mut stored);
    assert_eq!(restarted.bodies.len(), 0);
    assert!(bytes(&stored) < 4096, "the parts are deleted");
}

#[test]
fn a_message_that_nobody_keeps_leaves_nothing() {
    let (mut bench, mut stored) = (bench(), BTreeMap::new());
    for command in parts(Command::Enqueue { message: large("t", LARGE), targets: vec![to_session("nobody")] }) {
        bench.run(command);
    }
    write(&mut bench.state, &mut stored);
    assert_eq!(bench.state.bodies.len(), 0);
    assert!(stored.values().all(|value| value.len() < 4096));
}

/// Seconds may pass between the matching of a large message and its arrival.
#[test]
fn a_session_begun_anew_meanwhile_does_not_get_what_it_does_not_subscribe_to() {
    let mut bench = bench();
    let mut commands = parts(enqueue("t"));
    let last = commands.pop().unwrap();
    commands.into_iter().for_each(|command| drop(bench.run_from(1, 1, command)));
    bench.connect(ConnectCommand { clean_start: true, ..connect("a", on(LEADER, 1, 7)) });
    assert_eq!(bench.run_from(1, 1, last).0, Some(Outcome::Done));
    assert_eq!((bench.queued_seqs("a").len(), bench.queued_seqs("b").len()), (0, 1));
}

#[test]
fn what_a_dead_or_restarted_node_had_under_way_goes() {
    let ends: [fn(&mut Bench); 3] = [
        |bench| drop(bench.run(Command::NodeDown { node: 1, incarnation: 5 })),
        |bench| drop(bench.run_from(1, 6, Command::Expire { limit: 1 })),
        |bench| drop(bench.run_from(1, 5, Command::Part(PartCommand { bytes_total: 0, offset: 0, bytes: Bytes::new() }))),
    ];
    for end in ends {
        let (mut bench, mut stored) = (bench(), BTreeMap::new());
        let first = parts(enqueue("t")).remove(0);
        bench.run_from(1, 5, first.clone());
        bench.run_from(2, 5, first);
        write(&mut bench.state, &mut stored);
        assert_eq!(bench.state.bodies.under_way_bytes(), PART_BYTES * 2);
        end(&mut bench);
        write(&mut bench.state, &mut stored);
        assert_eq!((bench.state.bodies.under_way_bytes(), bench.state.bodies.len()), (PART_BYTES, 1));
        assert_eq!(stored, bench.state.records().collect());
    }
}

#[test]
fn parts_that_do_not_fit_bring_no_message() {
    let part = |bytes_total: usize, offset: usize, bytes: usize| {
        let bytes = Bytes::from(vec![7; bytes]);
        Command::Part(PartCommand { bytes_total: bytes_total as u64, offset: offset as u64, bytes })
    };
    let whole = || parts(enqueue("t")).pop().unwrap();
    let cases: [(&str, Vec<Command>); 8] = [
        ("one beyond all numbers", vec![part(30, 0, 10), part(30, usize::MAX, 10)]),
        ("none at all", vec![]),
        ("one is missing", vec![part(30, 0, 10), part(30, 20, 10)]),
        ("the last is missing", vec![part(30, 0, 10), part(30, 10, 10)]),
        ("one is too long", vec![part(25, 0, 10), part(25, 10, 15)]),
        ("one is too short", vec![part(30, 0, 10), part(30, 10, 5), part(30, 15, 10)]),
        ("longer than all", vec![part(5, 0, 10)]),
        ("longer than any packet", vec![part(BODY_BYTES_MAX + 1, 0, 10)]),
    ];
    for (what, commands) in cases {
        let mut bench = bench();
        commands.into_iter().for_each(|command| drop(bench.run(command)));
        assert_eq!(bench.run(whole()).0, Outcome::Refused(ReasonCode::UnspecifiedError), "{what}");
        assert!(bench.queued_seqs("a").is_empty(), "{what}");
    }
}

#[test]
fn a_stored_record_whose_payload_is_gone_is_damage() {
    let (mut bench, mut stored) = (bench(), BTreeMap::new());
    parts(enqueue("t")).into_iter().for_each(|command| drop(bench.run(command)));
    write(&mut bench.state, &mut stored);
    let part_keys: Vec<_> = stored.keys().filter(|key| key[0] == 0x02).cloned().collect();
    assert_eq!(part_keys.len(), LARGE.div_ceil(PART_BYTES));
    for missing in part_keys {
        let mut state = State::new(ShardId(0));
        let mut rest = stored.iter().filter(|(key, _)| **key != missing);
        let error = rest.find_map(|(key, value)| state.load(key, value).err());
        assert!(error.is_some_and(|error| error.to_string().contains("damaged")));
    }
}

/// What a test does.
#[derive(Debug, Clone)]
enum Op {
    /// A node begins a message, where it has none under way.
    Begin {
        node: NodeId,
        kind: u8,
    },
    /// The next so many commands of what it has under way.
    Go {
        node: NodeId,
        steps: usize,
    },
    GiveUp {
        node: NodeId,
    },
    Restart {
        node: NodeId,
    },
    NodeDown {
        node: NodeId,
    },
    Small {
        node: NodeId,
    },
    Acknowledge {
        client: usize,
        step: u8,
    },
    AcknowledgeShared,
    Forget,
    Trim,
    Expire {
        passed_ms: u64,
    },
    RemoveSession,
}

fn op() -> impl Strategy<Value = Op> {
    let node = || 1..4_u64;
    prop_oneof![
        6 => (node(), 0..4u8).prop_map(|(node, kind)| Op::Begin { node, kind }),
        12 => (node(), 1..6usize).prop_map(|(node, steps)| Op::Go { node, steps }),
        1 => node().prop_map(|node| Op::GiveUp { node }),
        1 => node().prop_map(|node| Op::Restart { node }),
        1 => node().prop_map(|node| Op::NodeDown { node }),
        2 => node().prop_map(|node| Op::Small { node }),
        3 => (0..2usize, 0..4u8).prop_map(|(client, step)| Op::Acknowledge { client, step }),
        2 => Just(Op::AcknowledgeShared),
        1 => Just(Op::Forget),
        2 => Just(Op::Trim),
        1 => (0..40_000u64).prop_map(|passed_ms| Op::Expire { passed_ms }),
        1 => Just(Op::RemoveSession),
    ]
}

/// Makes commands of operations.
struct Driver {
    under_way: BTreeMap<NodeId, Vec<Command>>,
    incarnations: BTreeMap<NodeId, Incarnation>,
    seqs: BTreeMap<(NodeId, Incarnation), u64>,
    begun: u32,
    index: u64,
    now_ms: u64,
}

impl Driver {
    fn incarnation(&self, node: NodeId) -> Incarnation {
        self.incarnations.get(&node).copied().unwrap_or(1)
    }

    fn proposal(&mut self, node: NodeId, commands: Vec<Command>) -> Proposal {
        self.index += 1;
        let incarnation = self.incarnation(node);
        let seq = self.seqs.entry((node, incarnation)).or_insert(0);
        let batch = Batch { node, incarnation, first_seq: *seq + 1, commands: Arc::new(commands) };
        *seq += batch.commands.len() as u64;
        Proposal { at_ms: self.now_ms, batches: vec![batch] }
    }

    fn of(&mut self, op: &Op, state: &State) -> Proposal {
        let clients = ["a", "b"];
        match op {
            Op::Begin { node, kind } => {
                self.begun += 1;
                let (topic, begun) = (format!("t/{}", self.begun), self.begun);
                let take = || TakeCommand {
                    source: ShardId(1),
                    from: state.taken(ShardId(1)),
                    to: Position { index: self.index + 1, ordinal: 1 },
                    enqueue: vec![(large(&topic, LARGE), vec![to_session("a")])],
                    retain: Vec::new(),
                    republish: Vec::new(),
                };
                let message = large(&topic, LARGE);
                let commands = match kind {
                    0 => parts(enqueue(&topic)),
                    1 => {
                        let expiring = Message {
                            message_expiry_interval: Some(30),
                            received_at_ms: self.now_ms,
                            ..Message::clone(&message)
                        };
                        parts(Command::Retain { message: Arc::new(expiring) })
                    }
                    2 => parts(Command::Take(Box::new(take()))),
                    _ => parts(Command::Receive {
                        client: "c".into(),
                        connection: on(LEADER, 1, 9),
                        packet_id: PacketId::new(u16::try_from(begun).unwrap()).unwrap(),
                        message,
                        dead: false,
                    }),
                };
                self.under_way.entry(*node).or_insert(commands);
                self.proposal(LEADER, Vec::new())
            }
            Op::Go { node, steps } => {
                let mut commands = self.under_way.remove(node).unwrap_or_default();
                let rest = commands.split_off((*steps).min(commands.len()));
                if !rest.is_empty() {
                    self.under_way.insert(*node, rest);
                }
                self.proposal(*node, commands)
            }
            Op::GiveUp { node } => {
                self.under_way.remove(node);
                let end = PartCommand { bytes_total: 0, offset: 0, bytes: Bytes::new() };
                self.proposal(*node, vec![Command::Part(end)])
            }
            Op::Restart { node } => {
                self.under_way.remove(node);
                self.incarnations.insert(*node, self.incarnation(*node) + 1);
                self.proposal(LEADER, Vec::new())
            }
            Op::NodeDown { node } => {
                let incarnation = self.incarnation(*node);
                self.under_way.remove(node);
                self.incarnations.insert(*node, incarnation + 1);
                self.proposal(LEADER, vec![Command::NodeDown { node: *node, incarnation }])
            }
            Op::Small { node } => {
                let small = Command::Enqueue { message: message("small"), targets: vec![to_session("b")] };
                self.proposal(*node, vec![small])
            }
            Op::Acknowledge { client, step } => {
                // Entries of an offline session go by a connection of its own.
                let (client, connection) = (clients[*client], on(LEADER, 1, 100 + self.index));
                let connecting = Command::Connect(Arc::new(ConnectCommand {
                    queue_limit: 3,
                    discard_oldest: true,
                    lifecycle: false,
                    ..connect(client, connection)
                }));
                let step = match step {
                    0 => QueueStep::Received,
                    1 => QueueStep::Dropped(crate::signal::DropReason::MaximumPacketSizeExceeded),
                    _ => QueueStep::Completed,
                };
                let first = state.queue_after(client, 0, 1).first().map_or(1, |entry| entry.seq);
                let acknowledge = Command::Acknowledge { client: client.into(), connection, steps: vec![(first, step)] };
                self.proposal(LEADER, vec![connecting, acknowledge, disconnect(client, connection, false)])
            }
            Op::AcknowledgeShared => {
                let first = state.group_queue_after(&group("g", "#"), 0, 1).first().map_or(1, |entry| entry.seq);
                let steps = vec![(first, QueueStep::Completed)];
                self.proposal(LEADER, vec![Command::AcknowledgeShared { group: group("g", "#"), steps }])
            }
            Op::Forget => {
                let first = state.retained_matching("#", 0).first().map_or("none".into(), |message| message.topic.clone());
                let removing = Message { payload: Bytes::new(), ..Message::clone(&message(&first)) };
                self.proposal(LEADER, vec![Command::Retain { message: Arc::new(removing) }])
            }
            Op::Trim => {
                let events = state.outbox_after(Position::default(), usize::MAX);
                let through = events.get(events.len() / 2).map_or(Position::default(), |(at, _)| *at);
                self.proposal(LEADER, vec![Command::TrimOutbox { through }])
            }
            Op::Expire { passed_ms } => {
                self.now_ms += passed_ms;
                self.proposal(LEADER, vec![Command::Expire { limit: 100 }])
            }
            Op::RemoveSession => {
                let remove = Command::RemoveSession { client: "b".into(), reason_code: 0x98, will: false };
                self.proposal(LEADER, vec![remove])
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// One machine runs through; another is loaded from what the first wrote, wherever it was, and goes on in its place.
    #[test]
    fn a_machine_restarted_between_parts_is_the_same_machine(
        script in proptest::collection::vec((op(), proptest::bool::weighted(0.2)), 1..50),
    ) {
        let disk = Disk::default();
        disk.write(&mut bench().state);
        let mut running = disk.load(0);
        running.apply(999, &Proposal { at_ms: 1_000_000, batches: Vec::new() });
        let mut other = bench().state;
        let mut whole = true;
        let mut driver = Driver {
            under_way: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            seqs: [((LEADER, 1), running.applied_seq(LEADER, 1))].into(),
            begun: 0,
            index: 1000,
            now_ms: 1_000_000,
        };
        let publisher = driver.proposal(LEADER, vec![Command::Connect(Arc::new(connect("c", on(LEADER, 1, 9))))]);
        running.apply(driver.index, &publisher);
        other.apply(driver.index, &publisher);
        for (op, restart) in &script {
            let proposal = driver.of(op, &running);
            let applied: Applied = running.apply(driver.index, &proposal);
            prop_assert_eq!(applied.answers.len(), proposal.batches[0].commands.len());
            prop_assert_eq!(&applied, &other.apply(driver.index, &proposal));
            if *restart {
                disk.write(&mut running);
                prop_assert_eq!(&disk.records(), &running.records().collect::<BTreeMap<_, _>>());
                whole = !whole;
                other = if whole { disk.load_whole() } else { disk.load(0) };
                prop_assert_eq!(running.digest(), other.digest());
            }
        }
        prop_assert_eq!(running.digest(), other.digest());
        for client in ["a", "b"] {
            let queued = other.queue_after(client, 0, usize::MAX);
            prop_assert!(queued.iter().filter_map(|entry| entry.message.as_ref()).all(|m| m.topic == "small" || is_intact(m)));
        }
        prop_assert_eq!((running.failure(), other.failure()), (None, None));
        // When all is gone that refers to bodies, no body is left.
        let remove = |client: &str| Command::RemoveSession { client: client.into(), reason_code: 0x98, will: false };
        let mut ends: Vec<_> = (1..4).map(|node| Command::NodeDown { node, incarnation: driver.incarnation(node) }).collect();
        ends.extend([remove("a"), remove("b")]);
        let next_seq = other.group(&group("g", "#")).map_or(1, |group| group.queue_head.next_seq);
        ends.push(Command::RemoveGroup { group: group("g", "#"), next_seq });
        for retained in other.retained_matching("#", 0) {
            ends.push(Command::Retain { message: Arc::new(Message { payload: Bytes::new(), ..Message::clone(&retained) }) });
        }
        ends.push(Command::TrimOutbox { through: Position { index: u64::MAX, ordinal: 0 } });
        let proposal = driver.proposal(LEADER, ends);
        other.apply(driver.index, &proposal);
        other.take_changes();
        prop_assert_eq!(other.bodies.len(), 0);
        prop_assert!(other.bodies.is_empty());
    }
}
