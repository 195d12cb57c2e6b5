//! Finding out who listens at a configured address.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::cluster::node_id;
use crate::replica::NodeId;

use super::Transport;
use super::frame::Class;
use super::hello::{HelloError, Refusal};
use super::link::connect;

/// Between attempts at an address nobody answered yet.
const RETRY: Duration = Duration::from_millis(200);
/// Between looks at a peer that was found: its address may come to belong to another.
const RECHECK: Duration = Duration::from_secs(5);

/// Watches one configured seed until the transport stops, or the seed turns out to be this node.
pub(super) async fn watch(transport: Arc<Transport>, seed: String) {
    let cancel = transport.cancel.clone();
    tokio::select! {
        biased;
        () = cancel.cancelled() => {}
        () = look(&transport, &seed) => {
            transport.own_seeds.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Looks who is there, for ever; returns where that is this node.
pub(super) async fn look(transport: &Arc<Transport>, seed: &str) {
    let mut found: Option<NodeId> = None;
    loop {
        if found.is_some_and(|node| transport.connected(node)) {
            tokio::time::sleep(RECHECK).await;
            continue;
        }
        match connect(transport, seed, Class::Messages).await {
            Ok((_, who)) => {
                transport.ensure_peer(&who.name, seed);
                transport.ensure_peer(&who.name, &who.address);
                found = Some(node_id(&who.name));
            }
            Err(HelloError::RefusedByPeer(Refusal::Itself)) => return,
            Err(error) => transport.log_refusal(seed, None, &error),
        }
        tokio::time::sleep(RETRY).await;
    }
}
