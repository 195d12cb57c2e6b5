//! What `troupemq cluster status` shows: plain data, also what `--json` prints.

use serde::{Deserialize, Serialize};

/// The cluster as one node sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusReport {
    /// Name of the node that answers.
    pub node: String,
    /// Version of its program.
    pub version: String,
    /// `None` until the node founded or found a cluster.
    pub cluster_id: Option<String>,
    /// Clients may come.
    pub ready: bool,
    /// What readiness waits for.
    pub waiting_for: Option<Waiting>,
    pub members: Vec<MemberReport>,
    pub groups: Vec<GroupReport>,
    /// What an operator should know of: settings that differ between nodes, and the like.
    pub warnings: Vec<String>,
}

/// Something that is awaited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub what: String,
    /// Wall clock, ms since the epoch.
    pub since_ms: u64,
    /// Until the report was made, ms.
    pub for_ms: u64,
}

/// A member, by what `meta` says and what this node sees of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberReport {
    pub name: String,
    pub address: String,
    pub incarnation: u64,
    /// By `meta`.
    pub alive: bool,
    /// There is a link to it, or it is the node that answers.
    pub connected: bool,
    /// It serves what it has and is not to be given more.
    pub draining: bool,
    /// What it last said of itself; `None` where it said nothing yet.
    pub version: Option<String>,
    /// Versions of the protocol between nodes it speaks, lowest and highest.
    pub protocol: Option<(u16, u16)>,
}

/// A Raft group, by this node's replica.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupReport {
    /// `meta` or the shard's number.
    pub name: String,
    /// Name of the leader in reach.
    pub leader: Option<String>,
    pub term: u64,
    pub voters: Vec<String>,
    pub learners: Vec<String>,
    pub last_log_index: u64,
    pub applied_index: u64,
    /// Entries committed, as far as this node knows, and not applied here.
    pub lag: u64,
    /// A change of its members is under way: what `voters` says is not agreed on yet.
    pub changing: bool,
}
