//! The network between simulated nodes, at the level of TCP: what loss, duplication and reordering of packets do to a connection is delay, a
//! stall while a direction is cut, and its end. Bytes move between turns of the nodes.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use rand::Rng;
use rand::rngs::StdRng;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::simulated::Net;
use crate::cluster::transport_socket::{Listener, Stream};

/// Bytes a connection holds in each direction before its writer waits.
const SOCKET_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// How long TCP takes at most to send again what was lost.
const RESEND_MS_MAX: u64 = 400;

/// One direction between two nodes.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Nothing passes.
    pub cut: bool,
    pub delay_ms: (u64, u64),
    /// Out of 1,000 pieces so many have to be sent again.
    pub loss: u32,
}

impl Default for Way {
    fn default() -> Self {
        Self { cut: false, delay_ms: (1, 4), loss: 0 }
    }
}

pub struct Network {
    inner: RefCell<Inner>,
}

struct Inner {
    rng: StdRng,
    now_ms: u64,
    /// The node whose turn it is.
    turn: usize,
    nodes: usize,
    /// From, to.
    ways: Vec<Way>,
    listeners: BTreeMap<SocketAddr, (usize, mpsc::Sender<(Stream, SocketAddr)>)>,
    dials: Vec<Dial>,
    connections: Vec<Connection>,
    /// What one read takes up: made once, as every end is asked in every step.
    buffer: Box<[u8]>,
    pub bytes: u64,
    pub connects: u64,
}

struct Dial {
    from: usize,
    address: SocketAddr,
    due_ms: u64,
    answer: oneshot::Sender<io::Result<Stream>>,
}

/// Two ends, held by the network; the nodes hold the other halves. `None`: that process is gone and nobody was told.
struct Connection {
    ends: [Option<DuplexStream>; 2],
    nodes: [usize; 2],
    /// On the way from end 0 to end 1, and back.
    flights: [VecDeque<(u64, Vec<u8>)>; 2],
    /// The end was closed by its node; the other learns of it behind what is in flight.
    closed: [bool; 2],
    /// What the end wrote and was not delivered is lost when it is closed.
    discarded: [Arc<AtomicBool>; 2],
    reset: bool,
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(node + 1).unwrap_or(u8::MAX)], 7_000))
}

fn node_of(address: SocketAddr) -> usize {
    match address.ip() {
        std::net::IpAddr::V4(ip) => usize::from(ip.octets()[3]).saturating_sub(1),
        std::net::IpAddr::V6(_) => 0,
    }
}

impl Network {
    pub fn new(nodes: usize, rng: StdRng) -> Self {
        let inner = Inner {
            rng,
            now_ms: 0,
            turn: 0,
            nodes,
            ways: vec![Way::default(); nodes * nodes],
            listeners: BTreeMap::new(),
            dials: Vec::new(),
            connections: Vec::new(),
            buffer: vec![0; READ_BYTES].into(),
            bytes: 0,
            connects: 0,
        };
        Self { inner: RefCell::new(inner) }
    }

    pub fn set_turn(&self, node: usize) {
        self.inner.borrow_mut().turn = node;
    }

    pub fn change_way(&self, from: usize, to: usize, change: impl FnOnce(&mut Way)) {
        let inner = &mut *self.inner.borrow_mut();
        let at = from * inner.nodes + to;
        change(&mut inner.ways[at]);
    }

    pub fn heal(&self) {
        self.inner.borrow_mut().ways.fill(Way::default());
    }

    /// Whether one direction between two nodes, or both, is cut.
    pub fn is_cut(&self, a: usize, b: usize) -> bool {
        let inner = self.inner.borrow();
        inner.way(a, b).cut || inner.way(b, a).cut
    }

    pub fn totals(&self) -> (u64, u64) {
        let inner = self.inner.borrow();
        (inner.bytes, inner.connects)
    }

    /// The node's process is gone: with `told`, its kernel ends its connections; else whoever speaks to it hears nothing.
    pub fn process_gone(&self, node: usize, told: bool) {
        let inner = &mut *self.inner.borrow_mut();
        inner.listeners.retain(|_, (listening, _)| *listening != node);
        inner.dials.retain(|dial| dial.from != node);
        for connection in &mut inner.connections {
            for side in 0..2 {
                if connection.nodes[side] == node {
                    connection.ends[side] = None;
                    connection.closed[side] |= told;
                }
            }
        }
    }

    /// Ends all connections between two nodes.
    pub fn reset(&self, a: usize, b: usize) {
        for connection in &mut self.inner.borrow_mut().connections {
            connection.reset |= connection.nodes == [a, b] || connection.nodes == [b, a];
        }
    }

    /// Moves what is due.
    pub fn step(&self, now_ms: u64, is_up: impl Fn(usize) -> bool) {
        let inner = &mut *self.inner.borrow_mut();
        inner.now_ms = now_ms;
        inner.connect_due(&is_up);
        let mut connections = std::mem::take(&mut inner.connections);
        connections.retain_mut(|connection| {
            inner.take_up(connection);
            inner.set_down(connection, &is_up);
            !connection.reset && connection.ends.iter().any(Option::is_some)
        });
        connections.append(&mut inner.connections);
        inner.connections = connections;
    }
}

impl Inner {
    fn way(&self, from: usize, to: usize) -> Way {
        self.ways[from * self.nodes + to]
    }

    fn delay(&mut self, way: Way) -> u64 {
        let again = if self.rng.random_ratio(way.loss.min(1_000), 1_000) { self.rng.random_range(50..=RESEND_MS_MAX) } else { 0 };
        self.rng.random_range(way.delay_ms.0..=way.delay_ms.1) + again
    }

