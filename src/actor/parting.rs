//! Parting with clients in good order: the node stops or drains, or has more of them than its share. They are asked to leave at a rate, so that
//! the others are not stormed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::hub::HubItem;
use super::node::Node;

const TICK: Duration = Duration::from_millis(50);
/// Nobody was left to ask for so many ticks in a row.
const IDLE_TICKS_MAX: u32 = 20;

/// Whom to part with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Every connection, also those that have not come in yet.
    All,
    /// So many of the clients that came in.
    Some(u64),
}

/// Asks clients to leave, `clients_per_second` or as many more as it takes to have asked all `by` then, until none is left to ask or
/// `goes_on` says no. Returns how many were asked.
pub async fn part_with(node: &Node, whom: Whom, by: Option<Instant>, goes_on: impl Fn() -> bool) -> u64 {
    let told = Arc::new(AtomicU64::new(0));
    let (registered, max) = match whom {
        Whom::All => (false, u64::MAX),
        Whom::Some(count) => (true, count),
    };
    let begun = Instant::now();
    let (mut idle, mut told_before, mut turn) = (0, 0, 0);
    loop {
        let asked = told.load(Ordering::Relaxed);
        let open = node.connections.load(Ordering::Relaxed);
        idle = if asked == told_before { idle + 1 } else { 0 };
        told_before = asked;
        if asked >= max || open == 0 || !goes_on() || (registered && idle > IDLE_TICKS_MAX) {
            return asked;
        }
        let left = by.map(|by| by.saturating_duration_since(Instant::now()));
        let step = step(node.settings.clients_per_second, begun.elapsed(), asked, open, left).min(max - asked);
        turn += 1;
        for (hub, count) in node.hubs().iter().zip(shares(step, node.hubs().len(), turn)) {
            if count > 0 {
                hub.post(HubItem::PartWith { count, registered, told: Arc::clone(&told), max });
            }
        }
        tokio::time::sleep(TICK).await;
    }
}

/// How many to ask in this tick: what the rate has left, or more where `left` is short for those that are open.
fn step(per_second: u32, elapsed: Duration, asked: u64, open: u64, left: Option<Duration>) -> u64 {
    let due = u64::from(per_second).saturating_mul(to_ms(elapsed + TICK)).div_ceil(1000);
    let in_time = left.map_or(0, |left| open.div_ceil((to_ms(left) / to_ms(TICK)).max(1)));
    due.saturating_sub(asked).max(in_time)
}

fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Cuts a number into as many parts as there are arbiters, the odd ones to others at each turn.
fn shares(count: u64, parts: usize, turn: usize) -> impl Iterator<Item = usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let (each, odd) = (count / parts.max(1), count % parts.max(1));
    (0..parts).map(move |part| each + usize::from((part + turn) % parts < odd))
}

/// Parts with all clients as long as the cluster part drains.
pub async fn drain(node: Arc<Node>) {
    let drains = || node.cluster().is_some_and(crate::cluster::Cluster::is_draining);
    let parted = part_with(&node, Whom::All, None, drains).await;
    tracing::info!(clients = parted, drained = drains(), "parted with clients");
}

/// Parts with the clients this node has beyond its share of those of the cluster.
pub async fn rebalance(node: Arc<Node>) {
    let Some(cluster) = node.cluster().cloned() else { return };
    let excess = excess(&cluster.clients_by_node().into_iter().collect::<Vec<_>>(), cluster.node());
    if excess == 0 || node.rebalancing.swap(true, Ordering::AcqRel) {
        return;
    }
    let parted = part_with(&node, Whom::Some(excess), None, || !cluster.is_draining()).await;
    node.rebalancing.store(false, Ordering::Release);
    tracing::info!(clients = parted, excess, "parted with clients beyond this node's share");
}

/// Clients of a node beyond an equal share, rounded up.
fn excess(clients_by_node: &[(u64, u64)], own: u64) -> u64 {
    let total: u64 = clients_by_node.iter().map(|(_, clients)| clients).sum();
    let share = total.div_ceil((clients_by_node.len() as u64).max(1));
    clients_by_node.iter().find(|(node, _)| *node == own).map_or(0, |(_, clients)| clients.saturating_sub(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_asked_at_the_rate_and_faster_where_time_is_short() {
        let ms = Duration::from_millis;
        // (clients a second, elapsed, asked, open, time left, asked now)
        let cases = [
            (1000, ms(0), 0, 10_000, None, 50),
            (1000, ms(50), 50, 9_950, None, 50),
            (1000, ms(1_000), 900, 9_100, None, 150),
            (1000, ms(50), 200, 100, None, 0),
            (1, ms(0), 0, 5, None, 1),
            (1, ms(500), 1, 5, None, 0),
            (1000, ms(0), 0, 10_000, Some(ms(10_000)), 50),
            (1000, ms(0), 0, 10_000, Some(ms(1_000)), 500),
            (1000, ms(0), 0, 10_000, Some(ms(0)), 10_000),
        ];
        for (rate, elapsed, asked, open, left, expected) in cases {
            assert_eq!(step(rate, elapsed, asked, open, left), expected, "{rate} {elapsed:?} {asked} {open} {left:?}");
        }
    }

    #[test]
    fn every_arbiter_gets_its_share_and_the_odd_ones_go_round() {
        assert_eq!(shares(7, 3, 0).collect::<Vec<_>>(), [3, 2, 2]);
        assert_eq!(shares(1, 2, 0).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(shares(1, 2, 1).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(shares(1, 0, 1).count(), 0);
    }

    #[test]
    fn beyond_its_share_is_what_others_could_take() {
        assert_eq!(excess(&[(1, 90), (2, 0), (3, 0)], 1), 60);
        assert_eq!(excess(&[(1, 31), (2, 30), (3, 30)], 1), 0);
        assert_eq!(excess(&[(1, 32), (2, 30), (3, 29)], 1), 1);
        assert_eq!(excess(&[(2, 30), (3, 29)], 1), 0);
        assert_eq!(excess(&[], 1), 0);
    }
}
