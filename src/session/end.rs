//! How a connection ends (MQTT 5 section 3.14, spec/hivemq.md 4.9, 9.5, 9.7, 9.8).

use bytestring::ByteString;

use super::connected::Connected;
use super::effect::{Effect, End};
use super::error::Offence;
use super::peer::Peer;
use crate::mqtt::codec::disconnect_code_from_client;
use crate::mqtt::packet::{Disconnect, DisconnectProperties};
use crate::mqtt::{Packet, ReasonCode};
use crate::signal::Initiator;

impl Connected {
    /// The client's DISCONNECT.
    ///
    /// # Errors
    /// A code that only a server sends; a Session Expiry Interval where CONNECT had 0 (MQTT 5 section 3.14.2.2.2).
    pub(super) fn disconnected(&self, packet: &Disconnect) -> Result<End, Offence> {
        if !self.peer.protocol.is_v5() {
            return Ok(End { will: false, ..end(Initiator::Client, Some(ReasonCode::Success)) });
        }
        // [MQTT-3.14.2-1], table 3-10
        if !disconnect_code_from_client(packet.reason_code) {
            return Err(Offence::DisconnectCode);
        }
        let expiry = packet.properties.session_expiry_interval.map(|s| s.min(self.settings.session_expiry_max_s));
        if self.session_expiry_interval_s == 0 && expiry.is_some_and(|s| s > 0) {
            return Err(Offence::SessionExpiryRaised);
        }
        // [MQTT-3.14.4-3]
        let will = packet.reason_code != ReasonCode::Success;
        Ok(End { will, session_expiry_interval_s: expiry, ..end(Initiator::Client, Some(packet.reason_code)) })
    }
}

/// The stream ended without DISCONNECT.
pub(super) fn lost() -> End {
    end(Initiator::Unspecified, None)
}

/// The server ended the connection. A node that stops is no decision about this client, so it names none (spec/hivemq.md 10.1).
pub(super) fn by_server(code: ReasonCode) -> End {
    match code {
        ReasonCode::ServerShuttingDown => lost(),
        ReasonCode::SessionTakenOver => end(Initiator::SessionTakenOver, Some(code)),
        _ => end(Initiator::Server, Some(code)),
    }
}

fn end(initiator: Initiator, reason_code: Option<ReasonCode>) -> End {
    End { initiator, reason_code, will: true, session_expiry_interval_s: None }
}

/// DISCONNECT from the server: MQTT 5 only, and only after CONNACK [MQTT-3.14.0-1].
pub(super) fn send_disconnect(peer: &Peer, reason_code: ReasonCode, reason: &str, out: &mut Vec<Effect>) {
    if !peer.protocol.is_v5() {
        return;
    }
    let reason_string = (!reason.is_empty()).then(|| ByteString::from(reason));
    let properties = DisconnectProperties { reason_string, ..DisconnectProperties::default() };
    peer.send(Packet::Disconnect(Box::new(Disconnect { reason_code, properties })), out);
}
