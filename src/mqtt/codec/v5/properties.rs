//! Reading and writing a list of properties (MQTT 5 section 2.2.2).
//!
//! Each packet (and the Will) says which identifiers it has by the arms of its `read_one`; anything else is malformed. A property
//! given twice is a protocol error, except User Property and, in PUBLISH, Subscription Identifier.

use bytes::Bytes;
use bytestring::ByteString;

use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::{Counter, Sink, VAR_INT_MAX};
use crate::mqtt::property::id;
use crate::mqtt::{ReasonCode, UserProperties};

/// Bytes of all User Properties of one list, as encoded (spec/hivemq.md 9.1).
const USER_PROPERTIES_LEN_MAX: usize = 5 * 1024 * 1024;

/// What a packet does with each of its properties.
pub(super) trait ReadProperties: Default {
    /// Reads the value of property `id`, or refuses it with [`not_allowed`].
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError>;
}

pub(super) trait WriteProperties {
    /// Writes identifiers and values, without the Property Length.
    fn write<S: Sink>(&self, out: &mut S);
}

/// Reads a Property Length and what it spans.
pub(super) fn read<P: ReadProperties>(reader: &mut Reader) -> Result<P, DecodeError> {
    let mut properties = P::default();
    let len = usize::try_from(reader.var_int()?).unwrap_or(usize::MAX);
    if len == 0 {
        return Ok(properties);
    }
    let mut values = Values { reader: Reader::new(reader.take(len)?), user_properties_len: 0 };
    while !values.reader.is_empty() {
        let id = values.reader.var_int()?;
        properties.read_one(u8::try_from(id).map_err(|_| not_allowed())?, &mut values)?;
    }
    Ok(properties)
}

/// Writes a Property Length and the properties.
pub(super) fn write<P: WriteProperties, S: Sink>(properties: &P, out: &mut S) {
    let mut counter = Counter::default();
    properties.write(&mut counter);
    // A longer list makes the packet longer than a packet can be, and `encode` writes none of it.
    out.var_int(u32::try_from(counter.len()).unwrap_or(VAR_INT_MAX));
    properties.write(out);
}

/// Whether nothing would be written.
pub(super) fn are_empty<P: WriteProperties>(properties: &P) -> bool {
    let mut counter = Counter::default();
    properties.write(&mut counter);
    counter.len() == 0
}

/// An identifier that MQTT 5 does not know, or not for this packet [MQTT 5 section 2.2.2.2].
pub(super) fn not_allowed() -> DecodeError {
    DecodeError::Malformed("property is unknown or not allowed in this packet")
}

/// Reads values into slots that are still empty.
pub(super) struct Values {
    reader: Reader,
    user_properties_len: usize,
}

