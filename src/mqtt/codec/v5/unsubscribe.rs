use super::properties::{self, AckProperties, AckPropertiesRef, ReadProperties, Values, not_allowed};
use super::reason_code;
use crate::mqtt::UserProperties;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Unsuback, Unsubscribe};
use crate::mqtt::property::id;

pub(super) fn read(reader: &mut Reader) -> Result<Unsubscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let UnsubscribeProperties { user_properties } = properties::read(reader)?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(reader.string()?);
    }
    // [MQTT-3.10.3-2]
    if filters.is_empty() {
        return Err(DecodeError::Protocol("UNSUBSCRIBE without topic filter"));
    }
    Ok(Unsubscribe { packet_id, user_properties, filters })
}

pub(super) fn write<S: Sink>(unsubscribe: &Unsubscribe, out: &mut S) {
    out.u16(unsubscribe.packet_id.get());
    properties::write(&AckPropertiesRef { reason_string: None, user_properties: &unsubscribe.user_properties }, out);
    for filter in &unsubscribe.filters {
        out.string(filter);
    }
}

pub(super) fn read_unsuback(reader: &mut Reader) -> Result<Unsuback, DecodeError> {
    let packet_id = reader.packet_id()?;
    let AckProperties { reason_string, user_properties } = properties::read(reader)?;
    let mut reason_codes = Vec::new();
    while !reader.is_empty() {
        reason_codes.push(reason_code::read(reason_code::of_unsuback, reader)?);
    }
    Ok(Unsuback { packet_id, reason_codes, reason_string, user_properties })
}

pub(super) fn write_unsuback<S: Sink>(unsuback: &Unsuback, out: &mut S) {
    out.u16(unsuback.packet_id.get());
    let properties =
        AckPropertiesRef { reason_string: unsuback.reason_string.as_ref(), user_properties: &unsuback.user_properties };
    properties::write(&properties, out);
    for code in &unsuback.reason_codes {
        out.u8(code.byte());
    }
}

#[derive(Default)]
struct UnsubscribeProperties {
    user_properties: UserProperties,
}

impl ReadProperties for UnsubscribeProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            _ => Err(not_allowed()),
        }
    }
}
