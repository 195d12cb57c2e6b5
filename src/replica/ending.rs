//! How connections and sessions end: DISCONNECT, a lost node, takeover, administrative action, expiry; and what becomes of the Will.

use std::sync::Arc;

use bytestring::ByteString;

use super::apply::Scope;
use super::command::WillRecord;
use super::event::{Event, OutboxEvent};
use super::expiry::DueKey;
use super::ids::{ConnectionRef, Incarnation, NodeId};
use super::record_key::{QueueOwner, RecordKey};
use super::session::Session;
use super::state::State;
use crate::mqtt::{Message, ReasonCode};
use crate::plant::{Plant, is_planted};
use crate::signal::{Initiator, LifecycleEvent};

/// A Session Expiry Interval of that value never ends [MQTT 5 section 3.1.2.11.2].
const NEVER_EXPIRES_S: u32 = u32::MAX;

/// The end of a connection.
#[derive(Debug)]
pub(super) struct Ending {
    pub initiator: Initiator,
    pub reason_code: Option<u8>,
    pub will: WillFate,
    /// Highest `seq` handed to the client; `None` where nobody knows.
    pub sent_seq: Option<u64>,
    /// Seconds; `None` keeps what CONNECT said.
    pub session_expiry_interval_s: Option<u32>,
    /// The session goes with the connection in any case.
    pub remove: bool,
}

/// What becomes of the Will when the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WillFate {
    /// [MQTT-3.14.4-3]
    Discarded,
    /// After its delay or when the session ends, whichever is first [MQTT-3.1.2-8].
    Published,
    /// Published at once, or not at all if it has a delay and the session goes on (spec/hivemq.md 9.6).
    TakenOver,
}

impl WillFate {
    pub(super) fn of(will: bool) -> Self {
        if will { Self::Published } else { Self::Discarded }
    }
}

impl Session {
    /// Whether the Session Expiry Interval has passed.
    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms)
    }
}

impl State {
    /// Ends a connection if it is still the session's.
    pub(super) fn disconnect(&mut self, scope: &mut Scope, client: &ByteString, connection: ConnectionRef, ending: &Ending) {
        if self.sessions.get(client).and_then(|session| session.connection) == Some(connection) {
            self.end_connection(scope, client, ending);
        }
    }

    /// Ends all connections of a node's incarnation and the ones before it, in client id order.
    pub(super) fn node_down(&mut self, scope: &mut Scope, node: NodeId, incarnation: Incarnation) {
        let progress = self.head.nodes.entry(node).or_default();
        if progress.is_dead(incarnation) {
            return;
        }
        progress.dead_through = Some(incarnation);
        self.discard_under_way(node, incarnation);
        let is_of_node = |at: ConnectionRef| at.node == node && at.incarnation <= incarnation;
        let of_node = self.sessions.in_no_order().filter(|session| session.connection.is_some_and(is_of_node));
        let mut clients: Vec<ByteString> = of_node.map(|session| session.client.clone()).collect();
        clients.sort_unstable();
        let ending = Ending {
            initiator: Initiator::Unspecified,
            reason_code: None,
            will: WillFate::Published,
            sent_seq: None,
            session_expiry_interval_s: None,
            remove: false,
        };
        for client in &clients {
            self.end_connection(scope, client, &ending);
        }
    }

    /// Ends a client's connection by decision of the server and, with `remove`, its session.
    pub(super) fn kick(&mut self, scope: &mut Scope, client: &ByteString, reason_code: u8, will: bool, remove: bool) {
        let Some(session) = self.sessions.get(client) else { return };
        if let Some(connection) = session.connection {
            let shown = ReasonCode::from_byte(reason_code).unwrap_or(ReasonCode::AdministrativeAction);
            scope.tell(Event::Close { client: client.clone(), connection, reason_code: shown });
            let ending = Ending {
                initiator: Initiator::Server,
                reason_code: Some(reason_code),
                will: WillFate::of(will),
                sent_seq: None,
                session_expiry_interval_s: None,
                remove,
            };
            self.end_connection(scope, client, &ending);
        } else if remove {
            if !will {
                self.cancel_pending_will(client);
            }
            self.remove_session(scope, client);
        }
    }

