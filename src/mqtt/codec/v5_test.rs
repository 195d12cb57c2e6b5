//! Byte tables for MQTT 5.

use bytes::Bytes;

use super::v3_test::{check, class, packet, read};
use super::*;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::{Disconnect, PublishAck, RetainHandling};
use crate::mqtt::property::id;
use ProtocolVersion::V5;

/// A packet around one property list; the list stands between `before` and `after`.
struct Frame5 {
    name: &'static str,
    first_byte: u8,
    before: &'static [u8],
    after: &'static [u8],
    allowed: &'static [u8],
}

const PROPERTY_FRAMES: &[Frame5] = &[
    Frame5 {
        name: "CONNECT",
        first_byte: 0x10,
        before: b"\0\x04MQTT\x05\x02\0\x3c",
        after: b"\0\0",
        allowed: &[0x11, 0x15, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27],
    },
    Frame5 {
        name: "Will",
        first_byte: 0x10,
        before: b"\0\x04MQTT\x05\x06\0\x3c\0\0\0",
        after: b"\0\x01w\0\0",
        allowed: &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26],
    },
    Frame5 {
        name: "CONNACK",
        first_byte: 0x20,
        before: b"\0\0",
        after: b"",
        allowed: &[0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A],
    },
    Frame5 {
        name: "PUBLISH",
        first_byte: 0x30,
        before: b"\0\x01t",
        after: b"x",
        allowed: &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26],
    },
    Frame5 { name: "PUBACK", first_byte: 0x40, before: b"\0\x01\0", after: b"", allowed: &[0x1F, 0x26] },
    Frame5 { name: "PUBREC", first_byte: 0x50, before: b"\0\x01\0", after: b"", allowed: &[0x1F, 0x26] },
    Frame5 { name: "PUBREL", first_byte: 0x62, before: b"\0\x01\0", after: b"", allowed: &[0x1F, 0x26] },
    Frame5 { name: "PUBCOMP", first_byte: 0x70, before: b"\0\x01\0", after: b"", allowed: &[0x1F, 0x26] },
    Frame5 { name: "SUBSCRIBE", first_byte: 0x82, before: b"\0\x01", after: b"\0\x01a\0", allowed: &[0x0B, 0x26] },
    Frame5 { name: "SUBACK", first_byte: 0x90, before: b"\0\x01", after: b"\0", allowed: &[0x1F, 0x26] },
    Frame5 { name: "UNSUBSCRIBE", first_byte: 0xA2, before: b"\0\x01", after: b"\0\x01a", allowed: &[0x26] },
    Frame5 { name: "UNSUBACK", first_byte: 0xB0, before: b"\0\x01", after: b"\0", allowed: &[0x1F, 0x26] },
    Frame5 { name: "DISCONNECT", first_byte: 0xE0, before: b"\0", after: b"", allowed: &[0x11, 0x1C, 0x1F, 0x26] },
];

/// A legal property of each kind.
fn property(id: u8) -> &'static [u8] {
    match id {
        id::PAYLOAD_FORMAT_INDICATOR => b"\x01\x01",
        id::MESSAGE_EXPIRY_INTERVAL => b"\x02\0\0\0\x01",
        id::CONTENT_TYPE => b"\x03\0\x01a",
        id::RESPONSE_TOPIC => b"\x08\0\x01a",
        id::CORRELATION_DATA => b"\x09\0\x01a",
        id::SUBSCRIPTION_IDENTIFIER => b"\x0B\x80\x01",
        id::SESSION_EXPIRY_INTERVAL => b"\x11\0\0\0\0",
        id::ASSIGNED_CLIENT_IDENTIFIER => b"\x12\0\x01a",
        id::SERVER_KEEP_ALIVE => b"\x13\0\0",
        id::AUTHENTICATION_METHOD => b"\x15\0\x01a",
        id::AUTHENTICATION_DATA => b"\x16\0\x01a",
        id::REQUEST_PROBLEM_INFORMATION => b"\x17\0",
        id::WILL_DELAY_INTERVAL => b"\x18\0\0\0\x05",
        id::REQUEST_RESPONSE_INFORMATION => b"\x19\x01",
        id::RESPONSE_INFORMATION => b"\x1A\0\x01a",
        id::SERVER_REFERENCE => b"\x1C\0\x01a",
        id::REASON_STRING => b"\x1F\0\x01a",
        id::RECEIVE_MAXIMUM => b"\x21\0\x01",
        id::TOPIC_ALIAS_MAXIMUM => b"\x22\0\0",
        id::TOPIC_ALIAS => b"\x23\0\x01",
        id::MAXIMUM_QOS => b"\x24\x01",
        id::RETAIN_AVAILABLE => b"\x25\0",
        id::USER_PROPERTY => b"\x26\0\x01a\0\x01b",
        id::MAXIMUM_PACKET_SIZE => b"\x27\0\0\0\x01",
        id::WILDCARD_SUBSCRIPTION_AVAILABLE => b"\x28\x01",
        id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE => b"\x29\x01",
        id::SHARED_SUBSCRIPTION_AVAILABLE => b"\x2A\x01",
        _ => b"",
    }
}

