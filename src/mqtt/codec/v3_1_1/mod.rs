//! The packets of MQTT 3.1 and 3.1.1, which differ only in CONNECT, CONNACK and flags.

mod connect;
mod return_code;

use bytes::Bytes;

pub use return_code::v3_return_code;

use super::DecodeError;
use super::fixed_header as ty;
use super::reader::Reader;
use super::writer::Sink;
use crate::mqtt::packet::{
    Connack, ConnackProperties, Disconnect, DisconnectProperties, Publish, PublishAck, PublishProperties, RetainHandling, Suback,
    Subscribe, SubscriptionOptions, SubscriptionRequest, Unsuback, Unsubscribe,
};
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, UserProperties, topic_name};
pub(super) use connect::read_connect;

/// Any failure in a SUBACK (3.1.1 section 3.9.3; 3.1 knows none, and its clients are closed instead by the session).
const SUBACK_FAILURE: u8 = 0x80;

/// Whether MQTT 3 can say this at all.
pub(super) fn has(packet: &Packet) -> bool {
    match packet {
        Packet::Connack(connack) => v3_return_code(connack.reason_code).is_some(),
        Packet::Auth(_) => false,
        _ => true,
    }
}

/// Reads the body of any packet but CONNECT.
pub(super) fn read(packet_type: u8, flags: u8, version: ProtocolVersion, reader: &mut Reader) -> Result<Packet, DecodeError> {
    Ok(match packet_type {
        ty::CONNACK => Packet::Connack(Box::new(read_connack(version, reader)?)),
        ty::PUBLISH => Packet::Publish(Box::new(read_publish(flags, reader)?)),
        ty::PUBACK => Packet::Puback(read_ack(reader)?),
        ty::PUBREC => Packet::Pubrec(read_ack(reader)?),
        ty::PUBREL => Packet::Pubrel(read_ack(reader)?),
        ty::PUBCOMP => Packet::Pubcomp(read_ack(reader)?),
        ty::SUBSCRIBE => Packet::Subscribe(Box::new(read_subscribe(reader)?)),
        ty::SUBACK => Packet::Suback(Box::new(read_suback(reader)?)),
        ty::UNSUBSCRIBE => Packet::Unsubscribe(Box::new(read_unsubscribe(reader)?)),
        ty::UNSUBACK => Packet::Unsuback(Box::new(Unsuback {
            packet_id: reader.packet_id()?,
            reason_codes: Vec::new(),
            reason_string: None,
            user_properties: UserProperties::new(),
        })),
        ty::PINGREQ => Packet::Pingreq,
        ty::PINGRESP => Packet::Pingresp,
        ty::DISCONNECT => Packet::Disconnect(Box::new(Disconnect {
            reason_code: ReasonCode::Success,
            properties: DisconnectProperties::default(),
        })),
        _ => return Err(DecodeError::Malformed("packet type")),
    })
}

/// Writes the body of any packet but PUBLISH.
pub(super) fn write<S: Sink>(packet: &Packet, version: ProtocolVersion, out: &mut S) {
    match packet {
        Packet::Connect(connect) => connect::write(connect, out),
        Packet::Connack(connack) => write_connack(connack, version, out),
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => out.u16(ack.packet_id.get()),
        Packet::Subscribe(subscribe) => {
            out.u16(subscribe.packet_id.get());
            for request in &subscribe.filters {
                out.string(&request.filter);
                out.u8(request.options.qos as u8);
            }
        }
        Packet::Suback(suback) => {
            out.u16(suback.packet_id.get());
            for code in &suback.reason_codes {
                out.u8(if code.is_error() { SUBACK_FAILURE } else { code.byte() });
            }
        }
        Packet::Unsubscribe(unsubscribe) => {
            out.u16(unsubscribe.packet_id.get());
            for filter in &unsubscribe.filters {
                out.string(filter);
            }
        }
        Packet::Unsuback(unsuback) => out.u16(unsuback.packet_id.get()),
        Packet::Publish(_) | Packet::Pingreq | Packet::Pingresp | Packet::Disconnect(_) | Packet::Auth(_) => {}
    }
}