    /// Ends the connection of a session that has one: lifecycle event, Will, and the session's own end or its due time.
    pub(super) fn end_connection(&mut self, scope: &mut Scope, client: &ByteString, ending: &Ending) {
        let Some(session) = self.sessions.get_mut(client) else { return };
        let Some(connection) = session.connection.take() else { return };
        // A session that was to end with its connection cannot be prolonged by DISCONNECT [MQTT 5 section 3.14.2.2.2].
        if let Some(interval_s) = ending.session_expiry_interval_s
            && session.is_persistent()
        {
            session.session_expiry_interval_s = interval_s;
        }
        let session_ends = ending.remove || !session.is_persistent();
        let highest_seq = session.queue_head.next_seq.saturating_sub(1);
        let sent_seq =
            ending.sent_seq.map_or_else(|| session.queue.last_possibly_sent(session.window()), |seq| seq.min(highest_seq));
        session.queue_head.sent_seq = session.queue_head.sent_seq.max(sent_seq);
        let will_now = settle_will(session, ending.will, session_ends, scope.now_ms);
        self.due.change(None, session.will_due_ms, || DueKey::Will(client.clone()));
        if !session_ends {
            session.expires_at_ms = after(scope.now_ms, session.session_expiry_interval_s);
            self.due.change(None, session.expires_at_ms, || DueKey::Session(client.clone()));
            session.queue.set_begun(session.queue_head.sent_seq);
            self.due.shield(&mut session.queue, 0, client);
            self.dirty.mark(RecordKey::Session(client.clone()));
            self.dirty.mark(RecordKey::QueueHead(client.clone()));
        }
        if self.cold.is_some() && !session.queue.entries.is_empty() {
            self.left.push(client.clone());
        }
        let lifecycle = session.lifecycle.then(|| session.facts.clone());
        self.forget_connection(connection);
        self.return_unsent(scope, client);

        if let Some(facts) = lifecycle {
            let event = LifecycleEvent::Disconnected { initiator: ending.initiator, reason_code: ending.reason_code };
            self.raise_lifecycle(scope, event, facts);
        }
        if session_ends {
            self.remove_session(scope, client);
        } else {
            scope.tell(Event::Disconnected { client: client.clone(), connection });
        }
        if let Some(will) = will_now {
            self.publish_will(scope, &will);
        }
    }

    /// Removes a session with its subscriptions and queue; a Will that was still to come comes now [MQTT-3.1.2-8]. What is queued
    /// is not reported (spec/hivemq.md 2.1).
    pub(super) fn remove_session(&mut self, scope: &mut Scope, client: &ByteString) {
        let Some(session) = self.sessions.remove(client) else { return };
        let pending_will = if session.will_due_ms.is_some() { session.will.as_ref() } else { None };
        self.due.change(session.will_due_ms, None, || DueKey::Will(client.clone()));
        self.due.change(session.expires_at_ms, None, || DueKey::Session(client.clone()));
        self.due.change(session.queue.next_expiry_ms(), None, || DueKey::Queue(QueueOwner::Session(client.clone())));
        self.queued_count -= session.queue.entries.len();
        self.subscription_count -= session.subscriptions.len();
        self.dirty.session_gone(&session);
        self.ahead.forget(&QueueOwner::Session(client.clone()));
        self.forget_all_assigned(client);
        let expired_at_ms = session.expires_at_ms.filter(|at_ms| *at_ms <= scope.now_ms);
        scope.tell_session_removed(client.clone(), expired_at_ms);
        if let Some(will) = pending_will {
            self.publish_will(scope, will);
        }
    }

    /// Publishes a Will that waits out its delay.
    pub(super) fn publish_pending_will(&mut self, scope: &mut Scope, client: &ByteString) {
        if let Some(will) = self.take_pending_will(client) {
            self.publish_will(scope, &will);
        }
    }

    /// Drops a Will that waits out its delay.
    pub(super) fn cancel_pending_will(&mut self, client: &ByteString) {
        drop(self.take_pending_will(client));
    }

    fn take_pending_will(&mut self, client: &ByteString) -> Option<WillRecord> {
        let session = self.sessions.get_mut(client)?;
        let due_ms = session.will_due_ms.take()?;
        self.due.change(Some(due_ms), None, || DueKey::Will(client.clone()));
        self.dirty.mark(RecordKey::Session(client.clone()));
        if is_planted(Plant::WillStaysDue) {
            let again_ms = due_ms + 5_000;
            session.will_due_ms = Some(again_ms);
            self.due.change(None, Some(again_ms), || DueKey::Will(client.clone()));
            return session.will.clone();
        }
        session.will.take()
    }

    /// Puts a Will into the outbox: the message enters the cluster only now, so its expiry counts from now.
    fn publish_will(&mut self, scope: &mut Scope, will: &WillRecord) {
        let message = Arc::new(Message { received_at_ms: scope.now_ms, ..Message::clone(&will.message) });
        self.append_outbox(scope, OutboxEvent::Publish { message, dead_known: false });
    }

    fn forget_connection(&mut self, connection: ConnectionRef) {
        let key = (connection.node, connection.incarnation);
        if let Some(count) = self.connected.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.connected.remove(&key);
            }
        }
    }
}

/// Decides on the Will of a connection that ended: returned if it is to be published now; else `will_due_ms` is set, or it is gone.
fn settle_will(session: &mut Session, fate: WillFate, session_ends: bool, now_ms: u64) -> Option<WillRecord> {
    let will = session.will.take()?;
    match fate {
        WillFate::Discarded => None,
        WillFate::Published | WillFate::TakenOver if will.delay_interval_s == 0 || session_ends => Some(will),
        WillFate::TakenOver => None,
        WillFate::Published => {
            let delay_s = will.delay_interval_s.min(session.session_expiry_interval_s);
            session.will_due_ms = Some(now_ms.saturating_add(u64::from(delay_s) * 1000));
            session.will = Some(will);
            None
        }
    }
}

fn after(now_ms: u64, interval_s: u32) -> Option<u64> {
    (interval_s != NEVER_EXPIRES_S).then(|| now_ms.saturating_add(u64::from(interval_s) * 1000))
}
