use super::properties::{self, PutProperty, ReadProperties, Values, WriteProperties, not_allowed};
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::fixed_header::publish_flags;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Publish, PublishProperties};
use crate::mqtt::property::id;
use crate::mqtt::{QoS, ReasonCode, topic_name};

pub(super) fn read(flags: u8, reader: &mut Reader) -> Result<Publish, DecodeError> {
    let (dup, qos, retain) = publish_flags(flags)?;
    let topic = reader.string()?;
    // [MQTT-3.3.2-2]
    if !topic.is_empty() && !topic_name::is_valid(&topic) {
        return Err(DecodeError::Code(ReasonCode::TopicNameInvalid, "topic name has a wildcard"));
    }
    let packet_id = if qos == QoS::AtMostOnce { None } else { Some(reader.packet_id()?) };
    let properties: PublishProperties = properties::read(reader)?;
    // MQTT 5 section 3.3.2.1.
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(DecodeError::Protocol("empty topic name without topic alias"));
    }
    Ok(Publish { dup, qos, retain, topic, packet_id, properties, payload: reader.take_rest() })
}

/// Writes the Property Length and the properties.
pub(in crate::mqtt::codec) fn write_properties<S: Sink>(properties: &PublishProperties, out: &mut S) {
    properties::write(properties, out);
}

impl ReadProperties for PublishProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::PAYLOAD_FORMAT_INDICATOR => values.flag(&mut self.payload_format_indicator),
            id::MESSAGE_EXPIRY_INTERVAL => values.u32(&mut self.message_expiry_interval),
            // [MQTT-3.3.2-8]
            id::TOPIC_ALIAS => values.non_zero_u16(&mut self.topic_alias),
            id::RESPONSE_TOPIC => values.response_topic(&mut self.response_topic),
            id::CORRELATION_DATA => values.binary(&mut self.correlation_data),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            id::SUBSCRIPTION_IDENTIFIER => {
                self.subscription_identifiers.push(values.subscription_identifier()?);
                Ok(())
            }
            id::CONTENT_TYPE => values.string(&mut self.content_type),
            _ => Err(not_allowed()),
        }
    }
}

impl WriteProperties for PublishProperties {
    fn write<S: Sink>(&self, out: &mut S) {
        out.flag_property(id::PAYLOAD_FORMAT_INDICATOR, self.payload_format_indicator);
        out.u32_property(id::MESSAGE_EXPIRY_INTERVAL, self.message_expiry_interval);
        out.u16_property(id::TOPIC_ALIAS, self.topic_alias);
        out.string_property(id::RESPONSE_TOPIC, self.response_topic.as_ref());
        out.binary_property(id::CORRELATION_DATA, self.correlation_data.as_ref());
        for identifier in &self.subscription_identifiers {
            out.subscription_identifier(*identifier);
        }
        out.string_property(id::CONTENT_TYPE, self.content_type.as_ref());
        // In the order received [MQTT-3.3.2-18].
        out.user_properties(&self.user_properties);
    }
}
