//! What the peer can take, and sending within it.

use bytestring::ByteString;

use super::effect::{Effect, TooLarge};
use super::settings::SessionSettings;
use crate::mqtt::codec::encoded_len;
use crate::mqtt::packet::{Connect, PacketId, PublishAck};
use crate::mqtt::{Packet, ProtocolVersion, ReasonCode, UserProperties};

/// The largest packet the protocol can express, bytes.
pub(super) const PROTOCOL_MAX_PACKET_SIZE_BYTES: u32 = 268_435_460;

/// The receiving side of a connection as its CONNECT described it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) protocol: ProtocolVersion,
    max_packet_size_bytes: u32,
    /// Whether packets other than PUBLISH, CONNACK and DISCONNECT may explain themselves.
    problem_information: bool,
}

impl Peer {
    pub(super) fn new(connect: &Connect, settings: &SessionSettings) -> Self {
        let properties = &connect.properties;
        Self {
            protocol: connect.protocol,
            max_packet_size_bytes: properties.maximum_packet_size.unwrap_or(PROTOCOL_MAX_PACKET_SIZE_BYTES),
            problem_information: settings.allow_request_problem_information
                && properties.request_problem_information.unwrap_or(true),
        }
    }

    /// A peer of which only the version is known.
    pub(super) fn unknown(protocol: ProtocolVersion) -> Self {
        Self { protocol, max_packet_size_bytes: PROTOCOL_MAX_PACKET_SIZE_BYTES, problem_information: false }
    }

    /// Sends a packet if the peer may be sent it. The Reason String goes first where it does not fit, the User Properties next
    /// [MQTT-3.2.2-19] [MQTT-3.4.2-2] [MQTT-3.14.2-3]; a packet that is still too large is not sent [MQTT-3.1.2-24]: false.
    pub(super) fn send(&self, mut packet: Packet, out: &mut Vec<Effect>) -> bool {
        if !self.problem_information
            && let Some((reason_string, user_properties)) = explanation(&mut packet)
        {
            // [MQTT-3.1.2-29]
            *reason_string = None;
            user_properties.clear();
        }
        let mut fits = self.fits(&packet);
        if !fits && let Some(reason_string) = any_reason_string(&mut packet) {
            *reason_string = None;
            fits = self.fits(&packet);
        }
        if !fits && let Some(user_properties) = any_user_properties(&mut packet) {
            user_properties.clear();
            fits = self.fits(&packet);
        }
        if !fits && let Packet::Connack(connack) = &mut packet {
            // A server need not send it (MQTT 5 section 3.1.2.11.6).
            connack.properties.response_information = None;
            fits = self.fits(&packet);
        }
        if fits {
            out.push(Effect::Send(packet));
        } else if let Some(name) = acknowledgement(&packet) {
            let size_bytes = encoded_len(&packet, self.protocol);
            out.push(Effect::NotSent(TooLarge { packet: name, size_bytes, max_bytes: self.max_packet_size_bytes }));
        }
        fits
    }

    /// Whether the whole packet, fixed header included, is within the peer's Maximum Packet Size, and within the protocol's
    /// (what cannot be encoded has no length).
    pub(super) fn fits(&self, packet: &Packet) -> bool {
        (1..=self.max_packet_size_bytes as usize).contains(&encoded_len(packet, self.protocol))
    }
}

/// The name of a packet that is missed by nobody but its client.
fn acknowledgement(packet: &Packet) -> Option<&'static str> {
    match packet {
        Packet::Puback(_) => Some("PUBACK"),
        Packet::Pubrec(_) => Some("PUBREC"),
        Packet::Pubrel(_) => Some("PUBREL"),
        Packet::Pubcomp(_) => Some("PUBCOMP"),
        Packet::Suback(_) => Some("SUBACK"),
        Packet::Unsuback(_) => Some("UNSUBACK"),
        Packet::Connect(_)
        | Packet::Connack(_)
        | Packet::Publish(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::Pingreq
        | Packet::Pingresp
        | Packet::Disconnect(_)
        | Packet::Auth(_) => None,
    }
}

/// An acknowledgement that names its failure.
pub(super) fn ack(packet_id: PacketId, code: ReasonCode) -> PublishAck {
    PublishAck { reason_string: failure_text(code), ..PublishAck::new(packet_id, code) }
}

/// The Reason String of a failure; none for a success.
pub(super) fn failure_text(code: ReasonCode) -> Option<ByteString> {
    code.is_error().then(|| ByteString::from_static(code.name()))
}

/// Reason String and User Properties of a packet that carries them only where problem information was asked for.
fn explanation(packet: &mut Packet) -> Option<(&mut Option<ByteString>, &mut UserProperties)> {
    match packet {
        Packet::Puback(p) | Packet::Pubrec(p) | Packet::Pubrel(p) | Packet::Pubcomp(p) => {
            Some((&mut p.reason_string, &mut p.user_properties))
        }
        Packet::Suback(p) => Some((&mut p.reason_string, &mut p.user_properties)),
        Packet::Unsuback(p) => Some((&mut p.reason_string, &mut p.user_properties)),
        Packet::Auth(p) => Some((&mut p.properties.reason_string, &mut p.properties.user_properties)),
        Packet::Connect(_)
        | Packet::Connack(_)
        | Packet::Publish(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::Pingreq
        | Packet::Pingresp
        | Packet::Disconnect(_) => None,
    }
}

fn any_reason_string(packet: &mut Packet) -> Option<&mut Option<ByteString>> {
    match packet {
        Packet::Connack(p) => Some(&mut p.properties.reason_string),
        Packet::Disconnect(p) => Some(&mut p.properties.reason_string),
        _ => explanation(packet).map(|(reason_string, _)| reason_string),
    }
}

fn any_user_properties(packet: &mut Packet) -> Option<&mut UserProperties> {
    match packet {
        Packet::Connack(p) => Some(&mut p.properties.user_properties),
        Packet::Disconnect(p) => Some(&mut p.properties.user_properties),
        _ => explanation(packet).map(|(_, user_properties)| user_properties),
    }
}