fn with_properties(frame: &Frame5, properties: &[u8]) -> Bytes {
    let len = u8::try_from(properties.len()).unwrap();
    packet(frame.first_byte, &[frame.before, &[len], properties, frame.after].concat())
}

#[test]
fn each_packet_takes_its_own_properties_and_no_others() {
    for frame in PROPERTY_FRAMES {
        for id in 0..=0x7F {
            let value = property(id);
            let bytes = if value.is_empty() { vec![id, 0] } else { value.to_vec() };
            let result = read(&with_properties(frame, &bytes), Some(V5));
            let expected = if frame.allowed.contains(&id) {
                "ok"
            } else if frame.name == "CONNECT" && id == id::AUTHENTICATION_DATA {
                // Allowed, but not without its method.
                "protocol"
            } else {
                "malformed"
            };
            assert_eq!(class(&result), expected, "{} {id:#x}: {result:?}", frame.name);
        }
    }
}

#[test]
fn a_property_given_twice_is_a_protocol_error_unless_it_may_repeat() {
    for frame in PROPERTY_FRAMES {
        for &id in frame.allowed {
            let twice = [property(id), property(id)].concat();
            let may_repeat = id == id::USER_PROPERTY || (id == id::SUBSCRIPTION_IDENTIFIER && frame.name == "PUBLISH");
            let result = read(&with_properties(frame, &twice), Some(V5));
            assert_eq!(class(&result), if may_repeat { "ok" } else { "protocol" }, "{} {id:#x}", frame.name);
        }
    }
}

#[test]
fn a_property_cut_short_is_malformed() {
    for frame in PROPERTY_FRAMES {
        for &id in frame.allowed {
            for len in 1..property(id).len() {
                let result = read(&with_properties(frame, &property(id)[..len]), Some(V5));
                assert_eq!(class(&result), "malformed", "{} {id:#x} {len}", frame.name);
            }
        }
    }
}

#[test]
fn values_out_of_range_are_protocol_errors() {
    let table: [(&str, &[u8], &str); 20] = [
        ("CONNECT", b"\x21\0\0", "protocol"),
        ("CONNECT", b"\x27\0\0\0\0", "protocol"),
        ("CONNECT", b"\x17\x02", "protocol"),
        ("CONNECT", b"\x19\x02", "protocol"),
        ("CONNECT", b"\x15\0\x01a\x16\0\0", "ok"),
        ("CONNACK", b"\x21\0\0", "protocol"),
        ("CONNACK", b"\x24\x02", "protocol"),
        ("CONNACK", b"\x25\x02", "protocol"),
        ("PUBLISH", b"\x01\x02", "protocol"),
        ("PUBLISH", b"\x23\0\0", "protocol"),
        ("PUBLISH", b"\x0B\0", "protocol"),
        ("PUBLISH", b"\x08\0\x01+", "topic name"),
        ("PUBLISH", b"\x08\0\0", "topic name"),
        ("Will", b"\x08\0\x03a/#", "topic name"),
        ("SUBSCRIBE", b"\x0B\0", "protocol"),
        ("SUBSCRIBE", b"\x0B\xFF\xFF\xFF\x7F", "ok"),
        ("SUBSCRIBE", b"\x0B\xFF\xFF\xFF\xFF\x01", "malformed"),
        ("SUBSCRIBE", b"\x0B\x81\0", "malformed"),
        ("PUBLISH", b"\x26\0\x01\0\0\x01b", "malformed"),
        ("PUBLISH", b"\x26\0\x01a\0\x02\xC3\x28", "malformed"),
    ];
    for (name, properties, expected) in table {
        let frame = PROPERTY_FRAMES.iter().find(|frame| frame.name == name).unwrap();
        let result = read(&with_properties(frame, properties), Some(V5));
        assert_eq!(class(&result), expected, "{name} {properties:x?}: {result:?}");
    }
}

#[test]
fn user_properties_above_5_mib_are_too_large() {
    let one = [b"\x26\xFF\xFF", "n".repeat(65_535).as_bytes(), b"\0\0"].concat();
    for (count, expected) in [(79, None), (80, Some(ReasonCode::PacketTooLarge))] {
        let mut body = BytesMut::from(&b"\0\x01t"[..]);
        body.var_int(u32::try_from(one.len() * count).unwrap());
        body.extend_from_slice(&one.repeat(count));
        let result = read(&packet(0x30, &body), Some(V5));
        assert_eq!(result.err().and_then(|error| error.reason_code()), expected);
    }
}

