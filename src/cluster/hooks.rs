//! What the cluster tells the rooms to its right: they implement this, `broker` hands it in.

use crate::replica::event::Event;
use crate::replica::{NodeId, ShardId, State};

use super::PeerMessage;

/// Called from the cluster's own threads; must return quickly and never block on a client.
pub trait Hooks: Send + Sync + 'static {
    /// The shard's replica on this node was loaded or replaced as a whole (start, snapshot).
    fn shard_loaded(&self, shard: ShardId, state: &State);
    /// Events of an applied entry, in log order; never called concurrently for one shard. `leads` = this node leads the shard.
    /// The answers to this node's own submissions are completed after this returns, so a client's CONNACK or SUBACK
    /// finds routing up to date.
    fn applied(&self, shard: ShardId, events: &[Event], leads: bool);
    /// This node began or ceased to lead the shard.
    fn leadership(&self, shard: ShardId, leads: bool);
    /// A peer's message (`Commands` are handled by the cluster itself).
    fn peer_message(&self, from: NodeId, message: PeerMessage);
    /// Whether so much waits for this node's clients that messages of peers should not be read for a moment.
    fn pressed(&self) -> bool {
        false
    }
    /// An operator asks nodes with more clients than their share to part with the excess.
    fn rebalance(&self) {}
    /// This node's incarnation was declared dead by the others, or it lost its majority for too long: all connections must close.
    /// Afterwards a new incarnation is in force.
    fn incarnation_lost(&self);
}
