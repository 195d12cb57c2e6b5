//! Submission: a command's way from this node to the shard's leader, and its outcome's way back.

pub mod estimate;
pub mod lane;
pub mod pending;
pub mod proposer;
pub mod submitter;

pub use lane::Lane;
pub use proposer::Proposer;
pub use submitter::Submitter;
