//! Messages to the client: PUBLISH out, PUBACK, PUBREC and PUBCOMP in (MQTT 5 sections 3.3 to 3.7, 4.3, 4.4, 4.9).
//!
//! The Packet Identifier of an entry of the session's replicated queue is a function of its position; identifiers of the upper
//! half are dealt round robin to the rest. Nothing is sent twice on one connection.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use bytestring::ByteString;

use super::effect::{AckOutcome, Effect};
use super::machine::Now;
use super::peer::{Peer, ack};
use super::sent_alias::{Choice, SentAliases};
use crate::mqtt::packet::{PacketId, Publish, PublishAck, PublishProperties};
use crate::mqtt::{Delivery, Packet, QoS, ReasonCode, Source};
use crate::signal::DropReason;

/// Identifiers 1 to this belong to the session's replicated queue.
const QUEUE_ID_MAX: u16 = 32_767;

/// The outbound side of a connection.
#[derive(Debug)]
pub(super) struct Outbound {
    /// Messages of QoS above 0 that may be in flight.
    window: u32,
    in_flight: BTreeMap<PacketId, InFlight>,
    /// The identifier dealt last to a source other than the session's queue.
    last_dealt: u16,
    aliases: SentAliases,
}

/// A message under way.
#[derive(Debug)]
struct InFlight {
    source: Source,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    AwaitPuback,
    AwaitPubrec,
    /// PUBREC came and is being stored; PUBREL waits for that.
    StoringPubrec,
    AwaitPubcomp,
}

impl Outbound {
    pub(super) fn new(window: usize, aliases: SentAliases) -> Self {
        let window = u32::try_from(window).unwrap_or(u32::MAX);
        Self { window, in_flight: BTreeMap::new(), last_dealt: u16::MAX, aliases }
    }

    /// Messages of QoS above 0 that may be sent now.
    pub(super) fn send_quota(&self) -> usize {
        (self.window as usize).saturating_sub(self.in_flight.len())
    }

    /// Sends a delivery, or reports why it is over without being sent. False, with nothing emitted, where it has to wait.
    pub(super) fn deliver(&mut self, delivery: Delivery, peer: &Peer, now: Now, out: &mut Vec<Effect>) -> bool {
        // A QoS 2 message once sent goes to its end, expired or not [MQTT-4.3.3-7].
        let begun = delivery.dup && delivery.qos == QoS::ExactlyOnce;
        if !begun && delivery.message.is_expired(now.wall_ms) {
            // [MQTT-3.3.2-5]
            out.push(Effect::Expired { delivery: Box::new(delivery) });
            return true;
        }
        let packet_id = match delivery.qos {
            QoS::AtMostOnce => None,
            QoS::AtLeastOnce | QoS::ExactlyOnce => match self.packet_id(&delivery.source) {
                Some(id) if self.send_quota() > 0 => Some(id),
                _ => return false,
            },
        };
        let Some(packet) = self.within_size(publish(&delivery, packet_id, peer, now), peer) else {
            // [MQTT-3.1.2-24] [MQTT-3.1.2-25]
            out.push(Effect::Dropped { delivery: Box::new(delivery), reason: DropReason::MaximumPacketSizeExceeded });
            return true;
        };
        out.push(Effect::Send(packet));
        let Some(packet_id) = packet_id else {
            if delivery.source != Source::Local {
                out.push(Effect::Acknowledge { source: delivery.source, outcome: AckOutcome::Sent });
            }
            return true;
        };
        let step = if delivery.qos == QoS::ExactlyOnce { Step::AwaitPubrec } else { Step::AwaitPuback };
        if packet_id.get() > QUEUE_ID_MAX {
            self.last_dealt = packet_id.get();
        }
        self.in_flight.insert(packet_id, InFlight { source: delivery.source, step });
        true
    }

    /// The packet that is to be sent, with a Topic Alias where one serves; `None` where it is too large. An alias stands for a topic
    /// only once it is sent.
    fn within_size(&mut self, publish: Publish, peer: &Peer) -> Option<Packet> {
        let mut choice = self.aliases.choose(&publish.topic);
        let topic = publish.topic.clone();
        let mut packet = with_alias(publish, choice);
        if matches!(choice, Choice::Set(_)) && !peer.fits(&packet) {
            // Setting the alias is what made it too large, perhaps.
            choice = Choice::None;
            if let Packet::Publish(publish) = &mut packet {
                publish.properties.topic_alias = None;
            }
        }
        if !peer.fits(&packet) {
            return None;
        }
        self.aliases.sent(&topic, choice);
        Some(packet)
    }

    /// PUBREL for a queue entry whose PUBREC is stored, on a new connection [MQTT-4.4.0-1].
    pub(super) fn resume_release(&mut self, seq: u64, peer: &Peer, out: &mut Vec<Effect>) {
        let packet_id = queue_packet_id(seq);
        if self.in_flight.contains_key(&packet_id) {
            return;
        }
        self.in_flight.insert(packet_id, InFlight { source: Source::Queue { seq }, step: Step::AwaitPubcomp });
        send_pubrel(packet_id, ReasonCode::Success, peer, out);
    }

    pub(super) fn puback(&mut self, ack: &PublishAck, out: &mut Vec<Effect>) {
        if self.step(ack.packet_id) == Some(Step::AwaitPuback) {
            self.complete(ack, out);
        }
    }

