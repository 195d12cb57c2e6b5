//! WebSocket frames of a client (RFC 6455 5), decoded in place. Pure.
//!
//! Why not tungstenite's: it keeps a message until it is whole and reserves the length that a frame's header claims, so that a few bytes of
//! a stranger would cost the broker a packet's maximum of memory. MQTT does not care for the borders of messages: here the payload is
//! handed on as it comes, and nothing is kept but a header or a control frame that is not complete.

/// Payload of a control frame at most (RFC 6455 5.5), bytes.
const CONTROL_LEN_MAX: u64 = 125;
/// Two bytes, a length of eight, a mask of four.
const HEADER_LEN_MAX: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
pub(super) const BINARY: u8 = 0x2;
pub(super) const CLOSE: u8 = 0x8;
pub(super) const PING: u8 = 0x9;
pub(super) const PONG: u8 = 0xA;

/// A frame that is for the connection, not for MQTT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Control {
    Ping(Vec<u8>),
    /// With the status code, where there is one. Nothing after it counts.
    Close(Option<u16>),
}

/// What the connection ends for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a text frame carries no MQTT")]
    Text,
    #[error("a WebSocket frame with reserved bits or an unknown opcode")]
    Reserved,
    #[error("a WebSocket frame of a client that is not masked")]
    NotMasked,
    #[error("a WebSocket control frame in fragments or longer than {CONTROL_LEN_MAX} bytes")]
    BadControl,
    #[error("a WebSocket fragment without its message, or a message inside another")]
    Fragmentation,
    #[error("a WebSocket frame with an impossible length")]
    Length,
    #[error("a WebSocket close frame with half a status code, or one that may not be sent")]
    CloseStatus,
    #[error("a WebSocket close frame whose reason is not UTF-8")]
    CloseReason,
}

impl FrameError {
    /// The status code of the close frame.
    pub(super) fn status(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::CloseReason => 1007,
            _ => 1002,
        }
    }
}

/// Where in the stream of frames the next byte belongs.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    header: [u8; HEADER_LEN_MAX],
    header_len: usize,
    /// The frame whose payload is coming.
    payload: Option<Payload>,
    control: Vec<u8>,
    /// A message's last fragment has not come.
    in_message: bool,
    closed: bool,
    failed: Option<FrameError>,
}

#[derive(Debug, Clone, Copy)]
struct Payload {
    opcode: u8,
    remaining: u64,
    /// Turned so that its first byte is for the next one to come.
    mask: [u8; 4],
}

impl Decoder {
    /// Decodes bytes as they came from the socket: payload of MQTT is moved to the front, and its length returned; control frames are
    /// appended to `control`. What came before an error counts; the error is in `failed` then, and nothing is decoded any more.
    pub(super) fn decode(&mut self, bytes: &mut [u8], control: &mut Vec<Control>) -> usize {
        let mut to = 0;
        if self.failed.is_none() {
            self.failed = self.decode_frames(bytes, &mut to, control).err();
        }
        to
    }

    /// Why no more frames are decoded.
    pub(super) fn failed(&self) -> Option<FrameError> {
        self.failed
    }

    fn decode_frames(&mut self, bytes: &mut [u8], to: &mut usize, control: &mut Vec<Control>) -> Result<(), FrameError> {
        let mut from = 0;
        while from < bytes.len() && !self.closed {
            let Some(mut payload) = self.payload else {
                from += self.take_header(bytes.get(from..).unwrap_or_default())?;
                // A frame may have no payload at all.
                self.finish_frame(control)?;
                continue;
            };
            let available = bytes.len() - from;
            let count = usize::try_from(payload.remaining).map_or(available, |remaining| remaining.min(available));
            let chunk = bytes.get_mut(from..from + count).unwrap_or_default();
            unmask(chunk, payload.mask);
            if payload.opcode & 0x8 == 0 {
                bytes.copy_within(from..from + count, *to);
                *to += count;
            } else {
                self.control.extend_from_slice(chunk);
            }
            from += count;
            payload.remaining -= count as u64;
            payload.mask.rotate_left(count % 4);
            self.payload = Some(payload);
            self.finish_frame(control)?;
        }
        Ok(())
    }

