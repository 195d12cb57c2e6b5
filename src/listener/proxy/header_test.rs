use proptest::prelude::*;

use super::*;

fn v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = V2_SIGNATURE.to_vec();
    bytes.extend([version_command, family]);
    bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend(body);
    bytes
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &u16::try_from(value.len()).unwrap().to_be_bytes(), value].concat()
}

fn ssl_tlv(client: u8, verify: u32, common_name: &[u8]) -> Vec<u8> {
    let subs = [tlv(0x21, b"TLSv1.3"), tlv(SSL_COMMON_NAME, common_name)].concat();
    tlv(TLV_SSL, &[&[client][..], &verify.to_be_bytes(), &subs].concat())
}

const V4: [u8; 12] = [192, 0, 2, 1, 10, 0, 0, 1, 0xC0, 0x00, 0x07, 0x5B];

fn v4_with(tlvs: &[u8]) -> Vec<u8> {
    v2(0x21, 0x11, &[&V4[..], tlvs].concat())
}

fn addresses(source: &str, destination: &str) -> Header {
    let (source, destination) = (source.parse().ok(), destination.parse().ok());
    assert!(source.is_some() && destination.is_some());
    Header { source, destination, ..Header::default() }
}

fn v4_header() -> Header {
    addresses("192.0.2.1:49152", "10.0.0.1:1883")
}

/// Reads as the listener does: no more than is asked for.
fn read(stream: &[u8], step_max: usize) -> (Result<Step, HeaderError>, usize) {
    let mut have = 0;
    loop {
        match parse(&stream[..have]) {
            Ok(Step::More(more)) => {
                assert!(more > 0);
                let next = (have + more.min(step_max)).min(stream.len());
                if next == have {
                    return (Ok(Step::More(more)), have);
                }
                have = next;
            }
            outcome => return (outcome, have),
        }
    }
}

fn valid() -> Vec<(&'static str, Vec<u8>, Header)> {
    let v6 = [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 15], &[1], &[0, 80, 0, 81]].concat();
    let tls = |name: Option<&str>| Header { tls: Some(ProxyTls { common_name: name.map(Into::into) }), ..v4_header() };
    let unix = Header::default();
    vec![
        ("v1", b"PROXY TCP4 192.0.2.1 10.0.0.1 49152 1883\r\n".to_vec(), v4_header()),
        ("v1 IPv6", b"PROXY TCP6 2001:db8::1 ::1 80 81\r\n".to_vec(), addresses("[2001:db8::1]:80", "[::1]:81")),
        ("v1 port 0", b"PROXY TCP4 1.1.1.1 1.1.1.2 0 1\r\n".to_vec(), addresses("1.1.1.1:0", "1.1.1.2:1")),
        ("v1 unknown", b"PROXY UNKNOWN\r\n".to_vec(), Header::default()),
        ("v1 unknown with more", b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), Header::default()),
        ("v2", v4_with(&[]), v4_header()),
        ("v2 UDP", v2(0x21, 0x12, &V4), v4_header()),
        ("v2 IPv6", v2(0x21, 0x21, &v6), addresses("[2001:db8::1]:80", "[::1]:81")),
        ("v2 unix", v2(0x21, 0x31, &[0; 216]), unix.clone()),
        ("v2 unspecified", v2(0x21, 0x00, &[9; 40]), unix),
        ("v2 local", v2(0x20, 0x00, &[]), Header { local: true, ..Header::default() }),
        ("v2 local with addresses", v2(0x20, 0x11, &V4), Header { local: true, ..Header::default() }),
        ("v2 other TLVs", v4_with(&[tlv(0x01, b"mqtt"), tlv(0x04, &[]), tlv(0xEE, &[7; 300])].concat()), v4_header()),
        ("v2 TLS", v4_with(&ssl_tlv(0x01, 1, b"")), tls(None)),
        ("v2 TLS with certificate", v4_with(&ssl_tlv(0x03, 0, b"client")), tls(Some("client"))),
        ("v2 certificate not verified", v4_with(&ssl_tlv(0x03, 1, b"client")), tls(None)),
        ("v2 TLV says no TLS", v4_with(&ssl_tlv(0x00, 0, b"")), v4_header()),
        ("v2 common name not UTF-8", v4_with(&ssl_tlv(0x03, 0, b"\xFF")), tls(None)),
        ("v2 checksum", with_checksum(0), v4_header()),
        ("v2 longest", v4_with(&tlv(0xEE, &vec![0; V2_BODY_LEN_MAX - 15])), v4_header()),
    ]
}

