//! Pairs of a publisher and a subscriber, each with a topic of its own, in a closed loop: a publisher sends on as its window allows.
//!
//! The window counts messages without PUBACK at QoS 1, and messages the subscriber has not yet got at QoS 0: there the server's
//! speed is measured and not how fast it can drop.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::client::{self, Client};
use super::publisher::Publisher;
use super::source;
use super::subscriber::Subscriber;
use crate::Failure;

const SETUP_WITHIN: Duration = Duration::from_secs(30);
/// For what is under way when publishing stops.
const DRAIN_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub address: SocketAddr,
    pub pairs: usize,
    pub window: u16,
    pub payload_bytes: usize,
    pub qos: QoS,
    pub sources: u8,
    pub threads: usize,
    pub version: ProtocolVersion,
}

/// Counted over the whole life of the load, warm-up included.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    pub sent: u64,
    pub received: u64,
    /// Received with a number not above one received before.
    pub out_of_order: u64,
    /// Acknowledged with an error.
    pub refused: u64,
}

impl Outcome {
    /// Sent and not received when all was quiet again.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received)
    }
}

/// All pairs, connected and subscribed.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Outcome, Failure>>>,
    /// Dropped to let the threads go.
    gates: Vec<Sender<()>>,
}

/// What the threads and the one who measures have in common.
pub struct Shared {
    pub stop: AtomicBool,
    received: Vec<AtomicU64>,
}

/// One pair, as its two halves on one thread see it.
pub struct Pair {
    pub plan: Plan,
    pub topic: String,
    pub shared: Arc<Shared>,
    pub sent: Cell<u64>,
    pub received: Cell<u64>,
    pub out_of_order: Cell<u64>,
    pub refused: Cell<u64>,
    /// Something was received.
    pub progress: Notify,
    thread: usize,
    failure: RefCell<Option<String>>,
}

/// Connects and subscribes all clients; nothing is published before [`Load::go`].
pub fn start(plan: &Plan) -> Result<Load, Failure> {
    let shared =
        Arc::new(Shared { stop: AtomicBool::new(false), received: (0..plan.threads).map(|_| AtomicU64::new(0)).collect() });
    let (mut threads, mut gates, mut ready) = (Vec::new(), Vec::new(), Vec::new());
    for thread in 0..plan.threads {
        let (gate, opened) = mpsc::channel();
        let (settled, is_settled) = mpsc::channel();
        let (plan, shared) = (*plan, Arc::clone(&shared));
        threads.push(thread::spawn(move || run_thread(plan, thread, shared, &settled, &opened)));
        gates.push(gate);
        ready.push(is_settled);
    }
    let load = Load { shared, threads, gates };
    if ready.into_iter().all(|ready| ready.recv().is_ok()) {
        return Ok(load);
    }
    Err(load.stop().err().unwrap_or_else(|| "a load thread could not start".into()))
}

impl Load {
    /// Starts publishing.
    pub fn go(&mut self) -> Result<(), Failure> {
        self.gates.drain(..).try_for_each(|gate| gate.send(())).map_err(|_| "a load thread ended before its start".into())
    }

    /// Messages all subscribers have got so far.
    pub fn received(&self) -> (Instant, u64) {
        (Instant::now(), self.shared.received.iter().map(|count| count.load(Ordering::Relaxed)).sum())
    }

    /// Stops publishing, waits for what is under way, closes all connections.
    pub fn stop(self) -> Result<Outcome, Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        drop(self.gates);
        let mut outcome = Outcome::default();
        for thread in self.threads {
            let part = thread.join().map_err(|_| "a load thread panicked")??;
            outcome.sent += part.sent;
            outcome.received += part.received;
            outcome.out_of_order += part.out_of_order;
            outcome.refused += part.refused;
        }
        Ok(outcome)
    }
}

impl Pair {
    /// Counts what one read brought.
    pub fn count_received(&self, count: u64) {
        self.received.set(self.received.get() + count);
        if let Some(total) = self.shared.received.get(self.thread) {
            total.fetch_add(count, Ordering::Relaxed);
        }
        self.progress.notify_one();
    }