    fn connect_due(&mut self, is_up: &impl Fn(usize) -> bool) {
        let now_ms = self.now_ms;
        let (due, later) = std::mem::take(&mut self.dials).into_iter().partition(|dial: &Dial| dial.due_ms <= now_ms);
        self.dials = later;
        for dial in due {
            let to = node_of(dial.address);
            if self.way(dial.from, to).cut || self.way(to, dial.from).cut || (to < self.nodes && !is_up(to)) {
                // SYNs are sent again until the caller gives up.
                if !dial.answer.is_closed() {
                    self.dials.push(Dial { due_ms: now_ms + 200, ..dial });
                }
                continue;
            }
            let Some((_, accepting)) = self.listeners.get(&dial.address) else {
                let _ = dial.answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
                continue;
            };
            let (dialed, dialed_end) = tokio::io::duplex(SOCKET_BYTES);
            let (accepted, accepted_end) = tokio::io::duplex(SOCKET_BYTES);
            let discarded: [Arc<AtomicBool>; 2] = Default::default();
            let ends = [Arc::clone(&discarded[0]), Arc::clone(&discarded[1])];
            let [dialed_discards, accepted_discards] = ends;
            if accepting.try_send((Stream::Simulated(accepted, accepted_discards), address(dial.from))).is_err()
                || dial.answer.send(Ok(Stream::Simulated(dialed, dialed_discards))).is_err()
            {
                continue;
            }
            self.connects += 1;
            self.connections.push(Connection {
                ends: [Some(dialed_end), Some(accepted_end)],
                nodes: [dial.from, to],
                flights: Default::default(),
                closed: [false; 2],
                discarded,
                reset: false,
            });
        }
    }

    /// Takes up what the nodes wrote.
    fn take_up(&mut self, connection: &mut Connection) {
        for side in 0..2 {
            let way = self.way(connection.nodes[side], connection.nodes[1 - side]);
            if connection.discarded[side].load(Ordering::Relaxed) {
                connection.closed[side] = true;
                connection.flights[side].clear();
            }
            while let Some(end) = connection.ends[side].as_mut() {
                if connection.closed[side] {
                    break;
                }
                match poll_now(|cx| poll_read(end, &mut self.buffer, cx)) {
                    Poll::Ready(Ok(bytes)) if !bytes.is_empty() => {
                        self.bytes += bytes.len() as u64;
                        let after = connection.flights[side].back().map_or(0, |(due_ms, _)| *due_ms);
                        let due_ms = (self.now_ms + self.delay(way)).max(after);
                        connection.flights[side].push_back((due_ms, bytes));
                    }
                    Poll::Ready(_) => connection.closed[side] = true,
                    Poll::Pending => break,
                }
            }
        }
    }

    /// Sets down at the nodes what arrives.
    fn set_down(&mut self, connection: &mut Connection, is_up: &impl Fn(usize) -> bool) {
        for side in 0..2 {
            let (from, to) = (connection.nodes[side], connection.nodes[1 - side]);
            let way = self.way(from, to);
            if way.cut || !is_up(to) {
                // Sent again some time after the way is open.
                let again = self.now_ms + self.rng.random_range(10..=RESEND_MS_MAX);
                if let Some((due_ms, _)) = connection.flights[side].front_mut() {
                    *due_ms = (*due_ms).max(again);
                }
                continue;
            }
            while let Some((due_ms, bytes)) = connection.flights[side].front_mut() {
                if *due_ms > self.now_ms {
                    break;
                }
                let Some(end) = connection.ends[1 - side].as_mut() else {
                    // A process that started anew knows nothing of the connection.
                    connection.reset = true;
                    break;
                };
                match poll_now(|cx| Pin::new(&mut *end).poll_write(cx, bytes)) {
                    Poll::Ready(Ok(written)) if written < bytes.len() => drop(bytes.drain(..written)),
                    Poll::Ready(Ok(_)) => drop(connection.flights[side].pop_front()),
                    Poll::Ready(Err(_)) => {
                        connection.reset = true;
                        break;
                    }
                    Poll::Pending => break,
                }
            }
            if connection.closed[side] && connection.flights[side].is_empty() {
                connection.reset = true;
            }
        }
    }
}

fn poll_now<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

fn poll_read(end: &mut DuplexStream, buffer: &mut [u8], cx: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
    let mut read = ReadBuf::new(buffer);
    Pin::new(end).poll_read(cx, &mut read).map_ok(|()| read.filled().to_vec())
}

impl Net for Network {
    fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        let inner = &mut *self.inner.borrow_mut();
        let (accepted, accepting) = mpsc::channel(128);
        inner.listeners.insert(address, (inner.turn, accepted));
        Ok(Listener::Simulated(tokio::sync::Mutex::new(accepting)))
    }

    fn connect(&self, address: &str) -> Box<dyn Future<Output = io::Result<Stream>> + Send + Unpin> {
        let inner = &mut *self.inner.borrow_mut();
        let (answer, mut answered) = oneshot::channel();
        if let Ok(address) = address.parse() {
            let due_ms = inner.now_ms + inner.rng.random_range(1..=8);
            inner.dials.push(Dial { from: inner.turn, address, due_ms, answer });
        }
        let gone = || Err(io::ErrorKind::NotConnected.into());
        Box::new(poll_fn(move |cx| Pin::new(&mut answered).poll(cx).map(|answer| answer.unwrap_or_else(|_| gone()))))
    }
}
