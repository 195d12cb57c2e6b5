//! One dialed connection to a peer, kept up.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::cluster::chance;
use crate::cluster::clock::monotonic_ms;
use crate::cluster::control::FEATURES;
use crate::cluster::peer_message::PeerMessage;
use crate::cluster::raft::rpc::{Request, Response};
use crate::telemetry::PeerLinkSample;

use super::bulk::Bulk;
use super::frame::{Class, Inbound, Outbound, frame, read_frame};
use super::hello::{self, HelloError, Introduction};
use super::peer::Peer;
use super::relay::{self, Connection};
use super::socket::{Reading, Stream, Writing};
use super::{CallError, Transport, tls};

/// Frames waiting on one link.
const QUEUE_FRAMES_MAX: usize = 8192;
/// Bytes waiting on one link; one frame may pass it.
const QUEUE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Frames written between two flushes.
const WRITE_FRAMES_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
const PING_INTERVAL: Duration = Duration::from_millis(500);
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// A peer that was heard within this and refuses a connection has ended, and took its connections with it; where it was silent before, the
/// refusal may be a firewall's.
const ENDED_MS: u64 = 1_500;
/// What waits on a link that goes back to the direct way is written within this.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// The sending end of a link, up or down.
#[derive(Default)]
pub(super) struct Link {
    queue: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
    queued_bytes: Arc<AtomicUsize>,
    /// Messages with large payloads, and what must not overtake them.
    bulk: Mutex<Bulk>,
    bulk_bell: Notify,
    calls: Mutex<BTreeMap<u64, oneshot::Sender<Response>>>,
    next_call: AtomicU64,
    epoch: AtomicU64,
    refused: AtomicBool,
    relayed: AtomicBool,
    encrypted: AtomicBool,
    heard_ms: AtomicU64,
    /// Written since the start of the process.
    sent_bytes: AtomicU64,
}

impl Link {
    pub fn is_up(&self) -> bool {
        self.queue.lock().is_some()
    }

    /// Up, and no other node passes its bytes on.
    pub fn is_direct(&self) -> bool {
        self.is_up() && !self.relayed.load(Ordering::Relaxed)
    }

    /// Up, and without TLS.
    pub fn is_plain(&self) -> bool {
        self.is_up() && !self.encrypted.load(Ordering::Relaxed)
    }

    /// Since anything came on the connection.
    pub fn silent_ms(&self) -> u64 {
        monotonic_ms().saturating_sub(self.heard_ms.load(Ordering::Relaxed))
    }

    /// The last attempt to connect found nothing listening.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// What it looks like from outside.
    pub fn sample(&self, peer: &str, class: &'static str) -> PeerLinkSample {
        PeerLinkSample {
            peer: peer.to_owned(),
            class,
            up: self.is_up(),
            encrypted: self.is_up() && !self.is_plain(),
            connects: self.epoch(),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
            queue_bytes: (self.queued_bytes.load(Ordering::Relaxed) + self.bulk.lock().bytes()) as u64,
        }
    }

    /// Queues a frame; false where the link is down or full.
    pub fn send(&self, what: &Outbound) -> bool {
        if !self.is_up() {
            return false;
        }
        match frame(what) {
            Ok(bytes) => self.send_bytes(bytes),
            Err(error) => {
                tracing::error!(%error, "a peer message cannot be encoded");
                false
            }
        }
    }

    /// Queues a message, in order; a large payload goes in pieces. False where the link is down or full.
    pub fn send_message(&self, mut message: PeerMessage) -> bool {
        if !self.is_up() {
            return false;
        }
        let payload = message.cut();
        let mut bulk = self.bulk.lock();
        if !bulk.concerns(&payload, message.publisher()) {
            drop(bulk);
            return self.send(&Outbound::Message(message));
        }
        let queued = bulk.push(message, payload).unwrap_or_else(|error| {
            tracing::error!(%error, "a peer message cannot be encoded");
            false
        });
        drop(bulk);
        self.bulk_bell.notify_one();
        queued
    }