impl Values {
    pub(super) fn flag(&mut self, slot: &mut Option<bool>) -> Result<(), DecodeError> {
        let value = match self.reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(DecodeError::Protocol("property is neither 0 nor 1")),
        };
        fill(slot, value)
    }

    pub(super) fn u16(&mut self, slot: &mut Option<u16>) -> Result<(), DecodeError> {
        fill(slot, self.reader.u16()?)
    }

    pub(super) fn non_zero_u16(&mut self, slot: &mut Option<u16>) -> Result<(), DecodeError> {
        match self.reader.u16()? {
            0 => Err(DecodeError::Protocol("property must not be 0")),
            value => fill(slot, value),
        }
    }

    pub(super) fn u32(&mut self, slot: &mut Option<u32>) -> Result<(), DecodeError> {
        fill(slot, self.reader.u32()?)
    }

    pub(super) fn non_zero_u32(&mut self, slot: &mut Option<u32>) -> Result<(), DecodeError> {
        match self.reader.u32()? {
            0 => Err(DecodeError::Protocol("property must not be 0")),
            value => fill(slot, value),
        }
    }

    pub(super) fn string(&mut self, slot: &mut Option<ByteString>) -> Result<(), DecodeError> {
        fill(slot, self.reader.string()?)
    }

    pub(super) fn binary(&mut self, slot: &mut Option<Bytes>) -> Result<(), DecodeError> {
        fill(slot, self.reader.binary()?)
    }

    /// A Response Topic, which is a Topic Name [MQTT-3.3.2-14].
    pub(super) fn response_topic(&mut self, slot: &mut Option<ByteString>) -> Result<(), DecodeError> {
        let topic = self.reader.string()?;
        if !crate::mqtt::topic_name::is_valid(&topic) {
            return Err(DecodeError::Code(ReasonCode::TopicNameInvalid, "response topic is not valid"));
        }
        fill(slot, topic)
    }

    /// A Maximum QoS, which is 0 or 1.
    pub(super) fn maximum_qos(&mut self, slot: &mut Option<crate::mqtt::QoS>) -> Result<(), DecodeError> {
        let value = match self.reader.u8()? {
            0 => crate::mqtt::QoS::AtMostOnce,
            1 => crate::mqtt::QoS::AtLeastOnce,
            _ => return Err(DecodeError::Protocol("maximum QoS is neither 0 nor 1")),
        };
        fill(slot, value)
    }

    /// A Subscription Identifier, which is not 0 [MQTT 5 section 3.8.2.1.2].
    pub(super) fn subscription_identifier(&mut self) -> Result<u32, DecodeError> {
        match self.reader.var_int()? {
            0 => Err(DecodeError::Protocol("subscription identifier 0")),
            value => Ok(value),
        }
    }

    pub(super) fn user_property(&mut self, list: &mut UserProperties) -> Result<(), DecodeError> {
        let before = self.reader.len();
        let property = (self.reader.string()?, self.reader.string()?);
        self.user_properties_len += 1 + (before - self.reader.len());
        if self.user_properties_len > USER_PROPERTIES_LEN_MAX {
            return Err(DecodeError::Code(ReasonCode::PacketTooLarge, "user properties are larger than 5 MiB"));
        }
        list.push(property);
        Ok(())
    }
}

/// Puts a value where none is yet.
pub(super) fn fill<T>(slot: &mut Option<T>, value: T) -> Result<(), DecodeError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(DecodeError::Protocol("property is given twice")),
    }
}

/// Writes properties that are present.
pub(super) trait PutProperty: Sink {
    fn flag_property(&mut self, id: u8, value: Option<bool>) {
        if let Some(value) = value {
            self.u8(id);
            self.u8(u8::from(value));
        }
    }

    fn u16_property(&mut self, id: u8, value: Option<u16>) {
        if let Some(value) = value {
            self.u8(id);
            self.u16(value);
        }
    }

    fn u32_property(&mut self, id: u8, value: Option<u32>) {
        if let Some(value) = value {
            self.u8(id);
            self.u32(value);
        }
    }

    fn string_property(&mut self, id: u8, value: Option<&ByteString>) {
        if let Some(value) = value {
            self.u8(id);
            self.string(value);
        }
    }

    fn binary_property(&mut self, id: u8, value: Option<&Bytes>) {
        if let Some(value) = value {
            self.u8(id);
            self.binary(value);
        }
    }

    fn subscription_identifier(&mut self, value: u32) {
        self.u8(id::SUBSCRIPTION_IDENTIFIER);
        self.var_int(value);
    }

    fn user_properties(&mut self, list: &UserProperties) {
        for (name, value) in list {
            self.u8(id::USER_PROPERTY);
            self.string(name);
            self.string(value);
        }
    }
}

impl<S: Sink> PutProperty for S {}

/// The properties of all acknowledgements: PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK.
#[derive(Default)]
pub(super) struct AckProperties {
    pub(super) reason_string: Option<ByteString>,
    pub(super) user_properties: UserProperties,
}

impl ReadProperties for AckProperties {
    fn read_one(&mut self, id: u8, values: &mut Values) -> Result<(), DecodeError> {
        match id {
            id::REASON_STRING => values.string(&mut self.reason_string),
            id::USER_PROPERTY => values.user_property(&mut self.user_properties),
            _ => Err(not_allowed()),
        }
    }
}

/// The same, lent by the packet that is written.
pub(super) struct AckPropertiesRef<'a> {
    pub(super) reason_string: Option<&'a ByteString>,
    pub(super) user_properties: &'a UserProperties,
}

impl WriteProperties for AckPropertiesRef<'_> {
    fn write<S: Sink>(&self, out: &mut S) {
        out.string_property(id::REASON_STRING, self.reason_string);
        out.user_properties(self.user_properties);
    }
}
