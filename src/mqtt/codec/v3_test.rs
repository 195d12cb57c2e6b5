//! Byte tables for MQTT 3.1 and 3.1.1.

use DecodeError::{Code, Malformed, Protocol};
use bytes::Bytes;

use super::*;
use crate::mqtt::ReasonCode;
use crate::mqtt::packet::{Connect, Will};
use ProtocolVersion::{V3_1, V3_1_1};

/// Puts a fixed header before a body.
pub(super) fn packet(first_byte: u8, body: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    put_fixed_header(first_byte, u32::try_from(body.len()).unwrap(), &mut out);
    out.extend_from_slice(body);
    out.freeze()
}

pub(super) fn read(bytes: &Bytes, version: Option<ProtocolVersion>) -> Result<Packet, DecodeError> {
    decode(frame(bytes, MAX_PACKET_SIZE).unwrap().unwrap(), bytes.clone(), version)
}

/// What went wrong, without the words for it.
pub(super) fn class(result: &Result<Packet, DecodeError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Malformed(_)) => "malformed",
        Err(Protocol(_)) => "protocol",
        Err(Code(ReasonCode::TopicNameInvalid, _)) => "topic name",
        Err(DecodeError::UnsupportedProtocolVersion { .. }) => "version",
        Err(_) => "other",
    }
}

pub(super) fn check(version: Option<ProtocolVersion>, table: &[(&str, &str, u8, &[u8])]) {
    for (name, expected, first_byte, body) in table {
        let result = read(&packet(*first_byte, body), version);
        assert_eq!(class(&result), *expected, "{name}: {result:?}");
    }
}

fn connect_start(flags: u8) -> Vec<u8> {
    [b"\0\x04MQTT\x04", &[flags, 0, 60][..]].concat()
}

#[test]
fn a_full_connect_of_each_version_is_read() {
    for (version, start) in [(V3_1, &b"\0\x06MQIsdp\x03"[..]), (V3_1_1, b"\0\x04MQTT\x04")] {
        let body = [start, &[0b1110_1110, 0, 60], b"\0\x01c\0\x01w\0\x02hi\0\x01u\0\x02pw"].concat();
        let expected = Connect {
            protocol: version,
            clean_start: true,
            keep_alive: 60,
            client_id: "c".into(),
            will: Some(Will {
                topic: "w".into(),
                payload: Bytes::from_static(b"hi"),
                qos: crate::mqtt::QoS::AtLeastOnce,
                retain: true,
                properties: Default::default(),
            }),
            username: Some("u".into()),
            password: Some(Bytes::from_static(b"pw")),
            properties: Default::default(),
        };
        assert_eq!(read(&packet(0x10, &body), None), Ok(Packet::Connect(Box::new(expected))));
    }
}

#[test]
fn connect_is_checked() {
    let with = |flags: u8, rest: &[u8]| [&connect_start(flags), rest].concat();
    check(
        None,
        &[
            ("least", "ok", 0x10, &with(0b10, b"\0\0")),
            ("reserved flag", "malformed", 0x10, &with(0b11, b"\0\0")),
            ("header flags", "malformed", 0x11, &with(0b10, b"\0\0")),
            ("will QoS without will", "malformed", 0x10, &with(0b1010, b"\0\0")),
            ("will retain without will", "malformed", 0x10, &with(0b10_0010, b"\0\0")),
            ("will QoS 3", "malformed", 0x10, &with(0b1_1110, b"\0\0\0\x01w\0\0")),
            ("will", "ok", 0x10, &with(0b0110, b"\0\0\0\x01w\0\0")),
            ("will topic empty", "topic name", 0x10, &with(0b0110, b"\0\0\0\0\0\0")),
            ("will topic wildcard", "topic name", 0x10, &with(0b0110, b"\0\0\0\x01#\0\0")),
            ("will missing", "malformed", 0x10, &with(0b0110, b"\0\0")),
            ("password alone", "malformed", 0x10, &with(0b0100_0010, b"\0\0\0\x01p")),
            ("user name missing", "malformed", 0x10, &with(0b1000_0010, b"\0\0")),
            ("password missing", "malformed", 0x10, &with(0b1100_0010, b"\0\0\0\x01u")),
            ("trailing byte", "malformed", 0x10, &with(0b10, b"\0\0\0")),
            ("no client id", "malformed", 0x10, &with(0b10, b"")),
            ("client id beyond the end", "malformed", 0x10, &with(0b10, b"\0\x05abc")),
            ("client id with U+0000", "malformed", 0x10, &with(0b10, b"\0\x03a\0b")),
            ("client id surrogate", "malformed", 0x10, &with(0b10, b"\0\x03\xED\xA0\x80")),
            ("client id ill-formed", "malformed", 0x10, &with(0b10, b"\0\x02\xC3\x28")),
            ("client id overlong", "malformed", 0x10, &with(0b10, b"\0\x02\xC0\x80")),
            ("client id with BOM", "ok", 0x10, &with(0b10, b"\0\x03\xEF\xBB\xBF")),
            ("no keep alive", "malformed", 0x10, b"\0\x04MQTT\x04\x02\0"),
            ("no level", "malformed", 0x10, b"\0\x04MQTT"),
            ("name beyond the end", "malformed", 0x10, b"\0\x09MQTT"),
            ("empty", "malformed", 0x10, b""),
            ("level 6", "version", 0x10, b"\0\x04MQTT\x06\x02\0\x3c\0\0"),
            ("level 3 of MQTT", "version", 0x10, b"\0\x04MQTT\x03\x02\0\x3c\0\0"),
            ("level 4 of MQIsdp", "version", 0x10, b"\0\x06MQIsdp\x04\x02\0\x3c\0\0"),
            ("bridge bit", "version", 0x10, b"\0\x04MQTT\x84\x02\0\x3c\0\0"),
            ("other case", "version", 0x10, b"\0\x04mqtt\x04\x02\0\x3c\0\0"),
            ("other length", "version", 0x10, b"\0\x05MQTT \x04\x02\0\x3c\0\0"),
            ("ill-formed name", "version", 0x10, b"\0\x02\xFF\xFE\x04\x02\0\x3c\0\0"),
            ("no name", "version", 0x10, b"\0\0\x04\x02\0\x3c\0\0"),
        ],
    );
}

