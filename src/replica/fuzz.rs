//! Commands in any order, sensible and not, on a machine that runs through and on one that is made anew from its records.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use bytestring::ByteString;

use super::body::{Cut, INLINE_BYTES_MAX, PART_BYTES, cut, with_payload};
use super::command::{
    Assignment, Batch, Command, ConnectCommand, PartCommand, Proposal, QueueStep, TakeCommand, TakeOver, Target,
};
use super::event::{Applied, Event, Position};
use super::ids::{ConnectionRef, NodeId, ShardId};
use super::state::State;
use super::testing::{Disk, connect, expiring, filter, group, on, subscription, will};
use crate::fuzzing::Draw;
use crate::mqtt::packet::PacketId;
use crate::mqtt::{GroupId, Message, QoS, SubscriptionFilter, SubscriptionIds};
use crate::signal::{DropReason, Initiator};

const CLIENTS: [&str; 4] = ["a", "b", "c", ""];
const TOPICS: [&str; 5] = ["t", "t/u", "$dead/t", "", "será"];
const NODES: NodeId = 3;
const QUEUE_LIMITS: [u32; 4] = [5, 0, 1, u32::MAX];
const STEPS_MAX: usize = 300;
/// Large messages of one input: they take time.
const LARGE_MAX: usize = 2;
const NESTED_MAX: usize = 3;
/// Of queued messages that are on disk.
const RESIDENT_BYTES_MAX: usize = 600;

pub fn replica(data: &[u8]) {
    let mut draw = Draw::new(data);
    let mut world = World::new();
    for _ in 0..STEPS_MAX {
        if draw.is_done() {
            break;
        }
        world.step(&mut draw);
    }
    world.restart();
    world.nothing_stays_due();
}

struct World {
    running: State,
    /// Made anew now and then.
    other: State,
    disk: Disk,
    /// The other has everything in memory.
    whole: bool,
    index: u64,
    now_ms: u64,
    next_seq: u64,
    connections: u64,
    last: Position,
    /// The body that random parts are of: length of the whole, how much was sent, length of the first part.
    filling: (u64, u64, usize),
    large: usize,
    /// Commands within commands, at the moment.
    nested: usize,
    /// Connections as the events tell of them.
    told: BTreeMap<ByteString, ConnectionRef>,
}

impl World {
    fn new() -> Self {
        let disk = Disk::default();
        Self {
            running: State::over(ShardId(0), Arc::new(disk.clone()), RESIDENT_BYTES_MAX),
            other: State::new(ShardId(0)),
            disk,
            whole: true,
            index: 0,
            now_ms: 1_000_000,
            next_seq: 1,
            connections: 0,
            last: Position::default(),
            filling: (0, 0, 0),
            large: 0,
            nested: 0,
            told: BTreeMap::new(),
        }
    }

    fn step(&mut self, draw: &mut Draw<'_>) {
        match draw.byte() {
            0 => return self.restart(),
            1 => self.now_ms += u64::from(draw.u16()),
            // The clock of a new leader is behind.
            2 => self.now_ms = self.now_ms.saturating_sub(u64::from(draw.u16())),
            3 => return self.noise(draw),
            4 => return self.large(draw),
            _ => {}
        }
        let commands: Vec<Command> = (0..=draw.below(3)).map(|_| self.command(draw)).collect();
        self.submit(commands);
    }

    fn submit(&mut self, commands: Vec<Command>) -> Applied {
        let count = commands.len();
        // Node `NODES` submits for all: it never dies.
        let batch = Batch { node: NODES, incarnation: 1, first_seq: self.next_seq, commands: Arc::new(commands) };
        self.next_seq += count as u64;
        let applied = self.apply(vec![batch]);
        assert_eq!(applied.answers.len(), count);
        applied
    }