    /// Takes bytes of a header; returns how many.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, FrameError> {
        for (n, byte) in bytes.iter().enumerate() {
            if let Some(slot) = self.header.get_mut(self.header_len) {
                *slot = *byte;
            }
            self.header_len += 1;
            if self.header_len == 2 {
                self.check_beginning()?;
            }
            if self.header_len >= 2 && self.header_len == self.header_len_wanted() {
                self.begin_payload()?;
                return Ok(n + 1);
            }
        }
        Ok(bytes.len())
    }

    fn header_len_wanted(&self) -> usize {
        match self.header[1] & !MASKED {
            126 => 2 + 2 + 4,
            127 => 2 + 8 + 4,
            _ => 2 + 4,
        }
    }

    fn check_beginning(&self) -> Result<(), FrameError> {
        let [first, second, ..] = self.header;
        if first & RESERVED != 0 {
            return Err(FrameError::Reserved);
        }
        // RFC 6455 5.1
        if second & MASKED == 0 {
            return Err(FrameError::NotMasked);
        }
        match first & 0x0F {
            // [MQTT-6.0.0-1]
            TEXT => Err(FrameError::Text),
            CONTINUATION if !self.in_message => Err(FrameError::Fragmentation),
            BINARY if self.in_message => Err(FrameError::Fragmentation),
            CONTINUATION | BINARY => Ok(()),
            CLOSE | PING | PONG if first & FIN == 0 || u64::from(second & !MASKED) > CONTROL_LEN_MAX => {
                Err(FrameError::BadControl)
            }
            CLOSE | PING | PONG => Ok(()),
            _ => Err(FrameError::Reserved),
        }
    }

    fn begin_payload(&mut self) -> Result<(), FrameError> {
        let [first, second, extended @ ..] = self.header;
        let (remaining, mask) = match (second & !MASKED, extended) {
            (126, [a, b, m0, m1, m2, m3, ..]) => (u64::from(u16::from_be_bytes([a, b])), [m0, m1, m2, m3]),
            (127, [a, b, c, d, e, f, g, h, m0, m1, m2, m3]) => (u64::from_be_bytes([a, b, c, d, e, f, g, h]), [m0, m1, m2, m3]),
            (len, [m0, m1, m2, m3, ..]) => (u64::from(len), [m0, m1, m2, m3]),
        };
        // RFC 6455 5.2: the highest bit is 0.
        if remaining > i64::MAX as u64 {
            return Err(FrameError::Length);
        }
        let opcode = first & 0x0F;
        if matches!(opcode, CONTINUATION | BINARY) {
            self.in_message = first & FIN == 0;
        }
        self.payload = Some(Payload { opcode, remaining, mask });
        Ok(())
    }

    /// Ends the frame when its payload is complete.
    fn finish_frame(&mut self, control: &mut Vec<Control>) -> Result<(), FrameError> {
        let Some(payload) = self.payload.filter(|payload| payload.remaining == 0) else { return Ok(()) };
        self.payload = None;
        self.header_len = 0;
        match payload.opcode {
            PING => control.push(Control::Ping(std::mem::take(&mut self.control))),
            CLOSE => {
                self.closed = true;
                control.push(Control::Close(close_status(&self.control)?));
            }
            _ => {}
        }
        self.control = Vec::new();
        Ok(())
    }
}

/// The status code of a close frame's payload (RFC 6455 5.5.1, 7.4).
fn close_status(payload: &[u8]) -> Result<Option<u16>, FrameError> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() { Ok(None) } else { Err(FrameError::CloseStatus) };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(FrameError::CloseStatus);
    }
    if str::from_utf8(reason).is_err() {
        return Err(FrameError::CloseReason);
    }
    Ok(Some(code))
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let mut words = bytes.chunks_exact_mut(4);
    for word in &mut words {
        for (byte, mask) in word.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Appends a frame of the server, in one piece and without a mask.
pub(super) fn encode(opcode: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(FIN | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len @ 0..=125), _) => out.push(len),
        (_, Ok(len)) => {
            out.push(126);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

#[cfg(test)]
#[path = "frame_test.rs"]
mod tests;
