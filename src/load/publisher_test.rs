use std::rc::Rc;

use super::*;
use crate::load::clock::Clock;
use crate::load::counters::Counters;
use crate::load::stamp::read;
use crate::load::thread::Phase;
use crate::mqtt::ProtocolVersion;
use crate::mqtt::codec;

fn thread() -> Rc<Thread> {
    let thread = Thread::new(0, 1, 7, 0, 1000, Arc::new(Clock::new()), Arc::new(Counters::new()));
    thread.enter(Phase::Going);
    Rc::new(thread)
}

fn publisher(qos: QoS, window: u16) -> Publisher {
    let template = Template::new(ProtocolVersion::V5, qos, false, "t", 24, 7);
    Publisher::new(qos, Numbering::One { stream: 3, topic: 3 }, template, window, Arc::new(Gate::default()))
}

/// Sequence numbers and DUP flags of what was sent; PUBRELs as `None`.
fn sent(out: &mut Vec<u8>) -> Vec<Option<(u64, bool)>> {
    let (bytes, mut at, mut all) = (std::mem::take(out), 0, Vec::new());
    while let Some(frame) = codec::frame(&bytes[at..], 1000).unwrap() {
        let packet = &bytes[at..at + frame.total_len()];
        let publish = frame.first_byte >> 4 == 3;
        all.push(publish.then(|| (read(frame, packet, 24).unwrap().1.unwrap().sequence, frame.first_byte & 8 != 0)));
        at += frame.total_len();
    }
    all
}

fn handle(publisher: &mut Publisher, thread: &Thread, packet: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    publisher.handle(thread, codec::frame(packet, 100).unwrap().unwrap(), packet, 50, out)?;
    publisher.settle(thread, 50);
    Ok(())
}

fn report(publisher: &Publisher) -> Sent {
    let mut streams = HashMap::new();
    publisher.report(&mut streams);
    streams.remove(&3).unwrap()
}

#[test]
fn the_closed_loop_sends_on_as_acknowledgements_come() {
    let (thread, mut out) = (thread(), Vec::new());
    let mut publisher = publisher(QoS::AtLeastOnce, 2);
    publisher.produce(&thread, 10, &mut out);
    assert_eq!(sent(&mut out), [Some((0, false)), Some((1, false))]);
    publisher.produce(&thread, 11, &mut out);
    assert!(out.is_empty());
    handle(&mut publisher, &thread, &[0x40, 2, 0, 2], &mut out).unwrap();
    publisher.produce(&thread, 12, &mut out);
    assert_eq!(sent(&mut out), [Some((2, false))]);
    // Refused, and not acknowledged: nobody promised anything.
    handle(&mut publisher, &thread, &[0x40, 3, 0, 1, 0x97], &mut out).unwrap();
    assert_eq!(report(&publisher), Sent { count: 3, uncertain: [0, 2].into() });
    assert!(handle(&mut publisher, &thread, &[0x40, 2, 0, 1], &mut out).is_err());
    let totals = crate::load::counters::Totals::of([&*thread.counters].into_iter());
    assert_eq!((totals.sent, totals.acked, totals.refused), (3, 1, 1));
}

#[test]
fn qos_2_is_certain_with_pubrec_and_ends_with_pubcomp() {
    let (thread, mut out) = (thread(), Vec::new());
    let mut publisher = publisher(QoS::ExactlyOnce, 2);
    publisher.produce(&thread, 10, &mut out);
    sent(&mut out);
    handle(&mut publisher, &thread, &[0x50, 2, 0, 1], &mut out).unwrap();
    assert_eq!(out, [0x62, 2, 0, 1]);
    assert_eq!(report(&publisher).uncertain, [1].into());
    out.clear();
    // A new connection of the same session hears again what is open, in order.
    publisher.resume(true, 100);
    publisher.produce(&thread, 12, &mut out);
    assert_eq!(sent(&mut out), [None, Some((1, true))]);
    handle(&mut publisher, &thread, &[0x70, 2, 0, 1], &mut out).unwrap();
    publisher.produce(&thread, 13, &mut out);
    assert_eq!(sent(&mut out), [Some((2, false))]);
    assert_eq!(publisher.sessions_lost, 0);
    publisher.resume(false, 100);
    assert_eq!(publisher.sessions_lost, 1);
}

#[test]
fn the_open_loop_sends_what_is_due_with_the_time_it_was_due() {
    let (thread, mut out) = (thread(), Vec::new());
    let mut publisher = publisher(QoS::AtMostOnce, 1);
    publisher.schedule = Some(Schedule { start_ns: 0, first_ns: 0.0, interval_ns: 100.0 });
    publisher.produce(&thread, 250, &mut out);
    let first = codec::frame(&out, 1000).unwrap().unwrap();
    let packet = &out[first.total_len()..2 * first.total_len()];
    assert_eq!(read(first, packet, 24).unwrap().1.unwrap().at_ns, 100);
    assert_eq!(sent(&mut out).len(), 3);
    publisher.produce(&thread, 299, &mut out);
    assert!(out.is_empty());
    thread.enter(Phase::Stopping);
    publisher.produce(&thread, 1000, &mut out);
    assert!(out.is_empty());
}

#[test]
fn qos_0_in_the_closed_loop_waits_for_all_receivers_and_writes_off_what_does_not_come() {
    let (thread, mut out) = (thread(), Vec::new());
    let mut publisher = publisher(QoS::AtMostOnce, 2);
    publisher.copies = 3;
    publisher.produce(&thread, 1, &mut out);
    assert_eq!(sent(&mut out).len(), 2);
    (0..2).for_each(|_| publisher.gate.add_received());
    publisher.produce(&thread, 2, &mut out);
    assert!(out.is_empty());
    publisher.gate.add_received();
    publisher.produce(&thread, 3, &mut out);
    assert_eq!(sent(&mut out).len(), 1);
    (0..3).for_each(|_| publisher.gate.beat(0));
    publisher.produce(&thread, 4, &mut out);
    assert_eq!(sent(&mut out).len(), 2);
}
