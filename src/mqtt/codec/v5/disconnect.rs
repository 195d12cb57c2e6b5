use super::properties::{self, PutProperty, ReadProperties, Values, WriteProperties, not_allowed};
use super::reason_code;
use crate::mqtt::ReasonCode;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Disconnect, DisconnectProperties};
use crate::mqtt::property::id;

pub(super) fn read(reader: &mut Reader) -> Result<Disconnect, DecodeError> {
    // MQTT 5 section 3.14.2.1: nothing means Normal disconnection; 3.14.2.2.1: a Remaining Length of 1 has no properties.
    let reason_code =
        if reader.is_empty() { ReasonCode::Success } else { reason_code::read(reason_code::of_disconnect, reader)? };
    let properties = if reader.is_empty() { DisconnectProperties::default() } else { properties::read(reader)? };
    Ok(Disconnect { reason_code, properties })
}

/// Writes the shortest form.
pub(super) fn write<S: Sink>(disconnect: &Disconnect, out: &mut S) {
    let bare = properties::are_empty(&disconnect.properties);
    if bare && disconnect.reason_code == ReasonCode::Success {
        return;
    }
    out.u8(disconnect.reason_code.byte());
    if !bare {
        properties::write(&disconnect.properties, out);
    }
}

impl ReadProperties for DisconnectProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::SESSION_EXPIRY_INTERVAL => values.u32(&mut self.session_expiry_interval),
            id::REASON_STRING => values.string(&mut self.reason_string),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            id::SERVER_REFERENCE => values.string(&mut self.server_reference),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for DisconnectProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.u32_property(id::SESSION_EXPIRY_INTERVAL, self.session_expiry_interval);
        out.string_property(id::REASON_STRING, self.reason_string.as_ref());
        out.string_property(id::SERVER_REFERENCE, self.server_reference.as_ref());
        out.user_properties(&self.user_properties);
    }
}
