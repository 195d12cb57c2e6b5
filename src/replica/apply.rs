//! From a Raft entry to its commands: time, recognition of resends, dispatch.

use std::collections::BTreeSet;

use bytestring::ByteString;

use super::command::{Batch, Command, Proposal};
use super::ending::{Ending, WillFate};
use super::event::{Answer, Applied, Event, Outcome};
use super::ids::{Incarnation, NodeId};
use super::record_key::RecordKey;
use super::state::State;
use crate::mqtt::{GroupId, ReasonCode};
use crate::plant::{Plant, is_planted};

/// What one entry is applied with: its time and place in the log, and what it tells.
#[derive(Debug)]
pub(super) struct Scope {
    pub now_ms: u64,
    pub index: u64,
    /// Of the last outbox event of this entry; 0 before the first.
    pub ordinal: u32,
    pub out: Applied,
    /// Who submitted the command at hand, and its number.
    pub origin: (NodeId, Incarnation, u64),
    queued: BTreeSet<ByteString>,
    queued_groups: BTreeSet<GroupId>,
}

impl Scope {
    pub(super) fn tell(&mut self, event: Event) {
        self.out.events.push(event);
    }

    /// Tells that a session's queue grew, once for each entry of the log.
    pub(super) fn tell_queued(&mut self, client: &ByteString) {
        if self.queued.insert(client.clone()) {
            self.tell(Event::Queued { client: client.clone() });
        }
    }

    pub(super) fn tell_group_queued(&mut self, group: &GroupId) {
        if self.queued_groups.insert(group.clone()) {
            self.tell(Event::GroupQueued { group: group.clone() });
        }
    }

    /// Whoever has the name from now on is told anew.
    pub(super) fn tell_session_removed(&mut self, client: ByteString, expired_at_ms: Option<u64>) {
        self.queued.remove(&client);
        self.tell(Event::SessionRemoved { client, expired_at_ms });
    }

    pub(super) fn tell_group_removed(&mut self, group: GroupId) {
        self.queued_groups.remove(&group);
        self.tell(Event::GroupRemoved { group });
    }
}

/// What to do with a command of a batch.
enum Admission {
    Apply,
    /// Applied before: a resend.
    Known,
    /// A gap, or void: nothing after it can be applied either.
    Refused,
}

impl State {
    /// Applies one Raft entry.
    pub fn apply(&mut self, index: u64, proposal: &Proposal) -> Applied {
        let now_ms = proposal.at_ms.max(self.head.last_at_ms);
        self.head.last_at_ms = now_ms;
        self.dirty.mark(RecordKey::Head);
        let mut scope = Scope {
            now_ms,
            index,
            ordinal: 0,
            out: Applied::default(),
            origin: (0, 0, 0),
            queued: BTreeSet::new(),
            queued_groups: BTreeSet::new(),
        };
        for batch in &proposal.batches {
            self.apply_batch(&mut scope, batch);
        }
        self.ahead.clear();
        scope.out
    }

    fn apply_batch(&mut self, scope: &mut Scope, batch: &Batch) {
        let (node, incarnation) = (batch.node, batch.incarnation);
        for (seq, command) in (batch.first_seq..=u64::MAX).zip(batch.commands.iter()) {
            match self.admit(node, incarnation, seq) {
                Admission::Apply => {
                    scope.origin = (node, incarnation, seq);
                    let outcome = self.apply_command(scope, command);
                    scope.out.answers.push(Answer { node, incarnation, seq, index: scope.index, outcome });
                }
                Admission::Known => {}
                Admission::Refused => break,
            }
        }
    }

    /// Decides on a command and, if it is to be applied, counts it. Asked anew for each: a command may declare its own submitter dead.
    fn admit(&mut self, node: NodeId, incarnation: Incarnation, seq: u64) -> Admission {
        let progress = self.head.nodes.entry(node).or_default();
        if progress.is_dead(incarnation) || incarnation < progress.incarnation {
            return Admission::Refused;
        }
        if incarnation > progress.incarnation {
            progress.incarnation = incarnation;
            progress.last_seq = 0;
            self.discard_under_way(node, incarnation - 1);
        }
        let progress = self.head.nodes.entry(node).or_default();
        if seq <= progress.last_seq {
            if is_planted(Plant::ResendAppliedAgain) {
                return Admission::Apply;
            }
            return Admission::Known;
        }
        if seq != progress.last_seq + 1 {
            return Admission::Refused;
        }
        progress.last_seq = seq;
        Admission::Apply
    }

    pub(super) fn apply_command(&mut self, scope: &mut Scope, command: &Command) -> Outcome {
        match command {
            Command::Connect(connect) => return self.connect(scope, connect, 0),
            Command::ConnectWithin { connect, window } => return self.connect(scope, connect, *window),
            Command::Disconnect { client, connection, initiator, reason_code, will, session_expiry_interval_s, sent_seq } => {
                let ending = Ending {
                    initiator: *initiator,
                    reason_code: *reason_code,
                    will: WillFate::of(*will),
                    sent_seq: Some(*sent_seq),
                    session_expiry_interval_s: *session_expiry_interval_s,
                    remove: false,
                };
                self.disconnect(scope, client, *connection, &ending);
            }
            Command::NodeDown { node, incarnation } => self.node_down(scope, *node, *incarnation),
            Command::Subscribe { client, connection, subscriptions } => {
                return self.subscribe(scope, client, *connection, subscriptions);
            }
            Command::Unsubscribe { client, connection, filters } => {
                return self.unsubscribe(scope, client, *connection, filters);
            }
            Command::Enqueue { message, targets } => self.enqueue(scope, message, targets),
            // Takers need not know `dead`: with either value the publisher's node has decided, and signalled if it was so.
            Command::Receive { client, connection, packet_id, message, dead: _ } => {
                return self.receive(scope, client, *connection, *packet_id, message);
            }
            Command::Release { client, connection, packet_id } => self.release(client, *connection, *packet_id),
            Command::Acknowledge { client, connection, steps } => self.acknowledge(scope, client, *connection, steps),
            Command::AcknowledgeShared { group, steps } => self.acknowledge_shared(scope, group, steps),
            Command::AssignShared { group, assignments } => self.assign_shared(scope, group, assignments, false),
            Command::AssignSharedFrom { group, assignments } => self.assign_shared(scope, group, assignments, true),
            Command::LendShared { group, from, through } => self.lend_shared(group, *from, *through),
            Command::RemoveGroup { group, next_seq } => self.remove_group(scope, group, *next_seq),
            Command::Retain { message } => self.retain(scope.now_ms, message),
            Command::Take(take) => self.take(scope, take),
            Command::TrimOutbox { through } => self.trim_outbox(*through),
            Command::Expire { limit } => self.expire(scope, *limit),
            Command::RemoveSession { client, reason_code, will } => self.kick(scope, client, *reason_code, *will, true),
            Command::Kick { client, reason_code, will } => self.kick(scope, client, *reason_code, *will, false),
            Command::Declare(declare) => self.declare(scope, declare),
            Command::Part(part) => self.take_part(scope, part),
            Command::Whole { command, cut } => return self.apply_whole(scope, command, cut),
        }
        Outcome::Done
    }
}

/// The answer to a command of a connection that is not the session's current one.
pub(super) fn superseded() -> Outcome {
    Outcome::Refused(ReasonCode::SessionTakenOver)
}
