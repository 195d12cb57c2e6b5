//! What a client has read and not yet taken.

use std::io;

use super::Failure;
use super::stream::Stream;
use crate::mqtt::codec::{self, Frame, MAX_PACKET_SIZE};

const HANDSHAKE_BYTES: usize = 256;

/// A read buffer that hands out whole packets in place.
pub struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    /// Small: a client that stays idle keeps no more.
    pub fn for_handshake() -> Self {
        Self { buffer: vec![0; HANDSHAKE_BYTES], start: 0, end: 0 }
    }

    /// Makes room for many packets in one read.
    pub fn grow_to(&mut self, bytes: usize) {
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
    }

    /// The next whole packet, fixed header included; `None` until more is read.
    pub fn take(&mut self) -> Result<Option<(Frame, &[u8])>, Failure> {
        let unread = &self.buffer[self.start..self.end];
        match codec::frame(unread, MAX_PACKET_SIZE)? {
            Some(frame) if frame.total_len() <= unread.len() => {
                let packet = self.start..self.start + frame.total_len();
                self.start = packet.end;
                Ok(Some((frame, &self.buffer[packet])))
            }
            _ => Ok(None),
        }
    }

    /// Waits for bytes. What is left of a packet moves to the front first.
    ///
    /// # Errors
    /// `UnexpectedEof` when the server has closed.
    pub async fn fill(&mut self, stream: &mut Stream) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        match stream.read(&mut self.buffer[self.end..]).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }

    /// What is read and not taken.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.buffer[self.start..self.end].to_vec()
    }
}