    pub fn is_stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Keeps the first failure and stops the run: figures with a lost client are worth nothing.
    fn note(&self, who: &str, result: Result<(), Failure>) {
        if let Err(error) = result {
            self.failure.borrow_mut().get_or_insert_with(|| format!("{who} of {}: {error}", self.topic));
            self.shared.stop.store(true, Ordering::Relaxed);
            self.progress.notify_one();
        }
    }
}

fn run_thread(
    plan: Plan,
    thread: usize,
    shared: Arc<Shared>,
    settled: &Sender<()>,
    opened: &Receiver<()>,
) -> Result<Outcome, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let setup = tokio::time::timeout(SETUP_WITHIN, set_up(plan, thread, &shared));
        let pairs = setup.await.map_err(|_| "connecting and subscribing took too long")??;
        let _ = settled.send(());
        if opened.recv().is_err() {
            return Ok(Outcome::default());
        }
        exchange(pairs).await
    })
}

type Ready = (Rc<Pair>, Client, Client);

async fn set_up(plan: Plan, thread: usize, shared: &Arc<Shared>) -> Result<Vec<Ready>, Failure> {
    let mut pairs = Vec::new();
    for number in (thread..plan.pairs).step_by(plan.threads) {
        let from = source(number, plan.sources);
        let topic = format!("bench/pair/{number}");
        let mut receiver = client::open(plan.address, from, &format!("bench-sub-{number}"), plan.version).await?;
        receiver.subscribe(&topic, plan.qos).await?;
        let sender = client::open(plan.address, from, &format!("bench-pub-{number}"), plan.version).await?;
        let pair = Pair {
            plan,
            topic,
            shared: Arc::clone(shared),
            sent: Cell::new(0),
            received: Cell::new(0),
            out_of_order: Cell::new(0),
            refused: Cell::new(0),
            progress: Notify::new(),
            thread,
            failure: RefCell::new(None),
        };
        pairs.push((Rc::new(pair), sender, receiver));
    }
    Ok(pairs)
}

async fn exchange(ready: Vec<Ready>) -> Result<Outcome, Failure> {
    let (mut pairs, mut publishers, mut subscribers) = (Vec::new(), Vec::new(), Vec::new());
    for (pair, sender, receiver) in ready {
        let publisher = Publisher::new(Rc::clone(&pair), sender);
        let subscriber = Subscriber::new(Rc::clone(&pair), receiver);
        let (of_publisher, of_subscriber) = (Rc::clone(&pair), Rc::clone(&pair));
        subscribers.push(spawn_local(async move { of_subscriber.note("subscriber", subscriber.run().await) }));
        publishers.push(spawn_local(async move {
            let (connection, result) = publisher.run().await;
            of_publisher.note("publisher", result);
            connection
        }));
        pairs.push(pair);
    }
    // Held: a closed publisher would give the server other work while the last messages are under way.
    let mut connections = Vec::new();
    for publisher in publishers {
        connections.push(publisher.await?);
    }
    drain(&pairs).await;
    subscribers.iter().for_each(tokio::task::JoinHandle::abort);
    if let Some(failure) = pairs.iter().find_map(|pair| pair.failure.take()) {
        return Err(failure.into());
    }
    Ok(pairs.iter().fold(Outcome::default(), |sum, pair| Outcome {
        sent: sum.sent + pair.sent.get(),
        received: sum.received + pair.received.get(),
        out_of_order: sum.out_of_order + pair.out_of_order.get(),
        refused: sum.refused + pair.refused.get(),
    }))
}

/// Waits until all is received, or nothing more comes.
async fn drain(pairs: &[Rc<Pair>]) {
    let missing = || pairs.iter().map(|pair| pair.sent.get().saturating_sub(pair.received.get())).sum::<u64>();
    let began = Instant::now();
    while missing() > 0 && began.elapsed() < DRAIN_WITHIN {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
