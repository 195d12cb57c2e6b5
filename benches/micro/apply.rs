//! The replicated state of a shard: entries as the log brings them, at several numbers of sessions.

use std::sync::Arc;

use bytestring::ByteString;
use criterion::{BenchmarkId, Criterion, Throughput};
use troupemq::mqtt::{Message, ProtocolVersion, QoS, SubscriptionIds};
use troupemq::replica::command::{QueueStep, TakeOver};
use troupemq::replica::{Batch, Command, ConnectCommand, ConnectionRef, Proposal, ShardId, State, Target};
use troupemq::signal::{ConnectionFacts, Initiator, TlsNames};

use crate::make;

/// Commands of an entry.
const BATCH: usize = 100;

pub fn all(criterion: &mut Criterion) {
    let message = make::message(QoS::AtLeastOnce);
    for sessions in [1_000_usize, 10_000, 100_000] {
        let mut bench = Shard::with(sessions);
        let mut group = criterion.benchmark_group("apply: a client connects and goes, among so many sessions");
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(BenchmarkId::from_parameter(sessions), |bencher| {
            bencher.iter(|| {
                let commands = (0..BATCH).flat_map(|n| [connect(sessions + n, 0), disconnect(sessions + n)]).collect();
                bench.apply(commands);
            });
        });
        group.finish();
        let mut group = criterion.benchmark_group("apply: a message is queued and acknowledged, among so many sessions");
        group.throughput(Throughput::Elements(BATCH as u64));
        let mut first = 0;
        group.bench_function(BenchmarkId::from_parameter(sessions), |bencher| {
            bencher.iter(|| {
                let clients: Vec<usize> = (0..BATCH).map(|n| (first + n) % sessions).collect();
                first += BATCH;
                bench.apply(clients.iter().map(|client| enqueue(*client, &message)).collect());
                let acknowledged = clients.iter().map(|client| bench.acknowledge(*client)).collect();
                bench.apply(acknowledged);
            });
        });
        group.finish();
    }
}

struct Shard {
    state: State,
    index: u64,
    seq: u64,
}

impl Shard {
    /// That many persistent sessions, connected.
    fn with(sessions: usize) -> Self {
        let mut shard = Self { state: State::new(ShardId(0)), index: 0, seq: 0 };
        for first in (0..sessions).step_by(BATCH) {
            shard.apply((first..first + BATCH).map(|client| connect(client, 3600)).collect());
        }
        assert_eq!(shard.state.session_count(), sessions);
        shard
    }

    /// As the storage does behind it: what changed is taken and written.
    fn apply(&mut self, commands: Vec<Command>) {
        self.index += 1;
        let first_seq = self.seq + 1;
        self.seq += commands.len() as u64;
        let batches = vec![Batch { node: 1, incarnation: 1, first_seq, commands: Arc::new(commands) }];
        self.state.apply(self.index, &Proposal { at_ms: make::NOW_MS, batches });
        let (_, through) = self.state.outbox_bounds();
        self.index += 1;
        self.seq += 1;
        let trim = vec![Command::TrimOutbox { through }];
        let batches = vec![Batch { node: 1, incarnation: 1, first_seq: self.seq, commands: Arc::new(trim) }];
        self.state.apply(self.index, &Proposal { at_ms: make::NOW_MS, batches });
        self.state.take_changes();
        self.state.written();
    }

    fn acknowledge(&self, client: usize) -> Command {
        let seq = self.state.queue_after(&name(client), 0, 1).first().map_or(0, |entry| entry.seq);
        Command::Acknowledge { client: name(client), connection: connection(client), steps: vec![(seq, QueueStep::Completed)] }
    }
}

fn name(client: usize) -> ByteString {
    format!("gateway-{client:08}").into()
}

fn connection(client: usize) -> ConnectionRef {
    ConnectionRef { node: 1, incarnation: 1, connection: client as u64 }
}

fn connect(client: usize, session_expiry_interval_s: u32) -> Command {
    Command::Connect(Arc::new(ConnectCommand {
        connection: connection(client),
        clean_start: true,
        session_expiry_interval_s,
        will: None,
        facts: Arc::new(ConnectionFacts {
            client_id: name(client),
            client_id_assigned: false,
            client_ip: Some("192.0.2.1".into()),
            node_ip: Some("192.0.2.2".into()),
            listener_port: Some(1883),
            secure: false,
            protocol: ProtocolVersion::V5,
            username: None,
            tls: TlsNames::default(),
            connected_at_ms: make::NOW_MS,
        }),
        user_properties: Vec::new(),
        queue_limit: 1_000,
        discard_oldest: false,
        lifecycle: true,
        take_over: TakeOver::Any,
    }))
}

fn disconnect(client: usize) -> Command {
    Command::Disconnect {
        client: name(client),
        connection: connection(client),
        initiator: Initiator::Client,
        reason_code: Some(0),
        will: false,
        session_expiry_interval_s: None,
        sent_seq: 0,
    }
}

fn enqueue(client: usize, message: &Arc<Message>) -> Command {
    let target = Target::Session {
        client: name(client),
        qos: QoS::AtLeastOnce,
        retain: false,
        subscription_ids: SubscriptionIds::new(),
        retained_origin: false,
    };
    Command::Enqueue { message: Arc::clone(message), targets: vec![target] }
}
