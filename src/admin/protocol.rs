//! What goes over the socket: one line of JSON asks, lines of JSON answer.

use serde::{Deserialize, Serialize};

use super::report::StatusReport;

/// Version of the protocol; both sides are the same program as a rule, of different releases at worst.
pub const VERSION: u16 = 1;
/// A longer request is refused, bytes.
pub const REQUEST_BYTES_MAX: u64 = 64 * 1024;
/// A longer answer is not read, bytes.
pub const LINE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// A longer text of a progress line is cut, bytes.
pub const TEXT_BYTES_MAX: usize = 4 * 1024;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub version: u16,
    #[serde(flatten)]
    pub command: Command,
}

/// The commands. Each can be asked for again: what is done already is not done twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Command {
    /// How the node sees the cluster; answered at once.
    Status,
    /// This node parts with its clients, takes none and leads nothing, until `Undrain` or its end.
    Drain,
    Undrain,
    /// Nodes with more clients than their share part with the excess.
    Rebalance,
    /// This node leaves the cluster for good, and ends.
    Leave,
    /// A dead member, by name, is one no more.
    Forget {
        node: String,
    },
    /// Another node leads: `group` (`meta` or the shard's number), or all groups that this node leads; `to`, or the voter least behind.
    TransferLeadership {
        to: Option<String>,
        group: Option<String>,
    },
    /// Whom this node keeps out.
    Bans,
    /// This node lets somebody in again: a client id, an address, or both.
    Pardon {
        client_id: Option<String>,
        address: Option<String>,
    },
    /// The fullest queues of sessions and shared subscriptions.
    Queues {
        top: usize,
    },
    /// Replicas of this node that came without data vote as they are.
    AcceptLoss,
}

/// A line of the answer. `Done` or `Failed` is the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    Progress {
        text: String,
    },
    Done {
        #[serde(flatten)]
        answer: Answer,
    },
    /// What is missing, and what to do.
    Failed {
        error: String,
    },
}

/// What a command that was carried out answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Text(String),
    Status(Box<StatusReport>),
}
