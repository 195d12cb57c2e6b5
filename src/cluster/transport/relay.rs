//! A way around a broken pair: where two nodes cannot reach each other and a third reaches both, it passes their bytes on.
//!
//! The two nodes' own hello goes through, so each proves itself to the other as on a direct connection, and everything above a connection is as
//! it was: replication, commands, messages, visibility. One node between two, never more: a relayed link carries no other's bytes.
//!
//! A link that falls silent looks for such a way before it is given up; a relayed one goes back to the direct way once that works again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::cluster::control::FEATURES;
use crate::cluster::node_id;

use super::Transport;
use super::frame::{Class, read_hello_frame, write_frame};
use super::hello::{HelloError, Introduction};
use super::link::{HELLO_TIMEOUT, connect, introduce};
use super::peer::Peer;
use super::socket::Stream;

/// Bytes of one peer's connections passed on at a time, each with two sockets and two small buffers.
pub(super) const RELAYED_MAX: usize = 64;
/// A whole attempt, with two connects in it.
const ATTEMPT: Duration = Duration::from_millis(1_500);
/// Silence after which a link looks for another way: two missed pings for consensus, which repeats what is lost; more for messages, of which
/// some would be lost that a short cut only delays.
const SUSPECT_CONSENSUS_MS: u64 = 1_000;
const SUSPECT_MESSAGES_MS: u64 = 1_500;
const LOOK: Duration = Duration::from_millis(100);
/// A peer that answers the long way within this answers pings on a link that works.
const CONFIRM: Duration = Duration::from_millis(600);
/// Between attempts to find a way for a silent link.
const AGAIN: Duration = Duration::from_millis(500);
/// Between attempts to go back to the direct way.
const BACK: Duration = Duration::from_secs(3);
const BUFFER_BYTES: usize = 16 * 1024;

/// Whom the dialer of a connection of class `Relay` wants to reach.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    name: String,
}

/// Whether what follows is read by the wanted node.
#[derive(Debug, Serialize, Deserialize)]
enum Verdict {
    Through,
    OutOfReach,
}

/// A connection to a peer, and whether a third node passes it on.
pub(super) struct Connection {
    pub stream: Stream,
    pub who: Introduction,
    pub relayed: bool,
    /// What waits for it already, where it takes another's place.
    pub queue: Option<mpsc::Receiver<Vec<u8>>>,
}

impl Connection {
    pub fn direct((stream, who): (Stream, Introduction)) -> Self {
        Self { stream, who, relayed: false, queue: None }
    }
}

/// Tries to reach a peer through each of the others; `None` where no way was found.
pub(super) async fn find(transport: &Transport, peer: &Peer, class: Class) -> Option<Connection> {
    let others: Vec<Arc<Peer>> = transport.peers.read().values().cloned().collect();
    for via in others.iter().filter(|other| other.id != peer.id && other.consensus.is_direct() && speaks(other)) {
        match timeout(ATTEMPT, dial(transport, via, peer, class)).await {
            Ok(Ok((stream, who))) if who.name == peer.name => {
                tracing::debug!(peer = peer.name, via = via.name, ?class, "a way through another node");
                return Some(Connection { stream, who, relayed: true, queue: None });
            }
            Ok(Ok(_)) | Err(_) => {}
            Ok(Err(error)) => tracing::debug!(peer = peer.name, via = via.name, %error, "no way through a node"),
        }
    }
    None
}

fn speaks(peer: &Peer) -> bool {
    peer.who().is_some_and(|who| who.version >= FEATURES)
}

async fn dial(transport: &Transport, via: &Peer, peer: &Peer, class: Class) -> Result<(Stream, Introduction), HelloError> {
    let met = introduce(transport, through(transport, via, peer).await?, class, true).await;
    if transport.goes_on_plain(&met) {
        return introduce(transport, through(transport, via, peer).await?, class, false).await;
    }
    met
}