    /// A command with a large message as it is submitted, perhaps with others between its parts.
    fn large(&mut self, draw: &mut Draw<'_>) {
        static PAYLOAD: LazyLock<Bytes> = LazyLock::new(|| (0..=INLINE_BYTES_MAX).map(|at| (at % 251) as u8).collect());
        self.large += 1;
        if self.large > LARGE_MAX {
            return;
        }
        let message = with_payload(&self.message(draw), PAYLOAD.clone());
        let client = ByteString::from_static(draw.pick(&CLIENTS));
        let command = match draw.below(4) {
            0 => Command::Retain { message },
            1 => Command::Receive {
                connection: self.connection(&client, draw),
                client,
                packet_id: packet_id(draw),
                message,
                dead: draw.flag(),
            },
            2 => {
                let source = ShardId(draw.below(3) as u16);
                let from = self.running.taken(source);
                Command::Take(Box::new(TakeCommand {
                    source,
                    from,
                    to: Position { index: from.index + 1, ordinal: 1 },
                    enqueue: vec![(message.clone(), targets(draw)), (self.message(draw), targets(draw))],
                    retain: draw.maybe(|_| message.clone()).into_iter().collect(),
                    republish: draw.maybe(|_| message).into_iter().collect(),
                }))
            }
            _ => Command::Enqueue { message, targets: targets(draw) },
        };
        let Cut::Large { command, body } = cut(command) else { panic!("it is large") };
        for (at, bytes) in body.chunks(PART_BYTES).enumerate() {
            let (bytes_total, offset) = (body.len() as u64, (at * PART_BYTES) as u64);
            let part = Command::Part(PartCommand { bytes_total, offset, bytes: Bytes::copy_from_slice(bytes) });
            let applied = self.submit(vec![part]);
            assert!(applied.events.is_empty());
            match draw.byte() {
                0..=3 => self.restart(),
                4..=40 => _ = self.apply(Vec::new()),
                _ => {}
            }
        }
        self.submit(vec![command]);
    }

    /// A part of a body, the next one or not.
    fn part(&mut self, draw: &mut Draw<'_>) -> Command {
        if draw.byte() & 3 == 0 {
            self.filling = (draw.pick(&[1, 2, 3, 7, 0, u64::MAX]), 0, draw.below(4));
        }
        let (bytes_total, sent, part_len) = self.filling;
        let left = usize::try_from(bytes_total - sent).unwrap_or(usize::MAX);
        let bytes = Bytes::from(vec![7; part_len.min(left)]);
        let offset = draw.pick(&[sent, sent, sent, sent, sent + 1, u64::MAX]);
        self.filling.1 += bytes.len() as u64;
        Command::Part(PartCommand { bytes_total, offset, bytes })
    }

    /// A batch with whatever numbers: a resend, a gap, a node that is dead, the last number there is.
    fn noise(&mut self, draw: &mut Draw<'_>) {
        let node = draw.pick(&[0, 1, 2, NODES, u64::MAX]);
        let (incarnation, first_seq) = if node == NODES {
            // Ours is numbered by `next_seq`: this one is a resend or a gap.
            (draw.pick(&[0, 1]), draw.pick(&[0, 1, self.next_seq.saturating_add(1), u64::MAX]))
        } else {
            (draw.pick(&[0, 1, 2, u64::MAX]), draw.pick(&[0, 1, 2, u64::MAX]))
        };
        let commands = if node == NODES { Vec::new() } else { vec![self.command(draw), self.command(draw)] };
        self.apply(vec![Batch { node, incarnation, first_seq, commands: Arc::new(commands) }]);
    }

    fn apply(&mut self, batches: Vec<Batch>) -> Applied {
        self.index += 1;
        let proposal = Proposal { at_ms: self.now_ms, batches };
        let applied = self.running.apply(self.index, &proposal);
        assert_eq!(self.other.apply(self.index, &proposal), applied);
        self.watch(&applied);
        applied
    }

    fn watch(&mut self, applied: &Applied) {
        for event in &applied.events {
            match event {
                Event::Outbox { position, .. } => {
                    assert!(*position > self.last && position.index == self.index);
                    self.last = *position;
                }
                Event::Connected { client, connection, .. } => {
                    let before = self.told.insert(client.clone(), *connection);
                    assert_eq!(before, None, "{client} is connected already");
                }
                Event::Disconnected { client, connection } => assert_eq!(self.told.remove(client), Some(*connection)),
                Event::SessionRemoved { client, .. } => _ = self.told.remove(client),
                Event::Close { .. }
                | Event::Subscribed { .. }
                | Event::Unsubscribed { .. }
                | Event::Queued { .. }
                | Event::GroupQueued { .. }
                | Event::GroupDeclared { .. }
                | Event::GroupRemoved { .. } => {}
            }
        }
    }

