//! Planted histories: for each rule one that breaks it, beside one that is all right.

use std::sync::Arc;

use bytes::Bytes;
use troupemq::mqtt::packet::{Connack, ConnackProperties, Disconnect, DisconnectProperties, Publish, PublishAck, Suback};
use troupemq::mqtt::packet::{RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest};
use troupemq::mqtt::{Packet, QoS, ReasonCode};

use super::{ATTEMPT, Rule, Setting, judge};
use crate::faults::history::{Record, What};
use crate::harness::client::{Options, publish};

const SETTING: Setting = Setting { watcher: Some("w"), stale_connection_ms: 1_000 };

/// A history that is being made up.
#[derive(Default, Clone)]
struct Story {
    records: Vec<Record>,
    now_ms: u64,
}

impl Story {
    fn add(mut self, client: &str, connection: u32, what: What) -> Self {
        self.now_ms += 10;
        self.records.push(Record { at_ms: self.now_ms, client: Arc::from(client), connection, what });
        self
    }

    fn later(mut self, ms: u64) -> Self {
        self.now_ms += ms;
        self
    }

    fn sent(self, client: &str, connection: u32, packet: Packet) -> Self {
        self.add(client, connection, What::Sent(packet))
    }

    fn got(self, client: &str, connection: u32, packet: Packet) -> Self {
        self.add(client, connection, What::Received(packet))
    }

    fn dropped(self, client: &str, connection: u32) -> Self {
        self.add(client, connection, What::Dropped)
    }

    fn connected_as(self, options: &Options, connection: u32, present: bool) -> Self {
        let id = options.client_id().to_owned();
        self.sent(&id, connection, options.packet()).got(&id, connection, connack(present, ReasonCode::Success))
    }

    fn connected(self, client: &str, connection: u32, present: bool) -> Self {
        self.connected_as(&Options::v5(client).persistent(), connection, present)
    }

    /// A connection of a session that lasts, with a subscription.
    fn subscribed(self, client: &str, connection: u32, filter: &str, qos: QoS) -> Self {
        let options =
            SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send };
        let filters = vec![SubscriptionRequest { filter: filter.into(), options }];
        let subscribe = Subscribe { packet_id: id(9), subscription_identifier: None, user_properties: Vec::new(), filters };
        let code = if qos == QoS::ExactlyOnce { ReasonCode::GrantedQoS2 } else { ReasonCode::GrantedQoS1 };
        let suback = Suback { packet_id: id(9), reason_codes: vec![code], reason_string: None, user_properties: Vec::new() };
        self.connected(client, connection, false).sent(client, connection, Packet::Subscribe(Box::new(subscribe))).got(
            client,
            connection,
            Packet::Suback(Box::new(suback)),
        )
    }

    /// QoS 1, acknowledged.
    fn published(self, client: &str, connection: u32, payload: &str, packet_id: u16) -> Self {
        self.sent(client, connection, message(payload, QoS::AtLeastOnce, packet_id, false)).got(
            client,
            connection,
            puback(packet_id),
        )
    }

    /// QoS 2, completed.
    fn published_2(self, client: &str, connection: u32, payload: &str, packet_id: u16) -> Self {
        self.sent(client, connection, message(payload, QoS::ExactlyOnce, packet_id, false))
            .got(client, connection, pubrec(packet_id))
            .sent(client, connection, pubrel(packet_id))
            .got(client, connection, Packet::Pubcomp(ack(packet_id)))
    }

    /// QoS 1, acknowledged by the receiver.
    fn delivered(self, client: &str, connection: u32, payload: &str, packet_id: u16) -> Self {
        self.got(client, connection, message(payload, QoS::AtLeastOnce, packet_id, false)).sent(
            client,
            connection,
            puback(packet_id),
        )
    }

    /// QoS 2, completed.
    fn delivered_2(self, client: &str, connection: u32, payload: &str, packet_id: u16) -> Self {
        self.got(client, connection, message(payload, QoS::ExactlyOnce, packet_id, false))
            .sent(client, connection, pubrec(packet_id))
            .got(client, connection, pubrel(packet_id))
            .sent(client, connection, Packet::Pubcomp(ack(packet_id)))
    }

    fn rules(&self) -> Vec<Rule> {
        judge(&self.records, &SETTING).into_iter().map(|fault| fault.rule).collect()
    }

    #[track_caller]
    fn is_right(&self) {
        assert_eq!(judge(&self.records, &SETTING), []);
    }

    #[track_caller]
    fn breaks(&self, rule: Rule) {
        assert_eq!(self.rules(), [rule]);
    }
}

fn id(number: u16) -> troupemq::mqtt::packet::PacketId {
    number.try_into().expect("not 0")
}

