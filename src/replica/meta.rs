//! The `meta` group: members, their addresses and incarnations, and what all nodes must agree on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ids::{Incarnation, NodeId};

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Stable name.
    pub name: String,
    /// `host:port` of the peer transport; resolved at each connect.
    pub address: String,
    /// The last incarnation that came up, and whether it is alive.
    pub incarnation: Incarnation,
    pub alive: bool,
}

/// What the meta group can be asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetaCommand {
    /// A node came up: an older incarnation of it is dead by that. Ignored where the incarnation is not newer.
    NodeUp { node: NodeId, member: Member },
    /// Its peers stopped hearing an incarnation. Ignored where it is not the current one.
    NodeDown { node: NodeId, incarnation: Incarnation },
    /// A node left for good.
    NodeRemoved { node: NodeId },
    /// All members speak this version: what it brought may be used.
    Raise { level: u16 },
}

impl MetaCommand {
    /// The level of the cluster from which on it may be proposed; raising needs that all members know it, and nothing else.
    pub fn since(&self) -> u16 {
        match self {
            Self::NodeUp { .. } | Self::NodeDown { .. } | Self::NodeRemoved { .. } | Self::Raise { .. } => 2,
        }
    }
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaEvent {
    Up {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// All connections of the incarnation end.
    Down {
        node: NodeId,
        incarnation: Incarnation,
    },
    Removed {
        node: NodeId,
    },
}

/// The state of the meta group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct MetaState {
    pub members: BTreeMap<NodeId, Member>,
    /// The version all members are known to speak; 0 where that was never written. A record of its own: this one's encoding was released.
    #[serde(skip)]
    pub level: u16,
}

impl MetaState {
    /// Applies one command.
    pub fn apply(&mut self, command: &MetaCommand) -> Vec<MetaEvent> {
        match command {
            MetaCommand::NodeUp { node, member } => self.node_up(*node, member),
            MetaCommand::NodeDown { node, incarnation } => self.node_down(*node, *incarnation),
            MetaCommand::Raise { level } => {
                self.level = self.level.max(*level);
                Vec::new()
            }
            MetaCommand::NodeRemoved { node } => match self.members.remove(node) {
                Some(gone) if gone.alive => {
                    vec![MetaEvent::Down { node: *node, incarnation: gone.incarnation }, MetaEvent::Removed { node: *node }]
                }
                Some(_) => vec![MetaEvent::Removed { node: *node }],
                None => Vec::new(),
            },
        }
    }

    fn node_up(&mut self, node: NodeId, member: &Member) -> Vec<MetaEvent> {
        let mut events = Vec::new();
        if let Some(known) = self.members.get(&node) {
            if known.incarnation >= member.incarnation {
                return events;
            }
            if known.alive {
                events.push(MetaEvent::Down { node, incarnation: known.incarnation });
            }
        }
        self.members.insert(node, Member { alive: true, ..member.clone() });
        events.push(MetaEvent::Up { node, incarnation: member.incarnation });
        events
    }

    fn node_down(&mut self, node: NodeId, incarnation: Incarnation) -> Vec<MetaEvent> {
        match self.members.get_mut(&node) {
            Some(member) if member.alive && member.incarnation == incarnation => {
                member.alive = false;
                vec![MetaEvent::Down { node, incarnation }]
            }
            Some(_) | None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, MetaCommand, MetaEvent, MetaState};

    fn up(incarnation: u64) -> MetaCommand {
        let member = Member { name: "n1".into(), address: "n1:7000".into(), incarnation, alive: false };
        MetaCommand::NodeUp { node: 1, member }
    }

    #[test]
    fn an_incarnation_comes_up_and_goes_down_once() {
        let down = |incarnation| MetaCommand::NodeDown { node: 1, incarnation };
        let removed = MetaCommand::NodeRemoved { node: 1 };
        let is_up = |incarnation| MetaEvent::Up { node: 1, incarnation };
        let is_down = |incarnation| MetaEvent::Down { node: 1, incarnation };
        let is_removed = MetaEvent::Removed { node: 1 };
        let steps = [
            (down(1), vec![]),
            (up(5), vec![is_up(5)]),
            (up(5), vec![]),
            (up(4), vec![]),
            (down(4), vec![]),
            (down(5), vec![is_down(5)]),
            (down(5), vec![]),
            // The dead incarnation does not come back; the next does.
            (up(5), vec![]),
            (up(6), vec![is_up(6)]),
            // A restart nobody noticed ends the incarnation before.
            (up(7), vec![is_down(6), is_up(7)]),
            (removed.clone(), vec![is_down(7), is_removed.clone()]),
            (removed.clone(), vec![]),
            (up(8), vec![is_up(8)]),
            (down(8), vec![is_down(8)]),
            (removed, vec![is_removed]),
        ];
        let mut state = MetaState::default();
        for (number, (command, events)) in steps.into_iter().enumerate() {
            assert_eq!(state.apply(&command), events, "step {number}");
        }
    }
}