#[test]
fn an_unsupported_version_names_what_was_asked_for() {
    let body = [b"\0\x40", &[b'x'; 64][..], b"\x07"].concat();
    let expected = DecodeError::UnsupportedProtocolVersion { name: "x".repeat(32), level: 7 };
    assert_eq!(read(&packet(0x10, &body), None), Err(expected));
}

#[test]
fn a_3_1_client_may_leave_out_what_its_flags_announce() {
    let start = [b"\0\x06MQIsdp\x03", &[0b1100_0010, 0, 60][..], b"\0\x01c"].concat();
    let Ok(Packet::Connect(connect)) = read(&packet(0x10, &start), None) else { panic!("refused") };
    assert_eq!((connect.username, connect.password), (None, None));
    let Ok(Packet::Connect(connect)) = read(&packet(0x10, &[&start, &b"\0\x01u"[..]].concat()), None) else { panic!("refused") };
    assert_eq!((connect.username, connect.password), (Some("u".into()), None));
}

#[test]
fn the_version_of_a_broken_connect_is_peeked() {
    let table: [(&[u8], Option<ProtocolVersion>); 12] = [
        (b"\x10\x09\0\x04MQTT\x05\x01", Some(ProtocolVersion::V5)),
        (b"\x1F\x09\0\x04MQTT\x05\x01", Some(ProtocolVersion::V5)),
        (b"\x10\xFF\xFF\x7F\0\x04MQTT\x05", Some(ProtocolVersion::V5)),
        (b"\x10\x09\0\x04MQTT\x04", Some(V3_1_1)),
        (b"\x10\x09\0\x06MQIsdp\x03", Some(V3_1)),
        (b"\x10\x09\0\x04MQTT\x06", None),
        (b"\x10\x09\x01\x04MQTT\x05", None),
        (b"\x10\x09\0\x04MQTT", None),
        (b"\x10\xFF\xFF\xFF\xFF\x01\0\x04MQTT\x05", None),
        (b"\x20\x09\0\x04MQTT\x05", None),
        (b"\x10", None),
        (b"", None),
    ];
    for (bytes, version) in table {
        assert_eq!(connect_version(bytes), version, "{bytes:x?}");
    }
}

#[test]
fn only_connect_is_read_before_the_version_is_known() {
    check(
        None,
        &[("PINGREQ", "protocol", 0xC0, b""), ("PUBLISH", "protocol", 0x30, b"\0\x01t"), ("type 0", "protocol", 0x00, b"")],
    );
}