fn ack(packet_id: u16) -> PublishAck {
    PublishAck::new(id(packet_id), ReasonCode::Success)
}

fn puback(packet_id: u16) -> Packet {
    Packet::Puback(ack(packet_id))
}

fn pubrec(packet_id: u16) -> Packet {
    Packet::Pubrec(ack(packet_id))
}

fn pubrel(packet_id: u16) -> Packet {
    Packet::Pubrel(ack(packet_id))
}

fn message(payload: &str, qos: QoS, packet_id: u16, dup: bool) -> Packet {
    let packet_id = (qos != QoS::AtMostOnce).then(|| id(packet_id));
    Packet::Publish(Box::new(Publish { packet_id, dup, ..publish("t", payload.as_bytes(), qos) }))
}

fn connack(session_present: bool, reason_code: ReasonCode) -> Packet {
    Packet::Connack(Box::new(Connack { session_present, reason_code, properties: ConnackProperties::default() }))
}

fn goodbye() -> Packet {
    Packet::Disconnect(Box::new(Disconnect { reason_code: ReasonCode::Success, properties: DisconnectProperties::default() }))
}

/// A publisher and a subscriber.
fn pair(qos: QoS) -> Story {
    Story::default().subscribed("s", 1, "t", qos).connected("p", 2, false)
}

#[test]
fn what_was_acknowledged_and_has_not_come_is_lost() {
    pair(QoS::AtLeastOnce).published("p", 2, "p/0", 1).delivered("s", 1, "p/0", 1).is_right();
    pair(QoS::AtLeastOnce).published("p", 2, "p/0", 1).breaks(Rule::Lost);
    let unacknowledged = pair(QoS::AtLeastOnce).sent("p", 2, message("p/0", QoS::AtLeastOnce, 1, false));
    unacknowledged.is_right();
    // PUBREC is the acknowledgement of QoS 2.
    pair(QoS::ExactlyOnce).sent("p", 2, message("p/0", QoS::ExactlyOnce, 1, false)).got("p", 2, pubrec(1)).breaks(Rule::Lost);
    // Not covered by the subscription: published before it.
    Story::default().connected("p", 2, false).published("p", 2, "p/0", 1).subscribed("s", 1, "t", QoS::AtLeastOnce).is_right();
}

#[test]
fn a_group_loses_what_comes_to_none_of_its_members_and_gets_qos_2_once() {
    let group = |qos| {
        Story::default().subscribed("a", 1, "$share/g/t", qos).subscribed("b", 2, "$share/g/t", qos).connected("p", 3, false)
    };
    group(QoS::AtLeastOnce).published("p", 3, "p/0", 1).delivered("b", 2, "p/0", 1).is_right();
    group(QoS::AtLeastOnce).published("p", 3, "p/0", 1).breaks(Rule::Lost);
    let once = group(QoS::ExactlyOnce).published_2("p", 3, "p/0", 1).delivered_2("a", 1, "p/0", 1);
    once.is_right();
    once.delivered_2("b", 2, "p/0", 1).breaks(Rule::Twice);
}

#[test]
fn what_comes_more_often_than_it_was_sent_comes_twice() {
    let once = pair(QoS::ExactlyOnce).published_2("p", 2, "p/0", 1).delivered_2("s", 1, "p/0", 1);
    once.is_right();
    once.delivered_2("s", 1, "p/0", 2).breaks(Rule::Twice);
    // Again under the same identifier before PUBREL: the same message.
    let again = pair(QoS::ExactlyOnce)
        .published_2("p", 2, "p/0", 1)
        .got("s", 1, message("p/0", QoS::ExactlyOnce, 1, false))
        .dropped("s", 1)
        .connected("s", 3, true)
        .got("s", 3, message("p/0", QoS::ExactlyOnce, 1, true));
    again.is_right();
    // With QoS 1, as often as its publisher sent it.
    let sent_twice = pair(QoS::AtLeastOnce)
        .sent("p", 2, message("p/0", QoS::AtLeastOnce, 1, false))
        .dropped("p", 2)
        .connected("p", 3, true)
        .sent("p", 3, message("p/0", QoS::AtLeastOnce, 1, true))
        .got("p", 3, puback(1))
        .delivered("s", 1, "p/0", 1)
        .delivered("s", 1, "p/0", 2);
    sent_twice.is_right();
    sent_twice.delivered("s", 1, "p/0", 3).breaks(Rule::Twice);
}

