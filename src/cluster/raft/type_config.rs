//! The types openraft is instantiated with: one set for the meta group and all shards.

use std::fmt;
use std::sync::Arc;

use openraft::type_config::alias::{EntryOf, LogIdOf, SnapshotMetaOf, StoredMembershipOf, VoteOf};
use serde::{Deserialize, Serialize};

use crate::cluster::submit::estimate::command_bytes;
use crate::replica::meta::MetaCommand;
use crate::replica::{NodeId, Proposal};

use super::runtime::Runtime;
use super::state_machine::StateMachine;

openraft::declare_raft_types!(
    /// One configuration for all groups.
    pub TypeConfig:
        D = Payload,
        R = (),
        NodeId = NodeId,
        Node = PeerNode,
        AsyncRuntime = Runtime,
);

pub type Raft = openraft::Raft<TypeConfig, StateMachine>;
pub type Entry = EntryOf<TypeConfig>;
pub type LogId = LogIdOf<TypeConfig>;
pub type Vote = VoteOf<TypeConfig>;
pub type StoredMembership = StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = SnapshotMetaOf<TypeConfig>;

/// What an entry carries. openraft clones entries for each follower, so the content is shared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Payload {
    Shard(Arc<Proposal>),
    Meta(Vec<MetaCommand>),
}

impl Payload {
    /// How many commands, and about how many bytes they hold.
    pub fn weight(&self) -> (usize, usize) {
        match self {
            Self::Shard(proposal) => {
                let commands = proposal.batches.iter().flat_map(|batch| batch.commands.iter());
                commands.fold((0, 0), |(count, bytes), command| (count + 1, bytes + command_bytes(command)))
            }
            Self::Meta(commands) => (commands.len(), 0),
        }
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(proposal) => write!(f, "{} batches", proposal.batches.len()),
            Self::Meta(commands) => write!(f, "{} meta commands", commands.len()),
        }
    }
}

/// A member as the Raft configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PeerNode {
    pub name: String,
    /// `host:port` of the peer transport.
    pub address: String,
}

impl fmt::Display for PeerNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}