#[test]
fn packets_after_connect_are_checked() {
    for version in [V3_1, V3_1_1] {
        check(
            Some(version),
            &[
                ("type 0", "malformed", 0x00, b""),
                ("AUTH", "malformed", 0xF0, b""),
                ("PUBLISH", "ok", 0x30, b"\0\x01tx"),
                ("PUBLISH empty payload", "ok", 0x31, b"\0\x01t"),
                ("PUBLISH QoS 1", "ok", 0x3A, b"\0\x01t\0\x01x"),
                ("PUBLISH QoS 3", "malformed", 0x36, b"\0\x01t\0\x01x"),
                ("PUBLISH DUP QoS 0", "malformed", 0x38, b"\0\x01tx"),
                ("PUBLISH id 0", "protocol", 0x32, b"\0\x01t\0\0x"),
                ("PUBLISH no id", "malformed", 0x34, b"\0\x01t\0"),
                ("PUBLISH topic empty", "topic name", 0x30, b"\0\0x"),
                ("PUBLISH topic +", "topic name", 0x30, b"\0\x03a/+x"),
                ("PUBLISH topic #", "topic name", 0x30, b"\0\x01#x"),
                ("PUBLISH topic U+0000", "malformed", 0x30, b"\0\x03a\0bx"),
                ("PUBLISH topic beyond the end", "malformed", 0x30, b"\0\x20abc"),
                ("PUBLISH nothing", "malformed", 0x30, b""),
                ("PUBACK", "ok", 0x40, b"\0\x01"),
                ("PUBACK id 0", "protocol", 0x40, b"\0\0"),
                ("PUBACK short", "malformed", 0x40, b"\0"),
                ("PUBACK with reason", "malformed", 0x40, b"\0\x01\0"),
                ("PUBACK flags", "malformed", 0x41, b"\0\x01"),
                ("PUBREC", "ok", 0x50, b"\0\x01"),
                ("PUBREC flags", "malformed", 0x52, b"\0\x01"),
                ("PUBREL", "ok", 0x62, b"\0\x01"),
                ("PUBREL flags", "malformed", 0x60, b"\0\x01"),
                ("PUBCOMP", "ok", 0x70, b"\xFF\xFF"),
                ("SUBSCRIBE", "ok", 0x82, b"\0\x01\0\x01a\x02\0\x01#\0"),
                ("SUBSCRIBE flags", "malformed", 0x80, b"\0\x01\0\x01a\0"),
                ("SUBSCRIBE flags 3", "malformed", 0x83, b"\0\x01\0\x01a\0"),
                ("SUBSCRIBE id 0", "protocol", 0x82, b"\0\0\0\x01a\0"),
                ("SUBSCRIBE without filter", "protocol", 0x82, b"\0\x01"),
                ("SUBSCRIBE without QoS", "malformed", 0x82, b"\0\x01\0\x01a"),
                ("SUBSCRIBE QoS 3", "malformed", 0x82, b"\0\x01\0\x01a\x03"),
                ("SUBSCRIBE reserved bits", "malformed", 0x82, b"\0\x01\0\x01a\x04"),
                ("SUBSCRIBE ill-formed filter", "malformed", 0x82, b"\0\x01\0\x01\xFF\0"),
                ("SUBACK", "ok", 0x90, b"\0\x01\x02\x80"),
                ("SUBACK code", "malformed", 0x90, b"\0\x01\x03"),
                ("UNSUBSCRIBE", "ok", 0xA2, b"\0\x01\0\x01a"),
                ("UNSUBSCRIBE without filter", "protocol", 0xA2, b"\0\x01"),
                ("UNSUBSCRIBE flags", "malformed", 0xA0, b"\0\x01\0\x01a"),
                ("UNSUBACK", "ok", 0xB0, b"\0\x01"),
                ("PINGREQ", "ok", 0xC0, b""),
                ("PINGREQ with a body", "malformed", 0xC0, b"\0"),
                ("PINGREQ flags", "malformed", 0xC1, b""),
                ("PINGRESP", "ok", 0xD0, b""),
                ("DISCONNECT", "ok", 0xE0, b""),
                ("DISCONNECT with a body", "malformed", 0xE0, b"\0"),
                ("DISCONNECT flags", "malformed", 0xE4, b""),
                ("CONNACK", "ok", 0x20, b"\0\x05"),
                ("CONNACK code", "malformed", 0x20, b"\0\x06"),
            ],
        );
    }
    check(
        Some(V3_1_1),
        &[
            ("CONNACK present and refused", "protocol", 0x20, b"\x01\x05"),
            ("CONNACK flags", "malformed", 0x20, b"\x02\0"),
            ("PUBREL DUP", "malformed", 0x6A, b"\0\x01"),
            ("SUBSCRIBE DUP", "malformed", 0x8A, b"\0\x01\0\x01a\0"),
        ],
    );
    check(
        Some(V3_1),
        &[
            ("CONNACK reserved byte", "ok", 0x20, b"\x01\x05"),
            ("PUBREL DUP", "ok", 0x6A, b"\0\x01"),
            ("SUBSCRIBE DUP", "ok", 0x8A, b"\0\x01\0\x01a\0"),
            ("UNSUBSCRIBE DUP", "ok", 0xAA, b"\0\x01\0\x01a"),
            ("SUBSCRIBE DUP and more", "malformed", 0x8B, b"\0\x01\0\x01a\0"),
        ],
    );
}

#[test]
fn return_codes_are_mapped_as_hivemq_maps_them() {
    for byte in 0..=u8::MAX {
        let Some(code) = ReasonCode::from_byte(byte) else { continue };
        let expected = match byte {
            0x84 => Some(1),
            0x85 => Some(2),
            0x88 | 0x89 | 0x9C | 0x9D => Some(3),
            0x86 | 0x8C => Some(4),
            0x80..=0x83 => None,
            0x87.. => Some(5),
            _ => Some(0),
        };
        assert_eq!(v3_return_code(code), expected, "{code:?}");
    }
}
