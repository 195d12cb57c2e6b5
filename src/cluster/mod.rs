//! The openraft adapter over `replica`, node-to-node transport, membership and founding, submission of commands, forwarding of
//! publishes.

pub mod handle;
pub mod hooks;
pub mod peer_message;
pub mod settings;

pub use handle::{Cluster, ClusterError, ClusterStatus, GroupStatus, SubmitError};
pub use hooks::Hooks;
pub use peer_message::PeerMessage;
pub use settings::ClusterSettings;
