//! Packets and deliveries that a session has a use for, more often than bytes by chance would be.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;

use super::super::Draw;
use super::observer::Observer;
use crate::mqtt::codec::{MAX_PACKET_SIZE, encode, frame};
use crate::mqtt::packet::{
    Auth, AuthProperties, Connect, ConnectProperties, Disconnect, DisconnectProperties, Packet, PacketId, Publish, PublishAck,
    PublishProperties, RetainHandling, Subscribe, SubscriptionOptions, SubscriptionRequest, Unsubscribe, Will, WillProperties,
};
use crate::mqtt::{
    Delivery, GroupId, Message, Origin, ProtocolVersion, QoS, ReasonCode, Source, SubscriptionIds, UserProperties,
};

const TOPICS: [&str; 8] = ["t", "t/u", "", "$x", "a+", "t", "long/topic", "é"];
const FILTERS: [&str; 10] = ["t", "#", "t/+", "$share/g/t", "$share//t", "a+", "", "$SYS/#", "t", "u"];
/// The Authentication Method of those that have one.
const METHOD: &str = "SCRAM-SHA-256";
const ALL_QOS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];

/// A packet as the bytes after its length, first byte included: what it says is left to the decoder.
pub(super) fn packet(draw: &mut Draw<'_>, spoken: Option<ProtocolVersion>, observer: &Observer) -> Option<Bytes> {
    let version = match (spoken, draw.below(16)) {
        (Some(version), _) => version,
        // A client that begins with anything but CONNECT.
        (None, 0) => ProtocolVersion::V5,
        (None, _) => return bytes_of(&connect(draw), ProtocolVersion::V5),
    };
    let v5 = version.is_v5();
    let packet = match draw.below(16) {
        0..=4 => publish(draw, v5),
        5..=8 => acknowledgement(draw, observer),
        9 | 10 => subscribe(draw, v5),
        11 => Packet::Unsubscribe(Box::new(Unsubscribe {
            packet_id: packet_id(draw),
            user_properties: user_properties(draw, v5),
            filters: (0..=draw.below(3)).map(|_| ByteString::from_static(draw.pick(&FILTERS))).collect(),
        })),
        12 => Packet::Pingreq,
        13 => disconnect(draw, v5),
        14 => Packet::Pubrel(PublishAck::new(packet_id(draw), ReasonCode::Success)),
        _ => match draw.below(4) {
            0 => connect(draw),
            1 => Packet::Pingresp,
            _ => {
                let code = draw.pick(&[ReasonCode::Success, ReasonCode::ContinueAuthentication, ReasonCode::ReAuthenticate]);
                let method = draw.pick(&[METHOD, "m"]);
                authentication(draw, code, ByteString::from_static(method))
            }
        },
    };
    bytes_of(&packet, version)
}

/// AUTH as it is expected, as far as a client can know.
pub(super) fn auth(draw: &mut Draw<'_>, observer: &Observer) -> Option<Bytes> {
    let method = observer.method().unwrap_or_else(|| ByteString::from_static(METHOD));
    let code = match observer.is_authenticating() {
        true => ReasonCode::ContinueAuthentication,
        false => ReasonCode::ReAuthenticate,
    };
    bytes_of(&authentication(draw, code, method), ProtocolVersion::V5)
}

fn authentication(draw: &mut Draw<'_>, reason_code: ReasonCode, method: ByteString) -> Packet {
    let properties = AuthProperties {
        authentication_method: Some(method),
        authentication_data: draw.maybe(|draw| Bytes::copy_from_slice(draw.bytes())),
        ..AuthProperties::default()
    };
    Packet::Auth(Box::new(Auth { reason_code, properties }))
}

fn bytes_of(packet: &Packet, version: ProtocolVersion) -> Option<Bytes> {
    let mut out = BytesMut::new();
    encode(packet, version, &mut out);
    // Nothing, where the version lacks the packet.
    let frame = frame(&out, MAX_PACKET_SIZE).ok()??;
    let first_byte = [frame.first_byte];
    Some([&first_byte, out.get(frame.header_len..)?].concat().into())
}

