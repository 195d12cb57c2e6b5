//! Who gets a message: the subscriptions of all sessions of the cluster, matched on this node alone.
//!
//! Plain data behind short locks; written by the apply path of each shard, read by every publisher.

pub mod table;

pub use table::{ClientMatch, ClientRoute, GroupMatch, Matches, Member, RouteState, Table};
