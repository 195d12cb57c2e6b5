use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use proptest::prelude::*;

use super::arbitrary::packet;
use super::*;
use crate::mqtt::packet::{Auth, Connack, PacketId, PublishAck, Suback, Unsuback};
use crate::mqtt::packet::{AuthProperties, ConnackProperties, PublishProperties};
use crate::mqtt::{QoS, ReasonCode};

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

pub(super) fn encoded(packet: &Packet, version: ProtocolVersion) -> Bytes {
    let mut out = BytesMut::new();
    encode(packet, version, &mut out);
    out.freeze()
}

fn check_round_trip(packet: &Packet, version: ProtocolVersion) -> Result<(), TestCaseError> {
    let bytes = encoded(packet, version);
    prop_assert_eq!(bytes.len(), encoded_len(packet, version));
    let frame = frame(&bytes, MAX_PACKET_SIZE).unwrap().unwrap();
    prop_assert_eq!(frame.total_len(), bytes.len());
    prop_assert_eq!(&decode(frame, bytes.clone(), Some(version)).unwrap(), packet);
    if let Packet::Connect(_) = packet {
        prop_assert_eq!(&decode(frame, bytes.clone(), None).unwrap(), packet);
        prop_assert_eq!(connect_version(&bytes), Some(version));
    }
    if let Packet::Publish(publish) = packet {
        let mut header = BytesMut::new();
        prop_assert!(encode_publish_header(publish, version, &mut header));
        header.extend_from_slice(&publish.payload);
        prop_assert_eq!(header.freeze(), bytes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn v3_1_packets_survive_a_round_trip(packet in packet(ProtocolVersion::V3_1)) {
        check_round_trip(&packet, ProtocolVersion::V3_1)?;
    }

    #[test]
    fn v3_1_1_packets_survive_a_round_trip(packet in packet(ProtocolVersion::V3_1_1)) {
        check_round_trip(&packet, ProtocolVersion::V3_1_1)?;
    }

    #[test]
    fn v5_packets_survive_a_round_trip(packet in packet(ProtocolVersion::V5)) {
        check_round_trip(&packet, ProtocolVersion::V5)?;
    }

    /// The broker keeps one set of types, so what a v5 publisher sent is written for v3 receivers: less of it, never broken.
    #[test]
    fn v5_packets_written_for_v3_can_be_read(packet in packet(ProtocolVersion::V5)) {
        let bytes = encoded(&packet, ProtocolVersion::V3_1_1);
        prop_assert_eq!(bytes.len(), encoded_len(&packet, ProtocolVersion::V3_1_1));
        let no_topic = matches!(&packet, Packet::Publish(publish) if publish.topic.is_empty());
        if !bytes.is_empty() && !no_topic {
            let frame = frame(&bytes, MAX_PACKET_SIZE).unwrap().unwrap();
            prop_assert!(decode(frame, bytes, Some(ProtocolVersion::V3_1_1)).is_ok());
        }
    }

    /// No proper part of a packet may pass for a packet: every cut is refused or, where `frame` sees it, awaited.
    #[test]
    fn a_cut_packet_is_awaited(packet in packet(ProtocolVersion::V5), cut in any::<prop::sample::Index>()) {
        let bytes = encoded(&packet, ProtocolVersion::V5);
        let part = bytes.slice(..cut.index(bytes.len()));
        let framed = frame(&part, MAX_PACKET_SIZE).unwrap();
        prop_assert!(framed.is_none_or(|frame| frame.total_len() > part.len()));
        if let Some(frame) = framed {
            prop_assert!(matches!(decode(frame, part, Some(ProtocolVersion::V5)), Err(DecodeError::Malformed(_))));
        }
    }
}

fn publish(topic: &str, payload: Bytes) -> Publish {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: topic.into(),
        packet_id: None,
        properties: PublishProperties::default(),
        payload,
    }
}

#[test]
fn topic_and_payload_are_slices_of_the_packet() {
    let bytes = encoded(&Packet::Publish(Box::new(publish("a/b", Bytes::from_static(b"payload")))), ProtocolVersion::V5);
    let frame = frame(&bytes, MAX_PACKET_SIZE).unwrap().unwrap();
    let Packet::Publish(read) = decode(frame, bytes.clone(), Some(ProtocolVersion::V5)).unwrap() else { panic!("no PUBLISH") };
    assert_eq!(read.topic.as_bytes().as_ptr(), bytes.slice(4..).as_ptr());
    assert_eq!(read.payload.as_ptr(), bytes.slice(8..).as_ptr());
}

#[test]
fn payload_sizes_around_each_length_of_the_remaining_length_survive() {
    for version in VERSIONS {
        // Fixed part of the body: topic length and topic, and in MQTT 5 the Property Length.
        let fixed = 3 + usize::from(version.is_v5());
        for remaining in [127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
            let packet = Packet::Publish(Box::new(publish("t", vec![7u8; remaining - fixed].into())));
            check_round_trip(&packet, version).unwrap();
            let bytes = encoded(&packet, version);
            assert_eq!(frame(&bytes, MAX_PACKET_SIZE).unwrap().unwrap().remaining_len, remaining);
        }
    }
}

#[test]
fn what_a_packet_or_version_cannot_hold_is_not_written() {
    let refusal = |reason_code| {
        Packet::Connack(Box::new(Connack { session_present: false, reason_code, properties: ConnackProperties::default() }))
    };
    for code in [ReasonCode::UnspecifiedError, ReasonCode::MalformedPacket, ReasonCode::ProtocolError] {
        assert_eq!(encoded(&refusal(code), ProtocolVersion::V3_1_1), Bytes::new());
        assert_eq!(encoded_len(&refusal(code), ProtocolVersion::V3_1_1), 0);
        assert_eq!(encoded(&refusal(code), ProtocolVersion::V5), vec![0x20, 3, 0, code.byte(), 0]);
    }
    let auth = Packet::Auth(Box::new(Auth { reason_code: ReasonCode::Success, properties: AuthProperties::default() }));
    assert_eq!(encoded(&auth, ProtocolVersion::V3_1), Bytes::new());
    // The payload is zero pages, never touched: the length alone decides.
    let huge = publish("t", vec![0u8; MAX_PACKET_SIZE - 8].into());
    assert!(!encode_publish_header(&huge, ProtocolVersion::V5, &mut BytesMut::new()));
    assert_eq!(encoded_len(&Packet::Publish(Box::new(huge.clone())), ProtocolVersion::V5), 0);
    let largest = Publish { payload: huge.payload.slice(..MAX_PACKET_SIZE - 9), ..huge };
    assert_eq!(encoded_len(&Packet::Publish(Box::new(largest)), ProtocolVersion::V5), MAX_PACKET_SIZE);
}

#[test]
fn an_overlong_string_is_cut_between_characters() {
    let mut ack = PublishAck::new(PacketId::new(1).unwrap(), ReasonCode::UnspecifiedError);
    ack.reason_string = Some(ByteString::from("ä".repeat(40_000)));
    let bytes = encoded(&Packet::Puback(ack), ProtocolVersion::V5);
    let frame = frame(&bytes, MAX_PACKET_SIZE).unwrap().unwrap();
    let Packet::Puback(read) = decode(frame, bytes, Some(ProtocolVersion::V5)).unwrap() else { panic!("no PUBACK") };
    assert_eq!(read.reason_string.unwrap().len(), 65_534);
}

#[test]
fn the_encoder_never_writes_what_no_receiver_may_accept() {
    let id = PacketId::new(9).unwrap();
    let table: Vec<(Packet, ProtocolVersion, &[u8])> = vec![
        // DUP is 0 at QoS 0 [MQTT-3.3.1-2], and QoS 0 has no identifier [MQTT-2.2.1-2].
        (
            Packet::Publish(Box::new(Publish { dup: true, packet_id: Some(id), ..publish("t", Bytes::new()) })),
            ProtocolVersion::V3_1_1,
            &[0x30, 3, 0, 1, b't'],
        ),
        (
            Packet::Publish(Box::new(Publish { qos: QoS::AtLeastOnce, ..publish("t", Bytes::new()) })),
            ProtocolVersion::V3_1_1,
            &[0x30, 3, 0, 1, b't'],
        ),
        // Session Present only with Success [MQTT-3.2.2-6], and not in MQTT 3.1.
        (connack(ReasonCode::NotAuthorized), ProtocolVersion::V5, &[0x20, 3, 0, 0x87, 0]),
        (connack(ReasonCode::NotAuthorized), ProtocolVersion::V3_1_1, &[0x20, 2, 0, 5]),
        (connack(ReasonCode::Success), ProtocolVersion::V3_1_1, &[0x20, 2, 1, 0]),
        (connack(ReasonCode::Success), ProtocolVersion::V3_1, &[0x20, 2, 0, 0]),
        // MQTT 3 knows one failure in SUBACK, and nothing in UNSUBACK.
        (
            Packet::Suback(Box::new(Suback {
                packet_id: id,
                reason_codes: vec![ReasonCode::GrantedQoS2, ReasonCode::NotAuthorized],
                reason_string: Some("no".into()),
                user_properties: vec![],
            })),
            ProtocolVersion::V3_1_1,
            &[0x90, 4, 0, 9, 2, 0x80],
        ),
        (
            Packet::Unsuback(Box::new(Unsuback {
                packet_id: id,
                reason_codes: vec![ReasonCode::NotAuthorized],
                reason_string: None,
                user_properties: vec![],
            })),
            ProtocolVersion::V3_1_1,
            &[0xB0, 2, 0, 9],
        ),
        (Packet::Puback(PublishAck::new(id, ReasonCode::NotAuthorized)), ProtocolVersion::V3_1_1, &[0x40, 2, 0, 9]),
        (Packet::Puback(PublishAck::new(id, ReasonCode::NotAuthorized)), ProtocolVersion::V5, &[0x40, 3, 0, 9, 0x87]),
        (Packet::Pubrel(PublishAck::new(id, ReasonCode::Success)), ProtocolVersion::V5, &[0x62, 2, 0, 9]),
    ];
    for (packet, version, expected) in table {
        assert_eq!(encoded(&packet, version), expected, "{packet:?}");
    }
}

fn connack(reason_code: ReasonCode) -> Packet {
    Packet::Connack(Box::new(Connack { session_present: true, reason_code, properties: ConnackProperties::default() }))
}
