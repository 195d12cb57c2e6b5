//! Messages between the cluster parts of two nodes: founding, joining, meta commands for their leader.

use serde::{Deserialize, Serialize};

use crate::replica::NodeId;
use crate::replica::meta::MetaCommand;

use super::succession::Lasts;

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
    /// A member's process is gone, as the sender sees it, and so far the sender's logs go of the groups it led.
    Gone { node: NodeId, lasts: Lasts },
}
