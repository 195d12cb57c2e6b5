//! Packets onto the socket, and whether it takes them.

use std::task::{Context as TaskContext, Poll};

use bytes::{Buf, BytesMut};

use super::super::queue::QueueItem;
use super::Client;
use crate::mqtt::codec;
use crate::mqtt::{Packet, ProtocolVersion};

/// Unsent bytes above which a socket counts as not writable, and below which it is writable again (spec/hivemq.md 2.4).
pub(super) const HIGH_WATER_BYTES: usize = 65_536;
const LOW_WATER_BYTES: usize = 32_768;

impl Client {
    /// Appends a packet to what is to be written.
    pub(super) fn write(&mut self, packet: &Packet) {
        let version = self.machine.protocol().unwrap_or(ProtocolVersion::V5);
        self.local.node().metrics.sent(packet);
        self.record_sent(packet);
        if self.gone {
            return;
        }
        let before_bytes = self.out.len();
        codec::encode(packet, version, &mut self.out);
        let size_bytes = self.out.len() - before_bytes;
        self.local.node().metrics.sent_bytes(matches!(packet, Packet::Publish(_)), size_bytes);
        if self.writable && self.out.len() > HIGH_WATER_BYTES {
            // A long turn is no slow reader: what the socket takes goes first.
            self.write_early();
            if self.out.len() > HIGH_WATER_BYTES {
                self.set_writable(false);
            }
        }
    }

    /// Writes before the pump's turn.
    pub(super) fn write_early(&mut self) {
        let Some(waker) = self.waker.clone() else { return };
        if !self.write_out(&mut TaskContext::from_waker(&waker)) {
            self.write_failed = true;
        }
    }

    /// Writes what the socket takes; false where it failed.
    pub(super) fn write_out(&mut self, cx: &mut TaskContext<'_>) -> bool {
        while !self.out.is_empty() {
            match self.transport.poll_write(cx, &self.out) {
                Poll::Ready(Ok(0)) => return false,
                Poll::Ready(Ok(count)) => {
                    self.local.node().metrics.transferred(0, count);
                    self.out.advance(count);
                    if !self.writable {
                        // Not read because of what it has to take first, and taking it.
                        self.machine.handle_unheard(self.now);
                    }
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(peer = ?self.accepted.peer(), %error, "cannot write");
                    return false;
                }
                Poll::Pending => break,
            }
        }
        true
    }

    pub(super) fn set_writable(&mut self, writable: bool) {
        self.writable = writable;
        let gauge = &self.local.node().metrics.hivemq.not_writable_current;
        if writable {
            gauge.dec();
            self.unstuff();
        } else {
            gauge.inc()
        }
        self.local.post_existing(self.connection.connection, QueueItem::Writable(writable));
    }

    /// Something was written: the socket may be writable again; an empty buffer is given back.
    pub(super) fn written(&mut self) {
        if self.out.is_empty() && self.out.capacity() > 0 {
            self.out = BytesMut::new();
        }
        if !self.writable && self.out.len() < LOW_WATER_BYTES {
            self.set_writable(true);
        }
    }
}
