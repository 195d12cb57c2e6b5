//! Declares incarnations dead: the leader of `meta` watches its links.
//!
//! A crash is noticed at once: the connections end and nothing listens at the address any more, as a majority finds (`succession::is_gone`; what
//! this node alone finds may be a firewall that refuses, and is silence). Silence (a cut cable, a stopped
//! process) is bounded by `ClusterSettings::silence_ms`. A silent node is not declared dead before its right to serve has run out
//! (`visibility::lease`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::meta::{Member, MetaCommand};
use crate::replica::{Incarnation, NodeId};

use super::clock::monotonic_ms;
use super::membership::propose_meta;
use super::node::Node;
use super::succession;
use super::transport::PeerView;
use super::visibility::lease::GRANT_MS;

const LOOK: Duration = Duration::from_millis(100);
/// Before a death is declared again that was not applied.
const AGAIN: Duration = Duration::from_secs(1);

pub async fn run(node: Arc<Node>) {
    // The term in which this node leads, and since when.
    let mut led: Option<(u64, u64)> = None;
    let mut before = None;
    let mut declared: BTreeMap<(NodeId, Incarnation), Instant> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            () = node.link_bell.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let view = node.meta_group().view();
        if let Some(leader) = view.leader.filter(|leader| *leader != node.id) {
            before = Some((leader, view.term));
        }
        if !view.leads {
            led = None;
            continue;
        }
        // Nobody led in between: it had no lease but its own leadership, which is over.
        let predecessor = before.filter(|(_, term)| term + 1 == view.term).map(|(leader, _)| leader);
        let since_ms = match led {
            Some((term, since_ms)) if term == view.term => since_ms,
            // Another may have led in between, for less than a look.
            _ => {
                node.visibility.leases.lead_anew();
                let now_ms = monotonic_ms();
                led = Some((view.term, now_ms));
                now_ms
            }
        };
        let led_ms = monotonic_ms().saturating_sub(since_ms);
        declared.retain(|_, at| at.elapsed() < AGAIN);
        let dead: Vec<MetaCommand> = dead_incarnations(&node, led_ms, predecessor)
            .into_iter()
            .filter(|incarnation| declared.insert(*incarnation, Instant::now()).is_none())
            .map(|(node, incarnation)| MetaCommand::NodeDown { node, incarnation })
            .collect();
        if !dead.is_empty() {
            propose_meta(&node, dead).await;
        }
    }
}

fn dead_incarnations(node: &Node, led_ms: u64, predecessor: Option<NodeId>) -> Vec<(NodeId, Incarnation)> {
    let Some(transport) = &node.transport else { return Vec::new() };
    let leases = &node.visibility.leases;
    leases.retain(|id, incarnation| !node.meta.is_dead(id, incarnation));
    let peers: BTreeMap<NodeId, PeerView> = transport.peers().into_iter().map(|peer| (peer.id, peer)).collect();
    let alive = node.meta.members().into_iter().filter(|(id, member)| *id != node.id && member.alive);
    let mut dead = Vec::new();
    for (id, Member { incarnation, .. }) in alive {
        let judgement = judge(peers.get(&id), incarnation, || succession::is_gone(node, id), led_ms, node.settings.silence_ms());
        let leased_by_another = led_ms <= GRANT_MS && predecessor != Some(id);
        let is_dead = match judgement {
            Judgement::Gone => leases.condemn(id, incarnation, true, monotonic_ms()),
            Judgement::Silent => !leased_by_another && leases.condemn(id, incarnation, false, monotonic_ms()),
            // Declared once, it stays so: its lease was not renewed since.
            Judgement::Alive => leases.is_condemned(id, incarnation),
        };
        if is_dead {
            dead.push((id, incarnation));
        }
    }
    dead
}

/// What is known of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Alive,
    Silent,
    /// Its process is.
    Gone,
}

/// Judges one incarnation. A new leader knows how long a peer it heard before is silent; one it never heard gets as long from now.
fn judge(
    peer: Option<&PeerView>,
    incarnation: Incarnation,
    is_gone: impl Fn() -> bool,
    led_ms: u64,
    silence_ms: u64,
) -> Judgement {
    let silent = |silent_ms| if silent_ms > silence_ms { Judgement::Silent } else { Judgement::Alive };
    let Some(peer) = peer else { return silent(led_ms) };
    let restarted = peer.connected && peer.incarnation.is_some_and(|known| known > incarnation);
    if restarted || (peer.refused && is_gone()) {
        return Judgement::Gone;
    }
    if peer.connected { Judgement::Alive } else { silent(peer.silent_ms.unwrap_or(led_ms)) }
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
            (Some(peer()), 7, false, Judgement::Alive),
            (Some(peer()), 6, false, Judgement::Gone),
            (Some(down(true, 10)), 7, true, Judgement::Gone),
            // Refused by what only this node meets.
            (Some(down(true, 10)), 7, false, Judgement::Alive),
            (Some(down(true, 3001)), 7, false, Judgement::Silent),
            (Some(down(false, 10)), 7, true, Judgement::Alive),
            (Some(down(false, 3001)), 7, false, Judgement::Silent),
            (None, 7, false, Judgement::Silent),
        ];
        for (peer, incarnation, said, judgement) in cases {
            assert_eq!(judge(peer.as_ref(), incarnation, || said, 5000, 3000), judgement, "{peer:?} {incarnation} {said}");
        }
    }

    #[test]
    fn a_new_leader_waits_for_a_peer_it_never_heard() {
        let silent = PeerView { connected: false, silent_ms: None, ..peer() };
        assert_eq!(judge(Some(&silent), 7, || true, 2999, 3000), Judgement::Alive);
        assert_eq!(judge(Some(&silent), 7, || true, 3001, 3000), Judgement::Silent);
        assert_eq!(judge(None, 7, || true, 2999, 3000), Judgement::Alive);
    }
}