    fn send_bytes(&self, bytes: Vec<u8>) -> bool {
        if self.queued_bytes.load(Ordering::Relaxed) > QUEUE_BYTES_MAX {
            return false;
        }
        let size = bytes.len();
        let queue = self.queue.lock();
        self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let sent = queue.as_ref().is_some_and(|queue| queue.try_send(bytes).is_ok());
        if !sent {
            self.unqueued(size);
        }
        sent
    }

    pub async fn call(&self, group: u16, request: Request, limit: Duration) -> Result<Response, CallError> {
        if !self.is_up() {
            return Err(CallError::Down);
        }
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let bytes = frame(&Outbound::Call { id, group, request }).map_err(|error| {
            tracing::error!(%error, "a call cannot be encoded");
            CallError::Encoding
        })?;
        let (answer, answered) = oneshot::channel();
        self.calls.lock().insert(id, answer);
        // Forgets the call when this future ends or is dropped.
        let _forget = Forget { link: self, id };
        if !self.send_bytes(bytes) {
            return Err(CallError::Lost);
        }
        match timeout(limit, answered).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(_)) => Err(CallError::Lost),
            Err(_) => Err(CallError::Timeout),
        }
    }

    /// The counter is set to 0 when a link goes down and up: it must not wrap below.
    fn unqueued(&self, bytes: usize) {
        let less = |queued: usize| Some(queued.saturating_sub(bytes));
        let _ = self.queued_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn answered(&self, id: u64, response: Response) {
        if let Some(caller) = self.calls.lock().remove(&id) {
            let _ = caller.send(response);
        }
    }

    /// With `says_turn` the first frame is the connection's number.
    fn up(&self, relayed: bool, encrypted: bool, says_turn: bool) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel(QUEUE_FRAMES_MAX);
        let mut queue = self.queue.lock();
        self.queued_bytes.store(0, Ordering::Relaxed);
        *self.bulk.lock() = Bulk::default();
        let epoch = self.epoch.fetch_add(1, Ordering::Release) + 1;
        if says_turn && let Ok(turn) = frame(&Outbound::Turn(epoch)) {
            self.queued_bytes.store(turn.len(), Ordering::Relaxed);
            let _ = sender.try_send(turn);
        }
        *queue = Some(sender);
        self.refused.store(false, Ordering::Relaxed);
        self.relayed.store(relayed, Ordering::Relaxed);
        self.encrypted.store(encrypted, Ordering::Relaxed);
        self.heard_ms.store(monotonic_ms(), Ordering::Relaxed);
        receiver
    }

    fn down(&self) {
        *self.queue.lock() = None;
        *self.bulk.lock() = Bulk::default();
        self.queued_bytes.store(0, Ordering::Relaxed);
        self.calls.lock().clear();
    }
}

struct Forget<'a> {
    link: &'a Link,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.link.calls.lock().remove(&self.id);
    }
}

/// Dials the peer for a class, again and again, until the transport stops.
pub(super) async fn keep(transport: Arc<Transport>, peer: Arc<Peer>, class: Class) {
    let cancel = transport.cancel.clone();
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = peer.cancel.cancelled() => {}
        () = keep_up(&transport, &peer, class) => {}
    }
    peer.link(class).down();
}

