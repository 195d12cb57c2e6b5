//! Metrics and log output. Open to every room from `storage` on; nothing here is a global: a node makes one [`Metrics`] and hands
//! it around.

pub mod addon_counter;
mod distribution;
pub mod event_log;
pub mod hivemq;
pub mod logging;
pub mod metrics;
#[cfg(test)]
mod names_test;
mod naming;
pub mod own;
pub mod packet_type;
mod process;
pub mod rate_limited;
mod recent;
mod summary;
mod system;
pub mod tally;
pub mod utc;
pub mod vitals;

pub use addon_counter::AddonCounter;
pub use event_log::{EventLog, EventLogFiles};
pub use logging::LoggingError;
pub use metrics::{Metrics, MetricsError, Sampled};
pub use own::{RaftGroupSample, SubmitFailure};
pub use packet_type::{IncomingPacket, OutgoingPacket};
pub use rate_limited::RateLimited;
pub use tally::Tally;
pub use vitals::{DiskSample, PeerLinkSample};
