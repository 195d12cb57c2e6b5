use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::cluster::PeerMessage;
use crate::cluster::raft::state_machine::{StateMachine, UNWRITTEN_RECORDS_MAX};
use crate::cluster::raft::type_config::{LogId, TypeConfig};
use crate::mqtt::{Message, Origin, QoS, SubscriptionIds};
use crate::replica::command::{Batch, ConnectCommand, TakeOver};
use crate::replica::event::Event;
use crate::replica::{ConnectionRef, Target};
use crate::signal::{ConnectionFacts, Initiator, TlsNames};
use crate::storage::{Mode, Storage};
use openraft::entry::RaftEntry;
use openraft::storage::RaftStateMachine;
use openraft::type_config::alias::LeaderIdOf;
use openraft::vote::RaftLeaderId;

#[derive(Default)]
struct Told(Mutex<Vec<Event>>);

impl Hooks for Told {
    fn shard_loaded(&self, _: ShardId, _: &State) {}

    fn applied(&self, _: ShardId, events: &[Event], _: bool) {
        self.0.lock().extend_from_slice(events);
    }

    fn leadership(&self, _: ShardId, _: bool) {}

    fn peer_message(&self, _: NodeId, _: PeerMessage) {}

    fn incarnation_lost(&self) {}
}

/// A store whose records cannot be read while it is broken, and that counts what is written.
struct Fragile {
    store: Arc<dyn StateStore>,
    broken: AtomicBool,
    /// Writes are refused.
    full: AtomicBool,
    writes: AtomicUsize,
}

impl Fragile {
    fn check(&self) -> Result<(), StorageError> {
        if self.broken.load(Ordering::Relaxed) { Err(StorageError::Engine("broken".to_owned())) } else { Ok(()) }
    }
}

impl Reads for Fragile {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.check().and_then(|()| self.store.get(key))
    }

    fn range(&self, first: &[u8], last: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StorageError> {
        self.check().and_then(|()| self.store.range(first, last, visit))
    }
}

impl StateStore for Fragile {
    fn write(&self, changes: Changes, applied: Vec<u8>) -> Result<(), StorageError> {
        if self.full.load(Ordering::Relaxed) {
            return Err(StorageError::Engine("the disk is full".to_owned()));
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.store.write(changes, applied)
    }

    fn applied(&self) -> Result<Option<Vec<u8>>, StorageError> {
        self.store.applied()
    }

    fn load(&self, visit: &mut dyn FnMut(&[u8], &[u8]) -> Result<(), StorageError>) -> Result<(), StorageError> {
        self.store.load(visit)
    }

    fn receive(&self) -> Result<Box<dyn Incoming>, StorageError> {
        self.store.receive()
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.store.flush()
    }
}

struct Rig {
    shard: Arc<Shard>,
    machine: StateMachine,
    told: Arc<Told>,
    store: Arc<Fragile>,
    index: u64,
}

impl Rig {
    async fn new() -> Self {
        let storage = Storage::open(std::path::Path::new(""), Mode::InMemory, "a", 1, 0).unwrap();
        let store = Arc::new(Fragile {
            store: storage.state(1).unwrap(),
            broken: AtomicBool::new(false),
            full: AtomicBool::new(false),
            writes: AtomicUsize::new(0),
        });
        let told = Arc::new(Told::default());
        let visibility = Arc::new(Visibility::new(1, 1, None));
        let shard = Shard::load(ShardId(0), 1, 1, Arc::clone(&store) as _, 0, Arc::clone(&told) as _, visibility).unwrap();
        let machine = StateMachine::new(Arc::clone(&shard) as _, Arc::clone(&store) as _, Arc::default()).await.unwrap();
        Self { shard, machine, told, store, index: 0 }
    }

