use proptest::prelude::*;

use super::*;

/// A client's frame, masked.
fn masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(0, payload, &mut bytes);
    let header_len = bytes.len() - payload.len();
    bytes[0] = first;
    bytes[1] |= MASKED;
    for (n, byte) in bytes[header_len..].iter_mut().enumerate() {
        *byte ^= mask[n % 4];
    }
    let body = bytes.split_off(header_len);
    [bytes, mask.to_vec(), body].concat()
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    masked(first, payload, [0x12, 0x34, 0x56, 0x78])
}

/// Decodes in chunks of that size: payload and control frames.
fn decode(stream: &[u8], chunk: usize) -> Result<(Vec<u8>, Vec<Control>), FrameError> {
    let (mut decoder, mut payload, mut control) = (Decoder::default(), Vec::new(), Vec::new());
    for part in stream.chunks(chunk) {
        let mut part = part.to_vec();
        let count = decoder.decode(&mut part, &mut control);
        payload.extend_from_slice(&part[..count]);
    }
    decoder.failed().map_or(Ok((payload, control)), Err)
}

#[test]
fn payload_comes_out_in_order_whatever_the_frames_and_the_reads() {
    let long = vec![7; 70_000];
    let stream = [
        frame(FIN | BINARY, b"whole"),
        frame(BINARY, b"fr"),
        frame(FIN | PING, b"between"),
        frame(CONTINUATION, b""),
        frame(CONTINUATION, b"agm"),
        frame(FIN | CONTINUATION, b"ent"),
        frame(FIN | PONG, b"unasked"),
        frame(FIN | BINARY, &[b'x'; 126]),
        frame(FIN | BINARY, &long),
        frame(FIN | PING, b""),
    ]
    .concat();
    let expected = [b"wholefragment".to_vec(), vec![b'x'; 126], long].concat();
    for chunk in [1, 3, 13, 1000, usize::MAX] {
        let (payload, control) = decode(&stream, chunk).unwrap();
        assert!(payload == expected, "in chunks of {chunk}");
        assert_eq!(control, [Control::Ping(b"between".to_vec()), Control::Ping(Vec::new())]);
    }
}

#[test]
fn nothing_counts_behind_a_close_frame() {
    for (payload, status) in [(&b""[..], None), (&[0x03, 0xE8, b'b', b'y', b'e'], Some(1000)), (&[0x0F, 0xA0], Some(4000))] {
        let stream = [frame(FIN | BINARY, b"a"), frame(FIN | CLOSE, payload), frame(FIN | TEXT, b"b")].concat();
        assert_eq!(decode(&stream, 4), Ok((b"a".to_vec(), vec![Control::Close(status)])));
    }
}

/// RFC 6455 5.5.1, 7.4, 8.1
#[test]
fn a_close_frame_says_a_status_that_may_be_sent_and_a_reason_in_utf_8() {
    let cases: [(&[u8], FrameError, u16); 7] = [
        (&[3], FrameError::CloseStatus, 1002),
        (&[0x03, 0xED], FrameError::CloseStatus, 1002), // 1005
        (&[0x03, 0xEE], FrameError::CloseStatus, 1002), // 1006
        (&[0x03, 0xE7], FrameError::CloseStatus, 1002), // 999
        (&[0x07, 0xD0], FrameError::CloseStatus, 1002), // 2000
        (&[0x13, 0x88], FrameError::CloseStatus, 1002), // 5000
        (&[0x03, 0xE8, 0xFF], FrameError::CloseReason, 1007),
    ];
    for (payload, error, status) in cases {
        assert_eq!(decode(&frame(FIN | CLOSE, payload), 4), Err(error), "{payload:?}");
        assert_eq!(error.status(), status);
    }
}

