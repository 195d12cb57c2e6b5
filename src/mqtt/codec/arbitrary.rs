//! Any packet of a version, for property tests: only what that version can say, so that it must survive a round trip.

use bytes::Bytes;
use bytestring::ByteString;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use super::v3_return_code;
use crate::mqtt::packet::*;
use crate::mqtt::{ReasonCode, UserProperties};

pub(super) fn packet(version: ProtocolVersion) -> BoxedStrategy<Packet> {
    let v5 = version.is_v5();
    let common = prop_oneof![
        connect(version).prop_map(|p| Packet::Connect(Box::new(p))),
        connack(version).prop_map(|p| Packet::Connack(Box::new(p))),
        publish(v5).prop_map(|p| Packet::Publish(Box::new(p))),
        ack(v5, PUBACK_CODES).prop_map(Packet::Puback),
        ack(v5, PUBACK_CODES).prop_map(Packet::Pubrec),
        ack(v5, PUBREL_CODES).prop_map(Packet::Pubrel),
        ack(v5, PUBREL_CODES).prop_map(Packet::Pubcomp),
        subscribe(v5).prop_map(|p| Packet::Subscribe(Box::new(p))),
        suback(v5).prop_map(|p| Packet::Suback(Box::new(p))),
        (packet_id(), user_properties(v5), vec(text(), 1..5)).prop_map(|(packet_id, user_properties, filters)| {
            Packet::Unsubscribe(Box::new(Unsubscribe { packet_id, user_properties, filters }))
        }),
        unsuback(v5).prop_map(|p| Packet::Unsuback(Box::new(p))),
        Just(Packet::Pingreq),
        Just(Packet::Pingresp),
        disconnect(v5).prop_map(|p| Packet::Disconnect(Box::new(p))),
    ];
    if v5 { prop_oneof![14 => common, 1 => auth().prop_map(|p| Packet::Auth(Box::new(p)))].boxed() } else { common.boxed() }
}

const PUBACK_CODES: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const PUBREL_CODES: &[u8] = &[0x00, 0x92];
const SUBACK_CODES: &[u8] = &[0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2];
const UNSUBACK_CODES: &[u8] = &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const CONNACK_CODES: &[u8] = &[
    0, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D,
    0x9F,
];
const DISCONNECT_CODES: &[u8] = &[
    0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9A,
    0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];

fn code(codes: &'static [u8]) -> impl Strategy<Value = ReasonCode> {
    select(codes).prop_map(|byte| ReasonCode::from_byte(byte).unwrap())
}

fn text() -> impl Strategy<Value = ByteString> {
    prop_oneof!["[a-zA-Z0-9/+#$]{0,12}", "[^\u{0}]{0,6}"].prop_map(ByteString::from)
}

fn topic() -> impl Strategy<Value = ByteString> {
    prop_oneof!["[a-z/$]{1,12}", "[^\u{0}+#]{1,6}"].prop_map(ByteString::from)
}

fn data() -> impl Strategy<Value = Bytes> {
    prop_oneof![4 => vec(any::<u8>(), 0..20), 1 => vec(any::<u8>(), 120..200)].prop_map(Bytes::from)
}

/// A property: in MQTT 5 there or not, in MQTT 3 not.
fn property<T: std::fmt::Debug + Clone + 'static>(
    v5: bool,
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    if v5 { of(value).boxed() } else { Just(None).boxed() }
}

fn user_properties(v5: bool) -> impl Strategy<Value = UserProperties> {
    vec((text(), text()), if v5 { 0..3 } else { 0..1 })
}

fn qos() -> impl Strategy<Value = QoS> {
    select(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][..])
}

fn packet_id() -> impl Strategy<Value = PacketId> {
    (1..=u16::MAX).prop_map(|id| PacketId::new(id).unwrap())
}

fn connect(version: ProtocolVersion) -> impl Strategy<Value = Connect> {
    let v5 = version.is_v5();
    let start = (any::<bool>(), any::<u16>(), text(), of(will(v5)), of(text()), of(data()), connect_properties(v5));
    start.prop_map(move |(clean_start, keep_alive, client_id, will, username, password, properties)| {
        let password = password.filter(|_| v5 || username.is_some());
        Connect { protocol: version, clean_start, keep_alive, client_id, will, username, password, properties }
    })
}

