use super::properties::{self, AckProperties, AckPropertiesRef};
use super::reason_code;
use crate::mqtt::ReasonCode;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::PublishAck;

/// Reads PUBACK, PUBREC, PUBREL or PUBCOMP, each with its own Reason Codes.
pub(super) fn read(allowed: fn(ReasonCode) -> bool, reader: &mut Reader) -> Result<PublishAck, DecodeError> {
    let mut ack = PublishAck::new(reader.packet_id()?, ReasonCode::Success);
    // MQTT 5 section 3.4.2.1: a Remaining Length of 2 means Success.
    if reader.is_empty() {
        return Ok(ack);
    }
    ack.reason_code = reason_code::read(allowed, reader)?;
    // MQTT 5 section 3.4.2.2.1: a Remaining Length of 3 has no properties.
    if !reader.is_empty() {
        let AckProperties { reason_string, user_properties } = properties::read(reader)?;
        ack.reason_string = reason_string;
        ack.user_properties = user_properties;
    }
    Ok(ack)
}

/// Writes the shortest form.
pub(super) fn write<S: Sink>(ack: &PublishAck, out: &mut S) {
    out.u16(ack.packet_id.get());
    let properties = AckPropertiesRef { reason_string: ack.reason_string.as_ref(), user_properties: &ack.user_properties };
    let bare = properties::are_empty(&properties);
    if bare && ack.reason_code == ReasonCode::Success {
        return;
    }
    out.u8(ack.reason_code.byte());
    if !bare {
        properties::write(&properties, out);
    }
}