async fn keep_up(transport: &Transport, peer: &Peer, class: Class) {
    let mut attempt = 0;
    let mut backoff = BACKOFF_MIN;
    let mut next = None;
    loop {
        let (address, worked_last) = peer.address(attempt);
        let (connected, is_dialed) = match next.take() {
            // By an address of its own.
            Some(connection) => (Ok(connection), false),
            None => (connect(transport, &address, class).await.map(Connection::direct), true),
        };
        match connected {
            Ok(connection) if connection.who.name == peer.name => {
                if is_dialed {
                    peer.address_worked(&address);
                }
                let up = Instant::now();
                next = serve_link(transport, peer, class, connection).await;
                if next.is_some() {
                    continue;
                }
                if up.elapsed() >= BACKOFF_MAX {
                    // Dialed again at once: a refusal then tells a crash from a broken connection.
                    backoff = BACKOFF_MIN;
                    attempt = 0;
                    continue;
                }
            }
            Ok(Connection { who, .. }) => tracing::debug!(expected = peer.name, found = who.name, "another peer answered"),
            Err(error) => {
                // A stale address that refuses says nothing of the peer.
                if worked_last {
                    let refused = matches!(&error, HelloError::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused)
                        && (peer.link(class).is_refused() || peer.silent_ms().is_none_or(|silent| silent < ENDED_MS));
                    peer.link(class).refused.store(refused, Ordering::Relaxed);
                    if refused {
                        notify_down(transport, peer);
                    }
                }
                transport.log_refusal(&peer.name, None, &error);
                // Also where nothing listens: a firewall may say so, and a peer that has ended is out of reach for the others too. But one that
                // is just starting answers in a moment, and a node that goes a long way itself passes nothing on.
                if matches!(error, HelloError::Io(_)) && attempt > 0 && peer.silent_ms().is_some() {
                    next = relay::find(transport, peer, class).await;
                    if next.is_some() {
                        continue;
                    }
                }
            }
        }
        attempt += 1;
        tokio::time::sleep(backoff.mul_f64(0.75 + chance::random::<f64>() / 2.0)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Connects and introduces this node; the name is resolved anew.
pub(super) async fn connect(transport: &Transport, address: &str, class: Class) -> Result<(Stream, Introduction), HelloError> {
    let met = introduce(transport, open(address).await?, class, true).await;
    if transport.goes_on_plain(&met) {
        return introduce(transport, open(address).await?, class, false).await;
    }
    met
}

async fn open(address: &str) -> io::Result<Stream> {
    let stream = timeout(CONNECT_TIMEOUT, Stream::connect(address)).await??;
    stream.set_nodelay()?;
    Ok(stream)
}

/// Shakes hands, where the node has TLS and it is `wanted`, and says hello.
pub(super) async fn introduce(
    transport: &Transport,
    mut stream: Stream,
    class: Class,
    wanted: bool,
) -> Result<(Stream, Introduction), HelloError> {
    if let Some(tls) = transport.tls.as_ref().filter(|_| wanted) {
        stream = tls.dial(stream).await?;
    }
    let names = stream.peer_names();
    let hello = hello::dial(&mut stream, transport.introduction(), class, &transport.secret, transport.versions());
    // In TLS 1.3 the peer looks at this node's certificate after the handshake is over here.
    let who = timeout(HELLO_TIMEOUT, hello).await.map_err(io::Error::from)?.map_err(tls::told)?;
    transport.check_name(names.as_deref(), &who.name).map_err(HelloError::Refused)?;
    Ok((stream, who))
}

/// Serves a connection until it ends; returns a better one if that is why.
async fn serve_link(transport: &Transport, peer: &Peer, class: Class, connection: Connection) -> Option<Connection> {
    let says_turn = |who: &Introduction| class == Class::Messages && who.version >= FEATURES;
    let Connection { stream, who, relayed, queue } = connection;
    let says = says_turn(&who);
    peer.met(who);
    let link = peer.link(class);
    let encrypted = stream.is_encrypted();
    let mut queue = queue.unwrap_or_else(|| link.up(relayed, encrypted, says));
    tracing::info!(peer = peer.name, ?class, relayed, encrypted, "peer link is up");
    if class == Class::Messages
        && let Some(receiver) = transport.receiver.get()
    {
        receiver.link_up(peer.id);
    }
    let (mut read, mut write) = stream.into_split();
    let used = use_connection(transport, peer, class, &mut read, &mut write, &mut queue, relayed).await;
    let (ended, mut next) = used;
    // From a way that works to the direct one.
    let in_order = relayed && next.as_ref().is_some_and(|next| !next.relayed);
    if in_order && let Some(next) = next.as_mut() {
        next.queue = Some(link.up(next.relayed, next.stream.is_encrypted(), says_turn(&next.who)));
        // What is on its way arrives before what the other connection brings.
        let _ = timeout(FINISH_MAX, finish(&mut read, &mut write, &mut queue)).await;
        tracing::info!(peer = peer.name, ?class, "a peer is reached directly again");
    } else {
        link.down();
    }
    if !in_order && next.is_some() {
        // Nothing that waits in this one may arrive behind what the other brings.
        if let Err(error) = write.discard_unsent() {
            tracing::debug!(%error, "what a silent connection holds may arrive late");
        }
    }
    let reason = ended.err().map_or_else(String::new, |e| e.to_string());
    tracing::info!(peer = peer.name, ?class, reason, "peer link is down");
    notify_down(transport, peer);
    next
}

/// Reads and writes until the connection ends, or a better one is there and nothing waits on this one.
async fn use_connection(
    transport: &Transport,
    peer: &Peer,
    class: Class,
    read: &mut Reading,
    write: &mut Writing,
    queue: &mut mpsc::Receiver<Vec<u8>>,
    relayed: bool,
) -> (io::Result<()>, Option<Connection>) {
    let link = peer.link(class);
    let leave = Notify::new();
    let mut next = None;
    let mut reading = std::pin::pin!(read_answers(transport, peer, link, read));
    let mut writing = std::pin::pin!(write_frames(link, queue, write, &leave));
    let mut better = std::pin::pin!(relay::better(transport, peer, class, relayed));
    let mut late = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    loop {
        tokio::select! {
            biased;
            ended = &mut reading => return (ended, next),
            ended = &mut writing => return (ended, next),
            () = &mut late, if next.is_some() => return (Ok(()), next),
            connection = &mut better, if next.is_none() => {
                // What is left for a long way is silent, and waiting for it in vain.
                let is_silent = connection.relayed;
                next = Some(connection);
                if is_silent {
                    return (Ok(()), next);
                }
                leave.notify_one();
                late.as_mut().reset(Instant::now() + FINISH_MAX);
            }
        }
    }
}

async fn finish(read: &mut Reading, write: &mut Writing, queue: &mut mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Ok(bytes) = queue.try_recv() {
        write.write_all(&bytes).await?;
    }
    write.shutdown().await?;
    tokio::io::copy(read, &mut tokio::io::sink()).await?;
    Ok(())
}

fn notify_down(transport: &Transport, peer: &Peer) {
    if let Some(receiver) = transport.receiver.get() {
        receiver.link_down(peer.id);
    }
}

async fn read_answers(transport: &Transport, peer: &Peer, link: &Link, read: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut read = BufReader::with_capacity(16 * 1024, read);
    loop {
        let inbound = timeout(transport.silence, read_frame(&mut read))
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the peer is silent"))??;
        peer.heard();
        link.heard_ms.store(monotonic_ms(), Ordering::Relaxed);
        match inbound {
            Inbound::Answer { id, response } => link.answered(id, response),
            Inbound::Pong => {}
        }
    }
}

/// Until the queue is closed, or nothing waits and `leave` says so.
async fn write_frames(
    link: &Link,
    queue: &mut mpsc::Receiver<Vec<u8>>,
    write: impl AsyncWrite + Unpin,
    leave: &Notify,
) -> io::Result<()> {
    let mut write = BufWriter::with_capacity(64 * 1024, write);
    let ping = frame(&Outbound::Ping)?;
    let mut pings = interval(PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut frames = Vec::with_capacity(WRITE_FRAMES_MAX);
    let mut pinged = Instant::now();
    loop {
        let bulk_waits = !link.bulk.lock().is_empty();
        tokio::select! {
            biased;
            count = queue.recv_many(&mut frames, WRITE_FRAMES_MAX) => {
                if count == 0 {
                    return Ok(());
                }
            }
            () = std::future::ready(()), if bulk_waits => {}
            () = link.bulk_bell.notified() => {}
            () = leave.notified() => return Ok(()),
            _ = pings.tick() => {}
        }
        for bytes in frames.drain(..) {
            write.write_all(&bytes).await?;
            link.unqueued(bytes.len());
            link.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        let piece = link.bulk.lock().next_frame()?;
        if let Some(bytes) = piece {
            write.write_all(&bytes).await?;
            link.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        if pinged.elapsed() >= PING_INTERVAL {
            pinged = Instant::now();
            write.write_all(&ping).await?;
        }
        write.flush().await?;
    }
}
