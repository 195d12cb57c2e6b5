//! What the event log learns of a connection.

use super::Client;
use crate::mqtt::{Packet, ReasonCode};
use crate::session::TooLarge;
use crate::signal::Initiator;
use crate::telemetry::event_log::{Event, Who};

impl Client {
    /// The client came in.
    pub(super) fn record_connected(&self, clean_start: bool, session_expiry_s: u32) {
        self.record(|who| Event::Connected { who, clean_start, session_expiry_s });
    }

    pub(super) fn record_received(&mut self, packet: &Packet) {
        match packet {
            Packet::Auth(auth) => self.record(|who| Event::Auth { who, received: true, code: auth.reason_code }),
            Packet::Disconnect(disconnect) if self.local.node().events.is_on() => {
                if let Some(reason) = &disconnect.properties.reason_string {
                    self.rare.get_mut().given_reason = Some((&**reason).into());
                }
            }
            _ => {}
        }
    }

    pub(super) fn record_sent(&self, packet: &Packet) {
        if let Packet::Auth(auth) = packet {
            self.record(|who| Event::Auth { who, received: false, code: auth.reason_code });
        }
    }

    /// A packet that is no PUBLISH was larger than the client takes.
    pub(super) fn record_not_sent(&self, packet: TooLarge) {
        self.local.node().metrics.hivemq.dropped_packet_too_large.inc();
        let TooLarge { packet, size_bytes, max_bytes } = packet;
        self.record(|who| Event::PacketDropped { client_id: who.client_id, packet, size_bytes, max_bytes });
    }

    /// The connection of a client that had come in is over: written when that is decided, not when the socket is closed, and once.
    pub(super) fn record_end(&mut self) {
        if !self.counted || std::mem::replace(&mut self.end_recorded, true) {
            return;
        }
        let (listener, port) = (self.accepted.listener.kind, self.accepted.listener_port);
        self.record(|who| match self.ended {
            (Initiator::Client, _) => Event::Left { who, reason: self.rare.get().and_then(|rare| rare.given_reason.as_deref()) },
            _ if self.stopping => Event::Closed { who, reason: ReasonCode::ServerShuttingDown.name() },
            (Initiator::Server | Initiator::SessionTakenOver, Some(code)) => Event::Closed { who, reason: code.name() },
            (Initiator::Server | Initiator::SessionTakenOver | Initiator::Unspecified, _) => Event::Lost { who, listener, port },
        });
    }

    fn record<'a>(&'a self, event: impl FnOnce(Who<'a>) -> Event<'a>) {
        let events = &self.local.node().events;
        if !events.is_on() {
            return;
        }
        let (client_id, ip) = match (&self.identity, &self.login) {
            (Some(identity), _) => (Some(&*identity.facts.client_id), identity.facts.client_ip.as_deref()),
            (None, Some(login)) => (Some(&**login.client_id()), login.ip()),
            (None, None) => (None, None),
        };
        events.tell(&event(Who { client_id, ip }));
    }
}
