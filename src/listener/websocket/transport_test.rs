use std::future::poll_fn;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use super::*;

fn pair(capacity: usize) -> (WebSocketTransport<DuplexStream>, DuplexStream) {
    let (server, client) = duplex(capacity);
    (WebSocketTransport::new(server), client)
}

/// A client's frame with an empty mask, of up to 125 bytes.
fn client_frame(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0][..], payload].concat()
}

/// Has whole bytes only.
impl Heard for DuplexStream {
    fn take_heard(&mut self) -> bool {
        false
    }
}

async fn read<S: AsyncRead + AsyncWrite + Heard + Unpin>(transport: &mut WebSocketTransport<S>) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 64];
    let count = poll_fn(|cx| transport.poll_read(cx, &mut buffer)).await?;
    Ok(buffer[..count].to_vec())
}

#[actix_web::test]
async fn a_ping_is_answered_and_payload_goes_on() {
    let (mut transport, mut client) = pair(1000);
    client.write_all(&client_frame(0x89, b"1")).await.unwrap();
    client.write_all(&client_frame(0x02, b"a")).await.unwrap();
    client.write_all(&client_frame(0x89, b"2")).await.unwrap();
    client.write_all(&client_frame(0x80, b"b")).await.unwrap();
    assert_eq!(read(&mut transport).await.unwrap(), b"ab");
    let mut answer = [0; 3];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [0x8A, 1, b'2'], "the last ping alone needs an answer");
}

#[actix_web::test]
async fn a_close_frame_is_answered_and_ends_the_stream() {
    let (mut transport, mut client) = pair(1000);
    client.write_all(&client_frame(0x88, &[0x03, 0xE9])).await.unwrap();
    assert_eq!(read(&mut transport).await.unwrap(), b"");
    drop(transport);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [0x88, 2, 0x03, 0xE9]);
}

#[actix_web::test]
async fn a_text_frame_ends_the_stream_with_its_status() {
    for (bytes, status) in [(client_frame(0x81, b"x"), 1003_u16), (vec![0x82, 0], 1002)] {
        let (mut transport, mut client) = pair(1000);
        client.write_all(&bytes).await.unwrap();
        assert!(read(&mut transport).await.unwrap_err().get_ref().is_some_and(|inner| inner.is::<BadFrame>()));
        drop(transport);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, [&[0x88, 2][..], &status.to_be_bytes()].concat());
    }
}

#[actix_web::test]
async fn what_came_before_a_bad_frame_is_handed_on_and_answered() {
    let (mut transport, mut client) = pair(1000);
    client.write_all(&[client_frame(0x82, b"good"), client_frame(0x81, b"bad")].concat()).await.unwrap();
    assert_eq!(read(&mut transport).await.unwrap(), b"good");
    assert_eq!(poll_fn(|cx| transport.poll_write(cx, b"yes")).await.unwrap(), 3);
    for _ in 0..2 {
        assert!(read(&mut transport).await.is_err());
    }
    drop(transport);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [&[0x82, 3][..], b"yes", &[0x88, 2], &1003_u16.to_be_bytes()].concat());
}

#[actix_web::test]
async fn shutting_down_says_goodbye_once_and_reads_on() {
    let (mut transport, mut client) = pair(1000);
    for _ in 0..2 {
        poll_fn(|cx| transport.poll_shutdown(cx)).await.unwrap();
    }
    client.write_all(&client_frame(0x82, b"late")).await.unwrap();
    client.write_all(&client_frame(0x88, &[0x03, 0xE8])).await.unwrap();
    assert_eq!(read(&mut transport).await.unwrap(), b"late");
    assert_eq!(read(&mut transport).await.unwrap(), b"");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [0x88, 2, 0x03, 0xE8]);
    assert!(poll_fn(|cx| transport.poll_write(cx, b"x")).await.is_err());
}

#[actix_web::test]
async fn much_is_written_in_frames_of_bounded_size_through_a_narrow_pipe() {
    let (mut transport, mut client) = pair(100);
    let data: Vec<u8> = (0..150_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let sent = data.clone();
    let write = async move {
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let count = poll_fn(|cx| transport.poll_write(cx, rest)).await.unwrap();
            rest = &rest[count..];
        }
        poll_fn(|cx| transport.poll_flush(cx)).await.unwrap();
        assert_eq!(transport.out.capacity(), 0, "an idle connection owns no buffer");
    };
    let receive = async move {
        let mut got = Vec::new();
        while got.len() < 150_000 {
            let mut header = [0; 2];
            client.read_exact(&mut header).await.unwrap();
            assert_eq!(header[0], 0x82);
            let len = match header[1] {
                126 => u64::from(client.read_u16().await.unwrap()),
                127 => client.read_u64().await.unwrap(),
                len => u64::from(len),
            };
            assert!(len <= FRAME_BYTES_MAX as u64);
            let before = got.len();
            got.resize(before + usize::try_from(len).unwrap(), 0);
            client.read_exact(&mut got[before..]).await.unwrap();
        }
        got
    };
    let ((), got) = tokio::join!(write, receive);
    assert!(got == data);
}

#[actix_web::test]
async fn a_flood_of_empty_frames_leaves_others_their_turn() {
    let (mut transport, mut client) = pair(1_000_000);
    for _ in 0..20_000 {
        client.write_all(&client_frame(0x82, b"")).await.unwrap();
    }
    let mut buffer = [0; 6];
    let mut polls = 0;
    let flood = poll_fn(|cx| {
        polls += 1;
        let poll = transport.poll_read(cx, &mut buffer);
        if polls < 10 { poll } else { Poll::Ready(Ok(0)) }
    });
    assert_eq!(actix_rt::time::timeout(Duration::from_secs(5), flood).await.unwrap().unwrap(), 0);
    assert_eq!(polls, 10);
}