    async fn apply(&mut self, command: Command) -> io::Result<()> {
        self.index += 1;
        let batch = Batch { node: 1, incarnation: 1, first_seq: self.index, commands: Arc::new(vec![command]) };
        let payload = Payload::Shard(Arc::new(Proposal { at_ms: 1000, batches: vec![batch] }));
        let leader = LeaderIdOf::<TypeConfig>::new(1, 1);
        let entry = openraft::impls::Entry::new_normal(LogId::new(leader.to_committed(), self.index), payload);
        self.machine.apply(futures_util::stream::iter([Ok((entry, None))])).await
    }

    async fn queue(&mut self, topic: &str) -> io::Result<()> {
        let target = Target::Session {
            client: "c".into(),
            qos: QoS::AtLeastOnce,
            retain: false,
            subscription_ids: SubscriptionIds::new(),
            retained_origin: false,
        };
        self.apply(Command::Enqueue { message: message(topic), targets: vec![target] }).await
    }

    fn told(&self) -> Vec<Event> {
        std::mem::take(&mut *self.told.0.lock())
    }
}

fn message(topic: &str) -> Arc<Message> {
    Arc::new(Message {
        topic: topic.into(),
        payload: "payload".into(),
        qos: QoS::AtLeastOnce,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval: None,
        received_at_ms: 1000,
        origin: Origin::Extension,
    })
}

fn connect(connection: ConnectionRef) -> Command {
    connect_as("c", connection)
}

fn connect_as(client_id: &str, connection: ConnectionRef) -> Command {
    let facts = ConnectionFacts {
        client_id: client_id.into(),
        client_id_assigned: false,
        client_ip: None,
        node_ip: None,
        listener_port: None,
        secure: false,
        protocol: crate::mqtt::ProtocolVersion::V5,
        username: None,
        tls: TlsNames::default(),
        connected_at_ms: 1000,
    };
    Command::Connect(Arc::new(ConnectCommand {
        connection,
        clean_start: false,
        session_expiry_interval_s: 100,
        will: None,
        facts: Arc::new(facts),
        user_properties: Vec::new(),
        queue_limit: 2,
        discard_oldest: true,
        lifecycle: false,
        take_over: TakeOver::Any,
    }))
}

/// A session that is offline and whose full queue is on disk.
async fn full() -> Rig {
    let mut rig = Rig::new().await;
    let connection = ConnectionRef { node: 1, incarnation: 1, connection: 1 };
    rig.apply(connect(connection)).await.unwrap();
    let disconnect = Command::Disconnect {
        client: "c".into(),
        connection,
        initiator: Initiator::Client,
        reason_code: None,
        will: false,
        session_expiry_interval_s: None,
        sent_seq: 0,
    };
    rig.apply(disconnect).await.unwrap();
    rig.queue("one").await.unwrap();
    rig.queue("two").await.unwrap();
    rig.machine.applied().write().unwrap();
    rig.told();
    rig
}

#[tokio::test]
async fn what_is_queued_leaves_memory_when_it_is_written() {
    let mut rig = full().await;
    assert_eq!(rig.store.writes.load(Ordering::Relaxed), 1, "what was applied is written together");
    let look = rig.shard.state.read().look("c", 0, 10);
    assert_eq!(look.found.iter().filter(|found| found.entry.is_none()).count(), 2);
    assert_eq!(look.fetch.unwrap().run().unwrap().len(), 2);
    rig.queue("three").await.unwrap();
    let topics: Vec<_> = rig.told().iter().filter_map(dropped).collect();
    assert_eq!(topics, ["one"]);
}

#[tokio::test]
async fn changes_are_written_together_when_there_are_many_of_them() {
    let mut rig = Rig::new().await;
    while rig.shard.unwritten().records < UNWRITTEN_RECORDS_MAX - 2 {
        assert_eq!(rig.store.writes.load(Ordering::Relaxed), 0);
        let connection = ConnectionRef { node: 1, incarnation: 1, connection: rig.index };
        rig.apply(connect_as(&format!("c{}", rig.index), connection)).await.unwrap();
    }
    let connection = ConnectionRef { node: 1, incarnation: 1, connection: rig.index };
    rig.apply(connect_as("last", connection)).await.unwrap();
    assert_eq!(rig.store.writes.load(Ordering::Relaxed), 1, "so many are written at once");
    assert_eq!(rig.shard.unwritten().records, 0);
    let applied = rig.machine.applied().write().unwrap().last_log_id.map(|id| id.index());
    assert_eq!(applied, Some(rig.index));
    assert_eq!(rig.store.writes.load(Ordering::Relaxed), 1, "nothing is left to write");
}

/// Enough to be written if it were not known that they passed.
const PASSING_MAX: u64 = 16 * UNWRITTEN_RECORDS_MAX as u64;

/// What comes and goes between two writes costs the disk nothing, however much of it there is.
#[tokio::test]
async fn a_message_that_comes_and_goes_is_never_written() {
    let mut rig = Rig::new().await;
    let connection = ConnectionRef { node: 1, incarnation: 1, connection: 1 };
    rig.apply(connect(connection)).await.unwrap();
    rig.machine.applied().write().unwrap();
    for seq in 1..=PASSING_MAX {
        rig.queue("passing").await.unwrap();
        let steps = vec![(seq, crate::replica::command::QueueStep::Completed)];
        rig.apply(Command::Acknowledge { client: "c".into(), connection, steps }).await.unwrap();
    }
    assert_eq!(rig.store.writes.load(Ordering::Relaxed), 1);
    rig.queue("stays").await.unwrap();
    let changes = rig.shard.take_changes().unwrap();
    let kinds: Vec<_> = changes.iter().map(|(key, value)| (key[0], value.is_some())).collect();
    assert_eq!(kinds.len(), 3, "the head, the queue's head and the message that stays: {kinds:?}");
    assert!(kinds.iter().all(|(_, is_there)| *is_there), "nothing is deleted that was never there: {kinds:?}");
}

/// The changes of a write that failed are lost to a later one: it must not say that the store has them.
#[tokio::test]
async fn after_a_write_that_failed_nothing_is_written_or_told() {
    let mut rig = full().await;
    let stored = rig.store.applied().unwrap();
    rig.store.full.store(true, Ordering::Relaxed);
    rig.queue("three").await.unwrap();
    rig.told();
    assert!(rig.machine.applied().write().unwrap_err().to_string().contains("full"));
    rig.store.full.store(false, Ordering::Relaxed);
    assert!(rig.machine.applied().write().is_err());
    assert!(rig.queue("four").await.is_err());
    assert_eq!(rig.told(), Vec::new());
    assert_eq!(rig.store.applied().unwrap(), stored, "a restart applies it again");
}

/// The message that makes room cannot be read, so it cannot be reported: neither the report nor anything behind it gets out.
#[tokio::test]
async fn nothing_that_was_applied_without_a_message_it_needed_is_written_or_told() {
    let mut rig = full().await;
    rig.store.broken.store(true, Ordering::Relaxed);
    let writes = rig.store.writes.load(Ordering::Relaxed);
    let stored = rig.store.applied().unwrap();
    assert!(rig.queue("three").await.unwrap_err().to_string().contains("broken"));
    rig.store.broken.store(false, Ordering::Relaxed);
    assert!(rig.queue("four").await.is_err());
    assert!(rig.machine.applied().write().is_err(), "nor does the ticker write it");
    assert!(rig.shard.read(State::outbox_bounds).is_none(), "nobody acts on what it says");
    assert_eq!((rig.told(), rig.store.writes.load(Ordering::Relaxed)), (Vec::new(), writes));
    assert_eq!(rig.store.applied().unwrap(), stored, "a restart applies it again");
}

fn dropped(event: &Event) -> Option<String> {
    let Event::Outbox { event, .. } = event else { return None };
    let crate::replica::OutboxEvent::Dropped(dropped) = &**event else { return None };
    Some(dropped.message.topic.to_string())
}
