use crate::mqtt::ReasonCode;

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
    /// The bytes that carry packets (WebSocket frames) break rules of their own.
    #[error("what carries the packets is broken")]
    Carrier,
    /// `name` is cut to 32 bytes.
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
            Self::RemainingLength | Self::Carrier => None,
            Self::UnsupportedProtocolVersion { .. } => Some(ReasonCode::UnsupportedProtocolVersion),
            Self::Code(code, _) => Some(*code),
        }
    }
}
