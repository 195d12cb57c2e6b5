//! Before a connection is taken over: what its client sent on it is handled first.
//!
//! A client that acknowledges, or says DISCONNECT, and connects anew at once has its old bytes in a socket that may be read later than
//! its CONNECT, by another thread or another node. The node it connects to asks for the old connection to be read to its end; what that gave
//! is applied before the CONNECT is proposed. Only a client that is connected already as far as this node knows costs this, and no
//! longer than `SETTLE_MAX`.
//!
//! A node that does not answer (its process is gone, or out of reach) tells its client nothing either: the old connection is told as lost, not
//! as taken over, though it is not known yet that the node is dead.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_rt::time::timeout;
use bytestring::ByteString;
use futures_util::future::{self, Either};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cluster::{Cluster, PeerMessage, SubmitError};
use crate::replica::command::TakeOver;
use crate::replica::{Command, ConnectCommand, ConnectionRef, NodeId, Outcome, ShardId};

use super::hub::HubItem;
use super::node::Node;

/// A node that does not answer holds a CONNECT up for so long.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// Between looks at whether the node that was asked is still there, and the connection.
const LOOK: Duration = Duration::from_millis(10);
/// Questions to other nodes at a time; more CONNECTs go on without.
const ASKED_MAX: usize = 10_000;

/// A client that is connected anew elsewhere so often meanwhile is not settled any more, but taken over.
const OCCUPIED_MAX: usize = 2;

/// What became of a connection that another is to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// Its node has read it to its end, or it has ended by itself, or its node is there and has too much to do.
    Yes,
    /// Its node is out of reach, or did not answer in time.
    Unanswered,
}

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

/// Proposes a connection once the one that it takes over has settled. One that this node hears of only by the proposal (it was made elsewhere a
/// moment ago) settles then.
pub async fn connect(
    node: Arc<Node>,
    shard: ShardId,
    mut command: Arc<ConnectCommand>,
    window: usize,
) -> Result<Outcome, SubmitError> {
    let Some(cluster) = node.cluster() else { return Err(SubmitError::Unavailable) };
    let mut before = present(&node, &command.facts.client_id);
    let mut take_over = match before {
        // Boxed, as all that few need: every connection that is made has room for this future.
        Some(present) => Box::pin(settle(&node, shard, &command.facts.client_id, present)).await,
        None => TakeOver::Settled(None),
    };
    for _ in 0..OCCUPIED_MAX {
        Arc::make_mut(&mut command).take_over = take_over;
        match propose(&node, cluster, shard, Arc::clone(&command), window).await {
            Ok(Outcome::Occupied(present)) => {
                before = Some(present);
                take_over = Box::pin(settle(&node, shard, &command.facts.client_id, present)).await;
            }
            outcome => {
                if let Some(before) = before
                    && outcome.is_ok()
                {
                    Box::pin(told(&node, before)).await;
                }
                return outcome;
            }
        }
    }
    Arc::make_mut(&mut command).take_over = TakeOver::Any;
    Box::pin(propose(&node, cluster, shard, command, window)).await
}

/// Waits until a connection of this node knows that it was taken over, for the event log to have its end before the beginning of the next. It is
/// told before the outcome is.
async fn told(node: &Node, connection: ConnectionRef) {
    if node.is_local((connection.node, connection.incarnation, connection.connection)) {
        let _ = timeout(SETTLE_MAX, read_out(node, connection.connection)).await;
    }
}

/// Has the present connection settle, as far as it can, and tells how it is taken over.
async fn settle(node: &Arc<Node>, shard: ShardId, client: &ByteString, present: ConnectionRef) -> TakeOver {
    match settled(node, shard, client, present).await {
        Settled::Yes => TakeOver::Settled(Some(present)),
        Settled::Unanswered => TakeOver::Lost(present),
    }
}

/// A Clean Start that ends subscriptions is answered when no node matches them any more; others need not wait.
async fn propose(
    node: &Node,
    cluster: &Cluster,
    shard: ShardId,
    command: Arc<ConnectCommand>,
    window: usize,
) -> Result<Outcome, SubmitError> {
    let ends_subscriptions = command.clean_start && !node.routing.subscriptions_of(&command.facts.client_id).is_empty();
    let command = Command::connect(command, window, cluster.level());
    if ends_subscriptions {
        Box::pin(cluster.submit_everywhere(shard, command)).await
    } else {
        cluster.submit(shard, command).await
    }
}

/// Waits until what came on a connection is applied, or submitted before anything that this node submits next.
async fn settled(node: &Arc<Node>, shard: ShardId, client: &ByteString, connection: ConnectionRef) -> Settled {
    let Some(cluster) = node.cluster() else { return Settled::Yes };
    if node.is_local((connection.node, connection.incarnation, connection.connection)) {
        // Commands of one node apply in the order it submits them.
        let _ = timeout(SETTLE_MAX, read_out(node, connection.connection)).await;
        return Settled::Yes;
    }
    if cluster.node() == connection.node {
        // Of the process before this one.
        return Settled::Unanswered;
    }
    let without = || if cluster.hears(connection.node) { Settled::Yes } else { Settled::Unanswered };
    let Some((ticket, settled)) = node.settling.add() else { return without() };
    let outcome = if cluster.send(connection.node, PeerMessage::Settle { ticket, shard, client: client.clone(), connection }) {
        // The sender is dropped, never used.
        let answered = async { drop(settled.await) };
        match timeout(SETTLE_MAX, future::select(pin!(answered), pin!(ended(node, cluster, client, connection)))).await {
            Ok(Either::Left(_)) => Settled::Yes,
            Ok(Either::Right((settled, _))) => settled,
            Err(_) => Settled::Unanswered,
        }
    } else {
        without()
    };
    node.settling.remove(ticket);
    outcome
}

/// Resolves when the end of the connection is applied here, with all that its node submitted before (a node that stops has submitted it when its
/// client comes here, so this is known before that node can answer), or when the node is out of reach and will not answer.
async fn ended(node: &Node, cluster: &Cluster, client: &ByteString, connection: ConnectionRef) -> Settled {
    loop {
        if !is_present(node, client, connection) {
            return Settled::Yes;
        }
        if !cluster.hears(connection.node) {
            return Settled::Unanswered;
        }
        actix_rt::time::sleep(LOOK).await;
    }
}

fn is_present(node: &Node, client: &ByteString, connection: ConnectionRef) -> bool {
    present(node, client).is_some_and(|present| present == connection)
}

/// The client's connection as far as this node's replica knows.
fn present(node: &Node, client: &ByteString) -> Option<ConnectionRef> {
    let (node, incarnation, connection) = node.routing.client(client)?.state().connection?;
    Some(ConnectionRef { node, incarnation, connection })
}

/// Does it for another node, and answers.
pub fn for_peer(node: &Arc<Node>, from: NodeId, ticket: u64, shard: ShardId, client: ByteString, connection: ConnectionRef) {
    let Some(arbiter) = node.arbiter(usize::try_from(ticket).unwrap_or(0)) else { return };
    let node = Arc::clone(node);
    arbiter.spawn(async move {
        let Some(cluster) = node.cluster() else { return };
        let is_local = node.is_local((connection.node, connection.incarnation, connection.connection));
        if !is_local && cluster.node() == connection.node {
            return; // It went with the process before this one: there is nobody to answer.
        }
        if is_local {
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
