//! Packet Identifiers are not used for something else while they are open, answers belong to questions, and DUP is said where, and only
//! where, a message may have been sent before.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use troupemq::mqtt::packet::{PacketId, Publish};
use troupemq::mqtt::{Packet, QoS};

use super::life::{Connection, Life, Lives, Outcome, Passed};
use super::{Fault, Rule};

pub fn check(lives: &Lives, faults: &mut Vec<Fault>) {
    for (id, life) in &lives.clients {
        check_answers(id, life, faults);
        let shares = life.subscribed.iter().any(|one| one.shared().is_some());
        Receiving { id, shares, session: HashMap::new(), pubrecs: HashSet::new(), resumed: false }.check(life, faults);
    }
}

/// Each answer has its question on the same connection, and each question at most one answer.
fn check_answers(id: &str, life: &Life, faults: &mut Vec<Fault>) {
    for connection in &life.connections {
        let mut open: HashMap<(&str, PacketId), usize> = HashMap::new();
        for (at_ms, passed) in &connection.records {
            match passed {
                Passed::Sent(packet) => {
                    if let Some(question) = question(packet) {
                        *open.entry(question).or_default() += 1;
                    }
                }
                Passed::Received(packet) => {
                    let Some(answer) = answer(packet) else { continue };
                    match open.get_mut(&answer) {
                        Some(count) if *count > 0 => *count -= 1,
                        _ => {
                            let what =
                                format!("{id} got {} for {}, which nothing waits for, at {at_ms} ms", answer.0, answer.1.get());
                            faults.push(Fault { rule: Rule::PacketIdentifier, what });
                        }
                    }
                }
            }
        }
    }
}

fn question(packet: &Packet) -> Option<(&'static str, PacketId)> {
    match packet {
        Packet::Publish(publish) => {
            let answer = if publish.qos == QoS::ExactlyOnce { "PUBREC" } else { "PUBACK" };
            publish.packet_id.map(|id| (answer, id))
        }
        Packet::Pubrel(ack) => Some(("PUBCOMP", ack.packet_id)),
        Packet::Subscribe(subscribe) => Some(("SUBACK", subscribe.packet_id)),
        Packet::Unsubscribe(unsubscribe) => Some(("UNSUBACK", unsubscribe.packet_id)),
        _ => None,
    }
}

fn answer(packet: &Packet) -> Option<(&'static str, PacketId)> {
    match packet {
        Packet::Puback(ack) => Some(("PUBACK", ack.packet_id)),
        Packet::Pubrec(ack) => Some(("PUBREC", ack.packet_id)),
        Packet::Pubcomp(ack) => Some(("PUBCOMP", ack.packet_id)),
        Packet::Suback(suback) => Some(("SUBACK", suback.packet_id)),
        Packet::Unsuback(unsuback) => Some(("UNSUBACK", unsuback.packet_id)),
        _ => None,
    }
}

/// What a client has been sent.
struct Receiving<'a> {
    id: &'a str,
    /// The client is a member of a group: what it had not acknowledged with QoS 1 went to others with its connection, or comes back as a
    /// message of the group.
    shares: bool,
    session: HashMap<PacketId, Last>,
    /// Identifiers of which the client has ever sent a PUBREC.
    pubrecs: HashSet<PacketId>,
    /// The session has had a connection before this one.
    resumed: bool,
}

/// The last message under an identifier.
struct Last {
    payload: Bytes,
    qos: QoS,
    connection: usize,
    /// How far the client came: it answered, though the answer may be lost.
    answered: bool,
}

impl Receiving<'_> {
    fn check(mut self, life: &Life, faults: &mut Vec<Fault>) {
        for (index, connection) in life.connections.iter().enumerate() {
            match connection.outcome {
                Outcome::Accepted(false) => {
                    self.session.clear();
                    self.pubrecs.clear();
                    self.resumed = false;
                }
                Outcome::Accepted(true) => self.resumed = true,
                // It may have been accepted, and have been sent what never arrived.
                Outcome::Unknown => {
                    self.resumed = true;
                    continue;
                }
                Outcome::Refused => continue,
            }
            if self.shares {
                self.session.retain(|_, last| last.qos == QoS::ExactlyOnce);
            }
            self.connection(index, connection, faults);
        }
    }

    fn connection(&mut self, index: usize, connection: &Connection, faults: &mut Vec<Fault>) {
        for (at_ms, passed) in &connection.records {
            match passed {
                Passed::Received(Packet::Publish(publish)) => {
                    if let Some((rule, what)) = self.publish(index, publish) {
                        faults.push(Fault { rule, what: format!("{} got {} at {at_ms} ms: {what}", self.id, short(publish)) });
                    }
                }
                Passed::Received(Packet::Pubrel(ack)) if !self.pubrecs.contains(&ack.packet_id) => {
                    let what = format!("{} got PUBREL {} and never sent PUBREC, at {at_ms} ms", self.id, ack.packet_id.get());
                    faults.push(Fault { rule: Rule::PacketIdentifier, what });
                }
                Passed::Sent(Packet::Pubrec(ack)) => {
                    self.pubrecs.insert(ack.packet_id);
                    self.session.entry(ack.packet_id).and_modify(|last| last.answered |= ack.reason_code.is_error());
                }
                Passed::Sent(Packet::Puback(ack) | Packet::Pubcomp(ack)) => {
                    self.session.entry(ack.packet_id).and_modify(|last| last.answered = true);
                }
                _ => {}
            }
        }
    }

    fn publish(&mut self, connection: usize, publish: &Publish) -> Option<(Rule, String)> {
        let Some(id) = publish.packet_id else {
            return publish.dup.then(|| (Rule::Dup, "DUP with QoS 0 [MQTT-3.3.1-2]".to_owned()));
        };
        let now = Last { payload: publish.payload.clone(), qos: publish.qos, connection, answered: false };
        let Some(last) = self.session.insert(id, now) else {
            let never = publish.dup && !self.resumed;
            return never.then(|| (Rule::Dup, "DUP on the first connection of the session".to_owned()));
        };
        let same = last.payload == publish.payload && last.qos == publish.qos;
        if !last.answered && last.connection == connection {
            return Some((Rule::PacketIdentifier, "its identifier is open on this connection".to_owned()));
        }
        if !last.answered && !same {
            let open = String::from_utf8_lossy(&last.payload).into_owned();
            return Some((Rule::PacketIdentifier, format!("its identifier is open for {open}")));
        }
        if same && last.connection == connection {
            return Some((Rule::PacketIdentifier, "sent again on the same connection".to_owned()));
        }
        (same && !publish.dup).then(|| (Rule::Dup, "sent again without DUP [MQTT-3.3.1-1]".to_owned()))
    }
}

fn short(publish: &Publish) -> String {
    let Publish { qos, dup, topic, packet_id, payload, .. } = publish;
    let payload: String = String::from_utf8_lossy(payload).chars().take(80).collect();
    format!("PUBLISH {payload} on {topic} ({qos:?}, DUP {dup}, identifier {:?})", packet_id.map(PacketId::get))
}
