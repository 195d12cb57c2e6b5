//! Sizes of commands, to bound what waits and what one entry holds. Estimates: the fixed parts are rounded up.

use crate::mqtt::{GroupId, SubscriptionFilter};
use crate::replica::{Command, Target};

/// One entry holds at most so many commands, or about so many bytes.
pub const COMMANDS_MAX: usize = 512;
pub const BYTES_MAX: usize = 256 * 1024;

/// A command that holds more, without a large payload (which travels in parts), cannot travel in one frame and is refused.
pub const COMMAND_BYTES_MAX: usize = 32 * 1024 * 1024;

const FIXED: usize = 96;

/// Bytes a command holds, about: every name and text counts, whose lengths clients choose.
pub fn command_bytes(command: &Command) -> usize {
    FIXED
        + match command {
            Command::Connect(connect) | Command::ConnectWithin { connect, .. } => {
                let facts = &connect.facts;
                let texts = facts.client_id.len() + facts.username.as_ref().map_or(0, |name| name.len());
                let properties = connect.user_properties.iter().map(|(name, value)| FIXED + name.len() + value.len());
                let will = connect.will.as_ref().map_or(0, |will| will.message.size_bytes());
                FIXED * 4 + texts + properties.sum::<usize>() + will
            }
            Command::Subscribe { client, subscriptions, .. } => {
                client.len() + subscriptions.iter().map(|kept| filter_bytes(&kept.filter)).sum::<usize>()
            }
            Command::Unsubscribe { client, filters, .. } => client.len() + filters.iter().map(filter_bytes).sum::<usize>(),
            Command::Enqueue { message, targets } => message.size_bytes() + targets_bytes(targets),
            Command::Receive { client, message, .. } => client.len() + message.size_bytes(),
            Command::Retain { message } => message.size_bytes(),
            Command::Acknowledge { client, steps, .. } => client.len() + steps.len() * 16,
            Command::AcknowledgeShared { group, steps } => group_bytes(group) + steps.len() * 16,
            Command::AssignShared { group, assignments } | Command::AssignSharedFrom { group, assignments } => {
                group_bytes(group) + assignments.iter().map(|assigned| FIXED + assigned.client.len()).sum::<usize>()
            }
            Command::RemoveGroup { group, .. } | Command::LendShared { group, .. } => group_bytes(group),
            Command::Declare(declare) => declare.groups.iter().map(|group| FIXED + group_bytes(group)).sum(),
            Command::Take(take) => {
                let enqueued = take.enqueue.iter().map(|(message, targets)| message.size_bytes() + targets_bytes(targets));
                let others = take.retain.iter().chain(&take.republish).map(|message| message.size_bytes());
                enqueued.sum::<usize>() + others.sum::<usize>()
            }
            Command::Disconnect { client, .. }
            | Command::Release { client, .. }
            | Command::RemoveSession { client, .. }
            | Command::Kick { client, .. } => client.len(),
            Command::Part(part) => part.bytes.len(),
            Command::Whole { command, cut } => command_bytes(command) + cut.len() * 4,
            Command::NodeDown { .. } | Command::TrimOutbox { .. } | Command::Expire { .. } => 0,
        }
}

fn filter_bytes(filter: &SubscriptionFilter) -> usize {
    FIXED + filter.filter.len() + filter.share.as_ref().map_or(0, |share| share.len())
}

fn group_bytes(group: &GroupId) -> usize {
    group.share.len() + group.filter.len()
}

fn targets_bytes(targets: &[Target]) -> usize {
    let target = |target: &Target| match target {
        Target::Session { client, .. } => client.len(),
        Target::Group { group, .. } | Target::Returned { group } => group_bytes(group),
        Target::Member { client, group, .. } => client.len() + group_bytes(group),
    };
    targets.iter().map(|t| FIXED + target(t)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::{QoS, RetainHandling, SubscriptionOptions};
    use crate::replica::ConnectionRef;
    use crate::replica::command::SubscriptionRecord;

    #[test]
    fn a_subscribe_of_long_filters_is_as_large_as_it_is() {
        let options = SubscriptionOptions {
            qos: QoS::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: RetainHandling::Send,
        };
        let filter = SubscriptionFilter { share: None, filter: "f".repeat(65_000).into() };
        let subscriptions = vec![SubscriptionRecord { filter, options, identifier: None }; 1100];
        let connection = ConnectionRef { node: 1, incarnation: 1, connection: 1 };
        let command = Command::Subscribe { client: "c".into(), connection, subscriptions };
        assert!(command_bytes(&command) > COMMAND_BYTES_MAX);
        let encoded = bincode::serde::encode_to_vec(&command, bincode::config::standard()).unwrap();
        assert!(command_bytes(&command) >= encoded.len());
    }
}