/// A header with a checksum, changed by `error`.
fn with_checksum(error: u32) -> Vec<u8> {
    let mut bytes = v4_with(&[tlv(0xEE, b"x"), tlv(TLV_CRC32C, &[0; 4])].concat());
    let checksum = crc32c(bytes.iter().copied()) ^ error;
    let start = bytes.len() - 4;
    bytes[start..].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn headers_are_read_to_their_last_byte_and_no_further_however_they_are_split() {
    for (name, bytes, header) in valid() {
        let stream = [&bytes[..], b"\x10\x0Fbehind it"].concat();
        for step_max in [1, 2, 7, usize::MAX] {
            let (outcome, count) = read(&stream, step_max);
            assert_eq!(outcome, Ok(Step::Header(header.clone())), "{name}");
            assert_eq!(count, bytes.len(), "{name}");
        }
        for end in 0..bytes.len() {
            assert!(matches!(parse(&bytes[..end]), Ok(Step::More(1..))), "{name} cut at {end}");
        }
    }
}

#[test]
fn what_begins_like_something_else_has_no_header() {
    for bytes in
        [&b"\x10"[..], b"\x10\x0F\0\x04MQTT", b"\x16\x03\x01", b"GET / HTTP/1.1", b"PUT", b"PROXZ", b"\r\n\r\r", b"P\x10"]
    {
        assert_eq!(parse(bytes), Ok(Step::Absent), "{bytes:?}");
    }
}

#[test]
fn malformed_headers_are_refused() {
    use HeaderError as E;
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let cases: Vec<(Vec<u8>, HeaderError)> = vec![
        (line("TCP4 1.1.1.1 1.1.1.1 1"), E::Line),
        (line("TCP4 1.1.1.1 1.1.1.1 1 2 3"), E::Line),
        (line("TCP4 1.1.1.1 1.1.1.1 1 65536"), E::Line),
        (line("TCP4 1.1.1.1 1.1.1.1 1 +1"), E::Line),
        (line("TCP4 1.1.1.1 1.1.1.1 1 01"), E::Line),
        (line("TCP4 1.1.1.1 1.1.1.1  1 1"), E::Line),
        (line("TCP4 ::1 ::1 1 1"), E::Line),
        (line("TCP6 1.1.1.1 1.1.1.1 1 1"), E::Line),
        (line("UDP4 1.1.1.1 1.1.1.1 1 1"), E::Line),
        (line("tcp4 1.1.1.1 1.1.1.1 1 1"), E::Line),
        (line("TCP4 1.1.1.1\u{e9} 1.1.1.1 1 1"), E::Line),
        (b"PROXY TCP4 1.1.1.1 1.1.1.1 1 1\nmore and more".to_vec(), E::Line),
        (line(&format!("UNKNOWN {}", "x".repeat(92))), E::LineTooLong),
        // One byte more than the longest line, of which the last two come together.
        (format!("PROXY UNKNOWN {}", "x".repeat(92)).into_bytes(), E::LineTooLong),
        (v2(0x11, 0x11, &V4), E::Kind),
        (v2(0x22, 0x11, &V4), E::Kind),
        (v2(0x21, 0x13, &V4), E::Kind),
        (v2(0x21, 0x41, &V4), E::Kind),
        (v2(0x21, 0x11, &V4[..11]), E::Truncated),
        (v2(0x21, 0x21, &[0; 35]), E::Truncated),
        (v2(0x21, 0x31, &[0; 215]), E::Truncated),
        (v4_with(&[1]), E::Truncated),
        (v4_with(&[1, 0]), E::Truncated),
        (v4_with(&[1, 0, 2, 0]), E::Truncated),
        (v4_with(&tlv(TLV_SSL, &[1, 0, 0, 0])), E::Truncated),
        (v4_with(&tlv(TLV_SSL, &[1, 0, 0, 0, 0, SSL_COMMON_NAME, 0, 9])), E::Truncated),
        (v4_with(&tlv(TLV_CRC32C, &[0; 3])), E::Checksum),
        (with_checksum(1), E::Checksum),
        (v4_with(&tlv(0xEE, &vec![0; V2_BODY_LEN_MAX])), E::TooLong),
    ];
    for (bytes, error) in cases {
        assert_eq!(read(&bytes, usize::MAX).0, Err(error), "{:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn the_checksum_is_crc32c() {
    // RFC 3720 B.4
    assert_eq!(crc32c([0; 32].into_iter()), 0x8A91_36AA);
    assert_eq!(crc32c(0..32), 0x46DD_794E);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic_and_within_bounds(
        which in 0..20_usize,
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        step_max in 1..40_usize,
    ) {
        let mut bytes = valid().swap_remove(which).1;
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (outcome, count) = read(&bytes, step_max);
        prop_assert!(count <= V2_FIXED_LEN + V2_BODY_LEN_MAX);
        if let Ok(Step::More(more)) = outcome {
            prop_assert!(count + more <= V2_FIXED_LEN + V2_BODY_LEN_MAX);
        }
    }

    #[test]
    fn arbitrary_bytes_behind_the_signature_do_no_harm(rest in proptest::collection::vec(any::<u8>(), 0..300)) {
        for prefix in [V1_PREFIX, &V2_SIGNATURE[..], &v2(0x21, 0x11, &[])[..14]] {
            let _ = read(&[prefix, &rest[..]].concat(), 16);
        }
    }
}
