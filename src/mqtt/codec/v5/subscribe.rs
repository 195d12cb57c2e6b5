use super::properties::{
    self, AckProperties, AckPropertiesRef, PutProperty, ReadProperties, Values, WriteProperties, fill, not_allowed,
};
use super::reason_code;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{RetainHandling, Suback, Subscribe, SubscriptionOptions, SubscriptionRequest};
use crate::mqtt::property::id;
use crate::mqtt::{QoS, UserProperties};

pub(super) fn read(reader: &mut Reader) -> Result<Subscribe, DecodeError> {
    let packet_id = reader.packet_id()?;
    let SubscribeProperties { subscription_identifier, user_properties } = properties::read(reader)?;
    let mut filters = Vec::new();
    while !reader.is_empty() {
        filters.push(SubscriptionRequest { filter: reader.string()?, options: read_options(reader.u8()?)? });
    }
    // [MQTT-3.8.3-2]
    if filters.is_empty() {
        return Err(DecodeError::Protocol("SUBSCRIBE without topic filter"));
    }
    Ok(Subscribe { packet_id, subscription_identifier, user_properties, filters })
}

pub(super) fn write<S: Sink>(subscribe: &Subscribe, out: &mut S) {
    out.u16(subscribe.packet_id.get());
    let properties = SubscribePropertiesRef {
        subscription_identifier: subscribe.subscription_identifier,
        user_properties: &subscribe.user_properties,
    };
    properties::write(&properties, out);
    for request in &subscribe.filters {
        out.string(&request.filter);
        out.u8(options_byte(request.options));
    }
}

pub(super) fn read_suback(reader: &mut Reader) -> Result<Suback, DecodeError> {
    let packet_id = reader.packet_id()?;
    let AckProperties { reason_string, user_properties } = properties::read(reader)?;
    let mut reason_codes = Vec::new();
    while !reader.is_empty() {
        reason_codes.push(reason_code::read(reason_code::of_suback, reader)?);
    }
    Ok(Suback { packet_id, reason_codes, reason_string, user_properties })
}

pub(super) fn write_suback<S: Sink>(suback: &Suback, out: &mut S) {
    out.u16(suback.packet_id.get());
    let properties = AckPropertiesRef { reason_string: suback.reason_string.as_ref(), user_properties: &suback.user_properties };
    properties::write(&properties, out);
    for code in &suback.reason_codes {
        out.u8(code.byte());
    }
}

/// Subscription Options (MQTT 5 section 3.8.3.1).
fn read_options(byte: u8) -> Result<SubscriptionOptions, DecodeError> {
    // [MQTT-3.8.3-5]
    if byte & 0b1100_0000 != 0 {
        return Err(DecodeError::Malformed("reserved subscription options"));
    }
    let retain_handling = match (byte >> 4) & 0b11 {
        0 => RetainHandling::Send,
        1 => RetainHandling::SendIfNew,
        2 => RetainHandling::DoNotSend,
        _ => return Err(DecodeError::Protocol("retain handling 3")),
    };
    Ok(SubscriptionOptions {
        qos: QoS::from_bits(byte & 0b11).ok_or(DecodeError::Protocol("maximum QoS 3"))?,
        no_local: byte & 0b0100 != 0,
        retain_as_published: byte & 0b1000 != 0,
        retain_handling,
    })
}

fn options_byte(options: SubscriptionOptions) -> u8 {
    options.qos as u8
        | u8::from(options.no_local) << 2
        | u8::from(options.retain_as_published) << 3
        | (options.retain_handling as u8) << 4
}

#[derive(Default)]
struct SubscribeProperties {
    subscription_identifier: Option<u32>,
    user_properties: UserProperties,
}

impl ReadProperties for SubscribeProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::SUBSCRIPTION_IDENTIFIER => fill(&mut self.subscription_identifier, values.subscription_identifier()?),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            _ => Err(not_allowed()),
        }
    }
}

struct SubscribePropertiesRef<'a> {
    subscription_identifier: Option<u32>,
    user_properties: &'a UserProperties,
}

impl WriteProperties for SubscribePropertiesRef<'_> {
    fn write<S: Sink>(&self, out: &mut S) {
        if let Some(identifier) = self.subscription_identifier {
            out.subscription_identifier(identifier);
        }
        out.user_properties(self.user_properties);
    }
}
