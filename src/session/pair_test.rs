//! Two connections, the shard between them and both clients on one thread: a QoS 2 message is delivered exactly once although
//! either connection is lost at any moment.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::effect::{AckOutcome, Effect, Registered};
use super::test_kit::*;
use crate::mqtt::packet::{PacketId, Publish};
use crate::mqtt::{Delivery, Message, Packet, ReasonCode, Source};

/// The sending client: one QoS 2 message at a time.
#[derive(Default)]
struct Sender {
    next: u32,
    to_send: u32,
    /// The message under way, and whether its PUBREC came.
    under_way: Option<(u32, bool)>,
}

const SENDER_ID: u16 = 3;

impl Sender {
    fn publish(number: u32, dup: bool) -> Packet {
        let payload = Bytes::from(number.to_string());
        Packet::Publish(Box::new(Publish { dup, payload, ..publish("t", Q2, SENDER_ID) }))
    }

    fn start(&mut self) -> Option<Packet> {
        if self.under_way.is_some() || self.next == self.to_send {
            return None;
        }
        self.under_way = Some((self.next, false));
        self.next += 1;
        Some(Self::publish(self.next - 1, false))
    }

    /// What it says first on a new connection [MQTT-4.4.0-1].
    fn resume(&self) -> Option<Packet> {
        self.under_way.map(|(number, received)| if received { pubrel(SENDER_ID) } else { Self::publish(number, true) })
    }

    fn hear(&mut self, packet: &Packet) -> Option<Packet> {
        match packet {
            Packet::Pubrec(p) => {
                assert_eq!(p.reason_code, ReasonCode::Success);
                self.under_way.as_mut()?.1 = true;
                Some(pubrel(SENDER_ID))
            }
            Packet::Pubcomp(_) => {
                self.under_way = None;
                None
            }
            _ => None,
        }
    }
}

/// The receiving client.
#[derive(Default)]
struct Receiver {
    known: BTreeSet<PacketId>,
    got: Vec<u32>,
}

impl Receiver {
    fn hear(&mut self, packet: &Packet) -> Option<Packet> {
        match packet {
            Packet::Publish(p) => {
                let packet_id = p.packet_id?;
                if self.known.insert(packet_id) {
                    self.got.push(std::str::from_utf8(&p.payload).unwrap().parse().unwrap());
                }
                Some(pubrec(packet_id.get()))
            }
            Packet::Pubrel(p) => {
                self.known.remove(&p.packet_id);
                Some(pubcomp(p.packet_id.get()))
            }
            _ => None,
        }
    }
}

/// An entry of the receiver's queue.
struct Entry {
    seq: u64,
    /// `None` after PUBREC.
    message: Option<Arc<Message>>,
    handed_out: bool,
    dup: bool,
}

/// Both sessions as the shard holds them, both clients, and the broker's ends of their connections: 0 sends, 1 receives.
struct World {
    received: BTreeSet<PacketId>,
    queue: VecDeque<Entry>,
    next_seq: u64,
    sender: Sender,
    receiver: Receiver,
    rigs: [Rig; 2],
    /// Effects not yet carried out.
    effects: [VecDeque<Effect>; 2],
    /// Packets on the wire.
    to_broker: [VecDeque<Packet>; 2],
}