    /// What was written in parts is what is there as a whole, and makes the same machine.
    fn restart(&mut self) {
        if self.index == 0 {
            return;
        }
        self.disk.write(&mut self.running);
        assert!(self.running.resident_bytes() <= RESIDENT_BYTES_MAX);
        assert_eq!(self.disk.records(), self.running.records().collect::<BTreeMap<_, _>>());
        self.whole = !self.whole;
        self.other = if self.whole { self.disk.load_whole() } else { self.disk.load(RESIDENT_BYTES_MAX) };
        // A body that nobody refers to is not kept, neither here nor there.
        assert_eq!(self.running.bodies.len(), self.other.bodies.len());
        assert_eq!(self.running.digest(), self.other.digest());
        assert_eq!(self.running.next_expiry_ms(), self.other.next_expiry_ms());
        assert_eq!(self.running.queued_count(), self.other.queued_count());
        assert_eq!((self.running.failure(), self.other.failure()), (None, None));
        self.check();
    }

    fn check(&self) {
        let state = &self.running;
        let queues = state.sessions().map(|session| (&session.queue, &session.queue_head));
        let queues: Vec<_> = queues.chain(state.groups().map(|(_, group)| (&group.queue, &group.queue_head))).collect();
        assert_eq!(state.queued_count(), queues.iter().map(|(queue, _)| queue.entries.len()).sum::<usize>());
        for (queue, head) in queues {
            let entries = &queue.entries;
            assert!(entries.iter().zip(entries.iter().skip(1)).all(|(one, next)| one.seq() < next.seq()));
            assert!(entries.back().is_none_or(|last| last.seq() < head.next_seq));
            let retained = entries.iter().filter(|entry| entry.is_retained_origin()).count();
            assert_eq!(queue.retained_count as usize, retained);
        }
        assert_eq!(state.subscription_count(), state.sessions().map(|session| session.subscriptions.len()).sum::<usize>());
        assert_eq!(state.session_count(), state.sessions().count());
        let connected: BTreeMap<_, _> =
            state.sessions().filter_map(|session| Some((session.client.clone(), session.connection?))).collect();
        assert_eq!(connected, self.told);
        assert_eq!(state.connected_count(), connected.len());
        for session in state.sessions() {
            assert!(session.queue_head.sent_seq < session.queue_head.next_seq);
            assert!(session.is_persistent() || session.connection.is_some());
            assert!(session.connection.is_none() || (session.expires_at_ms.is_none() && session.will_due_ms.is_none()));
            assert!(session.will_due_ms.is_none() || session.will.is_some());
        }
    }

    fn nothing_stays_due(&mut self) {
        let commands = Arc::new(vec![Command::Expire { limit: u32::MAX }]);
        self.apply(vec![Batch { node: NODES, incarnation: 1, first_seq: self.next_seq, commands }]);
        let last_ms = self.now_ms;
        assert!(self.running.next_expiry_ms().is_none_or(|due_ms| due_ms > last_ms));
        self.check();
    }