fn connect_properties(v5: bool) -> impl Strategy<Value = ConnectProperties> {
    let numbers = (
        property(v5, any::<u32>()),
        property(v5, 1..=u16::MAX),
        property(v5, 1..=u32::MAX),
        property(v5, any::<u16>()),
        property(v5, any::<bool>()),
        property(v5, any::<bool>()),
    );
    (numbers, user_properties(v5), property(v5, text()), property(v5, data())).prop_map(|(n, user_properties, method, data)| {
        ConnectProperties {
            session_expiry_interval: n.0,
            receive_maximum: n.1,
            maximum_packet_size: n.2,
            topic_alias_maximum: n.3,
            request_response_information: n.4,
            request_problem_information: n.5,
            user_properties,
            authentication_data: data.filter(|_| method.is_some()),
            authentication_method: method,
        }
    })
}

fn will(v5: bool) -> impl Strategy<Value = Will> {
    let properties = (
        property(v5, any::<u32>()),
        property(v5, any::<bool>()),
        property(v5, any::<u32>()),
        property(v5, text()),
        property(v5, topic()),
        property(v5, data()),
        user_properties(v5),
    );
    (topic(), data(), qos(), any::<bool>(), properties).prop_map(|(topic, payload, qos, retain, p)| Will {
        topic,
        payload,
        qos,
        retain,
        properties: WillProperties {
            will_delay_interval: p.0,
            payload_format_indicator: p.1,
            message_expiry_interval: p.2,
            content_type: p.3,
            response_topic: p.4,
            correlation_data: p.5,
            user_properties: p.6,
        },
    })
}

fn connack(version: ProtocolVersion) -> impl Strategy<Value = Connack> {
    let v5 = version.is_v5();
    let numbers = (
        property(v5, any::<u32>()),
        property(v5, 1..=u16::MAX),
        property(v5, select(&[QoS::AtMostOnce, QoS::AtLeastOnce][..])),
        property(v5, 1..=u32::MAX),
        property(v5, any::<u16>()),
        property(v5, any::<u16>()),
    );
    let flags =
        (property(v5, any::<bool>()), property(v5, any::<bool>()), property(v5, any::<bool>()), property(v5, any::<bool>()));
    let texts = (
        property(v5, text()),
        property(v5, text()),
        property(v5, text()),
        property(v5, text()),
        property(v5, text()),
        property(v5, data()),
    );
    let properties = (numbers, flags, texts, user_properties(v5)).prop_map(|(n, f, t, user_properties)| ConnackProperties {
        session_expiry_interval: n.0,
        receive_maximum: n.1,
        maximum_qos: n.2,
        retain_available: f.0,
        maximum_packet_size: n.3,
        assigned_client_identifier: t.0,
        topic_alias_maximum: n.4,
        reason_string: t.1,
        user_properties,
        wildcard_subscription_available: f.1,
        subscription_identifiers_available: f.2,
        shared_subscription_available: f.3,
        server_keep_alive: n.5,
        response_information: t.2,
        server_reference: t.3,
        authentication_method: t.4,
        authentication_data: t.5,
    });
    let codes = if v5 { CONNACK_CODES } else { &[0x00, 0x84, 0x85, 0x86, 0x87, 0x88][..] };
    (any::<bool>(), code(codes), properties).prop_map(move |(present, reason_code, properties)| {
        assert!(v5 || v3_return_code(reason_code).is_some());
        let session_present = present && !reason_code.is_error() && version != ProtocolVersion::V3_1;
        Connack { session_present, reason_code, properties }
    })
}

