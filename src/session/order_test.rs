//! What comes before its turn: packets behind a CONNECT that is being registered, messages behind a SUBSCRIBE that is not answered.

use super::Machine;
use super::effect::Registered;
use super::test_kit::*;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::{Packet, ReasonCode, Source};

fn registered(rig: &mut Rig) -> Vec<String> {
    briefs(&rig.register(Ok(Registered::default())))
}

fn sub(rig: &mut Rig, packet_id: u16) -> Vec<String> {
    briefs(&rig.packet(Packet::Subscribe(Box::new(subscribe(packet_id, &[("t", Q1)])))))
}

#[test]
fn packets_behind_connect_are_taken_in_order_after_connack() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V5));
    assert!(rig.publish(publish("a", Q1, 1)).is_empty());
    assert!(rig.publish(publish("b", Q0, 0)).is_empty());
    assert!(rig.packet(Packet::Pingreq).is_empty());
    assert_eq!(registered(&mut rig), ["CONNACK 00", "publish a as 1", "publish b as 2", "PINGRESP"]);
}

#[test]
fn a_client_that_says_all_at_once_and_leaves_is_served_whole() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V5));
    rig.publish(publish("a", Q0, 0));
    rig.packet(Packet::Disconnect(Box::new(disconnect(ReasonCode::Success, None))));
    assert!(rig.run(Machine::handle_closed).is_empty());
    assert!(!rig.machine.is_closed());
    assert_eq!(registered(&mut rig), ["CONNACK 00", "publish a as 1", "end CLIENT 0x00", "close"]);
}

#[test]
fn a_stream_lost_behind_connect_ends_after_the_registration() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V3));
    assert!(rig.run(Machine::handle_closed).is_empty());
    assert_eq!(registered(&mut rig), ["CONNACK 00", "end UNSPECIFIED - with will", "close"]);

    let mut rig = Rig::new(settings());
    rig.connect(connect(V3));
    rig.run(Machine::handle_closed);
    assert_eq!(briefs(&rig.register(Err(ReasonCode::NotAuthorized))), ["CONNACK 87", "close"]);
}

#[test]
fn broken_bytes_behind_connect_are_answered_after_connack() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V5));
    let effects = rig.run(|m, now, out| m.handle_decode_error(&DecodeError::Malformed("x"), None, now, out));
    assert!(effects.is_empty());
    let want: Vec<_> = ["CONNACK 00".to_owned()].into_iter().chain(ended_by_server(V5, ReasonCode::MalformedPacket)).collect();
    assert_eq!(registered(&mut rig), want);
}

#[test]
fn nothing_behind_a_packet_that_ends_the_connection_is_taken() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V5));
    rig.packet(Packet::Connect(Box::new(connect(V5))));
    rig.publish(publish("a", Q0, 0));
    let want: Vec<_> = ["CONNACK 00".to_owned()].into_iter().chain(ended_by_server(V5, ReasonCode::ProtocolError)).collect();
    assert_eq!(registered(&mut rig), want);
}

#[test]
fn a_caller_that_does_not_stop_is_stopped() {
    let mut rig = Rig::new(settings());
    rig.connect(connect(V5));
    for _ in 0..64 {
        assert!(rig.packet(Packet::Pingreq).is_empty());
    }
    assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["end SERVER 0x97 with will", "CONNACK 97", "close"]);
}

#[test]
fn a_message_behind_a_subscribe_is_routed_after_it_is_answered() {
    for version in VERSIONS {
        let mut rig = Rig::of(version);
        assert_eq!(sub(&mut rig, 1), ["subscribe t:1 as 1"]);
        assert_eq!(sub(&mut rig, 2), ["subscribe t:1 as 2"], "subscriptions do not wait for each other");
        assert!(rig.machine.wants_input());
        assert!(rig.publish(publish("t", Q1, 3)).is_empty());
        assert!(!rig.machine.wants_input());
        assert_eq!(rig.machine.next_timeout(), None);
        assert!(sub(&mut rig, 4).is_empty(), "but what is behind a waiting message waits");
        assert_eq!(briefs(&rig.packet(Packet::Pingreq)), ["PINGRESP"], "not a ping");
        assert_eq!(briefs(&rig.subscribed(1, &[ReasonCode::GrantedQoS1])), ["SUBACK 1 01"]);
        let effects = rig.subscribed(2, &[ReasonCode::GrantedQoS1]);
        assert_eq!(briefs(&effects), ["SUBACK 2 01", "publish t as 3", "subscribe t:1 as 4"]);
        assert!(rig.machine.wants_input());
        assert_eq!(briefs(&rig.published(3, ReasonCode::Success)), ["PUBACK 3 00"]);
    }
}

#[test]
fn a_message_behind_an_unsubscribe_waits_too() {
    let mut rig = Rig::of(V5);
    rig.packet(Packet::Unsubscribe(Box::new(unsubscribe(1, &["t"]))));
    assert!(rig.publish(publish("t", Q2, 3)).is_empty());
    assert!(rig.packet(pubrel(3)).is_empty());
    assert!(rig.packet(Packet::Disconnect(Box::new(disconnect(ReasonCode::Success, None)))).is_empty());
    let effects = rig.unsubscribed(1, &[true]);
    assert_eq!(briefs(&effects), ["UNSUBACK 1 00", "publish t as 2", "end CLIENT 0x00", "close"]);
}

#[test]
fn deliveries_go_on_while_messages_wait() {
    let mut rig = Rig::of(V5);
    assert!(rig.deliver(delivery(Q1, Source::Queue { seq: 1 })).0);
    assert!(rig.deliver(delivery(Q2, Source::Queue { seq: 2 })).0);
    sub(&mut rig, 1);
    rig.publish(publish("t", Q0, 0));
    assert_eq!(rig.packet(puback(1)).len(), 1);
    assert_eq!(rig.packet(pubrec(2)).len(), 1);
    assert_eq!(rig.run(|m, now, out| m.handle_acknowledged(&Source::Queue { seq: 2 }, now, out)).len(), 1);
    assert_eq!(rig.packet(pubcomp(2)).len(), 1);
    assert_eq!(rig.machine.send_quota(), 50);
}

#[test]
fn the_keep_alive_stands_still_while_nobody_listens() {
    let mut rig = Rig::of(V5);
    sub(&mut rig, 1);
    rig.publish(publish("t", Q0, 0));
    rig.advance(10_000_000);
    assert!(rig.run(Machine::handle_timeout).is_empty());
    rig.subscribed(1, &[ReasonCode::Success]);
    assert_eq!(rig.machine.next_timeout(), Some(rig.now.mono_ms + 90_001));
}