    fn command(&mut self, draw: &mut Draw<'_>) -> Command {
        let kind = draw.below(17);
        let client = ByteString::from_static(draw.pick(&CLIENTS));
        match kind {
            0 | 1 => self.connect(client, draw),
            2 => Command::Disconnect {
                connection: self.connection(&client, draw),
                client,
                initiator: Initiator::Client,
                reason_code: draw.maybe(Draw::byte),
                will: draw.flag(),
                session_expiry_interval_s: draw.maybe(seconds),
                sent_seq: self.sent_seq(draw),
            },
            3 => Command::NodeDown { node: draw.below(3) as u64, incarnation: draw.pick(&[0, 1, 2]) },
            4 => Command::Subscribe {
                connection: self.connection(&client, draw),
                client,
                subscriptions: (0..=draw.below(2)).map(|_| subscription(draw.pick(&TOPICS), qos(draw))).collect(),
            },
            5 => Command::Unsubscribe {
                connection: self.connection(&client, draw),
                client,
                filters: (0..=draw.below(2)).map(|_| a_filter(draw)).collect(),
            },
            6 | 7 => Command::Enqueue { message: self.message(draw), targets: targets(draw) },
            8 => Command::Receive {
                connection: self.connection(&client, draw),
                client,
                packet_id: packet_id(draw),
                message: self.message(draw),
                dead: draw.flag(),
            },
            9 => Command::Release { connection: self.connection(&client, draw), client, packet_id: packet_id(draw) },
            10 => {
                let first = self.running.queue_after(&client, 0, 1).first().map(|entry| entry.seq);
                Command::Acknowledge { connection: self.connection(&client, draw), client, steps: steps(first, draw) }
            }
            11 => {
                let first = self.running.group_queue_after(&a_group(), 0, 1).first().map(|entry| entry.seq);
                Command::AcknowledgeShared { group: a_group(), steps: steps(first, draw) }
            }
            12 => {
                let first = self.running.group_queue_after(&a_group(), 0, 1).first().map(|entry| entry.seq);
                let assignments = steps(first, draw).into_iter().map(|(seq, _)| Assignment {
                    seq,
                    client: client.clone(),
                    retain: false,
                    subscription_ids: SubscriptionIds::new(),
                });
                let (group, assignments) = (a_group(), assignments.collect());
                if draw.below(2) == 0 {
                    Command::AssignShared { group, assignments }
                } else {
                    Command::AssignSharedFrom { group, assignments }
                }
            }
            13 => {
                let next_seq = self.running.group(&a_group()).map_or(1, |group| group.queue_head.next_seq);
                Command::RemoveGroup { group: a_group(), next_seq: next_seq.saturating_sub(draw.below(2) as u64) }
            }
            14 => Command::Retain { message: self.message(draw) },
            15 => self.take(draw),
            _ => match draw.below(9) {
                0 => {
                    let outbox = self.running.outbox_after(Position::default(), usize::MAX);
                    let at = draw.below(outbox.len().clamp(1, 256));
                    Command::TrimOutbox { through: outbox.get(at).map_or(Position::default(), |(position, _)| *position) }
                }
                1 => Command::Expire { limit: draw.pick(&[0, 1, 3, u32::MAX]) },
                2 => Command::RemoveSession { client, reason_code: draw.byte(), will: draw.flag() },
                3 => Command::Kick { client, reason_code: draw.byte(), will: draw.flag() },
                4 | 5 => self.part(draw),
                7 => {
                    let head = self.running.group(&a_group()).map(|group| &group.queue_head);
                    let (from, next) = head.map_or((0, 1), |head| (head.sent_seq, head.next_seq));
                    let through = draw.pick(&[0, 1, next / 2, next, next.saturating_add(3), u64::MAX]);
                    Command::LendShared { group: a_group(), from: draw.pick(&[from, from, from, 0]), through }
                }
                6 if self.nested < NESTED_MAX => {
                    // Of whatever command: one without a large message is applied as it is, or refused.
                    self.nested += 1;
                    let command = Box::new(self.command(draw));
                    self.nested -= 1;
                    Command::Whole { command, cut: draw.pick(&[&[0_u32][..], &[0, 1], &[1, u32::MAX], &[]]).into() }
                }
                _ => Command::Whole { command: Box::new(Command::Retain { message: self.message(draw) }), cut: vec![0] },
            },
        }
    }

    fn connect(&mut self, client: ByteString, draw: &mut Draw<'_>) -> Command {
        self.connections += 1;
        let present = self.running.session(&client).and_then(|session| session.connection);
        let (clean_start, session_expiry_interval_s) = (draw.flag(), seconds(draw));
        let will = draw.maybe(|draw| will(draw.pick(&TOPICS), seconds(draw)));
        let (queue_limit, discard_oldest, flags) = (draw.pick(&QUEUE_LIMITS), draw.flag(), draw.byte());
        let take_over = match flags >> 5 {
            0..=2 => TakeOver::Any,
            3 => present.map_or(TakeOver::Any, TakeOver::Lost),
            4 | 5 => TakeOver::Settled(present),
            6 => TakeOver::Settled(None),
            _ => TakeOver::Settled(Some(on(0, 1, 0))),
        };
        let connect = ConnectCommand {
            clean_start,
            session_expiry_interval_s,
            will,
            queue_limit,
            discard_oldest,
            lifecycle: flags & 1 == 1,
            take_over,
            ..connect(&client, on(draw.below(3) as u64, 1 + draw.below(2) as u64, self.connections))
        };
        Command::connect(connect, 1 + flags as usize / 4, 3)
    }

