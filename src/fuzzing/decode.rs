//! A stream of bytes through the decoder of one version.

use bytes::{Bytes, BytesMut};

use crate::mqtt::codec::{DecodeError, Frame, MAX_PACKET_SIZE, connect_version, decode, encode, encoded_len, frame};
use crate::mqtt::packet::{Packet, SubscriptionRequest};
use crate::mqtt::{ProtocolVersion, UserProperties};

/// Heap that a decoded packet may own, bytes: what it borrows from its input is not counted. The costliest byte on the wire is that of an
/// empty string in an UNSUBSCRIBE, two for a slot of 32, in a vector that may be half empty.
const OWNED_FIXED_BYTES: usize = 1024;
const OWNED_PER_BYTE: usize = 32;
/// A limit that inputs reach.
const SMALL_PACKET_BYTES: usize = 64;

pub fn decode_v3_1(data: &[u8]) {
    decode_stream(data, ProtocolVersion::V3_1);
}

pub fn decode_v3_1_1(data: &[u8]) {
    decode_stream(data, ProtocolVersion::V3_1_1);
}

pub fn decode_v5(data: &[u8]) {
    decode_stream(data, ProtocolVersion::V5);
}

fn decode_stream(data: &[u8], version: ProtocolVersion) {
    let stream = Bytes::copy_from_slice(data);
    // As a connection that has yet to say its version, and as one that has.
    for spoken in [None, Some(version)] {
        for limit in [SMALL_PACKET_BYTES, MAX_PACKET_SIZE] {
            let whole = read(&stream, spoken, limit, &[]);
            for (packet, version) in &whole.packets {
                survives_a_round_trip(packet, *version);
            }
            for at in split_places(data.len()) {
                assert_eq!(read(&stream, spoken, limit, &[at]), whole, "split at {at}");
            }
        }
    }
    // With a fixed header that is right for the length whatever the bytes say, so that bodies are reached more often.
    if let Some(&first_byte) = data.first() {
        let frame = Frame { first_byte, header_len: 1, remaining_len: data.len() - 1 };
        for spoken in [None, Some(version)] {
            if let Ok(packet) = decode(frame, stream.clone(), spoken) {
                assert!(owned_bytes(&packet) <= OWNED_FIXED_BYTES + OWNED_PER_BYTE * data.len());
                survives_a_round_trip(&packet, spoken.unwrap_or(version));
            }
        }
    }
}

/// What a connection makes of a stream.
#[derive(Debug, PartialEq)]
struct Reading {
    packets: Vec<(Packet, ProtocolVersion)>,
    error: Option<DecodeError>,
    /// What a broken CONNECT is answered in.
    refused_in: Option<ProtocolVersion>,
    /// Bytes of an incomplete packet.
    left: usize,
}

/// Reads the stream as it comes in pieces that end at `ends`.
fn read(stream: &Bytes, mut version: Option<ProtocolVersion>, limit: usize, ends: &[usize]) -> Reading {
    let mut reading = Reading { packets: Vec::new(), error: None, refused_in: None, left: 0 };
    let mut buffer = BytesMut::new();
    let mut start = 0;
    for end in ends.iter().copied().chain([stream.len()]) {
        buffer.extend_from_slice(&stream[start..end]);
        start = end;
        loop {
            let framed = match frame(&buffer, limit) {
                Ok(Some(framed)) => framed,
                Ok(None) => break,
                Err(error) => {
                    // The size is known, and refused, before a byte of the body is there.
                    assert_eq!(frame(&buffer[..buffer.len().min(5)], limit), Err(error.clone()));
                    reading.error = Some(error);
                    return reading;
                }
            };
            assert!(framed.total_len() <= limit && (2..=5).contains(&framed.header_len));
            if buffer.len() < framed.total_len() {
                break;
            }
            let bytes = buffer.split_to(framed.total_len()).freeze();
            match decode(framed, bytes.clone(), version) {
                Ok(packet) => {
                    assert!(owned_bytes(&packet) <= OWNED_FIXED_BYTES + OWNED_PER_BYTE * bytes.len());
                    if let (Packet::Connect(connect), None) = (&packet, version) {
                        assert_eq!(connect_version(&bytes), Some(connect.protocol));
                        version = Some(connect.protocol);
                    }
                    // What decodes without a version is a CONNECT.
                    reading.packets.push((packet, version.unwrap_or(ProtocolVersion::V5)));
                }
                Err(error) => {
                    reading.refused_in = connect_version(&bytes);
                    reading.error = Some(error);
                    return reading;
                }
            }
        }
    }
    reading.left = buffer.len();
    reading
}

/// Every place of a short stream, some of a long one.
fn split_places(len: usize) -> impl Iterator<Item = usize> {
    (1..len).step_by(len / 48 + 1)
}

/// What was decoded encodes to what decodes to the same again, in the length that was foretold, and to nothing that a version cannot read.
fn survives_a_round_trip(packet: &Packet, version: ProtocolVersion) {
    let again = encoded(packet, version);
    assert_eq!(again.len(), encoded_len(packet, version));
    assert_eq!(decoded(&again, version).as_ref(), Ok(packet));
    if !version.is_v5() {
        return;
    }
    // The broker keeps one set of types, so what an MQTT 5 client sent is written for others too.
    for older in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        let bytes = encoded(packet, older);
        assert_eq!(bytes.len(), encoded_len(packet, older));
        let without_topic = matches!(packet, Packet::Publish(publish) if publish.topic.is_empty());
        if !bytes.is_empty() && !without_topic {
            let read = decoded(&bytes, older);
            assert!(read.is_ok(), "{packet:?} for {older:?}: {read:?}");
        }
    }
}

fn encoded(packet: &Packet, version: ProtocolVersion) -> Bytes {
    let mut out = BytesMut::new();
    encode(packet, version, &mut out);
    out.freeze()
}

fn decoded(bytes: &Bytes, version: ProtocolVersion) -> Result<Packet, DecodeError> {
    match frame(bytes, MAX_PACKET_SIZE)? {
        Some(frame) => decode(frame, bytes.clone(), Some(version)),
        None => Err(DecodeError::RemainingLength),
    }
}

/// Bytes of the heap that the packet holds besides slices of its input and the fixed size of its own box.
fn owned_bytes(packet: &Packet) -> usize {
    let pairs = |properties: &UserProperties| properties.capacity() * size_of::<(String, String)>().max(64);
    match packet {
        Packet::Connect(p) => {
            pairs(&p.properties.user_properties) + p.will.as_ref().map_or(0, |w| pairs(&w.properties.user_properties))
        }
        Packet::Connack(p) => pairs(&p.properties.user_properties),
        Packet::Publish(p) => pairs(&p.properties.user_properties) + p.properties.subscription_identifiers.capacity() * 4,
        Packet::Puback(p) | Packet::Pubrec(p) | Packet::Pubrel(p) | Packet::Pubcomp(p) => pairs(&p.user_properties),
        Packet::Subscribe(p) => pairs(&p.user_properties) + p.filters.capacity() * size_of::<SubscriptionRequest>(),
        Packet::Suback(p) => pairs(&p.user_properties) + p.reason_codes.capacity(),
        Packet::Unsubscribe(p) => pairs(&p.user_properties) + p.filters.capacity() * 32,
        Packet::Unsuback(p) => pairs(&p.user_properties) + p.reason_codes.capacity(),
        Packet::Disconnect(p) => pairs(&p.properties.user_properties),
        Packet::Auth(p) => pairs(&p.properties.user_properties),
        Packet::Pingreq | Packet::Pingresp => 0,
    }
}