#[test]
fn connect_is_checked() {
    let with = |flags: u8, rest: &[u8]| [b"\0\x04MQTT\x05", &[flags, 0, 60][..], rest].concat();
    check(
        None,
        &[
            ("least", "ok", 0x10, &with(0, b"\0\0\0")),
            ("reserved flag", "malformed", 0x10, &with(1, b"\0\0\0")),
            ("will QoS without will", "malformed", 0x10, &with(0b1_0000, b"\0\0\0")),
            ("will retain without will", "malformed", 0x10, &with(0b10_0000, b"\0\0\0")),
            ("will QoS 3", "malformed", 0x10, &with(0b1_1100, b"\0\0\0\0\0\x01w\0\0")),
            ("will", "ok", 0x10, &with(0b1_0100, b"\0\0\0\0\0\x01w\0\0")),
            ("will topic empty", "topic name", 0x10, &with(0b100, b"\0\0\0\0\0\0\0\0")),
            ("will topic wildcard", "topic name", 0x10, &with(0b100, b"\0\0\0\0\0\x03a/+\0\0")),
            ("will properties missing", "malformed", 0x10, &with(0b100, b"\0\0\0")),
            ("password alone", "ok", 0x10, &with(0b100_0000, b"\0\0\0\0\x01p")),
            ("user name and password", "ok", 0x10, &with(0b1100_0000, b"\0\0\0\0\x01u\0\0")),
            ("user name ill-formed", "malformed", 0x10, &with(0b1000_0000, b"\0\0\0\0\x01\xFF")),
            ("trailing", "malformed", 0x10, &with(0, b"\0\0\0\0\x01u")),
            ("property length beyond the end", "malformed", 0x10, &with(0, b"\x7F\0\0")),
            ("property length missing", "malformed", 0x10, &with(0, b"")),
            ("property length overlong", "malformed", 0x10, &with(0, b"\x80\0\0\0")),
            ("property across its length", "malformed", 0x10, &with(0, b"\x03\x21\0\x01\x21\0\0")),
        ],
    );
}

