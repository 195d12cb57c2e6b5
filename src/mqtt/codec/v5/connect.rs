use super::properties::{self, PutProperty, ReadProperties, Values, WriteProperties, not_allowed};
use crate::mqtt::ProtocolVersion;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::connect::{Flags, check_will_topic, write_start};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Connect, ConnectProperties, Will, WillProperties};
use crate::mqtt::property::id;

/// Reads what follows Keep Alive.
pub(in crate::mqtt::codec) fn read_connect(flags: Flags, keep_alive: u16, reader: &mut Reader) -> Result<Connect, DecodeError> {
    let properties: ConnectProperties = properties::read(reader)?;
    // MQTT 5 section 3.1.2.11.10.
    if properties.authentication_data.is_some() && properties.authentication_method.is_none() {
        return Err(DecodeError::Protocol("authentication data without authentication method"));
    }
    let client_id = reader.string()?;
    let mut will = None;
    if let Some((qos, retain)) = flags.will {
        let properties = properties::read(reader)?;
        let topic = reader.string()?;
        check_will_topic(&topic)?;
        will = Some(Will { topic, payload: reader.binary()?, qos, retain, properties });
    }
    let username = if flags.username { Some(reader.string()?) } else { None };
    let password = if flags.password { Some(reader.binary()?) } else { None };
    Ok(Connect {
        protocol: ProtocolVersion::V5,
        clean_start: flags.clean_start,
        keep_alive,
        client_id,
        will,
        username,
        password,
        properties,
    })
}

pub(super) fn write<S: Sink>(connect: &Connect, out: &mut S) {
    write_start(connect, out);
    properties::write(&connect.properties, out);
    out.string(&connect.client_id);
    if let Some(will) = &connect.will {
        properties::write(&will.properties, out);
        out.string(&will.topic);
        out.binary(&will.payload);
    }
    if let Some(username) = &connect.username {
        out.string(username);
    }
    if let Some(password) = &connect.password {
        out.binary(password);
    }
}

impl ReadProperties for ConnectProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::SESSION_EXPIRY_INTERVAL => values.u32(&mut self.session_expiry_interval),
            id::RECEIVE_MAXIMUM => values.non_zero_u16(&mut self.receive_maximum),
            id::MAXIMUM_PACKET_SIZE => values.non_zero_u32(&mut self.maximum_packet_size),
            id::TOPIC_ALIAS_MAXIMUM => values.u16(&mut self.topic_alias_maximum),
            id::REQUEST_RESPONSE_INFORMATION => values.flag(&mut self.request_response_information),
            id::REQUEST_PROBLEM_INFORMATION => values.flag(&mut self.request_problem_information),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            id::AUTHENTICATION_METHOD => values.string(&mut self.authentication_method),
            id::AUTHENTICATION_DATA => values.binary(&mut self.authentication_data),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for ConnectProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.u32_property(id::SESSION_EXPIRY_INTERVAL, self.session_expiry_interval);
        out.u16_property(id::RECEIVE_MAXIMUM, self.receive_maximum);
        out.u32_property(id::MAXIMUM_PACKET_SIZE, self.maximum_packet_size);
        out.u16_property(id::TOPIC_ALIAS_MAXIMUM, self.topic_alias_maximum);
        out.flag_property(id::REQUEST_RESPONSE_INFORMATION, self.request_response_information);
        out.flag_property(id::REQUEST_PROBLEM_INFORMATION, self.request_problem_information);
        out.string_property(id::AUTHENTICATION_METHOD, self.authentication_method.as_ref());
        out.binary_property(id::AUTHENTICATION_DATA, self.authentication_data.as_ref());
        out.user_properties(&self.user_properties);
    }
}

impl ReadProperties for WillProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::WILL_DELAY_INTERVAL => values.u32(&mut self.will_delay_interval),
            id::PAYLOAD_FORMAT_INDICATOR => values.flag(&mut self.payload_format_indicator),
            id::MESSAGE_EXPIRY_INTERVAL => values.u32(&mut self.message_expiry_interval),
            id::CONTENT_TYPE => values.string(&mut self.content_type),
            id::RESPONSE_TOPIC => values.response_topic(&mut self.response_topic),
            id::CORRELATION_DATA => values.binary(&mut self.correlation_data),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for WillProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.u32_property(id::WILL_DELAY_INTERVAL, self.will_delay_interval);
        out.flag_property(id::PAYLOAD_FORMAT_INDICATOR, self.payload_format_indicator);
        out.u32_property(id::MESSAGE_EXPIRY_INTERVAL, self.message_expiry_interval);
        out.string_property(id::CONTENT_TYPE, self.content_type.as_ref());
        out.string_property(id::RESPONSE_TOPIC, self.response_topic.as_ref());
        out.binary_property(id::CORRELATION_DATA, self.correlation_data.as_ref());
        out.user_properties(&self.user_properties);
    }
}
