//! Who gets a message: the subscriptions of all sessions of the cluster, matched on this node alone.
//!
//! Plain data behind short locks; written by the apply path of each shard, read by every publisher.

mod collect;
mod filter_node;
mod route;
mod small_set;
pub mod table;
mod trie;

pub use collect::{ClientMatch, GroupMatch, Matches};
pub use route::{ClientRoute, RouteState};
pub use table::{Member, Table};
