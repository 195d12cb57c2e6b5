use super::properties::{self, PutProperty, ReadProperties, Values, WriteProperties, not_allowed};
use super::reason_code;
use crate::mqtt::QoS;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Connack, ConnackProperties};
use crate::mqtt::property::id;

pub(super) fn read(reader: &mut Reader) -> Result<Connack, DecodeError> {
    let flags = reader.u8()?;
    // [MQTT-3.2.2-1]
    if flags > 1 {
        return Err(DecodeError::Malformed("reserved connect acknowledge flags"));
    }
    let reason_code = reason_code::read(reason_code::of_connack, reader)?;
    // [MQTT-3.2.2-6]
    if flags == 1 && reason_code.is_error() {
        return Err(DecodeError::Protocol("session present in a refusal"));
    }
    Ok(Connack { session_present: flags == 1, reason_code, properties: properties::read(reader)? })
}

pub(super) fn write<S: Sink>(connack: &Connack, out: &mut S) {
    // [MQTT-3.2.2-6]
    out.u8(u8::from(connack.session_present && !connack.reason_code.is_error()));
    out.u8(connack.reason_code.byte());
    properties::write(&connack.properties, out);
}

impl ReadProperties for ConnackProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::SESSION_EXPIRY_INTERVAL => values.u32(&mut self.session_expiry_interval),
            id::RECEIVE_MAXIMUM => values.non_zero_u16(&mut self.receive_maximum),
            id::MAXIMUM_QOS => values.maximum_qos(&mut self.maximum_qos),
            id::RETAIN_AVAILABLE => values.flag(&mut self.retain_available),
            id::MAXIMUM_PACKET_SIZE => values.non_zero_u32(&mut self.maximum_packet_size),
            id::ASSIGNED_CLIENT_IDENTIFIER => values.string(&mut self.assigned_client_identifier),
            id::TOPIC_ALIAS_MAXIMUM => values.u16(&mut self.topic_alias_maximum),
            id::REASON_STRING => values.string(&mut self.reason_string),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            id::WILDCARD_SUBSCRIPTION_AVAILABLE => values.flag(&mut self.wildcard_subscription_available),
            id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE => values.flag(&mut self.subscription_identifiers_available),
            id::SHARED_SUBSCRIPTION_AVAILABLE => values.flag(&mut self.shared_subscription_available),
            id::SERVER_KEEP_ALIVE => values.u16(&mut self.server_keep_alive),
            id::RESPONSE_INFORMATION => values.string(&mut self.response_information),
            id::SERVER_REFERENCE => values.string(&mut self.server_reference),
            id::AUTHENTICATION_METHOD => values.string(&mut self.authentication_method),
            id::AUTHENTICATION_DATA => values.binary(&mut self.authentication_data),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for ConnackProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.u32_property(id::SESSION_EXPIRY_INTERVAL, self.session_expiry_interval);
        out.u16_property(id::RECEIVE_MAXIMUM, self.receive_maximum);
        // QoS 2 is said by leaving the property out [MQTT 5 section 3.2.2.3.4].
        out.flag_property(id::MAXIMUM_QOS, self.maximum_qos.filter(|q| *q != QoS::ExactlyOnce).map(|q| q == QoS::AtLeastOnce));
        out.flag_property(id::RETAIN_AVAILABLE, self.retain_available);
        out.u32_property(id::MAXIMUM_PACKET_SIZE, self.maximum_packet_size);
        out.string_property(id::ASSIGNED_CLIENT_IDENTIFIER, self.assigned_client_identifier.as_ref());
        out.u16_property(id::TOPIC_ALIAS_MAXIMUM, self.topic_alias_maximum);
        out.string_property(id::REASON_STRING, self.reason_string.as_ref());
        out.flag_property(id::WILDCARD_SUBSCRIPTION_AVAILABLE, self.wildcard_subscription_available);
        out.flag_property(id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE, self.subscription_identifiers_available);
        out.flag_property(id::SHARED_SUBSCRIPTION_AVAILABLE, self.shared_subscription_available);
        out.u16_property(id::SERVER_KEEP_ALIVE, self.server_keep_alive);
        out.string_property(id::RESPONSE_INFORMATION, self.response_information.as_ref());
        out.string_property(id::SERVER_REFERENCE, self.server_reference.as_ref());
        out.string_property(id::AUTHENTICATION_METHOD, self.authentication_method.as_ref());
        out.binary_property(id::AUTHENTICATION_DATA, self.authentication_data.as_ref());
        out.user_properties(&self.user_properties);
    }
}
