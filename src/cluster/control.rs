//! Messages between the cluster parts of two nodes: founding, joining, meta commands for their leader.

use serde::{Deserialize, Serialize};

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::succession::Lasts;

/// The protocol version from which on peers know all of these messages.
pub const FEATURES: u16 = 3;

/// One such message; sent again by its origin until its effect is seen, so none is answered for its own sake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// For the leader of `meta`, from its origin.
    Meta(Vec<MetaCommand>),
    /// The sender wants to be a member of all groups; each leader adds it to those it leads.
    Join { name: String, address: String },
    /// A stopped node leaves for good: each leader removes it from the groups it leads.
    Remove { node: NodeId },
    /// There is a cluster; these are its members as (name, address).
    Cluster { id: String, members: Vec<(String, String)> },
    /// The founder to be asks for a written promise.
    PromiseRequest { founder: String },
    /// The promise, or to whom it was given before.
    PromiseReply { promised_to: String },
    // What follows is told to peers that speak `FEATURES` or more.
    /// What the sender says of itself, as JSON: more can be said without another variant.
    About(String),
    /// As `Join`, from a node that came without data: it has no vote in these groups until `Counted` says from where on it counts.
    JoinEmpty { name: String, address: String, process: u64, groups: Vec<u16> },
    /// That process of the receiver is known to the leader of the group to have come without data, and has been a learner since `index`.
    Counted { group: u16, index: u64, process: u64 },
    /// The receiver is asked to remove a member that is dead, or says so of itself.
    Forget { node: NodeId },
    /// What the removal came to; said only at its end.
    Forgotten { node: NodeId, error: Option<String> },
    /// For the leader of a group: another is to lead, `to` or the voter that is the least behind.
    Transfer { group: u16, to: Option<NodeId> },
    /// The receiver is to lead the group because an operator wants it, and is not to spread that leadership for a while.
    KeepLeading { group: u16 },
    /// Whether the sender stops or drains: nothing is handed to it. Told again every second while it does.
    Draining { draining: bool },
    /// Nodes with more clients than their share are to part with the excess.
    Rebalance,
    /// A member's process is gone, as the sender sees it, and so far the sender's logs go of the groups it led.
    Gone { node: NodeId, lasts: Lasts },
    /// To that process of the receiver, which came without data: group, term and sets of voters, as the sender knows them (`emptied`).
    Terms { process: u64, groups: Vec<(u16, u64, Vec<Vec<NodeId>>)> },
}

impl Control {
    /// The protocol version that brought it.
    pub fn since(&self) -> u16 {
        match self {
            Self::Meta(_)
            | Self::Join { .. }
            | Self::Remove { .. }
            | Self::Cluster { .. }
            | Self::PromiseRequest { .. }
            | Self::PromiseReply { .. } => 2,
            Self::About(_)
            | Self::JoinEmpty { .. }
            | Self::Counted { .. }
            | Self::Forget { .. }
            | Self::Forgotten { .. }
            | Self::Transfer { .. }
            | Self::KeepLeading { .. }
            | Self::Draining { .. }
            | Self::Rebalance
            | Self::Gone { .. }
            | Self::Terms { .. } => FEATURES,
        }
    }
}