fn connect(draw: &mut Draw<'_>) -> Packet {
    let protocol = draw.pick(&[ProtocolVersion::V5, ProtocolVersion::V3_1_1, ProtocolVersion::V3_1, ProtocolVersion::V5]);
    let v5 = protocol.is_v5();
    let will = draw.maybe(|draw| Will {
        topic: ByteString::from_static(draw.pick(&TOPICS)),
        payload: Bytes::copy_from_slice(draw.bytes()),
        qos: draw.pick(&ALL_QOS),
        retain: draw.flag(),
        properties: WillProperties {
            will_delay_interval: draw.maybe(Draw::u32).filter(|_| v5),
            payload_format_indicator: draw.maybe(Draw::flag).filter(|_| v5),
            ..WillProperties::default()
        },
    });
    let properties = if v5 {
        let method = (draw.byte() & 7 == 7).then(|| ByteString::from_static(METHOD));
        ConnectProperties {
            session_expiry_interval: draw.pick(&[None, Some(0), Some(60), Some(u32::MAX)]),
            receive_maximum: draw.pick(&[None, Some(1), Some(2), Some(u16::MAX)]),
            maximum_packet_size: match draw.byte() {
                small @ 1..=127 => Some(u32::from(small)),
                _ => None,
            },
            topic_alias_maximum: draw.pick(&[None, Some(2), Some(1), Some(u16::MAX), Some(0)]),
            request_problem_information: draw.maybe(Draw::flag),
            request_response_information: draw.maybe(Draw::flag),
            user_properties: user_properties(draw, true),
            authentication_method: method.clone(),
            authentication_data: method.and_then(|_| draw.maybe(|draw| Bytes::copy_from_slice(draw.bytes()))),
        }
    } else {
        ConnectProperties::default()
    };
    let username = draw.maybe(|draw| ByteString::from(draw.text().replace('\0', "")));
    Packet::Connect(Box::new(Connect {
        protocol,
        clean_start: draw.flag(),
        keep_alive: draw.pick(&[60, 0, 1, u16::MAX]),
        client_id: ByteString::from_static(draw.pick(&["client", "", "a-client-id-of-more-than-23-bytes"])),
        will,
        password: username.as_ref().and_then(|_| draw.maybe(|draw| Bytes::copy_from_slice(draw.bytes()))),
        username,
        properties,
    }))
}

fn publish(draw: &mut Draw<'_>, v5: bool) -> Packet {
    let qos = draw.pick(&ALL_QOS);
    let flags = draw.byte();
    Packet::Publish(Box::new(Publish {
        dup: flags & 1 != 0 && qos != QoS::AtMostOnce,
        qos,
        retain: flags & 2 != 0,
        topic: ByteString::from_static(draw.pick(&TOPICS)),
        packet_id: (qos != QoS::AtMostOnce).then(|| packet_id(draw)),
        properties: PublishProperties {
            topic_alias: (v5 && flags & 0x0C == 0x0C).then(|| draw.pick(&[1, 2, 5, 6, 0, u16::MAX])),
            message_expiry_interval: (v5 && flags & 0x30 == 0x30).then(|| draw.u32()),
            payload_format_indicator: (v5 && flags & 0xC0 == 0xC0).then(|| draw.flag()),
            user_properties: user_properties(draw, v5),
            ..PublishProperties::default()
        },
        payload: if flags & 0x40 != 0 { Bytes::copy_from_slice(draw.bytes()) } else { Bytes::new() },
    }))
}