#[test]
fn packets_after_connect_are_checked() {
    check(
        Some(V5),
        &[
            ("type 0", "malformed", 0x00, b""),
            ("CONNACK", "ok", 0x20, b"\x01\0\0"),
            ("CONNACK flags", "malformed", 0x20, b"\x02\0\0"),
            ("CONNACK present and refused", "protocol", 0x20, b"\x01\x87\0"),
            ("CONNACK code of another", "protocol", 0x20, b"\0\x8E\0"),
            ("CONNACK without properties", "malformed", 0x20, b"\0\0"),
            ("PUBLISH", "ok", 0x30, b"\0\x01t\0x"),
            ("PUBLISH empty payload", "ok", 0x30, b"\0\x01t\0"),
            ("PUBLISH QoS 3", "malformed", 0x36, b"\0\x01t\0\x01\0"),
            ("PUBLISH DUP QoS 0", "malformed", 0x38, b"\0\x01t\0"),
            ("PUBLISH id 0", "protocol", 0x32, b"\0\x01t\0\0\0"),
            ("PUBLISH without properties", "malformed", 0x30, b"\0\x01t"),
            ("PUBLISH alias", "ok", 0x30, b"\0\0\x03\x23\0\x01x"),
            ("PUBLISH no topic, no alias", "protocol", 0x30, b"\0\0\0x"),
            ("PUBLISH wildcard", "topic name", 0x30, b"\0\x03a/#\0x"),
            ("PUBLISH wildcard with alias", "topic name", 0x30, b"\0\x01+\x03\x23\0\x01x"),
            ("PUBLISH property length overlong", "malformed", 0x30, b"\0\x01t\x80\0x"),
            ("PUBLISH property length beyond the end", "malformed", 0x30, b"\0\x01t\x20abc"),
            ("PUBLISH property length of five bytes", "malformed", 0x30, b"\0\x01t\x80\x80\x80\x80\x01"),
            ("PUBLISH property id of two bytes", "malformed", 0x30, b"\0\x01t\x03\xFE\x01\0"),
            ("PUBLISH property id overlong", "malformed", 0x30, b"\0\x01t\x03\x81\0\x01"),
            ("PUBACK one byte", "malformed", 0x40, b"\0"),
            ("PUBACK id 0", "protocol", 0x40, b"\0\0"),
            ("PUBACK unknown code", "malformed", 0x40, b"\0\x01\x05"),
            ("PUBACK code of another", "protocol", 0x40, b"\0\x01\x92"),
            ("PUBACK trailing", "malformed", 0x40, b"\0\x01\0\0\0"),
            ("PUBREC no subscribers", "ok", 0x50, b"\0\x01\x10"),
            ("PUBREL not found", "ok", 0x62, b"\0\x01\x92"),
            ("PUBREL code of another", "protocol", 0x62, b"\0\x01\x10"),
            ("PUBREL flags", "malformed", 0x60, b"\0\x01"),
            ("PUBREL DUP", "malformed", 0x6A, b"\0\x01"),
            ("PUBCOMP code of another", "protocol", 0x70, b"\0\x01\x80"),
            ("SUBSCRIBE", "ok", 0x82, b"\0\x01\0\0\x01a\x2E"),
            ("SUBSCRIBE without filter", "protocol", 0x82, b"\0\x01\0"),
            ("SUBSCRIBE id 0", "protocol", 0x82, b"\0\0\0\0\x01a\0"),
            ("SUBSCRIBE reserved 0x40", "malformed", 0x82, b"\0\x01\0\0\x01a\x40"),
            ("SUBSCRIBE reserved 0x80", "malformed", 0x82, b"\0\x01\0\0\x01a\x80"),
            ("SUBSCRIBE QoS 3", "protocol", 0x82, b"\0\x01\0\0\x01a\x03"),
            ("SUBSCRIBE retain handling 3", "protocol", 0x82, b"\0\x01\0\0\x01a\x30"),
            ("SUBSCRIBE without options", "malformed", 0x82, b"\0\x01\0\0\x01a"),
            ("SUBACK code of another", "protocol", 0x90, b"\0\x01\0\x11"),
            ("UNSUBSCRIBE without filter", "protocol", 0xA2, b"\0\x01\0"),
            ("UNSUBSCRIBE flags", "malformed", 0xA0, b"\0\x01\0\0\x01a"),
            ("UNSUBACK", "ok", 0xB0, b"\0\x01\0\x11\0"),
            ("UNSUBACK code of another", "protocol", 0xB0, b"\0\x01\0\x01"),
            ("PINGREQ with a body", "malformed", 0xC0, b"\0"),
            ("DISCONNECT with will", "ok", 0xE0, b"\x04"),
            ("DISCONNECT unknown code", "malformed", 0xE0, b"\x05"),
            ("DISCONNECT code of another", "protocol", 0xE0, b"\x10"),
            ("DISCONNECT flags", "malformed", 0xE1, b""),
            ("AUTH", "ok", 0xF0, b"\x18\x04\x15\0\x01m"),
            ("AUTH success, short", "ok", 0xF0, b""),
            ("AUTH without properties", "malformed", 0xF0, b"\x18"),
            ("AUTH without method", "protocol", 0xF0, b"\x18\0"),
            ("AUTH code of another", "protocol", 0xF0, b"\x87\x04\x15\0\x01m"),
            ("AUTH flags", "malformed", 0xF1, b"\x18\x04\x15\0\x01m"),
        ],
    );
}

#[test]
fn short_forms_of_acknowledgements_mean_the_same() {
    let ack = PublishAck::new(std::num::NonZeroU16::new(7).unwrap(), ReasonCode::Success);
    for body in [&b"\0\x07"[..], b"\0\x07\0", b"\0\x07\0\0"] {
        assert_eq!(read(&packet(0x40, body), Some(V5)), Ok(Packet::Puback(ack.clone())));
        assert_eq!(read(&packet(0x62, body), Some(V5)), Ok(Packet::Pubrel(ack.clone())));
    }
    let goodbye = Disconnect { reason_code: ReasonCode::Success, properties: Default::default() };
    for body in [&b""[..], b"\0", b"\0\0"] {
        assert_eq!(read(&packet(0xE0, body), Some(V5)), Ok(Packet::Disconnect(Box::new(goodbye.clone()))));
    }
}

#[test]
fn subscription_options_are_read_bit_by_bit() {
    let Ok(Packet::Subscribe(subscribe)) = read(&packet(0x82, b"\0\x01\0\0\x01a\x2D"), Some(V5)) else { panic!("refused") };
    let options = subscribe.filters.first().unwrap().options;
    assert_eq!(options.qos, crate::mqtt::QoS::AtLeastOnce);
    assert!(options.no_local && options.retain_as_published);
    assert_eq!(options.retain_handling, RetainHandling::DoNotSend);
}

#[test]
fn a_client_may_send_only_its_part_of_the_disconnect_codes() {
    let allowed = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99];
    for byte in 0..=u8::MAX {
        if let Some(code) = ReasonCode::from_byte(byte) {
            assert_eq!(disconnect_code_from_client(code), allowed.contains(&byte), "{code:?}");
        }
    }
}
