//! The openraft adapter over `replica`, node-to-node transport, membership and founding, submission of commands, forwarding of
//! publishes.

mod about;
mod balancer;
pub mod blocking;
pub mod chance;
pub mod clock;
mod control;
mod drain;
mod emptied;
mod failover;
mod failure_detector;
mod founding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod group;
pub mod handle;
pub mod hooks;
mod housekeeping;
mod leaving;
mod liveness;
mod membership;
mod meta;
mod node;
mod node_id;
mod operator;
pub mod peer_message;
mod placement;
mod raft;
mod rate_limit;
mod removal;
pub mod settings;
mod shard;
mod shard_clock;
#[cfg(any(test, feature = "sim"))]
pub mod simulated;
mod submit;
mod succession;
mod ticker;
mod transfer;
mod transport;
mod versions;
mod visibility;

pub use handle::{Cluster, ClusterError, ClusterStatus, GroupStatus, Loss, MemberStatus, SubmitError};
pub use hooks::Hooks;
pub use leaving::LeaveError;
pub use node_id::node_id;
pub use peer_message::PeerMessage;
pub use removal::RemoveError;
pub use settings::{ClusterSettings, Dns};
pub use submit::Lane;
#[cfg(any(test, feature = "sim"))]
pub use transport::socket as transport_socket;
pub use versions::Protocol;

#[cfg(test)]
mod cluster_test;
#[cfg(test)]
mod released_test;
