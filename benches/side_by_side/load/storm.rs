//! Many clients that connect as fast as the server lets a bounded number of handshakes through, and stay.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::task::LocalSet;
use troupemq::mqtt::ProtocolVersion;

use super::{client, source};
use crate::Failure;

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy)]
pub struct StormPlan {
    pub address: SocketAddr,
    /// The number of the first client; those of one storm follow each other.
    pub first: usize,
    pub clients: usize,
    /// Under way at any time, over all threads.
    pub handshakes: usize,
    pub sources: u8,
    pub threads: usize,
    pub version: ProtocolVersion,
}

/// What came of it. The connections stay open as long as this is held.
pub struct Storm {
    pub held: Vec<TcpStream>,
    pub failed: usize,
    pub first_error: Option<String>,
    /// From the first attempt to the last CONNACK.
    pub elapsed: Duration,
    /// Ascending, from the first SYN to the CONNACK.
    handshakes_us: Vec<u64>,
    /// Dropped after the connections that are registered with them.
    _runtimes: Vec<Runtime>,
}

impl Storm {
    /// The handshake time that this part of all handshakes stayed under, in ms.
    pub fn handshake_ms(&self, part: f64) -> f64 {
        let last = self.handshakes_us.len().saturating_sub(1);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a position in the list")]
        let position = (last as f64 * part).round() as usize;
        self.handshakes_us.get(position).map_or(0.0, |us| *us as f64 / 1000.0)
    }
}

/// Connects all clients.
///
/// # Errors
/// When not a single client was accepted, or a thread could not start.
pub fn run(plan: &StormPlan) -> Result<Storm, Failure> {
    let barrier = Arc::new(Barrier::new(plan.threads + 1));
    let mut threads = Vec::new();
    for thread in 0..plan.threads {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (plan, barrier) = (*plan, Arc::clone(&barrier));
        threads.push(thread::spawn(move || {
            barrier.wait();
            let part = Rc::new(Part::new(plan, thread));
            LocalSet::new().block_on(&runtime, Rc::clone(&part).connect_all());
            let ended = Instant::now();
            (runtime, part.held.take(), part.handshakes_us.take(), part.errors.take(), ended)
        }));
    }
    barrier.wait();
    let began = Instant::now();
    let mut storm = Storm {
        held: Vec::new(),
        failed: 0,
        first_error: None,
        elapsed: Duration::ZERO,
        handshakes_us: Vec::new(),
        _runtimes: Vec::new(),
    };
    for thread in threads {
        let (runtime, held, handshakes_us, errors, ended) = thread.join().map_err(|_| "a load thread panicked")?;
        storm._runtimes.push(runtime);
        storm.held.extend(held);
        storm.handshakes_us.extend(handshakes_us);
        storm.failed += errors.len();
        storm.first_error = storm.first_error.or_else(|| errors.into_iter().next());
        storm.elapsed = storm.elapsed.max(ended - began);
    }
    storm.handshakes_us.sort_unstable();
    if storm.held.is_empty() {
        return Err(format!("no client was accepted: {}", storm.first_error.unwrap_or_default()).into());
    }
    Ok(storm)
}

/// What one thread does: the clients `thread`, `thread + threads`, and so on.
struct Part {
    plan: StormPlan,
    next: Cell<usize>,
    workers: usize,
    held: RefCell<Vec<TcpStream>>,
    handshakes_us: RefCell<Vec<u64>>,
    errors: RefCell<Vec<String>>,
}

impl Part {
    fn new(plan: StormPlan, thread: usize) -> Self {
        let workers = plan.handshakes / plan.threads + usize::from(thread < plan.handshakes % plan.threads);
        Self {
            plan,
            next: Cell::new(thread),
            workers,
            held: RefCell::default(),
            handshakes_us: RefCell::default(),
            errors: RefCell::default(),
        }
    }

    async fn connect_all(self: Rc<Self>) {
        let workers: Vec<_> = (0..self.workers.max(1)).map(|_| tokio::task::spawn_local(Rc::clone(&self).work())).collect();
        for worker in workers {
            let _ = worker.await;
        }
    }

    async fn work(self: Rc<Self>) {
        while let Some(number) = self.take_number() {
            let began = Instant::now();
            let id = format!("bench-{}", self.plan.first + number);
            let open = client::open(self.plan.address, source(number, self.plan.sources), &id, self.plan.version);
            match tokio::time::timeout(HANDSHAKE_WITHIN, open).await {
                Ok(Ok(client)) => {
                    self.handshakes_us.borrow_mut().push(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
                    self.held.borrow_mut().push(client.stream);
                }
                Ok(Err(error)) => self.errors.borrow_mut().push(error.to_string()),
                Err(_) => self.errors.borrow_mut().push(format!("no CONNACK within {} s", HANDSHAKE_WITHIN.as_secs())),
            }
        }
    }

    fn take_number(&self) -> Option<usize> {
        let number = self.next.get();
        self.next.set(number + self.plan.threads);
        (number < self.plan.clients).then_some(number)
    }
}
