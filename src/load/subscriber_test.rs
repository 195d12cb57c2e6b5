use super::*;
use crate::load::clock::Clock;
use crate::load::counters::{Counters, Totals};
use crate::load::stamp::{Message, Template};
use crate::mqtt::QoS;

fn thread() -> Thread {
    Thread::new(0, 1, 7, 0, 1000, Arc::new(Clock::new()), Arc::new(Counters::new()))
}

fn publish(qos: QoS, run: u32, stream: u32, sequence: u64, packet_id: u16) -> Vec<u8> {
    let mut out = Vec::new();
    let message = Message { packet_id, dup: false, topic: 1, stream, sequence, at_ns: 0 };
    Template::new(ProtocolVersion::V5, qos, false, "t", 24, run).append(&message, &mut out);
    out
}

fn subscriber() -> Subscriber {
    Subscriber::new(Ledger::Ordered { first: 3, tracks: vec![Track::default(); 2] }, 24, ProtocolVersion::V5)
}

fn handle(subscriber: &mut Subscriber, thread: &Thread, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    subscriber.handle(thread, codec::frame(packet, 1000).unwrap().unwrap(), packet, 5, &mut out).unwrap();
    subscriber.settle(thread, 5);
    out
}

fn received(thread: &Thread) -> u64 {
    Totals::of([&*thread.counters].into_iter()).received
}

#[test]
fn every_qos_is_acknowledged_as_it_must_be() {
    let (thread, mut subscriber) = (thread(), subscriber());
    assert!(handle(&mut subscriber, &thread, &publish(QoS::AtMostOnce, 7, 3, 0, 0)).is_empty());
    assert_eq!(handle(&mut subscriber, &thread, &publish(QoS::AtLeastOnce, 7, 3, 1, 513)), [0x40, 2, 2, 1]);
    assert_eq!(handle(&mut subscriber, &thread, &publish(QoS::ExactlyOnce, 7, 4, 0, 9)), [0x50, 2, 0, 9]);
    assert_eq!(handle(&mut subscriber, &thread, &[0x62, 2, 0, 9]), [0x70, 2, 0, 9]);
    assert_eq!(received(&thread), 3);
}

#[test]
fn a_qos_2_message_that_comes_again_before_its_pubrel_is_the_same() {
    let (thread, mut subscriber) = (thread(), subscriber());
    let packet = publish(QoS::ExactlyOnce, 7, 3, 0, 9);
    handle(&mut subscriber, &thread, &packet);
    assert_eq!(handle(&mut subscriber, &thread, &packet), [0x50, 2, 0, 9]);
    handle(&mut subscriber, &thread, &[0x62, 2, 0, 9]);
    handle(&mut subscriber, &thread, &packet);
    let Ledger::Ordered { tracks, .. } = &subscriber.ledger else { panic!() };
    assert_eq!((received(&thread), tracks[0].doubled), (1, 1));
}

#[test]
fn what_is_not_of_this_run_is_acknowledged_and_not_counted() {
    let (thread, mut subscriber) = (thread(), subscriber());
    for packet in
        [publish(QoS::AtLeastOnce, 8, 3, 0, 1), publish(QoS::AtLeastOnce, 7, 9, 0, 2), publish(QoS::AtLeastOnce, 7, 0, 0, 3)]
    {
        assert_eq!(handle(&mut subscriber, &thread, &packet).len(), 4);
    }
    assert_eq!((received(&thread), subscriber.foreign), (0, 3));
}

#[test]
fn a_refused_subscription_ends_it() {
    let (thread, mut subscriber) = (thread(), subscriber());
    let suback = [0x90, 4, 0, 1, 0, 0x87];
    let frame = codec::frame(&suback, 100).unwrap().unwrap();
    let error = subscriber.handle(&thread, frame, &suback, 0, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn publishers_that_wait_for_receipts_are_told() {
    let (thread, mut subscriber) = (thread(), subscriber());
    let gates: Arc<[Arc<Gate>]> = (0..5).map(|_| Arc::new(Gate::default())).collect();
    subscriber.waiting = Some((0, Arc::clone(&gates)));
    handle(&mut subscriber, &thread, &publish(QoS::AtMostOnce, 7, 3, 0, 0));
    handle(&mut subscriber, &thread, &publish(QoS::AtMostOnce, 7, 3, 0, 0));
    assert_eq!(gates.iter().map(|gate| gate.received()).collect::<Vec<_>>(), [0, 0, 0, 1, 0]);
}
