use super::*;

#[test]
fn a_fixed_header_is_awaited_until_it_is_complete() {
    for part in [&[][..], &[0x30], &[0x30, 0x80], &[0x30, 0xFF, 0xFF], &[0x30, 0x80, 0x80, 0x80]] {
        assert_eq!(frame(part, MAX_PACKET_SIZE), Ok(None), "{part:x?}");
    }
}

#[test]
fn remaining_lengths_are_read_at_their_boundaries() {
    let table: [(&[u8], usize); 9] = [
        (&[0x00], 0),
        (&[0x7F], 127),
        (&[0x80, 0x01], 128),
        (&[0xFF, 0x7F], 16_383),
        (&[0x80, 0x80, 0x01], 16_384),
        (&[0xFF, 0xFF, 0x7F], 2_097_151),
        (&[0x80, 0x80, 0x80, 0x01], 2_097_152),
        (&[0xFF, 0xFF, 0xFF, 0x7F], 268_435_455),
        (&[0x05, 0xAA, 0xBB], 5),
    ];
    for (length, remaining_len) in table {
        let buffer = [&[0x30], length].concat();
        let read = frame(&buffer, MAX_PACKET_SIZE).unwrap().unwrap();
        assert_eq!(read.remaining_len, remaining_len);
        assert_eq!(read.first_byte, 0x30);
        let header_len = if remaining_len == 5 { 2 } else { buffer.len() };
        assert_eq!(read.header_len, header_len);
    }
}

#[test]
fn a_remaining_length_in_five_bytes_or_more_than_needed_is_refused() {
    let table: [&[u8]; 6] = [
        &[0x30, 0x80, 0x00],
        &[0x30, 0x81, 0x80, 0x00],
        &[0x30, 0xFF, 0xFF, 0xFF, 0x00],
        &[0x30, 0xFF, 0xFF, 0xFF, 0xFF],
        &[0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
        &[0x30, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
    ];
    for buffer in table {
        assert_eq!(frame(buffer, MAX_PACKET_SIZE), Err(DecodeError::RemainingLength), "{buffer:x?}");
    }
}

#[test]
fn size_is_refused_by_the_header_alone_and_counts_the_header() {
    assert!(frame(&[0x30, 98], 100).unwrap().is_some());
    assert_eq!(frame(&[0x30, 99], 100), Err(DecodeError::PacketTooLarge { size: 101, max: 100 }));
    // The two-byte length makes the difference here.
    assert!(frame(&[0x30, 0x80, 0x01], 131).unwrap().is_some());
    assert_eq!(frame(&[0x30, 0x80, 0x01], 130), Err(DecodeError::PacketTooLarge { size: 131, max: 130 }));
    let largest = [0x30, 0xFF, 0xFF, 0xFF, 0x7F];
    assert_eq!(frame(&largest, MAX_PACKET_SIZE).unwrap().unwrap().total_len(), 268_435_460);
    assert!(frame(&largest, MAX_PACKET_SIZE - 1).is_err());
}

#[test]
fn a_packet_that_is_not_as_long_as_its_frame_is_refused() {
    let ping = Frame { first_byte: 0xC0, header_len: 2, remaining_len: 0 };
    for bytes in [&[][..], &[0xC0], &[0xC0, 0, 0]] {
        let result = decode(ping, Bytes::copy_from_slice(bytes), Some(ProtocolVersion::V5));
        assert!(matches!(result, Err(DecodeError::Malformed(_))));
    }
    let absurd = Frame { first_byte: 0xC0, header_len: 2, remaining_len: usize::MAX };
    assert!(decode(absurd, Bytes::from_static(&[0xC0, 0]), Some(ProtocolVersion::V5)).is_err());
}
