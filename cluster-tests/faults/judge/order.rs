//! First appearances of one publisher's messages on one topic with one QoS come in the order of publishing [MQTT-4.6.0-6], and a publisher's
//! acknowledgements in the order of its messages.

use std::collections::{HashMap, HashSet};

use troupemq::mqtt::packet::PacketId;
use troupemq::mqtt::{Packet, QoS};

use super::life::{Connection, Life, Lives, Passed};
use super::{Fault, Rule};

pub fn check(lives: &Lives, faults: &mut Vec<Fault>) {
    let mut places: HashMap<&[u8], (&str, usize)> = HashMap::new();
    for (id, life) in &lives.clients {
        for (place, published) in life.published.iter().enumerate() {
            places.insert(&published.message.payload[..], (id, place));
        }
    }
    for (id, life) in &lives.clients {
        // What a group's members were sent and left goes to others, behind what those have.
        if life.subscribed.iter().all(|one| one.shared().is_none()) {
            check_messages(id, life, &places, faults);
        }
        life.connections.iter().for_each(|connection| check_acknowledgements(id, connection, faults));
    }
}

fn check_messages(id: &str, life: &Life, places: &HashMap<&[u8], (&str, usize)>, faults: &mut Vec<Fault>) {
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let mut last: HashMap<(&str, &str, QoS), usize> = HashMap::new();
    for delivered in &life.delivered {
        let message = &delivered.message;
        let Some(&(publisher, place)) = places.get(&message.payload[..]) else { continue };
        if message.qos == QoS::AtMostOnce || message.retain || !seen.insert(&message.payload[..]) {
            continue;
        }
        let before = last.insert((publisher, &message.topic, message.qos), place);
        if let Some(before) = before.filter(|before| *before > place) {
            let payload = String::from_utf8_lossy(&message.payload);
            let what =
                format!("{id} got {payload} (number {place} of {publisher}) behind number {before}, at {} ms", delivered.at_ms);
            faults.push(Fault { rule: Rule::Order, what });
        }
    }
}

fn check_acknowledgements(id: &str, connection: &Connection, faults: &mut Vec<Fault>) {
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let mut sent: Vec<PacketId> = Vec::new();
        let mut answered = 0;
        for (at_ms, passed) in &connection.records {
            match passed {
                Passed::Sent(Packet::Publish(publish)) if publish.qos == qos => sent.extend(publish.packet_id),
                Passed::Received(Packet::Puback(ack) | Packet::Pubrec(ack)) if is_answer(passed, qos) => {
                    if sent.get(answered).is_some_and(|expected| *expected != ack.packet_id)
                        && sent[answered..].contains(&ack.packet_id)
                    {
                        let what = format!(
                            "{id} got the acknowledgement of {} before that of {}, at {at_ms} ms",
                            ack.packet_id.get(),
                            sent[answered].get()
                        );
                        faults.push(Fault { rule: Rule::Order, what });
                    }
                    answered += 1;
                }
                _ => {}
            }
        }
    }
}

fn is_answer(passed: &Passed, qos: QoS) -> bool {
    matches!(
        (passed, qos),
        (Passed::Received(Packet::Puback(_)), QoS::AtLeastOnce) | (Passed::Received(Packet::Pubrec(_)), QoS::ExactlyOnce)
    )
}
