//! The client's side of a session: what outlives its connections.

use std::collections::{HashMap, HashSet, VecDeque};

use troupemq::mqtt::packet::{PacketId, Publish, PublishAck};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

#[derive(Debug, Default)]
pub struct Session {
    /// Received and not yet looked at.
    pub inbox: VecDeque<Publish>,
    /// Published, in order, and not yet acknowledged to the end.
    sent: Vec<(PacketId, Sent)>,
    /// Reason Codes of finished exchanges that nobody asked for yet.
    pub acknowledged: HashMap<PacketId, ReasonCode>,
    /// QoS 2 messages received and not yet released.
    unreleased: HashSet<PacketId>,
    /// QoS 2 messages that came again before their release.
    pub known_again: u64,
    pub pinged: bool,
    last_id: u16,
}

#[derive(Debug)]
enum Sent {
    Publish(Box<Publish>),
    /// PUBREC came with this code, PUBREL is on its way.
    Released(ReasonCode),
}

impl Session {
    /// The next Packet Identifier that is not in use.
    pub fn next_id(&mut self) -> PacketId {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            let id = PacketId::new(self.last_id);
            if let Some(id) = id.filter(|id| !self.sent.iter().any(|(used, _)| used == id)) {
                return id;
            }
        }
    }

    /// Publishes that wait for their acknowledgement.
    pub fn unacknowledged(&self) -> usize {
        self.sent.len()
    }

    /// Numbers a PUBLISH and keeps it until it is acknowledged.
    pub fn start(&mut self, mut packet: Publish) -> Publish {
        if packet.qos != QoS::AtMostOnce {
            let id = self.next_id();
            packet.packet_id = Some(id);
            self.acknowledged.remove(&id);
            self.sent.push((id, Sent::Publish(Box::new(packet.clone()))));
        }
        packet
    }

    /// What is sent first on a new connection of the session [MQTT-4.4.0-1].
    pub fn to_resend(&self) -> Vec<Packet> {
        self.sent
            .iter()
            .map(|(id, sent)| match sent {
                Sent::Publish(packet) => Packet::Publish(Box::new(Publish { dup: true, ..(**packet).clone() })),
                Sent::Released(_) => Packet::Pubrel(PublishAck::new(*id, ReasonCode::Success)),
            })
            .collect()
    }

    /// The broker has no session: nothing is left of it here either, but what was received.
    pub fn forget(&mut self) {
        self.sent.clear();
        self.unreleased.clear();
        self.acknowledged.clear();
    }

    /// Takes in a packet and gives the reply to it.
    pub fn handle(&mut self, packet: Packet, auto_ack: bool) -> Option<Packet> {
        match packet {
            Packet::Publish(publish) => self.received(*publish, auto_ack),
            Packet::Puback(ack) => {
                self.finish(ack.packet_id, ack.reason_code);
                None
            }
            Packet::Pubrec(ack) if ack.reason_code.is_error() => {
                self.finish(ack.packet_id, ack.reason_code);
                None
            }
            Packet::Pubrec(ack) => {
                if let Some((_, sent)) = self.sent.iter_mut().find(|(id, _)| *id == ack.packet_id) {
                    *sent = Sent::Released(ack.reason_code);
                }
                Some(Packet::Pubrel(PublishAck::new(ack.packet_id, ReasonCode::Success)))
            }
            Packet::Pubcomp(ack) => {
                let released = self.sent.iter().find(|(id, _)| *id == ack.packet_id);
                let reason_code = match released {
                    Some((_, Sent::Released(reason_code))) => *reason_code,
                    _ => ack.reason_code,
                };
                self.finish(ack.packet_id, reason_code);
                None
            }
            Packet::Pubrel(ack) => {
                self.unreleased.remove(&ack.packet_id);
                Some(Packet::Pubcomp(PublishAck::new(ack.packet_id, ReasonCode::Success)))
            }
            Packet::Pingresp => {
                self.pinged = true;
                None
            }
            other => panic!("unexpected packet {other:?}"),
        }
    }

    fn received(&mut self, publish: Publish, auto_ack: bool) -> Option<Packet> {
        let reply = publish.packet_id.map(|id| match publish.qos {
            QoS::ExactlyOnce => Packet::Pubrec(PublishAck::new(id, ReasonCode::Success)),
            _ => Packet::Puback(PublishAck::new(id, ReasonCode::Success)),
        });
        let known = publish.qos == QoS::ExactlyOnce && publish.packet_id.is_some_and(|id| !self.unreleased.insert(id));
        if known {
            self.known_again += 1;
        } else {
            self.inbox.push_back(publish);
        }
        reply.filter(|_| auto_ack)
    }

    fn finish(&mut self, id: PacketId, reason_code: ReasonCode) {
        let before = self.sent.len();
        self.sent.retain(|(sent, _)| *sent != id);
        if self.sent.len() < before {
            self.acknowledged.insert(id, reason_code);
        }
    }
}