fn read_connack(version: ProtocolVersion, reader: &mut Reader) -> Result<Connack, DecodeError> {
    // MQTT 3.1 has a reserved byte where 3.1.1 put Session Present.
    let byte = reader.u8()?;
    let flags = if version == ProtocolVersion::V3_1 { 0 } else { byte };
    if flags > 1 {
        return Err(DecodeError::Malformed("reserved connect acknowledge flags"));
    }
    let reason_code = return_code::from_return_code(reader.u8()?)?;
    // [MQTT-3.2.2-4 of 3.1.1]
    if flags == 1 && reason_code.is_error() {
        return Err(DecodeError::Protocol("session present in a refusal"));
    }
    Ok(Connack { session_present: flags == 1, reason_code, properties: ConnackProperties::default() })
}

fn write_connack<S: Sink>(connack: &Connack, version: ProtocolVersion, out: &mut S) {
    // [MQTT-3.2.2-4 of 3.1.1]
    let told = connack.session_present && version == ProtocolVersion::V3_1_1 && !connack.reason_code.is_error();
    out.u8(u8::from(told));
    out.u8(v3_return_code(connack.reason_code).unwrap_or(return_code::NOT_AUTHORIZED));
}

fn read_publish(flags: u8, reader: &mut Reader) -> Result<Publish, DecodeError> {
    let (dup, qos, retain) = ty::publish_flags(flags)?;
    let topic = reader.string()?;
    // [MQTT-3.3.2-2] [MQTT-4.7.3-1]
    if !topic_name::is_valid(&topic) {
        return Err(DecodeError::Code(ReasonCode::TopicNameInvalid, "topic name is empty or has a wildcard"));
    }
    let packet_id = if qos == QoS::AtMostOnce { None } else { Some(reader.packet_id()?) };
    let payload: Bytes = reader.take_rest();
    Ok(Publish { dup, qos, retain, topic, packet_id, properties: PublishProperties::default(), payload })
}

fn read_ack(reader: &mut Reader) -> Result<PublishAck, DecodeError> {
    Ok(PublishAck::new(reader.packet_id()?, ReasonCode::Success))
}

fn read_subscribe(reader: &mut Reader) -> Result<Subscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        let filter = reader.string()?;
        // [MQTT-3.8.3-4 of 3.1.1]: the upper six bits are reserved, and 3 is no QoS.
        let qos = QoS::from_bits(reader.u8()?).ok_or(DecodeError::Malformed("requested QoS"))?;
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
        filters.push(SubscriptionRequest { filter, options });
    }
    // [MQTT-3.8.3-3 of 3.1.1]
    if filters.is_empty() {
        return Err(DecodeError::Protocol("SUBSCRIBE without topic filter"));
    }
    Ok(Subscribe { packet_id, subscription_identifier: None, user_properties: UserProperties::new(), filters })
}

fn read_suback(reader: &mut Reader) -> Result<Suback, DecodeError> {
    let packet_id = reader.packet_id()?;
    let mut reason_codes = Vec::new();
    while !reader.is_empty() {
        reason_codes.push(match reader.u8()? {
            0 => ReasonCode::Success,
            1 => ReasonCode::GrantedQoS1,
            2 => ReasonCode::GrantedQoS2,
            SUBACK_FAILURE => ReasonCode::UnspecifiedError,
            // [MQTT-3.9.3-2 of 3.1.1]
            _ => return Err(DecodeError::Malformed("return code of SUBACK")),
        });
    }
    Ok(Suback { packet_id, reason_codes, reason_string: None, user_properties: UserProperties::new() })
}

fn read_unsubscribe(reader: &mut Reader) -> Result<Unsubscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.string()?);
    }
    // [MQTT-3.10.3-2 of 3.1.1]
    if filters.is_empty() {
        return Err(DecodeError::Protocol("UNSUBSCRIBE without topic filter"));
    }
    Ok(Unsubscribe { packet_id, user_properties: UserProperties::new(), filters })
}
