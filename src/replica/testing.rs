//! A shard on a bench: commands in, outcomes and events out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use parking_lot::Mutex;

use super::cold::{ReadError, StoredRecords};
use super::command::{Batch, Command, ConnectCommand, Proposal, QueueStep, SubscriptionRecord, Target, WillRecord};
use super::event::{Applied, Event, OutboxEvent, Outcome};
use super::ids::{ConnectionRef, Incarnation, NodeId, ShardId};
use super::state::State;
use crate::mqtt::packet::{RetainHandling, SubscriptionOptions};
use crate::mqtt::{GroupId, Message, Origin, ProtocolVersion, QoS, SubscriptionFilter};
use crate::signal::{ConnectionFacts, Initiator, LifecycleEvent, TlsNames};

/// Records on a disk that is a map.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<DiskContent>>);

#[derive(Debug, Default)]
struct DiskContent {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Point reads, and reads of ranges.
    reads: (usize, usize),
    broken: bool,
}

impl Disk {
    /// Writes what changed, and tells the state.
    pub(super) fn write(&self, state: &mut State) {
        let changes = state.take_changes();
        let records = &mut self.0.lock().records;
        for (key, value) in changes {
            match value {
                Some(value) => records.insert(key, value),
                None => records.remove(&key),
            };
        }
        state.written();
    }

    pub(super) fn records(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.0.lock().records.clone()
    }

    pub(super) fn reads(&self) -> (usize, usize) {
        std::mem::take(&mut self.0.lock().reads)
    }

    /// Whoever reads finds an error from now on, or no more.
    pub(super) fn set_broken(&self, broken: bool) {
        self.0.lock().broken = broken;
    }

    /// A state that has nothing in memory that it need not.
    pub(super) fn load(&self, resident_bytes_max: usize) -> State {
        let mut state = State::over(ShardId(0), Arc::new(self.clone()), resident_bytes_max);
        for (key, value) in self.records() {
            state.load(&key, &value).unwrap();
        }
        state.finish_load();
        assert_eq!(state.failure(), None);
        state
    }

    /// The same, all in memory.
    pub(super) fn load_whole(&self) -> State {
        let mut state = State::new(ShardId(0));
        for (key, value) in self.records() {
            state.load(&key, &value).unwrap();
        }
        state.finish_load();
        state
    }
}

impl StoredRecords for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, ReadError> {
        let mut content = self.0.lock();
        content.reads.0 += 1;
        if content.broken { Err(ReadError("broken".to_owned())) } else { Ok(content.records.get(key).cloned()) }
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), ReadError> {
        let mut content = self.0.lock();
        content.reads.1 += 1;
        if content.broken {
            return Err(ReadError("broken".to_owned()));
        }
        let _ = content.records.range(first.to_vec()..=last.to_vec()).all(|(key, value)| visit(key, value));
        Ok(())
    }
}

/// The node that proposes on behalf of the shard; never dead.
pub(super) const LEADER: NodeId = 99;

#[derive(Debug)]
pub(super) struct Bench {
    pub state: State,
    pub now_ms: u64,
    pub index: u64,
    seqs: BTreeMap<(NodeId, Incarnation), u64>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { state: State::new(ShardId(0)), now_ms: 1_000_000, index: 0, seqs: BTreeMap::new() }
    }

    /// Applies one command of the leader in an entry of its own.
    pub(super) fn run(&mut self, command: Command) -> (Outcome, Vec<Event>) {
        let (outcome, events) = self.run_from(LEADER, 1, command);
        (outcome.unwrap(), events)
    }

    pub(super) fn run_from(&mut self, node: NodeId, incarnation: Incarnation, command: Command) -> (Option<Outcome>, Vec<Event>) {
        let mut applied = self.apply_from(node, incarnation, vec![command]);
        (applied.answers.pop().map(|answer| answer.outcome), applied.events)
    }

    pub(super) fn apply_from(&mut self, node: NodeId, incarnation: Incarnation, commands: Vec<Command>) -> Applied {
        let seq = self.seqs.entry((node, incarnation)).or_insert(0);
        let first_seq = *seq + 1;
        *seq += commands.len() as u64;
        self.apply_batches(vec![Batch { node, incarnation, first_seq, commands: Arc::new(commands) }])
    }

    pub(super) fn apply_batches(&mut self, batches: Vec<Batch>) -> Applied {
        self.index += 1;
        self.state.apply(self.index, &Proposal { at_ms: self.now_ms, batches })
    }

    /// Lets time pass and does all that is due.
    pub(super) fn pass(&mut self, ms: u64) -> Vec<Event> {
        self.now_ms += ms;
        self.run(Command::Expire { limit: 1000 }).1
    }

    pub(super) fn connect(&mut self, connect: ConnectCommand) -> (Outcome, Vec<Event>) {
        self.run(Command::Connect(Arc::new(connect)))
    }

    pub(super) fn enqueue(&mut self, client: &str, message: &Arc<Message>) -> Vec<Event> {
        self.run(Command::Enqueue { message: message.clone(), targets: vec![to_session(client)] }).1
    }

    pub(super) fn acknowledge(&mut self, client: &str, on: ConnectionRef, seq: u64, step: QueueStep) -> Vec<Event> {
        self.run(Command::Acknowledge { client: client.into(), connection: on, steps: vec![(seq, step)] }).1
    }

    pub(super) fn queued_seqs(&self, client: &str) -> Vec<u64> {
        self.state.queue_after(client, 0, usize::MAX).iter().map(|entry| entry.seq).collect()
    }

    /// Goes on where another came to, with a state made from its records.
    pub(super) fn resume(&mut self, other: &Self) {
        self.state = other.reloaded();
        self.seqs = other.seqs.clone();
    }

    /// A state made from the records of this one.
    pub(super) fn reloaded(&self) -> State {
        let mut state = State::new(self.state.shard());
        for (key, value) in self.state.records() {
            state.load(&key, &value).unwrap();
        }
        state.finish_load();
        state
    }
}

