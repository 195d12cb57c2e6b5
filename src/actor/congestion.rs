//! Connections whose queue in memory is filling up, so that publishers can be slowed before messages are dropped.
//!
//! A publisher of QoS above 0 whose receivers are mostly congested gets its acknowledgement late: a closed loop then runs at the receivers'
//! pace. One slow receiver among several slows nobody. A receiver that brings no relief within [`PATIENCE`] is given up: nobody waits for
//! it again before its queue has been short, and it runs into its limit as before. While no queue is filling up, all this costs one atomic
//! load for each publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ahash::AHashMap;
use parking_lot::RwLock;

/// How late an acknowledgement may be.
const PATIENCE: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(1);

/// The congested connections of a node.
#[derive(Debug, Default)]
pub struct Congestion {
    count: AtomicUsize,
    /// With whether it was given up.
    connections: RwLock<AHashMap<u64, bool>>,
}

impl Congestion {
    /// A queue passed half of its limit, or fell back clearly below (or ended).
    pub fn set(&self, connection: u64, congested: bool) {
        let mut connections = self.connections.write();
        if congested {
            connections.insert(connection, false);
        } else {
            connections.remove(&connection);
        }
        self.count.store(connections.len(), Ordering::Relaxed);
    }

    /// Whether any queue is filling up.
    pub fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether more than half of these connections are congested and not given up.
    pub fn holds(&self, receivers: &[u64]) -> bool {
        let connections = self.connections.read();
        receivers.iter().filter(|connection| connections.get(connection) == Some(&false)).count() * 2 > receivers.len()
    }

    fn give_up(&self, receivers: &[u64]) {
        let mut connections = self.connections.write();
        for receiver in receivers {
            if let Some(given_up) = connections.get_mut(receiver) {
                *given_up = true;
            }
        }
    }
}

/// Resolves when most of the receivers have room again, or are given up.
pub async fn wait(congestion: Arc<Congestion>, receivers: Vec<u64>) {
    let relieved = async {
        while congestion.holds(&receivers) {
            tokio::time::sleep(LOOK).await;
        }
    };
    if tokio::time::timeout(PATIENCE, relieved).await.is_err() {
        congestion.give_up(&receivers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_receiver_among_several_slows_nobody() {
        let congestion = Congestion::default();
        assert!(!congestion.is_any());
        congestion.set(1, true);
        congestion.set(2, true);
        assert!(congestion.is_any());
        for (receivers, holds) in [(&[1][..], true), (&[1, 9], false), (&[1, 2, 9], true), (&[8, 9], false), (&[], false)] {
            assert_eq!(congestion.holds(receivers), holds, "{receivers:?}");
        }
        congestion.give_up(&[1]);
        assert!(!congestion.holds(&[1]));
        congestion.set(1, false);
        congestion.set(1, true);
        assert!(congestion.holds(&[1]), "it has been short meanwhile");
        congestion.set(1, false);
        congestion.set(2, false);
        assert!(!congestion.is_any());
    }
}