#[test]
fn frames_that_no_client_may_send_are_refused() {
    let cases = [
        ("text", frame(FIN | TEXT, b"x"), FrameError::Text),
        ("text in fragments", frame(TEXT, b"x"), FrameError::Text),
        ("reserved bit", frame(FIN | 0x40 | BINARY, b"x"), FrameError::Reserved),
        ("opcode 3", frame(FIN | 3, b"x"), FrameError::Reserved),
        ("opcode 11", frame(FIN | 11, b"x"), FrameError::Reserved),
        ("not masked", vec![FIN | BINARY, 1, b'x'], FrameError::NotMasked),
        ("ping in fragments", frame(PING, b"x"), FrameError::BadControl),
        ("long ping", frame(FIN | PING, &[0; 126]), FrameError::BadControl),
        ("continuation of nothing", frame(FIN | CONTINUATION, b"x"), FrameError::Fragmentation),
        ("after the last fragment", [frame(FIN | BINARY, b"x"), frame(CONTINUATION, b"x")].concat(), FrameError::Fragmentation),
        ("message in a message", [frame(BINARY, b"x"), frame(FIN | BINARY, b"x")].concat(), FrameError::Fragmentation),
        ("length of 64 bits", [vec![FIN | BINARY, MASKED | 127], vec![0xFF; 12]].concat(), FrameError::Length),
    ];
    for (name, stream, error) in cases {
        for chunk in [1, usize::MAX] {
            assert_eq!(decode(&stream, chunk), Err(error), "{name}");
        }
    }
}

#[test]
fn what_came_before_an_error_counts_and_nothing_behind_it() {
    let stream = [frame(FIN | BINARY, b"good"), frame(FIN | TEXT, b"bad"), frame(FIN | BINARY, b"late")].concat();
    for chunk in [1, 7, usize::MAX] {
        let (mut decoder, mut payload) = (Decoder::default(), Vec::new());
        for part in stream.chunks(chunk) {
            let mut part = part.to_vec();
            let count = decoder.decode(&mut part, &mut Vec::new());
            payload.extend_from_slice(&part[..count]);
        }
        assert_eq!((&payload[..], decoder.failed()), (&b"good"[..], Some(FrameError::Text)), "in chunks of {chunk}");
    }
}

#[test]
fn a_claimed_length_costs_no_memory() {
    let mut decoder = Decoder::default();
    let mut header = [&[FIN | BINARY, MASKED | 127][..], &(i64::MAX as u64).to_be_bytes(), &[0; 4]].concat();
    assert_eq!((decoder.decode(&mut header, &mut Vec::new()), decoder.failed()), (0, None));
    assert_eq!(decoder.control.capacity(), 0);
}

#[test]
fn frames_of_the_server_have_the_shortest_length() {
    for (len, header) in
        [(0, vec![0x82, 0]), (125, vec![0x82, 125]), (126, vec![0x82, 126, 0, 126]), (65_535, vec![0x82, 126, 0xFF, 0xFF])]
    {
        let mut out = Vec::new();
        encode(BINARY, &vec![1; len], &mut out);
        assert_eq!((&out[..header.len()], out.len()), (&header[..], header.len() + len));
    }
    let mut out = Vec::new();
    encode(BINARY, &vec![1; 65_536], &mut out);
    assert_eq!(out[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
}

proptest! {
    #[test]
    fn any_split_into_frames_and_reads_carries_the_same_bytes(
        data in proptest::collection::vec(any::<u8>(), 0..600),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        mask in any::<[u8; 4]>(),
        chunk in 1..50_usize,
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len() + 1)).chain([data.len()]).collect();
        ends.sort_unstable();
        let (mut stream, mut from) = (Vec::new(), 0);
        for (n, end) in ends.iter().enumerate() {
            let opcode = if n == 0 { BINARY } else { CONTINUATION };
            let last = if n + 1 == ends.len() { FIN } else { 0 };
            stream.extend(masked(last | opcode, &data[from..*end], mask));
            from = *end;
        }
        prop_assert_eq!(decode(&stream, chunk).unwrap().0, data);
    }

    #[test]
    fn any_bytes_are_decoded_without_panic_and_alike_in_any_chunks(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(0x82), Just(0x80), Just(0x81 + 8)], 0..200),
        chunk in 1..20_usize,
    ) {
        prop_assert_eq!(decode(&bytes, chunk).is_ok(), decode(&bytes, usize::MAX).is_ok());
    }
}
