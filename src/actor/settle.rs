//! Before a connection is taken over: what its client sent on it is handled first.
//!
//! A client that acknowledges, or says DISCONNECT, and connects anew at once has its old bytes in a socket that may be read later than
//! its CONNECT, by another thread or another node. The node it connects to asks for the old connection to be read to its end; what that gave
//! is applied before the CONNECT is proposed. Only a client that is connected already as far as this node knows costs this, and no
//! longer than `SETTLE_MAX`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_rt::time::timeout;
use bytestring::ByteString;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cluster::PeerMessage;
use crate::replica::{Command, ConnectionRef, NodeId, ShardId};

use super::hub::HubItem;
use super::node::Node;

/// A node that does not answer holds a CONNECT up for so long.
const SETTLE_MAX: Duration = Duration::from_millis(500);
/// Questions to other nodes at a time; more CONNECTs go on without.
const ASKED_MAX: usize = 10_000;

/// Questions to other nodes that are not answered.
#[derive(Debug, Default)]
pub struct Asked {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<()>>>,
}

impl Asked {
    fn add(&self) -> Option<(u64, oneshot::Receiver<()>)> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        if waiting.len() >= ASKED_MAX {
            return None;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        waiting.insert(ticket, sender);
        Some((ticket, receiver))
    }

    /// The other node answered, or nobody waits any more.
    pub fn remove(&self, ticket: u64) {
        self.waiting.lock().remove(&ticket);
    }
}

/// Waits until what came on the client's present connection is applied, or at least submitted before anything that is submitted next; at once
/// where it has none.
pub async fn before_connect(node: Arc<Node>, client: ByteString, shard: ShardId) {
    let Some((holder, incarnation, connection)) = node.routing.client(&client).and_then(|route| route.state().connection) else {
        return;
    };
    if node.is_local((holder, incarnation, connection)) {
        // Commands of one node apply in the order it submits them.
        let _ = timeout(SETTLE_MAX, read_out(&node, connection)).await;
        return;
    }
    let Some(cluster) = node.cluster().filter(|cluster| cluster.node() != holder) else { return };
    let Some((ticket, settled)) = node.settling.add() else { return };
    let connection = ConnectionRef { node: holder, incarnation, connection };
    if cluster.send(holder, PeerMessage::Settle { ticket, shard, client, connection }) {
        // The sender is dropped, never used.
        let _ = timeout(SETTLE_MAX, settled).await;
    }
    node.settling.remove(ticket);
}

/// Does it for another node, and answers.
pub fn for_peer(node: &Arc<Node>, from: NodeId, ticket: u64, shard: ShardId, client: ByteString, connection: ConnectionRef) {
    let Some(arbiter) = node.arbiter(usize::try_from(ticket).unwrap_or(0)) else { return };
    let node = Arc::clone(node);
    arbiter.spawn(async move {
        let Some(cluster) = node.cluster() else { return };
        if node.is_local((connection.node, connection.incarnation, connection.connection)) {
            let _ = timeout(SETTLE_MAX, read_out(&node, connection.connection)).await;
            // Does nothing, after everything that was submitted before it.
            let last = Command::Acknowledge { client, connection, steps: Vec::new() };
            let _ = cluster.submit(shard, last).await;
        }
        if !cluster.send(from, PeerMessage::Settled { ticket }) {
            tracing::debug!(from, "a node that asked for a connection to settle is out of reach");
        }
    });
}

/// Resolves when the connection's actor has read what is there and run its effects, or is gone.
async fn read_out(node: &Node, connection: u64) {
    let (done, settled) = oneshot::channel();
    if let Some(hub) = node.hub_of(connection) {
        hub.post(HubItem::Settle { connection, done });
        // Dropped, never used.
        let _ = settled.await;
    }
}