fn publish(v5: bool) -> impl Strategy<Value = Publish> {
    let properties = (
        property(v5, any::<bool>()),
        property(v5, any::<u32>()),
        property(v5, 1..=u16::MAX),
        property(v5, topic()),
        property(v5, data()),
        user_properties(v5),
        vec(1..=268_435_455u32, if v5 { 0..4 } else { 0..1 }),
        property(v5, text()),
    );
    (any::<(bool, bool, bool)>(), qos(), packet_id(), topic(), properties, data()).prop_map(
        |(flags, qos, id, topic, p, payload)| {
            let acknowledged = qos != QoS::AtMostOnce;
            Publish {
                dup: flags.0 && acknowledged,
                qos,
                retain: flags.1,
                topic: if flags.2 && p.2.is_some() { ByteString::new() } else { topic },
                packet_id: acknowledged.then_some(id),
                properties: PublishProperties {
                    payload_format_indicator: p.0,
                    message_expiry_interval: p.1,
                    topic_alias: p.2,
                    response_topic: p.3,
                    correlation_data: p.4,
                    user_properties: p.5,
                    subscription_identifiers: p.6.into_iter().collect(),
                    content_type: p.7,
                },
                payload,
            }
        },
    )
}

fn ack(v5: bool, codes: &'static [u8]) -> impl Strategy<Value = PublishAck> {
    let codes = if v5 { codes } else { &[0][..] };
    (packet_id(), code(codes), property(v5, text()), user_properties(v5)).prop_map(
        |(packet_id, reason_code, reason_string, user_properties)| PublishAck {
            packet_id,
            reason_code,
            reason_string,
            user_properties,
        },
    )
}

fn subscribe(v5: bool) -> impl Strategy<Value = Subscribe> {
    let handling = select(&[RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend][..]);
    let request = (text(), qos(), any::<(bool, bool)>(), handling).prop_map(move |(filter, qos, flags, handling)| {
        let options = SubscriptionOptions {
            qos,
            no_local: v5 && flags.0,
            retain_as_published: v5 && flags.1,
            retain_handling: if v5 { handling } else { RetainHandling::Send },
        };
        SubscriptionRequest { filter, options }
    });
    (packet_id(), property(v5, 1..=268_435_455u32), user_properties(v5), vec(request, 1..5)).prop_map(
        |(packet_id, subscription_identifier, user_properties, filters)| Subscribe {
            packet_id,
            subscription_identifier,
            user_properties,
            filters,
        },
    )
}

fn suback(v5: bool) -> impl Strategy<Value = Suback> {
    let codes = if v5 { SUBACK_CODES } else { &[0x00, 0x01, 0x02, 0x80][..] };
    (packet_id(), vec(code(codes), 1..5), property(v5, text()), user_properties(v5)).prop_map(
        |(packet_id, reason_codes, reason_string, user_properties)| Suback {
            packet_id,
            reason_codes,
            reason_string,
            user_properties,
        },
    )
}

fn unsuback(v5: bool) -> impl Strategy<Value = Unsuback> {
    let codes = vec(code(UNSUBACK_CODES), if v5 { 1..5 } else { 0..1 });
    (packet_id(), codes, property(v5, text()), user_properties(v5)).prop_map(
        |(packet_id, reason_codes, reason_string, user_properties)| Unsuback {
            packet_id,
            reason_codes,
            reason_string,
            user_properties,
        },
    )
}

fn disconnect(v5: bool) -> impl Strategy<Value = Disconnect> {
    let codes = if v5 { DISCONNECT_CODES } else { &[0][..] };
    let properties = (property(v5, any::<u32>()), property(v5, text()), user_properties(v5), property(v5, text()));
    (code(codes), properties).prop_map(|(reason_code, p)| Disconnect {
        reason_code,
        properties: DisconnectProperties {
            session_expiry_interval: p.0,
            reason_string: p.1,
            user_properties: p.2,
            server_reference: p.3,
        },
    })
}

fn auth() -> impl Strategy<Value = Auth> {
    let properties = (text(), of(data()), of(text()), user_properties(true));
    let full = (code(&[0x00, 0x18, 0x19]), properties).prop_map(|(reason_code, p)| Auth {
        reason_code,
        properties: AuthProperties {
            authentication_method: Some(p.0),
            authentication_data: p.1,
            reason_string: p.2,
            user_properties: p.3,
        },
    });
    prop_oneof![1 => Just(Auth { reason_code: ReasonCode::Success, properties: AuthProperties::default() }), 9 => full]
}
