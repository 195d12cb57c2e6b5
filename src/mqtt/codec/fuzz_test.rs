//! Bytes that no decent client sends: whatever they are, the answer is a packet or an error.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use proptest::sample::Index;

use super::arbitrary::packet;
use super::round_trip_test::encoded;
use super::*;

const VERSIONS: [Option<ProtocolVersion>; 4] =
    [None, Some(ProtocolVersion::V3_1), Some(ProtocolVersion::V3_1_1), Some(ProtocolVersion::V5)];

/// Reads the buffer as a connection would; whatever decodes must encode to what decodes to the same again.
fn read_all(mut buffer: Bytes) {
    connect_version(&buffer);
    for version in VERSIONS {
        let mut rest = buffer.clone();
        while let Ok(Some(frame)) = frame(&rest, 1 << 20) {
            if frame.total_len() > rest.len() {
                break;
            }
            let Ok(packet) = decode(frame, rest.split_to(frame.total_len()), version) else { break };
            let spoken = version.unwrap_or(ProtocolVersion::V5);
            let again = encoded(&packet, spoken);
            assert_eq!(again.len(), encoded_len(&packet, spoken));
            let frame = super::frame(&again, MAX_PACKET_SIZE).unwrap().unwrap();
            assert_eq!(decode(frame, again, Some(spoken)).as_ref(), Ok(&packet));
        }
    }
    // Also with a frame that is right for the length whatever the bytes say, so that bodies are reached more often.
    if buffer.len() >= 2 {
        let first_byte = buffer.split_to(1).first().copied().unwrap_or_default();
        let frame = Frame { first_byte, header_len: 1, remaining_len: buffer.len() - 1 };
        for version in VERSIONS {
            let _ = decode(frame, buffer.clone(), version);
        }
    }
}

#[derive(Debug, Clone)]
enum Mutation {
    Replace(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Cut(Index),
    FlipBit(Index, u8),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        any::<(Index, u8)>().prop_map(|(at, byte)| Mutation::Replace(at, byte)),
        any::<(Index, u8)>().prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        any::<Index>().prop_map(Mutation::Remove),
        any::<Index>().prop_map(Mutation::Cut),
        (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Mutation::FlipBit(at, bit)),
    ]
}

fn mutate(bytes: &Bytes, mutations: &[Mutation], keep_length_right: bool) -> Bytes {
    let header_len = frame(bytes, MAX_PACKET_SIZE).unwrap().unwrap().header_len;
    let mut body: Vec<u8> = bytes.to_vec();
    for mutation in mutations {
        if body.is_empty() {
            break;
        }
        match mutation {
            Mutation::Replace(at, byte) => *at.get_mut(&mut body) = *byte,
            Mutation::Insert(at, byte) => body.insert(at.index(body.len()), *byte),
            Mutation::Remove(at) => drop(body.remove(at.index(body.len()))),
            Mutation::Cut(at) => body.truncate(at.index(body.len())),
            Mutation::FlipBit(at, bit) => *at.get_mut(&mut body) ^= 1 << bit,
        }
    }
    if !keep_length_right || body.len() < header_len {
        return body.into();
    }
    // The fixed header is made anew, so that the fault is met inside the packet.
    let content = body.split_off(header_len);
    let mut out = BytesMut::new();
    out.extend_from_slice(&body[..1]);
    out.var_int(u32::try_from(content.len()).unwrap());
    out.extend_from_slice(&content);
    out.freeze()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        read_all(bytes.into());
    }

    #[test]
    fn mutated_v3_packets_never_panic(
        packet in packet(ProtocolVersion::V3_1_1), mutations in prop::collection::vec(mutation(), 1..5), right in any::<bool>(),
    ) {
        read_all(mutate(&encoded(&packet, ProtocolVersion::V3_1_1), &mutations, right));
    }

    #[test]
    fn mutated_v5_packets_never_panic(
        packet in packet(ProtocolVersion::V5), mutations in prop::collection::vec(mutation(), 1..5), right in any::<bool>(),
    ) {
        read_all(mutate(&encoded(&packet, ProtocolVersion::V5), &mutations, right));
    }
}

/// Every first byte with every body of up to two bytes.
#[test]
fn all_tiny_packets_never_panic() {
    for first_byte in 0..=u8::MAX {
        for version in VERSIONS {
            let _ =
                decode(Frame { first_byte, header_len: 2, remaining_len: 0 }, Bytes::copy_from_slice(&[first_byte, 0]), version);
            for a in 0..=u8::MAX {
                let frame = Frame { first_byte, header_len: 2, remaining_len: 2 };
                for b in [0, 1, 2, 0x7F, 0x80, 0xFF] {
                    let _ = decode(frame, Bytes::copy_from_slice(&[first_byte, 2, a, b]), version);
                }
            }
        }
    }
}