impl World {
    fn new(to_send: u32) -> Self {
        let rig = || Rig::connected(settings(), persistent(V5));
        Self {
            received: BTreeSet::new(),
            queue: VecDeque::new(),
            next_seq: 1,
            sender: Sender { to_send, ..Sender::default() },
            receiver: Receiver::default(),
            rigs: [rig(), rig()],
            effects: Default::default(),
            to_broker: Default::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.sender.next == self.sender.to_send && self.sender.under_way.is_none() && self.queue.is_empty()
    }

    fn step(&mut self, choice: u8) {
        match choice {
            0 => self.to_broker[0].extend(self.sender.start()),
            1 | 2 => self.arrive(usize::from(choice - 1)),
            3 | 4 => {
                let side = usize::from(choice - 3);
                if let Some(effect) = self.effects[side].pop_front() {
                    self.carry_out(side, effect, true);
                }
            }
            5 => self.hand_out(),
            6 | 7 => self.cut(usize::from(choice - 6), true),
            _ => self.cut(usize::from(choice % 2), false),
        }
    }

    /// One packet reaches the broker.
    fn arrive(&mut self, side: usize) {
        if let Some(packet) = self.to_broker[side].pop_front() {
            self.effects[side].extend(self.rigs[side].packet(packet));
        }
    }

    /// The next entry of the queue goes to the receiver's connection.
    fn hand_out(&mut self) {
        let Some(entry) = self.queue.iter_mut().find(|e| !e.handed_out) else { return };
        let Some(message) = entry.message.clone() else { return };
        if self.rigs[1].machine.send_quota() > 0 {
            let delivery = Delivery { message, dup: entry.dup, ..delivery(Q2, Source::Queue { seq: entry.seq }) };
            let (taken, effects) = self.rigs[1].deliver(delivery);
            assert!(taken);
            (entry.handed_out, entry.dup) = (true, true);
            self.effects[1].extend(effects);
        }
    }

    /// Carries an effect out; a connection that is gone hears no answer.
    fn carry_out(&mut self, side: usize, effect: Effect, alive: bool) {
        let answers = match effect {
            Effect::Send(packet) => {
                let said = if side == 0 { self.sender.hear(&packet) } else { self.receiver.hear(&packet) };
                self.to_broker[side].extend(said);
                return;
            }
            Effect::Publish { ticket, message, receive } => {
                if self.received.insert(receive.unwrap()) {
                    let entry = Entry { seq: self.next_seq, message: Some(Arc::from(message)), handed_out: false, dup: false };
                    self.queue.push_back(entry);
                    self.next_seq += 1;
                }
                if alive { self.rigs[side].published(ticket.0, ReasonCode::Success) } else { vec![] }
            }
            Effect::Release { ticket, packet_id } => {
                self.received.remove(&packet_id);
                if alive { self.rigs[side].released(ticket.0) } else { vec![] }
            }
            Effect::Acknowledge { source: Source::Queue { seq }, outcome } => {
                match outcome {
                    AckOutcome::Completed(_) => self.queue.retain(|e| e.seq != seq),
                    AckOutcome::Received => self.queue.iter_mut().filter(|e| e.seq == seq).for_each(|e| e.message = None),
                    AckOutcome::Sent => panic!("not QoS 0"),
                }
                let stored = outcome == AckOutcome::Received && alive;
                let source = Source::Queue { seq };
                if stored { self.rigs[side].run(|m, now, out| m.handle_acknowledged(&source, now, out)) } else { vec![] }
            }
            other => panic!("{other:?}"),
        };
        self.effects[side].extend(answers);
    }

    /// A connection is lost with all that was on its way to the client, and made anew. What it asked of the shard got there,
    /// or did not.
    fn cut(&mut self, side: usize, asked_in_time: bool) {
        for effect in std::mem::take(&mut self.effects[side]) {
            if asked_in_time && !matches!(effect, Effect::Send(_)) {
                self.carry_out(side, effect, false);
            }
        }
        self.to_broker[side].clear();
        let received = self.received.iter().copied().filter(|_| side == 0).collect();
        let registered = Registered { session_present: true, received_packet_ids: received };
        self.rigs[side] = Rig::resumed(settings(), persistent(V5), registered);
        if side == 0 {
            return self.to_broker[0].extend(self.sender.resume());
        }
        for entry in &mut self.queue {
            entry.handed_out = entry.message.is_none();
            if entry.handed_out {
                let seq = entry.seq;
                self.effects[1].extend(self.rigs[1].run(|m, now, out| m.resume_release(seq, now, out)));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn qos_2_is_delivered_exactly_once_and_in_order_whatever_connection_is_lost(
        to_send in 1..8_u32,
        steps in prop::collection::vec(0..10_u8, 0..400),
        calm in prop::collection::vec(0..6_u8, 0..100),
    ) {
        let mut world = World::new(to_send);
        for choice in steps.into_iter().chain(calm) {
            world.step(choice);
        }
        // Then nothing fails any more, and all comes to its end.
        for _ in 0..200 {
            for choice in 0..6 {
                world.step(choice);
            }
        }
        prop_assert!(world.is_done());
        prop_assert!(world.received.is_empty());
        prop_assert_eq!(world.receiver.got, (0..to_send).collect::<Vec<_>>());
    }
}
