use super::properties::{self, PutProperty, ReadProperties, Values, WriteProperties, not_allowed};
use super::reason_code;
use crate::mqtt::ReasonCode;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Auth, AuthProperties};
use crate::mqtt::property::id;

pub(super) fn read(reader: &mut Reader) -> Result<Auth, DecodeError> {
    // MQTT 5 section 3.15.2.1: nothing means Success without properties.
    if reader.is_empty() {
        return Ok(Auth { reason_code: ReasonCode::Success, properties: AuthProperties::default() });
    }
    let reason_code = reason_code::read(reason_code::of_auth, reader)?;
    let properties: AuthProperties = properties::read(reader)?;
    // MQTT 5 section 3.15.2.2.2.
    if properties.authentication_method.is_none() {
        return Err(DecodeError::Protocol("AUTH without authentication method"));
    }
    Ok(Auth { reason_code, properties })
}

pub(super) fn write<S: Sink>(auth: &Auth, out: &mut S) {
    if auth.reason_code == ReasonCode::Success && properties::are_empty(&auth.properties) {
        return;
    }
    out.u8(auth.reason_code.byte());
    properties::write(&auth.properties, out);
}

impl ReadProperties for AuthProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::AUTHENTICATION_METHOD => values.string(&mut self.authentication_method),
            id::AUTHENTICATION_DATA => values.binary(&mut self.authentication_data),
            id::REASON_STRING => values.string(&mut self.reason_string),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for AuthProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.string_property(id::AUTHENTICATION_METHOD, self.authentication_method.as_ref());
        out.binary_property(id::AUTHENTICATION_DATA, self.authentication_data.as_ref());
        out.string_property(id::REASON_STRING, self.reason_string.as_ref());
        out.user_properties(&self.user_properties);
    }
}
