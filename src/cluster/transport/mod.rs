//! Node-to-node transport: one TCP connection, with TLS or without, for each peer, class and direction of dialing.
//!
//! Peers are known by name. Where they listen is learned from the configured seeds, from what they say in their hello and from the Raft
//! membership, and is resolved anew at each connect. A connection that is lost is dialed again at once, then with backoff.

mod bulk;
mod discovery;
pub mod frame;
pub mod hello;
mod link;
mod peer;
mod relay;
mod seed;
mod server;
pub mod socket;
mod tls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::replica::{Incarnation, NodeId};
use crate::telemetry::PeerLinkSample;

use super::chance;
use super::control::Control;
use super::node_id::node_id;
use super::peer_message::PeerMessage;
use super::raft::rpc::{Request, Response};
use super::rate_limit::RateLimit;
use super::settings::Dns;
use super::visibility::Progress;

use frame::{Class, Outbound};
use hello::{HelloError, Introduction, Refusal, VERSION_MAX, VERSION_MIN, Versions};
use peer::Peer;
use socket::{Listener, Stream};
pub use tls::Tls;

/// A peer that is no member is remembered for so long after it was last heard.
const STRANGER_MS_MAX: u64 = 60_000;
/// A link that works is heard more often: by pings.
const QUIET_MS: u64 = 700;

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("the peer is not connected")]
    Down,
    #[error("the connection was lost or its queue is full")]
    Lost,
    #[error("no answer in time")]
    Timeout,
    #[error("the call cannot be encoded")]
    Encoding,
}

/// What the transport hands to the node.
pub trait Receiver: Send + Sync + 'static {
    /// A call to one of this node's replicas.
    fn call(&self, from: NodeId, group: u16, request: Request) -> BoxFuture<'static, Response>;
    fn message(&self, from: NodeId, message: PeerMessage);
    fn control(&self, from: NodeId, control: Control);
    fn progress(&self, from: NodeId, progress: Progress);
    /// Whether messages should not be read for a moment: the peer's bounded queue fills then, and its publishers learn of it.
    fn pressed(&self) -> bool {
        false
    }
    /// The link for messages to the peer is up (again): what was sent before may be lost.
    fn link_up(&self, peer: NodeId);
    /// A link to the peer broke.
    fn link_down(&self, peer: NodeId);
}

/// A peer as seen now.
#[derive(Debug, Clone)]
pub struct PeerView {
    pub id: NodeId,
    pub name: String,
    pub address: String,
    /// What it said of itself last.
    pub incarnation: Option<Incarnation>,
    pub cluster_id: Option<String>,
    /// Messages can be sent.
    pub connected: bool,
    /// Nothing listens there and no connection of it is left: its process is gone.
    pub refused: bool,
    /// Since anything was heard of it; `None` = never.
    pub silent_ms: Option<u64>,
}

/// All links of this node.
pub struct Transport {
    id: NodeId,
    name: String,
    address: String,
    process: u64,
    shards: u16,
    incarnation: AtomicU64,
    versions: Mutex<Versions>,
    cluster_id: RwLock<Option<String>>,
    secret: String,
    tls: Option<Arc<Tls>>,
    /// A connection over which nothing is heard for so long is broken.
    silence: Duration,
    peers: RwLock<BTreeMap<NodeId, Arc<Peer>>>,
    receiver: OnceLock<Arc<dyn Receiver>>,
    /// Peers learned before `start`.
    early: Mutex<Vec<Arc<Peer>>>,
    /// Connections of other nodes that this one passes on.
    relayed: Semaphore,
    cancel: CancellationToken,
    refusals: RateLimit,
    /// Seeds, and how many of them turned out to be this node.
    seeds: AtomicUsize,
    own_seeds: AtomicUsize,
    /// The last answer of the name service had addresses of this node only.
    named_alone: AtomicBool,
    /// The cluster of a peer that proved itself with our secret but belongs elsewhere.
    foreign_cluster: OnceLock<String>,
}

