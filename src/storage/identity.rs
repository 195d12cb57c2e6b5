//! Who the data directory belongs to.

use serde::{Deserialize, Serialize};

/// Written once, checked at every start (the incarnation grows with each start).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub node_name: String,
    /// `None` until the node founded or joined a cluster.
    pub cluster_id: Option<String>,
    pub shards: u16,
    /// The incarnation of this start: `max(stored + 1, wall clock ms)`.
    pub incarnation: u64,
    /// The founder this node promised itself to, before there is a cluster.
    pub promised_to: Option<String>,
}
