//! Sizes of commands, to bound what waits and what one entry holds. Estimates: the fixed parts are rounded up.

use crate::replica::Command;

/// One entry holds at most so many commands, or about so many bytes.
pub const COMMANDS_MAX: usize = 512;
pub const BYTES_MAX: usize = 256 * 1024;

/// A command that holds more cannot travel in one frame and is refused.
pub const COMMAND_BYTES_MAX: usize = 32 * 1024 * 1024;

const FIXED: usize = 96;

/// Bytes a command holds, about.
pub fn command_bytes(command: &Command) -> usize {
    FIXED
        + match command {
            Command::Connect(connect) => FIXED * 4 + connect.will.as_ref().map_or(0, |will| will.message.size_bytes()),
            Command::Subscribe { subscriptions, .. } => subscriptions.len() * FIXED,
            Command::Unsubscribe { filters, .. } => filters.len() * FIXED,
            Command::Enqueue { message, targets } => message.size_bytes() + targets.len() * FIXED,
            Command::Receive { message, .. } | Command::Retain { message } => message.size_bytes(),
            Command::Acknowledge { steps, .. } | Command::AcknowledgeShared { steps, .. } => steps.len() * 16,
            Command::Take(take) => {
                let enqueued = take.enqueue.iter().map(|(message, targets)| message.size_bytes() + targets.len() * FIXED);
                let others = take.retain.iter().chain(&take.republish).map(|message| message.size_bytes());
                enqueued.sum::<usize>() + others.sum::<usize>()
            }
            _ => 0,
        }
}