impl Transport {
    pub fn new(
        name: &str,
        address: &str,
        incarnation: Incarnation,
        shards: u16,
        secret: &str,
        silence: Duration,
        tls: Option<Tls>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: node_id(name),
            name: name.to_owned(),
            address: address.to_owned(),
            process: chance::random(),
            shards,
            incarnation: AtomicU64::new(incarnation),
            versions: Mutex::new(Versions { min: VERSION_MIN, max: VERSION_MAX }),
            cluster_id: RwLock::default(),
            secret: secret.to_owned(),
            tls: tls.map(Arc::new),
            silence,
            peers: RwLock::default(),
            receiver: OnceLock::new(),
            early: Mutex::default(),
            relayed: Semaphore::new(relay::RELAYED_MAX),
            cancel: CancellationToken::new(),
            refusals: RateLimit::default(),
            seeds: AtomicUsize::new(0),
            own_seeds: AtomicUsize::new(0),
            named_alone: AtomicBool::new(false),
            foreign_cluster: OnceLock::new(),
        })
    }

    /// Begins to accept and to dial.
    pub fn start(self: &Arc<Self>, listener: Listener, seeds: &[String], dns: Option<Dns>, receiver: Arc<dyn Receiver>) {
        if self.receiver.set(receiver).is_err() {
            return;
        }
        tokio::spawn(server::serve(Arc::clone(self), listener));
        if let Some(tls) = &self.tls {
            tokio::spawn(tls::watch(Arc::clone(tls), self.cancel.clone()));
        }
        self.seeds.store(seeds.len(), Ordering::Relaxed);
        for seed in seeds {
            tokio::spawn(seed::watch(Arc::clone(self), seed.clone()));
        }
        if let Some(dns) = dns {
            tokio::spawn(discovery::run(Arc::clone(self), dns));
        }
        let early = std::mem::take(&mut *self.early.lock());
        early.into_iter().for_each(|peer| self.spawn_links(&peer));
    }

    /// Closes everything; no call or message goes through afterwards.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// The versions spoken from the next connection on.
    pub fn set_versions(&self, min: u16, max: u16) {
        *self.versions.lock() = Versions { min, max };
    }

    fn versions(&self) -> Versions {
        *self.versions.lock()
    }

    /// What this node says of itself from now on.
    pub fn set_identity(&self, incarnation: Incarnation, cluster_id: Option<String>) {
        self.incarnation.store(incarnation, Ordering::Relaxed);
        *self.cluster_id.write() = cluster_id;
    }

    /// Knows a peer by name and dials it from now on, at this address too.
    pub fn ensure_peer(self: &Arc<Self>, name: &str, address: &str) {
        let id = node_id(name);
        if id == self.id {
            return;
        }
        if let Some(peer) = self.peers.read().get(&id) {
            peer.add_address(address);
            return;
        }
        let mut peers = self.peers.write();
        if let Some(peer) = peers.get(&id) {
            peer.add_address(address);
            return;
        }
        let peer = Arc::new(Peer::new(id, name, address));
        peers.insert(id, Arc::clone(&peer));
        if self.receiver.get().is_some() {
            self.spawn_links(&peer);
        } else {
            self.early.lock().push(peer);
        }
    }

    /// Calls a peer's replica. The future may be dropped at any time: a late answer is discarded by its id.
    pub async fn call(&self, node: NodeId, group: u16, request: Request, timeout: Duration) -> Result<Response, CallError> {
        let peer = self.peer(node).ok_or(CallError::Down)?;
        peer.consensus.call(group, request, timeout).await
    }

    /// Sends in order; false where the link is down or its buffer is full, or the peer's release does not know the message.
    pub fn send(&self, node: NodeId, message: PeerMessage) -> bool {
        let since = message.since();
        let knows = |peer: &Peer| since <= VERSION_MIN || peer.who().is_some_and(|who| who.version >= since);
        self.peer(node).is_some_and(|peer| knows(&peer) && peer.messages.send_message(message))
    }

    pub fn send_control(&self, node: NodeId, control: Control) -> bool {
        let since = control.since();
        let knows = |peer: &Peer| peer.who().is_some_and(|who| who.version >= since);
        self.peer(node).is_some_and(|peer| knows(&peer) && peer.messages.send(&Outbound::Control(control)))
    }

    /// Sends on the link for consensus; false where it is down or full.
    pub fn send_progress(&self, node: NodeId, progress: Progress) -> bool {
        let since = progress.since();
        let knows = |peer: &Peer| since <= VERSION_MIN || peer.who().is_some_and(|who| who.version >= since);
        self.peer(node).is_some_and(|peer| knows(&peer) && peer.consensus.send(&Outbound::Progress(progress)))
    }

    /// Sends to all peers in reach.
    pub fn broadcast_control(&self, control: &Control) {
        self.broadcast(|version| (control.since() <= version.max(VERSION_MIN)).then(|| control.clone()));
    }

    /// Sends each peer in reach what it understands, by the protocol version spoken with it.
    pub fn broadcast(&self, control: impl Fn(u16) -> Option<Control>) {
        let peers: Vec<_> = self.peers.read().values().cloned().collect();
        for peer in peers {
            if let Some(control) = control(peer.who().map_or(0, |who| who.version)) {
                peer.messages.send(&Outbound::Control(control));
            }
        }
    }

    /// Whether messages to a peer may lead nowhere although what is said on the link for consensus arrives: the two go different ways, one of
    /// them through a third node, and on theirs nothing is heard.
    pub fn messages_are_behind(&self, node: NodeId) -> bool {
        let long_way = |link: &link::Link| link.is_up() && !link.is_direct();
        let is_silent = |link: &link::Link| !link.is_up() || link.silent_ms() > QUIET_MS;
        self.peer(node).is_some_and(|peer| (long_way(&peer.consensus) || long_way(&peer.messages)) && is_silent(&peer.messages))
    }

    /// Counts the connects of the message link: what was sent before another count may be lost.
    pub fn link_epoch(&self, node: NodeId) -> u64 {
        self.peer(node).map_or(0, |peer| peer.messages.epoch())
    }

    pub fn connected(&self, node: NodeId) -> bool {
        self.peer(node).is_some_and(|peer| peer.messages.is_up())
    }

    pub fn peers(&self) -> Vec<PeerView> {
        self.peers.read().values().map(|peer| peer.view()).collect()
    }

    /// Both links to every peer, for metrics.
    pub fn links(&self) -> Vec<PeerLinkSample> {
        let peers = self.peers.read();
        let of =
            |peer: &Arc<Peer>| [peer.consensus.sample(&peer.name, "consensus"), peer.messages.sample(&peer.name, "messages")];
        peers.values().flat_map(of).collect()
    }

    /// Dials peers no more that are no members and were not heard of for long.
    pub fn forget_strangers(&self, members: &BTreeSet<NodeId>) {
        let is_gone = |peer: &Peer| !members.contains(&peer.id) && peer.is_gone(STRANGER_MS_MAX);
        if self.peers.read().values().any(|peer| is_gone(peer)) {
            self.peers.write().retain(|_, peer| {
                let gone = is_gone(peer);
                if gone {
                    tracing::info!(peer = peer.name, "no member and not heard of for long: not dialed any more");
                    peer.cancel.cancel();
                }
                !gone
            });
        }
    }

    pub fn name_of(&self, node: NodeId) -> Option<String> {
        self.peer(node).map(|peer| peer.name.clone())
    }

    fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        self.peers.read().get(&node).cloned()
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            name: self.name.clone(),
            address: self.address.clone(),
            incarnation: self.incarnation.load(Ordering::Relaxed),
            cluster_id: self.cluster_id.read().clone(),
            process: self.process,
            shards: self.shards,
            version: 0,
        }
    }

    /// Drawn when the process started.
    pub fn process(&self) -> u64 {
        self.process
    }

    /// The protocol version spoken with a peer; 0 where none was met yet.
    pub fn version(&self, node: NodeId) -> u16 {
        self.peer(node).and_then(|peer| peer.who()).map_or(0, |who| who.version)
    }

    fn spawn_links(self: &Arc<Self>, peer: &Arc<Peer>) {
        for class in [Class::Consensus, Class::Messages] {
            tokio::spawn(link::keep(Arc::clone(self), Arc::clone(peer), class));
        }
    }

    /// Seeds that are other nodes, or may be: a seed counts until this node finds itself behind it.
    pub fn other_seeds(&self) -> usize {
        self.seeds.load(Ordering::Relaxed).saturating_sub(self.own_seeds.load(Ordering::Relaxed))
    }

    /// Whether the name of the cluster stands for this node and nobody else, as far as the name service knows.
    pub fn is_named_alone(&self) -> bool {
        self.named_alone.load(Ordering::Acquire)
    }

    /// The cluster of a peer that was configured together with this node and belongs to another cluster.
    pub fn foreign_cluster(&self) -> Option<&str> {
        self.foreign_cluster.get().map(String::as_str)
    }

    /// Whether a peer that was dialed with TLS is to be dialed without.
    fn goes_on_plain(&self, met: &Result<(Stream, Introduction), HelloError>) -> bool {
        let is_plain = matches!(met, Err(HelloError::Ended(_) | HelloError::RefusedByPeer(Refusal::Tls)));
        is_plain && self.tls.as_ref().is_some_and(|tls| tls.is_optional())
    }

    /// Whether a certificate for these names, `None` without TLS, may be that of a peer of this name.
    fn check_name(&self, shown: Option<&[String]>, peer: &str) -> Result<(), Refusal> {
        match (&self.tls, shown) {
            (Some(tls), Some(shown)) => tls.check_name(shown, peer),
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    pub fn is_direct(&self) -> bool {
        self.peers.read().values().all(|peer| peer.messages.is_direct() && peer.consensus.is_direct())
    }

    /// Peers to whom something goes without TLS although this node has it.
    pub fn plain_peers(&self) -> Vec<String> {
        let is_plain = |peer: &&Arc<Peer>| self.tls.is_some() && (peer.messages.is_plain() || peer.consensus.is_plain());
        self.peers.read().values().filter(is_plain).map(|peer| peer.name.clone()).collect()
    }

    /// Logs why a peer and this node do not talk, now and then.
    fn log_refusal(&self, peer: &str, address: Option<SocketAddr>, reason: &HelloError) {
        // Only a peer that proved itself counts, so that nobody without the secret can make a node believe it.
        if let HelloError::Refused(Refusal::ClusterId { dialer, .. }) = reason {
            let _ = self.foreign_cluster.set(dialer.clone());
        }
        if matches!(reason, HelloError::Io(_) | HelloError::Ended(_)) {
            tracing::debug!(peer, address = address.map(tracing::field::display), %reason, "peer connection failed");
        } else if self.refusals.due(&format!("{peer} {reason}")) {
            tracing::warn!(peer, address = address.map(tracing::field::display), %reason, "peer connection refused");
        }
    }
}
