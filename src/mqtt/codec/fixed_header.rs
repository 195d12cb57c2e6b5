//! The first byte of a packet: type and flags (MQTT 5 section 2.1).

use super::DecodeError;
use crate::mqtt::packet::Publish;
use crate::mqtt::{Packet, ProtocolVersion, QoS};

pub(super) const CONNECT: u8 = 1;
pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;
pub(super) const SUBSCRIBE: u8 = 8;
pub(super) const SUBACK: u8 = 9;
pub(super) const UNSUBSCRIBE: u8 = 10;
pub(super) const UNSUBACK: u8 = 11;
pub(super) const PINGREQ: u8 = 12;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;
pub(super) const AUTH: u8 = 15;

/// The reserved flags of PUBREL, SUBSCRIBE and UNSUBSCRIBE.
const REQUEST_FLAGS: u8 = 0b0010;
const DUP: u8 = 0b1000;

/// Refuses flags other than the reserved ones [MQTT-2.1.3-1]; those of PUBLISH are read by [`publish_flags`].
pub(super) fn check_flags(packet_type: u8, flags: u8, version: Option<ProtocolVersion>) -> Result<(), DecodeError> {
    let valid = match packet_type {
        PUBLISH => true,
        // MQTT 3.1 gave these packets QoS 1, and so a DUP flag (its section 2.1).
        PUBREL | SUBSCRIBE | UNSUBSCRIBE if version == Some(ProtocolVersion::V3_1) => flags & !DUP == REQUEST_FLAGS,
        PUBREL | SUBSCRIBE | UNSUBSCRIBE => flags == REQUEST_FLAGS,
        _ => flags == 0,
    };
    if valid { Ok(()) } else { Err(DecodeError::Malformed("reserved flags of the fixed header")) }
}

/// DUP, QoS and RETAIN of a PUBLISH.
pub(super) fn publish_flags(flags: u8) -> Result<(bool, QoS, bool), DecodeError> {
    let dup = flags & DUP != 0;
    // [MQTT-3.3.1-4]
    let qos = QoS::from_bits((flags >> 1) & 0b11).ok_or(DecodeError::Malformed("QoS 3"))?;
    // [MQTT-3.3.1-2]
    if dup && qos == QoS::AtMostOnce {
        return Err(DecodeError::Malformed("DUP with QoS 0"));
    }
    Ok((dup, qos, flags & 1 != 0))
}

pub(super) fn first_byte(packet: &Packet) -> u8 {
    match packet {
        Packet::Connect(_) => CONNECT << 4,
        Packet::Connack(_) => CONNACK << 4,
        Packet::Publish(publish) => publish_first_byte(publish),
        Packet::Puback(_) => PUBACK << 4,
        Packet::Pubrec(_) => PUBREC << 4,
        Packet::Pubrel(_) => PUBREL << 4 | REQUEST_FLAGS,
        Packet::Pubcomp(_) => PUBCOMP << 4,
        Packet::Subscribe(_) => SUBSCRIBE << 4 | REQUEST_FLAGS,
        Packet::Suback(_) => SUBACK << 4,
        Packet::Unsubscribe(_) => UNSUBSCRIBE << 4 | REQUEST_FLAGS,
        Packet::Unsuback(_) => UNSUBACK << 4,
        Packet::Pingreq => PINGREQ << 4,
        Packet::Pingresp => PINGRESP << 4,
        Packet::Disconnect(_) => DISCONNECT << 4,
        Packet::Auth(_) => AUTH << 4,
    }
}

/// Without a Packet Identifier a PUBLISH goes as QoS 0, whatever it says: the receiver could not read it otherwise.
pub(super) fn publish_first_byte(publish: &Publish) -> u8 {
    let qos = if publish.packet_id.is_some() { publish.qos } else { QoS::AtMostOnce };
    // [MQTT-3.3.1-2]
    let dup = publish.dup && qos != QoS::AtMostOnce;
    PUBLISH << 4 | u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(publish.retain)
}