pub(super) fn on(node: NodeId, incarnation: Incarnation, connection: u64) -> ConnectionRef {
    ConnectionRef { node, incarnation, connection }
}

/// A CONNECT that keeps its session for 100 s, queues up to 10 messages and wants lifecycle events.
pub(super) fn connect(client: &str, connection: ConnectionRef) -> ConnectCommand {
    ConnectCommand {
        connection,
        clean_start: false,
        session_expiry_interval_s: 100,
        will: None,
        facts: facts(client),
        user_properties: vec![("k".into(), "v".into())],
        queue_limit: 10,
        discard_oldest: false,
        lifecycle: true,
        take_over: super::command::TakeOver::Any,
    }
}

pub(super) fn facts(client: &str) -> Arc<ConnectionFacts> {
    Arc::new(ConnectionFacts {
        client_id: client.into(),
        client_id_assigned: false,
        client_ip: Some("192.0.2.1".into()),
        node_ip: None,
        listener_port: Some(1883),
        secure: false,
        protocol: ProtocolVersion::V5,
        username: None,
        tls: TlsNames::default(),
        connected_at_ms: 1_000_000,
    })
}

pub(super) fn disconnect(client: &str, connection: ConnectionRef, will: bool) -> Command {
    Command::Disconnect {
        client: client.into(),
        connection,
        initiator: Initiator::Client,
        reason_code: Some(0),
        will,
        session_expiry_interval_s: None,
        sent_seq: 0,
    }
}

pub(super) fn message(topic: &str) -> Arc<Message> {
    expiring(topic, None, 0)
}

pub(super) fn expiring(topic: &str, message_expiry_interval: Option<u32>, received_at_ms: u64) -> Arc<Message> {
    Arc::new(Message {
        topic: topic.into(),
        payload: Bytes::from_static(b"payload"),
        qos: QoS::AtLeastOnce,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval,
        received_at_ms,
        origin: Origin::Client("publisher".into()),
    })
}

pub(super) fn will(topic: &str, delay_interval_s: u32) -> WillRecord {
    WillRecord { message: message(topic), delay_interval_s }
}

pub(super) fn to_session(client: &str) -> Target {
    Target::Session {
        client: client.into(),
        qos: QoS::AtLeastOnce,
        retain: false,
        subscription_ids: [7].into_iter().collect(),
        retained_origin: false,
    }
}

pub(super) fn group(share: &str, filter: &str) -> GroupId {
    GroupId { share: share.into(), filter: filter.into() }
}

pub(super) fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter { share: None, filter: text.into() }
}

pub(super) fn subscription(text: &str, qos: QoS) -> SubscriptionRecord {
    let options = SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
    SubscriptionRecord { filter: filter(text), options, identifier: Some(7) }
}

/// The outbox events among events, in short: `+client`, `-client Initiator code`, `publish topic`, `drop topic`, `expire topic`.
pub(super) fn outbox_of(events: &[Event]) -> Vec<String> {
    events.iter().filter_map(outbox_event).map(shown).collect()
}

fn outbox_event(event: &Event) -> Option<&OutboxEvent> {
    match event {
        Event::Outbox { event, .. } => Some(event),
        Event::Connected { .. }
        | Event::Disconnected { .. }
        | Event::Close { .. }
        | Event::SessionRemoved { .. }
        | Event::Subscribed { .. }
        | Event::Unsubscribed { .. }
        | Event::Queued { .. }
        | Event::GroupQueued { .. }
        | Event::GroupDeclared { .. }
        | Event::GroupRemoved { .. } => None,
    }
}

pub(super) fn shown(event: &OutboxEvent) -> String {
    match event {
        OutboxEvent::Lifecycle(lifecycle) => {
            let client: &ByteString = &lifecycle.facts.client_id;
            match &lifecycle.event {
                LifecycleEvent::Connected { .. } => format!("+{client}"),
                LifecycleEvent::Disconnected { initiator, reason_code } => {
                    let code = reason_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
                    format!("-{client} {} {code}", initiator.text())
                }
            }
        }
        OutboxEvent::Dropped(dropped) => format!("drop {}", dropped.message.topic),
        OutboxEvent::Expired(expired) => format!("expire {}", expired.message.topic),
        OutboxEvent::Assigned { client, message, .. } | OutboxEvent::AssignedFrom { client, message, .. } => {
            format!("assign {} to {client}", message.topic)
        }
        OutboxEvent::Returned { group, message } => format!("return {} to {}", message.topic, group.full()),
        OutboxEvent::Publish { message, .. } => format!("publish {}", message.topic),
    }
}
