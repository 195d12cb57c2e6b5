//! QoS 2 messages from clients: the Packet Identifier is stored with the message that is passed on (MQTT 5 section 4.3.3, Method B).

use std::sync::Arc;

use bytestring::ByteString;

use super::apply::{Scope, superseded};
use super::event::{OutboxEvent, Outcome};
use super::ids::ConnectionRef;
use super::record_key::RecordKey;
use super::state::State;
use crate::mqtt::Message;
use crate::mqtt::packet::PacketId;
use crate::plant::{Plant, is_planted};

impl State {
    /// Stores the identifier; a message whose identifier is stored already is a resend and not published again [MQTT-4.3.3-10].
    pub(super) fn receive(
        &mut self,
        scope: &mut Scope,
        client: &ByteString,
        connection: ConnectionRef,
        packet_id: PacketId,
        message: &Arc<Message>,
    ) -> Outcome {
        let Some(session) = self.sessions.current_mut(client, connection) else { return superseded() };
        if !is_planted(Plant::Qos2IdentifierNotStored) && !session.received.insert(packet_id.get()) {
            return Outcome::Received { duplicate: true };
        }
        self.dirty.created(RecordKey::Received(client.clone(), packet_id.get()));
        self.append_outbox(scope, OutboxEvent::Publish { message: message.clone(), dead_known: true });
        Outcome::Received { duplicate: false }
    }

    /// Forgets the identifier: the next message with it is a new one [MQTT-4.3.3-12].
    pub(super) fn release(&mut self, client: &ByteString, connection: ConnectionRef, packet_id: PacketId) {
        let Some(session) = self.sessions.current_mut(client, connection) else { return };
        if session.received.remove(&packet_id.get()) {
            self.dirty.gone(RecordKey::Received(client.clone(), packet_id.get()));
        }
    }
}