    pub(super) fn pubrec(&mut self, ack: &PublishAck, peer: &Peer, out: &mut Vec<Effect>) {
        let packet_id = ack.packet_id;
        let failed = ack.reason_code.is_error();
        let Some(in_flight) = self.in_flight.get_mut(&packet_id) else {
            // A failure is answered by nothing; anything else is told that the exchange is over (MQTT 5 section 4.13.2).
            if !failed {
                send_pubrel(packet_id, ReasonCode::PacketIdentifierNotFound, peer, out);
            }
            return;
        };
        match in_flight.step {
            // [MQTT-4.4.0-2], and the quota is free again [MQTT-4.9.0-2]
            Step::AwaitPubrec if failed => self.complete(ack, out),
            Step::AwaitPubrec => {
                let source = in_flight.source.clone();
                let to_be_stored = matches!(source, Source::Queue { .. });
                in_flight.step = if to_be_stored { Step::StoringPubrec } else { Step::AwaitPubcomp };
                out.push(Effect::Acknowledge { source, outcome: AckOutcome::Received });
                if !to_be_stored {
                    // [MQTT-4.3.3-4]
                    send_pubrel(packet_id, ReasonCode::Success, peer, out);
                }
            }
            Step::AwaitPubcomp if !failed => send_pubrel(packet_id, ReasonCode::Success, peer, out),
            Step::AwaitPuback | Step::StoringPubrec | Step::AwaitPubcomp => {}
        }
    }

    pub(super) fn pubcomp(&mut self, ack: &PublishAck, out: &mut Vec<Effect>) {
        if self.step(ack.packet_id) == Some(Step::AwaitPubcomp) {
            self.complete(ack, out);
        }
    }

    /// PUBREC of this source is stored.
    pub(super) fn received_stored(&mut self, source: &Source, peer: &Peer, out: &mut Vec<Effect>) {
        let Source::Queue { seq } = source else { return };
        let packet_id = queue_packet_id(*seq);
        let Some(in_flight) = self.in_flight.get_mut(&packet_id) else { return };
        if in_flight.step == Step::StoringPubrec && in_flight.source == *source {
            in_flight.step = Step::AwaitPubcomp;
            send_pubrel(packet_id, ReasonCode::Success, peer, out);
        }
    }

    fn step(&self, packet_id: PacketId) -> Option<Step> {
        self.in_flight.get(&packet_id).map(|m| m.step)
    }

    fn complete(&mut self, ack: &PublishAck, out: &mut Vec<Effect>) {
        if let Some(InFlight { source, .. }) = self.in_flight.remove(&ack.packet_id) {
            out.push(Effect::Acknowledge { source, outcome: AckOutcome::Completed(ack.reason_code) });
        }
    }

    /// A free identifier for the source [MQTT-2.2.1-4].
    fn packet_id(&self, source: &Source) -> Option<PacketId> {
        match source {
            Source::Queue { seq } => Some(queue_packet_id(*seq)).filter(|id| !self.in_flight.contains_key(id)),
            Source::Local | Source::Share { .. } | Source::Member { .. } => {
                // At most `in_flight.len()` steps find a used one, and the window is far smaller than the range.
                let first = QUEUE_ID_MAX + 1;
                let from = self.last_dealt.checked_add(1).unwrap_or(first);
                let ids = (from..=u16::MAX).chain(first..from);
                ids.filter_map(NonZeroU16::new).find(|id| !self.in_flight.contains_key(id))
            }
        }
    }
}

/// The Packet Identifier of the session's queue entry `seq`: the same on every connection and every node.
fn queue_packet_id(seq: u64) -> PacketId {
    let offset = seq.saturating_sub(1) % u64::from(QUEUE_ID_MAX);
    u16::try_from(offset).map_or(NonZeroU16::MIN, |offset| NonZeroU16::MIN.saturating_add(offset))
}

fn send_pubrel(packet_id: PacketId, code: ReasonCode, peer: &Peer, out: &mut Vec<Effect>) {
    peer.send(Packet::Pubrel(ack(packet_id, code)), out);
}

fn with_alias(mut publish: Publish, choice: Choice) -> Packet {
    match choice {
        Choice::None => {}
        Choice::Use(alias) => {
            publish.topic = ByteString::new();
            publish.properties.topic_alias = Some(alias);
        }
        Choice::Set(alias) => publish.properties.topic_alias = Some(alias),
    }
    Packet::Publish(Box::new(publish))
}

fn publish(delivery: &Delivery, packet_id: Option<PacketId>, peer: &Peer, now: Now) -> Publish {
    let message = &delivery.message;
    let properties = if peer.protocol.is_v5() {
        PublishProperties {
            payload_format_indicator: message.payload_format_indicator,
            // [MQTT-3.3.2-6]
            message_expiry_interval: message.remaining_expiry_s(now.wall_ms),
            topic_alias: None,
            response_topic: message.response_topic.clone(),
            correlation_data: message.correlation_data.clone(),
            user_properties: message.user_properties.clone(),
            subscription_identifiers: delivery.subscription_ids.clone(),
            content_type: message.content_type.clone(),
        }
    } else {
        PublishProperties::default()
    };
    Publish {
        // [MQTT-3.3.1-2]
        dup: delivery.dup && packet_id.is_some(),
        qos: delivery.qos,
        retain: delivery.retain,
        topic: message.topic.clone(),
        packet_id,
        properties,
        payload: message.payload.clone(),
    }
}