    /// The session's current connection; sometimes another.
    fn connection(&self, client: &str, draw: &mut Draw<'_>) -> ConnectionRef {
        let current = self.running.session(client).and_then(|session| session.connection);
        if draw.byte() & 7 == 7 { on(0, 1, 0) } else { current.unwrap_or(on(0, 1, 0)) }
    }

    fn message(&self, draw: &mut Draw<'_>) -> Arc<Message> {
        let expiry_s = draw.maybe(seconds);
        let mut message = Message::clone(&expiring(draw.pick(&TOPICS), expiry_s, self.now_ms));
        let byte = draw.byte();
        message.qos = QoS::from_bits(byte & 3).unwrap_or_default();
        message.retain = byte & 4 != 0;
        if byte & 8 != 0 {
            message.payload.clear();
        }
        Arc::new(message)
    }

    fn sent_seq(&self, draw: &mut Draw<'_>) -> u64 {
        draw.pick(&[0, 1, 2, 7])
    }

    fn take(&self, draw: &mut Draw<'_>) -> Command {
        let source = ShardId(draw.below(3) as u16);
        let from = if draw.flag() { Position { index: 77, ordinal: 7 } } else { self.running.taken(source) };
        Command::Take(Box::new(TakeCommand {
            source,
            from,
            to: Position { index: from.index + 1, ordinal: 1 },
            enqueue: vec![(self.message(draw), targets(draw))],
            retain: draw.maybe(|draw| self.message(draw)).into_iter().collect(),
            republish: draw.maybe(|draw| self.message(draw)).into_iter().collect(),
        }))
    }
}

fn seconds(draw: &mut Draw<'_>) -> u32 {
    match draw.byte() {
        few @ 0..=20 => u32::from(few),
        21..=40 => u32::MAX,
        41..=50 => u32::MAX - 1,
        more => u32::from(more) * 100,
    }
}

fn qos(draw: &mut Draw<'_>) -> QoS {
    draw.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn packet_id(draw: &mut Draw<'_>) -> PacketId {
    PacketId::MIN.saturating_add(draw.pick(&[0, 1, 2, u16::MAX]))
}

fn a_group() -> GroupId {
    group("g", "t")
}

fn a_filter(draw: &mut Draw<'_>) -> SubscriptionFilter {
    filter(draw.pick(&TOPICS))
}

fn targets(draw: &mut Draw<'_>) -> Vec<Target> {
    let one = |draw: &mut Draw<'_>| {
        if draw.byte() & 3 == 3 {
            return Target::Group { group: a_group(), queue_limit: draw.pick(&QUEUE_LIMITS), discard_oldest: draw.flag() };
        }
        Target::Session {
            client: ByteString::from_static(draw.pick(&CLIENTS)),
            qos: qos(draw),
            retain: draw.flag(),
            subscription_ids: SubscriptionIds::new(),
            retained_origin: draw.flag(),
        }
    };
    let count = draw.pick(&[1, 2, 60]);
    let first = one(draw);
    if count == 60 { vec![first; 60] } else { [first].into_iter().chain((1..count).map(|_| one(draw))).collect() }
}

/// Steps about entries of a queue that begins with `first`, known or not.
fn steps(first: Option<u64>, draw: &mut Draw<'_>) -> Vec<(u64, QueueStep)> {
    let one = |draw: &mut Draw<'_>| {
        let seq = first.unwrap_or(1).saturating_add(draw.pick(&[0, 1, 2, 49, 50, u64::MAX]));
        let step = draw.pick(&[
            QueueStep::Completed,
            QueueStep::Received,
            QueueStep::Expired,
            QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded),
        ]);
        (seq, step)
    };
    (0..=draw.below(3)).map(|_| one(draw)).collect()
}
