//! What a stranger, or a peer gone wrong, sends to the port for nodes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::transport::frame::{Class, Inbound, Outbound, frame, read_frame};
use super::transport::hello::{self, Introduction};
use crate::fuzzing::Draw;
const ALL: hello::Versions = hello::Versions { min: hello::VERSION_MIN, max: hello::VERSION_MAX };

pub fn peer_frame(data: &[u8]) {
    let mut draw = Draw::new(data);
    match draw.below(6) {
        0 => survives::<Outbound>(draw.rest()),
        1 => survives::<Inbound>(draw.rest()),
        2 => survives::<Outbound>(&framed(draw.rest())),
        3 => survives::<Inbound>(&framed(draw.rest())),
        4 => nobody_gets_in(draw.rest()),
        _ => nobody_gets_in(&framed(draw.rest())),
    }
}

/// The bytes behind a length and a format version that are right.
fn framed(body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 1).unwrap_or(u32::MAX).to_le_bytes();
    [&len[..], &[1], body].concat()
}

/// What can be read can be written, and reads as the same.
fn survives<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let read = |mut bytes: &[u8]| read_frame::<T>(&mut bytes).now_or_never();
    let Some(Ok(value)) = read(bytes) else { return };
    let again = frame(&value).expect("what was read can be written");
    let Some(Ok(value)) = read(&again) else { panic!("what was written cannot be read") };
    assert_eq!(frame(&value).expect("again"), again);
}

/// Without the secret no exchange succeeds, on either side.
fn nobody_gets_in(bytes: &[u8]) {
    let us = || Introduction {
        version: 0,
        name: "n".to_owned(),
        address: "n:1".to_owned(),
        incarnation: 1,
        cluster_id: None,
        process: 1,
        shards: 6,
    };
    let mut stranger = Stranger { sends: bytes, got: 0 };
    let outcome = hello::accept(&mut stranger, us(), "secret", ALL, |_| Ok(())).now_or_never();
    assert!(matches!(outcome, Some(Err(_))));
    // A stranger costs no more than a few small frames.
    assert!(stranger.got <= 4096);
    let mut stranger = Stranger { sends: bytes, got: 0 };
    let outcome = hello::dial(&mut stranger, us(), Class::Messages, "secret", ALL).now_or_never();
    assert!(matches!(outcome, Some(Err(_))));
    assert!(stranger.got <= 4096);
}

/// A socket whose peer says what it has to say whatever it is told.
struct Stranger<'a> {
    sends: &'a [u8],
    got: usize,
}

impl AsyncRead for Stranger<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (now, later) = self.sends.split_at(self.sends.len().min(buffer.remaining()));
        buffer.put_slice(now);
        self.sends = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stranger<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.got += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
