//! The beginning of a connection that a proxy is believed on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::{AsyncRead, ReadBuf};

use super::Draw;
use crate::listener::proxy::{self, Beginning, Header};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_BODY_LEN_MAX: usize = 16 * 1024;
const V1_LEN_MAX: usize = 107;

pub fn proxy(data: &[u8]) {
    let mut draw = Draw::new(data);
    let (kind, chunks) = (draw.below(4), draw.u32());
    let stream = match kind {
        0 => draw.rest().to_vec(),
        1 => [b"PROXY ", draw.rest()].concat(),
        2 => [SIGNATURE, draw.rest()].concat(),
        _ => with_length(&mut draw),
    };
    let (outcome, consumed) = begin(&stream, 0);
    is_within_bounds(&stream, &outcome, consumed);
    let longer = [&stream[..consumed], b"\r\n\x10\x0C\0\x04MQTT"].concat();
    for chunks in [1, chunks] {
        // In whatever pieces the bytes come, and whatever is behind a header.
        let again = begin(&stream, chunks);
        is_within_bounds(&stream, &again.0, again.1);
        match &outcome {
            Outcome::Header(_) => {
                assert_eq!(again, (outcome.clone(), consumed));
                assert_eq!(begin(&stream[..consumed], chunks), again);
                assert_eq!(begin(&longer, chunks), again);
            }
            // As many bytes as came at once are looked at.
            Outcome::Absent(_) => assert!(matches!(again.0, Outcome::Absent(_))),
            Outcome::Refused => assert_eq!(again.0, Outcome::Refused),
            Outcome::Cut => assert_eq!(again, (Outcome::Cut, stream.len())),
        }
    }
}

/// A header of version 2 that is as long as it says, and what follows it.
fn with_length(draw: &mut Draw<'_>) -> Vec<u8> {
    let (command, family) = (draw.byte(), draw.byte());
    let body = draw.bytes();
    let len = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    [SIGNATURE, &[command, family][..], &len, body, draw.rest()].concat()
}

#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Header(Header),
    Absent(Bytes),
    Refused,
    /// The stream ended inside what may become a header.
    Cut,
}

/// Reads a beginning; also says how many bytes were taken from the stream. `chunks` decides how they come: 0 = all that is asked for.
fn begin(stream: &[u8], chunks: u32) -> (Outcome, usize) {
    let mut source = Source { stream, taken: 0, chunks };
    let outcome = match proxy::read(&mut source).now_or_never() {
        Some(Ok(Beginning::Header(header))) => Outcome::Header(header),
        Some(Ok(Beginning::Absent(bytes))) => Outcome::Absent(bytes),
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => Outcome::Refused,
        Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Outcome::Cut,
        other => panic!("{other:?}"),
    };
    (outcome, source.taken)
}

fn is_within_bounds(stream: &[u8], outcome: &Outcome, consumed: usize) {
    let taken = &stream[..consumed];
    match outcome {
        Outcome::Header(header) if taken.starts_with(SIGNATURE) => {
            let len = usize::from(u16::from_be_bytes([taken[14], taken[15]]));
            assert!(consumed == 16 + len && len <= V2_BODY_LEN_MAX);
            assert_eq!(header.local, taken[12] == 0x20);
            assert_eq!(header.source.is_some(), header.destination.is_some());
        }
        Outcome::Header(header) => {
            assert!(taken.starts_with(b"PROXY ") && taken.ends_with(b"\r\n") && consumed <= V1_LEN_MAX);
            // A line ends with the first line end.
            assert_eq!(taken.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert!(!header.local && header.tls.is_none());
            if let (Some(source), Some(destination)) = (header.source, header.destination) {
                let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                let words: Vec<_> = std::str::from_utf8(taken).unwrap().trim_end().split(' ').collect();
                assert_eq!(words[1], family);
                assert_eq!(words[4].parse(), Ok(source.port()));
                assert_eq!(words[5].parse(), Ok(destination.port()));
            }
        }
        // Nothing that was read is lost.
        Outcome::Absent(bytes) => assert!(bytes == taken && consumed <= SIGNATURE.len()),
        Outcome::Refused | Outcome::Cut => assert!(consumed <= 16 + V2_BODY_LEN_MAX),
    }
}

/// A socket that gives bytes in pieces and then ends.
struct Source<'a> {
    stream: &'a [u8],
    taken: usize,
    chunks: u32,
}

impl AsyncRead for Source<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let rest = &self.stream[self.taken..];
        let piece = match self.chunks {
            0 => usize::MAX,
            chunks => (chunks & 7).max(1) as usize,
        };
        let count = piece.min(rest.len()).min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.taken += count;
        // Another size next time; a stream in single bytes stays one.
        if self.chunks > 1 {
            self.chunks = self.chunks.rotate_right(3);
        }
        Poll::Ready(Ok(()))
    }
}
