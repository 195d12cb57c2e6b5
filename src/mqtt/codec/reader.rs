//! Reads the data types of MQTT (MQTT 5 section 1.5) from one packet, without copying strings and binary data.

use bytes::{Buf, Bytes};
use bytestring::ByteString;

use super::DecodeError;
use crate::mqtt::packet::PacketId;

const TRUNCATED: DecodeError = DecodeError::Malformed("a field goes beyond the end of the packet");

/// The part of a packet not read yet.
pub(super) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(super) fn new(rest: Bytes) -> Self {
        Self { rest }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Takes all that is left.
    pub(super) fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }

    /// Refuses bytes that belong to nothing.
    pub(super) fn finish(&self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::Malformed("bytes after the end of the packet")) }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.rest.len() {
            return Err(TRUNCATED);
        }
        Ok(self.rest.split_to(len))
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.rest.try_get_u8().map_err(|_| TRUNCATED)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.rest.try_get_u16().map_err(|_| TRUNCATED)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.rest.try_get_u32().map_err(|_| TRUNCATED)
    }

    /// Variable Byte Integer: at most four bytes, and no more than needed [MQTT-1.5.5-1].
    pub(super) fn var_int(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u32;
        for index in 0..4 {
            let byte = self.u8()?;
            value |= u32::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                let overlong = byte == 0 && index > 0;
                return if overlong { Err(DecodeError::Malformed("overlong variable byte integer")) } else { Ok(value) };
            }
        }
        Err(DecodeError::Malformed("variable byte integer of more than four bytes"))
    }

    pub(super) fn binary(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    /// UTF-8 Encoded String: well-formed, without surrogates [MQTT-1.5.4-1], without U+0000 [MQTT-1.5.4-2].
    pub(super) fn string(&mut self) -> Result<ByteString, DecodeError> {
        let bytes = self.binary()?;
        if bytes.contains(&0) {
            return Err(DecodeError::Malformed("U+0000 in a string"));
        }
        ByteString::try_from(bytes).map_err(|_| DecodeError::Malformed("ill-formed UTF-8"))
    }

    /// A Packet Identifier, which is never 0 [MQTT-2.2.1-3].
    pub(super) fn packet_id(&mut self) -> Result<PacketId, DecodeError> {
        PacketId::new(self.u16()?).ok_or(DecodeError::Protocol("packet identifier 0"))
    }
}
