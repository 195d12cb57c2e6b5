//! From bytes to packets, and from packets to the machine; and the end of the stream.

use std::time::Duration;

use actix::Context;
use bytes::BytesMut;

use super::{Client, TURN_PACKETS_MAX, effects};
use crate::mqtt::codec;
use crate::mqtt::{Packet, ReasonCode};
use crate::telemetry::RateLimited;

static NO_ROOM: RateLimited = RateLimited::new(Duration::from_secs(10));

impl Client {
    /// Bytes arrived: takes whole packets out of them.
    pub(super) fn on_bytes(&mut self, bytes: &[u8], ctx: &mut Context<Self>) {
        self.local.node().metrics.transferred(bytes.len(), 0);
        self.machine.handle_bytes(self.now);
        let mut rest = bytes;
        while !self.partial.is_empty() && !rest.is_empty() && !self.closing {
            // Only what completes the packet: what follows it need not be copied.
            let wanted =
                if self.takes_packets() { self.partial.missing(self.machine.max_packet_size_bytes()) } else { usize::MAX };
            let (some, after) = rest.split_at(wanted.min(rest.len()));
            rest = after;
            self.keep(some, ctx);
            self.on_partial(ctx);
        }
        let used = self.on_slice(rest, ctx);
        if !self.closing {
            self.keep(rest.get(used..).unwrap_or_default(), ctx);
        }
    }

    /// Keeps bytes of a packet that is not complete, if there is room for them in the node.
    pub(super) fn keep(&mut self, bytes: &[u8], ctx: &mut Context<Self>) {
        if self.partial.append(bytes, self.machine.max_packet_size_bytes()) {
            return;
        }
        crate::warn_limited!(
            NO_ROOM,
            peer = ?self.accepted.peer(),
            "a client is closed: incomplete packets fill restrictions/max-incomplete-packet-memory"
        );
        self.partial.take_all();
        let reason = "the node has no room for more incomplete packets";
        self.machine.disconnect(ReasonCode::QuotaExceeded, reason, true, self.now, &mut self.effects);
        self.run_effects(ctx);
    }

    /// Packets straight out of the thread's buffer; returns the bytes used.
    pub(super) fn on_slice(&mut self, bytes: &[u8], ctx: &mut Context<Self>) -> usize {
        let mut used = 0;
        while self.takes_packets() {
            let rest = bytes.get(used..).unwrap_or_default();
            match codec::frame(rest, self.machine.max_packet_size_bytes()) {
                Ok(Some(frame)) if rest.len() >= frame.total_len() => {
                    let packet = bytes::Bytes::copy_from_slice(rest.get(..frame.total_len()).unwrap_or_default());
                    used += frame.total_len();
                    self.on_packet(frame, packet, ctx);
                }
                Ok(_) => break,
                Err(error) => {
                    self.on_decode_error(&error, rest, ctx);
                    break;
                }
            }
        }
        used
    }

    /// Packets out of what was kept.
    pub(super) fn on_partial(&mut self, ctx: &mut Context<Self>) {
        while self.takes_packets() && !self.partial.is_empty() {
            match codec::frame(self.partial.bytes(), self.machine.max_packet_size_bytes()) {
                Ok(Some(frame)) if self.partial.bytes().len() >= frame.total_len() => {
                    let packet = self.partial.take(frame.total_len());
                    self.on_packet(frame, packet, ctx);
                }
                Ok(_) => break,
                Err(error) => {
                    let bytes = self.partial.take_all();
                    self.on_decode_error(&error, &bytes, ctx);
                    break;
                }
            }
        }
        self.partial.tidy();
    }

    /// Whether another packet may be taken in this turn.
    pub(super) fn takes_packets(&self) -> bool {
        !self.closing && !self.leaving && self.turn_packets < TURN_PACKETS_MAX && self.machine.wants_input()
    }

    pub(super) fn on_packet(&mut self, frame: codec::Frame, packet: bytes::Bytes, ctx: &mut Context<Self>) {
        self.turn_packets += 1;
        let size_bytes = packet.len();
        // A first packet that is broken is looked at again for the version to answer in.
        let first = self.machine.protocol().is_none().then(|| packet.clone());
        match codec::decode(frame, packet, self.machine.protocol()) {
            Ok(decoded) => {
                self.local.node().metrics.received(&decoded);
                self.local.node().metrics.received_bytes(matches!(decoded, Packet::Publish(_)), size_bytes);
                self.record_received(&decoded);
                let claim = self.claim_of(&decoded);
                let assigned = || effects::assigned_client_id(self.connection);
                self.machine.handle_packet(decoded, &assigned, self.now, &mut self.effects);
                if let Some(claim) = claim {
                    self.claimed(claim);
                }
                self.run_effects(ctx);
            }
            Err(error) => self.on_decode_error(&error, first.as_deref().unwrap_or_default(), ctx),
        }
    }

    pub(super) fn on_decode_error(&mut self, error: &codec::DecodeError, bytes: &[u8], ctx: &mut Context<Self>) {
        tracing::debug!(peer = ?self.accepted.peer(), %error, "bytes are no valid packet");
        let version = if self.machine.protocol().is_none() { codec::connect_version(bytes) } else { None };
        self.machine.handle_decode_error(error, version, self.now, &mut self.effects);
        self.run_effects(ctx);
    }

    /// The peer closed or the socket failed.
    pub(super) fn on_closed(&mut self, ctx: &mut Context<Self>) {
        if self.gone {
            return;
        }
        self.gone = true;
        self.out = BytesMut::new();
        // Its turn comes after what the client sent before; `Close` follows then.
        if !self.closing {
            self.machine.handle_closed(self.now, &mut self.effects);
            self.run_effects(ctx);
        }
    }

    /// What carries MQTT is broken, and the peer was told so: the connection is as good as closed, by the broker.
    pub(super) fn on_bad_frame(&mut self, ctx: &mut Context<Self>) {
        if !self.closing {
            self.machine.handle_decode_error(&codec::DecodeError::Carrier, None, self.now, &mut self.effects);
            self.run_effects(ctx);
        }
    }
}
