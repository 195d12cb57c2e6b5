//! A connection under load: whole packets out of a read buffer that the thread lends, writes gathered. An idle connection owns no buffer.

use std::task::{Context, Poll, ready};

use super::Failure;
use super::client::Client;
use super::inbox::Inbox;
use super::stream::Stream;
use crate::mqtt::ProtocolVersion;
use crate::mqtt::codec::{self, Frame};

/// Gathered at most before it is written, bytes (and one message more).
pub(super) const OUT_BYTES: usize = 64 * 1024;
/// What a read finds room for at least.
const READ_BYTES_MIN: usize = 16 * 1024;
/// A thread's read buffer.
pub(super) const SCRATCH_BYTES: usize = 128 * 1024;

pub(super) struct Connection {
    stream: Stream,
    version: ProtocolVersion,
    /// What is read and not taken.
    rest: Vec<u8>,
    /// The rest may hold whole packets.
    unlooked: bool,
    pub(super) out: Vec<u8>,
    written: usize,
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        let rest = client.inbox.into_rest();
        Self { stream: client.stream, version: client.version, unlooked: !rest.is_empty(), rest, out: Vec::new(), written: 0 }
    }
}

impl Connection {
    pub(super) fn into_client(self) -> Client {
        Client {
            stream: self.stream,
            inbox: Inbox::for_handshake(),
            version: self.version,
            session_present: false,
            receive_maximum: u16::MAX,
        }
    }

    pub(super) fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// Reads once, behind what is left; returns how much of `scratch` is filled.
    ///
    /// # Errors
    /// `Closed` where the server has closed.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, scratch: &mut Vec<u8>) -> Poll<Result<usize, Failure>> {
        let left = self.rest.len();
        if scratch.len() < left + READ_BYTES_MIN {
            scratch.resize((left + READ_BYTES_MIN).max(2 * left).max(SCRATCH_BYTES), 0);
        }
        let (front, room) = scratch.split_at_mut(left);
        front.copy_from_slice(&self.rest);
        if std::mem::take(&mut self.unlooked) {
            return Poll::Ready(Ok(left));
        }
        match ready!(self.stream.poll_read(cx, room))? {
            0 => Poll::Ready(Err(Failure::Closed(None))),
            count => Poll::Ready(Ok(left + count)),
        }
    }

    /// Hands out the whole packets of what `poll_fill` filled, and keeps what is left.
    pub(super) fn take_packets(
        &mut self,
        filled: &[u8],
        packet_bytes_max: usize,
        mut take: impl FnMut(Frame, &[u8], &mut Vec<u8>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut rest = filled;
        while let Some(frame) = codec::frame(rest, packet_bytes_max)? {
            let Some((packet, behind)) = rest.split_at_checked(frame.total_len()) else { break };
            rest = behind;
            take(frame, packet, &mut self.out)?;
        }
        self.rest.clear();
        if rest.is_empty() {
            // An idle connection owns no buffer.
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Writes what is gathered. Ready: all has left.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            self.written += ready!(self.stream.poll_write(cx, rest))?;
        }
        self.out.clear();
        self.written = 0;
        self.stream.poll_flush(cx).map_err(Failure::from)
    }
}