/// An acknowledgement of what is in flight, or of what is not.
fn acknowledgement(draw: &mut Draw<'_>, observer: &Observer) -> Packet {
    let known = observer.identifiers_in_flight();
    let packet_id = match known.len() {
        len @ 1.. if draw.byte() & 7 != 7 => known[draw.below(len)],
        _ => packet_id(draw),
    };
    let code =
        draw.pick(&[ReasonCode::Success, ReasonCode::Success, ReasonCode::NoMatchingSubscribers, ReasonCode::QuotaExceeded]);
    match draw.below(3) {
        0 => Packet::Puback(PublishAck::new(packet_id, code)),
        1 => Packet::Pubrec(PublishAck::new(packet_id, code)),
        _ => Packet::Pubcomp(PublishAck::new(packet_id, ReasonCode::Success)),
    }
}

fn subscribe(draw: &mut Draw<'_>, v5: bool) -> Packet {
    let filters = (0..=draw.below(3)).map(|_| {
        let (filter, byte) = (ByteString::from_static(draw.pick(&FILTERS)), draw.byte());
        let options = SubscriptionOptions {
            qos: QoS::from_bits(byte & 3).unwrap_or_default(),
            no_local: v5 && byte & 4 != 0,
            retain_as_published: v5 && byte & 8 != 0,
            retain_handling: RetainHandling::Send,
        };
        SubscriptionRequest { filter, options }
    });
    let filters = filters.collect();
    Packet::Subscribe(Box::new(Subscribe {
        packet_id: packet_id(draw),
        subscription_identifier: draw.maybe(|draw| u32::from(draw.u16()) + 1).filter(|_| v5),
        user_properties: user_properties(draw, v5),
        filters,
    }))
}

fn disconnect(draw: &mut Draw<'_>, v5: bool) -> Packet {
    let with_will = v5 && draw.flag();
    Packet::Disconnect(Box::new(Disconnect {
        reason_code: if with_will { ReasonCode::DisconnectWithWillMessage } else { ReasonCode::Success },
        properties: DisconnectProperties {
            session_expiry_interval: draw.maybe(|draw| draw.pick(&[0, 1, u32::MAX])).filter(|_| v5),
            ..DisconnectProperties::default()
        },
    }))
}

/// A few identifiers, so that they meet.
fn packet_id(draw: &mut Draw<'_>) -> PacketId {
    PacketId::MIN.saturating_add(u16::from(draw.byte() & 7))
}

fn user_properties(draw: &mut Draw<'_>, v5: bool) -> UserProperties {
    match draw.byte() {
        250.. if v5 => vec![("key".into(), "value".into()), ("".into(), "".into())],
        _ => UserProperties::new(),
    }
}

pub(super) fn delivery(draw: &mut Draw<'_>, wall_ms: u64) -> Delivery {
    let (qos, flags) = (draw.pick(&ALL_QOS), draw.byte());
    // Positions that share identifiers.
    let seq = draw.pick(&[1, 2, 3, 4, 32_768, 32_769, 65_535, u64::MAX]);
    let source = match flags & 3 {
        0 => Source::Local,
        1 => Source::Share { group: GroupId { share: "g".into(), filter: "t".into() }, seq },
        _ => Source::Queue { seq },
    };
    let message = Message {
        topic: ByteString::from_static(draw.pick(&["t", "long/topic", "long/topic/2", "t/u", "long/topic/3"])),
        payload: if flags & 4 != 0 { Bytes::copy_from_slice(draw.bytes()) } else { Bytes::new() },
        qos,
        retain: flags & 8 != 0,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: user_properties(draw, true),
        message_expiry_interval: draw.maybe(|draw| u32::from(draw.byte())),
        received_at_ms: wall_ms.saturating_sub(u64::from(draw.byte()) * 100),
        origin: Origin::Broker,
    };
    let subscription_ids: SubscriptionIds = draw.maybe(|draw| 1 + u32::from(draw.byte())).into_iter().collect();
    Delivery { message: Arc::new(message), qos, retain: flags & 16 != 0, subscription_ids, dup: flags & 32 != 0, source }
}