/// A connection that ends at the peer: with TLS its handshake is with the peer, and who passes the bytes on cannot read them.
async fn through(transport: &Transport, via: &Peer, peer: &Peer) -> Result<Stream, HelloError> {
    let (mut stream, _) = connect(transport, &via.address(0).0, Class::Relay).await?;
    write_frame(&mut stream, &Wanted { name: peer.name.clone() }).await?;
    match read_hello_frame(&mut stream).await? {
        Verdict::Through => Ok(stream),
        Verdict::OutOfReach => Err(HelloError::Io(io::ErrorKind::HostUnreachable.into())),
    }
}

/// Resolves with a better connection than the one in use: another way where that is silent, or the direct way where that is relayed.
pub(super) async fn better(transport: &Transport, peer: &Peer, class: Class, relayed: bool) -> Connection {
    let link = peer.link(class);
    let suspect_ms = match class {
        Class::Consensus => SUSPECT_CONSENSUS_MS,
        Class::Messages | Class::Relay => SUSPECT_MESSAGES_MS,
    };
    let mut tried_back = Instant::now();
    let mut attempt = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        let is_silent = || link.silent_ms() >= suspect_ms;
        if is_silent() {
            if let Some(connection) = find(transport, peer, class).await {
                // The peer is awake, then: on a link that is only slow it is heard by now.
                tokio::time::sleep(CONFIRM).await;
                if is_silent() {
                    tracing::info!(peer = peer.name, ?class, "a peer is reached through another node");
                    return connection;
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
        if relayed && (is_silent() || tried_back.elapsed() >= BACK) {
            if let Some(direct) = back(transport, peer, class, attempt).await {
                return direct;
            }
            attempt += 1;
            tried_back = Instant::now();
        }
    }
}

async fn back(transport: &Transport, peer: &Peer, class: Class, attempt: usize) -> Option<Connection> {
    let (address, _) = peer.address(attempt);
    let direct = match connect(transport, &address, class).await {
        Ok(direct) => direct,
        Err(error) => {
            tracing::debug!(peer = peer.name, ?class, %error, "not yet reached directly");
            return None;
        }
    };
    if direct.1.name != peer.name {
        return None;
    }
    peer.address_worked(&address);
    Some(Connection::direct(direct))
}

/// Passes a peer's bytes on to the node it wants, until either ends the connection or nothing passes for too long.
pub(super) async fn serve(transport: &Transport, mut from: Stream) -> io::Result<()> {
    let wanted: Wanted = timeout(HELLO_TIMEOUT, read_hello_frame(&mut from)).await??;
    let Some(_permit) = transport.relayed.try_acquire().ok() else {
        return write_frame(&mut from, &Verdict::OutOfReach).await;
    };
    let peer = transport.peer(node_id(&wanted.name)).filter(|peer| peer.consensus.is_direct());
    let to = match peer {
        Some(peer) => {
            let address = peer.address(0).0;
            timeout(ATTEMPT, Stream::connect(&address)).await.ok().and_then(Result::ok)
        }
        None => None,
    };
    let Some(to) = to else { return write_frame(&mut from, &Verdict::OutOfReach).await };
    to.set_nodelay()?;
    write_frame(&mut from, &Verdict::Through).await?;
    tracing::info!(to = wanted.name, "passes bytes on to a node that another did not reach in time");
    let (from_read, from_write) = from.into_split();
    let (to_read, to_write) = to.into_split();
    let silence = transport.silence;
    tokio::try_join!(pass(from_read, to_write, silence), pass(to_read, from_write, silence))?;
    Ok(())
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, silence: Duration) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = timeout(silence, from.read(&mut buffer)).await??;
        if count == 0 {
            return to.shutdown().await;
        }
        timeout(silence, to.write_all(buffer.get(..count).unwrap_or_default())).await??;
        // More may come only when this has arrived.
        timeout(silence, to.flush()).await??;
    }
}