#[test]
fn first_appearances_have_an_order_and_repetitions_have_none() {
    let two = pair(QoS::AtLeastOnce).published("p", 2, "p/0", 1).published("p", 2, "p/1", 2);
    two.clone().delivered("s", 1, "p/0", 1).delivered("s", 1, "p/1", 2).is_right();
    two.clone().delivered("s", 1, "p/1", 2).delivered("s", 1, "p/0", 1).breaks(Rule::Order);
    let repeated = two.delivered("s", 1, "p/0", 1).delivered("s", 1, "p/1", 2).dropped("s", 1).connected("s", 3, true).got(
        "s",
        3,
        message("p/0", QoS::AtLeastOnce, 1, true),
    );
    repeated.is_right();
}

#[test]
fn acknowledgements_come_in_the_order_of_their_messages() {
    let sent = Story::default().connected("p", 1, false).sent("p", 1, message("p/0", QoS::AtLeastOnce, 1, false)).sent(
        "p",
        1,
        message("p/1", QoS::AtLeastOnce, 2, false),
    );
    sent.clone().got("p", 1, puback(1)).got("p", 1, puback(2)).is_right();
    sent.got("p", 1, puback(2)).breaks(Rule::Order);
}

#[test]
fn an_identifier_is_not_used_again_while_it_is_open() {
    let open = pair(QoS::AtLeastOnce).published("p", 2, "p/0", 1).published("p", 2, "p/1", 2).got(
        "s",
        1,
        message("p/0", QoS::AtLeastOnce, 1, false),
    );
    open.clone().delivered("s", 1, "p/1", 2).is_right();
    open.clone().got("s", 1, message("p/1", QoS::AtLeastOnce, 1, false)).breaks(Rule::PacketIdentifier);
    // Also on the next connection of the session.
    let next = open.dropped("s", 1).connected("s", 3, true);
    next.clone().got("s", 3, message("p/0", QoS::AtLeastOnce, 1, true)).delivered("s", 3, "p/1", 2).is_right();
    next.got("s", 3, message("p/1", QoS::AtLeastOnce, 1, true)).breaks(Rule::PacketIdentifier);
}

#[test]
fn answers_have_questions() {
    let connected = Story::default().connected("p", 1, false);
    connected.clone().got("p", 1, puback(7)).breaks(Rule::PacketIdentifier);
    connected.clone().got("p", 1, pubrel(7)).breaks(Rule::PacketIdentifier);
    connected.published("p", 1, "p/0", 7).got("p", 1, puback(7)).breaks(Rule::PacketIdentifier);
}

#[test]
fn dup_is_said_where_a_message_was_sent_before_and_only_there() {
    let open = pair(QoS::AtLeastOnce).published("p", 2, "p/0", 1);
    open.clone().got("s", 1, message("p/0", QoS::AtLeastOnce, 1, true)).breaks(Rule::Dup);
    let next = open.got("s", 1, message("p/0", QoS::AtLeastOnce, 1, false)).dropped("s", 1).connected("s", 3, true);
    next.clone().got("s", 3, message("p/0", QoS::AtLeastOnce, 1, true)).is_right();
    assert!(next.got("s", 3, message("p/0", QoS::AtLeastOnce, 1, false)).rules().contains(&Rule::Dup));
    Story::default().connected("s", 1, false).got("s", 1, message("x", QoS::AtMostOnce, 0, true)).breaks(Rule::Dup);
}

#[test]
fn session_present_says_what_there_is() {
    let once = Story::default().connected("c", 1, false).dropped("c", 1);
    once.clone().connected("c", 2, true).is_right();
    once.clone().connected("c", 2, false).breaks(Rule::SessionPresent);
    Story::default().connected("c", 1, true).breaks(Rule::SessionPresent);
    let clean = Options::v5("c");
    once.connected_as(&clean, 2, true).breaks(Rule::SessionPresent);
    // A CONNECT without an answer may have made a session.
    let unknown = Story::default().sent("c", 1, Options::v5("c").persistent().packet()).dropped("c", 1);
    unknown.clone().connected("c", 2, true).is_right();
    unknown.connected("c", 2, false).is_right();
    // After its expiry there is none, whenever its end was noticed.
    let short = Options::v5("c").persistent().expiry(5);
    let expired = Story::default().connected_as(&short, 1, false).dropped("c", 1);
    expired.clone().later(60_000).connected_as(&short, 2, true).breaks(Rule::SessionPresent);
    expired.clone().later(60_000).connected_as(&short, 2, false).is_right();
    expired.later(1_000).connected_as(&short, 2, false).breaks(Rule::SessionPresent);
}

