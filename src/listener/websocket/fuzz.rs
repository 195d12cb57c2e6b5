//! Frames of a client in any pieces.

use super::frame::{self, BINARY, CLOSE, Control, Decoder, FrameError, PING, PONG};
use crate::fuzzing::Draw;

const CONTROL_LEN_MAX: usize = 125;

pub fn websocket(data: &[u8]) {
    let mut draw = Draw::new(data);
    if draw.flag() {
        let chunks = draw.u32();
        pieces_do_not_matter(draw.rest(), chunks);
    } else {
        what_is_sent_arrives(&mut draw);
    }
}

/// What a stream of frames came to.
#[derive(Debug, PartialEq)]
struct Reading {
    payload: Vec<u8>,
    control: Vec<Control>,
    error: Option<FrameError>,
}

/// Decodes in pieces of up to eight bytes, by `chunks`; 0 = in one.
fn read(stream: &[u8], mut chunks: u32) -> Reading {
    let mut decoder = Decoder::default();
    let mut reading = Reading { payload: Vec::new(), control: Vec::new(), error: None };
    let mut rest = stream;
    while !rest.is_empty() {
        let len = if chunks == 0 { rest.len() } else { ((chunks & 7) as usize + 1).min(rest.len()) };
        chunks = chunks.rotate_right(3);
        let (piece, later) = rest.split_at(len);
        rest = later;
        let mut piece = piece.to_vec();
        let count = decoder.decode(&mut piece, &mut reading.control);
        assert!(count <= len);
        reading.payload.extend_from_slice(&piece[..count]);
    }
    reading.error = decoder.failed();
    for control in &reading.control {
        assert!(!matches!(control, Control::Ping(payload) if payload.len() > CONTROL_LEN_MAX));
    }
    // Nothing counts behind a close frame.
    let closes = reading.control.iter().filter(|control| matches!(control, Control::Close(_))).count();
    assert!(
        closes <= 1 && (closes == 0 || (reading.error.is_none() && matches!(reading.control.last(), Some(Control::Close(_)))))
    );
    assert!(reading.payload.len() + 6 * reading.control.len() <= stream.len());
    reading
}

fn pieces_do_not_matter(stream: &[u8], chunks: u32) {
    let whole = read(stream, 0);
    for reading in [read(stream, chunks | 1 << 31), read(stream, 0o10_000_000_000)] {
        assert!(reading == whole, "{reading:?} and {whole:?}");
    }
}

/// A well-behaved client: messages in fragments, with control frames between them.
fn what_is_sent_arrives(draw: &mut Draw<'_>) {
    let (mut stream, mut sent) = (Vec::new(), Reading { payload: Vec::new(), control: Vec::new(), error: None });
    let chunks = draw.u32();
    let mut in_message = false;
    while !draw.is_done() {
        let kind = draw.byte();
        let payload = draw.bytes();
        let mask = kind.wrapping_mul(37).to_be_bytes();
        let mask = [mask[0], !mask[0], kind, 0];
        let short = &payload[..payload.len().min(CONTROL_LEN_MAX)];
        match kind & 7 {
            0 => {
                put(0x80 | PING, short, mask, false, &mut stream);
                sent.control.push(Control::Ping(short.to_vec()));
            }
            1 => put(0x80 | PONG, short, mask, false, &mut stream),
            _ => {
                let (opcode, last) = (if in_message { 0 } else { BINARY }, kind & 2 != 0);
                put(opcode | u8::from(last) << 7, payload, mask, kind & 4 != 0, &mut stream);
                sent.payload.extend_from_slice(payload);
                in_message = !last;
            }
        }
    }
    let code = [0x03, 0xE8];
    put(0x80 | CLOSE, &code, [1, 2, 3, 4], false, &mut stream);
    sent.control.push(Control::Close(Some(1000)));
    assert_eq!(read(&stream, 0), sent);
    assert_eq!(read(&stream, chunks), sent);

    // And back: frames of the server are what they say.
    let mut out = Vec::new();
    frame::encode(BINARY, &sent.payload, &mut out);
    let header_len = out.len() - sent.payload.len();
    assert_eq!(&out[header_len..], &sent.payload[..]);
    let len = match (out[1], header_len) {
        (len @ 0..=125, 2) => usize::from(len),
        (126, 4) => usize::from(u16::from_be_bytes([out[2], out[3]])),
        (127, 10) => usize::MAX,
        other => panic!("{other:?}"),
    };
    assert!(out[0] == 0x80 | BINARY && (len == sent.payload.len() || sent.payload.len() > 0xFFFF));
}

/// Appends a frame of a client; with `wide` its length takes more bytes than it needs.
fn put(first: u8, payload: &[u8], mask: [u8; 4], wide: bool, out: &mut Vec<u8>) {
    out.push(first);
    match u8::try_from(payload.len()) {
        Ok(len @ 0..=125) if !wide => out.push(0x80 | len),
        Ok(len) if wide => {
            out.push(0x80 | 127);
            out.extend_from_slice(&u64::from(len).to_be_bytes());
        }
        _ => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}
