//! Framing and the codecs of the three protocol versions (v3_1_1 serves 3.1 too).
//!
//! A packet's size is known and checked before its body is read; nothing is allocated from a length that was not checked.
//! Both directions of every packet are here: the server decodes what clients send and encodes what servers send, the tests and
//! the load tool do the opposite.

mod connect;
mod error;
mod fixed_header;
mod reader;
mod utf8;
mod v3_1_1;
mod v5;
mod writer;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod frame_test;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod round_trip_test;
#[cfg(test)]
mod v3_test;
#[cfg(test)]
mod v5_test;

use bytes::{BufMut, Bytes, BytesMut};

pub use connect::connect_version;
pub use error::DecodeError;
pub use utf8::has_discouraged;
pub use v3_1_1::v3_return_code;
pub use v5::disconnect_code_from_client;

use super::packet::Publish;
use super::{Packet, ProtocolVersion};
use fixed_header::{check_flags, first_byte};
use reader::Reader;
use writer::{Counter, Sink, VAR_INT_MAX, var_int_len};

/// Bytes of the largest packet the protocol can carry: five of fixed header, and the largest Remaining Length.
pub const MAX_PACKET_SIZE: usize = 268_435_460;

/// The fixed header of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// First byte: packet type and flags.
    pub first_byte: u8,
    /// Bytes of the fixed header, 2 to 5.
    pub header_len: usize,
    /// Bytes after the fixed header.
    pub remaining_len: usize,
}

impl Frame {
    /// Bytes of the whole packet.
    pub fn total_len(&self) -> usize {
        self.header_len.saturating_add(self.remaining_len)
    }
}

/// Reads a fixed header from the start of `buffer`: `None` until it is complete.
///
/// # Errors
/// `RemainingLength` for a fifth length byte [MQTT 5 section 1.5.5] and for a length in more bytes than needed [MQTT-1.5.5-1],
/// `PacketTooLarge` where the whole packet would be above `max_packet_size`.
pub fn frame(buffer: &[u8], max_packet_size: usize) -> Result<Option<Frame>, DecodeError> {
    let Some((&first_byte, length)) = buffer.split_first() else {
        return Ok(None);
    };
    let mut remaining_len = 0usize;
    for (index, &byte) in length.iter().take(4).enumerate() {
        remaining_len |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 != 0 {
            continue;
        }
        if byte == 0 && index > 0 {
            return Err(DecodeError::RemainingLength);
        }
        let frame = Frame { first_byte, header_len: index + 2, remaining_len };
        if frame.total_len() > max_packet_size {
            return Err(DecodeError::PacketTooLarge { size: frame.total_len(), max: max_packet_size });
        }
        return Ok(Some(frame));
    }
    if length.len() >= 4 { Err(DecodeError::RemainingLength) } else { Ok(None) }
}

/// Decodes one whole packet. `packet` is exactly the bytes of `frame` (fixed header included); slices of it become topic and payload.
/// `version` is `None` before CONNECT: then only CONNECT decodes, and says the version itself.
///
/// # Errors
/// Any [`DecodeError`] but `RemainingLength` and `PacketTooLarge`, which are `frame`'s.
pub fn decode(frame: Frame, packet: Bytes, version: Option<ProtocolVersion>) -> Result<Packet, DecodeError> {
    if packet.len() != frame.total_len() {
        return Err(DecodeError::Malformed("packet is not as long as its fixed header says"));
    }
    let packet_type = frame.first_byte >> 4;
    let flags = frame.first_byte & 0x0F;
    check_flags(packet_type, flags, version)?;
    let mut reader = Reader::new(packet.slice(frame.header_len..));
    let decoded = if packet_type == fixed_header::CONNECT {
        connect::read(&mut reader)?
    } else {
        match version {
            // [MQTT-3.1.0-1]
            None => return Err(DecodeError::Protocol("first packet is not CONNECT")),
            Some(ProtocolVersion::V5) => v5::read(packet_type, flags, &mut reader)?,
            Some(version) => v3_1_1::read(packet_type, flags, version, &mut reader)?,
        }
    };
    reader.finish()?;
    Ok(decoded)
}

/// Appends the packet to `out`. What the version lacks is left out. The caller has checked lengths (strings up to 65,535 bytes,
/// a packet up to 268,435,460 bytes); `encoded_len` tells.
///
/// A CONNECT is written in its own version. Nothing is appended for a packet that the version does not have (AUTH in MQTT 3, a
/// CONNACK whose code MQTT 3 answers by closing, see [`v3_return_code`]) and for one above the protocol's largest size. A longer
/// string is cut, so that no mistake of ours can break the framing.
pub fn encode(packet: &Packet, version: ProtocolVersion, out: &mut BytesMut) {
    let version = version_of(packet, version);
    let Some(body_len) = body_len(packet, version) else {
        return;
    };
    put_fixed_header(first_byte(packet), body_len, out);
    write_body(packet, version, out);
}

/// Appends all of a PUBLISH but its payload, for a writer that hands the shared payload to a vectored write. Returns whether it
/// did: not for a packet above the protocol's largest size.
pub fn encode_publish_header(publish: &Publish, version: ProtocolVersion, out: &mut BytesMut) -> bool {
    let mut counter = Counter::default();
    write_publish_header(publish, version, &mut counter);
    let Some(body_len) = checked_len(counter.len().saturating_add(publish.payload.len())) else {
        return false;
    };
    out.reserve(5 + counter.len());
    out.put_u8(fixed_header::publish_first_byte(publish));
    out.var_int(body_len);
    write_publish_header(publish, version, out);
    true
}

/// Bytes that `encode` would append.
pub fn encoded_len(packet: &Packet, version: ProtocolVersion) -> usize {
    match body_len(packet, version_of(packet, version)) {
        Some(len) => 1 + var_int_len(len) + usize::try_from(len).unwrap_or(usize::MAX),
        None => 0,
    }
}

fn version_of(packet: &Packet, version: ProtocolVersion) -> ProtocolVersion {
    match packet {
        Packet::Connect(connect) => connect.protocol,
        _ => version,
    }
}

/// The Remaining Length; `None` for a packet that is not sent.
fn body_len(packet: &Packet, version: ProtocolVersion) -> Option<u32> {
    if !version.is_v5() && !v3_1_1::has(packet) {
        return None;
    }
    let mut counter = Counter::default();
    write_body(packet, version, &mut counter);
    checked_len(counter.len())
}

fn checked_len(len: usize) -> Option<u32> {
    u32::try_from(len).ok().filter(|len| *len <= VAR_INT_MAX)
}

fn put_fixed_header(first_byte: u8, body_len: u32, out: &mut BytesMut) {
    out.reserve(5 + usize::try_from(body_len).unwrap_or(0));
    out.put_u8(first_byte);
    out.var_int(body_len);
}

fn write_body<S: Sink>(packet: &Packet, version: ProtocolVersion, out: &mut S) {
    match packet {
        Packet::Publish(publish) => {
            write_publish_header(publish, version, out);
            out.put(&publish.payload);
        }
        _ if version.is_v5() => v5::write(packet, out),
        _ => v3_1_1::write(packet, version, out),
    }
}

/// Variable header of a PUBLISH [MQTT 5 section 3.3.2].
fn write_publish_header<S: Sink>(publish: &Publish, version: ProtocolVersion, out: &mut S) {
    out.string(&publish.topic);
    if let Some(id) = publish.packet_id.filter(|_| publish.qos != super::QoS::AtMostOnce) {
        out.u16(id.get());
    }
    if version.is_v5() {
        v5::write_publish_properties(&publish.properties, out);
    }
}
