//! CONNECT: takeover, Clean Start, resumption.

use std::collections::BTreeMap;

use bytestring::ByteString;

use super::apply::Scope;
use super::command::{ConnectCommand, TakeOver};
use super::ending::{Ending, WillFate};
use super::event::{ConnectOutcome, Event, Outcome};
use super::expiry::DueKey;
use super::record_key::RecordKey;
use super::session::{Queue, QueueHead, Session};
use super::state::State;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::PacketId;
use crate::session::Seldom;
use crate::signal::{Initiator, LifecycleEvent};

impl State {
    /// Gives the client's session the connection; makes a session where there is none to resume.
    /// `window` as in `Session::window`.
    pub(super) fn connect(&mut self, scope: &mut Scope, command: &ConnectCommand, window: u16) -> Outcome {
        let (node, incarnation) = (command.connection.node, command.connection.incarnation);
        if self.head.nodes.get(&node).is_some_and(|progress| progress.is_dead(incarnation)) {
            return Outcome::Refused(ReasonCode::ServerUnavailable);
        }
        let client = &command.facts.client_id;
        let present = self.sessions.get(client).and_then(|session| session.connection);
        if let Some(present) = present
            && !command.take_over.allows(present)
        {
            return Outcome::Occupied(present);
        }
        let lost = matches!(command.take_over, TakeOver::Lost(_));
        self.take_over(scope, client, command.clean_start, lost);
        let session_present = self.may_resume(scope, client, command.clean_start);
        let received_packet_ids =
            if session_present { self.resume(scope, client, command, window) } else { self.create(client, command, window) };

        *self.connected.entry((node, incarnation)).or_default() += 1;
        scope.tell(Event::Connected {
            client: client.clone(),
            connection: command.connection,
            persistent: command.session_expiry_interval_s > 0,
            took_over: present.is_some() && !lost,
            facts: command.facts.clone(),
            at_ms: scope.now_ms,
        });
        if command.lifecycle {
            let event = LifecycleEvent::Connected { user_properties: command.user_properties.clone() };
            self.raise_lifecycle(scope, event, command.facts.clone());
        }
        Outcome::Connected(Box::new(ConnectOutcome { session_present, received_packet_ids }))
    }

    /// Ends the connection the session has [MQTT-3.1.4-3]. Its DISCONNECTED stands before the new CONNECTED. One that is `lost` ends as all
    /// those of its node will; should that node live after all, it closes the connection.
    fn take_over(&mut self, scope: &mut Scope, client: &ByteString, clean_start: bool, lost: bool) {
        let Some(connection) = self.sessions.get(client).and_then(|session| session.connection) else { return };
        let reason_code = ReasonCode::SessionTakenOver;
        scope.tell(Event::Close { client: client.clone(), connection, reason_code });
        let ending = Ending {
            initiator: if lost { Initiator::Unspecified } else { Initiator::SessionTakenOver },
            reason_code: (!lost).then(|| reason_code.byte()),
            will: WillFate::TakenOver,
            sent_seq: None,
            session_expiry_interval_s: None,
            remove: clean_start,
        };
        self.end_connection(scope, client, &ending);
    }

    /// Whether there is a session to resume; one that is not to be resumed goes [MQTT-3.1.2-4], an expired one too [MQTT-4.1.0-2].
    fn may_resume(&mut self, scope: &mut Scope, client: &ByteString, clean_start: bool) -> bool {
        let Some(session) = self.sessions.get(client) else { return false };
        if clean_start || session.is_expired(scope.now_ms) {
            self.remove_session(scope, client);
            return false;
        }
        true
    }

    fn create(&mut self, client: &ByteString, command: &ConnectCommand, window: u16) -> Vec<PacketId> {
        let mut session = Session {
            client: client.clone(),
            connection: Some(command.connection),
            facts: command.facts.clone(),
            lifecycle: command.lifecycle,
            session_expiry_interval_s: command.session_expiry_interval_s,
            will: command.will.clone(),
            will_due_ms: None,
            expires_at_ms: None,
            subscriptions: BTreeMap::new(),
            received: Seldom::default(),
            queue: Queue::default(),
            queue_head: QueueHead::new(command.queue_limit, command.discard_oldest),
            window,
        };
        session.queue.shield(session.window());
        self.dirty.created(RecordKey::Session(client.clone()));
        self.dirty.created(RecordKey::QueueHead(client.clone()));
        if window != 0 {
            self.dirty.created(RecordKey::Window(client.clone()));
        }
        self.sessions.insert(session);
        Vec::new()
    }

    /// Gives the stored session the new connection and its parameters; tells the QoS 2 identifiers that await PUBREL.
    fn resume(&mut self, scope: &mut Scope, client: &ByteString, command: &ConnectCommand, window: u16) -> Vec<PacketId> {
        // A Will whose delay has passed is published, though nobody came round to it yet; else it is cancelled [MQTT-3.1.3-9].
        if self.sessions.get(client).and_then(|s| s.will_due_ms).is_some_and(|due_ms| due_ms <= scope.now_ms) {
            self.publish_pending_will(scope, client);
        } else {
            self.cancel_pending_will(client);
        }
        let Some(session) = self.sessions.get_mut(client) else { return Vec::new() };
        self.dirty.mark(RecordKey::Session(client.clone()));
        self.dirty.mark(RecordKey::QueueHead(client.clone()));
        self.due.change(session.expires_at_ms.take(), None, || DueKey::Session(client.clone()));
        session.connection = Some(command.connection);
        session.facts = command.facts.clone();
        session.lifecycle = command.lifecycle;
        session.session_expiry_interval_s = command.session_expiry_interval_s;
        session.will = command.will.clone();
        session.queue_head.limit = command.queue_limit;
        session.queue_head.discard_oldest = command.discard_oldest;
        if std::mem::replace(&mut session.window, window) != window {
            self.dirty.mark(RecordKey::Window(client.clone()));
        }
        let shielded = session.window();
        self.due.shield(&mut session.queue, shielded, client);
        session.received.iter().filter_map(|id| PacketId::new(*id)).collect()
    }
}
