//! MQTT over WebSocket, the client's side (RFC 6455): the upgrade, and frames over any socket.

use std::io;
use std::task::{Context, Poll, ready};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::Rng;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::Failure;
use super::stream::Socket;

const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Payload put into one frame at most, bytes.
const FRAME_BYTES_MAX: usize = 64 * 1024;
/// Two bytes, and a length of eight; servers do not mask.
const HEADER_LEN_MAX: usize = 10;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;

pub struct WebSocket {
    socket: Socket,
    frames: Frames,
    /// Frames that are not written yet: one with payload at most, and pongs.
    out: Vec<u8>,
    written: usize,
    mask: u32,
}

impl WebSocket {
    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Upgrades the connection. `host` is what the Host header says.
    pub(super) async fn upgrade(mut socket: Socket, host: &str, path: &str) -> Result<Self, Failure> {
        let key = STANDARD.encode(rand::random::<[u8; 16]>());
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // One byte after the other, so that no frame behind the answer is taken: some 150 bytes, once for each connection.
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if answer.len() > ANSWER_BYTES_MAX || socket.read(&mut byte).await? == 0 {
                return Err(Failure::Protocol("no answer to the WebSocket upgrade".into()));
            }
            answer.push(byte[0]);
        }
        check_answer(&answer, &key)?;
        let mask = rand::rng().random_range(1..u32::MAX);
        Ok(Self { socket, frames: Frames::default(), out: Vec::new(), written: 0, mask })
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let count = ready!(self.socket.poll_read(cx, buffer))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            let mut pongs = Vec::new();
            let payload = self.frames.decode(buffer.get_mut(..count).unwrap_or_default(), &mut pongs)?;
            for pong in pongs {
                let mask = self.next_mask();
                encode(PONG, &pong, mask, &mut self.out);
            }
            if !self.out.is_empty() {
                // What cannot be written now goes with the next write; an error shows there, too.
                let _ = self.poll_flush(cx);
            }
            if payload > 0 || self.frames.closed {
                return Poll::Ready(Ok(payload));
            }
        }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.drain(cx))?;
        let payload = bytes.get(..bytes.len().min(FRAME_BYTES_MAX)).unwrap_or_default();
        let mask = self.next_mask();
        encode(BINARY, payload, mask, &mut self.out);
        match self.drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(payload.len())),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        self.socket.poll_flush(cx)
    }

    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.written += ready!(self.socket.poll_write(cx, rest))?;
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Xorshift: different for each frame (RFC 6455 5.3); nobody is to be kept from guessing what a load tool sends.
    fn next_mask(&mut self) -> [u8; 4] {
        self.mask ^= self.mask << 13;
        self.mask ^= self.mask >> 17;
        self.mask ^= self.mask << 5;
        self.mask.to_be_bytes()
    }
}

fn check_answer(answer: &[u8], key: &str) -> Result<(), Failure> {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("101") {
        return Err(Failure::Protocol(format!("the WebSocket upgrade was answered {status:?}: is the path right?")));
    }
    let header = |wanted: &str| {
        let of = |line: &str| {
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_owned())
        };
        text.split("\r\n").find_map(of)
    };
    if header("Sec-WebSocket-Accept").as_deref() != Some(derive_accept_key(key.as_bytes()).as_str()) {
        return Err(Failure::Protocol("the WebSocket upgrade has another key in its answer".into()));
    }
    // [MQTT-6.0.0-4]
    if header("Sec-WebSocket-Protocol").as_deref() != Some("mqtt") {
        return Err(Failure::Protocol("the WebSocket server does not say that it speaks mqtt".into()));
    }
    Ok(())
}

/// Where in the server's frames the next byte belongs.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; HEADER_LEN_MAX],
    header_len: usize,
    /// Opcode of the frame whose payload is coming, and what is to come of it.
    payload: Option<(u8, u64)>,
    control: Vec<u8>,
    closed: bool,
}

impl Frames {
    /// Payload of MQTT is moved to the front, and its length returned; payloads of pings are appended to `pings`.
    fn decode(&mut self, bytes: &mut [u8], pings: &mut Vec<Vec<u8>>) -> io::Result<usize> {
        let (mut from, mut to) = (0, 0);
        while from < bytes.len() && !self.closed {
            if let Some((opcode, remaining)) = self.payload {
                let available = bytes.len() - from;
                let count = usize::try_from(remaining).map_or(available, |remaining| remaining.min(available));
                if opcode & 0x8 == 0 {
                    bytes.copy_within(from..from + count, to);
                    to += count;
                } else {
                    self.control.extend_from_slice(bytes.get(from..from + count).unwrap_or_default());
                }
                from += count;
                self.payload = Some((opcode, remaining - count as u64));
            } else {
                self.take_header(bytes.get(from).copied().unwrap_or_default())?;
                from += 1;
            }
            if let Some((opcode, 0)) = self.payload {
                self.payload = None;
                let control = std::mem::take(&mut self.control);
                match opcode {
                    PING => pings.push(control),
                    CLOSE => self.closed = true,
                    _ => {}
                }
            }
        }
        Ok(to)
    }

