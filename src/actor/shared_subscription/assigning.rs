//! QoS 2 messages on their way from the group's queue into the queue of the member that is to have each.
//!
//! An entry counts as its member's until it has come there: else a member would be given far more than it takes at a time, and others less.

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};
use bytestring::ByteString;

use super::{MEMBER_WINDOW, RETRY, SharedSubscription};
use crate::mqtt::GroupId;
use crate::replica::command::Assignment;
use crate::replica::{Command, OutboxEvent, ShardId, State};
use crate::routing::Member;

/// `Command::AssignSharedFrom` can be read by members from this version on.
const ASSIGN_FROM_SINCE: u16 = 3;
/// Events of the outbox that are looked at for what is still under way. Behind so many it counts as come, which costs a member a few more than it
/// takes at a time.
const UNDER_WAY_MAX: usize = 1024;

/// An entry that was assigned to a member.
#[derive(Debug)]
pub(super) struct Moving {
    pub(super) client: ByteString,
    /// The client's.
    pub(super) shard: ShardId,
    /// It has left the group's queue, and is in the outbox.
    pub(super) is_stored: bool,
}

impl SharedSubscription {
    /// Whether a member has as many as it takes at a time, in its own queue or on their way there.
    pub(super) fn is_busy(&self, key: (u64, u64, u64), member: &Member) -> bool {
        let client = &member.route.client;
        let queue = |state: &State| {
            let session = state.session(client)?;
            Some((session.queue.entries.len(), session.queue_head.limit as usize))
        };
        let read = self.node.cluster().and_then(|cluster| cluster.read(ShardId(member.route.shard), queue)).flatten();
        let Some((queued, limit)) = read else { return false };
        let window = self.windows.get(&key).copied().unwrap_or(MEMBER_WINDOW) as usize;
        let moving = self.moving.values().filter(|moving| moving.client == *client).count();
        queued + moving >= limit.min(window).max(1)
    }

    /// Moves entries into the queues of their members.
    pub(super) fn assign(&mut self, assignments: Vec<Assignment>, ctx: &mut Context<Self>) {
        let Some(cluster) = self.node.cluster().filter(|_| !assignments.is_empty()) else { return };
        let seqs: Vec<u64> = assignments.iter().map(|assignment| assignment.seq).collect();
        let submitted = cluster.submit(self.shard, assign(self.group.clone(), assignments, cluster.level()));
        ctx.spawn(submitted.into_actor(self).map(move |outcome, actor, ctx| {
            if outcome.is_err() {
                // In the queue still, or not: it is read again from the start.
                actor.restart();
                actor.retry_after(RETRY, ctx);
                return;
            }
            for seq in seqs {
                if let Some(moving) = actor.moving.get_mut(&seq) {
                    moving.is_stored = true;
                }
            }
            actor.look(ctx);
        }));
    }

    /// Entries that have come into the queues of their members are not this group's any more.
    pub(super) fn settle_moved(&mut self) {
        let Some(cluster) = self.node.cluster().filter(|_| !self.moving.is_empty()) else { return };
        let mut under_way: Vec<(&ByteString, bool)> = Vec::new();
        let mut come = Vec::new();
        for (seq, Moving { client, shard, .. }) in self.moving.iter().filter(|(_, moving)| moving.is_stored) {
            let is_under_way = match under_way.iter().find(|(known, _)| *known == client) {
                Some((_, is_under_way)) => *is_under_way,
                None => {
                    let taken = cluster.read(*shard, |state| state.taken(self.shard)).unwrap_or_default();
                    let events = cluster.read(self.shard, |state| state.outbox_after(taken, UNDER_WAY_MAX)).unwrap_or_default();
                    let found = events.iter().any(|(_, event)| is_for(event, client));
                    under_way.push((client, found));
                    found
                }
            };
            if !is_under_way {
                come.push(*seq);
            }
        }
        if !come.is_empty() {
            self.finished += 1;
            self.lending.finished();
        }
        for seq in come {
            self.moving.remove(&seq);
            self.dispatcher.done(seq);
        }
    }
}

fn is_for(event: &OutboxEvent, member: &ByteString) -> bool {
    matches!(event, OutboxEvent::Assigned { client, .. } | OutboxEvent::AssignedFrom { client, .. } if client == member)
}

/// What hands entries over in a cluster of this level: a member of a release before version 3 can read neither the newer command nor its
/// events.
fn assign(group: GroupId, assignments: Vec<Assignment>, level: u16) -> Command {
    if level < ASSIGN_FROM_SINCE {
        Command::AssignShared { group, assignments }
    } else {
        Command::AssignSharedFrom { group, assignments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hands_entries_over_is_known_to_all_members() {
        let group = GroupId { share: "g".into(), filter: "t".into() };
        for level in [2, 3] {
            let command = assign(group.clone(), Vec::new(), level);
            assert_eq!(command.since(), level, "{command:?}");
        }
    }
}
