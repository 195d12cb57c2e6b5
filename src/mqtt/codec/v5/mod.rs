//! The packets of MQTT 5.0.

mod auth;
mod connack;
mod connect;
mod disconnect;
mod properties;
mod publish;
mod publish_ack;
mod reason_code;
mod subscribe;
mod unsubscribe;

pub(super) use connect::read_connect;
pub(super) use publish::write_properties as write_publish_properties;
pub use reason_code::disconnect_code_from_client;

use super::DecodeError;
use super::fixed_header as ty;
use super::reader::Reader;
use super::writer::Sink;
use crate::mqtt::Packet;

/// Reads the body of any packet but CONNECT.
pub(super) fn read(packet_type: u8, flags: u8, reader: &mut Reader) -> Result<Packet, DecodeError> {
    Ok(match packet_type {
        ty::CONNACK => Packet::Connack(Box::new(connack::read(reader)?)),
        ty::PUBLISH => Packet::Publish(Box::new(publish::read(flags, reader)?)),
        ty::PUBACK => Packet::Puback(publish_ack::read(reason_code::of_puback, reader)?),
        ty::PUBREC => Packet::Pubrec(publish_ack::read(reason_code::of_puback, reader)?),
        ty::PUBREL => Packet::Pubrel(publish_ack::read(reason_code::of_pubrel, reader)?),
        ty::PUBCOMP => Packet::Pubcomp(publish_ack::read(reason_code::of_pubrel, reader)?),
        ty::SUBSCRIBE => Packet::Subscribe(Box::new(subscribe::read(reader)?)),
        ty::SUBACK => Packet::Suback(Box::new(subscribe::read_suback(reader)?)),
        ty::UNSUBSCRIBE => Packet::Unsubscribe(Box::new(unsubscribe::read(reader)?)),
        ty::UNSUBACK => Packet::Unsuback(Box::new(unsubscribe::read_unsuback(reader)?)),
        ty::PINGREQ => Packet::Pingreq,
        ty::PINGRESP => Packet::Pingresp,
        ty::DISCONNECT => Packet::Disconnect(Box::new(disconnect::read(reader)?)),
        ty::AUTH => Packet::Auth(Box::new(auth::read(reader)?)),
        _ => return Err(DecodeError::Malformed("packet type")),
    })
}

/// Writes the body of any packet but PUBLISH.
pub(super) fn write<S: Sink>(packet: &Packet, out: &mut S) {
    match packet {
        Packet::Connect(connect) => connect::write(connect, out),
        Packet::Connack(connack) => connack::write(connack, out),
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => publish_ack::write(ack, out),
        Packet::Subscribe(subscribe) => subscribe::write(subscribe, out),
        Packet::Suback(suback) => subscribe::write_suback(suback, out),
        Packet::Unsubscribe(unsubscribe) => unsubscribe::write(unsubscribe, out),
        Packet::Unsuback(unsuback) => unsubscribe::write_unsuback(unsuback, out),
        Packet::Disconnect(disconnect) => disconnect::write(disconnect, out),
        Packet::Auth(auth) => auth::write(auth, out),
        Packet::Publish(_) | Packet::Pingreq | Packet::Pingresp => {}
    }
}
