//! Large payloads between nodes: a message without its payload, then the payload in pieces, between which other frames go on.
//!
//! What the same publisher sends meanwhile waits behind it, for its messages keep their order [MQTT-4.6.0-6].

use std::collections::VecDeque;
use std::io;

use ahash::AHashMap;
use bytes::Bytes;
use bytestring::ByteString;

use crate::cluster::peer_message::PeerMessage;
use crate::replica::body::BODY_BYTES_MAX;

use super::frame::{Outbound, frame};

/// Bytes of payload in one frame: what waits for its turn waits for no more.
pub(super) const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of payloads waiting on one link; the last may pass it. They are shared with other receivers, not copies.
const BULK_BYTES_MAX: usize = 512 * 1024 * 1024;
/// Messages waiting behind payloads on one link.
const BULK_MESSAGES_MAX: usize = 8192;

/// What waits on a link, in order.
#[derive(Default)]
pub(super) struct Bulk {
    waiting: VecDeque<Waiting>,
    /// Messages of each publisher among them.
    publishers: AHashMap<ByteString, usize>,
    bytes: usize,
}

struct Waiting {
    /// The frame of the message; taken when it is written.
    head: Vec<u8>,
    publisher: Option<ByteString>,
    payload: Bytes,
    written: usize,
    bytes: usize,
}

impl Bulk {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message must wait here: its payload is large, or it would overtake another of its publisher.
    pub(super) fn concerns(&self, payload: &Bytes, publisher: Option<&ByteString>) -> bool {
        !payload.is_empty() || publisher.is_some_and(|publisher| self.publishers.contains_key(publisher))
    }

    /// Takes a message in whose payload was cut off; false where there is no room.
    pub(super) fn push(&mut self, message: PeerMessage, payload: Bytes) -> io::Result<bool> {
        if self.waiting.len() >= BULK_MESSAGES_MAX || self.bytes >= BULK_BYTES_MAX {
            return Ok(false);
        }
        let publisher = message.publisher().cloned();
        let bytes = payload.len() as u64;
        let outbound = if payload.is_empty() { Outbound::Message(message) } else { Outbound::Large { message, bytes } };
        let head = frame(&outbound)?;
        if let Some(publisher) = &publisher {
            *self.publishers.entry(publisher.clone()).or_default() += 1;
        }
        let bytes = head.len() + payload.len();
        self.bytes += bytes;
        self.waiting.push_back(Waiting { head, publisher, payload, written: 0, bytes });
        Ok(true)
    }

    /// The next frame to be written.
    pub(super) fn next_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(front) = self.waiting.front_mut() else { return Ok(None) };
        let next = if front.head.is_empty() {
            let end = (front.written + PIECE_BYTES).min(front.payload.len());
            let piece = front.payload.slice(front.written..end);
            front.written = end;
            frame(&Outbound::Piece(piece))?
        } else {
            std::mem::take(&mut front.head)
        };
        if front.written == front.payload.len() {
            self.forget_front();
        }
        Ok(Some(next))
    }

    fn forget_front(&mut self) {
        let Some(done) = self.waiting.pop_front() else { return };
        self.bytes -= done.bytes;
        if let Some(publisher) = done.publisher
            && let Some(count) = self.publishers.get_mut(&publisher)
        {
            *count -= 1;
            if *count == 0 {
                self.publishers.remove(&publisher);
            }
        }
    }
}

/// The payload that is being received on one connection; a connection that ends takes it along.
pub(super) struct Assembly {
    message: PeerMessage,
    bytes_total: usize,
    payload: Vec<u8>,
}

impl Assembly {
    /// A message whose payload follows. Memory is taken as it comes.
    pub(super) fn begin(message: PeerMessage, bytes: u64) -> io::Result<Self> {
        match usize::try_from(bytes) {
            Ok(bytes_total) if bytes_total <= BODY_BYTES_MAX => {
                Ok(Self { message, bytes_total, payload: Vec::with_capacity(bytes_total) })
            }
            _ => Err(invalid(format!("a payload of {bytes} bytes"))),
        }
    }

    /// Takes the next piece; the message when it is whole.
    pub(super) fn take(mut self, piece: &[u8]) -> io::Result<Result<PeerMessage, Self>> {
        if piece.is_empty() || self.payload.len() + piece.len() > self.bytes_total {
            return Err(invalid(format!(
                "a piece of {} bytes behind {} of {}",
                piece.len(),
                self.payload.len(),
                self.bytes_total
            )));
        }
        self.payload.extend_from_slice(piece);
        if self.payload.len() < self.bytes_total {
            return Ok(Err(self));
        }
        self.message.fill(Bytes::from(self.payload));
        Ok(Ok(self.message))
    }
}

pub(super) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
#[path = "bulk_test.rs"]
mod tests;
