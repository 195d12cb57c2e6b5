//! Declares incarnations dead: the leader of `meta` watches its links.
//!
//! A crash is noticed at once: the connections end and nothing listens at the address any more. Silence (a cut cable, a stopped
//! process) is bounded by `ClusterSettings::silence_ms`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::meta::MetaCommand;
use crate::replica::{Incarnation, NodeId};

use super::clock::monotonic_ms;
use super::membership::propose_meta;
use super::node::Node;
use super::transport::PeerView;

const LOOK: Duration = Duration::from_millis(100);
/// Before a death is declared again that was not applied.
const AGAIN: Duration = Duration::from_secs(1);

pub async fn run(node: Arc<Node>) {
    let mut led_since_ms = None;
    let mut declared: BTreeMap<(NodeId, Incarnation), Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = node.link_bell.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        if !node.meta_group().view().leads {
            led_since_ms = None;
            continue;
        }
        let led_ms = monotonic_ms().saturating_sub(*led_since_ms.get_or_insert_with(monotonic_ms));
        declared.retain(|_, at| at.elapsed() < AGAIN);
        let dead: Vec<MetaCommand> = dead_incarnations(&node, led_ms)
            .into_iter()
            .filter(|incarnation| declared.insert(*incarnation, Instant::now()).is_none())
            .map(|(node, incarnation)| MetaCommand::NodeDown { node, incarnation })
            .collect();
        if !dead.is_empty() {
            propose_meta(&node, dead).await;
        }
    }
}

fn dead_incarnations(node: &Node, led_ms: u64) -> Vec<(NodeId, Incarnation)> {
    let Some(transport) = &node.transport else { return Vec::new() };
    let peers: BTreeMap<NodeId, PeerView> = transport.peers().into_iter().map(|peer| (peer.id, peer)).collect();
    let alive = node.meta.members().into_iter().filter(|(id, member)| *id != node.id && member.alive);
    alive
        .filter(|(id, member)| is_dead(peers.get(id), member.incarnation, led_ms, node.settings.silence_ms()))
        .map(|(id, member)| (id, member.incarnation))
        .collect()
}

/// Judges one incarnation. A new leader knows how long a peer it heard before is silent; one it never heard gets as long from now.
fn is_dead(peer: Option<&PeerView>, incarnation: Incarnation, led_ms: u64, silence_ms: u64) -> bool {
    let Some(peer) = peer else { return led_ms > silence_ms };
    let restarted = peer.connected && peer.incarnation.is_some_and(|known| known > incarnation);
    let silent_ms = peer.silent_ms.unwrap_or(led_ms);
    restarted || peer.refused || (!peer.connected && silent_ms > silence_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> PeerView {
        PeerView {
            id: 2,
            name: "b".into(),
            address: "b:1".into(),
            incarnation: Some(7),
            cluster_id: None,
            connected: true,
            refused: false,
            silent_ms: Some(10),
        }
    }

    #[test]
    fn deaths_are_told_by_refusal_silence_and_restart() {
        let down = |refused, silent_ms| PeerView { connected: false, refused, silent_ms: Some(silent_ms), ..peer() };
        let cases = [
            (Some(peer()), 7, false),
            (Some(peer()), 6, true),
            (Some(down(true, 10)), 7, true),
            (Some(down(false, 10)), 7, false),
            (Some(down(false, 3001)), 7, true),
            (None, 7, true),
        ];
        for (peer, incarnation, dead) in cases {
            assert_eq!(is_dead(peer.as_ref(), incarnation, 5000, 3000), dead, "{peer:?} {incarnation}");
        }
    }

    #[test]
    fn a_new_leader_waits_for_a_peer_it_never_heard() {
        let silent = PeerView { connected: false, silent_ms: None, ..peer() };
        assert!(!is_dead(Some(&silent), 7, 2999, 3000));
        assert!(is_dead(Some(&silent), 7, 3001, 3000));
        assert!(!is_dead(None, 7, 2999, 3000));
    }
}