    fn take_header(&mut self, byte: u8) -> io::Result<()> {
        if let Some(slot) = self.header.get_mut(self.header_len) {
            *slot = byte;
        }
        self.header_len += 1;
        let [first, second, extended @ ..] = self.header;
        let (wanted, length) = match (second & !MASKED, extended) {
            (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([a, b]))),
            (127, extended) => (10, u64::from_be_bytes(extended)),
            (length, _) => (2, u64::from(length)),
        };
        if self.header_len < 2 || self.header_len < wanted {
            return Ok(());
        }
        let opcode = first & 0x0F;
        let invalid = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if second & MASKED != 0 {
            return invalid("a WebSocket frame of the server is masked");
        }
        if !matches!(opcode, 0 | BINARY | CLOSE | PING | PONG) || (opcode & 0x8 != 0 && length > 125) {
            return invalid("a WebSocket frame that carries no MQTT");
        }
        self.header_len = 0;
        self.payload = Some((opcode, length));
        Ok(())
    }
}

/// Appends a frame of the client, in one piece and masked.
fn encode(opcode: u8, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    out.push(FIN | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(len @ 0..=125), _) => out.push(MASKED | len),
        (_, Ok(len)) => {
            out.push(MASKED | 126);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(MASKED | 127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![FIN | opcode];
        match payload.len() {
            len @ 0..=125 => out.push(u8::try_from(len).unwrap()),
            len => {
                out.push(126);
                out.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn payload_comes_out_whole_however_the_bytes_are_cut() {
        let large = vec![7; 300];
        let bytes =
            [frame(BINARY, b"abc"), frame(PING, b"hello"), frame(BINARY, b""), frame(0, &large), frame(CLOSE, &[3, 0xE8])]
                .concat();
        for step in [1, 2, 3, 7, 1000] {
            let mut frames = Frames::default();
            let (mut payload, mut pings) = (Vec::new(), Vec::new());
            for chunk in bytes.chunks(step) {
                let mut chunk = chunk.to_vec();
                let count = frames.decode(&mut chunk, &mut pings).unwrap();
                payload.extend_from_slice(&chunk[..count]);
            }
            assert_eq!(payload, [&b"abc"[..], &large].concat(), "{step}");
            assert_eq!(pings, [b"hello".to_vec()]);
            assert!(frames.closed);
        }
    }

    #[test]
    fn text_and_masked_frames_of_a_server_are_refused() {
        for bytes in [[FIN | 1, 1, b'x'], [FIN | BINARY, MASKED | 1, b'x'], [FIN | PING, 126, 0]] {
            let outcome = Frames::default().decode(&mut [bytes.to_vec(), vec![200, 0]].concat(), &mut Vec::new());
            assert!(outcome.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_frame_is_masked_and_says_its_length() {
        for len in [0, 125, 126, 65_535, 65_536] {
            let mut out = Vec::new();
            encode(BINARY, &vec![b'a'; len], [1, 2, 3, 4], &mut out);
            let header = match len {
                0..=125 => 2,
                126..=65_535 => 4,
                _ => 10,
            };
            assert_eq!(out.len(), header + 4 + len);
            assert!(out[1] & MASKED != 0);
            assert!(out[header + 4..].iter().zip([1, 2, 3, 4].iter().cycle()).all(|(byte, mask)| byte ^ mask == b'a'));
        }
    }

    #[test]
    fn an_answer_that_is_no_upgrade_to_mqtt_is_refused_in_words() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        let answer = |status: &str, accept: &str, protocol: &str| {
            let text = format!(
                "HTTP/1.1 {status}\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
            );
            check_answer(text.as_bytes(), key).map_err(|error| error.to_string())
        };
        assert_eq!(answer("101 Switching Protocols", accept, "mqtt"), Ok(()));
        assert!(answer("404 Not Found", accept, "mqtt").unwrap_err().contains("404"));
        assert!(answer("101 Switching Protocols", "other", "mqtt").is_err());
        assert!(answer("101 Switching Protocols", accept, "chat").is_err());
    }
}