#[test]
fn a_connection_taken_over_is_served_no_more() {
    let over = Story::default().connected("c", 1, false).connected("c", 2, true);
    let asks = |story: Story, after_ms| story.later(after_ms).sent("c", 1, Packet::Pingreq);
    let early = asks(over.clone(), 500);
    early.clone().got("c", 1, Packet::Pingresp).is_right();
    early.clone().later(5_000).got("c", 1, Packet::Pingresp).is_right();
    let late = asks(early, 1_000);
    late.clone().got("c", 1, Packet::Pingresp).is_right();
    late.got("c", 1, Packet::Pingresp).got("c", 1, Packet::Pingresp).breaks(Rule::OneConnection);
    asks(over.clone(), 1_500).got("c", 1, Packet::Pingresp).breaks(Rule::OneConnection);
    let comes =
        |after_ms| over.clone().later(after_ms).got("c", 1, Packet::Publish(Box::new(publish("t", b"", QoS::AtMostOnce))));
    comes(9_000).is_right();
    comes(12_000).breaks(Rule::OneConnection);
}

/// An event as the watcher reads it.
fn event(client: &str, attempt: Option<u32>, packet_id: u16) -> Packet {
    let kind = if attempt.is_some() { "CONNECTED" } else { "DISCONNECTED" };
    let json = format!(r#"{{"Event type":"{kind}","Client ID":"{client}","number":{packet_id}}}"#);
    let mut message = publish(&format!("$client-events/all/client-id/{client}"), json.as_bytes(), QoS::ExactlyOnce);
    message.packet_id = Some(id(packet_id));
    if let Some(attempt) = attempt {
        message.properties.user_properties.push((ATTEMPT.into(), attempt.to_string().as_str().into()));
    }
    Packet::Publish(Box::new(message))
}

fn numbered(attempt: u32) -> Options {
    Options::v5("c").user_property(ATTEMPT, &attempt.to_string())
}

#[test]
fn every_connection_is_told_once_and_in_turn() {
    let lived = Story::default()
        .connected("w", 1, false)
        .connected_as(&numbered(0), 2, false)
        .dropped("c", 2)
        .connected_as(&numbered(1), 3, false)
        .dropped("c", 3);
    let tell = |attempts: &[Option<u32>]| {
        let told = attempts.iter().enumerate();
        told.fold(lived.clone(), |story, (number, attempt)| story.got("w", 1, event("c", *attempt, number as u16 + 1)))
    };
    tell(&[Some(0), None, Some(1), None]).is_right();
    tell(&[Some(0), None, Some(1)]).breaks(Rule::LifecycleMissing);
    tell(&[Some(0), None]).breaks(Rule::LifecycleMissing);
    tell(&[Some(1), None]).breaks(Rule::Lifecycle);
    tell(&[Some(1), None, Some(0), None]).breaks(Rule::Lifecycle);
    tell(&[Some(0), Some(1), None]).breaks(Rule::Lifecycle);
    tell(&[Some(0), None, None, Some(1)]).breaks(Rule::Lifecycle);
    tell(&[Some(0), None, Some(1), None, Some(1), None]).breaks(Rule::Lifecycle);
    // One that was given up may be told at any time, once; an event that was sent again is not told again.
    let abandoned =
        lived.clone().sent("c", 4, numbered(2).packet()).dropped("c", 4).connected_as(&numbered(3), 5, false).dropped("c", 5);
    let tell = |attempts: &[Option<u32>]| {
        let told = attempts.iter().enumerate();
        told.fold(abandoned.clone(), |story, (number, attempt)| story.got("w", 1, event("c", *attempt, number as u16 + 1)))
    };
    tell(&[Some(0), None, Some(1), None, Some(3), None]).is_right();
    tell(&[Some(0), None, Some(1), None, Some(3), None, Some(2), None]).is_right();
    tell(&[Some(0), None, Some(1), None, Some(2), None, Some(3), None, Some(2), None]).breaks(Rule::Lifecycle);
}

#[test]
fn a_will_comes_once_where_the_connection_did_not_end_with_disconnect() {
    let options = Options::v5("c").will("wills/c", "will c/0", 0);
    let will = |packet_id| {
        let message = Publish { packet_id: Some(id(packet_id)), ..publish("wills/c", b"will c/0", QoS::ExactlyOnce) };
        Packet::Publish(Box::new(Publish { payload: Bytes::from_static(b"will c/0"), ..message }))
    };
    let lived = Story::default().connected("w", 1, false).connected_as(&options, 2, false);
    let cut = lived.clone().dropped("c", 2);
    cut.clone().got("w", 1, will(1)).is_right();
    cut.breaks(Rule::WillMissing);
    cut.got("w", 1, will(1)).got("w", 1, will(2)).breaks(Rule::Will);
    let ended = lived.clone().sent("c", 2, goodbye());
    ended.is_right();
    ended.clone().got("w", 1, will(1)).breaks(Rule::Will);
    // Where the node is lost at that moment, both are right.
    ended.add("", 0, What::Fault("kill".to_owned())).got("w", 1, will(1)).is_right();
    lived.is_right();
}
