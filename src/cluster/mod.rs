//! The openraft adapter over `replica`, node-to-node transport, membership and founding, submission of commands, forwarding of
//! publishes.

mod balancer;
mod blocking;
pub mod chance;
pub mod clock;
mod control;
mod failure_detector;
mod founding;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod group;
pub mod handle;
pub mod hooks;
mod liveness;
mod membership;
mod meta;
mod node;
mod node_id;
pub mod peer_message;
mod placement;
mod raft;
mod rate_limit;
mod removal;
pub mod settings;
mod shard;
#[cfg(any(test, feature = "sim"))]
pub mod simulated;
mod submit;
mod ticker;
mod transport;
mod visibility;

pub use handle::{Cluster, ClusterError, ClusterStatus, GroupStatus, SubmitError};
pub use hooks::Hooks;
pub use node_id::node_id;
pub use peer_message::PeerMessage;
pub use removal::RemoveError;
pub use settings::ClusterSettings;
#[cfg(any(test, feature = "sim"))]
pub use transport::socket as transport_socket;

#[cfg(test)]
mod cluster_test;
