//! Framing and the codecs of the three protocol versions (v3_1_1 serves 3.1 too).
//!
//! A packet's size is known and checked before its body is read; nothing is allocated from a length that was not checked.

use bytes::{Bytes, BytesMut};

use super::{Packet, ProtocolVersion, ReasonCode};

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
        self.header_len + self.remaining_len
    }
}

/// What is wrong with received bytes; `reason_code` maps each to what the peer is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("malformed packet: {0}")]
    Malformed(&'static str),
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    #[error("packet of {size} bytes is larger than the maximum of {max}")]
    PacketTooLarge { size: usize, max: usize },
    #[error("malformed remaining length")]
    RemainingLength,
    #[error("unsupported protocol version (name {name:?}, level {level})")]
    UnsupportedProtocolVersion { name: String, level: u8 },
    #[error("{1}")]
    Code(ReasonCode, &'static str),
}

impl DecodeError {
    /// The Reason Code for a DISCONNECT or CONNACK; `None` where the connection closes without a packet.
    pub fn reason_code(&self) -> Option<ReasonCode> {
        match self {
            Self::Malformed(_) => Some(ReasonCode::MalformedPacket),
            Self::Protocol(_) => Some(ReasonCode::ProtocolError),
            Self::PacketTooLarge { .. } => Some(ReasonCode::PacketTooLarge),
            Self::RemainingLength => None,
            Self::UnsupportedProtocolVersion { .. } => Some(ReasonCode::UnsupportedProtocolVersion),
            Self::Code(code, _) => Some(*code),
        }
    }
}

/// Reads a fixed header from the start of `buffer`: `None` until it is complete.
///
/// # Errors
/// `RemainingLength` for a fifth length byte, `PacketTooLarge` where the whole packet would be above `max_packet_size`.
pub fn frame(_buffer: &[u8], _max_packet_size: usize) -> Result<Option<Frame>, DecodeError> {
    Ok(None)
}

/// Decodes one whole packet. `packet` is exactly the bytes of `frame` (fixed header included); slices of it become topic and payload.
/// `version` is `None` before CONNECT: then only CONNECT decodes, and says the version itself.
pub fn decode(_frame: Frame, _packet: Bytes, _version: Option<ProtocolVersion>) -> Result<Packet, DecodeError> {
    Err(DecodeError::Malformed("not built yet"))
}

/// Appends the packet to `out`. What the version lacks is left out. The caller has checked lengths (strings up to 65,535 bytes,
/// a packet up to 268,435,460 bytes); `encoded_len` tells.
pub fn encode(_packet: &Packet, _version: ProtocolVersion, _out: &mut BytesMut) {}

/// Bytes that `encode` would append.
pub fn encoded_len(_packet: &Packet, _version: ProtocolVersion) -> usize {
    0
}
